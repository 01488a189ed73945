"""Stacks that keep their input give it back, and double precision less of it with every sigmoid layer."""

from decimal import Decimal, localcontext

import numpy as np
import pytest
import torch

from reproduced.studies.gradient_inversion import deep_stacks
from reproduced.studies.gradient_inversion.deep_stacks import long_errors, stack_errors
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


@pytest.mark.parametrize("depth", [2, 6])
def test_inputs_come_back_to_many_digits(depth):
    assert float(long_errors(dimension=10, depth=depth, rounds=2, seed=0).max()) < 1e-30


def test_double_precision_holds_less_the_deeper_it_is():
    shallow, deep = (long_errors(dimension=10, depth=depth, rounds=2, seed=0, rounded=True) for depth in (2, 5))
    assert float(shallow.max()) < 1e-11
    assert 100 * shallow.max() < deep.max() < 1e-4


def test_the_derivatives_are_those_of_the_equations():
    numbers = np.random.default_rng(0)
    with localcontext(prec=deep_stacks.DIGITS):
        inner = deep_stacks._long(numbers.normal(size=(5, 2)))
        state = deep_stacks._long([61.0, 2.0, 0.1, 0.2, 0.3, 0.05])
        nothing = np.full((5, 2), Decimal(0))
        left, jacobian = deep_stacks._equations(inner, nothing, state)
        for place in range(6):
            moved = state.copy()
            moved[place] += Decimal("1e-20")
            slope = (left - deep_stacks._equations(inner, nothing, moved)[0]).ravel() / Decimal("1e-20")
            assert max(abs(slope - jacobian[:, place])) < Decimal("1e-15")
