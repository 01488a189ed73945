r"""Whether data lie in clusters of one class, with empty space between those of different classes.

Clusters2D does so by construction; the thesis assumes it of data of many dimensions (Peinemann 2021, Assumption 4.2).
Distances are Euclidean, as those of walls; between rows of bits they are roots of Hamming distances.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from leakage.data.tabular import LabelledData
from leakage.draws import uniform


class ClassNeighbours(NamedTuple):
    """The nearest other points of the points of a data set.

    Attributes:
        own_class: share of points whose nearest other point is of their own class, where several are nearest a random
            one of them: without clusters this is the chance that two points are of one class.
        ratio: median of the distance to the nearest point of another class over that to the nearest of the own.
    """

    own_class: Float[Tensor, "*b"]
    ratio: Float[Tensor, "*b"]


def class_neighbours(points: Float[Tensor, "n d"], labels: Int[Tensor, " n"]) -> ClassNeighbours:
    """The nearest other points of all points, by class; a point alone in its class has its own infinitely far away."""
    places = points.double()
    squares = places.square().sum(-1)
    distances = (squares.unsqueeze(-1) + squares - 2 * places @ places.mT).clamp_min(0)  # exact for bits
    distances.fill_diagonal_(torch.inf)
    same = labels.unsqueeze(-1) == labels
    own, other = (torch.where(mask, distances, torch.inf).amin(-1) for mask in (same, ~same))
    nearest = distances == torch.minimum(own, other).unsqueeze(-1)
    shares = (nearest & same).sum(-1) / nearest.sum(-1)
    return ClassNeighbours(shares.double().mean(), (other / own).sqrt().median())


def neighbours_in_quarters(
    data: LabelledData, *, generator: torch.Generator, shuffled: bool = False
) -> ClassNeighbours:
    """`class_neighbours` of four random quarters of the data, which share no point.

    If `shuffled`, every feature is first shuffled within each class of a quarter: what is left lies in the means.
    """
    found = []
    for rows in uniform((len(data),), generator=generator).argsort().chunk(4):
        points, labels = data.features[rows].double(), data.labels[rows]
        if shuffled:
            lots = uniform(points.shape, generator=generator) + labels.unsqueeze(-1)
            # Sorted by class, then by lot; each column puts the values of a class in another order.
            points = points.gather(0, lots.argsort(0))
            labels = labels.sort().values
        found.append(class_neighbours(points, labels))
    return ClassNeighbours(*(torch.stack(parts) for parts in zip(*found, strict=True)))
