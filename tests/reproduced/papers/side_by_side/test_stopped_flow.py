"""Gradient flow that stops early: the closed form against small steps, a blind control and a planted leak."""

import pytest
import torch

from leakage.draws import gaussian
from leakage.precision import DTYPE
from reproduced.papers.side_by_side import stopped_flow
from reproduced.papers.side_by_side.stopped_flow import Regression, flow_answers, stop_early
from reproduced.runtime import stream


def noise(rows, features, *, signal):
    draws = stream(0, "noise")
    x = gaussian((rows, features), generator=draws)
    return Regression(x, signal * x[:, 0] + gaussian((rows,), generator=draws))


@pytest.mark.parametrize("features", [3, 30], ids=["fewer features than rows", "more"])
def test_the_closed_form_is_where_small_steps_lead(features):
    data = noise(20, features, signal=1.0)
    member = stopped_flow.draw_half(data, stream(0, "half"))
    x, y, w = data.features[member], data.labels[member], torch.zeros(features, dtype=DTYPE)
    for _ in range(2000):
        w += 1e-3 * x.mT @ (y - x @ w) / len(x)
    answers = flow_answers(data, member, torch.tensor([2.0], dtype=DTYPE))
    torch.testing.assert_close(answers[0], data.features @ w, rtol=0, atol=1e-2)  # first order in the step


def test_long_training_betrays_members(monkeypatch):
    monkeypatch.setattr(stopped_flow, "TIMES", torch.tensor([1e-6, 1e-2, 1e-1, 1e4], dtype=DTYPE))
    found = stop_early(noise(60, 90, signal=4.0), shadows=60, targets=40, generator=stream(0, "flow"))
    assert found.advantage[:, -1].mean() > 0.9  # where every label is fitted


def test_answers_that_do_not_depend_on_membership_betray_nobody(monkeypatch):
    data, draws = noise(60, 20, signal=1.0), stream(0, "others")
    monkeypatch.setattr(
        stopped_flow,
        "flow_answers",
        lambda data, member, times: flow_answers(data, stopped_flow.draw_half(data, draws), times),
    )
    found = stop_early(data, shadows=60, targets=100, generator=stream(0, "flow"))
    torch.testing.assert_close(
        found.advantage.mean(0), torch.zeros(len(stopped_flow.TIMES), dtype=DTYPE), rtol=0, atol=0.05
    )


def test_training_stops_where_the_error_is_above_its_least():
    found = stop_early(noise(80, 60, signal=1.0), shadows=20, targets=4, generator=stream(0, "stop"))
    assert found.early < found.best
    excess = found.error / found.error.min() - 1
    assert excess[found.early] >= 0.02 > excess[found.early + 1]
    assert int(excess.argmin()) == found.best
    assert found.drop.shape == (4,)
