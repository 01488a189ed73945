"""Pictures and statistics of a window, where the answer is known."""

import math

import pytest
import torch

from last_bits import LastBits
from leakage.models.mlp import Mlp, stack
from planted import SQUARE, network, one_layer
from reproduced.papers.polytopes import windows
from reproduced.papers.polytopes.decision_boundary import decision_boundary
from reproduced.papers.polytopes.polygons import triangle_fans
from reproduced.papers.polytopes.subdivision import subdivide
from reproduced.papers.polytopes.windows import Picture, lattice, unit_square

# ── pictures ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def model():
    drawn = network((2, 12, 12, 2), 2)
    # Both classes are equal at the middle, so that the boundary is in the window.
    middle = drawn(torch.zeros(1, 2).double()).squeeze(0)
    return Mlp(drawn.weights, (*drawn.biases[:-1], drawn.biases[-1] - middle))


def test_outputs_are_those_at_the_middles_of_pixels(model):
    found = Picture(subdivide(model, windows.box_corners((0, 0), (2, 1))), side=2)
    assert found.extent == (0, 2, 0, 1)
    expected = model(torch.tensor([[0.5, 0.25], [1.5, 0.25], [0.5, 0.75], [1.5, 0.75]]).double()).norm(dim=-1)
    assert torch.allclose(found.outputs.flatten(), expected)


def test_regions_tile_the_window_and_have_the_predicted_class(model):
    vertices, counts, classes = Picture(subdivide(model, SQUARE)).regions
    assert float(triangle_fans(vertices)[1].sum()) == pytest.approx(4)
    used = (torch.arange(vertices.shape[1]) < counts.unsqueeze(-1)).unsqueeze(-1)
    middles = (vertices * used).sum(1) / counts.unsqueeze(-1)
    torch.testing.assert_close(model(middles).argmax(-1), classes)
    assert classes.unique().tolist() == [0, 1]


# ── density of cells and direction of hyperedges ─────────────────────────────────────────────────────────────────────


def test_every_cell_and_all_area_is_in_one_bin():
    cells, data = subdivide(network((2, 30, 30, 2), 0), unit_square()), lattice(2)
    found = windows.densities(cells, data, edges=(0, 0.1, 0.2), points=lattice(100))
    assert int(found.counts.sum()) == len(cells)
    assert abs(float(found.areas.sum()) - 1) < 1e-12
    # Four discs of radius 0.1, measured by points 1/100 apart.
    assert abs(float(found.areas[0]) - 4 * math.pi * 0.01) < 0.005
    assert int(found.counts[0]) == int((windows.nearest_distance(cells.centres, data) < 0.1).sum())
    assert float(found.per_area(0, 3)) == pytest.approx(len(cells))


def test_activity_is_the_change_of_the_gradient_along_hyperedges():
    model = one_layer([[3.0, 0.0], [0.0, 4.0]], [-1.5, -1.0])  # walls at x = 1/2 and y = 1/4
    cells = subdivide(model, unit_square())
    # Each wall is two pieces; a neuron changes the gradient by its own weights, 3 or 4, times those of the outputs.
    lengths = (cells.hyperedges()[0].diff(dim=1).squeeze(1)).norm(dim=-1)
    slope = model.weights[1].norm(dim=0) * model.weights[0].norm(dim=-1)
    torch.testing.assert_close(cells.gradient_jumps, slope[cells.hyperedges()[1]])
    data = torch.tensor([[0.5, 0.6]]).double()
    found = windows.activity(cells, data, near=0.1, far=0.2, points=lattice(200))
    # Middles of the pieces: (.5, .125), (.5, .625), (.25, .25), (.75, .25); only the second is near.
    torch.testing.assert_close(found.length, torch.tensor([0.75, 1.25]).double())
    torch.testing.assert_close(found.change[0], 0.75 * slope[0])
    torch.testing.assert_close(found.change.sum(), lengths @ slope[cells.hyperedges()[1]])
    assert abs(float(found.area[0]) - math.pi * 0.1**2) < 0.002


def test_a_line_through_a_disc_is_clipped_to_its_chord():
    cells = subdivide(one_layer([[1.0, 0.0]], [-0.5]), unit_square())
    centres = torch.tensor([[0.5, 0.5], [0.56, 0.5], [0.9, 0.5], [0.5, 0.0]]).double()
    found = windows.hyperedges_in_discs(cells, centres, radius=0.1)
    assert torch.allclose(found.lengths, torch.tensor([0.2, 0.16, 0.0, 0.1]).double() / (math.pi * 0.01))
    up, right = torch.tensor([[0.0, 1.0]]).double(), torch.tensor([[-2.0, 0.0]]).double()
    assert float(found.alignment(up)[0]) == pytest.approx(1)
    assert float(found.alignment(right)[0]) == pytest.approx(-1)
    assert found.alignment(up)[2].isnan()
    # One neuron is no pair.
    assert found.parallelism.isnan().all()


