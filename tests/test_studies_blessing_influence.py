import math

import pytest

from leakage.runtime import stream
from leakage.theory.logistic.fixed_point import Setting, solve
from reproduced.studies.blessing.bilevel import Bilevel, fixed_points
from reproduced.studies.blessing.influence import influence, law_at, law_distances
from reproduced.studies.blessing.logistic_simulation import point_outputs

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
    found = point_outputs(ENSEMBLE, points, penalty=PENALTY, trials=20, generator=stream(0, "sets"))
    ratio = found.gamma.mean(1) / influence(ENSEMBLE, points, SOLUTION, penalty=PENALTY)
    # 200 rows: a few per cent from the limit, and one standard error of about 2 %.
    assert ratio.tolist() == pytest.approx([1, 1], abs=0.08)


def test_outputs_follow_their_laws_and_members_not_that_of_outsiders():
    found, points, law = outputs(trials=60)
    distances = law_distances(found, points, law)
    assert max(one.low for one in (*distances.without, *distances.refits)) == 0
    assert min(one.low for one in distances.control) > 0.1


def test_the_interval_of_a_distance_is_dvoretzky_kiefer_wolfowitz_and_massarts():
    found, points, law = outputs(trials=40)
    one = law_distances(found, points, law).without[0]
    reach = math.sqrt(math.log(2 * 6 / 0.05) / (2 * 40))  # two laws at three points
    assert one.high == pytest.approx(min(1.0, one.estimate + reach))
    assert one.low == pytest.approx(max(0.0, one.estimate - reach))


def outputs(trials):
    """Outputs at three points of an ensemble in which every point is far from the law of outsiders."""
    few = Bilevel(60, 120, 360, 50.0)
    points = fixed_points(few, 3, generator=stream(0, "laws"))
    found = point_outputs(few, points, penalty=0.1, trials=trials, generator=stream(0, "law sets"), refits=trials)
    solution = solve(Setting.bilevel(penalty=0.1, delta=few.delta, phi=few.phi, kappa=few.kappa))
    return found, points, law_at(solution.law, influence(few, points, solution, penalty=0.1))
