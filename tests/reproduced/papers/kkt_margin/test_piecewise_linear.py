"""A network's function is rebuilt exactly from its kinks, simplified within a tolerance, and met with its margin."""

import math

import pytest
import torch

from leakage.draws import gaussian
from leakage.precision import DTYPE
from planted import piecewise
from reproduced.papers.kkt_margin.piecewise_linear import Margins, from_network, simplify
from reproduced.papers.kkt_margin.two_layer import TwoLayer
from reproduced.runtime import stream

LINE = torch.linspace(-9, 9, 1001, dtype=DTYPE)


def network(*neurons):
    """One network from (w, b, v) triples."""
    w, b, v = torch.tensor(neurons, dtype=DTYPE).T
    return TwoLayer(w[:, None], b, v)


def test_the_function_of_a_network_is_that_network():
    parameters = gaussian((30, 3), generator=stream(0, "piecewise"))
    model = network(*parameters.tolist())
    rebuilt = from_network(model)
    assert len(rebuilt.nodes) == 30
    # Sums of 30 terms whose kinks reach out to 1e2: rounding.
    torch.testing.assert_close(rebuilt(LINE), model(LINE[:, None]), rtol=1e-11, atol=1e-11)


def test_the_order_of_neurons_does_not_matter():
    parameters = gaussian((30, 3), generator=stream(0, "piecewise"))
    one, other = (from_network(network(*rows.tolist())) for rows in (parameters, parameters.flip(0)))
    torch.testing.assert_close(one.nodes, other.nodes)
    torch.testing.assert_close(one.values, other.values)


def test_equal_kinks_are_merged_cancelled_ones_dropped_and_constants_added():
    model = network((2, -2, 1), (-1, 1, 3), (1, -1, 0.5), (1, 4, 1), (-1, -4, -1), (0, 5, 1), (0, -5, 1))
    rebuilt = from_network(model)
    # The two neurons at -4 bend by +1 and -1: together a straight line.
    assert rebuilt.nodes.tolist() == pytest.approx([1.0])
    torch.testing.assert_close(rebuilt(LINE), model(LINE[:, None]))
    assert rebuilt.slopes.tolist() == pytest.approx([-2, 3.5])


def test_kinks_closer_than_the_tolerance_become_one_where_their_bends_balance():
    model = network((1, 0, 1), (3, -3e-6, 1))
    assert len(from_network(model).nodes) == 2
    merged = from_network(model, tolerance=1e-5)
    assert merged.nodes.tolist() == pytest.approx([0.75e-6])
    # Beyond the kinks nothing changes; between them at most a bend times their distance.
    torch.testing.assert_close(merged(LINE), model(LINE[:, None]), rtol=1e-12, atol=4e-6)


def test_a_function_without_a_kink_has_one_node_that_does_not_bend():
    constant = from_network(network((0, 1, 2), (1e-12, 1, 3)))
    assert len(constant.nodes) == 1
    assert constant.slopes.tolist() == pytest.approx([0, 0])
    torch.testing.assert_close(constant(LINE), torch.full_like(LINE, 5))


def test_simplification_finds_the_few_kinks_behind_many():
    generator = stream(1, "piecewise")
    smeared = [(1, -centre - 1e-3 * float(gaussian((), generator=generator)), bend / 40)
               for centre, bend in ((-1, 2), (0, -5), (2, 4)) for _ in range(40)]  # fmt: skip
    model = network(*smeared, *[(1, float(shift), 1e-6) for shift in gaussian((50,), generator=generator)])
    simple = simplify(from_network(model), low=-9, high=9, tolerance=0.02)
    assert simple.nodes.tolist() == pytest.approx([-1, 0, 2], abs=5e-3)  # the smear is about 1e-3 wide
    assert float((simple(LINE) - model(LINE[:, None])).abs().max()) <= 0.02


def test_simplification_of_a_line_keeps_no_kink():
    simple = simplify(piecewise([0, 1], [0, 1.001], 1, 1), low=-5, high=5, tolerance=0.1)
    assert len(simple.nodes) == 1
    assert simple.slopes.diff().tolist() == pytest.approx([0])


def test_crossings_are_found_once_on_each_closed_piece():
    zigzag = piecewise([0, 2, 4, 5], [0, 2, -2, 0], left=-1, right=0.5)
    found = zigzag.crossings(1.0, tolerance=1e-9)
    assert found.tolist() == pytest.approx([-1, 1, 2.5, math.nan, 7], nan_ok=True)
    ends = zigzag.crossings(2.0, tolerance=1e-9)
    assert ends[[0, 1, 2, 4]].tolist() == pytest.approx([-2, 2, 2, 9])  # the kink at 2 belongs to both of its pieces


def test_a_piece_that_nearly_reaches_the_level_counts_with_its_end():
    peak = piecewise([0, 1, 2], [0, 0.999, 0])
    assert peak.crossings(1.0, tolerance=1e-2)[1:3].tolist() == pytest.approx([1, 1])
    assert bool(peak.crossings(1.0, tolerance=1e-4).isnan().all())


def test_flat_pieces_are_on_the_margin_and_have_no_crossings():
    met = Margins.from_function(piecewise([0, 1, 2, 3], [1, 1, -1, -1]), 1.0, tolerance=1e-6)
    assert met.flat.tolist() == [True, True, False, True, True]
    assert met.crossings[2].tolist() == [1, 2]
    assert bool(met.crossings[met.flat].isnan().all())
    off = Margins.from_function(piecewise([0, 1], [0.5, 0.5]), 1.0, tolerance=1e-6)
    assert not bool(off.flat.any())  # constant, but not on the margin


def test_only_bounded_pieces_side_by_side_are_neighbours():
    # Pieces: end, free, free, flat, free, flat, end.
    met = Margins.from_function(piecewise([0, 1, 2, 3, 4, 5], [0, -3, 1, 1, -1, -1], 1, 1), 1.0, tolerance=1e-6)
    assert met.neighbours().tolist() == [False, True, True, False, False, False, False]
