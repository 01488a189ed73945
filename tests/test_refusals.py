"""What no function can compute is refused by the name of the argument, never by an error from deep inside.

One table: functions with arguments that fit, each of which is then spoilt in every way that a caller might.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch

from leakage.attacks.membership import (
    boundary_distance,
    hyperedges,
    label_only,
    loss_threshold,
    posterior,
    shadow_models,
)
from leakage.attacks.membership.calibration import calibrated
from leakage.data.membership_splits import complementary_pairs
from leakage.geometry import boundary, distances, patterns, rays, subdivision
from leakage.metrics import estimates, histograms, roc, scores, trends
from leakage.models import mlp
from leakage.runtime import stream
from leakage.theory import gaussian_mixture, least_squares, ridge, ridge_law, scale_mixture, two_gaussians
from leakage.theory.logistic import output_law, prox, threshold_attacks
from leakage.trainers import dp_sgd, logistic_regression, min_norm, svm

DRAWS = stream(0, "refusals")


def some(*shape: int) -> torch.Tensor:
    return torch.rand(shape, generator=DRAWS, dtype=torch.float64) + 0.5


def classes(*shape: int) -> torch.Tensor:
    return torch.randint(0, 2, shape, generator=DRAWS)


def spd(n: int) -> torch.Tensor:
    rows = some(n, n + 2)
    return rows @ rows.mT + torch.eye(n, dtype=torch.float64)


PAIRS = complementary_pairs(10, 6, generator=DRAWS)
NETWORK = mlp.initial((), (3, 5, 4, 2), generator=DRAWS)
FLAT = mlp.initial((), (2, 5, 2), generator=DRAWS)
PRIVATE = mlp.initial((2, 3), (3, 4, 2), generator=DRAWS)
UNIT = torch.nn.functional.normalize(some(4, 3), dim=-1)
SQUARE = torch.tensor([[0, 0], [1, 0], [1, 1], [0, 1]], dtype=torch.float64)
FINE = subdivision.subdivide(FLAT, SQUARE)
DESIGN = least_squares.Design(6, 12)
QUERY = least_squares.Query(some(2), some(2))
LAW = output_law.OutputLaw(some(1), some(1), some(1), some(1))


class Case(NamedTuple):
    """A function, the tensors that it is given by name, and the spoils that it may well live with."""

    call: Callable[..., Any]
    tensors: dict[str, torch.Tensor]
    takes: list[str]


def case(call: Callable[..., Any], takes: str = "", **tensors: torch.Tensor) -> Case:
    return Case(call, tensors, takes.split(", "))


LOSSES = dict(losses=some(6, 10), member=PAIRS.member, partner=PAIRS.partner)
RAYS = dict(points=some(4, 3), directions=UNIT)
CASES = {
    "auc": case(roc.auc, "whole, single", member=some(5), outsider=some(6)),
    "evaluate": case(partial(roc.evaluate, threshold=0.5), "whole, single", member=some(5), outsider=some(6)),
    "best_advantage": case(roc.best_advantage, "whole, single", member=some(5), outsider=some(6)),
    "roc": case(roc.curve, "whole, single", member=some(5), outsider=some(6)),
    "tpr_at_fpr": case(partial(roc.tpr_at_fpr, fpr=0.5), "whole, single", member=some(5), outsider=some(6)),
    "calibrate": case(roc.calibrate_threshold, "whole, single", member=some(5), outsider=some(6)),
    "ks_test": case(roc.ks_test, "whole, single", sample_a=some(5), sample_b=some(6)),
    "mean": case(estimates.mean_interval, "whole, single", values=some(5)),
    "means": case(estimates.difference_of_means, "whole, single", first=some(5), second=some(6)),
    "histograms": case(histograms.histogram_advantage, "whole, single, ranked", member=some(50), outsider=some(60)),
    "slope": case(trends.slope, "whole, single", x=some(5), y=some(5)),
    "correlation": case(trends.rank_correlation, "whole, single", x=some(5), y=some(5)),
    "global": case(loss_threshold.global_scores, "single, ranked", **LOSSES),
    "sample": case(loss_threshold.sample_scores, "single, ranked", **LOSSES),
    "lira": case(shadow_models.lira, "single, ranked", **LOSSES),
    "rmia": case(shadow_models.rmia, "single, ranked", **LOSSES),
    "rates": case(
        partial(scores.rates, fprs=(0.5,)), "scores whole, single, ranked", scores=some(6, 10), member=PAIRS.member
    ),
    "apart": case(scores.apart, "whole, single, bytes", member=some(3, 5), outsider=some(3, 6)),
    "crossing": case(partial(trends.at_crossing, target=0.5), "single", level=some(4), value=some(4)),
    "calibrated": case(calibrated, "single", scores=some(6, 10), member=PAIRS.member),
    "advantage": case(two_gaussians.advantage, "single, ranked, empty, infinite", outsider=some(3), member=some(3)),
    "power": case(
        partial(two_gaussians.power, fpr=0.1), "single, ranked, empty, infinite", outsider=some(3), member=some(3)
    ),
    "scale mixture": case(scale_mixture.ScaleMixture, "single, ranked", variances=some(3)),
    "total variation": case(
        lambda variances: scale_mixture.total_variation(outsider=variances, member=some(4)),
        "single, ranked",
        variances=some(3),
    ),
    "mixture": case(gaussian_mixture.GaussianMixture, "ranked", means=some(3), variances=some(3)),
    "query": case(least_squares.Query, "single, empty", used=some(3), unused=some(3)),
    "noise": case(
        lambda noise: least_squares.noise_advantage(DESIGN, noise, QUERY, on_members=True),
        "single, ranked, empty",
        noise=some(2),
    ),
    "penalties": case(
        lambda penalty: ridge.limit_variances(DESIGN, 6, penalty, QUERY),
        "whole, single, ranked, empty",
        penalty=some(2),
    ),
    "resolvent": case(
        lambda mu: ridge_law.sample_resolvent(4, 3, mu, trials=2, generator=stream(0, "mu")),
        "single, ranked",
        mu=some(2),
    ),
    "silent": case(
        partial(ridge.silent_penalty, sigma=1.0), "single, ranked, empty, infinite", gamma=some(2), psi=some(2)
    ),
    "prox": case(prox.prox, "single, ranked, empty, decimal", output=some(3), gamma=some(3), label=classes(3)),
    "sample attack": case(
        lambda teacher, label: output_law.sample_attack(LAW, teacher=teacher, label=label),
        "single, ranked, empty, decimal",
        teacher=some(1),
        label=classes(1),
    ),
    "thresholds": case(partial(threshold_attacks.threshold_rates, LAW), "single, ranked, empty", threshold=some(1)),
    "logistic": case(
        partial(logistic_regression.fit, ridge=0.1), "single, decimal", gram=spd(4), labels=torch.tensor([0, 1, 0, 1])
    ),
    "hard margin": case(svm.hard_margin, "single, decimal", gram=spd(4), labels=torch.tensor([1, -1, 1, -1])),
    "soft margin": case(svm.soft_margin, "single, decimal", gram=spd(4), labels=torch.tensor([1, -1, 1, -1])),
    "min norm": case(
        partial(min_norm.nested_min_norm, widths=[2, 5]),
        "queries empty",
        features=some(4, 6),
        labels=some(4),
        queries=some(2, 6),
    ),
    "clipped": case(
        partial(dp_sgd.clipped_sum, PRIVATE, clip=1.0),
        points=some(2, 5, 3),
        labels=classes(2, 5),
    ),
    "pattern": case(partial(patterns.pattern, NETWORK), "ranked, empty", points=some(4, 3)),
    "nearest": case(partial(distances.nearest, NETWORK), "ranked, empty", points=some(4, 3)),
    "walked": case(partial(rays.walk, NETWORK, crossings=2), "empty", **RAYS),
    "window": case(partial(subdivision.subdivide, FLAT), window=SQUARE),
    "boundary": case(boundary.decision_boundary(FINE).distance, "empty", points=some(4, 2)),
    "deepfool": case(partial(boundary_distance.deepfool, NETWORK), points=some(4, 3)),
    "certified": case(partial(boundary_distance.certified_radius, NETWORK), points=some(4, 3)),
    "shoot": case(partial(hyperedges.shoot, NETWORK), points=some(4, 3), first=UNIT[:, None]),
    "walked to": case(partial(rays.label_change, NETWORK, until=1.0), **RAYS),
    "noise flips": case(
        lambda points, labels: label_only.noise_robustness(
            NETWORK, points, labels, amount=0.1, copies=2, generator=stream(0, "n"), noise="gaussian"
        ),
        points=some(4, 3),
        labels=classes(4),
    ),
    "jumps": case(
        lambda points, pool: label_only.hop_skip_jump(
            NETWORK, points, pool, jumps=label_only.Jumps(iterations=1), generator=stream(0, "j")
        ),
        points=some(4, 3),
        pool=some(5, 3),
    ),
    "posteriors": case(posterior.top, "single, ranked, empty", logits=some(4, 3)),
    "margin": case(posterior.margin, "single", logits=some(4, 3), labels=classes(4)),
    "correct": case(posterior.correct, "single", logits=some(4, 3), labels=classes(4)),
}


def _with(value: float, tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double().flatten().scatter(0, torch.zeros(1, dtype=torch.int64), value).view(tensor.shape)


SPOILS: dict[str, Callable[[torch.Tensor], Any]] = {
    "numpy": lambda tensor: tensor.numpy(),
    "undefined": partial(_with, math.nan),
    "infinite": partial(_with, math.inf),
    "empty": lambda tensor: tensor[..., :0] if tensor.ndim == 1 else tensor[..., :0, :],
    "scalar": lambda tensor: tensor.flatten()[0],
    "ranked": lambda tensor: tensor.unsqueeze(-1).repeat_interleave(3, -1),
    "whole": lambda tensor: tensor.long() + 1,
    "single": lambda tensor: tensor.float(),
    "decimal": lambda tensor: tensor.double(),
    "bytes": lambda tensor: tensor.to(torch.uint8),
}
OF_FLOATS = ("numpy", "undefined", "infinite", "empty", "ranked", "whole", "single")
OF_WHOLES = ("numpy", "undefined", "empty", "ranked", "decimal")
OF_TRUTHS = ("numpy", "empty", "ranked", "decimal", "bytes")


def spoilt(*, taken: bool, only: str = "") -> list[Any]:
    """What each case takes of the spoils, or what it does not; of one kind only, if one is named."""
    found = []
    for name, case in CASES.items():
        for argument, tensor in case.tensors.items():
            kinds = OF_FLOATS if tensor.is_floating_point() else OF_TRUTHS if tensor.dtype == torch.bool else OF_WHOLES
            for kind in kinds:
                if taken == (kind in case.takes or f"{argument} {kind}" in case.takes) and only in ("", kind):
                    found.append(pytest.param(name, argument, kind, id=f"{name}-{argument}-{kind}"))
    return found


@pytest.mark.parametrize("name", CASES)
def test_what_fits_is_computed(name):
    case = CASES[name]
    case.call(**{argument: tensor.clone() for argument, tensor in case.tensors.items()})


@pytest.mark.parametrize(("name", "argument", "kind"), spoilt(taken=True, only="single"))
def test_another_precision_is_computed_with(name, argument, kind):
    case = CASES[name]
    case.call(**case.tensors | {argument: SPOILS[kind](case.tensors[argument])})


@pytest.mark.parametrize(("name", "argument", "kind"), spoilt(taken=False))
def test_what_does_not_fit_is_refused_by_name(name, argument, kind):
    case = CASES[name]
    given = case.tensors | {argument: SPOILS[kind](case.tensors[argument])}
    # Of two arguments that do not fit together, one is named: nobody knows which of them is wrong.
    named = case.tensors if kind in ("empty", "ranked", "single") else (argument,)
    with pytest.raises((ValueError, TypeError), match="|".join(f"`{known}`" for known in named)):
        case.call(**given)
