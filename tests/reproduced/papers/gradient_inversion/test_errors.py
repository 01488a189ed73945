"""Errors of the attack and of its steps follow their laws; what is exact errs by rounding only."""

import dataclasses
import math

import pytest
import torch

from leakage.draws import gaussian
from leakage.inversion import hermite
from leakage.inversion.activations import activation
from leakage.inversion.hermite import moment
from leakage.inversion.moments import from_hidden, from_outputs
from leakage.inversion.span import from_moments
from leakage.precision import DTYPE
from planted import doubles, draw_batch
from reproduced.papers.gradient_inversion import image_pairs
from reproduced.papers.gradient_inversion.deep_stacks import (
    long_arithmetic_errors,
    stack_errors,
    two_layer_gaps,
)
from reproduced.papers.gradient_inversion.error_laws import (
    contracted_tilt,
    hidden_tilt,
    largest_residual,
    outputs_tilt,
    span_error,
    tilt_error,
)
from reproduced.papers.gradient_inversion.games import Game, weight_ratio
from reproduced.papers.gradient_inversion.step_errors import (
    ORDERS,
    SOURCES,
    factor_errors,
    measure_asymmetry,
    measure_deviations,
    measure_remainders,
    measure_span,
    projection_errors,
    unequal_weight_errors,
)
from reproduced.runtime import Run, stream

# ── laws of the error ────────────────────────────────────────────────────────────────────────────────────────────────


POLYNOMIAL, TANH = activation("polynomial"), activation("tanh")
RUN = Run("smoke", 0, torch.device("cpu"))


def test_the_error_is_the_distance_of_unit_vectors():
    tilt = doubles(0.0, 0.3, 1.0, 1e9)
    other = torch.stack([torch.ones_like(tilt), tilt]) / (1 + tilt.square()).sqrt()
    torch.testing.assert_close(tilt_error(tilt), (other - doubles(1, 0)[:, None]).norm(dim=0))


def test_the_span_error_is_what_lies_outside():
    basis = torch.eye(3, 2, dtype=DTYPE)
    assert span_error(basis, doubles([5.0, 1.0, 3.0], [0.0, 2.0, -4.0])) == pytest.approx(math.sqrt((9 + 16) / 2))


def test_the_tilts_of_a_polynomial_are_those_computed_by_hand():
    d, m = doubles(10, 40), doubles(5000, 1000)
    # σ = u² + u³: E σ²u² = 120, E σu² = 3, E σ = 1, E σ² = 18, E σ'² = 31, E σ' = 3, s2 = 2, s1 = 3.
    by_hand = ((120 + 2 * 3 + 18) * (d - 2) / m).sqrt() / 2
    torch.testing.assert_close(outputs_tilt(POLYNOMIAL, d, m, batch=2), by_hand)
    by_hand = ((120 + 4 * 3 + 2 * 18 + 2) * (d - 3) / m).sqrt() / 2
    torch.testing.assert_close(outputs_tilt(POLYNOMIAL, d, m, batch=3), by_hand)
    torch.testing.assert_close(hidden_tilt(POLYNOMIAL, d, m, batch=2), (31 * (d - 2) / m).sqrt() / 4)


@pytest.mark.parametrize(("name", "largest", "ratio"), [("tanh", 1.0, 3.0), ("polynomial", 2.0, 1.5)])
def test_twice_the_largest_residual_as_bias_keeps_weights_within_three(name, largest, ratio):
    found = largest_residual(activation(name))  # E tanh = 0, E (u² + u³) = 1
    assert found == pytest.approx(largest)
    assert weight_ratio(activation(name), bias=2 * found) == pytest.approx(ratio)


def test_clipped_noise_leaves_a_floor_that_no_width_removes():
    floor = outputs_tilt(POLYNOMIAL, doubles(50), doubles(math.inf), batch=2, noise=0.03)
    assert floor == pytest.approx(0.03 * math.sqrt(38 * 48) / 2)  # E (σ + σ)² = 2·18 + 2
    wide, clean = (outputs_tilt(POLYNOMIAL, doubles(50), doubles(1e9), batch=2, noise=z) for z in (0.03, 0.0))
    torch.testing.assert_close(wide, floor, rtol=1e-3, atol=0)
    assert clean < 1e-2 * floor


