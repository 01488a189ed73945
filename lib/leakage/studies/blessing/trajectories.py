r"""Networks watched while they train: every network's losses on a whole pool, epoch by epoch.

The networks are in complementary pairs on a pool of examples; other examples validate. This is all that an experiment
on early stopping needs of a training, whatever the networks are. Nothing here attacks or reads a file.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float64, Int
from torch import Tensor

from leakage.data.membership_splits import Pairs
from leakage.trainers import ensembles
from leakage.trainers.criteria import Examples
from leakage.trainers.ensembles import Augment, Ensemble, Recipe, Recorder


class Seen(NamedTuple):
    """What networks make of a pool and of other examples.

    Attributes:
        losses: on the pool, each divided by its number of answers.
        error: share of wrong answers to the validation examples.
        validation_loss: mean over the validation examples.
    """

    losses: Float64[Tensor, "*e models pool"]
    error: Float64[Tensor, "*e models"]
    validation_loss: Float64[Tensor, "*e models"]


class Trajectory(NamedTuple):
    """What was seen of a training, epoch by epoch, and who is a member.

    Attributes:
        seen: with the epochs as first dimension.
        member: who of the pool is whose training example.
        partner: the other network of each network's pair.
        epochs: when it was looked at.
    """

    seen: Seen
    member: Bool[Tensor, "models pool"]
    partner: Int[Tensor, " models"]
    epochs: Int[Tensor, " e"]


def look(networks: Ensemble, pool: Examples, validation: Examples) -> Seen:
    """What the networks make of both, as they are."""
    found, other = (networks.scores(asked) for asked in (pool, validation))
    return Seen(
        found.losses / found.answers,
        other.wrong.sum(-1).double() / other.answers.sum(-1),
        (other.losses / other.answers).mean(-1),
    )


def watch(
    networks: Ensemble,
    pool: Examples,
    validation: Examples,
    recipe: Recipe,
    *,
    pairs: Pairs,
    epochs: Sequence[int],
    generator: torch.Generator,
    augment: Augment | None = None,
    description: str | None = None,
) -> Trajectory:
    r"""Train networks on halves of a pool and record what an attacker may look at.

    Args:
        networks: the initial ones.
        pool: examples that members and outsiders come from.
        validation: other examples.
        recipe: of the training.
        pairs: who is trained on what; with equal pairs, networks of different forms can be compared one by one.
        epochs: when to record.
        generator: of the shuffles and `augment`.
        augment: changes the inputs of a batch anew each time; see `ensembles.train`.
        description: text of a progress bar; none by default.

    Raises:
        ValueError: as `ensembles.train`, or if no epoch is recorded.
    """
    recorder = Recorder(lambda seen: look(seen, pool, validation)._asdict())
    ensembles.train(
        networks,
        pool,
        pairs.rows,
        recipe,
        generator=generator,
        augment=augment,
        observe=recorder,
        epochs_observed=epochs,
        description=description,
    )
    found = recorder.stacked()
    when = found.pop("epochs")
    return Trajectory(Seen(**found), pairs.member, pairs.partner, when)
