"""The GPU gives the numbers of the CPU, or draws from the same law."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import normalize

from containers import map_tensors
from leakage.data.gaussians import chi_square
from leakage.draws import gaussian
from leakage.metrics import roc
from leakage.metrics.roc import ks_test
from leakage.models.initialisation import initial
from leakage.precision import DTYPE
from leakage.theory import gaussian_mixtures, least_squares, ridge, two_gaussians
from leakage.theory.gaussian_mixtures import GaussianMixture, ScaleMixture
from leakage.theory.least_squares import Design, Query
from leakage.trainers import ensembles
from leakage.trainers.ensembles import Examples, ModuleEnsemble, Recipe
from leakage.trainers.min_norm import nested_min_norm
from planted import doubles
from reproduced.runtime import stream
from reproduced.statistics import histogram_advantage
from reproduced.studies.min_norm import latent_space, relu_features
from reproduced.studies.min_norm.cosine_regression import (
    Cosines,
    exact_outsider_variances,
    outsider_variances,
    training_times,
)
from reproduced.studies.min_norm.linear_regressions import ridge_predictions, trained_predictions
from reproduced.studies.min_norm.random_features import label_weights

DEVICE = "cuda"
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]
P_VALUE = 1e-4  # the seeds are fixed, and 40 laws are compared


def normal(*shape):
    return gaussian(shape, generator=stream(0, f"gpu {shape}"))


def move(value: Any, device: str) -> Any:
    return map_tensors(value, lambda tensor: tensor.to(device))


def one_step(stack, examples, rows):
    """With the whole batch, so that the shuffle, which is another on a GPU, does not matter."""
    generator, networks = stream(0, "shuffles"), ModuleEnsemble(FORM.to("meta"), stack)
    return ensembles.train(networks, examples, rows, Recipe(1, 20), generator=generator).compute_losses(examples)


FORM = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3))
STACK = initial(FORM, 2, generator=stream(0, "networks"), dtype=DTYPE)
FIGURE, WIDE, WIDTHS = Design(100, 3000), Design(1000, 10**7), [105, 400]
POINTS = Query.draw(FIGURE, WIDTHS, count=3, generator=stream(0, "points"))
COSINES, ASKED = Cosines.band_limited(10, 32, 24, signal=32), torch.tensor([0, 5, 20])
TIMES = dict(times=training_times(COSINES, ASKED, trials=20, generator=stream(0, "times")), query_times=ASKED)
LAW, OTHER = ScaleMixture(normal(6).exp()), ScaleMixture(normal(4, 2).exp(), torch.full((4, 2), 0.5, dtype=DTYPE))
# A function and what moves to the GPU.
NUMBERS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "histograms": (histogram_advantage, dict(member=normal(3, 1000), outsider=2 * normal(3, 900))),
    "AUC": (
        lambda **scores: torch.tensor(roc.auc(**scores).estimate, device=scores["member"].device),
        dict(member=0.5 + normal(2000), outsider=normal(1900)),
    ),
    "two Gaussians": (
        lambda **laws: (two_gaussians.advantage(**laws), two_gaussians.power(**laws, fpr=0.01)),
        dict(outsider=doubles(0.1, 1.0, 1.0, 9.0), member=doubles(1.0, 1.0, torch.inf, 1.0)),
    ),
    "mixtures": (
        lambda **laws: (gaussian_mixtures.total_variation(**laws), gaussian_mixtures.power(**laws, fpr=0.01)),
        dict(outsider=OTHER, member=LAW),
    ),
    "mixtures with means": (
        gaussian_mixtures.total_variation,
        {
            who: GaussianMixture(normal(3, n), normal(n).exp().expand(3, n))
            for who, n in (("member", 4), ("outsider", 5))
        },
    ),
    "likelihood ratios": (
        gaussian_mixtures.log_likelihood_ratio,
        dict(predictions=normal(500), outsider=LAW, member=ScaleMixture(normal(7).exp())),
    ),
    "least squares": (partial(least_squares.advantage, FIGURE), dict(p=FIGURE.widths(WIDTHS), query=POINTS)),
    "finite laws": (
        lambda query: least_squares.total_variations(FIGURE, WIDTHS, query, nodes=(6, 16, 2)),
        dict(query=POINTS),
    ),
    "ridge": (
        partial(ridge.limit_variances, WIDE),
        dict(p=WIDE.widths([500, 3000]), penalty=doubles(0.1, 2.0), query=Query.typical(WIDE, [500, 3000])),
    ),
    "ridge predictions": (
        partial(ridge_predictions, penalties=[0.1, 3.0, 1e6]),
        dict(features=normal(5, 8, 30), labels=normal(5, 8), query=normal(5, 30)),
    ),
    "nested fits": (
        partial(nested_min_norm, widths=[1, 7, 8, 30]),
        dict(features=normal(3, 8, 30), labels=normal(3, 8), queries=normal(3, 2, 30)),
    ),
    "an ensemble": (
        one_step,
        dict(
            stack=STACK,
            examples=Examples((normal(30, 1, 4, 4),), torch.arange(30) % 3),
            rows=torch.stack([torch.arange(20), torch.arange(10, 30)]),
        ),
    ),
    "cosines": (partial(outsider_variances, COSINES), TIMES),
    "released cosines": (partial(exact_outsider_variances, Cosines.released(10, 32, 12)), TIMES),
}
QUERY = dict(query=Query(*doubles(15.0, 14.0)))
# The draws of one law a row.
DRAWS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "chi-squares": (
        lambda dof, generator: chi_square(dof, (20_000, 2), generator=generator).mT,
        dict(dof=doubles(1, 7)),
    ),
    "outsiders": (partial(least_squares.sample_outsider, FIGURE, 100, trials=20_000), dict(query=POINTS.at_width(0))),
    "members": (partial(least_squares.sample_member, FIGURE, 60, trials=20_000), dict(query=POINTS.at_width(0))),
    "outsiders of ridge": (partial(ridge.sample_outsider, Design(10, 30), 16, 0.5, trials=10_000), QUERY),
    "members of ridge": (partial(ridge.sample_member, Design(10, 30), 16, 0.5, trials=10_000), QUERY),
    "trained models": (
        lambda **how: trained_predictions(Design(6, 30), widths=[3, 20], trials=2000, member=False, **how).mT,
        dict(point=normal(30)),
    ),
    "random features": (
        lambda **how: label_weights(query=3, rows=6, widths=[20], designs=2000, member=False, **how).weights[:, 0, 0],
        dict(inputs=normal(14, 9)),
    ),
}
LATENT, RELU = latent_space.LatentSpace(16, 3, sigma=0.7), Design(12, 40, 0.8)
for who in ("outsider", "member"):
    for p in (8, 16, 40):
        draw = partial(getattr(latent_space, f"{who}_variances"), LATENT, trials=3000)
        DRAWS[f"{who}s of latent space, {p}"] = draw, dict(latent=normal(3), directions=normalize(normal(p, 3), dim=-1))
    for query in relu_features.QUERIES:
        draw = partial(
            getattr(relu_features, f"{who}_variances"), RELU, widths=[5, 9, 13, 24], query=query, trials=2500
        )
        DRAWS[f"{who}s of ReLU features, {query}"] = draw, dict(norms=torch.tensor(40.0, dtype=DTYPE))


@pytest.mark.parametrize("name", NUMBERS)
def test_the_gpu_gives_the_same_numbers(name):
    function, given = NUMBERS[name]
    found = function(**move(given, DEVICE))
    assert {part.device.type for part in (found if isinstance(found, tuple) else (found,))} == {DEVICE}
    # Sums in another order, times the condition numbers of designs close to the interpolation threshold.
    torch.testing.assert_close(move(found, "cpu"), function(**given), rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("name", DRAWS)
def test_the_gpu_draws_from_the_same_law(name):
    function, given = DRAWS[name]
    near = function(**given, generator=stream(0, name))
    far = function(**move(given, DEVICE), generator=stream(0, name))
    assert far.device.type == DEVICE
    for ours, expected in zip(torch.atleast_2d(far.cpu()), torch.atleast_2d(near), strict=True):
        # Where a member's model interpolates, all variances are one number.
        assert ks_test(ours, expected).p_value > P_VALUE or torch.allclose(ours, expected, rtol=1e-6)