def test_tilts_fall_as_the_root_of_the_width_and_broadcast():
    for law, function in ((outputs_tilt, POLYNOMIAL), (hidden_tilt, POLYNOMIAL)):
        found = law(function, torch.tensor([[10], [90]]), doubles(1000, 4000), batch=2)
        assert found.shape == (2, 2)
        torch.testing.assert_close(found[:, 0], 2 * found[:, 1])
        torch.testing.assert_close(found[1], found[0] * math.sqrt(88 / 8))


@pytest.mark.parametrize(
    ("law", "moments", "name", "d", "m", "centre"),
    [
        (outputs_tilt, from_outputs, "polynomial", 20, 20_000, False),
        (hidden_tilt, from_hidden, "polynomial", 40, 4000, False),
        (hidden_tilt, from_hidden, "softplus", 20, 8000, False),
        # Without s0 + s1 u, u² - 1 + u³ - 3u is left: mean 0, E σ̃² = 2 + 6, E σ̃²u² = 10 + 42; the variance of σ' is 22.
        (lambda sigma, d, m, batch: (60 * (d - 2) / m).sqrt() / 2, from_outputs, "polynomial", 20, 20_000, True),
        (lambda sigma, d, m, batch: (22 * (d - 2) / m).sqrt() / 4, from_hidden, "polynomial", 40, 4000, True),
    ],
)
def test_simulated_spans_turn_by_the_tilt(law, moments, name, d, m, centre):
    sines = []
    for seed in range(8):
        batch = draw_batch(name, 2, d, m, seed=seed, bias=30.0, orthonormal=True)
        found = moments(batch.observation, centre=centre)
        route = from_moments(found, batch=2, order=2, generator=stream(seed, "start"))
        sines.append(float(span_error(route.basis, batch.inputs)))
    expected = float(law(activation(name), doubles(d), doubles(m), batch=2).atan().sin())
    assert expected < 0.5
    # First order in the tilt; 8 runs with about 2 (d - 2) directions each scatter by 3 to 6 %.
    assert math.sqrt(sum(sine**2 for sine in sines) / len(sines)) == pytest.approx(expected, rel=0.2)


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_the_contracted_tilt_has_the_mean_of_its_square_in_closed_form(batch):
    u = gaussian((400_000, batch), generator=stream(batch, "normal"))
    _, slopes = TANH.derivatives(u, order=1)
    mean = (slopes[:, 0] * u.sum(-1) + u[:, 0] * slopes.sum(-1)).square().mean()
    expected = ((100 - batch) * mean / (9 * 5000)).sqrt() / moment(TANH, doubles(1.0)[0], order=3).abs()
    # 400,000 draws know a mean of fourth powers to half a per cent
    torch.testing.assert_close(
        contracted_tilt(TANH, doubles(100), doubles(5000), batch=batch)[0], expected, rtol=0.01, atol=0
    )


def test_simulated_spans_turn_by_the_contracted_tilt_which_grows_with_the_batch():
    sizes, found, expected = (1, 4), [], []
    for size in sizes:
        sines = []
        for seed in range(8):
            batch = draw_batch("tanh", size, 60, 12_000, seed=seed, bias=30.0, orthonormal=True)
            estimates = from_hidden(batch.observation, centre=False)
            route = from_moments(estimates, batch=size, order=3, generator=stream(seed, "start"))
            sines.append(float(span_error(route.basis, batch.inputs)))
        found.append(math.sqrt(sum(sine**2 for sine in sines) / len(sines)))
        expected.append(float(contracted_tilt(TANH, doubles(60), doubles(12_000), batch=size).atan().sin()))
    assert found == pytest.approx(expected, rel=0.2)  # as above
    assert found[1] > 3 * found[0]


# ── steps of the attack ──────────────────────────────────────────────────────────────────────────────────────────────


