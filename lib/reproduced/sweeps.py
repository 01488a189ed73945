"""Long maps over grid points that survive an interruption: each finished point lies on disk under its content key.

`sweep(function, points, name=…, run=…)` is `[function(point) for point in points]`, except that a point computed before
under the same key is read instead. A result is a number, text, a list, a dictionary, an array, a tensor, a dataclass or
named tuple of the library, or made of these; tensors come back on the CPU, and a NumPy scalar as a Python number,
whether computed or read. `kept` does the same for the single calls of a function.
A file is read if its checksum is right (`checked_files`) and computed again otherwise. While a file that the function
depends on is not as this process imported it, nothing is read or kept: what runs is not what lies on disk.
"""

import dataclasses
import functools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future, as_completed
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from leakage import checked_files, content_keys, fingerprints
from leakage.runtime import Run
from reproduced import processes

_ARRAY, _RECORD = "numpy array", "leakage record"  # marks of values that a tensor file cannot hold as they are
_LIBRARY = ("leakage.", "reproduced.")


def sweep(
    function: Callable[[Any], Any],
    points: Iterable[Any],
    *,
    name: str,
    run: Run,
    folder: Path | str | None = None,
    description: str | None = None,
    bar: bool = True,
) -> list[Any]:
    """`function(point)` for each point, in order; points finished earlier are not computed again.

    A result is reused while the point, profile, seed, kind of device and of processor (no grid mixes the last digits
    of two), Python, the locked packages and the function are the same. Of the function, its module with all it imports
    from `leakage` counts, or its text and the variables it uses if it is written in a notebook; with
    `functools.partial`, the arguments too.

    The points that are left run here in turn, or, where a build has processors to spare and says so in the variable
    `LEAKAGE_PROCESSES`, in that many processes that live as long as this one; in profile smoke, never.

    Args:
        function: takes a point. Other processes run only a function of a module, or a `functools.partial` of one.
        points: numbers, texts, tuples, dataclasses or dictionaries of these.
        name: names the grid on disk and in messages.
        run: the chapter's run.
        folder: where finished points are kept; by default the build folder of the repository.
        description: text of the progress bar; `name` by default.
        bar: whether to show one.

    Raises:
        TypeError: if the content of the function, a point or a result cannot be read off.
        Exception: what `function` raises, with the point noted; the points finished by then are kept.
    """
    points = list(points)
    watch = content_keys.Watch()
    base = (content_keys.function_parts(function, digest=watch.digest), run.profile, run.seed)
    machine = (
        content_keys.device_kind(run.device),
        content_keys.processor(),
        content_keys.environment(_root(), imported=True),
    )
    shared = fingerprints.fingerprint((*base, *machine))
    cells = [
        _folder(folder) / _file_name(name) / f"{fingerprints.fingerprint((shared, point))[:40]}.pt" for point in points
    ]
    values = {} if watch.changed() else _stored(set(cells), name)
    missing = {cell: point for cell, point in zip(cells, points, strict=True) if cell not in values}
    quiet = bool(os.environ.get(content_keys.QUIET_VARIABLE))
    # In profile smoke there are seconds of work, less than processes take to begin.
    executor = None if run.profile == "smoke" else processes.spare(function, len(missing), run.device)
    with tqdm(
        total=len(set(cells)), initial=len(values), desc=description or name, disable=quiet or not bar
    ) as progress:
        for cell, content in _compute(function, missing, executor):
            values[cell] = _decode(checked_files.unpack(content))  # as it will be read
            if not watch.changed():
                checked_files.write(cell, content)
            progress.update()
    if changed := watch.changed():
        tqdm.write(f"grid {name}: not kept, for this has changed since it was imported: {', '.join(changed)}")
    return [values[cell] for cell in cells]


def each(
    function: Callable[..., Any],
    calls: Mapping[Any, Mapping[str, Any]],
    *,
    name: str,
    run: Run,
    folder: Path | str | None = None,
    description: str | None = None,
) -> dict[Any, Any]:
    """`function(**options)` for the options of each call, under the call's name; otherwise as `sweep`.

    Args:
        function: see `sweep`.
        calls: options by name; each value may be what a point of `sweep` may be.
        name: names the grid on disk and in messages.
        run: the chapter's run.
        folder: see `sweep`.
        description: text of the progress bar; `name` by default.

    Raises:
        TypeError: as `sweep`.
    """
    points = [dict(options) for options in calls.values()]
    called = functools.partial(_called, function)
    return dict(
        zip(calls, sweep(called, points, name=name, run=run, folder=folder, description=description), strict=True)
    )


def _called(function: Callable[..., Any], options: Mapping[str, Any]) -> Any:
    return function(**options)


