"""The scoreboard of all signals: what memorises leaks, what has learned nothing does not."""

import math

import torch

import noise_labels
from leakage.data.gaussians import gaussian
from leakage.runtime import stream
from leakage.studies.polytopes import signals
from refusing import refused


def test_a_network_that_memorised_is_found_out():
    found = signals.board(0, task=noise_labels.task(epochs=40, size=80), models=8, rates=(0.01,))
    assert found.scores.names == (
        *(f"{kind}: {name}" for kind in ("raw", "calibrated") for name in scoreboard_signals()),
        "combined: margin",
        "combined: margin and cell",
    )
    for name in ("raw: margin", "calibrated: margin", "raw: DeepFool distance", "combined: margin"):
        assert float(found.scores[name].auc.mean()) > 0.85
        assert found.scores[name].tpr.shape == (8, 1)
    assert float(found.reached.min()) > 0.9


def test_a_network_that_has_learned_nothing_is_not():
    found = signals.board(0, task=noise_labels.task(epochs=0, size=80), models=8, rates=(0.01,))
    error = math.sqrt(481 / (12 * 80 * 400)) / math.sqrt(8)
    for name in ("raw: margin", "calibrated: margin", "calibrated: cell distance", "combined: margin and cell"):
        # Models share points, so that their areas are not independent: twice the usual room.
        assert abs(float(found.scores[name].auc.mean()) - 0.5) < 8 * error


def test_a_combiner_does_not_see_the_targets_membership():
    member = torch.rand(8, 300, generator=stream(0, "member")) < 0.1
    raw = {"score": gaussian((8, 300), generator=stream(0, "scores")) + member}
    other = member.clone()
    other[2] = ~member[2]
    assert torch.equal(signals.combined(raw, member, target=2), signals.combined(raw, other, target=2))


def test_bad_input_is_refused():
    task = noise_labels.task(epochs=0, size=480)
    refused(lambda: signals.board(0, task=task, models=3), "size")
    refused(lambda: signals.board(0, task=noise_labels.task(epochs=0), models=4), "references")


def scoreboard_signals() -> tuple[str, ...]:
    return ("margin", "DeepFool distance", "cell distance", "weight norm")
