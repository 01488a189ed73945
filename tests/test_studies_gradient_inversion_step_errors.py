"""Steps of the attack err as the theory says: without bias, by the widths, and not at all where they are exact."""

import dataclasses

import pytest
import torch

from leakage.precision import DTYPE
from leakage.theory import hermite
from reproduced.studies.gradient_inversion.games import Game, draw_round
from reproduced.studies.gradient_inversion.step_errors import (
    ORDERS,
    SOURCES,
    estimate_moment,
    factor_errors,
    measure_deviations,
    measure_remainders,
)

CHAIN = Game(3, 2000, activation="tanh", inputs="chain", overlap=0.4, bias=1.0)


@pytest.mark.parametrize("name", ["polynomial", "tanh"])
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


def moment_error(played, basis, *, source="outputs", order=2):
    found, truth = estimate_moment(played, basis, source=source, order=order)
    return found - truth


def test_the_error_of_a_moment_is_what_it_misses_of_the_truth():
    played = draw_round(Game(3, 100_000, inputs="sphere"), seed=0)
    basis = torch.eye(3, dtype=DTYPE)
    for source in SOURCES:
        right = moment_error(played, basis, source=source)
        residuals = played.observation.predictions(played.inputs) - played.labels
        truth = 2 * (played.inputs.mT * residuals) @ played.inputs  # the polynomial has s2 = 2
        assert right.norm() < 0.2 * truth.norm()
        # Seen through one coordinate, the error is the entry of that coordinate.
        torch.testing.assert_close(moment_error(played, basis[:, :1], source=source), right[:1, :1])
        assert moment_error(played, basis, source=source, order=3).shape == (3, 3, 3)


def test_what_remains_falls_as_the_root_of_the_width():
    narrow, wide = (
        measure_remainders(Game(8, m, bias=0.0), labels=(-1, -1), rounds=12, seed=0) for m in (1000, 16_000)
    )
    for one, other in zip(narrow, wide, strict=True):
        # 12 norms on either side, each of them 20 to 30 % off
        assert float(one.mean() / other.mean()) == pytest.approx(4, rel=0.4)


def test_a_remainder_is_the_norm_of_the_error_itself():
    game = Game(5, 400, bias=0.0)
    found = measure_remainders(game, labels=(1, -1), rounds=1, seed=3)
    played, basis = draw_round(game, seed=3), torch.eye(5, dtype=DTYPE)
    assert float(found.matrix) == pytest.approx(
        float(torch.linalg.matrix_norm(moment_error(played, basis), 2)), rel=1e-12
    )
    cube = moment_error(played, basis[:, :2], order=3).flatten(1)  # the inputs are the first two axes
    assert float(found.tensor) == pytest.approx(float(torch.linalg.matrix_norm(cube, 2)), rel=1e-12)


def test_tensors_without_noise_are_taken_apart_exactly():
    found = factor_errors(batch=3, overlap=0.5, noise=0.0, rounds=2, seed=0)
    assert float(found["joint"].max()) < 1e-10
    noisy = factor_errors(batch=3, overlap=0.5, noise=0.05, rounds=2, seed=0)
    assert 1e-3 < float(noisy["joint"].mean()) < 0.5
