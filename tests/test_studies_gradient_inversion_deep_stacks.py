"""Stacks that keep their input give it back, and double precision less of it with every sigmoid layer."""

import pytest
import torch

from reproduced.studies.gradient_inversion.deep_stacks import long_arithmetic_errors, stack_errors
from reproduced.studies.gradient_inversion.games import Game


def stack(name, *, depth, kind):
    return stack_errors(Game(12, 300, activation=name, inputs="sphere"), depth=depth, kind=kind, rounds=2, seed=0)


def test_relu_pairs_change_nothing():
    two, four = (stack("relu", depth=depth, kind="paired") for depth in (2, 4))
    assert float(torch.cat([two.recovered, four.recovered]).max()) < 1e-10
    torch.testing.assert_close(two.by_moments, four.by_moments)  # the features are the inputs, to rounding
    assert bool(two.searched.isnan().all())


def test_tanh_is_inverted_and_its_length_is_found():
    found = stack("tanh", depth=3, kind="plain")
    assert float(torch.cat([found.recovered, found.searched]).max()) < 1e-8
    assert bool(found.by_moments.isnan().all())


def test_sigmoid_pairs_need_no_search():
    found = stack("sigmoid", depth=3, kind="paired")
    assert float(found.recovered.max()) < 1e-8
    assert bool(found.searched.isnan().all())


def in_digits(depth, **options):
    return float(long_arithmetic_errors(dimension=10, depth=depth, rounds=2, seed=0, **options).max())


@pytest.mark.parametrize("depth", [2, 6])
def test_inputs_come_back_to_many_digits(depth):
    assert in_digits(depth) < 1e-30


def test_double_precision_holds_less_the_deeper_it_is():
    shallow, deep = (in_digits(depth, rounded=True) for depth in (2, 5))
    assert shallow < 1e-11
    assert 100 * shallow < deep < 1e-4
