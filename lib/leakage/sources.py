"""Files as this process found them: whether the code that runs is still the code on disk.

Python reads a module once and a file may be edited ever after, so a result is kept under the content of a file only
while that file is as it was before this process could import it. The package takes note of its files before it imports
the first of its modules. No clock is asked about them, and a file that was edited and put back counts as changed: the
system dates each change, whatever its content and whatever date of modification it is given. Nothing here writes.
"""

import os
import time
from pathlib import Path

import psutil

Signature = tuple[int, int, int, int]

PACKAGE = Path(os.path.realpath(__file__)).parent


def signature(path: Path | str) -> Signature | None:
    """What a file gets anew whenever it is written, replaced or put back; `None` where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _signatures(folder: Path) -> dict[Path, Signature | None]:
    """Of every file below the folder but compiled modules."""
    paths = (Path(where, name) for where, _, names in os.walk(folder) for name in names)
    return {path: signature(path) for path in paths if path.parent.name != "__pycache__"}


def _began() -> float:
    """When this process began, in seconds since 1970 by the clock that dates files; never too late."""
    try:  # Linux tells the time of its own start in whole seconds only, so that is left out here
        ticks = Path("/proc/self/stat").read_text("utf-8").rpartition(")")[2].split()[19]
        return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + int(ticks) / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError):
        return psutil.Process().create_time()


_FOUND = _signatures(PACKAGE)
_BEGAN = _began()


def changed(path: Path) -> bool:
    """Whether a file, named by its real path, may differ from what this process has imported.

    Of a file of the package it is known. Any other may have been imported before anybody looked: it counts as changed
    if it was written after this process began.
    """
    now = signature(path)
    if path.is_relative_to(PACKAGE):
        return now is None or now != _FOUND.get(path)
    return now is None or now[-1] / 1e9 > _BEGAN
