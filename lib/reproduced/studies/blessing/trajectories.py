r"""The losses of networks on a whole pool while they train, epoch by epoch.

The networks are in complementary pairs on a pool of examples; other examples validate. Experiments on early stopping
need nothing else from a training, for any kind of network.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float64, Int
from torch import Tensor

from leakage.data.membership_splits import Pairs
from leakage.trainers import ensembles
from leakage.trainers.criteria import Examples
from leakage.trainers.ensembles import Ensemble, Recipe, Recorder


class Seen(NamedTuple):
    """Losses and errors of networks on a pool and on validation examples.

    Attributes:
        losses: on the pool, each divided by its number of answers.
        error: share of wrong answers to the validation examples.
        validation_loss: mean over the validation examples.
    """

    losses: Float64[Tensor, "*e models pool"]
    error: Float64[Tensor, "*e models"]
    validation_loss: Float64[Tensor, "*e models"]


class Trajectory(NamedTuple):
    """Losses and errors of networks epoch by epoch, and their members.

    Attributes:
        seen: with the epochs as first dimension.
        member: which examples of the pool each network is trained on.
        partner: the other network of each network's pair.
        epochs: after which `seen` was recorded.
    """

    seen: Seen
    member: Bool[Tensor, "models pool"]
    partner: Int[Tensor, " models"]
    epochs: Int[Tensor, " e"]


def look(networks: Ensemble, pool: Examples, validation: Examples) -> Seen:
    """Losses and errors of the networks in their present state."""
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
) -> Trajectory:
    """Train the initial `networks` on halves of a pool, and record losses and errors after the given epochs.

    With equal pairs, networks of different kinds can be compared one by one. The generator shuffles.
    """
    recorder = Recorder(lambda seen: look(seen, pool, validation)._asdict())
    ensembles.train(
        networks,
        pool,
        pairs.rows,
        recipe,
        generator=generator,
        observe=recorder,
        epochs_observed=epochs,
    )
    found = recorder.stacked()
    when = found.pop("epochs")
    return Trajectory(Seen(**found), pairs.member, pairs.partner, when)
