"""How tests check: the library's annotations, refusals, and how long to wait for what happens elsewhere.

Annotations are checked while tests run by jaxtyping's pytest option, in pyproject.toml.
"""

import numbers
import time
from collections.abc import Callable, Iterator
from typing import Any

import jaxtyping
import pytest
from beartype import BeartypeConf, FrozenDict, beartype

# Where a number is wanted NumPy's are taken, too (see `leakage.arguments`).
NUMBERS = {int: int | numbers.Integral, float: float | numbers.Real}
checked = beartype(conf=BeartypeConf(hint_overrides=FrozenDict(NUMBERS)))


def refused(call: Callable[[], Any], complaint: str) -> None:
    """The library itself, not its annotations, raises, and says what is complained of (a regular expression)."""
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        with pytest.raises(ValueError, match=complaint):
            call()
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


def refusals(*rows: tuple[Any, ...], by: Callable[..., Any] = lambda call: call()) -> Callable[..., None]:
    """A test of each row: `by` of all of it but its last entry, which is the complaint; alone, it is a call."""

    @pytest.mark.parametrize("row", rows, ids=[row[-1] for row in rows])
    def test(row: tuple[Any, ...]) -> None:
        refused(lambda: by(*row[:-1]), row[-1])

    return test


HANGS = 1800  # seconds after which what a test waits for is taken to hang


def wait_until(happened: Callable[[], bool]) -> None:
    """Wait for a condition that will come true unless something is broken."""
    deadline = time.monotonic() + HANGS
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


def all_numbers(content: Any) -> Iterator[float]:
    """All numbers in a JSON document, in order."""
    if isinstance(content, dict | list):
        for part in content.values() if isinstance(content, dict) else content:
            yield from all_numbers(part)
    elif isinstance(content, int | float):
        yield content


def is_a_refusal(status: int, out: str, err: str) -> bool:
    """One line that a terminal can show, no longer than half a page, and status 2."""
    line = err.removesuffix("\n")
    return (status, out) == (2, "") and line.startswith("leakage: ") and line.isprintable() and len(line) < 1000
