r"""Scalar activations by name, with two derivatives and the symmetries that limit reconstructions.

`activation("tanh")` gives an `Activation`, which is called like a function. Where an activation has a kink, its
derivatives are those almost everywhere, and at the kink itself the first is PyTorch's. Nothing here has parameters.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

LEAKY_SLOPE = 0.01
"""The slope of the leaky ReLU for negative arguments, PyTorch's default."""
_softplus = partial(functional.softplus, threshold=40.0)  # with PyTorch's threshold of 20 it is 2e-9 too small above


@dataclass(frozen=True)
class Activation:
    r"""A scalar function $\sigma$ that a layer applies to each of its entries.

    Attributes:
        closed_forms: yields $\sigma(x)$, $\sigma'(x)$ and $\sigma''(x)$ one after the other.
        smooth: whether all derivatives exist everywhere.
        monotone: whether it strictly increases.
        centre: the $c$ with $\sigma(-t) = 2c - \sigma(t)$ for all t; `None` where there is none.
        homogeneity: the $k$ with $\sigma(st) = s^k \sigma(t)$ for all $s > 0$; `None` where there is none.
    """

    name: str
    function: Callable[[Tensor], Tensor]
    closed_forms: Callable[[Tensor], Iterator[Tensor]]
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
        r"""$\sigma(x)$, $\sigma'(x)$ and, of `order` 2, $\sigma''(x)$ in closed form."""
        return tuple(islice(self.closed_forms(x), order + 1))


def activation(name: str) -> Activation:
    """The activation called `name`, a key of `ACTIVATIONS`."""
    return ACTIVATIONS[name]


def _tanh_derivatives(x: Tensor) -> Iterator[Tensor]:
    value = torch.tanh(x)
    yield value
    yield 1 - value.square()
    yield 2 * value * (value.square() - 1)


def _sigmoid_derivatives(x: Tensor) -> Iterator[Tensor]:
    value = torch.sigmoid(x)
    yield value
    yield value * (1 - value)
    yield value * (1 - value * (3 - 2 * value))


def _softplus_derivatives(x: Tensor) -> Iterator[Tensor]:
    yield _softplus(x)
    yield from _sigmoid_derivatives(x)


def _normal_cdf_derivatives(x: Tensor) -> Iterator[Tensor]:
    yield torch.special.ndtr(x)
    density = torch.exp(-x.square() / 2) / math.sqrt(2 * math.pi)
    yield density
    yield -x * density


def _gated_derivatives(gate: Callable[[Tensor], Iterator[Tensor]]) -> Callable[[Tensor], Iterator[Tensor]]:
    r"""Those of $x\, \gamma(x)$ from those of the gate $\gamma$."""

    def derivatives(x: Tensor) -> Iterator[Tensor]:
        values = gate(x)
        value = next(values)
        yield x * value
        slope = next(values)
        yield x * slope + value
        yield x * next(values) + 2 * slope

    return derivatives


def _sine_derivatives(x: Tensor) -> Iterator[Tensor]:
    sine = x.sin()
    yield sine
    yield x.cos()
    yield -sine


def _elu_derivatives(x: Tensor) -> Iterator[Tensor]:
    yield functional.elu(x)
    below = x.clamp_max(0).exp()
    yield torch.where(x > 0, torch.ones_like(x), below)
    yield torch.where(x > 0, torch.zeros_like(x), below)


def _rectifier_derivatives(slope: float) -> Callable[[Tensor], Iterator[Tensor]]:
    def derivatives(x: Tensor) -> Iterator[Tensor]:
        step = torch.where(x > 0, torch.ones_like(x), slope)
        yield x * step
        yield step
        yield torch.zeros_like(x)

    return derivatives


def _polynomial_derivatives(x: Tensor) -> Iterator[Tensor]:
    yield (1 + x) * x * x
    yield (2 + 3 * x) * x
    yield 2 + 6 * x


def _quadratic_derivatives(x: Tensor) -> Iterator[Tensor]:
    yield x.square()
    yield 2 * x
    yield torch.full_like(x, 2)


ACTIVATIONS: Mapping[str, Activation] = {
    entry.name: entry
    for entry in (
        Activation("tanh", torch.tanh, _tanh_derivatives, monotone=True, centre=0.0),
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
        Activation("polynomial", lambda x: x.square() * (1 + x), _polynomial_derivatives),
        Activation("linear", lambda x: x, _rectifier_derivatives(1.0), monotone=True, centre=0.0, homogeneity=1),
        Activation("quadratic", torch.square, _quadratic_derivatives, homogeneity=2),
    )
}
"""All activations by name; `polynomial` is $t^2 + t^3$."""
