r"""Networks trained to be attacked: what they answer to their training points and to fresh points of the same law.

One call is one point of an experiment's grid.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from leakage import arguments
from leakage.data import mixtures
from leakage.models import two_layer
from leakage.models.two_layer import TwoLayer
from leakage.runtime import DTYPE, stream
from leakage.trainers import margin_flow
from leakage.trainers.margin_flow import Descent


class Answers(NamedTuple):
    r"""What networks answer.

    Attributes:
        margins: $q_i = y_i \Phi(x_i)$ of their training points.
        fresh: $\Phi(x)$ at fresh points.
    """

    margins: Float[Tensor, "runs n"]
    fresh: Float[Tensor, "runs t"]


class Targets(NamedTuple):
    r"""Networks to be attacked, as an attacker sees them.

    Attributes:
        margins: $q_i = y_i \Phi(x_i)$ of their training points.
        fresh: $\Phi(x)$ at fresh points.
        fresh_labels: of these.
        steps: how many steps each network took.
        then: the answers at earlier steps, for each one asked for.
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

    Args:
        dimension: d, of any size: the cost does not depend on it once it exceeds `rows`.
        law: of the points and labels (`data.mixtures`).
        rows: n.
        width: k.
        fresh: fresh points for each network.
        runs: networks, each with its own data and initialisation.
        descent: of the training (`trainers.margin_flow`).
        seed: of data and initialisation; the same for every descent, so that descents are compared on the same draws.
        snapshots: step counts at which the networks are asked, too.
        hidden_scale: of the initial weights and biases of the hidden layer.
        output_scale: multiplies the initial output weights.
        device: where to compute.
        dtype: of the networks; what is drawn does not depend on it.

    Raises:
        ValueError: as `mixtures.draw`, `two_layer.initial` and `margin_flow.train`.
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
    $N(0, \text{hidden\_scale}^2 \cdot \text{radius}^2)$ whatever the training. Drawing it anew for each fresh point is
    the exact law of each answer; only correlations between answers of one network are dropped.
    """
    return model(sample.fresh, generator=generator, spread=hidden_scale * sample.radius)


def line_ups(
    *, member: Float[Tensor, "*b n"], outsider: Float[Tensor, "*b t"], size: int = 10
) -> Float[Tensor, "*b groups size"]:
    """Candidates for `leaked_point`: the outsiders in groups of `size - 1`, each with one member in the last place.

    Every outsider is in at most one group; the members take turns. Equal answers are decided for the outsider.

    Raises:
        ValueError: if the size is below 2, or there are too few outsiders for one group, there is no member, or an
            answer is not finite.
    """
    arguments.count("size", size)
    arguments.real("member", member, "*b n")
    arguments.real("outsider", outsider, "*b t", like=member)
    if member.shape[:-1] != outsider.shape[:-1]:
        raise ValueError(
            f"`outsider` must be of the members' networks, {tuple(member.shape[:-1])}, got {tuple(outsider.shape)}."
        )
    groups = outsider.shape[-1] // max(size - 1, 1)
    if size < 2 or not groups or not member.shape[-1]:
        raise ValueError(
            f"`size` must be at least 2, with a member and {size - 1} outsiders at hand; "
            f"got {member.shape[-1]} and {outsider.shape[-1]}."
        )
    innocent = outsider[..., : groups * (size - 1)].unflatten(-1, (groups, size - 1))
    turns = torch.arange(groups, device=member.device) % member.shape[-1]
    return torch.cat([innocent, member[..., turns].unsqueeze(-1)], dim=-1)
