r"""DP-SGD for fully connected networks, many models and many settings at once, without a gradient for each example.

$$ \theta \leftarrow \theta - \frac{\eta}{B} \Bigl( \sum_{i \in S} \min\bigl(1, C/\lVert g_i \rVert\bigr)\, g_i
   + \sigma C\, \xi \Bigr), \qquad \xi \sim N(0, I), \quad \text{each } i \in S \text{ with probability } q = B/m. $$

Networks have two leading dimensions, *models* and *settings*. A model has rows, batches and noise ξ of its own; the
settings (σ, η) of one model share them, so that settings are compared on the same draws. Each network alone is trained
exactly as DP-SGD says; B is the *expected* batch, as the guarantee wants. `privacy_accounting` says what is guaranteed.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import one_hot

from leakage.models.mlp import Mlp
from leakage.trainers.criteria import Examples
from leakage.trainers.sparse_rows import SparseRows

_MOST_DRAWS = 2**22  # numbers drawn at once for the batches of several steps: 16 MiB of float32
_ALIGNED = 16  # numbers from which on the rows of a matrix begin: 64 bytes of float32, a line of the cache
_NO_NORM = 1e-30  # smaller than any clipping bound: keeps a gradient of zero from dividing by zero


@dataclass(frozen=True)
class PrivateRecipe:
    """How long, on how many examples a step, and to what norm each example's gradient is clipped.

    Attributes:
        steps: T.
        batch: B, the expected number of examples in a step; a real number.
        clip: C, the largest norm of an example's gradient, over all weights and biases.
    """

    steps: int
    batch: float
    clip: float = 1.0

    def sampling_rate(self, rows: int) -> float:
        """The probability q = B / m with which each of m rows enters a batch."""
        return self.batch / rows


def train(
    networks: Mlp,
    examples: Examples,
    rows: Int[Tensor, "models m"],
    recipe: PrivateRecipe,
    *,
    noise: Float[Tensor, " settings"],
    learning_rate: Float[Tensor, " settings"],
    generator: torch.Generator,
) -> Mlp:
    r"""Train every network by DP-SGD on the cross-entropy of its model's rows.

    Source: Abadi et al. (2016), Algorithm 1, with Poisson sampling and their lot size L as the divisor.

    Args:
        networks: the initial networks, leading dimensions models and settings; they are left as they are.
        examples: those of all models, points and classes; see `MlpEnsemble`.
        rows: which points each model is trained on.
        recipe: steps, expected batch, clipping bound.
        noise: σ of each setting; 0 is clipping alone, without any guarantee.
        learning_rate: η of each setting.
        generator: draws batches and noise; its device is that of the networks.
    """
    dtype = networks.weights[0].dtype
    features, targets = examples.inputs[0].to(dtype), one_hot(examples.targets, networks.widths[-1]).to(dtype)
    state, sparse = networks.each(_aligned), SparseRows.of(features)
    if sparse is not None:
        state = Mlp((_by_inputs(networks.weights[0]), *state.weights[1:]), state.biases)
    step = (learning_rate / recipe.batch).to(dtype)
    spread = -(step * noise.to(dtype) * recipe.clip)
    for index, present in poisson_batches(
        rows, recipe.sampling_rate(rows.shape[1]), steps=recipe.steps, generator=generator
    ):
        batch = None if sparse is None else sparse.blocks(index)
        inputs, pushes = _backward(state, features[index], targets[index], batch)
        scale = -step[:, None] * _factors(inputs, pushes, recipe.clip) * present[:, None]
        _add_gradients(state, inputs, pushes, scale, batch)
        for parameter in itertools.chain.from_iterable(zip(state.weights, state.biases, strict=True)):
            _add_noise(parameter, spread, generator)
    return Mlp(state.weights, state.biases)  # refuses networks that have diverged


def repeat_for_settings(networks: Mlp, settings: int) -> Mlp:
    """Networks of one leading dimension, repeated along a second one: every setting starts from the same weights."""
    return networks.each(lambda tensor: torch.stack([tensor] * settings, dim=1))


def clipped_gradient_sum(
    networks: Mlp,
    points: Float[Tensor, "models b d"],
    labels: Int[Tensor, "models b"],
    *,
    clip: float,
) -> Mlp:
    r"""The sum over a batch of each example's gradient, clipped to norm C, in the shape of the networks.

    $$ \sum_i \min(1, C/\lVert g_i\rVert)\, g_i = \Bigl(\sum_i c_i\, \delta_l\, (a^{l-1}, 1)^\top\Bigr)_l $$

    One matrix product a layer: the factors $c_i$ go into the signals $\delta_l$.
    """
    inputs, pushes = _backward(networks, points, one_hot(labels.long(), networks.widths[-1]).to(points.dtype))
    total = networks.each(lambda tensor: tensor.new_zeros(tensor.shape))
    _add_gradients(total, inputs, pushes, _factors(inputs, pushes, clip))
    return total


def poisson_batches(
    rows: Int[Tensor, "models m"], rate: float, *, steps: int, generator: torch.Generator
) -> Iterator[tuple[Int[Tensor, "models b"], Bool[Tensor, "models b"]]]:
    """For every step the points each model sees, each of its rows independently with probability `rate`.

    Batches have the length of the step's largest; the others are filled up with points that did not enter, and the
    second tensor says which did. Nobody is ever left out for want of room: the lengths are read off the draws, those
    of many steps at once since a GPU has to wait for them.
    """
    at_once = max(1, _MOST_DRAWS // rows.numel())
    for first in range(0, steps, at_once):
        size = (min(at_once, steps - first), *rows.shape)
        drawn = torch.rand(size, dtype=torch.float32, generator=generator, device=rows.device) < rate
        for enters, longest in zip(drawn, drawn.sum(-1).amax(-1).tolist(), strict=True):
            present, order = enters.sort(dim=-1, descending=True, stable=True)
            yield rows.gather(-1, order[:, :longest]), present[:, :longest]


def _backward(
    networks: Mlp,
    points: Float[Tensor, "models b d"],
    targets: Float[Tensor, "models b classes"],
    batch: SparseRows | None = None,
) -> tuple[list[Tensor], list[Tensor]]:
    r"""The inputs $a^{l-1}$ of every layer and the signals $\delta_l$ that come back to it, one of each an example.

    The points are the same for all settings of a model and are multiplied with the weights of all of them at once:
    as `batch`, with a block for each model, where most of their numbers are 0.
    """
    first = networks.weights[0]
    wide = points @ first.flatten(1, 2).mT if batch is None else batch.times(_table(first)).view(*points.shape[:2], -1)
    above = wide.unflatten(-1, networks.biases[0].shape[1:]).transpose(1, 2) + networks.biases[0].unsqueeze(-2)
    inputs = [points.unsqueeze(1)]
    for weight, bias in zip(networks.weights[1:], networks.biases[1:], strict=True):
        inputs.append(above.clamp_min_(0))
        above = inputs[-1] @ weight.mT + bias.unsqueeze(-2)
    pushes = [above.softmax(-1).sub_(targets.unsqueeze(1))]
    for weight, below in zip(reversed(networks.weights[1:]), reversed(inputs[1:]), strict=True):
        pushes.append(torch.ops.aten.threshold_backward(pushes[-1] @ weight, below, 0))  # where the ReLU is on
    return inputs, pushes[::-1]


def _factors(inputs: list[Tensor], pushes: list[Tensor], clip: float) -> Float[Tensor, "models settings b"]:
    r"""What clips each example's gradient: $\min(1, C/\lVert g_i \rVert)$, without forming it.

    In layer l it is the outer product of $\delta_l = \partial\ell/\partial z^l$ with $(a^{l-1}, 1)$, so

    $$ \lVert g_i \rVert^2 = \sum_l \lVert \delta_l \rVert^2 \bigl( \lVert a^{l-1} \rVert^2 + 1 \bigr). $$

    Source: Goodfellow (2015), Efficient per-example gradient computations (arXiv 1510.01799).
    """
    squares = [push.square().sum(-1) * (below.square().sum(-1) + 1) for below, push in zip(inputs, pushes, strict=True)]
    return (clip / torch.stack(squares).sum(0).sqrt().clamp_min(_NO_NORM)).clamp_max(1)


def _add_gradients(
    networks: Mlp,
    inputs: list[Tensor],
    pushes: list[Tensor],
    factors: Float[Tensor, "models settings b"],
    batch: SparseRows | None = None,
) -> None:
    """Add the sum of the examples' gradients times their factors, in place; the signals are used up."""
    for weight, bias, below, push in zip(networks.weights, networks.biases, inputs, pushes, strict=True):
        push.mul_(factors.unsqueeze(-1))
        _add_products(weight, push, below, batch)
        bias.add_(push.sum(-2))