def kept(function: Callable[..., Any], *, name: str, run: Run, folder: Path | str | None = None) -> Callable[..., Any]:
    """`function`, whose results are kept: a call is computed once for the same arguments, and read after that.

    Arguments are numbers, texts, tensors, dataclasses of these, and functions; the function must not change them. Of
    the option `generator` the state counts, and it is left as the call left it, also where the result is read.

    Args:
        function: see `sweep`.
        name: names the folder on disk.
        run: the chapter's run.
        folder: see `sweep`.

    Raises:
        TypeError: when called, if the content of an argument or of the result cannot be read off.
    """

    def call(*arguments: Any, generator: torch.Generator | None = None, **options: Any) -> Any:
        one = functools.partial(function, *arguments, **options)
        begun = generator and (generator.device, generator.get_state())
        task = functools.partial(_call, one, begun=begun)
        ((value, ended),) = sweep(task, (name,), name=name, run=run, folder=folder, bar=False)
        if generator:
            generator.set_state(ended)
        return value

    return call


def _call(
    one: Callable[..., Any], name: str, *, begun: tuple[torch.device, Tensor] | None
) -> tuple[Any, Tensor | None]:
    """The value of the call called `name`, and the state in which it leaves its generator."""
    if begun is None:
        return one(), None
    generator = torch.Generator(begun[0])
    generator.set_state(begun[1])
    return one(generator=generator), generator.get_state()


def _stored(cells: Iterable[Path], name: str) -> dict[Path, Any]:
    """Values of those cells that lie on disk and are good."""
    values: dict[Path, Any] = {}
    damaged = 0
    for cell in {cell for cell in cells if cell.is_file()}:
        try:
            values[cell] = _decode(checked_files.read(cell))
        except (checked_files.Damaged, TypeError, RecursionError):  # good bytes that no grid has written
            damaged += 1
    if damaged:
        tqdm.write(f"grid {name}: {damaged} damaged on disk, computed again")
    return values


def _compute(
    function: Callable[[Any], Any], missing: Mapping[Path, Any], executor: Executor | None
) -> Iterator[tuple[Path, bytes]]:
    """Packed results as they are finished; what an executor has not begun when one point fails is cancelled."""
    if executor is None:
        for cell, point in missing.items():
            try:
                yield cell, _packed(function, point)
            except Exception as error:
                error.add_note(f"at the grid point {point!r}")
                raise
        return
    futures: dict[Future[bytes], Path] = {
        executor.submit(_packed, function, point): cell for cell, point in missing.items()
    }
    try:
        for future in as_completed(futures):
            if error := future.exception():
                error.add_note(f"at the grid point {missing[futures[future]]!r}")
                raise error
            yield futures[future], future.result()
    finally:
        for future in futures:
            future.cancel()


def _packed(function: Callable[[Any], Any], point: Any) -> bytes:
    return checked_files.pack(_encode(function(point)))


def _root() -> Path | None:
    try:
        return content_keys.find_root()
    except FileNotFoundError:
        return None


def _folder(folder: Path | str | None) -> Path:
    if folder is not None:
        return Path(folder)
    build = os.environ.get(content_keys.BUILD_VARIABLE)
    return (Path(build) if build else content_keys.find_root() / "_build") / "grids"


def _file_name(name: str) -> str:
    if not name or not all(letter.isalnum() or letter in "-_." for letter in name) or name.startswith("."):
        raise ValueError(f"`name` must be made of letters, digits, dots, dashes and underscores; got {name!r}.")
    return name


# ── values ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _encode(value: Any) -> Any:
    """The value as plain containers, numbers, text and CPU tensors."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, torch.Tensor):
        return value.detach().cpu().clone()
    if isinstance(value, np.generic) and not isinstance(value.item(), np.generic):
        return _encode(value.item())
    if isinstance(value, np.ndarray) and not isinstance(value, np.ma.MaskedArray):
        return {_ARRAY: torch.from_numpy(np.array(value))}
    if names := _fields(type(value)):
        fields = {name: _encode(getattr(value, name)) for name in names}
        return {_RECORD: f"{type(value).__module__}:{type(value).__qualname__}", **fields}
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        return type(value)(_encode(item) for item in value)
    if isinstance(value, dict) and all(type(k) in (str, int, float) and k not in (_ARRAY, _RECORD) for k in value):
        return {key: _encode(item) for key, item in value.items()}
    raise TypeError(f"a grid's result cannot hold a {type(value).__name__}; use numbers, text, tensors or records.")


def _decode(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(_decode(item) for item in value)
    if not isinstance(value, dict):
        return value
    if value.keys() == {_ARRAY}:
        return value[_ARRAY].numpy()
    fields = {key: _decode(item) for key, item in value.items() if key != _RECORD}
    return _record_type(value[_RECORD], fields)(**fields) if _RECORD in value else fields


def _fields(kind: type) -> tuple[str, ...]:
    """Names of the fields of a dataclass or named tuple of the library; none for any other type."""
    if not kind.__module__.startswith(_LIBRARY):
        return ()
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind) if field.init)
    return tuple(getattr(kind, "_fields", ()))


def _record_type(name: Any, fields: Mapping[str, Any]) -> type:
    """The type that a file names, if it is a record of the library with just these fields; `TypeError` otherwise."""
    module, _, kind = str(name).partition(":")
    if module.startswith(_LIBRARY):  # whoever asks for a function's results has imported their types with it
        found = getattr(sys.modules.get(module), kind, None)
        if isinstance(found, type) and found.__module__ == module and _fields(found) == tuple(fields):
            return found
    raise TypeError(f"no record of the library is {name!r} with the fields {', '.join(fields)}.")
