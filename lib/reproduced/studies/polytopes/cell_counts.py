r"""How many activation polytopes a random network has in the plane, against its number of neurons.

N lines in general position make $1 + N + \binom N2$ cells, and the average over random networks of any depth is of the
order $N^2/2$ (Hanin and Rolnick 2019), far from the bound $2^N$.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from leakage.data.gaussians import gaussian
from leakage.geometry.patterns import joined, pattern
from leakage.geometry.subdivision import subdivide_networks
from leakage.metrics.estimates import mean_interval
from leakage.metrics.intervals import Estimate
from leakage.models.mlp import Mlp
from leakage.runtime import stream
from reproduced.studies.polytopes.windows import box

REACH = 100.0
"""Half the side of the window, in units of the biases: beyond it one-layer networks have 1 to 5 % of their cells."""


def he_networks(widths: Sequence[int], networks: int, *, generator: torch.Generator) -> Mlp:
    r"""Networks with weights $N(0, 2/n_{l-1})$, which keep the heights' size from layer to layer, and biases $N(0, 1)$.

    Multiplying all biases by a number stretches all cells by it, so the window is given in units of the biases.
    """
    layers = list(itertools.pairwise(widths))
    weights = [gaussian((networks, out, into), generator=generator) * (2 / into) ** 0.5 for into, out in layers]
    biases = [gaussian((networks, out), generator=generator) for _, out in layers]
    return Mlp(tuple(weights), tuple(biases))


class Count(NamedTuple):
    """Numbers of cells of random networks of one shape.

    Attributes:
        cells: of each network.
        neurons: N, in all hidden layers.
        ratio: the mean number of cells over $N^2/2$.
    """

    cells: Int[Tensor, " networks"]
    neurons: int
    ratio: float

    @property
    def shares(self) -> Estimate:
        """The ratio with its interval over networks."""
        return mean_interval(self.cells.double() / (self.neurons**2 / 2))


def count(
    hidden: Sequence[int],
    *,
    networks: int,
    seed: int,
    reach: float = REACH,
    device: torch.device | str = "cpu",
) -> Count:
    r"""The numbers of cells of random networks with these hidden layers in the square $[-r, r]^2$."""
    generator = stream(seed, f"cells/{'-'.join(map(str, hidden))}", device)
    models = he_networks((2, *hidden, 2), networks, generator=generator)
    window = box((-reach, -reach), (reach, reach), device=device)
    cells = torch.tensor([len(fine) for fine in subdivide_networks(models, window)], device=device)
    return Count(cells, sum(hidden), float(cells.double().mean() / (sum(hidden) ** 2 / 2)))


def unattained(network: Mlp) -> int:
    r"""How many of the $2^N$ activation patterns a network of one hidden layer misses at the points made for them.

    For the pattern s the point is $W_1^+ (2 s - 1 - b_1)$. With at most as many neurons as inputs and independent rows
    of $W_1$, every neuron then has height 1 or -1.
    """
    (weight, _), (bias, _) = network.weights, network.biases
    wanted = torch.cartesian_prod(*[torch.tensor([False, True], device=weight.device)] * len(weight))
    wanted = wanted.view(-1, len(weight))
    points = (2 * wanted.to(weight.dtype) - 1 - bias) @ torch.linalg.pinv(weight).T
    return int((joined(pattern(network, points)) != wanted).any(-1).sum())
