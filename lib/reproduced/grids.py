"""Long maps over grid points that survive an interruption: each finished point lies on disk under its key.

`run_grid(function, points, name=…, run=…)` is `[function(point) for point in points]`, except that a point computed
before under the same key is read instead. `run_calls` and `keep` do the same for calls with several arguments.

The function is one of a module, or a `functools.partial` of one (see `code_keys.digest`); a result is anything that
`leakage.store.pack` takes. Tensors come back on the CPU, whether computed or read. Nothing here deletes a point.
"""

import functools
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from multiprocessing import connection, get_context, parent_process
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from leakage import store
from reproduced import code_keys, repository
from reproduced.runtime import Run

code_keys.digest_library()  # now, while the code that runs is the code on disk


def run_grid(
    function: Callable[[Any], Any],
    points: Iterable[Any],
    *,
    name: str,
    run: Run,
    bar: bool = True,
) -> list[Any]:
    """`function(point)` for each point, in order; points finished earlier are not computed again.

    A result is read while these are the same: the point, the function with the files that its module imports, profile,
    seed, kind of device and of processor (last digits differ between two kinds), Python and the locked packages.

    The points that are left run here in turn, or, where a build has processors to spare and says so in the variable
    `LEAKAGE_PROCESSES`, in that many processes.

    Args:
        function: takes a point.
        points: numbers, texts, tensors, functions of modules, dataclasses, tuples or dictionaries of these.
        name: names the grid in `grids/` of the build folder, in messages and at the progress bar.
        run: the chapter's run.
        bar: whether to show a progress bar.

    Raises:
        TypeError: if the function, a point or a result cannot be kept.
        Exception: what `function` raises, with the point noted; the points finished by then are kept.
    """
    points = list(points)
    machine = (code_keys.device_kind(run.device), code_keys.processor(), code_keys.environment(code_keys.LIB.parent))
    # `_packed_result` is in the key so that a change of this module, or of what it imports, makes every point new.
    shared = code_keys.digest((_packed_result, function, run.profile, run.seed, *machine))
    home = Path(os.environ.get(repository.BUILD_VARIABLE) or repository.find_root() / "_build", "grids", name)
    files = [home / f"{code_keys.digest((shared, point))[:40]}.pt" for point in points]
    values = _read(set(files), name)
    missing = {file: point for file, point in zip(files, points, strict=True) if file not in values}
    hidden = not bar or bool(os.environ.get(repository.QUIET_VARIABLE))
    with tqdm(total=len(set(files)), initial=len(values), desc=name, disable=hidden) as progress:
        for file, content in _compute(function, missing, _executor(run, len(missing))):
            values[file] = store.unpack(content)  # as it will be read
            store.write(file, content)
            progress.update()
    return [values[file] for file in files]


def run_calls(
    function: Callable[..., Any], calls: Mapping[Any, Mapping[str, Any]], *, name: str, run: Run
) -> dict[Any, Any]:
    """`function(**options)` for the options of each call, under the call's name; otherwise as `run_grid`."""
    points = [((), dict(options), None) for options in calls.values()]
    found = run_grid(functools.partial(_call, function), points, name=name, run=run)
    return {call: value for call, (value, _) in zip(calls, found, strict=True)}


def keep(function: Callable[..., Any], *, name: str, run: Run) -> Callable[..., Any]:
    """`function`, whose results are kept: a call is computed once for the same arguments, and read after that.

    The state of `generator` is part of the key; after the call it is advanced, also if the result was read.
    """

    def call(*arguments: Any, generator: torch.Generator | None = None, **options: Any) -> Any:
        state = generator and (generator.device, generator.get_state())
        point = (arguments, options, state)
        ((value, ended),) = run_grid(functools.partial(_call, function), [point], name=name, run=run, bar=False)
        if generator:
            generator.set_state(ended)
        return value

    return call


def _call(function: Callable[..., Any], point: tuple[tuple[Any, ...], dict[str, Any], Any]) -> tuple[Any, Any]:
    """The value of a call, and the state in which it leaves its generator."""
    arguments, options, state = point
    if state is None:
        return function(*arguments, **options), None
    generator = torch.Generator(state[0])
    generator.set_state(state[1])
    return function(*arguments, generator=generator, **options), generator.get_state()


def _read(files: Iterable[Path], name: str) -> dict[Path, Any]:
    """The values that lie on disk and are good."""
    values: dict[Path, Any] = {}
    for file in files:
        try:
            values[file] = store.load(file)
        except FileNotFoundError:
            pass
        except store.DamagedFile as error:
            tqdm.write(f"grid {name}: {file.name} is damaged ({error}), computed again")
    return values


# ── computing ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _compute(
    function: Callable[[Any], Any], missing: Mapping[Path, Any], executor: Executor | None
) -> Iterator[tuple[Path, bytes]]:
    """The content of each file as it is finished; what has not begun when a point fails is cancelled."""
    if executor is None:
        yield from ((file, _packed_result(function, point)) for file, point in missing.items())
        return
    futures = {executor.submit(_packed_result, function, point): file for file, point in missing.items()}
    try:
        for future in as_completed(futures):
            yield futures[future], future.result()
    finally:
        for future in futures:
            future.cancel()


def _packed_result(function: Callable[[Any], Any], point: Any) -> bytes:
    """The packed value at a point."""
    try:
        return store.pack(function(point))
    except Exception as error:
        error.add_note(f"at the grid point {point!r}")
        raise


def _executor(run: Run, points: int) -> Executor | None:
    """The processes that a build leaves to this one; none in profile smoke, where they take longer than the work."""
    count = int(os.environ.get(repository.PROCESSES_VARIABLE, "1"))
    useful = min(count, points) > 1 and (run.automatic or run.device.type == "cpu") and run.profile != "smoke"
    return _processes(count) if useful else None


@functools.cache
def _processes(count: int) -> Executor:
    return ProcessPoolExecutor(count, mp_context=get_context("spawn"), initializer=_begin_process)


def _begin_process() -> None:
    """Divide no grid further; end with the process that asked, even if it is killed, and leave interrupts to it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ[repository.PROCESSES_VARIABLE] = "1"
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None, "begun by another process"
    connection.wait([parent.sentinel])
    os._exit(1)
