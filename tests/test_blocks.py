"""Whatever the size of a block, the numbers are the same, and what does not fit into memory goes through."""

import pytest
import torch

from leakage import blocks
from leakage.attacks.membership import calibration, loss_threshold, shadow_models, threshold_search
from leakage.data.membership_splits import complementary_halves
from leakage.runtime import stream

MODELS, POINTS = 8, 60


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


@pytest.fixture(params=[1, 8 * 7, 8 * 59], ids="block of {}".format)
def small(request, monkeypatch):
    """Blocks so small that there are several, and so few losses in one order that they are told apart by counts."""

    def shrink():
        monkeypatch.setattr(blocks, "NUMBERS", request.param)
        monkeypatch.setattr(threshold_search, "_MOST_SORTED", 40)
        monkeypatch.setattr(threshold_search, "_EDGES", 16)

    return shrink


@pytest.mark.parametrize("target", [None, 2])
@pytest.mark.parametrize("design", [paired, independent])
@pytest.mark.parametrize("losses", LOSSES.values(), ids=LOSSES)
def test_scores_do_not_depend_on_the_block(losses, design, target, small):
    member, partner = design()
    values = losses(member)
    given = (values, member, partner)
    whole = {name: attack(*given, target=target) for name, attack in (EXACT | CLOSE).items()}
    small()
    for name, attack in EXACT.items():
        assert torch.equal(attack(*given, target=target), whole[name]), name
    # Products of matrices of other widths, and means over points in other parts, round elsewhere.
    for name, attack in CLOSE.items():
        if values.unique().numel() < MODELS * POINTS and name.startswith("RMIA"):
            continue  # what is equal but for rounding is ranked by it
        # The variance of two losses that are nearly equal, down to 1e-6, keeps fewer digits.
        tolerance = 1e-9 if name == "LiRA, own" else 1e-12
        apart = float((attack(*given, target=target) - whole[name]).abs().max())
        assert apart <= tolerance * max(1.0, float(whole[name].abs().max())), name


def test_leading_axes_do_not_depend_on_the_block(small):
    member, partner = paired()
    values = torch.stack([drawn(member, shift) for shift in (0.0, 1.0, 2.0)])
    attacks = {name: attack for name, attack in (EXACT | CLOSE).items() if name != "calibrated"}
    whole = {name: attack(values, member, partner) for name, attack in attacks.items()}
    small()
    for name, attack in attacks.items():
        assert torch.allclose(attack(values, member, partner), whole[name], rtol=1e-12, atol=1e-12), name
