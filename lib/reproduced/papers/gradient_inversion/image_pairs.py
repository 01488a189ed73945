r"""Pairs of images, of one class and of two, and how well the moments of one gradient tell them apart.

Images have no negative entries, so that any two are alike, and the direction of their sum is close to both: an attack
has to beat that answer. These functions see the secret.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import normalize

from leakage.inversion import moments, recover, tensor_attack
from leakage.inversion.observation import Observation
from leakage.inversion.reconstruction import match_error, match_inputs
from leakage.precision import DTYPE
from reproduced.papers.gradient_inversion.games import Game, attack_device, play_round
from reproduced.runtime import Run, move, stream


class Pairs(NamedTuple):
    """Batches of two images: those with an even index have one class and one label, the others have two."""

    inputs: Float[Tensor, "pairs 2 d"]
    labels: Float[Tensor, "pairs 2"]


class PairAnswers(NamedTuple):
    """The answers of each attack of `PAIR_ATTACKS` to each pair, and what the server sees of it."""

    images: Mapping[str, Float[Tensor, "pairs 2 d"]]  # in the order of the true images that they match
    errors: Mapping[str, Float[Tensor, " pairs"]]  # root mean squares (`inversion.reconstruction.match_error`)
    rows: Float[Tensor, "pairs 2 d"]  # the first two rows of the gradient of the hidden layer


def draw_pairs(pixels: Float[Tensor, "n d"], classes: Int[Tensor, " n"], *, pairs: int, seed: int) -> Pairs:
    """Pairs of different images of unit length; their classes are drawn first."""
    found, draws = [], stream(seed, "image pairs")
    known = classes.unique()
    for number in range(pairs):
        first, second = known[torch.randperm(len(known), generator=draws)[:2]].tolist()
        pool = (classes == first).nonzero().flatten()
        chosen = pool[torch.randperm(len(pool), generator=draws)[:2]]
        if number % 2:
            others = (classes == second).nonzero().flatten()
            chosen[1] = others[torch.randperm(len(others), generator=draws)[0]]
        found.append(normalize(pixels[chosen], dim=-1))
    labels = torch.tensor([[1.0, 1.0], [1.0, -1.0]], dtype=DTYPE)
    return Pairs(torch.stack(found), labels.repeat(pairs, 1, 1).flatten(0, 1)[:pairs])


def attack_pairs(pairs: Pairs, *, width: int, run: Run) -> PairAnswers:
    r"""The answers to each pair, from a network with activation $x^2 + x^3$ and weights of its own."""
    images, errors, rows = {name: [] for name in PAIR_ATTACKS}, {name: [] for name in PAIR_ATTACKS}, []
    for index, (inputs, labels) in enumerate(zip(*pairs, strict=True)):
        game = Game(inputs.shape[1], width)
        seen = play_round(game, inputs, labels, seed=run.seed, index=index).observation
        assert seen.hidden is not None
        rows.append(seen.hidden[:2].clone())  # a view would keep the whole gradient
        seen = move(seen, attack_device(game, run))
        for name, attack in PAIR_ATTACKS.items():
            found = attack(seen, run.stream(f"image pairs/{name}/{index}")).cpu()
            images[name].append(match_inputs(found, inputs))
            errors[name].append(match_error(found, inputs))
    return PairAnswers(
        {name: torch.stack(found) for name, found in images.items()},
        {name: torch.tensor(found, dtype=DTYPE) for name, found in errors.items()},
        torch.stack(rows),
    )


def _sum(seen: Observation, generator: torch.Generator) -> Tensor:
    return normalize(moments.from_hidden(seen, centre=False).first, dim=0).expand(2, -1)


def _tensor(seen: Observation, generator: torch.Generator, *, source: str) -> Tensor:
    found = tensor_attack.reconstruct(
        seen, batch=2, source=source, contraction="mean", centre=False, generator=generator
    )
    return found.inputs


def _exact(seen: Observation, generator: torch.Generator) -> Tensor:
    return recover.recover(seen, batch=2, norm=1.0, labels=(-1.0, 1.0), generator=generator).inputs


PAIR_ATTACKS: Mapping[str, Callable[[Observation, torch.Generator], Tensor]] = {
    "sum": _sum,
    **{source: partial(_tensor, source=source) for source in ("outputs", "hidden", "span")},
    "exact": _exact,
}
"""The attacks by name: the direction of the moment of order 1 for both images; the paper's tensor attack on either
gradient and in the exact span; the exact recovery, which gets the length of the images and the possible labels."""
