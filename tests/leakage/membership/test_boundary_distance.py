"""DeepFool from above, the certified radius from below, and the truth between them."""

import math

import pytest
import torch

from leakage.data.gaussians import sphere
from leakage.draws import gaussian
from leakage.membership.boundary_distance import certified_radius, deepfool
from leakage.models import mlp
from leakage.models.mlp import Mlp
from reproduced.runtime import stream


def halfspaces(dimension: int) -> Mlp:
    """An affine classifier of four classes as a ReLU network whose neurons are active wherever we look."""
    rows = gaussian((4, dimension), generator=stream(0, "rows"))
    return Mlp(
        (rows, torch.eye(4, dtype=torch.float64)),
        (torch.full((4,), 1e3, dtype=torch.float64), torch.zeros(4, dtype=torch.float64)),
    )


@pytest.mark.parametrize("dimension", [3, 30])
def test_on_one_polytope_the_distance_is_that_to_the_nearest_hyperplane(dimension):
    network = halfspaces(dimension)
    points = gaussian((50, dimension), generator=stream(0, "points"))
    outputs, rows = network(points), network.weights[0]
    own = outputs.argmax(-1)
    gaps = outputs.gather(1, own[:, None]) - outputs
    exact = (gaps / (rows[own][:, None] - rows).norm(dim=-1)).nan_to_num(nan=math.inf).amin(1)
    assert torch.allclose(deepfool(network, points), exact, rtol=1e-10)
    assert torch.allclose(certified_radius(network, points), exact, rtol=1e-10)


def test_the_true_distance_lies_between_both_bounds():
    network = mlp.initial((), (2, 12, 12, 3), generator=stream(3, "network"))
    points = 2 * gaussian((15, 2), generator=stream(3, "points"))
    reach, radius = deepfool(network, points), certified_radius(network, points)
    # The ring just within the certified radius has one label only; a disk of the upper bound has another one.
    around = sphere(2000, 2, generator=stream(3, "directions"))
    own = network(points).argmax(-1)
    ring = points[:, None] + 0.999 * radius[:, None, None] * around
    assert bool((network(ring.flatten(0, 1)).argmax(-1).view(15, -1) == own[:, None]).all())
    assert bool((radius <= reach * (1 + 1e-9)).all())
    assert bool(reach.isfinite().any())


def test_what_is_not_reached_is_infinite():
    weight = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    constant = Mlp((weight, torch.zeros(2, 1).double()), (torch.zeros(1).double(), torch.tensor([1.0, 0.0]).double()))
    assert deepfool(constant, torch.ones(3, 2, dtype=torch.float64)).isinf().all()
