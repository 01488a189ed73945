import pytest
import torch

from leakage.runtime import stream
from leakage.studies.blessing.bilevel import Bilevel, fixed_points
from leakage.studies.blessing.influence import influence, law_at, law_distances
from leakage.studies.blessing.logistic_simulation import point_outputs
from leakage.theory.logistic.fixed_point import Setting, solve

ENSEMBLE, PENALTY = Bilevel(200, 40, 120, 10.0, eta=2.0), 0.1
SOLUTION = solve(
    Setting.bilevel(penalty=PENALTY, delta=ENSEMBLE.delta, phi=ENSEMBLE.phi, eta=ENSEMBLE.eta, kappa=ENSEMBLE.kappa)
)


def test_its_mean_over_points_is_the_limits_gamma():
    points = fixed_points(ENSEMBLE, 4000, generator=stream(0, "mean"))
    found = influence(ENSEMBLE, points, SOLUTION, penalty=PENALTY)
    # The squared lengths have relative standard deviations of at most sqrt(2/40); four standard errors of the mean.
    assert float(found.mean()) == pytest.approx(float(SOLUTION.gamma), rel=4 * (2 / 40 / 4000) ** 0.5)


@pytest.mark.parametrize(("head", "tail"), [(2.0, 1.0), (1.0, 2.0), (2.0, 2.0)])
def test_trained_models_have_it_for_points_with_a_long_head_or_tail(head, tail):
    points = fixed_points(ENSEMBLE, 2, generator=stream(0, "points"))
    strong, weak = head * points.strong, tail * points.weak
    squares = ENSEMBLE.strong * strong.square().sum(-1) + ENSEMBLE.weak * weak.square().sum(-1)
    points = points._replace(strong=strong, weak=weak, squares=squares, teacher=head * points.teacher)
    found = point_outputs(ENSEMBLE, points, penalty=PENALTY, trials=60, generator=stream(0, "sets"))
    ratio = found.gamma.mean(1) / influence(ENSEMBLE, points, SOLUTION, penalty=PENALTY)
    # 200 rows: a few per cent from the limit, and one standard error of about 1 %.
    assert ratio.tolist() == pytest.approx([1, 1], abs=0.08)


def test_outputs_follow_their_laws_and_members_not_that_of_outsiders():
    points = fixed_points(ENSEMBLE, 3, generator=stream(0, "laws"))
    found = point_outputs(ENSEMBLE, points, penalty=PENALTY, trials=100, generator=stream(0, "law sets"), refits=100)
    law = law_at(SOLUTION, influence(ENSEMBLE, points, SOLUTION, penalty=PENALTY))
    distances = law_distances(found, points, law)
    assert max(one.low for one in (*distances.without, *distances.refits)) == 0
    assert min(one.low for one in distances.control) > 0.1


def test_the_interval_of_a_distance_is_dvoretzky_kiefer_wolfowitz_and_massarts():
    points = fixed_points(ENSEMBLE, 1, generator=stream(0, "one"))
    found = point_outputs(ENSEMBLE, points, penalty=PENALTY, trials=8, generator=stream(0, "few"), refits=8)
    one = law_distances(found, points, law_at(SOLUTION, SOLUTION.gamma[None])).without[0]
    reach = (torch.tensor(2 * 2 / 0.05).log() / 16) ** 0.5  # two laws
    assert one.high == pytest.approx(min(1.0, one.estimate + float(reach)))
