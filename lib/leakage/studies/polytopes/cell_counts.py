r"""How many activation polytopes a random network has in the plane, against its number of neurons.

N lines in general position make $1 + N + \binom N2$ cells, and the average over random networks of any depth is of the
order $N^2/2$ (Hanin and Rolnick 2019), far from the bound $2^N$. Nothing here trains.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from leakage import arguments
from leakage.data.gaussians import gaussian
from leakage.geometry.patterns import joined, pattern
from leakage.metrics.estimates import mean_interval
from leakage.metrics.intervals import Estimate
from leakage.models.mlp import Mlp
from leakage.runtime import stream
from leakage.studies.polytopes.theorem_checks import cell_counts
from leakage.studies.polytopes.windows import box

REACH = 100.0
"""Half the side of the window, in units of the biases: beyond it one-layer networks have 1 to 5 % of their cells."""


def he_networks(widths: Sequence[int], networks: int, *, generator: torch.Generator) -> Mlp:
    r"""Networks with weights $N(0, 2/n_{l-1})$, which keep the heights' size from layer to layer, and biases $N(0, 1)$.

    Multiplying all biases by a number stretches all cells by it, so the window is given in units of the biases.

    Raises:
        ValueError: if there are fewer than two widths, one is not positive, or there is no network.
    """
    arguments.count("networks", networks, least=1)
    for width in widths:
        arguments.count("widths", width, least=1)
    if len(widths) < 2:
        raise ValueError(f"`widths` must be at least two, got {widths}.")
    layers = list(itertools.pairwise(widths))
    weights = [gaussian((networks, out, into), generator=generator) * (2 / into) ** 0.5 for into, out in layers]
    biases = [gaussian((networks, out), generator=generator) for _, out in layers]
    return Mlp(tuple(weights), tuple(biases))


class Count(NamedTuple):
    """Cells of random networks of one shape.

    Attributes:
        cells: of each network.
        neurons: N, in all hidden layers.
        ratio: the mean of the former over $N^2/2$.
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
    r"""Count the cells of random networks with these hidden layers in the square $[-r, r]^2$.

    Raises:
        ValueError: as `he_networks`, or if the reach is not positive.
    """
    arguments.number("reach", reach, above=0)
    generator = stream(seed, f"cells/{'-'.join(map(str, hidden))}", device)
    models = he_networks((2, *hidden, 2), networks, generator=generator)
    cells = cell_counts(models, box((-reach, -reach), (reach, reach), device=device))
    return Count(cells, sum(hidden), float(cells.double().mean() / (sum(hidden) ** 2 / 2)))


def unattained(network: Mlp) -> int:
    r"""How many of the $2^N$ activation patterns a network of one hidden layer does not have at the point made for it.

    With at most as many neurons as inputs and independent rows of $W_1$ the point is $W_1^+ (2 s - 1 - b_1)$ for the
    pattern s: every neuron then has height 1 or -1.

    Raises:
        ValueError: if the network has another number of hidden layers, or more than 16 neurons.
    """
    if len(network.widths) != 3 or network.widths[1] > _LISTED:
        raise ValueError(f"`network` must have one layer of at most {_LISTED} neurons, got widths {network.widths}.")
    (weight, _), (bias, _) = network.weights, network.biases
    wanted = torch.cartesian_prod(*[torch.tensor([False, True], device=weight.device)] * len(weight))
    wanted = wanted.view(-1, len(weight))
    points = (2 * wanted.to(weight.dtype) - 1 - bias) @ torch.linalg.pinv(weight).T
    return int((joined(pattern(network, points)) != wanted).any(-1).sum())


_LISTED = 16  # neurons whose patterns can be listed
