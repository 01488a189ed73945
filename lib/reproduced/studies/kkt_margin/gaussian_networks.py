r"""Networks trained to be attacked, and their answers to their training points and to fresh points of the same law."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from leakage.data import mixtures
from leakage.models import two_layer
from leakage.models.two_layer import TwoLayer
from leakage.runtime import DTYPE, stream
from leakage.trainers import margin_flow
from leakage.trainers.margin_flow import Descent


class Answers(NamedTuple):
    r"""The answers of networks: $q_i = y_i \Phi(x_i)$ of their training points, $\Phi(x)$ at fresh points."""

    margins: Float[Tensor, "runs n"]
    fresh: Float[Tensor, "runs t"]


class Targets(NamedTuple):
    r"""The answers of trained networks, as in `Answers`, and the labels of the fresh points.

    Attributes:
        steps: how many steps each network took.
        then: the answers after each of the earlier steps asked for.
    """

    margins: Float[Tensor, "runs n"]
    fresh: Float[Tensor, "runs t"]
    fresh_labels: Float[Tensor, "runs t"]
    steps: Int[Tensor, " runs"]
    then: tuple[Answers, ...] = ()


def gaussian_targets(
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
    and every dtype, so that these are compared in pairs. `snapshots` are step counts at which the networks are asked,
    too.
    """
    name = f"{law}/{dimension}/{rows}/{width}"
    sample = mixtures.draw(
        law,
        rows=rows,
        fresh=fresh,
        dimension=dimension,
        runs=runs,
        generator=stream(seed, f"points/{name}", device),
    ).to(dtype)
    start = two_layer.initial(
        (runs,),
        width,
        sample.train.shape[-1],
        generator=stream(seed, f"weights/{name}", device),
        hidden_scale=hidden_scale,
        output_scale=output_scale,
    ).to(dtype)
    trained = margin_flow.train(start, sample.train, sample.labels, descent, snapshots=snapshots)

    def unseen(model: TwoLayer) -> Tensor:
        draws = stream(seed, f"unseen/{name}", device)
        return fresh_outputs(model, sample, draws, hidden_scale=hidden_scale).to(DTYPE)

    then = tuple(Answers((sample.labels * model(sample.train)).to(DTYPE), unseen(model)) for model in trained.snapshots)
    labels = sample.fresh_labels.to(DTYPE)
    return Targets(trained.margins.to(DTYPE), unseen(trained.model), labels, trained.steps, then)


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


def line_ups(
    *, member: Float[Tensor, "*b n"], outsider: Float[Tensor, "*b t"], size: int = 10
) -> Float[Tensor, "*b groups size"]:
    """Candidates for `leaked_point`: the outsiders in groups of `size - 1`, each with one member in the last place.

    Every outsider is in at most one group; the members take turns. `leaked_point` decides ties for the outsider.
    """
    groups = outsider.shape[-1] // (size - 1)
    innocent = outsider[..., : groups * (size - 1)].unflatten(-1, (groups, size - 1))
    turns = torch.arange(groups, device=member.device) % member.shape[-1]
    return torch.cat([innocent, member[..., turns].unsqueeze(-1)], dim=-1)
