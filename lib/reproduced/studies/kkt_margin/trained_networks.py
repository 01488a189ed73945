"""The networks that are attacked, trained on Gaussian points or digits, and their answers to members and outsiders."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from leakage.data import mixtures
from leakage.data.images import balanced_split, parity, resize
from leakage.models import convolutional, two_layer
from leakage.models.two_layer import TwoLayer
from leakage.runtime import DTYPE, stream
from leakage.trainers import margin_flow, module_flow
from leakage.trainers.margin_flow import Descent


class Answers(NamedTuple):
    r"""Answers of networks: $q_i = y_i \Phi(x_i)$ at their training points, $\Phi(x)$ at fresh points."""

    margins: Float[Tensor, "runs n"]
    fresh: Float[Tensor, "runs t"]


class Targets(NamedTuple):
    """`Answers` of trained networks, labels of fresh points, steps of each network, and answers at earlier steps."""

    margins: Float[Tensor, "runs n"]
    fresh: Float[Tensor, "runs t"]
    fresh_labels: Float[Tensor, "runs t"]
    steps: Int[Tensor, " runs"]
    snapshots: tuple[Answers, ...] = ()


# ── Gaussian points ──────────────────────────────────────────────────────────────────────────────────────────────────


def train_on_gaussians(
    dimension: int,
    *,
    law: str | mixtures.Law = "mixture",
    rows: int,
    width: int,
    fresh: int,
    runs: int,
    descent: Descent,
    seed: int,
    snapshots: Sequence[int] = (),
    hidden_scale: float = two_layer.HIDDEN_SCALE,
    output_scale: float = 1.0,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = DTYPE,
) -> Targets:
    r"""Train `runs` two-layer networks on `rows` points each of a Gaussian law and ask them about `fresh` others.

    The cost does not depend on the dimension once it exceeds `rows`. One seed gives the same draws for every descent
    and dtype, so that these are compared in pairs. `snapshots` are step counts at which the networks are asked, too.
    """
    name = f"{law}/{dimension}/{rows}/{width}"
    draws = stream(seed, f"points/{name}", device)
    sample = mixtures.draw_sample(law, rows=rows, fresh=fresh, dimension=dimension, runs=runs, generator=draws).to(
        dtype
    )
    start = two_layer.initial(
        (runs,),
        width,
        sample.train.shape[-1],
        generator=stream(seed, f"weights/{name}", device),
        hidden_scale=hidden_scale,
        output_scale=output_scale,
    )
    trained = margin_flow.train(start.to(dtype), sample.train, sample.labels, descent, snapshots=snapshots)

    def ask_fresh(model: TwoLayer) -> Tensor:
        draws = stream(seed, f"unseen/{name}", device)
        return fresh_outputs(model, sample, draws, hidden_scale=hidden_scale).to(DTYPE)

    earlier = [Answers((sample.labels * one(sample.train)).to(DTYPE), ask_fresh(one)) for one in trained.snapshots]
    labels = sample.fresh_labels.to(DTYPE)
    return Targets(trained.margins.to(DTYPE), ask_fresh(trained.model), labels, trained.steps, tuple(earlier))


def fresh_outputs(
    model: TwoLayer,
    sample: mixtures.Sample,
    generator: torch.Generator,
    *,
    hidden_scale: float = two_layer.HIDDEN_SCALE,
) -> Tensor:
    r"""$\Phi(x)$ of networks trained on `sample.train` at `sample.fresh`, with the weights off the span as they began.

    No gradient ever moves those weights, so their contribution to a pre-activation is
    $N(0, \text{hidden\_scale}^2 \cdot \text{radius}^2)$ whatever the training. Drawing it anew for each fresh point
    gives each answer its exact law; only correlations between answers of one network are dropped.
    """
    return model(sample.fresh, generator=generator, spread=hidden_scale * sample.radius)


def candidate_groups(
    *, member: Float[Tensor, "*b n"], outsider: Float[Tensor, "*b t"], size: int = 10
) -> Float[Tensor, "*b groups size"]:
    """Candidates for `leaked_point`: the outsiders in groups of `size - 1`, each with one member in the last place."""
    groups = outsider.shape[-1] // (size - 1)
    innocent = outsider[..., : groups * (size - 1)].unflatten(-1, (groups, size - 1))
    turns = torch.arange(groups, device=member.device) % member.shape[-1]
    return torch.cat([innocent, member[..., turns].unsqueeze(-1)], dim=-1)


# ── digits ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def train_on_digits(
    side: int,
    *,
    images: Float[Tensor, "N s s"],
    digits: Int[Tensor, " N"],
    network: str,
    width: int,
    rows_per_class: int,
    fresh: int,
    runs: int,
    descent: Descent,
    centred: bool,
    seed: int,
) -> Targets:
    r"""Train `runs` networks to tell even from odd digits, at one side length of Figures 2 and 3.

    All sides, networks and descents see the same random balanced sets for the same seed, so that they can be compared
    in pairs. The paper leaves open how the images are scaled, which are drawn, and what the labels are; these choices
    are ours: the images, grey values in [0, 1], are shrunk to `side` pixels a side; even digits are +1, odd are -1.
    `width` is the number of neurons of the hidden layer, or of channels of the first convolution. `centred` subtracts
    the mean of the training points, from the fresh ones too.
    """
    labels = parity(digits, dtype=images.dtype)
    draws = stream(seed, "image splits", images.device)
    split = balanced_split(labels, rows_per_class=rows_per_class, fresh=fresh, runs=runs, generator=draws)
    points = resize(images, side=side).flatten(1)
    train = points[split.train]
    centre = train.mean(-2, keepdim=True) if centred else torch.zeros_like(train[:, :1])
    draws = stream(seed, f"image networks/{network}/{side}", images.device)
    margins, steps, predict = NETWORKS[network](train - centre, labels[split.train], side, width, descent, draws)
    # A run at a time: the fresh points of all runs together would be many copies of the images.
    found = [predict(run, points[split.fresh[run]] - centre[run]) for run in range(runs)]
    return Targets(margins, torch.stack(found), labels[split.fresh], steps)


_Fit = tuple[Float[Tensor, "runs n"], Int[Tensor, " runs"], Callable[[int, Tensor], Tensor]]
"""Margins and steps of trained networks, and the outputs of one of them at given points."""


def _two_layer(
    points: Tensor, labels: Tensor, side: int, width: int, descent: Descent, generator: torch.Generator
) -> _Fit:
    start = two_layer.initial((len(points),), width, side**2, generator=generator).to(points.dtype)
    trained = margin_flow.train(start, points, labels, descent)
    return trained.margins, trained.steps, lambda run, asked: trained.model[run](asked)


def _convolutional(
    points: Tensor, labels: Tensor, side: int, width: int, descent: Descent, generator: torch.Generator
) -> _Fit:
    module = convolutional.Convolutional(side, width=width)
    start = convolutional.initial(module, len(points), generator=generator)
    start = {name: tensor.to(points) for name, tensor in start.items()}
    trained = module_flow.train(module, start, points, labels, descent)

    def predict(run: int, asked: Tensor) -> Tensor:
        own = {name: tensor[run : run + 1] for name, tensor in trained.model.items()}
        return module_flow.outputs(module, own, asked.unsqueeze(0)).squeeze(0)

    return trained.margins, trained.steps, predict


NETWORKS: Mapping[str, Callable[[Tensor, Tensor, int, int, Descent, torch.Generator], _Fit]] = {
    "two-layer": _two_layer,
    "convolutional": _convolutional,
}
"""How the networks of Figures 2 and 3 are trained, by name."""
