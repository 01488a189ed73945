r"""What DP-SGD guarantees: epsilon and delta of a training with Poisson-sampled batches and Gaussian noise.

A training is said by three numbers: the probability q with which each point enters a batch, the noise multiplier σ (the
noise's standard deviation over the clipping bound) and the number of steps T. Two data sets are neighbours if one has
one point more. The computing is Google's `dp-accounting`: it composes the whole distribution of the privacy loss on a
grid and rounds against us, so every number here is an upper bound. Batches of a fixed size have no such guarantee.
"""

import math
import sys
from collections.abc import Callable
from functools import lru_cache

from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant
from scipy import optimize

from leakage import arguments

_GRID = 1e-3  # spacing of the privacy losses, in nats: ε comes out up to 3e-4 larger than on a grid ten times as fine
_TOLERANCE = 1e-4  # of the logarithm of a noise multiplier that is searched for
_LEAST_NOISE = 0.01  # ε is a thousand and more there, and composing takes a minute
_NOISES = (2.0**-3, 2.0**12)  # where it is searched; where noise is little, composing is slow and ε is in the hundreds


def epsilon(*, sampling_rate: float, noise_multiplier: float, steps: int, delta: float) -> float:
    r"""The smallest ε, in nats, for which T steps of DP-SGD are (ε, δ)-differentially private.

    $$ \Pr[A(D) \in S] \le e^\varepsilon \Pr[A(D') \in S] + \delta \quad \text{for all } S
       \text{ and neighbours } D, D' $$

    Source: Abadi et al. (2016) for DP-SGD; Koskela, Jälkö and Honkela (2020) and Doroshenko et al. (2022) for the
    numerical composition.

    Args:
        sampling_rate: $q \in (0, 1]$; the expected batch over the number of points.
        noise_multiplier: σ, at least 0.01.
        steps: T, at least 1.
        delta: $\delta \in (0, 1)$, usually one over the number of points or less.

    Raises:
        ValueError: if a number is outside its range.
    """
    return _spent(sampling_rate, noise_multiplier, steps, delta)


def delta(*, sampling_rate: float, noise_multiplier: float, steps: int, epsilon: float) -> float:
    r"""The smallest δ for which T steps of DP-SGD are (ε, δ)-differentially private; ε ≥ 0, the rest as `epsilon`.

    Raises:
        ValueError: if a number is outside its range.
    """
    arguments.number("epsilon", epsilon, least=0)
    return float(_accountant(*_checked(sampling_rate, noise_multiplier, steps)).get_delta(epsilon))


def noise_multiplier(*, sampling_rate: float, steps: int, epsilon: float, delta: float) -> float:
    """The least noise for which T steps are (ε, δ)-differentially private, to 2e-4 of itself and never too little.

    Raises:
        ValueError: if a number is outside its range, or the noise would lie outside 1/8 to 4096.
    """
    arguments.number("epsilon", epsilon, above=0)

    def excess(logarithm: float) -> float:
        spent = _spent(sampling_rate, math.exp(logarithm), steps, delta)
        return math.log(max(spent, sys.float_info.min) / epsilon)

    low, high = _bracket(excess, f"`epsilon` = {epsilon!r}")
    found = float(optimize.brentq(excess, low, high, xtol=_TOLERANCE))  # pyright: ignore[reportArgumentType]
    return math.exp(found if excess(found) <= 0 else found + _TOLERANCE)


def advantage_bound(*, sampling_rate: float, noise_multiplier: float, steps: int) -> float:
    r"""The largest membership advantage that any attacker can have against T steps of DP-SGD.

    $$ \max_S \, \bigl(\Pr[A(D) \in S] - \Pr[A(D') \in S]\bigr) = \delta(\varepsilon = 0) $$

    for an attacker who knows all other points, chooses the one in question and sees every step. What a threshold on
    the loss of the finished network reaches is far less.

    Source: the definition of (0, δ)-privacy; Kairouz, Oh and Viswanath (2015) for the test it stands for.

    Raises:
        ValueError: as `epsilon`.
    """
    return delta(sampling_rate=sampling_rate, noise_multiplier=noise_multiplier, steps=steps, epsilon=0.0)


def _spent(rate: float, noise: float, steps: int, delta: float) -> float:
    arguments.number("delta", delta, above=0, below=1)  # usually one over the number of points
    return max(float(_accountant(*_checked(rate, noise, steps)).get_epsilon(delta)), 0.0)


def _bracket(excess: Callable[[float], float], asked: str) -> tuple[float, float]:
    """Two noises, one doubling apart, between which the excess changes its sign; away from 1, where it is cheap."""
    here = 0.0
    away = math.log(2) if excess(here) > 0 else -math.log(2)
    low, high = map(math.log, _NOISES)
    while low <= here + away <= high:
        if (excess(here + away) > 0) != (away > 0):
            return min(here, here + away), max(here, here + away)
        here += away
    raise ValueError(f"{asked} needs a noise multiplier outside {_NOISES[0]:g} to {_NOISES[1]:g}; ask for another.")


def _checked(rate: float, noise: float, steps: int) -> tuple[float, float, int]:
    return (
        arguments.number("sampling_rate", rate, above=0, most=1),
        arguments.number("noise_multiplier", noise, least=_LEAST_NOISE),
        arguments.count("steps", steps, least=1),
    )


@lru_cache(maxsize=64)
def _accountant(rate: float, noise: float, steps: int) -> PLDAccountant:
    """The composed privacy loss: composing is what costs, reading ε and δ off it does not."""
    step = PoissonSampledDpEvent(rate, GaussianDpEvent(noise))
    return PLDAccountant(value_discretization_interval=_GRID).compose(SelfComposedDpEvent(step, steps))
