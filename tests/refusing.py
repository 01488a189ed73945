"""What nobody can compute is refused: a line for each call says the words that its `ValueError` must have."""

from collections.abc import Callable
from typing import Any

import pytest

from typecheck import unchecked


def refused(call: Callable[[], Any], complaint: str) -> None:
    """The call raises, and its error says what is complained of (a regular expression)."""
    with unchecked(), pytest.raises(ValueError, match=complaint):
        call()


def refusals(*rows: tuple[Any, ...], by: Callable[..., Any] = lambda call: call()) -> Callable[..., None]:
    """A test of each row: `by` of all of it but its last entry, which is the complaint; alone, it is a call."""

    @pytest.mark.parametrize("row", rows, ids=[row[-1] for row in rows])
    def test(row: tuple[Any, ...]) -> None:
        refused(lambda: by(*row[:-1]), row[-1])

    return test
