"""One place says what an argument must be, and what is wrong with the one given."""

import math

import numpy as np
import pytest
import torch

from leakage import arguments
from refusing import refusals, refused


def test_what_is_good_comes_back_as_it_was():
    points = torch.randn(2, 5, 3)
    assert arguments.tensor("points", points) is points
    assert arguments.real("points", points, "*b n d", d=3, like=points) is points
    labels = torch.tensor([1, -1, 1])
    assert arguments.signs("labels", labels, "n") is labels
    assert arguments.whole("classes", torch.tensor([0, 2]), most=2).tolist() == [0, 2]
    member = torch.tensor([True, False])
    assert arguments.truth("member", member, "n", n=2) is member
    assert arguments.count("n", np.int64(4)) == 4
    assert arguments.number("ridge", np.float32(0.5), above=0) == pytest.approx(0.5)
    assert arguments.choice("kind", "plain", ("plain", "paired")) == "plain"
    assert arguments.filled("member", member) is member
    assert arguments.real("gram", torch.zeros(0, 3), "n d", least=1).shape == (0, 3)


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
        assert arguments.tensor("x", values, axes, **lengths) is values
    else:
        refused(lambda: arguments.tensor("x", values, axes, **lengths), "`x` must have shape")


test_what_is_wrong_is_named = refusals(
    (lambda: arguments.real("x", torch.tensor([1])), "`x` must be floating-point, got torch.int64"),
    (lambda: arguments.real("x", torch.tensor([1.0, math.nan])), "`x` must be finite, got nan"),
    (lambda: arguments.real("x", torch.tensor([math.nan]), finite=False), "`x` must be not NaN, got nan"),
    (lambda: arguments.real("x", torch.tensor([0.0]), above=0), "`x` must be finite and above 0, got 0.0"),
    (lambda: arguments.real("x", torch.ones(2), like=torch.ones(2).double()), "must be torch.float64 on cpu"),
    (lambda: arguments.real("x", torch.tensor([0.5, math.inf])), "`x` must be finite, got inf"),
    (lambda: arguments.filled("x", torch.zeros(2, 0)), r"`x` must not be empty, got shape \(2, 0\)"),
    (lambda: arguments.whole("x", torch.tensor([1.0])), "`x` must be whole numbers"),
    (lambda: arguments.whole("x", torch.tensor([3]), most=2), "at least 0 and at most 2, got 3"),
    (lambda: arguments.truth("x", torch.tensor([1], dtype=torch.uint8)), r"truth values .* got torch.uint8"),
    (lambda: arguments.signs("x", torch.tensor([1, 0])), "`x` must be -1 or 1, got 0"),
    (lambda: arguments.count("n", 2.0), "`n` must be a whole number at least 0, got 2.0"),
    (lambda: arguments.count("n", True), "got True"),
    (lambda: arguments.count("n", torch.tensor(2.0)), "`n` must be a whole number at least 0, got tensor"),
    (lambda: arguments.count("n", 0, least=1), "at least 1, got 0"),
    (lambda: arguments.number("r", math.nan), "`r` must be a number finite, got nan"),
    (lambda: arguments.number("r", "1"), "got '1'"),
    (lambda: arguments.number("r", 1, below=1), "below 1, got 1"),
    (lambda: arguments.choice("kind", "other", ("plain", "paired")), "one of plain, paired; got 'other'"),
)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("bound", [0.1, 0.7])
def test_a_bound_is_rounded_as_the_values_are(bound, dtype):
    values = torch.tensor([bound], dtype=dtype)  # float32 has no 0.1, but something larger, and no 0.7, but less
    assert arguments.real("x", values, least=bound, most=bound) is values
