"""Mixtures with means: the distance equals closed forms and integrals, wherever the densities cross."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from leakage import blocks
from leakage.runtime import DTYPE, stream
from leakage.theory import gaussian_mixtures, two_gaussians
from leakage.theory.gaussian_mixtures import GaussianMixture, total_variation

repeatable = settings(max_examples=20)


def tensor(*values):
    return torch.tensor(values, dtype=DTYPE)


def normal(mean, variance=1.0):
    return GaussianMixture(tensor(mean), tensor(variance))


def random_law(seed, *, batch=(), atoms=5, variance=0.1):
    generator = stream(seed, "mixture")
    means, scales = (torch.randn(*batch, atoms, generator=generator, dtype=DTYPE) for _ in range(2))
    return GaussianMixture(means, variance * scales.exp())


def integral(outsider, member):
    """The definition, by the trapezoidal rule."""
    y = torch.linspace(-12, 12, 60_001, dtype=DTYPE)
    return float(torch.trapezoid((outsider.density(y) - member.density(y)).abs(), y)) / 2


@pytest.mark.parametrize("half", [1e-3, 0.15, 0.3, 1.0, 1.25, 3.0, 8.0, 50.0])
@pytest.mark.parametrize("centre", [0.0, 7.3])
def test_shifted_gaussians_have_the_closed_form(half, centre):
    """Also where the crossing, half-way between them, is a point of the grid on which crossings are looked for."""
    distance = float(total_variation(outsider=normal(centre - half), member=normal(centre + half)))
    assert distance == pytest.approx(2 * stats.norm.cdf(half) - 1, abs=1e-9)


@repeatable
@given(outsider=st.floats(-4, 4), member=st.floats(-4, 4), mean=st.floats(-10, 10))
def test_gaussians_of_one_mean_have_the_closed_form(outsider, member, mean):
    variances = {"outsider": tensor(10**outsider), "member": tensor(10**member)}
    distance = float(total_variation(outsider=normal(mean, 10**outsider), member=normal(mean, 10**member)))
    # Quantiles a few hundredths of a deviation apart, refined by 8^5: errors far below this.
    assert distance == pytest.approx(float(two_gaussians.advantage(**variances)), abs=1e-8)


@pytest.mark.parametrize(("atoms", "variance"), [(1, 1.0), (5, 0.1), (40, 0.01), (100, 0.01)])
def test_the_distance_is_the_integral_of_the_density_difference(atoms, variance):
    outsider, member = (random_law(seed, atoms=atoms, variance=variance) for seed in (0, 1))
    # The trapezoidal rule has steps of 4e-4; the narrowest deviation here is about 0.02, sixty times as much.
    assert float(total_variation(member=member, outsider=outsider)) == pytest.approx(
        integral(outsider, member), abs=1e-5
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


@repeatable
@given(seed=st.integers(0, 10**6), scale=st.floats(0.01, 100), shift=st.floats(-10, 10))
def test_the_distance_is_symmetric_and_forgets_units_origin_direction_and_order(seed, scale, shift):
    outsider, member = random_law(seed), random_law(seed + 1)
    distance = float(total_variation(member=member, outsider=outsider))
    moved = [
        GaussianMixture(-scale * law.means.flip(0) + shift, scale**2 * law.variances.flip(0))
        for law in (outsider, member)
    ]
    assert 0 <= distance <= 1
    assert distance == pytest.approx(float(total_variation(member=outsider, outsider=member)), abs=1e-12)
    assert distance == pytest.approx(float(total_variation(outsider=moved[0], member=moved[1])), abs=1e-7)


@repeatable
@given(seed=st.integers(0, 10**6), threshold=st.floats(-5, 5))
def test_no_threshold_beats_the_distance(seed, threshold):
    outsider, member = random_law(seed), random_law(seed + 1)
    rule = float((outsider.cdf(tensor(threshold)) - member.cdf(tensor(threshold))).abs())
    assert float(total_variation(member=member, outsider=outsider)) >= rule - 1e-9


def test_equal_laws_are_indistinguishable_and_distant_ones_are_not():
    law = random_law(2, atoms=30)
    turned = GaussianMixture(law.means.flip(0), law.variances.flip(0))
    assert float(total_variation(outsider=law, member=law)) == pytest.approx(0)
    assert float(total_variation(outsider=law, member=turned)) < 1e-12
    assert float(
        total_variation(outsider=law, member=GaussianMixture(law.means + 1000, law.variances))
    ) == pytest.approx(1, abs=1e-12)


def test_distribution_function_and_density_are_those_of_the_mixture():
    law, y = GaussianMixture(tensor(-1.0, 2.0), tensor(0.25, 4.0)), tensor(-3.0, 0.0, 1.0)
    parts = stats.norm(-1, 0.5), stats.norm(2, 2)
    for ours, name in ((law.cdf, "cdf"), (law.density, "pdf")):
        torch.testing.assert_close(ours(y), torch.from_numpy(sum(getattr(part, name)(y) for part in parts) / 2))
    assert law.cdf(tensor(-math.inf, math.inf)).tolist() == [0, 1]


def test_laws_of_a_batch_are_compared_one_by_one():
    outsider, member = random_law(3, batch=(2, 3)), random_law(4, batch=(3,), atoms=2)
    table = total_variation(member=member, outsider=outsider)
    assert table.shape == (2, 3)
    for row in range(2):
        for column in range(3):
            one = GaussianMixture(outsider.means[row, column], outsider.variances[row, column])
            other = GaussianMixture(member.means[column], member.variances[column])
            assert float(table[row, column]) == pytest.approx(
                float(total_variation(outsider=one, member=other)), abs=1e-12
            )


@pytest.mark.parametrize("chunk", [1, 1000])
def test_evaluating_in_pieces_changes_nothing(chunk, monkeypatch):
    outsider, member = random_law(5, batch=(2,)), random_law(6)
    whole = total_variation(member=member, outsider=outsider)
    monkeypatch.setattr(blocks, "NUMBERS", chunk)
    assert torch.allclose(
        total_variation(member=member, outsider=outsider), whole, rtol=0, atol=1e-14
    )  # means may be summed otherwise


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_the_gpu_gives_the_same_distance():
    outsider, member = random_law(7, batch=(3,)), random_law(8, batch=(3,))
    there = [GaussianMixture(law.means.cuda(), law.variances.cuda()) for law in (outsider, member)]
    torch.testing.assert_close(
        total_variation(outsider=there[0], member=there[1]).cpu(),
        total_variation(member=member, outsider=outsider),
        rtol=0,
        atol=1e-9,
    )