CHAIN = Game(3, 2000, activation="tanh", inputs="chain", overlap=0.4, bias=1.0)


@pytest.mark.parametrize("name", ["polynomial", "tanh", "relu", "elu"])
def test_no_entry_of_a_moment_is_biased(name):
    found = measure_deviations(dataclasses.replace(CHAIN, activation=name), rounds=30, seed=0)
    assert found.entries == (6, 10, 15)
    assert int(found.biased.sum()) == 0
    assert (
        float(found.values.max()) < 5
    )  # of some 70 entries, with 29 degrees of freedom: a t of 5 is 1 in 1000 for them all


def test_a_wrong_coefficient_is_noticed(monkeypatch):
    right = hermite.moment
    monkeypatch.setattr(hermite, "moment", lambda *a, **k: 1.2 * right(*a, **k))
    found = measure_deviations(dataclasses.replace(CHAIN, width=20_000), rounds=10, seed=0)
    hidden, third = list(SOURCES).index("hidden"), ORDERS.index(3)
    assert float(found.values[hidden, third]) > 8
    assert int(found.biased[hidden, third]) > 0
    assert float(found.sizes[hidden, third].mean()) == pytest.approx(1 / 1.2, rel=0.03)  # ten draws, each 2 % off


def test_what_remains_falls_as_the_root_of_the_width():
    narrow, wide = (
        measure_remainders(Game(8, m, bias=0.0), labels=(-1, -1), rounds=12, seed=0) for m in (1000, 16_000)
    )
    for one, other in zip(narrow, wide, strict=True):  # of orders 1, 2 and 3
        # 12 norms on either side, each of them 20 to 30 % off
        assert float(one.mean() / other.mean()) == pytest.approx(4, rel=0.4)


def test_tensors_without_noise_are_taken_apart_exactly():
    found = factor_errors(batch=3, overlap=0.5, noise=0.0, rounds=2, seed=0)
    assert float(found["joint"].max()) < 1e-10
    noisy = factor_errors(batch=3, overlap=0.5, noise=0.05, rounds=2, seed=0)
    assert 1e-3 < float(noisy["joint"].mean()) < 0.5


def test_a_one_sided_tensor_is_nearer_to_symmetry_in_wider_networks():
    narrow, wide = (measure_asymmetry(Game(4, m, inputs="sphere"), rounds=4, seed=0) for m in (500, 50_000))
    # the mean of four, each some 20 % off, falls as the root of the width
    assert float(narrow.mean() / wide.mean()) == pytest.approx(10, rel=0.5)


def test_the_first_moment_shows_the_span_better_than_a_fixed_direction():
    game = Game(40, 20_000, activation="tanh", bias=3.0)
    mean, ones = (measure_span(game, direction=how, rounds=4, seed=0) for how in ("mean", "ones"))
    assert float(mean.max()) < 0.2
    assert float((ones / mean).min()) > 1.5


def test_many_projections_are_as_good_as_all_slices():
    options = dict(batch=4, overlap=0.5, rounds=6, seed=0)
    clean = projection_errors(noise=0.0, projections=(2, None), **options)
    assert float(torch.cat([*clean.values()]).max()) < 1e-10  # two are enough without noise
    noisy = projection_errors(noise=0.2, projections=(2000, None), **options)
    torch.testing.assert_close(noisy[2000], noisy[None], rtol=0.05, atol=0)


def test_the_error_of_one_component_is_that_of_its_noise_alone():
    """One by one the tensor is a number, which has no direction to err in; two have, and heavier ones err less."""
    options = dict(overlap=0.0, noise=0.01, rounds=6, seed=0)
    assert float(unequal_weight_errors(batch=1, ratios=(1,), **options).max()) < 1e-14
    even, heavy = unequal_weight_errors(batch=2, ratios=(1, 100), **options)
    assert 1e-4 < float(even.mean()) < 0.03
    assert float(heavy.mean()) < 1.1 * float(even.mean())


# ── stacks of layers ─────────────────────────────────────────────────────────────────────────────────────────────────


