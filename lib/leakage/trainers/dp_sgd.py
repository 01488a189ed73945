r"""DP-SGD for fully connected networks, many models and many settings at once, without a gradient for each example.

$$ \theta \leftarrow \theta - \frac{\eta}{B} \Bigl( \sum_{i \in S} \min\bigl(1, C/\lVert g_i \rVert\bigr)\, g_i
   + \sigma C\, \xi \Bigr), \qquad \xi \sim N(0, I), \quad \text{each } i \in S \text{ with probability } q = B/m. $$

Networks have two leading dimensions, *models* and *settings*. A model has rows, batches and noise ξ of its own; the
settings (σ, η) of one model share them, so that settings are compared on the same draws. Each network alone is trained
exactly as DP-SGD says; B is the *expected* batch, as the guarantee wants (`privacy_accounting`).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from leakage import draws
from leakage.models.mlp import Mlp
from leakage.trainers.ensembles import Examples, backpropagate

_MOST_DRAWS = 2**22  # numbers drawn at once for the batches of several steps: 16 MiB of float32
_NO_NORM = 1e-30  # smaller than any clipping bound: keeps a gradient of zero from dividing by zero


@dataclass(frozen=True)
class PrivateRecipe:
    """Steps T, batches and clipping of DP-SGD.

    Attributes:
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
        networks: the initial networks, leading dimensions models and settings; they are not changed.
        examples: the points and classes of all models; see `MlpEnsemble`.
        rows: which points each model is trained on.
        noise: σ of each setting; 0 only clips, without any guarantee.
        learning_rate: η of each setting.
        generator: draws batches and noise. On a GPU the noise comes from a generator of the GPU, seeded by this one, so
            that batches and noise are others than on a CPU: for a step of 8 networks 128-256-10 a CPU would draw for
            2.5 ms, and the rest takes a GPU 1.6 ms.
    """
    trained = networks.each(torch.clone)
    parameters = [part for layer in zip(trained.weights, trained.biases, strict=True) for part in layer]
    dtype, rate = parameters[0].dtype, recipe.sampling_rate(rows.shape[1])
    points, step = examples.inputs[0].to(dtype), (learning_rate / recipe.batch).to(dtype)
    noise_scale = step * noise.to(dtype) * recipe.clip
    noise_generator = draws.generator_on(rows.device, generator)
    for index, present in poisson_batches(rows, rate, steps=recipe.steps, generator=generator):
        sums = clipped_gradient_sum(trained, points[index], examples.targets[index], clip=recipe.clip, present=present)
        for parameter, total in zip(parameters, sums, strict=True):
            shape = (len(parameter), 1, *parameter.shape[2:])  # all settings of a model share the noise ξ
            drawn = draws.gaussian(shape, generator=noise_generator, like=parameter)
            column = (-1, *[1] * (parameter.ndim - 2))
            parameter.addcmul_(step.view(column), total, value=-1).addcmul_(noise_scale.view(column), drawn, value=-1)
    return Mlp(trained.weights, trained.biases)  # checks that they are finite


def repeat_for_settings(networks: Mlp, settings: int) -> Mlp:
    """Networks of one leading dimension, repeated along a second one: every setting starts from the same weights."""
    return networks.each(lambda tensor: torch.stack([tensor] * settings, dim=1))


def clipped_gradient_sum(
    networks: Mlp,
    points: Float[Tensor, "models b d"],
    labels: Int[Tensor, "models b"],
    *,
    clip: float,
    present: Bool[Tensor, "models b"] | None = None,
) -> list[Tensor]:
    r"""The sum over a batch of each example's gradient, clipped to norm C.

    $$ \sum_i c_i\, g_i = \Bigl(\sum_i c_i\, \delta_l\, (a^{l-1}, 1)^\top\Bigr)_l, \qquad
       c_i = \min(1, C/\lVert g_i\rVert), \qquad
       \lVert g_i \rVert^2 = \sum_l \lVert \delta_l \rVert^2 \bigl( \lVert a^{l-1} \rVert^2 + 1 \bigr) $$

    The gradient $g_i$ is never formed: in layer l it is the outer product of $\delta_l$ with $(a^{l-1}, 1)$ (see
    `ensembles.backpropagate`). The sums are those of the weights and biases of the first layer, of the second, and so
    on, for networks with leading dimensions models and settings. Only points that are `present` count.

    Source: Goodfellow (2015), Efficient per-example gradient computations (arXiv 1510.01799).
    """
    inputs, signals = backpropagate(networks, points.unsqueeze(1), labels.unsqueeze(1))
    pairs = list(zip(inputs, signals, strict=True))
    squares = [signal.square().sum(-1) * (layer_input.square().sum(-1) + 1) for layer_input, signal in pairs]
    factors = (clip / torch.stack(squares).sum(0).sqrt().clamp_min(_NO_NORM)).clamp_max(1)
    if present is not None:
        factors = factors * present.unsqueeze(1)
    sums = []
    for layer_input, signal in pairs:
        clipped = factors.unsqueeze(-1) * signal
        sums += [torch.einsum("...bo,...bi->...oi", clipped, layer_input), clipped.sum(-2)]
    return sums


def poisson_batches(
    rows: Int[Tensor, "models m"], rate: float, *, steps: int, generator: torch.Generator
) -> Iterator[tuple[Int[Tensor, "models b"], Bool[Tensor, "models b"]]]:
    """For every step the points of each model's batch, each of its rows independently with probability `rate`.

    All batches of a step have the length of the largest. The shorter ones are filled up with points that did not enter,
    and the second tensor says which did. Many steps are drawn at once, since a GPU has to wait for the lengths.
    """
    at_once = max(1, _MOST_DRAWS // rows.numel())
    for first in range(0, steps, at_once):
        size = (min(at_once, steps - first), *rows.shape)
        drawn = draws.uniform(size, generator=generator, like=rows, dtype=torch.float32) < rate
        for enters, longest in zip(drawn, drawn.sum(-1).amax(-1).tolist(), strict=True):
            present, order = enters.sort(dim=-1, descending=True, stable=True)
            yield rows.gather(-1, order[:, :longest]), present[:, :longest]
