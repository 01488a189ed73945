"""Networks trained in the span answer fresh points as networks trained in all dimensions do."""

import pytest
import torch

from leakage.data import mixtures
from leakage.data.gaussians import gaussian
from leakage.metrics.roc import ks_test
from leakage.models import two_layer
from leakage.runtime import DTYPE, stream
from leakage.trainers import margin_flow
from leakage.trainers.margin_flow import Descent
from reproduced.studies.kkt_margin.gaussian_networks import fresh_outputs, gaussian_targets

SMALL = dict(rows=4, width=12, fresh=30, runs=3, descent=Descent(200, margin=3.0), seed=0)
RUNS, DIMENSION, SCALE = 800, 30, 0.3


def span_answers(descent):
    """One fresh answer of each network, trained in the span, with its label."""
    generator = stream(0, "span")
    sample = mixtures.draw("mixture", rows=6, fresh=1, dimension=DIMENSION, runs=RUNS, generator=generator)
    start = two_layer.initial((RUNS,), 10, sample.train.shape[-1], generator=generator, hidden_scale=SCALE)
    model = margin_flow.train(start, sample.train, sample.labels, descent).model
    answers = fresh_outputs(model, sample, generator, hidden_scale=SCALE)
    return answers.squeeze(-1), (answers * sample.fresh_labels).squeeze(-1)


def explicit_answers(descent):
    """The same in all coordinates: the definition."""
    generator = stream(0, "explicit")
    labels = 2.0 * torch.randint(2, (RUNS, 7), generator=generator).to(DTYPE) - 1
    points = gaussian((RUNS, 7, DIMENSION), generator=generator)
    points[..., 0] += labels
    start = two_layer.initial((RUNS,), 10, DIMENSION, generator=generator, hidden_scale=SCALE)
    model = margin_flow.train(start, points[:, :6], labels[:, :6], descent, route="primal").model
    answers = model(points[:, 6:])
    return answers.squeeze(-1), (answers * labels[:, 6:]).squeeze(-1)


@pytest.mark.parametrize("descent", [Descent(150, 0.05), Descent(300, margin=2.0)], ids=["plain", "normalised"])
def test_fresh_points_get_answers_of_the_same_law(descent):
    """The initial weights are large, so that those outside the span, 23 of 30 dimensions, speak up."""
    for ours, theirs in zip(span_answers(descent), explicit_answers(descent), strict=True):
        assert ks_test(ours, theirs).p_value > 1e-3  # the seeds are fixed


def test_a_point_of_the_grid_holds_what_the_figures_need():
    found = gaussian_targets(50, **SMALL, snapshots=[0, 5])
    assert found.margins.shape == (3, 4)
    assert found.fresh.shape == found.fresh_labels.shape == (3, 30)
    assert found.steps.shape == (3,)
    assert [(tuple(then.margins.shape), tuple(then.fresh.shape)) for then in found.then] == 2 * [((3, 4), (3, 30))]
    assert bool((found.margins.amin(-1) >= 3).all())
    assert gaussian_targets(50, **SMALL).then == ()


def test_the_last_snapshot_is_the_end():
    found = gaussian_targets(50, **SMALL, snapshots=[0, 200])
    torch.testing.assert_close(found.then[-1].margins, found.margins, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(found.then[-1].fresh, found.fresh, rtol=1e-11, atol=1e-11)


def test_descents_are_compared_on_the_same_points_and_starts():
    other = {**SMALL, "descent": Descent(100, 0.1)}
    found, again = (gaussian_targets(50, **sizes, snapshots=[0]) for sizes in (SMALL, other))
    torch.testing.assert_close(found.fresh_labels, again.fresh_labels)
    torch.testing.assert_close(found.then[0].fresh, again.then[0].fresh)
    assert not torch.allclose(found.fresh, again.fresh)


def test_a_seed_gives_its_networks_again():
    found, again, other = (gaussian_targets(50, **{**SMALL, "seed": seed}) for seed in (0, 0, 1))
    torch.testing.assert_close(found.fresh, again.fresh)
    assert not torch.allclose(found.fresh, other.fresh)


def test_quiet_output_weights_start_with_quiet_answers():
    loud, quiet = (gaussian_targets(50, **SMALL, snapshots=[0], output_scale=scale) for scale in (1.0, 0.125))
    torch.testing.assert_close(quiet.then[0].fresh, loud.then[0].fresh / 8, rtol=1e-12, atol=0)


def test_single_precision_changes_digits_and_nothing_that_is_drawn():
    double, single = (gaussian_targets(50, **SMALL, dtype=dtype) for dtype in (DTYPE, torch.float32))
    assert single.fresh.dtype == single.margins.dtype == DTYPE
    torch.testing.assert_close(double.fresh_labels, single.fresh_labels)
    assert bool(((double.steps - single.steps).abs() <= 1).all())
    torch.testing.assert_close(single.fresh, double.fresh, rtol=0, atol=1e-2)  # a step at the margin of 3
