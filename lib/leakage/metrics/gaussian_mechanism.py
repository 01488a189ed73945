r"""The exact ε and δ of the Gaussian mechanism, which adds noise $N(0, \sigma^2)$ to one number of sensitivity 1.

Estimates and bounds of ε are tested against them.
"""

import math

from scipy import optimize, special

_LEAST_MU, _LARGEST_MU = 1e-9, 1e3  # nobody tells the first from 0; the ε of the second is half a million


def delta(noise: float, epsilon: float) -> float:
    r"""The smallest δ for which the mechanism is (ε, δ)-differentially private.

    $$ \delta = \Phi\bigl(\tfrac{1}{2\sigma} - \varepsilon\sigma\bigr)
       - e^\varepsilon\, \Phi\bigl(-\tfrac{1}{2\sigma} - \varepsilon\sigma\bigr) $$

    Source: Balle and Wang (2018), Theorem 8.

    Args:
        noise: σ > 0, the standard deviation of the noise.
        epsilon: ε ≥ 0, in nats.
    """
    first, second = (sign / (2 * noise) - epsilon * noise for sign in (1, -1))
    # The second probability times e^ε is computed from logarithms, because e^ε alone may overflow.
    return float(special.ndtr(first)) - math.exp(epsilon + float(special.log_ndtr(second)))


def epsilon(noise: float, delta: float) -> float:
    """The smallest ε, in nats, for which the mechanism is (ε, δ)-differentially private: the inverse of `delta`."""
    if _excess(0.0, noise, delta) <= 0:
        return 0.0
    # The privacy loss is N(1/(2σ²), 1/σ²), and δ is less than the probability that it exceeds ε.
    upper = 1 / (2 * noise**2) - float(special.ndtri(delta)) / noise
    return float(optimize.brentq(_excess, 0.0, upper, args=(noise, delta), xtol=1e-12))  # pyright: ignore[reportArgumentType]


def mu(epsilon: float, delta: float) -> float:
    """1/σ of the Gaussian mechanism whose smallest ε at this δ is `epsilon`, above 0 and below half a million."""
    if _excess(epsilon, 1 / _LEAST_MU, delta) >= 0:
        return _LEAST_MU
    return float(optimize.brentq(lambda mu: _excess(epsilon, 1 / mu, delta), _LEAST_MU, _LARGEST_MU, xtol=1e-12))  # pyright: ignore[reportArgumentType]


def _excess(guess: float, noise: float, target: float) -> float:
    """How much the δ that belongs to a guess of ε exceeds the target."""
    return delta(noise, guess) - target
