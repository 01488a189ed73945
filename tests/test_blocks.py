"""Whatever the size of a block, the numbers are the same, and what does not fit into memory goes through."""

import json
import math
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from leakage import audit, blocks
from leakage.attacks.membership import calibration, loss_threshold, shadow_models, threshold_search
from leakage.data.membership_splits import complementary_halves
from leakage.runtime import stream

MODELS, POINTS = 8, 16
BYTES_A_POINT = 400  # 170 are needed here; another processor's BLAS and allocator may need more
SETTINGS = {
    "PYTHONPATH": str(Path(__file__).parents[1] / "lib"),
    "OMP_NUM_THREADS": "1",
    "MALLOC_MMAP_THRESHOLD_": "65536",  # what is freed goes back, or the limit would count it
}


def paired():
    return complementary_halves(POINTS, MODELS, generator=stream(0, "halves"))


def independent():
    member = torch.rand(MODELS, POINTS, generator=stream(0, "subsets")) < 0.5
    member[:, 3], member[:, 4] = True, False  # points without a reference of either kind
    return member, None


def drawn(member, shift):
    noise = torch.randn(member.shape, generator=stream(0, "losses"), dtype=torch.float64)
    return torch.nn.functional.softplus(-(noise + shift * member))


LOSSES = {
    "leaking": lambda member: drawn(member, 1.0),
    "not leaking": lambda member: drawn(member, 0.0),
    "coarse": lambda member: (4 * drawn(member, 1.0)).round() / 4,
    "all equal": lambda member: torch.ones(member.shape, dtype=torch.float64),
    "opposite": lambda member: 1.0 + member.double(),
    "short": lambda member: drawn(member, 1.0).float(),
}
EXACT = {
    "global": loss_threshold.global_scores,
    "sample": loss_threshold.sample_scores,
}
CLOSE = {
    "calibrated": calibration.calibrated_losses,
    "LiRA": shadow_models.lira,
    "LiRA, own": lambda *given, **more: shadow_models.lira(*given, variance="own", **more),
    "LiRA, offline": lambda *given, **more: shadow_models.lira(*given, offline=True, **more),
    "RMIA": shadow_models.rmia,
    "RMIA, offline": lambda *given, **more: shadow_models.rmia(*given, offline=True, **more),
    "RMIA, γ": lambda *given, **more: shadow_models.rmia(*given, gamma=1.1, **more),
}


@pytest.fixture(params=[1, 8 * 5, 8 * (POINTS - 1)], ids="block of {}".format)
def small(request, monkeypatch):
    """Blocks so small that there are several, and so few losses in one order that they are told apart by counts."""

    def shrink():
        monkeypatch.setattr(blocks, "NUMBERS", request.param)
        monkeypatch.setattr(threshold_search, "_MOST_SORTED", 16)
        monkeypatch.setattr(threshold_search, "_EDGES", 16)

    return shrink


@cache
def whole_scores(losses, design, target):
    """The scores of every attack in blocks of the usual size."""
    member, partner = design()
    attacks = (EXACT | CLOSE).items()
    return {name: attack(losses(member), member, partner, target=target) for name, attack in attacks}


@pytest.mark.parametrize("target", [None, 2])
@pytest.mark.parametrize("design", [paired, independent])
@pytest.mark.parametrize("losses", LOSSES.values(), ids=LOSSES)
def test_scores_do_not_depend_on_the_block(losses, design, target, small):
    member, partner = design()
    values = losses(member)
    given = (values, member, partner)
    whole = whole_scores(losses, design, target)
    small()
    for attacks, tolerance in ((EXACT, 1e-14), (CLOSE, 1e-8)):  # likelihood ratios have nine decimals
        for name, attack in attacks.items():
            found = attack(*given, target=target)
            torch.testing.assert_close(found, whole[name], rtol=tolerance, atol=tolerance, msg=name)


def test_leading_axes_do_not_depend_on_the_block(small):
    member, partner = paired()
    values = torch.stack([drawn(member, shift) for shift in (0.0, 1.0, 2.0)])
    attacks = {name: attack for name, attack in (EXACT | CLOSE).items() if name != "calibrated"}
    whole = {name: attack(values, member, partner) for name, attack in attacks.items()}
    small()
    for name, attack in attacks.items():
        torch.testing.assert_close(attack(values, member, partner), whole[name], rtol=1e-8, atol=1e-8, msg=name)


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


def test_a_large_table_is_made_in_a_file(tmp_path, monkeypatch):
    member, _ = independent()
    monkeypatch.setattr(blocks, "MEMORY", 0)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made = []
    monkeypatch.setattr(np, "memmap", lambda *given, _map=np.memmap, **more: made.append(more) or _map(*given, **more))
    shadow_models.lira(drawn(member, 1.0), member)
    assert [each["shape"] for each in made] == [(MODELS, POINTS)]
    assert not [*tmp_path.iterdir()]
