"""Mixtures of Gaussians: distances equal integrals and closed forms, no rule beats them, equal laws leak nothing."""

import math
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from leakage.metrics import roc
from leakage.precision import DTYPE
from leakage.theory import gaussian_mixtures, least_squares, two_gaussians
from leakage.theory.gaussian_mixtures import (
    GaussianMixture,
    ScaleMixture,
    log_likelihood_ratio,
    power,
    sign_changes,
    threshold_advantage,
    thresholds,
    total_variation,
)
from leakage.theory.least_squares import Design, Query
from reproduced.runtime import stream

P_VALUE = 1e-3  # the seeds are fixed: a right law fails once in a thousand choices of seed, and then always
repeatable = settings(max_examples=40)
variances = st.lists(st.floats(-3, 3), min_size=1, max_size=5).map(
    lambda exponents: torch.tensor([10**e for e in exponents], dtype=DTYPE)
)


def tensor(*values):
    return torch.tensor(values, dtype=DTYPE)


def random_law(seed, *, batch=(), atoms=6):
    generator = stream(seed, "law")
    weights = torch.rand(*batch, atoms, generator=generator, dtype=DTYPE)
    exponents = torch.randn(*batch, atoms, generator=generator, dtype=DTYPE)
    return ScaleMixture(exponents.exp(), weights / weights.sum(-1, keepdim=True))


def integral(outsider, member, *, points=200_000):
    """The definition: half the integral of |f0 - f1| over y > 0 of both folded densities, by the trapezoidal rule."""
    last = 12 * float(torch.cat([outsider.variances, member.variances]).max().sqrt())
    first = 1e-3 * float(torch.cat([outsider.variances, member.variances]).min().sqrt())
    y = torch.cat([torch.zeros(1), torch.logspace(math.log10(first), math.log10(last), points)]).to(DTYPE)
    return float(torch.trapezoid((outsider.density(y) - member.density(y)).abs(), y)) / 2


@pytest.mark.parametrize("seed", range(6))
def test_the_distance_is_the_integral_of_the_density_difference(seed):
    outsider, member = random_law(seed), random_law(seed + 100, atoms=4)
    # The rule's error: second differences on a grid of 6e-5 relative steps.
    assert float(total_variation(member=member, outsider=outsider)) == pytest.approx(
        integral(outsider, member), abs=1e-7
    )


@repeatable
@given(outsider=st.floats(-6, 6), member=st.floats(-6, 6))
def test_single_gaussians_have_the_closed_form(outsider, member):
    laws = {"outsider": tensor(10**outsider), "member": tensor(10**member)}
    # The crossing is known to 1e-6 of its place, and the error of the distance is the square of that.
    assert float(total_variation(**laws)) == pytest.approx(float(two_gaussians.advantage(**laws)), abs=1e-9)


def test_laws_that_alternate_in_scale_cross_many_times_and_no_crossing_is_missed():
    outsider, member = (ScaleMixture(10.0 ** torch.arange(start, 12, 4).to(DTYPE)) for start in (0, 2))
    assert thresholds(member=member, outsider=outsider).shape == (5,)
    assert float(total_variation(member=member, outsider=outsider)) == pytest.approx(
        integral(outsider, member), abs=1e-7
    )


def test_the_one_threshold_of_gaussians_is_where_their_densities_cross():
    laws = {"outsider": tensor(0.3), "member": tensor(2.0)}
    torch.testing.assert_close(thresholds(**laws), two_gaussians.threshold(**laws), rtol=1e-5, atol=0)


