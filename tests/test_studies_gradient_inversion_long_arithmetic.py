"""Sigmoid layers keep what long arithmetic can read, and double precision less of it with every layer."""

from decimal import Decimal, localcontext

import numpy as np
import pytest

from reproduced.studies.gradient_inversion import long_arithmetic
from reproduced.studies.gradient_inversion.long_arithmetic import errors


@pytest.mark.parametrize("depth", [2, 6])
def test_inputs_come_back_to_many_digits(depth):
    assert float(errors(dimension=10, depth=depth, rounds=2, seed=0).max()) < 1e-30


def test_double_precision_holds_less_the_deeper_it_is():
    shallow, deep = (errors(dimension=10, depth=depth, rounds=2, seed=0, rounded=True) for depth in (2, 5))
    assert float(shallow.max()) < 1e-11
    assert 100 * shallow.max() < deep.max() < 1e-4


def test_the_derivatives_are_those_of_the_equations():
    numbers = np.random.default_rng(0)
    with localcontext(prec=long_arithmetic.DIGITS):
        inner = long_arithmetic._long(numbers.normal(size=(5, 2)))
        state = long_arithmetic._long([61.0, 2.0, 0.1, 0.2, 0.3, 0.05])
        nothing = np.full((5, 2), Decimal(0))
        left, jacobian = long_arithmetic._equations(inner, nothing, state)
        for place in range(6):
            moved = state.copy()
            moved[place] += Decimal("1e-20")
            slope = (left - long_arithmetic._equations(inner, nothing, moved)[0]).ravel() / Decimal("1e-20")
            assert max(abs(slope - jacobian[:, place])) < Decimal("1e-15")
