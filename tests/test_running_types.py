"""What the annotations say is compared with what happens, in this process and in those that tests start."""

import pickle
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import pytest
import running_types
import torch
from jaxtyping import Float
from running_types import FalseType, held
from torch import Tensor

from leakage import content_keys
from leakage.metrics import intervals
from patience import HANGS


@held
def outer(left: Float[Tensor, " n"], right: Float[Tensor, " m"]) -> Float[Tensor, "n n"]:
    """The annotation forgets `m`."""
    if not left.is_floating_point():
        raise ValueError(f"`left` must be floating, got {left.dtype}.")
    return left[:, None] * right


@held
def same(left: Float[Tensor, " n"], right: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    """An axis has one size in both."""
    return torch.cat((left, right))[: len(left)]


@held
def doubled(value: int) -> int:
    """It takes whatever can be doubled."""
    return 2 * value


@held
def halves(value: float) -> Iterator[float]:
    """A generator."""
    yield value / 2


@held
def total(items: tuple[Float[Tensor, "_ out"], ...]) -> float:
    """All items have as many columns."""
    return float(sum(item.sum() for item in items))


@held
@dataclass(frozen=True)
class Record:
    """A dataclass."""

    member: Float[Tensor, " n"]
    outsider: Float[Tensor, " n"]


@held
class Pair(NamedTuple):
    """A named tuple."""

    member: Float[Tensor, " n"]
    outsider: Float[Tensor, " n"]


def test_a_false_shape_is_caught():
    assert outer(torch.ones(2), torch.ones(2)).shape == (2, 2)
    with pytest.raises(FalseType, match="dimension n"):
        outer(torch.ones(2), torch.ones(3))


def test_an_axis_has_one_size_in_a_call_and_is_forgotten_after_it():
    for count in (2, 3):
        assert len(same(torch.ones(count), torch.ones(count))) == count
    with pytest.raises(FalseType, match="dimension n"):
        same(torch.ones(2), torch.ones(3))


def test_a_refusal_is_seen_as_it_is():
    with pytest.raises(ValueError, match="`left` must be floating"):
        outer(torch.ones(2, dtype=torch.int64), torch.ones(2))
    with pytest.raises(TypeError, match="unsupported operand"):
        doubled(None)


def test_wrong_arguments_that_nobody_refuses_are_caught():
    with pytest.raises(FalseType, match="value"):
        doubled("a word")
    with pytest.raises(FalseType, match="value"):
        halves("a word")
    assert list(halves(3)) == [1.5]


def test_every_item_of_a_container_has_its_turn():
    items = (*[torch.ones(1, 2)] * 3, torch.ones(1, 2, dtype=torch.int64))
    found = 0
    for _ in range(4):
        try:
            total(items)
        except FalseType:
            found += 1
    assert found == 1


@pytest.mark.parametrize("kind", [Record, Pair])
def test_fields_are_held_to_their_types(kind):
    pair = pickle.loads(pickle.dumps(kind(torch.ones(2), torch.zeros(2))))
    assert torch.equal(pair.member, torch.ones(2))
    with pytest.raises(FalseType, match="dimension n"):
        kind(torch.ones(2), torch.ones(3))


def test_the_library_is_held_to_its_types():
    def asked():  # other tests may have called it so often that only one call in so many is compared
        for _ in range(running_types._OF):
            content_keys.environment("")  # no path, which nothing else would show

    with pytest.raises(FalseType, match="root"):
        asked()


def test_a_held_function_has_the_content_key_of_its_own():
    parts = content_keys.function_parts(intervals.clopper_pearson)
    assert parts == content_keys.function_parts(intervals.clopper_pearson.__wrapped__)
    assert parts["wrappers"] == []
    assert not any("running_types" in name for name in parts["files"])


def test_the_library_is_held_to_its_types_in_the_processes_of_tests():
    code = "from leakage import content_keys\ncontent_keys.environment('')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=HANGS)
    assert "FalseType" in done.stderr