def test_heavy_tails_add_a_second_threshold_and_the_densities_cross_at_both():
    outsider, member = ScaleMixture(tensor(0.5, 30.0), tensor(0.95, 0.05)), ScaleMixture(tensor(1.0))
    crossings = thresholds(member=member, outsider=outsider)
    assert crossings.shape == (2,)
    torch.testing.assert_close(outsider.density(crossings), member.density(crossings), rtol=1e-4, atol=0)
    band = float(torch.diff(threshold_advantage(crossings, member=member, outsider=outsider)).abs())
    # Members are in the band between the two thresholds; a rule with one of them is worse.
    assert float(total_variation(member=member, outsider=outsider)) == pytest.approx(band, abs=1e-14)
    assert band > float(threshold_advantage(crossings, member=member, outsider=outsider).abs().max()) + 0.01


@repeatable
@given(outsider=variances, member=variances, rules=st.lists(st.floats(-4, 4), min_size=2, max_size=2))
def test_no_threshold_and_no_band_beats_the_distance(outsider, member, rules):
    distance = float(total_variation(member=member, outsider=outsider))
    low, high = sorted(10**rule for rule in rules)
    single = threshold_advantage(tensor(low, high), member=member, outsider=outsider)
    assert 0 <= distance <= 1
    assert distance >= float(single.abs().max()) - 1e-9
    assert distance >= abs(float(torch.diff(single))) - 1e-9
    assert distance == pytest.approx(float(total_variation(member=outsider, outsider=member)), abs=1e-12)


def test_a_rule_that_points_the_wrong_way_has_a_negative_advantage():
    """Where members vary less, "large answers are members" calls more outsiders members than members."""
    rule = tensor(0.5, 1.0, 2.0)
    assert bool((threshold_advantage(rule, outsider=tensor(4.0), member=tensor(1.0)) < 0).all())
    assert bool((threshold_advantage(rule, outsider=tensor(1.0), member=tensor(4.0)) > 0).all())


@repeatable
@given(law=variances)
def test_equal_laws_are_indistinguishable_however_they_are_written(law):
    split = ScaleMixture(torch.cat([law, law.flip(0)]), torch.full((2 * len(law),), 0.5 / len(law), dtype=DTYPE))
    assert float(total_variation(outsider=law, member=split)) < 1e-12
    assert float(power(outsider=law, member=split, fpr=0.1)) == pytest.approx(0.1, abs=1e-9)


def test_very_different_laws_are_told_apart_for_certain():
    assert float(total_variation(outsider=tensor(1e-12), member=tensor(1.0, 2.0))) > 1 - 1e-5
    assert float(power(outsider=tensor(1e-12), member=tensor(1.0, 2.0), fpr=1e-3)) > 1 - 1e-4


def test_distribution_function_and_density_are_those_of_the_mixture():
    law, y = ScaleMixture(tensor(0.25, 4.0), tensor(0.3, 0.7)), tensor(0.0, 0.1, 1.0, 3.0, math.inf)
    small, large = stats.halfnorm(scale=0.5), stats.halfnorm(scale=2)
    reference = {name: 0.3 * getattr(small, name)(y) + 0.7 * getattr(large, name)(y) for name in ("cdf", "pdf")}
    torch.testing.assert_close(law.cdf(y), torch.from_numpy(reference["cdf"]))
    torch.testing.assert_close(law.density(y), torch.from_numpy(reference["pdf"]))
    torch.testing.assert_close(law.log_density(y[:-1]), torch.from_numpy(reference["pdf"][:-1]).log())
    assert float(law.mean_variance) == pytest.approx(0.3 * 0.25 + 0.7 * 4)


def test_distribution_function_and_densities_can_be_differentiated():
    law, y = random_law(3), torch.linspace(0.1, 3, 7, dtype=DTYPE, requires_grad=True)
    of_cdf, of_density, of_logarithm = (
        torch.autograd.grad(function(y).sum(), y)[0] for function in (law.cdf, law.density, law.log_density)
    )
    torch.testing.assert_close(of_cdf, law.density(y))
    torch.testing.assert_close(of_logarithm, of_density / law.density(y))
    law.weights.requires_grad_()
    for found, slope in ((law.density(y), law.density(y)), (law.log_density(y), torch.ones_like(y))):
        (of_weights,) = torch.autograd.grad(found.sum(), law.weights)  # the density is linear in them
        torch.testing.assert_close((of_weights * law.weights).sum(), slope.sum())