@pytest.mark.parametrize(("angle", "expected"), [(0.0, 1.0), (math.pi / 4, 0.0), (math.pi / 2, -1.0)])
def test_parallelism_of_two_lines_is_the_cosine_of_twice_their_angle(angle, expected):
    normal = [math.cos(angle), math.sin(angle)]
    two_lines = one_layer([[1.0, 0.0], normal], [-0.5 if angle else -0.50001, -0.5 * sum(normal)])
    middle = torch.tensor([[0.5, 0.5]]).double()
    found = windows.hyperedges_in_discs(subdivide(two_lines, unit_square()), middle, radius=0.1)
    assert float(found.parallelism) == pytest.approx(expected, abs=1e-12)


def test_independent_directions_have_no_parallelism():
    cells = subdivide(network((2, 60, 2), 4), 2 * unit_square() - 1)
    # Normals of this initialisation fill a square, and the mean of e^(2iθ) over a square is 0.
    found = windows.hyperedges_in_discs(cells, 1.6 * lattice(20) - 0.8, radius=0.1)
    assert abs(float(found.parallelism.nanmean())) < 0.15  # 60 neurons' directions: 1/60 and the discs' sharing


# ── norms on the decision boundary ───────────────────────────────────────────────────────────────────────────────────


def ramp() -> Mlp:
    """Flat outputs but for a steep ramp between x = 0.4 and 0.6, with the decision boundary at its middle."""
    kind = torch.float64
    return Mlp(
        (torch.tensor([[1, 0], [1, 0]], dtype=kind), torch.tensor([[-10, 10], [10, -10]], dtype=kind)),
        (torch.tensor([-0.4, -0.6], dtype=kind), torch.tensor([1, -1], dtype=kind)),
    )


def test_weighted_values_are_compared_exactly():
    one, two = torch.tensor([1.0, 3.0]).double(), torch.tensor([2.0, 3.0, 0.0]).double()
    # Pairs won: 1 > 0, 3 > 2, 3 > 0; tied: 3 = 3.
    assert float(windows.probability_larger(one, two)) == pytest.approx(3.5 / 6)
    weights = torch.tensor([3.0, 1.0]).double(), torch.tensor([1.0, 2.0, 5.0]).double()
    found = windows.probability_larger(one, two, first_weights=weights[0], second_weights=weights[1])
    assert float(found) == pytest.approx((3 * 5 + 1 * (1 + 5 + 1)) / 32)


def test_values_that_differ_by_rounding_are_equal():
    one, two = torch.tensor([0.1 + 0.2, 1e-17]).double(), torch.tensor([0.3, 0.0]).double()
    both = float(windows.probability_larger(one, two)), float(windows.probability_larger(two, one))
    assert both == pytest.approx((0.5, 0.5))
    endless = torch.tensor([torch.inf, 0.0]).double()
    assert float(windows.probability_larger(endless, two)) == pytest.approx((1 + 1 + 0 + 0.5) / 4)
    assert float(windows.probability_larger(endless, endless)) == pytest.approx(0.5)


def test_a_ramp_is_a_ridge_of_weights_and_a_valley_of_outputs():
    view = windows.sample_window(subdivide(ramp(), unit_square()), side=50)
    found = windows.ridge(view, torch.tensor([[0.5, 0.5]]).double(), within=0.3)
    # The ramp has a fifth of the window: there the norm ties, elsewhere it is 0.
    assert float(found.window.weights) == pytest.approx(0.8 + 0.1)
    # On the boundary both outputs are 0; no point of the window has the like.
    assert float(found.window.output) == pytest.approx(0)
    close = lattice(50)[(lattice(50) - 0.5).norm(dim=-1) < 0.3]
    inside = ((close[:, 0] > 0.4) & (close[:, 0] < 0.6)).double().mean()
    assert float(found.near.weights) == pytest.approx(float(1 - inside / 2))


