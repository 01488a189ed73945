"""Random networks have about half as many cells as the square of their neurons, however deep."""

import pytest
import torch

from leakage.models import mlp
from leakage.runtime import stream
from reproduced.studies.polytopes import cell_counts


def test_one_layer_has_zaslavsky_s_count_in_a_large_window():
    found = cell_counts.count((10,), networks=3, seed=0, reach=1e6)
    assert found.cells.tolist() == [1 + 10 + 45] * 3
    assert found.neurons == 10
    assert (found.ratio, found.shares.estimate) == pytest.approx((56 / 50, 56 / 50))


def test_depth_does_not_raise_the_average():
    found = cell_counts.count((15, 15), networks=3, seed=0)
    assert 0.5 < found.ratio < 1.5  # 1.04 over 5 networks, with a spread of 0.1 from one to the next


def test_a_small_window_holds_fewer_cells():
    small, large = (cell_counts.count((20,), networks=2, seed=0, reach=reach).cells for reach in (0.1, 10.0))
    assert bool((small < large).all())


def test_weights_keep_their_size():
    model = cell_counts.he_networks((2, 200, 200, 2), 1, generator=stream(0, "n"))
    assert float(model.weights[1].square().mean()) == pytest.approx(2 / 200, rel=0.03)  # 40 000 squares: 0.7 %
    assert float(model.biases[1].square().mean()) == pytest.approx(1, rel=0.4)  # 200 squares: 10 %


def test_as_many_neurons_as_inputs_have_all_patterns_and_one_more_has_not():
    wide, full, thin = (mlp.initial((), (4, width, 2), generator=stream(0, f"{width}")) for width in (3, 4, 5))
    assert [cell_counts.unattained(model.to(torch.float64)) for model in (wide, full)] == [0, 0]
    assert cell_counts.unattained(thin.to(torch.float64)) >= 1  # five hyperplanes in four dimensions make 31 cells
