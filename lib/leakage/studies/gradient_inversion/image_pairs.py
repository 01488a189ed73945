r"""Pairs of images, of one class and of two, and how well the moments of one gradient tell them apart.

Images have no negative entries, so that any two are alike, and who answers both with the direction of their sum is not
far off: that is what an attack has to beat. Whatever is called here has seen the secret.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import normalize

from leakage import arguments
from leakage.attacks.gradient_inversion import moments, tensor
from leakage.metrics.reconstruction import match_error
from leakage.runtime import DTYPE, stream
from leakage.studies.gradient_inversion.games import Game, exchange


class Pairs(NamedTuple):
    """Batches of two: those of an even number are of one class and have one label, the others of two."""

    inputs: Float[Tensor, "pairs 2 d"]
    labels: Float[Tensor, "pairs 2"]


class PairErrors(NamedTuple):
    """The error of each answer to each pair.

    Attributes:
        by_sum: both images answered with the direction of the moment of order 1.
        hidden: the paper's tensor attack on the gradient of the hidden layer.
        outputs: the same on that of the output layer.
    """

    by_sum: Float[Tensor, " pairs"]
    hidden: Float[Tensor, " pairs"]
    outputs: Float[Tensor, " pairs"]


def draw(pixels: Float[Tensor, "n d"], classes: Int[Tensor, " n"], *, pairs: int, seed: int) -> Pairs:
    """Pairs of different images of unit length; their classes are drawn first.

    Raises:
        ValueError: if `pairs` is below 1, or there are fewer than two classes.
    """
    arguments.count("pairs", pairs, least=1)
    found, draws = [], stream(seed, "image pairs", pixels.device)
    known = classes.unique().to(pixels.device)
    if len(known) < 2:
        raise ValueError(f"`classes` must be at least two, got {known.tolist()!r}.")
    for number in range(pairs):
        first, second = known[torch.randperm(len(known), generator=draws, device=pixels.device)[:2]].tolist()
        pool = (classes == first).nonzero().flatten().to(pixels.device)
        chosen = pool[torch.randperm(len(pool), generator=draws, device=pixels.device)[:2]]
        if number % 2:
            others = (classes == second).nonzero().flatten().to(pixels.device)
            chosen[1] = others[torch.randperm(len(others), generator=draws, device=pixels.device)[0]]
        found.append(normalize(pixels[chosen], dim=-1))
    labels = torch.tensor([[1.0, 1.0], [1.0, -1.0]], dtype=DTYPE, device=pixels.device)
    return Pairs(torch.stack(found), labels.repeat(pairs, 1, 1).flatten(0, 1)[:pairs])


def errors(pairs: Pairs, *, width: int, seed: int) -> PairErrors:
    r"""What becomes of each pair, in a network of $x^2 + x^3$ with weights of its own.

    Raises:
        ValueError: as `exchange`.
    """
    rows = []
    for index, (inputs, labels) in enumerate(zip(*pairs, strict=True)):
        game = Game(inputs.shape[1], width)
        seen = exchange(game, inputs, labels, seed=seed, index=index).observation
        total = normalize(moments.of_hidden(seen, centre=False).mean, dim=0).expand_as(inputs)
        answers = [total]
        for source in ("hidden", "outputs"):
            draws = stream(seed, f"image pairs/{source}/{index}", inputs.device)
            answers.append(
                tensor.reconstruct(
                    seen, batch=2, source=source, contraction="mean", centre=False, generator=draws
                ).inputs
            )
        rows.append([match_error(answer, inputs) for answer in answers])
    return PairErrors(*torch.tensor(rows, dtype=DTYPE).T)
