"""One place says what an argument must be, and what is wrong with the one given."""

import math

import numpy as np
import pytest
import torch

from checking import refusals, refused
from leakage import arguments


def test_what_is_good_comes_back_as_it_was():
    points = torch.randn(2, 5, 3)
    assert arguments.check_tensor("points", points) is points
    assert arguments.check_real("points", points, "*b n d", d=3, like=points) is points
    assert arguments.check_whole("classes", torch.tensor([0, 2]), most=2).tolist() == [0, 2]
    member = torch.tensor([True, False])
    assert arguments.check_truth("member", member, "n", n=2) is member
    assert arguments.check_count("n", np.int64(4)) == 4
    assert arguments.check_number("ridge", np.float32(0.5), above=0) == pytest.approx(0.5)
    assert arguments.check_choice("kind", "plain", ("plain", "paired")) == "plain"
    assert arguments.check_real("gram", torch.zeros(0, 3), "n d", least=1).shape == (0, 3)


@pytest.mark.parametrize(
    ("shape", "axes", "lengths", "fits"),
    [
        ((3, 4), "n d", {}, True),
        ((3, 4), "n n", {}, False),
        ((4, 4), "n n", {}, True),
        ((2, 2, 3, 4), "*b n d", {"n": 3}, True),
        ((3, 4), "*b n d", {"n": 4}, False),
        ((4,), "*b n d", {}, False),
        ((), "*b", {}, True),
        ((), "*b n", {}, False),
        ((5, 1), "n 1", {}, True),
        ((5, 2), "n 1", {}, False),
    ],
)
def test_a_shape_fits_as_jaxtyping_reads_it(shape, axes, lengths, fits):
    values = torch.zeros(shape)
    if fits:
        assert arguments.check_tensor("x", values, axes, **lengths) is values
    else:
        refused(lambda: arguments.check_tensor("x", values, axes, **lengths), "`x` must have shape")


def test_what_is_no_tensor_is_of_the_wrong_type():
    with pytest.raises(TypeError, match="`x` must be a tensor, got list"):
        arguments.check_tensor("x", [1.0])


test_what_is_wrong_is_named = refusals(
    (lambda: arguments.check_real("x", torch.tensor([1])), "`x` must be floating-point, got torch.int64"),
    (lambda: arguments.check_real("x", torch.tensor([-1.0]), least=0), "`x` must be finite and at least 0, got -1.0"),
    (lambda: arguments.check_real("x", torch.ones(2), like=torch.ones(2).double()), "must be torch.float64 on cpu"),
    (lambda: arguments.check_whole("x", torch.tensor([1.0])), "`x` must be whole numbers"),
    (lambda: arguments.check_whole("x", torch.tensor([3]), most=2), "at least 0 and at most 2, got 3"),
    (lambda: arguments.check_truth("x", torch.tensor([1], dtype=torch.uint8)), r"truth values .* got torch.uint8"),
    (lambda: arguments.check_truth("x", torch.ones(0, dtype=torch.bool)), "must not be empty"),
    (lambda: arguments.check_count("n", True), "got True"),
    (lambda: arguments.check_count("n", 2.0), "`n` must be a whole number at least 0, got 2.0"),
    (lambda: arguments.check_number("r", torch.tensor(1j)), "`r` must be a number"),
    (lambda: arguments.check_number("r", math.nan), "`r` must be a number finite, got nan"),
    (lambda: arguments.check_choice("kind", "other", ("plain", "paired")), "one of plain, paired; got 'other'"),
)
