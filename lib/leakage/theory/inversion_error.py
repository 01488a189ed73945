r"""How far moments of a gradient miss the inputs: first-order laws in closed form, from width, dimension and noise.

For B orthonormal inputs with equal residuals, a moment of m neurons turns each input out of their span by a random
angle whose tangent is the *tilt* $\delta$. The laws are those of the leading eigenvectors to first order in the error
of the matrix, so that they hold while $\delta$ is below about 0.6. Nothing here is random.
"""

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Float, Real
from torch import Tensor

from leakage.models.activations import Activation
from leakage.runtime import DTYPE
from leakage.theory.hermite import SILENT, gaussian_mean, moment


def error(tilt: Float[Tensor, "*b"]) -> Float[Tensor, "*b"]:
    r"""The distance between unit vectors an angle $\arctan\delta$ apart, $2 \sin(\tfrac12 \arctan \delta)$."""
    return 2 * torch.sin(torch.atan(tilt) / 2)


def span_error(basis: Float[Tensor, "d b"], inputs: Float[Tensor, "B d"]) -> Float[Tensor, ""]:
    r"""The part of the inputs outside a subspace, $(\frac1B \sum_i \lVert x_i - V V^\top x_i \rVert^2)^{1/2}$."""
    outside = inputs - (inputs @ basis) @ basis.mT
    return outside.square().sum(-1).mean().sqrt()


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
    is noise of standard deviation $z \lVert g \rVert$ on each entry of g, as clipping to a fixed length calibrates it:
    it has no m, for $\lVert g \rVert^2$ grows as m does, and is what remains for `width` infinity.

    Args:
        activation: σ.
        dimension: d.
        width: m.
        batch: B.
        centre: whether the moments are those with `centre`.
        noise: z.

    Raises:
        ValueError: if `batch` is below 1 or above a dimension, `noise` is negative, or $s_2 = 0$.
    """
    free, second = _free(dimension, batch), _weight(activation, 2, dimension.device)
    if not noise >= 0:
        raise ValueError(f"`noise` must not be negative, got {noise!r}.")
    mean, others = partial(gaussian_mean, device=dimension.device), batch - 1
    first, linear = (moment(activation, torch.ones_like(second), order=order) * centre for order in (0, 1))

    def rest(u: Tensor) -> Tensor:
        return activation(u) - first - linear * u

    height = mean(rest)
    tilted = mean(lambda u: (rest(u) * u).square()) + 2 * others * mean(lambda u: rest(u) * u.square()) * height
    sampling = tilted + others * mean(lambda u: rest(u).square()) + others * (batch - 2) * height.square()
    power = batch * mean(lambda u: activation(u).square()) + batch * others * mean(activation).square()
    return (free * (sampling / width + noise**2 * power)).sqrt() / second


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

    Each row of G is in the span, so that one of the two slots of the moment has no error: hence the 4, and hence no B.

    Raises:
        ValueError: as `outputs_tilt`.
    """
    free, second = _free(dimension, batch), _weight(activation, 2, dimension.device)
    slope = _slope(activation, centre, dimension.device)
    square = gaussian_mean(lambda u: slope(u).square(), device=dimension.device)
    return (free * square / (4 * width)).sqrt() / second


def contracted_tilt(
    activation: Activation,
    dimension: Real[Tensor, "*#b"],
    width: Real[Tensor, "*#b"],
    *,
    batch: int,
    centre: bool = False,
) -> Float[Tensor, "*b"]:
    r"""The tilt of the moment of order 3 of the hidden gradient in the direction $a = B^{-1/2} \sum_i x_i$, σ' even.

    $$ \delta^2 = \frac{d - B}{9 m s_3^2} \Bigl( 4\, \E[\tau^2 u^2] + (B - 1)
       \bigl( 2\, \E\tau^2 + 4\, \E[\tau u^2]\, \E\tau + (B - 2) (\E\tau)^2 \bigr) \Bigr) , $$

    where $\tau = \sigma'(u)$, less its mean under `centre`. The direction is that of the moment of order 1, which has
    no error of its own.

    Raises:
        ValueError: as `outputs_tilt`, with $s_3$ in place of $s_2$; or if σ' is not even.
    """
    if activation.centre is None:
        raise ValueError(f"`activation` must be odd about a constant, got {activation.name!r}.")
    free, third = _free(dimension, batch), _weight(activation, 3, dimension.device)
    mean, others = partial(gaussian_mean, device=dimension.device), batch - 1
    slope = _slope(activation, centre, dimension.device)
    height, square = mean(slope), mean(lambda u: slope(u).square())
    own = 4 * mean(lambda u: (slope(u) * u).square())
    shared = 2 * square + 4 * mean(lambda u: slope(u) * u.square()) * height + (batch - 2) * height.square()
    return (free * (own + others * shared) / (9 * width)).sqrt() / third


def _free(dimension: Tensor, batch: int) -> Tensor:
    """d - B, the directions into which an input can turn."""
    if batch < 1 or not bool((dimension >= batch).all()):
        raise ValueError(f"`batch` must be between 1 and every dimension, got {batch!r} for {dimension.tolist()!r}.")
    return (dimension - batch).to(DTYPE)


def _weight(activation: Activation, order: int, device: torch.device) -> Tensor:
    """$|s_p|$ at unit length, which must not vanish."""
    size = moment(activation, torch.ones((), dtype=DTYPE, device=device), order=order).abs()
    if not bool(size > SILENT):
        raise ValueError(f"`activation` must have a moment of order {order}, and that of {activation.name!r} is 0.")
    return size


def _slope(activation: Activation, centre: bool, device: torch.device) -> Callable[[Tensor], Tensor]:
    r"""$\sigma'$, with `centre` less its mean."""

    def slope(u: Tensor) -> Tensor:
        return activation.derivatives(u, order=1)[1]

    mean = gaussian_mean(slope, device=device) * centre
    return lambda u: slope(u) - mean
