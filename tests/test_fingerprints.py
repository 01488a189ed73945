"""Equal values have equal fingerprints, and others have others."""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from leakage import runtime
from leakage.data.points import Labelled
from leakage.fingerprints import fingerprint


@dataclass(frozen=True)
class Sizes:
    n: int
    widths: tuple[int, ...] = (1, 2)


@dataclass(frozen=True)
class Others:
    n: int
    widths: tuple[int, ...] = (1, 2)


VALUES = [
    None, False, 0, 0.0, -0.0, 1, 1.0, True, "1", b"1", math.inf, 1j, (), [], {}, set(), (1, 2), [1, 2],
    ((1,), 2), (1, (2,)), {"a": 1}, {"b": 1}, {1, 2}, range(3), Path("a"), "a", Sizes(1), Sizes(2), Others(1),
    ["ab", "c"], ["a", "bc"],
    np.arange(3), np.arange(3.0), np.arange(4).reshape(2, 2), np.arange(4), np.float32(1), np.float64(1),
    torch.arange(3), torch.arange(3.0), torch.zeros(2, 0), torch.zeros(0, 2), torch.tensor(1.0, dtype=torch.bfloat16),
    torch.tensor(1.0), torch.device("cpu"), torch.float32, torch.float64,
]  # fmt: skip


def test_different_values_have_different_fingerprints():
    assert len({fingerprint(value) for value in VALUES}) == len(VALUES)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({3, 1, 2}, {1, 2, 3}),
        (torch.arange(6).reshape(2, 3).T, torch.arange(6).reshape(2, 3).T.contiguous()),
        (torch.ones(2, requires_grad=True), torch.ones(2)),
        (np.asfortranarray(np.arange(6).reshape(2, 3)), np.arange(6).reshape(2, 3)),
        (Sizes(3), Sizes(n=3, widths=(1, 2))),
        (runtime.begin("ci", 1, "cpu"), runtime.begin("ci", 1, "cpu")),
        (runtime.settings("ci", smoke={"n": 1}, ci={"n": 2}, paper={"n": 3}),) * 2,
    ],
)
def test_equal_values_have_equal_fingerprints(one, other):
    assert fingerprint(one) == fingerprint(other)


@pytest.mark.parametrize("value", [object(), torch.Generator(), len, iter([]), [print], np.array([object()])])
def test_a_value_without_readable_content_is_refused(value):
    with pytest.raises(TypeError, match="has no content key"):
        fingerprint(value)


def test_data_are_read_for_their_key_once(monkeypatch):
    one, same, other = (Labelled(torch.full((2, 3), value), torch.arange(2)) for value in (0.5, 0.5, 0.25))
    assert fingerprint(one) == fingerprint(same) != fingerprint(other)
    monkeypatch.setattr("leakage.fingerprints._array_pieces", None)
    assert fingerprint((one, 1)) == fingerprint((same, 1))
