"""How the library's annotations are checked while tests run: by jaxtyping's pytest option, in pyproject.toml."""

import io
import numbers
from contextlib import contextmanager
from typing import TextIO

import jaxtyping
from beartype import BeartypeConf, FrozenDict, beartype

# Where a number is wanted NumPy's are taken, too (see `leakage.arguments`), and a stream of text may have no buffer.
MEANT = {int: int | numbers.Integral, float: float | numbers.Real, TextIO: io.TextIOBase}
checked = beartype(conf=BeartypeConf(hint_overrides=FrozenDict(MEANT)))


@contextmanager
def unchecked():
    """Where the library itself is to refuse what its annotations exclude."""
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)
