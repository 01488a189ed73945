r"""Scalar activations by name, with derivatives of every order and the symmetries that limit reconstructions.

`activation("tanh")` gives an `Activation`, which is called like a function. Where an activation has a kink, its
derivatives are those almost everywhere, and at the kink itself the first is PyTorch's. Nothing here has parameters.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice

import torch
from jaxtyping import Float
from numpy.polynomial.polynomial import polyder, polymul
from torch import Tensor
from torch.nn import functional

LEAKY_SLOPE = 0.01
"""The slope of the leaky ReLU for negative arguments, PyTorch's default."""
_softplus = partial(functional.softplus, threshold=40.0)  # with PyTorch's threshold of 20 it is 2e-9 too small above


@dataclass(frozen=True)
class Activation:
    r"""A scalar function $\sigma$ that a layer applies to each of its entries.

    Attributes:
        all_derivatives: yields $\sigma(x), \sigma'(x), \sigma''(x), \dots$ without end.
        smooth: whether all derivatives exist everywhere.
        monotone: whether it strictly increases.
        centre: the $c$ with $\sigma(-t) = 2c - \sigma(t)$ for all t; `None` where there is none.
        homogeneity: the $k$ with $\sigma(st) = s^k \sigma(t)$ for all $s > 0$; `None` where there is none.
    """

    name: str
    function: Callable[[Tensor], Tensor]
    all_derivatives: Callable[[Tensor], Iterator[Tensor]]
    smooth: bool = True
    monotone: bool = False
    centre: float | None = None
    homogeneity: int | None = None

    @property
    def piecewise_linear(self) -> bool:
        """Whether it is linear on either side of 0, with a kink there."""
        return self.homogeneity == 1 and not self.smooth

    def __call__(self, x: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        r"""$\sigma(x)$, entry by entry."""
        return self.function(x)

    def derivatives(self, x: Float[Tensor, "*s"], *, order: int) -> tuple[Float[Tensor, "*s"], ...]:
        r"""$\sigma(x), \sigma'(x), \dots, \sigma^{(\text{order})}(x)$ in closed form."""
        return tuple(islice(self.all_derivatives(x), order + 1))


def activation(name: str) -> Activation:
    """The activation called `name`, a key of `ACTIVATIONS`."""
    return ACTIVATIONS[name]


Polynomial = tuple[float, ...]
"""Coefficients, lowest first."""


def _evaluate(coefficients: Polynomial, x: Tensor) -> Tensor:
    """A polynomial by Horner's rule."""
    highest, *others = reversed(coefficients)
    value = torch.full_like(x, highest)
    for coefficient in others:
        value = value * x + coefficient
    return value


# Attacks need the same few derivatives thousands of times.
@cache
def _differentiate(polynomial: Polynomial, factor: Polynomial = (1.0,)) -> Polynomial:
    """The derivative, times another polynomial."""
    return tuple(map(float, polymul(polyder(polynomial), factor)))


def _polynomial_derivatives(*coefficients: float) -> Callable[[Tensor], Iterator[Tensor]]:
    def derivatives(x: Tensor) -> Iterator[Tensor]:
        current = coefficients
        while True:
            yield _evaluate(current, x)
            current = _differentiate(current)

    return derivatives


def _riccati_derivatives(
    function: Callable[[Tensor], Tensor], *coefficients: float
) -> Callable[[Tensor], Iterator[Tensor]]:
    r"""Derivatives of a function with $\sigma' = p(\sigma)$, p given by `coefficients`: polynomials in $\sigma$."""

    def derivatives(x: Tensor) -> Iterator[Tensor]:
        value, current = function(x), (0.0, 1.0)
        while True:
            yield _evaluate(current, value)
            current = _differentiate(current, coefficients)

    return derivatives


_sigmoid_derivatives = _riccati_derivatives(torch.sigmoid, 0.0, 1.0, -1.0)


def _softplus_derivatives(x: Tensor) -> Iterator[Tensor]:
    yield _softplus(x)
    yield from _sigmoid_derivatives(x)


def _normal_cdf_derivatives(x: Tensor) -> Iterator[Tensor]:
    r"""$\Phi$ and its derivatives $(-1)^{k-1} \mathrm{He}_{k-1}(x)\, \varphi(x)$."""
    yield torch.special.ndtr(x)
    density = torch.exp(-x.square() / 2) / math.sqrt(2 * math.pi)
    before, current, order = torch.zeros_like(x), torch.ones_like(x), 0
    while True:
        yield current * density
        before, current, order = current, -x * current - order * before, order + 1


def _gated_derivatives(gate: Callable[[Tensor], Iterator[Tensor]]) -> Callable[[Tensor], Iterator[Tensor]]:
    r"""$x\, \gamma(x)$, with the derivatives $x\, \gamma^{(k)} + k\, \gamma^{(k-1)}$."""

    def derivatives(x: Tensor) -> Iterator[Tensor]:
        before = torch.zeros_like(x)
        for order, value in enumerate(gate(x)):
            yield x * value + order * before
            before = value

    return derivatives


def _sine_derivatives(x: Tensor) -> Iterator[Tensor]:
    sine, cosine = x.sin(), x.cos()
    while True:
        yield from (sine, cosine, -sine, -cosine)


def _elu_derivatives(x: Tensor) -> Iterator[Tensor]:
    yield functional.elu(x)
    below = x.clamp_max(0).exp()
    yield torch.where(x > 0, torch.ones_like(x), below)
    while True:
        yield torch.where(x > 0, torch.zeros_like(x), below)


def _rectifier_derivatives(slope: float) -> Callable[[Tensor], Iterator[Tensor]]:
    def derivatives(x: Tensor) -> Iterator[Tensor]:
        step = torch.where(x > 0, torch.ones_like(x), slope)
        yield x * step
        yield step
        while True:
            yield torch.zeros_like(x)

    return derivatives


ACTIVATIONS: Mapping[str, Activation] = {
    entry.name: entry
    for entry in (
        Activation("tanh", torch.tanh, _riccati_derivatives(torch.tanh, 1.0, 0.0, -1.0), monotone=True, centre=0.0),
        Activation("sigmoid", torch.sigmoid, _sigmoid_derivatives, monotone=True, centre=0.5),
        Activation("relu", torch.relu, _rectifier_derivatives(0.0), smooth=False, homogeneity=1),
        Activation(
            "leaky_relu",
            lambda x: functional.leaky_relu(x, LEAKY_SLOPE),
            _rectifier_derivatives(LEAKY_SLOPE),
            smooth=False,
            monotone=True,
            homogeneity=1,
        ),
        Activation("gelu", functional.gelu, _gated_derivatives(_normal_cdf_derivatives)),
        Activation("silu", functional.silu, _gated_derivatives(_sigmoid_derivatives)),
        Activation("softplus", _softplus, _softplus_derivatives, monotone=True),
        Activation("elu", functional.elu, _elu_derivatives, smooth=False, monotone=True),
        Activation("sin", torch.sin, _sine_derivatives, centre=0.0),
        Activation("polynomial", lambda x: x.square() * (1 + x), _polynomial_derivatives(0.0, 0.0, 1.0, 1.0)),
        Activation("linear", lambda x: x, _polynomial_derivatives(0.0, 1.0), monotone=True, centre=0.0, homogeneity=1),
        Activation("quadratic", torch.square, _polynomial_derivatives(0.0, 0.0, 1.0), homogeneity=2),
    )
}
"""All activations by name; `polynomial` is $t^2 + t^3$."""