def stack(name, *, depth, kind):
    return stack_errors(Game(12, 300, activation=name, inputs="sphere"), depth=depth, kind=kind, rounds=2, run=RUN)


def test_relu_pairs_change_nothing():
    two, four = (stack("relu", depth=depth, kind="paired") for depth in (2, 4))
    assert float(torch.cat([two.recovered, four.recovered]).max()) < 1e-10
    torch.testing.assert_close(two.by_moments, four.by_moments)  # the features are the inputs, to rounding
    assert bool(two.searched.isnan().all())


@pytest.mark.parametrize(("name", "equal"), [("relu", True), ("leaky_relu", True), ("sigmoid", False)])
def test_pairs_of_homogeneous_layers_leave_the_gradient_of_two_layers(name, equal):
    game = Game(12, 60, activation=name, inputs="sphere")
    found = torch.cat([two_layer_gaps(game, depth=depth, rounds=2, seed=0) for depth in (2, 5)])
    assert bool((found < 1e-13).all()) is equal
    assert bool((found > 1e-6).all()) is not equal


def test_tanh_is_inverted_and_its_length_is_found():
    found = stack("tanh", depth=3, kind="plain")
    assert float(torch.cat([found.recovered, found.searched]).max()) < 1e-8
    assert bool(found.by_moments.isnan().all())


def test_sigmoid_pairs_need_no_search():
    found = stack("sigmoid", depth=3, kind="paired")
    assert float(found.recovered.max()) < 1e-8
    assert bool(found.searched.isnan().all())


def in_digits(depth, **options):
    return float(long_arithmetic_errors(dimension=10, depth=depth, rounds=2, seed=0, **options).max())


@pytest.mark.parametrize("depth", [2, 6])
def test_inputs_come_back_to_many_digits(depth):
    assert in_digits(depth) < 1e-30


def test_double_precision_holds_less_the_deeper_it_is():
    shallow, deep = (in_digits(depth, rounded=True) for depth in (2, 5))
    assert shallow < 1e-11
    assert 100 * shallow < deep < 1e-4


# ── pairs of images ──────────────────────────────────────────────────────────────────────────────────────────────────


CLASSES = torch.arange(40) % 4
PIXELS = torch.rand((40, 30), generator=stream(0, "pixels"), dtype=DTYPE)


def test_pairs_are_of_one_class_and_of_two_in_turn():
    found = image_pairs.draw_pairs(PIXELS, CLASSES, pairs=8, seed=0)
    unit = torch.nn.functional.normalize(PIXELS, dim=-1)
    places = (found.inputs @ unit.mT).argmax(-1)
    torch.testing.assert_close(unit[places], found.inputs)
    assert (places[:, 0] != places[:, 1]).all()
    same = CLASSES[places[:, 0]] == CLASSES[places[:, 1]]
    assert same.tolist() == [True, False] * 4
    assert found.labels.tolist() == [[1, 1], [1, -1]] * 4
    assert not torch.allclose(found.inputs, image_pairs.draw_pairs(PIXELS, CLASSES, pairs=8, seed=1).inputs)


def test_the_sum_answers_two_axes_with_its_own_error_and_the_exact_recovery_with_none():
    axes = image_pairs.Pairs(torch.eye(2, 20, dtype=DTYPE)[None], torch.tensor([[1.0, -1.0]], dtype=DTYPE))
    found = image_pairs.attack_pairs(axes, width=20_000, run=RUN)
    # Each axis is at half a right angle from the sum; residuals of 29 and 31 and the width move it by some percent.
    assert float(found.errors["sum"]) == pytest.approx(math.sqrt(2 - math.sqrt(2)), rel=0.05)
    assert float(found.errors["hidden"]) < 0.1 < float(found.errors["outputs"]) < 0.6
    assert float(found.errors["exact"]) < 1e-9
    torch.testing.assert_close(found.images["exact"], axes.inputs)
    outside = found.rows[..., 2:].abs().max() / found.rows.abs().max()
    assert float(outside) < 1e-12  # every row is a combination of the inputs
