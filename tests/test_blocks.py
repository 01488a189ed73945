"""Whatever the size of a block, an audit finds the same."""

import json
import math
from functools import cache

import numpy as np
import pytest
import torch

from leakage import audit, blocks
from leakage.data.membership_splits import complementary_halves
from leakage.runtime import stream

MODELS, POINTS = 8, 16


def paired():
    return complementary_halves(POINTS, MODELS, generator=stream(0, "halves"))


def independent():
    member = torch.rand(MODELS, POINTS, generator=stream(0, "subsets")) < 0.5
    member[:, 3], member[:, 4] = True, False  # points without a reference of either kind
    return member, None


def drawn(member, shift):
    noise = torch.randn(member.shape, generator=stream(0, "losses"), dtype=torch.float64)
    return torch.nn.functional.softplus(-(noise + shift * member))


@pytest.fixture(params=[1, 8 * 5, 8 * (POINTS - 1)], ids="block of {}".format)
def small(request, monkeypatch):
    """Blocks so small that there are several."""
    return lambda: monkeypatch.setattr(blocks, "NUMBERS", request.param)


DESIGNS = {"one target": (independent()[0], 2), "subsets": (independent()[0], None), "pairs": (paired()[0], None)}


@cache
def audited(design):
    """The losses, what goes with them, and their audit in blocks of the usual size."""
    member, target = DESIGNS[design]
    losses = drawn(member, 1.0)
    losses[:, 10] = losses[:, 11]  # twins
    losses[1, 5] = math.inf
    more = {"target": target, "correct": losses < 0.7, "labels": np.arange(POINTS) % 2, "fprs": (0.2, 0.1)}
    return losses, member, more, audit.of_losses(losses, member, **more)


@pytest.mark.parametrize("design", DESIGNS)
def test_an_audit_does_not_depend_on_the_block(design, small, tmp_path):
    losses, member, more, whole = audited(design)
    np.save(tmp_path / "losses.npy", losses.numpy())
    mapped = np.load(tmp_path / "losses.npy", mmap_mode="r")
    small()
    found = audit.of_losses(mapped, member, **more)
    assert found.notes == whole.notes
    for name, values in whole.scores.items():
        assert np.allclose(found.scores[name], values, rtol=1e-8, atol=1e-8), name
    # Intervals, records and slices, by whole counts where scores differ by rounding only.
    first, second = (json.loads(one.to_json()) for one in (whole, found))
    assert [*numbers(second)] == pytest.approx([*numbers(first)], abs=1e-9)
    assert str(found.table()) == str(whole.table())
    assert found.report(tmp_path / "audit.html").is_file()


def numbers(content):
    """The numbers in what JSON holds, in order."""
    if isinstance(content, dict | list):
        for part in content.values() if isinstance(content, dict) else content:
            yield from numbers(part)
    elif isinstance(content, float | int):
        yield float(content)
