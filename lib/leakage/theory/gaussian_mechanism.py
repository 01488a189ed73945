r"""The exact ε and δ of the Gaussian mechanism: one number of sensitivity 1 plus noise $N(0, \sigma^2)$.

Estimates and bounds of ε can be checked against them.
"""

import math

from scipy import optimize, special


def delta(noise: float, epsilon: float) -> float:
    r"""The smallest δ for which the mechanism is (ε, δ)-differentially private.

    $$ \delta = \Phi\bigl(\tfrac{1}{2\sigma} - \varepsilon\sigma\bigr)
       - e^\varepsilon\, \Phi\bigl(-\tfrac{1}{2\sigma} - \varepsilon\sigma\bigr) $$

    Source: Balle and Wang (2018), Theorem 8.

    Args:
        noise: σ > 0.
        epsilon: ε ≥ 0, in nats.
    """
    inside, outside = (sign / (2 * noise) - epsilon * noise for sign in (1, -1))
    # The second term by logarithms: e^ε alone may overflow.
    return float(special.ndtr(inside)) - math.exp(epsilon + float(special.log_ndtr(outside)))


def epsilon(noise: float, delta: float) -> float:
    """The smallest ε, in nats, for which the mechanism is (ε, δ)-differentially private: the root of `delta`."""
    if _excess(0.0, noise, delta) <= 0:
        return 0.0
    # The privacy loss is N(1/(2σ²), 1/σ²), and δ is less than the probability that it exceeds ε.
    most = 1 / (2 * noise**2) - float(special.ndtri(delta)) / noise
    return float(optimize.brentq(_excess, 0.0, most, args=(noise, delta), xtol=1e-12))  # pyright: ignore[reportArgumentType]


def _excess(guess: float, noise: float, target: float) -> float:
    return delta(noise, guess) - target
