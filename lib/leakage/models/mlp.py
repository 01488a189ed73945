r"""Fully connected ReLU networks as plain tensors, many of one shape at once.

$$ a^0 = x, \qquad z^l = W_l a^{l-1} + b_l, \qquad a^l = [z^l]_+ \quad (l \le H), \qquad o = W_{H+1} a^H + b_{H+1} $$

Leading dimensions are independent networks; each may have points of its own, or all share the points. They are
trained by `trainers.ensembles`; `membership.polytopes` finds the cell of a point, on which they are affine.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from leakage import draws


@dataclass(frozen=True, eq=False)
class Mlp:
    """The weights $W_l$ and biases $b_l$ of one network, or of as many as the leading dimensions hold."""

    weights: tuple[Float[Tensor, "*b _ _"], ...]
    biases: tuple[Float[Tensor, "*b _"], ...]

    def __post_init__(self) -> None:
        if not all(bool(torch.isfinite(tensor).all()) for tensor in (*self.weights, *self.biases)):
            raise ValueError("`weights` and `biases` must be finite; the training of this network has diverged.")

    def __getitem__(self, index: int | slice | Tensor | tuple[int | slice | Tensor, ...]) -> "Mlp":
        """The networks at `index` of the leading dimensions."""
        return self.each(lambda tensor: tensor[index])

    @property
    def widths(self) -> tuple[int, ...]:
        """Inputs, hidden neurons of each layer, outputs."""
        return (self.weights[0].shape[-1], *(tensor.shape[-2] for tensor in self.weights))

    def to(self, kind: torch.device | torch.dtype | str) -> "Mlp":
        """The same networks on another device or in another precision."""
        return self.each(lambda tensor: tensor.to(kind))

    def each(self, change: Callable[[Tensor], Tensor]) -> "Mlp":
        """The networks with every weight matrix and bias changed."""
        return Mlp(tuple(map(change, self.weights)), tuple(map(change, self.biases)))

    def preactivations(self, points: Float[Tensor, "... t d"]) -> tuple[Float[Tensor, "... t _"], ...]:
        r"""$z^1, \dots, z^H, o$ of every point: one tensor a layer, the outputs last."""
        layers, activations = [], points
        for weight, bias in zip(self.weights, self.biases, strict=True):
            layers.append((activations @ weight.mT).add_(bias.unsqueeze(-2)))
            activations = layers[-1].clamp_min(0)
        return tuple(layers)

    def __call__(self, points: Float[Tensor, "... t d"]) -> Float[Tensor, "... t classes"]:
        """The outputs $o$ (logits) at points whose leading dimensions broadcast with those of the networks."""
        return self.above(points @ self.weights[0].mT)

    def above(self, first: Float[Tensor, "... t _"]) -> Float[Tensor, "... t classes"]:
        """The outputs at points whose products $W_1 x$ with the first layer are `first`, which is overwritten."""
        for weight, bias in zip(self.weights[1:], self.biases[:-1], strict=True):
            first = first.add_(bias.unsqueeze(-2)).clamp_min_(0) @ weight.mT
        return first.add_(self.biases[-1].unsqueeze(-2))


def initial(
    models: tuple[int, ...], widths: Sequence[int], *, generator: torch.Generator, dtype: torch.dtype = torch.float64
) -> Mlp:
    r"""Networks at PyTorch's default initialisation: all parameters $U(-1, 1)/\sqrt{n_{l-1}}$."""
    weights, biases = [], []
    for inputs, outputs in itertools.pairwise(widths):
        drawn = draws.uniform((*models, outputs, inputs + 1), generator=generator, dtype=dtype)
        scaled = (2 * drawn - 1) / inputs**0.5
        weights.append(scaled[..., :-1].contiguous())
        biases.append(scaled[..., -1].contiguous())
    return Mlp(tuple(weights), tuple(biases))


def stack(networks: Sequence[Mlp]) -> Mlp:
    """Several networks of one shape as one, along a new first dimension."""
    return Mlp(
        tuple(torch.stack(layer) for layer in zip(*(network.weights for network in networks), strict=True)),
        tuple(torch.stack(layer) for layer in zip(*(network.biases for network in networks), strict=True)),
    )


def from_module(module: nn.Sequential) -> Mlp:
    """A PyTorch network made of `Linear` layers with `ReLU` between them, as plain tensors (copies)."""
    layers = list(module)
    linear = [layer for layer in layers[::2] if isinstance(layer, nn.Linear) and layer.bias is not None]
    if len(layers) % 2 == 0 or len(linear) != len(layers[::2]) or not all(isinstance(r, nn.ReLU) for r in layers[1::2]):
        kinds = [type(layer).__name__ for layer in layers]
        raise ValueError(
            f"`module` must be Linear (with bias), ReLU, Linear, ...; a Linear first and last; got {kinds}."
        )
    return Mlp(
        tuple(layer.weight.detach().clone() for layer in linear), tuple(layer.bias.detach().clone() for layer in linear)
    )
