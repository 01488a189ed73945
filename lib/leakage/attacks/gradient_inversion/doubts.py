r"""What speaks against a batch that the tensor attack believes in, from the gradient alone.

A gap of eigenvalues judges a span that was read off the rows of a gradient. It cannot judge one that moments gave: the
moment of order 2 of a gradient of rank 1 has two eigenvalues, and a span that was fitted to a noisy tensor stands out
of it. There, two halves of the neurons have to see the same span. Nothing here draws, and nothing changes an answer.
"""

import dataclasses
import math
from collections.abc import Callable

import torch
from scipy import special

from leakage.attacks.gradient_inversion.observation import Observation
from leakage.attacks.gradient_inversion.span import Span
from leakage.attacks.gradient_inversion.tensor_decomposition import Decomposition

LEAST_GAP = 1.5
"""Of the singular values of a gradient's rows. Noise leaves 1.36 at most: in 3000 gradients of 40 to 400 neurons, 10 to
60 dimensions and 1 to 4 inputs, and again in 3000 from seeds that were not used to set it."""
CHANCE = 0.01
"""How often a direction that is noise may agree between two halves of the neurons by chance, and pass. For an input
given twice (g of tanh and polynomials, 6 to 40 dimensions, 600 to 2000 neurons) it was 5 times in 1200, and 7 in 1800
from other seeds. The doubt falls on sound batches, too, where an estimate is no better than noise may be."""
_MOST_NOISE = 0.5  # in the terms: within a factor of 2.5 the relative error of the inputs, on tensors of 8 and 16 terms
_MOST_MISFIT = 0.5  # of the gradient


def by_chance(dimension: int) -> float:
    r"""The $|\cos|$ that independent uniform directions of $\R^k$ exceed with the probability `CHANCE`.

    $\cos^2 \sim \text{Beta}(\frac12, \frac{k - 1}2)$. Where one of B inputs is missing, the last directions of both
    halves are independent and uniform in what the others leave, $k = d - B + 1$, since weights are rotation invariant.
    """
    return math.sqrt(special.betaincinv(0.5, (dimension - 1) / 2, 1 - CHANCE))


def in_words(
    observation: Observation,
    found: Span,
    terms: Decomposition,
    *,
    find: Callable[[Observation], Span] | None,
    order: int,
    misfit: float,
) -> tuple[str, ...]:
    """Every doubt that holds.

    Args:
        observation: the network and its gradient.
        found: the span of the batch.
        terms: of the tensor in it.
        find: how moments give a span; `None` if it is that of the rows of the gradient.
        order: of the tensor.
        misfit: how much of the gradient the batch does not explain.
    """
    neurons, (dimension, batch) = len(observation.weights), found.basis.shape
    doubts = {f"{neurons} neurons are few for {batch} inputs": neurons < 2 * (batch + 1)}
    if find is None:
        doubts[f"the span has a gap of {found.gap:.2f} only"] = found.gap < LEAST_GAP
    elif dimension > batch and neurons < 2 * (dimension + 2):
        doubts[f"{neurons} neurons are too few to compare the spans that two halves of them see"] = True
    elif dimension > batch:
        one, other = (find(_every_other(observation, first)).basis for first in (0, 1))
        # The least cosine of a principal angle between what every other neuron sees, and the rest of them.
        seen, chance = float(torch.linalg.svdvals(one.mT @ other)[-1]), by_chance(dimension - batch + 1)
        words = f"halves of the neurons see spans that agree to {seen:.2f} only, chance gives {chance:.2f}"
        doubts[words] = seen < chance
    noise = noise_of(terms, order)
    doubts[f"the terms of the tensor hold about {noise:.0%} of noise"] = noise > _MOST_NOISE
    doubts[f"{misfit:.0%} of the gradient do not come from this batch"] = misfit > _MOST_MISFIT
    return tuple(doubt for doubt, holds in doubts.items() if holds)


def noise_of(terms: Decomposition, order: int) -> float:
    """What the residual of the tensor says about the terms: of white noise in all its entries, the part they absorb.

    Nothing for one or two terms of order 3, which fit nearly every tensor of their size.
    """
    size = terms.factors.shape[-1]
    share = size**2 / math.comb(size + order - 1, order)
    left = float(terms.residual)
    return left * math.sqrt(share / (1 - left**2)) if left < 1 else math.inf


def _every_other(observation: Observation, first: int) -> Observation:
    """What is seen of the neurons `first`, `first` + 2, …"""
    parts = {name: getattr(observation, name) for name in ("weights", "outputs", "hidden", "readout")}
    return dataclasses.replace(
        observation, **{name: None if part is None else part[first::2] for name, part in parts.items()}
    )
