r"""Guarantees of DP-SGD: epsilon and delta of a training with Poisson-sampled batches and Gaussian noise.

Three numbers describe a training: the probability q with which each point enters a batch, the noise multiplier σ (the
noise's standard deviation over the clipping bound) and the number of steps T. Two data sets are neighbours if one has
one point more. Google's `dp-accounting` composes the whole distribution of the privacy loss on a grid and rounds it
upwards, so every number here is an upper bound. Batches of a fixed size have no such guarantee.
"""

from functools import lru_cache

from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant

_GRID = 1e-3  # spacing of the privacy losses, in nats: ε comes out up to 3e-4 larger than on a grid ten times as fine


def epsilon(*, sampling_rate: float, noise_multiplier: float, steps: int, delta: float) -> float:
    r"""The smallest ε, in nats, for which T steps of DP-SGD are (ε, δ)-differentially private.

    $$ \Pr[A(D) \in S] \le e^\varepsilon \Pr[A(D') \in S] + \delta \quad \text{for all } S
       \text{ and neighbours } D, D' $$

    Source: Abadi et al. (2016) for DP-SGD; Koskela, Jälkö and Honkela (2020) and Doroshenko et al. (2022) for the
    numerical composition.

    Args:
        sampling_rate: $q \in (0, 1]$; the expected batch over the number of points.
        noise_multiplier: σ; below 0.01 the composition takes a minute or more.
        steps: T, at least 1.
        delta: $\delta \in (0, 1)$, usually one over the number of points or less.
    """
    return max(float(_accountant(sampling_rate, noise_multiplier, steps).get_epsilon(delta)), 0.0)


def delta(*, sampling_rate: float, noise_multiplier: float, steps: int, epsilon: float) -> float:
    r"""The smallest δ for which T steps of DP-SGD are (ε, δ)-differentially private; ε ≥ 0, the rest as `epsilon`."""
    return float(_accountant(sampling_rate, noise_multiplier, steps).get_delta(epsilon))


def advantage_bound(*, sampling_rate: float, noise_multiplier: float, steps: int) -> float:
    r"""The largest membership advantage that any attacker can have against T steps of DP-SGD.

    $$ \max_S \, \bigl(\Pr[A(D) \in S] - \Pr[A(D') \in S]\bigr) = \delta(\varepsilon = 0) $$

    for an attacker who knows all other points, chooses the one in question and sees every step. A threshold on the loss
    of the finished network reaches far less.

    Source: the definition of (0, δ)-privacy; Kairouz, Oh and Viswanath (2015) for the hypothesis test.
    """
    return delta(sampling_rate=sampling_rate, noise_multiplier=noise_multiplier, steps=steps, epsilon=0.0)


@lru_cache(maxsize=64)
def _accountant(rate: float, noise: float, steps: int) -> PLDAccountant:
    """The composed privacy loss, which takes long; evaluating ε and δ afterwards is fast."""
    step = PoissonSampledDpEvent(rate, GaussianDpEvent(noise))
    return PLDAccountant(value_discretization_interval=_GRID).compose(SelfComposedDpEvent(step, steps))
