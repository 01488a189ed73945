r"""How far moments of a gradient miss the inputs: first-order laws in closed form, from width, dimension and noise.

For B orthonormal inputs with equal residuals, a moment of m neurons turns each input out of their span by a random
angle whose tangent is the *tilt* $\delta$. The laws are those of the leading eigenvectors to first order in the error
of the matrix, so that they hold while $\delta$ is below about 0.6.
"""

import torch
from jaxtyping import Float, Real
from torch import Tensor

from leakage.inversion.activations import Activation
from leakage.inversion.hermite import gaussian_mean, moment
from leakage.precision import DTYPE


def tilt_error(tilt: Float[Tensor, "*b"]) -> Float[Tensor, "*b"]:
    r"""The distance between unit vectors an angle $\arctan\delta$ apart, $2 \sin(\tfrac12 \arctan \delta)$."""
    return 2 * torch.sin(torch.atan(tilt) / 2)


def span_error(basis: Float[Tensor, "d b"], inputs: Float[Tensor, "B d"]) -> Float[Tensor, ""]:
    r"""The part of the inputs outside a subspace, $(\frac1B \sum_i \lVert x_i - V V^\top x_i \rVert^2)^{1/2}$."""
    outside = inputs - (inputs @ basis) @ basis.mT
    return outside.square().sum(-1).mean().sqrt()


def largest_residual(activation: Activation) -> float:
    r"""$M = \max_{y = \pm 1} |s_0 - y| = 1 + |s_0|$: the largest residual of a wide network without output bias.

    Inputs have length one.

    With the output bias 2M all residuals, and so the weights of the tensor's terms, have a ratio of at most 3.

    Source: Wang et al., Remark 1.
    """
    return 1 + abs(float(moment(activation, torch.ones((), dtype=DTYPE), order=0)))


def outputs_tilt(
    activation: Activation,
    dimension: Real[Tensor, "*#b"],
    width: Real[Tensor, "*#b"],
    *,
    batch: int,
    noise: float = 0.0,
) -> Float[Tensor, "*b"]:
    r"""The tilt of the moment of order 2 of the output gradient g.

    $$ \delta^2 = \frac{d - B}{s_2^2} \Bigl( \frac{\E[(\sum_i \sigma(u_i))^2 u_1^2]}{m} + z^2\, \E\bigl(
       \textstyle\sum_i \sigma(u_i)\bigr)^2 \Bigr), \qquad u_i \sim N(0, 1) . $$

    The common residual cancels. The second term is noise of standard deviation $z \lVert g \rVert$ on each entry of g,
    as clipping to a fixed length calibrates it. It has no m, because $\lVert g \rVert^2$ grows as m does, and remains
    for an infinite width. d is `dimension`, m is `width`, B is `batch` and z is `noise`.
    """
    others = batch - 1
    mean, square, bent, tilted = _averages(activation, order=0)
    cross = square + 2 * bent * mean + (batch - 2) * mean.square()
    power = batch * (square + others * mean.square())
    return _tilt(activation, dimension, (tilted + others * cross) / width + noise**2 * power, batch=batch)


def hidden_tilt(
    activation: Activation, dimension: Real[Tensor, "*#b"], width: Real[Tensor, "*#b"], *, batch: int
) -> Float[Tensor, "*b"]:
    r"""The tilt of the moment of order 2 of the hidden gradient G.

    $$ \delta^2 = \frac{(d - B)\, \E \sigma'(u)^2}{4 m\, s_2^2} $$

    Each row of G is in the span, so that one of the two slots of the moment has no error; hence the 4, and no B.
    """
    square = _averages(activation, order=1)[1]
    return _tilt(activation, dimension, square / (4 * width), batch=batch)


def contracted_tilt(
    activation: Activation, dimension: Real[Tensor, "*#b"], width: Real[Tensor, "*#b"], *, batch: int
) -> Float[Tensor, "*b"]:
    r"""The tilt of the moment of order 3 of the hidden gradient G, contracted with the direction of that of order 1.

    $$ \delta^2 = \frac{d - B}{9 s_3^2 m} \E\Bigl[\bigl(\sigma'(u_1) \textstyle\sum_k u_k
       + u_1 \sum_k \sigma'(u_k)\bigr)^2\Bigr], \qquad \E\, u \sigma'(u) = s_2 = 0 . $$

    The direction is the sum of the inputs, scaled, so that the error of each input holds the noise of all of them, and
    the tilt grows as B does. The 9 is there because the moment is the mean of three, one for each slot of the gradient,
    and each turns an input through the other two. Source: ours.
    """
    mean, square, bent, tilted = _averages(activation, order=1)
    others = batch - 1
    power = 4 * tilted + others * (2 * square + 4 * bent * mean) + others * (others - 1) * mean.square()
    return _tilt(activation, dimension, power / (9 * width), batch=batch, order=3)


def _tilt(
    activation: Activation, dimension: Tensor, variance: Tensor, *, batch: int, order: int = 2
) -> Float[Tensor, "*b"]:
    r"""$\delta = \sqrt{(d - B) V} / |s_p|$, from the variance V in each direction into which an input can turn."""
    size = moment(activation, torch.ones((), dtype=DTYPE), order=order).abs()
    return ((dimension - batch).to(DTYPE) * variance).sqrt() / size


def _averages(activation: Activation, *, order: int) -> list[Tensor]:
    r"""$\E f$, $\E f^2$, $\E f u^2$ and $\E f^2 u^2$ for f = σ (order 0) or σ' (order 1)."""
    powers = (lambda f, u: f, lambda f, u: f.square(), lambda f, u: f * u.square(), lambda f, u: (f * u).square())
    return [
        gaussian_mean(lambda u, power=power: power(activation.derivatives(u, order=1)[order], u)) for power in powers
    ]
