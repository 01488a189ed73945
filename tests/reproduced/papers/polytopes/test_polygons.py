"""Cutting convex polygons keeps them convex, keeps their area, and says who drew each edge."""

import pytest
import torch

from planted import SQUARE
from reproduced.papers.polytopes import polygons
from reproduced.papers.polytopes.polygons import Polygons


def line(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float64).unsqueeze(-1)


def corners(table: Polygons, index: int) -> list[tuple[float, float]]:
    return [tuple(corner) for corner in table.vertices[index, : int(table.corners[index])].round(decimals=12).tolist()]


def test_a_square_is_cut_in_two_with_the_cut_owned_by_the_line():
    table = Polygons(SQUARE[None])
    table.cut(line(1, 0, 0), owner=7)
    assert table.count == 2
    assert sorted(corners(table, 0)) == [(0, -1), (0, 1), (1, -1), (1, 1)]
    assert sorted(corners(table, 1)) == [(-1, -1), (-1, 1), (0, -1), (0, 1)]
    for index in range(2):
        places, owners = corners(table, index), table.owners[index].tolist()
        ends = places[owners.index(7)], places[(owners.index(7) + 1) % 4]
        assert {x for x, _ in ends} == {0.0}
    assert sorted(table.owners[0, :4].tolist()) == [-3, -2, -1, 7]


def test_a_cut_through_corners_makes_triangles():
    table = Polygons(SQUARE[None])
    table.cut(line(1, -1, 0), owner=0)
    assert table.corners[:2].tolist() == [3, 3]
    assert 0 in table.owners[0, :3].tolist()
    assert 0 in table.owners[1, :3].tolist()


@pytest.mark.parametrize("numbers", [(1, 0, -1), (1, 1, -2), (1, 0, -5), (0, 0, 1), (0, 0, 0)])
def test_a_line_that_touches_misses_or_has_no_slope_cuts_nothing(numbers):
    table = Polygons(SQUARE[None])
    table.cut(line(*numbers), owner=0)
    assert table.count == 1


def test_many_random_cuts_keep_the_area_and_convexity():
    generator = torch.Generator().manual_seed(0)
    table = Polygons(SQUARE[None])
    for owner in range(40):
        table.cut(torch.randn(3, 1, generator=generator, dtype=torch.float64), owner=owner)
    vertices, counts = table.vertices[: table.count], table.corners[: table.count]
    areas = polygons.triangle_fans(vertices)[1].sum(-1)
    assert table.count > 100
    assert areas.min() > 0
    assert abs(float(areas.sum()) - 4) < 1e-12
    edges = polygons.at_next_corner(vertices, counts) - vertices
    ahead = polygons.at_next_corner(edges, counts)
    assert (edges[..., 0] * ahead[..., 1] - edges[..., 1] * ahead[..., 0]).min() > -1e-12  # no reflex corner
    assert polygons.is_inside(polygons.centres(vertices, counts), SQUARE).all()


def test_a_window_is_turned_counter_clockwise():
    torch.testing.assert_close(polygons.counterclockwise(SQUARE), SQUARE)
    assert float(
        polygons.triangle_fans(polygons.counterclockwise(SQUARE.flip(0)).unsqueeze(0))[1].sum()
    ) == pytest.approx(4)
