"""Networks of one hidden layer on halves of a pool: who is trained on what, and with which weights it begins.

Split number and seed fix the pool and the pairs, so all widths see the same ones and can be compared model by model.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from leakage import arguments
from leakage.data.membership_splits import Pairs, complementary_pairs
from leakage.models import mlp
from leakage.models.mlp import Mlp
from leakage.runtime import stream
from leakage.trainers.criteria import Examples


class Halves(NamedTuple):
    """A pool that members and outsiders come from, the examples left over, which validate, and the pairs of models."""

    pool: Examples
    validation: Examples
    pairs: Pairs

    def initial(self, width: int, *, generator: torch.Generator) -> Mlp:
        """A network of one hidden layer for each model."""
        points = self.pool.inputs[0]
        classes = max(int(examples.targets.max()) for examples in (self.pool, self.validation)) + 1
        models = (len(self.pairs.rows),)
        return mlp.initial(models, (points.shape[1], width, classes), generator=generator, dtype=points.dtype)


def drawn(
    features: Float[Tensor, "n d"], labels: Int[Tensor, " n"], *, pool: int, models: int, split: int, seed: int
) -> Halves:
    """A random pool of all points and complementary pairs of models on it.

    Args:
        features: all points, in the precision that the networks are trained in.
        labels: classes from 0.
        pool: how many points members and outsiders come from; the rest validates.
        models: in complementary pairs.
        split: number of the repetition: another one has another pool and other pairs.
        seed: of all randomness.

    Raises:
        ValueError: if no point is left to validate, or as `complementary_pairs`.
    """
    if not arguments.count("pool", pool, least=1) < len(labels):
        raise ValueError(f"`pool` must leave points to validate, got {pool} of {len(labels)}.")
    draws = stream(seed, f"pool/{split}", features.device)
    order = torch.rand(len(labels), dtype=torch.float32, generator=draws, device=features.device).argsort()
    everything = Examples((features,), labels)
    pairs = complementary_pairs(pool, models, generator=draws)
    return Halves(everything[order[:pool]], everything[order[pool:]], pairs)
