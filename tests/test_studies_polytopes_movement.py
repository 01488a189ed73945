"""Areas that change their activation, against closed forms and exact refinements."""

import pytest
import torch

from geometry_networks import network, one_layer
from leakage.geometry.subdivision import subdivide
from leakage.models.mlp import Mlp, stack
from reproduced.studies.polytopes import movement
from reproduced.studies.polytopes.windows import corners, lattice


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


def exact_moves(before: Mlp, after: Mlp) -> torch.Tensor:
    """`Moves.both` in the unit square, from the areas of the cells of both networks side by side."""
    weights = [torch.cat([before.weights[0], after.weights[0]])]
    weights += [torch.block_diag(*pair) for pair in zip(before.weights[1:], after.weights[1:], strict=True)]
    biases = tuple(torch.cat(pair) for pair in zip(before.biases, after.biases, strict=True))
    fine = subdivide(Mlp(tuple(weights), biases), corners())
    halves = [block.chunk(2, -1) for block in fine.pattern.split([2 * width for width in before.widths[1:-1]], -1)]
    return torch.stack([(fine.areas @ (one != two).double()).mean() for one, two in halves])


def test_a_line_that_moves_sweeps_a_strip():
    before, after = one_layer([[1.0, 0.0]], [-0.25]), one_layer([[1.0, 0.0]], [-0.75])
    found = movement.moves(before, after, lattice(10))
    assert [float(part) for part in found] == pytest.approx([0.5, 0.5, 0])
    assert abs(float(exact_moves(before, after)) - 0.5) < 1e-12


@pytest.mark.parametrize("seed", range(3))
def test_points_find_the_exact_areas_of_each_part(seed):
    before, after = step(0.3, seed)
    found = movement.moves(before, after, lattice(150))
    exact = exact_moves(before, after)
    # Each of the neurons' boundaries is off by at most a row of points, 1/150; their mean by far less.
    assert torch.allclose(found.both, exact, atol=3e-3)
    assert float(exact.min()) > 0.01
    for layer in range(3):
        own = exact_moves(before, hybrid(before, after, {layer}))[layer]
        upstream = exact_moves(before, hybrid(before, after, set(range(layer))))[layer]
        assert abs(float(found.own[layer] - own)) < 3e-3
        assert abs(float(found.upstream[layer] - upstream)) < 3e-3


def test_nothing_moves_without_an_update():
    model = step(0.0)[0]
    assert all(float(part.abs().max()) < 1e-12 for part in movement.moves(model, model, lattice(5)))


def test_the_first_layer_inherits_nothing():
    found = movement.moves(*step(0.3), lattice(20))
    assert float(found.upstream[0]) == pytest.approx(0)
    torch.testing.assert_close(found.own[0], found.both[0])


def test_means_over_epochs_and_stacks_are_those_of_single_steps():
    first, second = step(0.3)
    third = step(0.5)[1]
    points = lattice(20)
    found = movement.mean_moves({2: first, 3: second, 4: third}, points, first=2, last=4)
    steps = [movement.moves(first, second, points), movement.moves(second, third, points)]
    torch.testing.assert_close(found.both, (steps[0].both + steps[1].both) / 2)
    stacked = movement.moves(stack([first, second]), stack([second, third]), points)
    torch.testing.assert_close(stacked.own, torch.stack([steps[0].own, steps[1].own]))