@pytest.mark.parametrize("machine", range(4))
def test_a_curve_across_the_ramp_sees_the_window_as_it_is(machine):
    # A horizontal line meets each value with the share that it has of the window.
    flat = Mlp(
        (torch.tensor([[0, 1.0]]).double(), torch.tensor([[1.0], [-1.0]]).double()),
        (torch.tensor([0.0]).double(), torch.tensor([-0.5, 0.5]).double()),
    )
    with LastBits(machine):  # what ties is rounded otherwise in every cell, and at every point
        view = windows.sample_window(subdivide(ramp(), unit_square()), side=50)
        found = windows.other_ridges(view, [decision_boundary(subdivide(flat, unit_square()))])
    assert torch.allclose(torch.stack(found), torch.tensor(0.5).double(), atol=0.01)


def test_gradients_along_one_line_have_order_one():
    assert float(windows.gradient_order(subdivide(ramp(), unit_square()))) == pytest.approx(1)


def test_the_order_of_two_ramps_across_each_other():
    # o_1 - o_0 = [x - 1/2]_+ + [y - 1/2]_+: half of the window has each gradient, and a quarter both at once.
    model = one_layer([[1.0, 0.0], [0.0, 1.0]], [-0.5, -0.5], [[0.0, 0.0], [1.0, 1.0]])
    # The matrix is [[1/2, 1/4], [1/4, 1/2]].
    assert float(windows.gradient_order(subdivide(model, unit_square()))) == pytest.approx(0.5)
    assert float(windows.gradient_order(subdivide(model, 0.5 + unit_square() / 2))) == pytest.approx(1)


# ── movement of hyperedges ───────────────────────────────────────────────────────────────────────────────────────────


def hybrid(before: Mlp, after: Mlp, layers: set[int]) -> Mlp:
    """The old network with these layers of the new one."""
    pick = [after if layer in layers else before for layer in range(len(before.weights))]
    return Mlp(
        tuple(chosen.weights[layer] for layer, chosen in enumerate(pick)),
        tuple(chosen.biases[layer] for layer, chosen in enumerate(pick)),
    )


def step(size: float, seed: int = 0) -> tuple[Mlp, Mlp]:
    """A network, and the same a step further on."""
    first, push = network((2, 8, 7, 6, 2), seed), network((2, 8, 7, 6, 2), seed + 100)
    return first, Mlp(
        tuple(w + size * p for w, p in zip(first.weights, push.weights, strict=True)),
        tuple(b + size * p for b, p in zip(first.biases, push.biases, strict=True)),
    )


def exact_areas(before: Mlp, after: Mlp) -> torch.Tensor:
    """`FlippedAreas.both` in the unit square, from the areas of the cells of both networks side by side."""
    weights = [torch.cat([before.weights[0], after.weights[0]])]
    weights += [torch.block_diag(*pair) for pair in zip(before.weights[1:], after.weights[1:], strict=True)]
    biases = tuple(torch.cat(pair) for pair in zip(before.biases, after.biases, strict=True))
    cells = subdivide(Mlp(tuple(weights), biases), unit_square())
    halves = [block.chunk(2, -1) for block in cells.pattern.split([2 * width for width in before.widths[1:-1]], -1)]
    return torch.stack([(cells.areas @ (one != two).double()).mean() for one, two in halves])


def test_a_line_that_moves_sweeps_a_strip():
    before, after = one_layer([[1.0, 0.0]], [-0.25]), one_layer([[1.0, 0.0]], [-0.75])
    found = windows.flipped_areas(before, after, lattice(10))
    assert [float(part) for part in found] == pytest.approx([0.5, 0.5, 0])


@pytest.mark.parametrize("seed", range(3))
def test_points_find_the_exact_areas_of_each_part(seed):
    before, after = step(0.3, seed)
    found = windows.flipped_areas(before, after, lattice(150))
    exact = exact_areas(before, after)
    # Each of the neurons' boundaries is off by at most a row of points, 1/150; their mean by far less.
    assert torch.allclose(found.both, exact, atol=3e-3)
    assert float(exact.min()) > 0.01
    for layer in range(3):
        own = exact_areas(before, hybrid(before, after, {layer}))[layer]
        upstream = exact_areas(before, hybrid(before, after, set(range(layer))))[layer]
        assert abs(float(found.own[layer] - own)) < 3e-3
        assert abs(float(found.upstream[layer] - upstream)) < 3e-3


def test_stacks_are_those_of_single_steps():
    first, second = step(0.3)
    third, points = step(0.5)[1], lattice(20)
    steps = [windows.flipped_areas(first, second, points), windows.flipped_areas(second, third, points)]
    stacked = windows.flipped_areas(stack([first, second]), stack([second, third]), points)
    torch.testing.assert_close(stacked.own, torch.stack([steps[0].own, steps[1].own]))