def test_the_log_density_stays_finite_where_the_density_is_zero():
    law = ScaleMixture(tensor(1.0, 4.0))
    assert float(law.density(tensor(200.0))) == pytest.approx(0)
    expected = math.log(0.5) + stats.halfnorm.logpdf(200, scale=2)
    assert float(law.log_density(tensor(200.0))) == pytest.approx(expected, rel=1e-12)
    weightless = ScaleMixture(tensor(1.0, 100.0), tensor(1.0, 0.0))
    assert float(weightless.log_density(tensor(50.0))) == pytest.approx(stats.halfnorm.logpdf(50))


def test_samples_have_the_law_they_are_drawn_from():
    law = ScaleMixture(tensor((0.25, 25.0), (4.0, 1.0)), tensor((0.9, 0.1), (0.2, 0.8)))
    draws = law.sample(20_000, generator=stream(0, "sample"))
    assert draws.shape == (2, 20_000)
    for row in range(2):
        single = ScaleMixture(law.variances[row], law.weights[row])
        assert stats.kstest(single.cdf(draws[row].abs()), stats.uniform.cdf).pvalue > P_VALUE
    assert abs(float((draws > 0).double().mean()) - 0.5) < 4 * 0.5 / math.sqrt(40_000)  # 4 standard errors


@pytest.mark.parametrize("fpr", [0.001, 0.01, 0.1, 0.6])
@pytest.mark.parametrize("member", [0.2, 1.0, 1.5, 9.0])
def test_power_between_gaussians_is_the_closed_form(member, fpr):
    laws = {"outsider": tensor(1.0), "member": tensor(member)}
    # A cell is 3e-3 of its place wide, and only the cell in which the rate is spent is taken as a whole.
    reference = float(two_gaussians.power(**laws, fpr=fpr))
    assert float(power(**laws, fpr=fpr)) == pytest.approx(reference, abs=1e-5)


def test_power_rises_with_the_false_positives_and_exceeds_them_by_the_distance_at_most():
    outsider, member = random_law(1), random_law(2)
    rates = torch.linspace(0.005, 0.995, 199).tolist()
    powers = torch.stack([power(member=member, outsider=outsider, fpr=rate) for rate in rates])
    gaps = powers - tensor(*rates)
    assert bool((torch.diff(powers) > 0).all())
    assert bool((torch.diff(powers, n=2) < 1e-6).all())  # a ROC curve of optimal tests is concave; cells are not points
    assert bool((gaps >= 0).all())
    # 199 rates miss the top of the gap by half a step where the curve is flat.
    assert float(total_variation(member=member, outsider=outsider)) == pytest.approx(float(gaps.max()), abs=1e-4)


TRIALS = 20_000


@cache
def game(design, p):
    """Both laws at the typical point, and exact predictions of members and outsiders."""
    query, generator = Query.typical(design, p), stream(0, f"game {design.n} {p}")
    # A law of 12 × 32 × 4 atoms is that of the draws to 2e-5, far below what so many draws resolve.
    laws = least_squares.laws(design, p, query, nodes=(12, 32, 4))
    samplers = least_squares.sample_member, least_squares.sample_outsider
    return laws, [sample(design, p, query, trials=TRIALS, generator=generator) for sample in samplers]


@pytest.mark.parametrize(("design", "p"), [(Design(20, 60), 26), (Design(20, 600), 60), (Design(20, 60), 20)])
def test_played_with_the_score_the_game_has_the_promised_advantage(design, p):
    laws, (member, outsider) = game(design, p)
    won = roc.membership_advantage(
        member=log_likelihood_ratio(member, **laws), outsider=log_likelihood_ratio(outsider, **laws), threshold=0.0
    )
    # 4 standard errors of a difference of two shares, at most.
    assert abs(won.estimate - float(total_variation(**laws))) < 4 * math.sqrt(0.5 / TRIALS)
    assert (
        roc.auc(member=log_likelihood_ratio(member, **laws), outsider=log_likelihood_ratio(outsider, **laws)).low > 0.5
    )