def _add_products(
    weight: Float[Tensor, "models settings out in"],
    push: Float[Tensor, "models settings b out"],
    below: Float[Tensor, "models _ b in"],
    batch: SparseRows | None,
) -> None:
    """Add the sum of the outer products to the weights, in place; points shared by the settings are read once."""
    if below.shape[1] > 1:
        weight.view(-1, *weight.shape[2:]).baddbmm_(push.flatten(0, 1).mT, below.flatten(0, 1))
        return
    shared = push.transpose(1, 2).flatten(2)
    if batch is None:
        weight.view(len(weight), -1, weight.shape[-1]).baddbmm_(shared.mT, below[:, 0])
    else:
        _table(weight).add_(batch.transposed.times(shared.flatten(0, 1)))


def _by_inputs(weight: Float[Tensor, "models settings out in"]) -> Float[Tensor, "models settings out in"]:
    """A copy in which the weights of one input are neighbours in memory."""
    return weight.permute(0, 3, 1, 2).contiguous().permute(0, 2, 3, 1)


def _table(weight: Float[Tensor, "models settings out in"]) -> Float[Tensor, "models_in settings_out"]:
    """Weights that are `_by_inputs`, in the same memory, with a row for each input of each model."""
    models, settings, out, inputs = weight.shape
    return weight.permute(0, 3, 1, 2).view(models * inputs, settings * out)


def _add_noise(parameter: Float[Tensor, "models settings *rest"], spread: Tensor, generator: torch.Generator) -> None:
    """Add a Gaussian of one draw a model, spread as each setting says."""
    shape = (len(parameter), 1, *parameter.shape[2:])
    drawn = torch.randn(shape, generator=generator, device=parameter.device, dtype=parameter.dtype)
    parameter.addcmul_(spread.view(-1, *[1] * (parameter.ndim - 2)), drawn)


def _aligned(tensor: Float[Tensor, "*b n"]) -> Float[Tensor, "*b n"]:
    """A copy whose rows lie a multiple of `_ALIGNED` apart: adding products to others takes twice as long."""
    length = tensor.shape[-1]
    room = tensor.new_zeros(*tensor.shape[:-1], -(-length // _ALIGNED) * _ALIGNED)
    return room[..., :length].copy_(tensor)
