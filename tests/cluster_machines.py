"""A cluster in miniature: a scheduler, workers and clients forked from a process that has everything imported.

Run as a script it obeys the lines of its standard input, JSON lists of a command and its arguments, and ends with them,
and with it all that it has started. Chapters need no kernel (`kernels`). Each execution is noted in `notes.txt` of the
folder given; the file `traps/<chapter>` makes the next execution of the chapter kill whom it names.
"""

import asyncio
import contextlib
import functools
import json
import os
import resource
import signal
import subprocess
import sys
import traceback
import types
from importlib import metadata
from pathlib import Path
from typing import Any

STARTED: list[int] = []  # schedulers and workers


class Machines:
    """The script, run in a process of its own, and what it is told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "traps").mkdir()
        command = [sys.executable, "-P", __file__, folder]
        paths = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, "PYTHONPATH": paths}
        environment.pop("LEAKAGE_CLUSTER", None)
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def _told(self, *words: Any) -> Any:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps([str(word) for word in words]) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def scheduler(self) -> str:
        """Start a scheduler; its address."""
        return self._told("scheduler")

    def workers(self, address: str, *kinds: str) -> list[int]:
        """Start a worker of each kind, wait until the scheduler knows them; their process ids."""
        return self._told("workers", address, *kinds)

    def leakage(self, *arguments: Any, kind: str = "sound") -> tuple[int, str, str]:
        """Run a command; its exit status (below zero if it was killed), and what it wrote."""
        return tuple(self._told("leakage", kind, *arguments))

    def learn(self, *arguments: Any) -> None:
        """Run a command in the process that is forked, which then has compiled and read what each fork would."""
        assert self._told("learn", *arguments) == 0

    def end(self) -> None:
        """Kill every scheduler and worker, and forget what was noted and set."""
        self._told("end")

    def trap(self, chapter: str, victim: str) -> None:
        """Let the next execution of the chapter kill `worker` (its own), `scheduler` or `client`."""
        (self.folder / "traps" / chapter).write_text(victim)

    def notes(self) -> list[str]:
        """The chapters that were executed, with their seeds, in order."""
        path = self.folder / "notes.txt"
        return path.read_text().splitlines() if path.is_file() else []

    def close(self) -> None:
        with self._process:
            assert self._process.stdin
            self._process.stdin.close()


# ── the script ──────────────────────────────────────────────────────────────────────────────────────────────────────


def execute_with_notes(folder: Path) -> None:
    """Chapters end at once, after they were noted and what was set for them has happened."""
    from kernels import without_kernels
    from reproduced.run import execute

    without_kernels(types.SimpleNamespace(setattr=setattr))
    at_once = execute._watch

    def watch(task, *rest):
        with (folder / "notes.txt").open("a") as notes:
            print(task.chapter, task.parameters["seed"], file=notes, flush=True)
        trap = folder / "traps" / task.chapter
        with contextlib.suppress(FileNotFoundError):
            victim = trap.read_text()
            trap.unlink()
            os.kill(os.getpid() if victim == "worker" else int((folder / victim).read_text()), signal.SIGKILL)
        return at_once(task, *rest)

    execute._watch = watch


def be_worker(kind: str) -> None:
    """Be a machine of a kind: `sound`, `torch` or `library` of another version, `mute` or `small`."""
    from leakage import content_keys
    from reproduced.run import equipment

    if kind == "torch":
        version = metadata.version
        metadata.version = lambda name: "2.0" if name == "torch" else version(name)
    if kind == "library":
        digest = content_keys.file_digest
        content_keys.file_digest = lambda path: "of another" if path.name == "roc.py" else digest(path)
    if kind == "mute":
        equipment.content_keys.environment = lambda root: 1 / 0
    if kind == "small":  # its disk holds files of ten kilobytes
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))


def be_client(kind: str, arguments: list[str]) -> int:
    """Run the command, as a client to which the first result comes altered if it is of that kind."""
    from leakage import checked_files
    from reproduced import command_line

    if kind == "altering":
        unpack, altered = checked_files.unpack, []

        def once(content, **options):
            content, first = bytearray(content), not altered
            content[-1] ^= first
            altered.append(first)
            return unpack(bytes(content), **options)

        checked_files.unpack = once
    return command_line.main(arguments)


def forked(work, *arguments) -> int:
    """Do the work in a process of its own, which ends with this one; its id."""
    child = os.fork()
    if child:
        return child
    status = 99
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)
        status = work(*arguments) or 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


async def schedule(sending: int) -> None:
    from distributed import Scheduler

    async with Scheduler(host="127.0.0.1", port=0, dashboard=False) as scheduler:
        os.write(sending, scheduler.address.encode() + b"\n")
        await scheduler.finished()


async def labour(address: str, folder: Path, kind: str, sending: int) -> None:
    from distributed import Worker

    be_worker(kind)
    async with Worker(address, nthreads=1, host="127.0.0.1", local_directory=str(folder), dashboard=False) as worker:
        os.write(sending, b"ready\n")
        await worker.finished()


def command(folder: Path, name: str, *words: str) -> Any:
    """Obey one line."""
    if name == "end":
        while STARTED:
            os.kill(STARTED[-1], signal.SIGKILL)  # one that has ended is a child still
            os.waitpid(STARTED.pop(), 0)
        for path in (folder / "notes.txt", *(folder / "traps").iterdir()):
            path.unlink(missing_ok=True)
        return None
    if name == "learn":
        from reproduced import command_line
        from reproduced.run import book, equipment

        if "--root" in words:
            found = book.open_book(Path(words[words.index("--root") + 1]), None)
            equipment.equipment(equipment.needs(found, (), "cpu"))
        return command_line.main(list(words))
    receiving, sending = os.pipe()
    with open(receiving) as answers:
        if name == "scheduler":
            process = forked(lambda: asyncio.run(schedule(sending)))
            STARTED.append(process)
            (folder / "scheduler").write_text(str(process))
            return answers.readline().strip()
        if name == "workers":
            address, *kinds = words
            processes = [forked(lambda kind: asyncio.run(labour(address, folder, kind, sending)), k) for k in kinds]
            STARTED.extend(processes)
            for _ in processes:
                answers.readline()
            return processes
    kind, *arguments = words
    out, err = folder / "out", folder / "err"

    def run() -> int:
        (folder / "client").write_text(str(os.getpid()))
        with out.open("w") as stdout, err.open("w") as stderr:
            os.dup2(stdout.fileno(), 1)
            os.dup2(stderr.fileno(), 2)
            sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1) for number in (1, 2))
            status = be_client(kind, arguments)
            sys.stdout.flush()
            sys.stderr.flush()
            return status

    status = os.waitstatus_to_exitcode(os.waitpid(forked(run), 0)[1])
    return status, out.read_text(), err.read_text()


def main(folder: Path) -> None:
    import distributed  # noqa: F401

    from leakage import content_keys
    from reproduced import command_line  # noqa: F401
    from reproduced.run import audit_errands, build, cluster, errands, plan, replicate  # noqa: F401

    plan.registered_checksum = lambda name: "absent"
    import nbformat  # after the pipeline, which spares it a second

    execute_with_notes(folder)
    content_keys.processor()
    metadata.version = functools.cache(metadata.version)
    nbformat.validate(nbformat.v4.new_notebook())
    mine = os.dup(1)
    os.dup2(2, 1)  # what others write is no answer
    os.setpgrp()
    with os.fdopen(mine, "w") as answers:
        for line in sys.stdin:
            print(json.dumps(command(folder, *json.loads(line))), file=answers, flush=True)
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
