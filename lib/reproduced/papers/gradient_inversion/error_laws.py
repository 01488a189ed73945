r"""How far moments of a gradient miss the inputs: first-order laws in closed form, from width, dimension and noise.

For B orthonormal inputs with equal residuals, a moment of m neurons turns each input out of their span by a random
angle whose tangent is the *tilt* $\delta$. The laws are those of the leading eigenvectors to first order in the error
of the matrix, so that they hold while $\delta$ is below about 0.6.
"""

from collections.abc import Callable, Sequence

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


def largest_residual(activation: Activation, *, labels: Sequence[float] = (-1.0, 1.0)) -> float:
    r"""$M = \max_y |s_0 - y|$: the largest residual of a wide network without output bias, for inputs of length one.

    With the output bias 2M all residuals, and so the weights of the tensor's terms, have a ratio of at most 3.

    Source: Wang et al., Remark 1.
    """
    mean = float(moment(activation, torch.ones((), dtype=DTYPE), order=0))
    return max(abs(mean - label) for label in labels)


def outputs_tilt(
    activation: Activation,
    dimension: Real[Tensor, "*#b"],
    width: Real[Tensor, "*#b"],
    *,
    batch: int,
    centre: bool = False,
    noise: float = 0.0,
) -> Float[Tensor, "*b"]:
    r"""The tilt of the moment of order 2 of the output gradient g.

    $$ \delta^2 = \frac{d - B}{s_2^2} \Bigl( \frac{\E[(\sum_i \sigma(u_i))^2 u_1^2]}{m} + z^2\, \E\bigl(
       \textstyle\sum_i \sigma(u_i)\bigr)^2 \Bigr), \qquad u_i \sim N(0, 1) . $$

    The common residual cancels. With `centre`, $\sigma(u)$ in the first term is without $s_0 + s_1 u$. The second term
    is noise of standard deviation $z \lVert g \rVert$ on each entry of g, as clipping to a fixed length calibrates it.
    It has no m, because $\lVert g \rVert^2$ grows as m does, and remains for an infinite width. d is `dimension`, m is
    `width`, B is `batch` and z is `noise`.
    """
    others = batch - 1
    mean, square, bent, tilted = _averages(activation, order=0, centre=centre)
    whole_mean, whole_square, *_ = _averages(activation, order=0, centre=False)
    cross = square + 2 * bent * mean + (batch - 2) * mean.square()
    power = batch * (whole_square + others * whole_mean.square())
    return _tilt(activation, dimension, (tilted + others * cross) / width + noise**2 * power, batch=batch)


def hidden_tilt(
    activation: Activation,
    dimension: Real[Tensor, "*#b"],
    width: Real[Tensor, "*#b"],
    *,
    batch: int,
    centre: bool = False,
) -> Float[Tensor, "*b"]:
    r"""The tilt of the moment of order 2 of the hidden gradient G.

    $$ \delta^2 = \frac{(d - B)\, \E \sigma'(u)^2}{4 m\, s_2^2}, \qquad
       \text{with the variance of } \sigma'(u) \text{ in place of } \E\sigma'(u)^2 \text{ under `centre`.} $$

    Each row of G is in the span, so that one of the two slots of the moment has no error; hence the 4, and no B.
    """
    _, square, *_ = _averages(activation, order=1, centre=centre)
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
    mean, square, bent, tilted = _averages(activation, order=1, centre=False)
    others = batch - 1
    power = 4 * tilted + others * (2 * square + 4 * bent * mean) + others * (others - 1) * mean.square()
    return _tilt(activation, dimension, power / (9 * width), batch=batch, order=3)


def _tilt(
    activation: Activation, dimension: Tensor, variance: Tensor, *, batch: int, order: int = 2
) -> Float[Tensor, "*b"]:
    r"""$\delta = \sqrt{(d - B) V} / |s_p|$, from the variance V in each direction into which an input can turn."""
    size = moment(activation, torch.ones((), dtype=DTYPE), order=order).abs()
    return ((dimension - batch).to(DTYPE) * variance).sqrt() / size


def _averages(activation: Activation, *, order: int, centre: bool) -> list[Tensor]:
    r"""$\E f$, $\E f^2$, $\E f u^2$, $\E f^2 u^2$ for f = σ (order 0) or σ', of σ less $s_0 + s_1 u$ with `centre`."""
    one = torch.ones((), dtype=DTYPE)
    first, linear = (moment(activation, one, order=degree) * centre for degree in (0, 1))

    def mean(weighted: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        def integrand(u: Tensor) -> Tensor:
            value, slope = activation.derivatives(u, order=1)
            return weighted(slope - linear if order else value - first - linear * u, u)

        return gaussian_mean(integrand)

    powers = (lambda f, u: f, lambda f, u: f.square(), lambda f, u: f * u.square(), lambda f, u: (f * u).square())
    return [mean(power) for power in powers]
