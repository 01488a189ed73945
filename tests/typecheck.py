"""How the library's annotations are checked while tests run: by jaxtyping's pytest option, in pyproject.toml."""

import numbers
from contextlib import contextmanager

import jaxtyping
from beartype import BeartypeConf, FrozenDict, beartype

# Where a number is wanted NumPy's are taken, too (see `leakage.arguments`).
NUMBERS = {int: int | numbers.Integral, float: float | numbers.Real}
checked = beartype(conf=BeartypeConf(hint_overrides=FrozenDict(NUMBERS)))


@contextmanager
def unchecked():
    """Where the library itself is to refuse what its annotations exclude."""
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)