def test_the_score_is_the_logarithm_of_the_likelihood_ratio():
    outsider, member = ScaleMixture(tensor(0.25, 4.0), tensor(0.3, 0.7)), ScaleMixture(tensor(1.0))
    y = tensor(-3.0, -0.1, 0.0, 2.0)
    reference = torch.from_numpy(0.3 * stats.norm.pdf(y, scale=0.5) + 0.7 * stats.norm.pdf(y, scale=2))
    torch.testing.assert_close(
        log_likelihood_ratio(y, outsider=outsider, member=member),
        torch.from_numpy(stats.norm.logpdf(y)) - reference.log(),
    )


def test_the_score_of_an_answer_far_in_the_tails_is_a_number():
    """At p = n an outsider's law has Cauchy tails: answers come that both densities, as numbers, call impossible."""
    laws, (_, outsider) = game(Design(20, 60), 20)
    scores = log_likelihood_ratio(torch.cat([outsider, tensor(1e6, -1e9)]), **laws)
    assert bool(torch.isfinite(scores).all())
    assert bool((scores[-2:] < -1e6).all())


@pytest.mark.parametrize(("p", "larger"), [(30, False), (60, True)])
def test_the_score_points_the_right_way_on_either_side_of_the_crossover(p, larger):
    """Below p* members answer more timidly: "large answers are members" has fewer true than false positives there."""
    design, query = Design(20, 600), Query.typical(Design(20, 600), p)
    assert (p > least_squares.crossover_width(design)) == larger
    variances = {
        "outsider": least_squares.outsider_variance(design, torch.tensor(p), query),
        "member": least_squares.member_variance(design, query),
    }
    laws, (member, outsider) = game(design, p)
    naive = roc.membership_advantage(
        member=member.abs(), outsider=outsider.abs(), threshold=float(two_gaussians.threshold(**variances))
    )
    assert (naive.estimate > 0) == larger
    assert (float(threshold_advantage(two_gaussians.threshold(**variances).reshape(1), **laws)) > 0) == larger
    normal = {who: ScaleMixture(variance.reshape(1)) for who, variance in variances.items()}
    right = roc.membership_advantage(
        member=log_likelihood_ratio(member, **normal), outsider=log_likelihood_ratio(outsider, **normal), threshold=0.0
    )
    assert right.estimate == pytest.approx(abs(naive.estimate), abs=1e-12)
    assert right.low > 0.05


def test_equal_laws_score_zero_everywhere():
    law, y = ScaleMixture(tensor(0.5, 2.0)), torch.linspace(-9, 9, 19, dtype=DTYPE)
    torch.testing.assert_close(log_likelihood_ratio(y, outsider=law, member=law), torch.zeros_like(y))


GRID = torch.linspace(0, 5, 51, dtype=DTYPE)
# A grid step of 0.1 is divided by 8 five times; the middle of the last bracket is reported.
PRECISION = 0.1 / 8**5 / 2 + 1e-12


def polynomial(*roots):
    return lambda y: math.prod((y - root for root in roots), start=torch.ones((), dtype=DTYPE))


@pytest.mark.parametrize("roots", [(1.234,), (0.55, 2.71828, 4.99), (0.05, 0.15), (3.0001, 3.4999)])
def test_roots_between_grid_points_are_found(roots):
    found = sign_changes(polynomial(*roots), GRID)
    torch.testing.assert_close(found, torch.tensor(roots, dtype=DTYPE), rtol=0, atol=PRECISION)


