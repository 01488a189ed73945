"""The laws of the error are the closed forms where those are known, and what simulated gradients show."""

import math

import pytest
import torch

from gradient_batches import draw
from leakage.attacks.gradient_inversion.moments import from_hidden, from_outputs
from leakage.attacks.gradient_inversion.span import from_moments
from leakage.data.gaussians import gaussian
from leakage.models.activations import activation
from leakage.precision import DTYPE
from leakage.theory.hermite import moment
from reproduced.runtime import stream
from reproduced.studies.gradient_inversion.error_laws import (
    contracted_tilt,
    hidden_tilt,
    outputs_tilt,
    span_error,
    tilt_error,
)

POLYNOMIAL, TANH = activation("polynomial"), activation("tanh")


def of(*values):
    return torch.tensor(values, dtype=DTYPE)


def test_the_error_is_the_distance_of_unit_vectors():
    tilt = of(0.0, 0.3, 1.0, 1e9)
    other = torch.stack([torch.ones_like(tilt), tilt]) / (1 + tilt.square()).sqrt()
    torch.testing.assert_close(tilt_error(tilt), (other - of(1, 0)[:, None]).norm(dim=0))


def test_the_span_error_is_what_lies_outside():
    basis = torch.eye(3, 2, dtype=DTYPE)
    assert span_error(basis, of([5.0, 1.0, 3.0], [0.0, 2.0, -4.0])) == pytest.approx(math.sqrt((9 + 16) / 2))


def test_the_tilts_of_a_polynomial_are_those_computed_by_hand():
    d, m = of(10, 40), of(5000, 1000)
    # σ = u² + u³: E σ²u² = 120, E σu² = 3, E σ = 1, E σ² = 18, E σ'² = 31, E σ' = 3, s2 = 2, s1 = 3.
    by_hand = ((120 + 2 * 3 + 18) * (d - 2) / m).sqrt() / 2
    torch.testing.assert_close(outputs_tilt(POLYNOMIAL, d, m, batch=2), by_hand)
    by_hand = ((120 + 4 * 3 + 2 * 18 + 2) * (d - 3) / m).sqrt() / 2
    torch.testing.assert_close(outputs_tilt(POLYNOMIAL, d, m, batch=3), by_hand)
    torch.testing.assert_close(hidden_tilt(POLYNOMIAL, d, m, batch=2), (31 * (d - 2) / m).sqrt() / 4)
    torch.testing.assert_close(hidden_tilt(POLYNOMIAL, d, m, batch=5, centre=True), (22 * (d - 5) / m).sqrt() / 4)
    # Without s0 + s1 u, u² - 1 + u³ - 3u is left: mean 0, E σ̃² = 2 + 6, E σ̃²u² = 10 + 42.
    by_hand = ((52 + 8) * (d - 2) / m).sqrt() / 2
    torch.testing.assert_close(outputs_tilt(POLYNOMIAL, d, m, batch=2, centre=True), by_hand)


def test_clipped_noise_leaves_a_floor_that_no_width_removes():
    floor = outputs_tilt(POLYNOMIAL, of(50), of(math.inf), batch=2, noise=0.03)
    assert floor == pytest.approx(0.03 * math.sqrt(38 * 48) / 2)  # E (σ + σ)² = 2·18 + 2
    wide, clean = (outputs_tilt(POLYNOMIAL, of(50), of(1e9), batch=2, noise=z) for z in (0.03, 0.0))
    torch.testing.assert_close(wide, floor, rtol=1e-3, atol=0)
    assert clean < 1e-2 * floor


def test_noise_and_sampling_add_as_variances():
    arguments = POLYNOMIAL, of(50), of(4000)
    both, clean = (outputs_tilt(*arguments, batch=2, noise=z) for z in (0.02, 0.0))
    floor = outputs_tilt(POLYNOMIAL, of(50), of(math.inf), batch=2, noise=0.02)
    torch.testing.assert_close(both.square(), clean.square() + floor.square())


def test_tilts_fall_as_the_root_of_the_width_and_broadcast():
    for law, function in ((outputs_tilt, POLYNOMIAL), (hidden_tilt, POLYNOMIAL)):
        found = law(function, torch.tensor([[10], [90]]), of(1000, 4000), batch=2)
        assert found.shape == (2, 2)
        torch.testing.assert_close(found[:, 0], 2 * found[:, 1])
        torch.testing.assert_close(found[1], found[0] * math.sqrt(88 / 8))


@pytest.mark.parametrize("centre", [True, False])
@pytest.mark.parametrize(
    ("law", "moments", "name", "order", "d", "m"),
    [
        (outputs_tilt, from_outputs, "polynomial", 2, 20, 20_000),
        (hidden_tilt, from_hidden, "polynomial", 2, 40, 4000),
        (hidden_tilt, from_hidden, "softplus", 2, 20, 8000),
    ],
)
def test_simulated_spans_turn_by_the_tilt(law, moments, name, order, d, m, centre):
    sines = []
    for seed in range(8):
        batch = draw(name, 2, d, m, seed=seed, bias=30.0, orthonormal=True)
        found = moments(batch.observation, centre=centre)
        route = from_moments(found, batch=2, order=order, generator=stream(seed, "start"))
        sines.append(float(span_error(route.basis, batch.inputs)))
    expected = float(law(activation(name), of(d), of(m), batch=2, centre=centre).atan().sin())
    assert expected < 0.5
    # First order in the tilt; 8 runs with about 2 (d - 2) directions each scatter by 3 to 6 %.
    assert math.sqrt(sum(sine**2 for sine in sines) / len(sines)) == pytest.approx(expected, rel=0.2)


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_the_contracted_tilt_has_the_mean_of_its_square_in_closed_form(batch):
    u = gaussian((400_000, batch), generator=stream(batch, "normal"))
    _, slopes = TANH.derivatives(u, order=1)
    mean = (slopes[:, 0] * u.sum(-1) + u[:, 0] * slopes.sum(-1)).square().mean()
    expected = ((100 - batch) * mean / (9 * 5000)).sqrt() / moment(TANH, of(1.0)[0], order=3).abs()
    # 400,000 draws know a mean of fourth powers to half a per cent
    torch.testing.assert_close(contracted_tilt(TANH, of(100), of(5000), batch=batch)[0], expected, rtol=0.01, atol=0)


def test_simulated_spans_turn_by_the_contracted_tilt_which_grows_with_the_batch():
    sizes, found, expected = (1, 4), [], []
    for size in sizes:
        sines = []
        for seed in range(8):
            batch = draw("tanh", size, 60, 12_000, seed=seed, bias=30.0, orthonormal=True)
            estimates = from_hidden(batch.observation, centre=False)
            route = from_moments(estimates, batch=size, order=3, generator=stream(seed, "start"))
            sines.append(float(span_error(route.basis, batch.inputs)))
        found.append(math.sqrt(sum(sine**2 for sine in sines) / len(sines)))
        expected.append(float(contracted_tilt(TANH, of(60), of(12_000), batch=size).atan().sin()))
    assert found == pytest.approx(expected, rel=0.2)  # as above
    assert found[1] > 3 * found[0]
