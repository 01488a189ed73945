r"""What many rounds of a game say together: ratios and powers, each with an interval over the rounds.

A round draws its weights, its batch and its noise anew, so that rounds are the independent unit. Two rounds of one
index may share draws where only the attack differs; they are compared in pairs. Nothing here is random.
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from leakage import arguments
from leakage.metrics import trends
from leakage.metrics.estimates import as_sample, mean_interval
from leakage.metrics.intervals import Estimate
from leakage.runtime import DTYPE


def ratio(first: Float[Tensor, " n"], second: Float[Tensor, " n"]) -> Estimate:
    r"""The typical ratio of two positive numbers of one round, $\exp \overline{\log(a_i / b_i)}$, with its t interval.

    Raises:
        ValueError: if there are not as many of one as of the other, fewer than two, or one is not positive.
    """
    return _exponential(mean_interval(_logarithms("first", first) - _logarithms("second", second, n=len(first))))


def power(x: Sequence[float], values: Float[Tensor, "points n"]) -> Estimate:
    r"""The exponent p of $y \propto x^p$, fitted to each round by itself: the mean over rounds with its t interval.

    Args:
        x: a positive number for each point.
        values: y, for each point and round.

    Raises:
        ValueError: if there are not as many rows as x, fewer than two of either or of rounds, or one is not positive.
    """
    places = torch.tensor([math.log(arguments.number("x", place, above=0)) for place in x], dtype=DTYPE)
    rounds = _logarithms("values", values, n=len(places)).cpu().mT
    return mean_interval(torch.tensor([trends.slope(places, one) for one in rounds], dtype=DTYPE))


def _exponential(found: Estimate) -> Estimate:
    return Estimate(*map(math.exp, (found.estimate, found.low, found.high)), n=found.n, level=found.level)


def _logarithms(name: str, values: Tensor, *, n: int | None = None) -> Tensor:
    sample = as_sample(values, name)
    if n is not None and len(sample) != n:
        raise ValueError(f"`{name}` must have {n} rows, got {len(sample)}.")
    if not bool((sample > 0).all()):
        raise ValueError(f"`{name}` must be positive, got {float(sample.min())!r}.")
    return sample.log()