@pytest.mark.parametrize("roots", [(2,), (1, 3), (1, 2.45, 4)])
def test_a_root_on_a_grid_point_counts_once(roots):
    whole = torch.linspace(0, 5, 6, dtype=DTYPE)
    found = sign_changes(polynomial(*roots), whole)
    torch.testing.assert_close(found, torch.tensor(roots, dtype=DTYPE), rtol=0, atol=10 * PRECISION)


def test_a_root_that_is_only_touched_is_no_change():
    whole = torch.linspace(0, 5, 6, dtype=DTYPE)
    torch.testing.assert_close(
        sign_changes(polynomial(2, 2, 3.5), whole), torch.tensor([3.5], dtype=DTYPE), rtol=0, atol=10 * PRECISION
    )
    assert sign_changes(polynomial(2, 2), whole).tolist() == [math.inf]


@pytest.mark.parametrize("difference", [torch.ones_like, torch.zeros_like, lambda y: -torch.ones_like(y)])
def test_without_a_change_there_is_only_padding(difference):
    assert sign_changes(difference, GRID).tolist() == [math.inf]


def test_rows_with_fewer_roots_are_padded_with_infinity():
    level = torch.tensor([[-2.0], [0.0], [0.5]], dtype=DTYPE)
    found = sign_changes(lambda y: torch.sin(math.pi * y) - level, GRID[:-1])
    assert found.shape == (3, 6)
    assert bool(torch.isinf(found[0]).all())
    # The grid starts on the root 0: no sign comes before it, so that nothing changes there.
    assert found[1].tolist() == pytest.approx([1, 2, 3, 4, math.inf, math.inf], abs=PRECISION)
    assert found[2].tolist() == pytest.approx([1 / 6, 5 / 6, 13 / 6, 17 / 6, 25 / 6, 29 / 6], abs=PRECISION)


few_examples = settings(max_examples=20)


def normal(mean, variance=1.0):
    return GaussianMixture(tensor(mean), tensor(variance))


def random_mixture(seed, *, batch=(), atoms=5, variance=0.1):
    generator = stream(seed, "mixture")
    means, scales = (torch.randn(*batch, atoms, generator=generator, dtype=DTYPE) for _ in range(2))
    return GaussianMixture(means, variance * scales.exp())


def integral_over_the_line(outsider, member):
    """The definition, by the trapezoidal rule."""
    y = torch.linspace(-12, 12, 60_001, dtype=DTYPE)
    return float(torch.trapezoid((outsider.density(y) - member.density(y)).abs(), y)) / 2


@pytest.mark.parametrize("half", [1e-3, 0.15, 0.3, 1.0, 1.25, 3.0, 8.0, 50.0])
@pytest.mark.parametrize("centre", [0.0, 7.3])
def test_shifted_gaussians_have_the_closed_form(half, centre):
    """Also where the crossing, half-way between them, is a point of the grid on which crossings are looked for."""
    distance = float(total_variation(outsider=normal(centre - half), member=normal(centre + half)))
    assert distance == pytest.approx(2 * stats.norm.cdf(half) - 1, abs=1e-9)


@few_examples
@given(outsider=st.floats(-4, 4), member=st.floats(-4, 4), mean=st.floats(-10, 10))
def test_gaussians_of_one_mean_have_the_closed_form(outsider, member, mean):
    variances = {"outsider": tensor(10**outsider), "member": tensor(10**member)}
    distance = float(total_variation(outsider=normal(mean, 10**outsider), member=normal(mean, 10**member)))
    # Quantiles a few hundredths of a deviation apart, refined by 8^5: errors far below this.
    assert distance == pytest.approx(float(two_gaussians.advantage(**variances)), abs=1e-8)


