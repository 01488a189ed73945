r"""Hyperedges around records of many planes, laid on top of each other: one picture in which crowding can be seen.

Each record is moved to the origin, with the hyperedges that its plane has in a square around it. So many planes become
one drawing, whose ink per area is the length of hyperedge per area. Coordinates are those of the planes. Nothing here
draws or judges.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from leakage import arguments
from leakage.geometry.subdivision import subdivide
from leakage.models.mlp import Mlp
from leakage.studies.polytopes.data_planes import through
from leakage.studies.polytopes.pictures import path
from leakage.studies.polytopes.windows import box


def laid_over(
    network: Mlp, points: Float[Tensor, "t d"], triples: Int[Tensor, "planes 3"], *, half: float
) -> Float[Tensor, "2 k"]:
    """The hyperedges near the three points of each plane, with each point at the origin, as one line with gaps.

    Args:
        network: a single one, in float64.
        points: records.
        triples: for each plane the rows of its three records.
        half: half the side of the square around each.

    Raises:
        ValueError: as `data_planes.through` and `subdivision.subdivide`, or if `half` is not positive.
    """
    arguments.number("half", half, above=0)
    pieces = []
    for three in triples:
        view = through(points[three], frame=half)
        for place in view.points:
            left, bottom, right, top = (float(end) for end in (*(place - half), *(place + half)))
            square = box((left, bottom), (right, top), device=points.device)
            pieces.append(subdivide(network, square, plane=view.plane).hyperedges()[0] - place)
    return path(torch.cat(pieces)).cpu()
