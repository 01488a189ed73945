"""On the workers of dask is found what is found here, whoever is killed; a worker unlike this machine is refused."""

import json
import shutil
import subprocess
import sys
from contextlib import ExitStack

import psutil
import pytest

from checking import HANGS, is_a_refusal, wait_until
from leakage import command_line
from small_book import (
    LEAKAGE,
    add_chapter,
    build,
    edit,
    heed_interrupts,
    make_repository,
    read_findings,
    run,
)

pytestmark = pytest.mark.slow
CHAPTERS = ("first", "second", "third")
# What a worker imports before anything else, to be unlike this machine.
OTHERS = {
    "version of torch": "from importlib import metadata\n"
    "metadata.version = lambda name, old=metadata.version: '2.0' if name == 'torch' else old(name)",
    "leakage/metrics/roc.py": "from reproduced import code_keys\n"
    "def other(path, old=code_keys.file_digest): return 'other' if path.name == 'roc.py' else old(path)\n"
    "other.cache_clear = code_keys.file_digest.cache_clear\ncode_keys.file_digest = other",
}


class Machines:
    """A scheduler and workers, each a process of its own."""

    def __init__(self, folder, started: ExitStack) -> None:
        self.folder, self._started = folder, started
        self.scheduler = self._start("scheduler", "--port", "0", "--scheduler-file", folder / "scheduler.json")
        wait_until((folder / "scheduler.json").is_file)
        self.address = json.loads((folder / "scheduler.json").read_text())["address"]

    def worker(self, preload: str = "") -> subprocess.Popen:
        number = len([*self.folder.glob("worker*")])
        place = self.folder / f"worker{number}"
        place.mkdir()
        (place / "preload.py").write_text(preload)
        options = ["--nthreads", "1", "--no-nanny", "--local-directory", place, "--preload", place / "preload.py"]
        return self._start("worker", self.address, *options)

    def _start(self, kind: str, *options) -> subprocess.Popen:
        command = [sys.executable, "-P", "-m", f"distributed.cli.dask_{kind}", *options]
        process = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--no-dashboard"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._started.callback(process.wait)
        self._started.callback(process.kill)
        return process


@pytest.fixture
def machines(tmp_path):
    with ExitStack() as started:
        (tmp_path / "machines").mkdir()
        yield Machines(tmp_path / "machines", started)


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    """A repository of three chapters that has no package of its own."""
    root = make_repository(tmp_path_factory.mktemp("book") / "repository", *CHAPTERS)
    shutil.rmtree(root / "lib")
    return root


@pytest.fixture
def root(book, tmp_path):
    """A copy of it, whose chapters note that they were begun, and wait for the file `gate`."""
    root = shutil.copytree(book, tmp_path / "repository")
    for name in CHAPTERS:
        note = f"print('{name}', os.getpid(), file=open('{root}/notes', 'a'))"
        add_chapter(root, name, note, f"while not os.path.exists('{root}/gate'): time.sleep(0.05)")
        edit(root / "book" / f"{name}.md", "\nfrom leakage import numbers", "")
    return root


def notes(root) -> list[str]:
    """Chapters that were begun, each with the process of its kernel."""
    return (root / "notes").read_text().splitlines() if (root / "notes").exists() else []


def start(root, *arguments) -> subprocess.Popen:
    command = [*LEAKAGE, "build", "--no-render", "--root", root, *map(str, arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=heed_interrupts
    )


def verdicts(root) -> list:
    return [(claim["id"], claim["verdict"]) for name in CHAPTERS for claim in read_findings(root, name)["claims"]]


EXPECTED = [(f"{name}.a", "held") for name in CHAPTERS]


def test_two_of_three_workers_may_be_killed(machines, root):
    workers = {each.pid: each for each in (machines.worker(), machines.worker(), machines.worker())}
    building = start(root, "--cluster", machines.address)
    wait_until(lambda: len(notes(root)) == 3)
    kernel = psutil.Process(int(notes(root)[0].split()[1]))
    kept = next(parent.pid for parent in kernel.parents() if parent.pid in workers)
    for pid in workers.keys() - {kept}:
        workers[pid].kill()
    (root / "gate").touch()
    out, err = building.communicate(timeout=HANGS)
    assert (building.returncode, err) == (0, "")
    assert verdicts(root) == EXPECTED
    assert len(notes(root)) == 5, "two chapters were begun twice"
    assert out.count("✓") == 4
    assert "Executing Cell" in (root / "_build/logs/second.log").read_text("utf-8"), "the log came back"


def test_without_a_scheduler_what_was_finished_is_kept_and_the_next_build_goes_on(machines, root):
    machines.worker()
    edit(root / "book" / "first.md", f"while not os.path.exists('{root}/gate'): time.sleep(0.05)", "")
    building = start(root, "--cluster", machines.address)
    wait_until(lambda: len(notes(root)) == 2)  # the second has begun, for the first was finished
    wait_until((root / "_build/executed/ci/first.ipynb").is_file)
    machines.scheduler.kill()
    _, err = building.communicate(timeout=HANGS)
    assert (building.returncode, err.count("\n"), "what was finished is kept" in err) == (1, 1, True), err
    (root / "gate").touch()
    (root / "notes").unlink()
    assert build(root) == 0
    assert verdicts(root) == EXPECTED
    assert sorted(line.split()[0] for line in notes(root)) == ["second", "third"]


@pytest.mark.parametrize("other", OTHERS)
def test_a_run_refuses_to_start_if_any_worker_differs(machines, root, capsys, other):
    (root / "gate").touch()
    machines.worker()
    machines.worker(OTHERS[other])
    wait_until(lambda: _workers(machines.address) == 2)
    status, out, err = run(root, ["build", "--no-render", "--cluster", machines.address], capsys)
    assert is_a_refusal(status, out, err)
    assert "nothing was started, for worker tcp://127.0.0.1:" in err
    assert f"differs from this machine in {other}." in err
    assert not (root / "_build/executed").exists()


def _workers(address: str) -> int:
    from distributed import Client

    with Client(address, set_as_default=False) as client:
        return len(client.nthreads())


PLACES = [
    (["--jobs", "2", "--cluster", "tcp://127.0.0.1:1"], "exclude each other"),
    (["--cluster", "scheduler"], "is tcp://HOST:PORT or tls://HOST:PORT; got 'scheduler'"),
    (["--cluster", "tcp://127.0.0.1:1"], "tcp://127.0.0.1:1 gives no workers"),
]


@pytest.mark.parametrize(("options", "message"), PLACES)
@pytest.mark.parametrize("command", ["build", "replicate"])
def test_a_wrong_place_gets_one_line_and_changes_nothing(root, capsys, monkeypatch, command, options, message):
    monkeypatch.setattr("reproduced.run.cluster._ANSWER_SECONDS", 0.1)
    status = command_line.main([command, "--root", str(root), *options])
    out, err = capsys.readouterr()
    assert is_a_refusal(status, out, err)
    assert message in err
    assert not (root / "_build").exists()


def test_the_environment_names_a_cluster_as_the_option_does(root, capsys, monkeypatch):
    monkeypatch.setenv("LEAKAGE_CLUSTER", "nowhere")
    assert "got 'nowhere'" in run(root, ["build"], capsys)[2]
    assert "exclude each other" in run(root, ["build", "--jobs", "2"], capsys)[2]