@pytest.mark.parametrize(("atoms", "variance"), [(1, 1.0), (5, 0.1), (40, 0.01), (100, 0.01)])
def test_the_distance_of_mixtures_with_means_is_the_integral(atoms, variance):
    outsider, member = (random_mixture(seed, atoms=atoms, variance=variance) for seed in (0, 1))
    # The trapezoidal rule has steps of 4e-4; the narrowest deviation here is about 0.02, sixty times as much.
    assert float(total_variation(member=member, outsider=outsider)) == pytest.approx(
        integral_over_the_line(outsider, member), abs=1e-5
    )


@pytest.mark.parametrize("count", [3, 50, 200])
def test_two_combs_are_compared_tooth_by_tooth(count):
    """Means k and k + 1/2 with deviation 1/10: members own the intervals of width 1/2 round their means."""
    teeth = torch.arange(count, dtype=DTYPE)
    shifts = {"outsider": 0.0, "member": 0.5}
    combs = {who: GaussianMixture(teeth + shift, torch.full_like(teeth, 0.01)) for who, shift in shifts.items()}
    # The smaller of the two densities has a tail on either side of each of the 2N - 1 borders between the intervals.
    expected = 1 - (2 * count - 1) * 2 * stats.norm.sf(2.5) / count
    assert float(total_variation(**combs)) == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("seed", range(3))
def test_centred_mixtures_agree_with_their_own_module(seed):
    generator = stream(seed, "centred")
    variances = {who: torch.randn(4, generator=generator, dtype=DTYPE).exp() for who in ("outsider", "member")}
    mixtures = {who: GaussianMixture(torch.zeros_like(v), v) for who, v in variances.items()}
    assert float(total_variation(**mixtures)) == pytest.approx(
        float(gaussian_mixtures.total_variation(**variances)), abs=1e-8
    )


@few_examples
@given(seed=st.integers(0, 10**6), scale=st.floats(0.01, 100), shift=st.floats(-10, 10))
def test_the_distance_is_symmetric_and_forgets_units_origin_direction_and_order(seed, scale, shift):
    outsider, member = random_mixture(seed), random_mixture(seed + 1)
    distance = float(total_variation(member=member, outsider=outsider))
    moved = [
        GaussianMixture(-scale * law.means.flip(0) + shift, scale**2 * law.variances.flip(0))
        for law in (outsider, member)
    ]
    assert 0 <= distance <= 1
    assert distance == pytest.approx(float(total_variation(member=outsider, outsider=member)), abs=1e-12)
    assert distance == pytest.approx(float(total_variation(outsider=moved[0], member=moved[1])), abs=1e-7)


@few_examples
@given(seed=st.integers(0, 10**6), threshold=st.floats(-5, 5))
def test_no_threshold_beats_the_distance(seed, threshold):
    outsider, member = random_mixture(seed), random_mixture(seed + 1)
    rule = float((outsider.cdf(tensor(threshold)) - member.cdf(tensor(threshold))).abs())
    assert float(total_variation(member=member, outsider=outsider)) >= rule - 1e-9


def test_equal_laws_are_indistinguishable_and_distant_ones_are_not():
    law = random_mixture(2, atoms=30)
    turned = GaussianMixture(law.means.flip(0), law.variances.flip(0))
    assert float(total_variation(outsider=law, member=law)) == pytest.approx(0)
    assert float(total_variation(outsider=law, member=turned)) < 1e-12
    assert float(
        total_variation(outsider=law, member=GaussianMixture(law.means + 1000, law.variances))
    ) == pytest.approx(1, abs=1e-12)


def test_the_functions_of_a_mixture_with_means_are_those_of_its_components():
    law, y = GaussianMixture(tensor(-1.0, 2.0), tensor(0.25, 4.0)), tensor(-3.0, 0.0, 1.0)
    parts = stats.norm(-1, 0.5), stats.norm(2, 2)
    for ours, name in ((law.cdf, "cdf"), (law.density, "pdf")):
        torch.testing.assert_close(ours(y), torch.from_numpy(sum(getattr(part, name)(y) for part in parts) / 2))
    assert law.cdf(tensor(-math.inf, math.inf)).tolist() == [0, 1]
