"""The sum over paths is the gradient; the printed formula is in one reading of its indices."""

import torch

from leakage.data.gaussians import gaussian
from leakage.runtime import stream
from reproduced.studies.polytopes.path_formula import early_gradient


def draws(count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = stream(0, "draws")
    sizes = (count, 3, 2, 2), (count, 2), (count, 2)
    weights, inputs, targets = (gaussian(size, generator=generator) for size in sizes)
    return weights, inputs, targets


def test_paths_and_the_charitable_reading_are_the_gradient():
    found = early_gradient(*draws(200))
    nonzero = found.automatic != 0
    assert 20 < nonzero.sum() < 200  # some ReLU on the way is shut in most of these networks
    assert (found.paths - found.automatic).abs().max() < 1e-12
    assert (found.charitable - found.automatic).abs().max() < 1e-12


def test_one_order_of_indices_throughout_is_not_the_gradient():
    found = early_gradient(*draws(200))
    nonzero = found.automatic != 0
    off = (found.one_order - found.automatic).abs() > 1e-10
    assert off[nonzero].double().mean() > 0.5


def test_a_network_of_ones_by_hand():
    # Heights 2, 4, 8 with all weights 1 and x = (1, 1): the error is 2 * 8 on both outputs, each reached by two paths.
    found = early_gradient(torch.ones(3, 2, 2), torch.ones(2), torch.zeros(2))
    assert [float(value) for value in found] == [64.0] * 4
