"""How long tests wait: long enough for any machine under any load, so that only what hangs is stopped by a clock."""

import time
from collections.abc import Callable

HANGS = 1800  # seconds after which what a test waits for is taken to hang


def wait_until(happened: Callable[[], bool]) -> None:
    """Wait for a condition that will come true unless something is broken."""
    deadline = time.monotonic() + HANGS
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)
