"""Chapter min_norm: the exact laws against the training loops they replace. `python benchmarks/min_norm.py [--record]`.

The straightforward side is in `trained_models`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from leakage.data.gaussians import sphere
from leakage.draws import gaussian
from reproduced.papers.min_norm import latent_space, relu_features
from reproduced.papers.min_norm import least_squares as least_squares_theory
from reproduced.papers.min_norm import ridge as ridge_theory
from reproduced.papers.min_norm.latent_space import LatentSpace
from reproduced.papers.min_norm.least_squares import Design, Query
from reproduced.papers.min_norm.nested_fits import nested_min_norm
from reproduced.runtime import stream
from timing import Benchmark, Case, Side, equal, judged, same_law
from trained_models import (
    Array,
    latent_prediction,
    least_squares,
    linear_prediction,
    relu_prediction,
    ridge,
    ridge_by_rows,
)

LINEAR, RELU = Design(n=100, D=3000, sigma=1.0), Design(n=100, D=5000, sigma=1.0)
LATENT = LatentSpace(n=200, d=20, sigma=1.0)
# fmt: off
WIDTHS = (105, 110, 115, 120, *range(130, 251, 10), 275, 300, 350, 400, 500, 600, 800, 1000, 1500, 2000, 2500, 3000)
RELU_WIDTHS = (110, 120, 140, 180, 200, 250, 300, 350, 375, 400, 450, 500, 600, 750, 1000, 1500, 2000, 3000, 4000)
# fmt: on


@dataclass(frozen=True)
class Sizes:
    """How large everything is: by default as in the record, small in a test."""

    linear: Design = LINEAR  # the linear model of Figures 2(b) and 7
    widths: tuple[int, ...] = WIDTHS  # numbers of features of Figure 2(b)
    points: int = 20  # queried points, and models for each point, width and kind of point, of Figure 2(b)
    trials: int = 100_000
    shown: tuple[int, ...] = (105, 500, 3000)  # widths at which single predictions are compared
    mu: float = 30.0  # nλ, the weakest penalty of Figure 7
    nodes: tuple[int, int, int] = (12, 32, 3)  # of the quadrature
    latent: LatentSpace = LATENT  # the latent space model of Figure 5(a)
    latent_widths: tuple[int, ...] = (400, 2000)
    relu: Design = RELU  # the random features of Figure 5(c)
    relu_widths: tuple[int, ...] = RELU_WIDTHS
    batch: int = 20_000  # predictions that our samplers draw in one call
    calls: int = 10  # of a quick side in one turn
    checked: int = 300  # models trained for one comparison of laws
    rounds: int = 9  # turns; the costly cases take `few`
    few: int = 3


PROMISED = {**{f"ls.{p}": 1e4 for p in Sizes().shown}, "ridge.105": 5e2, "ridge.3000": 1e5, "fig2b": 1e5, "sweep": 10.0}


def cases(sizes: Sizes) -> Iterator[Case]:
    for p in sizes.shown:
        yield least_squares_prediction(sizes, p)
    for p in sizes.shown:
        yield ridge_prediction(sizes, p)
    yield figure_2b(sizes)
    yield sweep(sizes)
    for p in sizes.latent_widths:
        yield latent_variance(sizes, p)
    yield relu_variances(sizes)


def least_squares_prediction(sizes: Sizes, p: int) -> Case:
    id, design = f"ls.{p}", sizes.linear
    draws, rng, point = _randomness(id, design.D)
    query = Query.from_point(torch.from_numpy(point), design, p)

    ours = partial(least_squares_theory.sample_outsider, design, p, query, trials=sizes.batch, generator=draws)
    theirs = partial(linear_prediction, point, p, least_squares, n=design.n, sigma=design.sigma, rng=rng)
    return Case(
        id=id,
        what=f"least squares: one prediction, p = {p}",
        unit="prediction",
        ours=Side("the exact law, O(1)", ours, sizes.batch, sizes.calls),
        theirs=Side("draw n × D, lstsq", theirs, calls=sizes.calls),
        check=lambda: same_law(_collected(theirs, sizes.checked), ours()),
        rounds=sizes.rounds,
    )


def ridge_prediction(sizes: Sizes, p: int) -> Case:
    id, design = f"ridge.{p}", sizes.linear
    draws, rng, point = _randomness(id, design.D)
    query = Query.from_point(torch.from_numpy(point), design, p)
    costly, penalty = p > 10 * design.n, sizes.mu / design.n
    ours = partial(ridge_theory.sample_outsider, design, p, penalty, query, trials=sizes.batch, generator=draws)
    theirs = partial(linear_prediction, point, p, n=design.n, sigma=design.sigma, rng=rng)

    def check() -> str:
        solve = ridge(sizes.mu)
        if costly:  # the sample comes from an equal but quick solver, once that is shown to be equal
            solve = ridge_by_rows(sizes.mu)
            features, labels = rng.standard_normal((design.n, p)), rng.standard_normal(design.n)
            equal(solve(features, labels), ridge(sizes.mu)(features, labels))
        return same_law(_collected(partial(theirs, solve), sizes.checked), ours())

    return Case(
        id=id,
        what=f"ridge, nλ = {sizes.mu:g}: one prediction, p = {p}",
        unit="prediction",
        ours=Side("the exact law, a continued fraction", ours, sizes.batch),
        theirs=Side("draw n × D, p × p inverse", lambda: theirs(ridge(sizes.mu)), calls=1 if costly else sizes.calls),
        check=check,
        rounds=sizes.few if costly else sizes.rounds,
    )


def figure_2b(sizes: Sizes) -> Case:
    id, design, widths = "fig2b", sizes.linear, sizes.widths
    draws, rng, point = _randomness(id, design.D)
    points = Query.draw(design, widths, count=sizes.points, generator=draws)

    predict = partial(linear_prediction, point, solve=least_squares, n=design.n, sigma=design.sigma, rng=rng)
    ours = partial(least_squares_theory.total_variations, design, widths, points, nodes=sizes.nodes)

    def check() -> str:
        p = widths[len(widths) // 4]
        query = Query.from_point(torch.from_numpy(point), design, p)
        laws = {
            False: least_squares_theory.outsider_mixture(design, p, query, nodes=sizes.nodes),
            True: least_squares_theory.member_mixture(design, p, query),
        }
        p_values = []
        for member, law in laws.items():
            answers = _collected(partial(predict, p, member=member), sizes.checked).abs().numpy()
            p_values.append(stats.kstest(answers, lambda y, law=law: law.cdf(torch.as_tensor(y)).numpy()).pvalue)
        return judged(min(p_values), f"against {sizes.checked} trained outsiders and members at p = {p}")

    return Case(
        id=id,
        what="Figure 2(b), complete",
        unit="figure",
        ours=Side("quadrature of the exact laws", ours),
        theirs=Side(
            "projected: one outsider and one member trained at each p",
            lambda: [predict(p, member=member) for p in widths for member in (False, True)],
            1 / (sizes.points * sizes.trials),
        ),
        check=check,
        rounds=sizes.few,
    )


def sweep(sizes: Sizes) -> Case:
    id, design, widths = "sweep", sizes.linear, sizes.widths
    _, rng, point = _randomness(id, design.D)
    rows, labels = rng.standard_normal((design.n, design.D)), rng.standard_normal(design.n)
    ours = partial(nested_min_norm, *map(torch.from_numpy, (rows, labels, point[None])), widths=widths)

    def theirs() -> list[float]:
        return [float(point[:p] @ least_squares(rows[:, :p], labels)) for p in widths]

    return Case(
        id=id,
        what=f"one design at {len(widths)} widths",
        unit="design",
        ours=Side("a Gram matrix that grows", ours, calls=sizes.calls),
        theirs=Side(f"{len(widths)} × lstsq", theirs),
        check=lambda: equal(ours().squeeze(-1).numpy(), np.array(theirs())),
        rounds=sizes.rounds,
    )


def latent_variance(sizes: Sizes, p: int) -> Case:
    id, model = f"latent.{p}", sizes.latent
    draws, rng, latent = _randomness(id, model.d)
    directions, trials = sphere(p, model.d, generator=draws), sizes.batch // 100
    known = model, torch.from_numpy(latent), directions
    ours = partial(latent_space.outsider_variances, *known, trials=trials, generator=draws)
    theirs = partial(latent_prediction, latent, directions.numpy(), n=model.n, sigma=model.sigma, rng=rng)
    return Case(
        id=id,
        what=f"latent space: one design, p = {p}",
        unit="design",
        ours=Side("its exact variance, free of n and p", ours, trials),
        theirs=Side("draw n × p, lstsq: one prediction", theirs, calls=sizes.calls),
        check=lambda: same_law(_collected(theirs, sizes.checked), _predictions(ours, draws)),
        rounds=sizes.rounds,
    )


def relu_variances(sizes: Sizes) -> Case:
    id, design, widths = "relu", sizes.relu, sizes.relu_widths
    draws, rng, point = _randomness(id, design.D)
    norm = torch.tensor(float(point @ point), dtype=torch.float64)
    trials = 8

    def ours(widths: tuple[int, ...] = widths) -> Tensor:
        return relu_features.outsider_variances(design, norm, widths=widths, trials=trials, generator=draws)

    theirs = partial(relu_prediction, point, n=design.n, sigma=design.sigma, rng=rng)

    def check() -> str:
        p = widths[len(widths) // 4]
        return same_law(_collected(partial(theirs, p), sizes.checked), _predictions(lambda: ours((p,))[0], draws))

    return Case(
        id=id,
        what=f"ReLU features: one design at one of {len(widths)} widths",
        unit="design and width",
        ours=Side("exact variances, nested", ours, trials * len(widths)),
        theirs=Side("draw n × D and D × p, lstsq: one prediction", lambda: [theirs(p) for p in widths], len(widths)),
        check=check,
        rounds=sizes.few,
    )


def _predictions(variances: Callable[[], Tensor], draws: torch.Generator) -> Tensor:
    """Predictions with at least 2,000 of the variances that our samplers give."""
    parts = [variances()]
    while sum(part.numel() for part in parts) < 2000:
        parts.append(variances())
    drawn = torch.cat(parts)
    return drawn.sqrt() * gaussian(tuple(drawn.shape), generator=draws)


def _randomness(id: str, dimension: int) -> tuple[torch.Generator, np.random.Generator, Array]:
    """The streams of a case, for our side and theirs, and the point that is asked about."""
    draws = stream(0, f"benchmark/{id}")
    seed = int(torch.randint(2**32, (1,), generator=draws))
    return draws, np.random.default_rng(seed), gaussian((dimension,), generator=draws).numpy()


def _collected(work: Callable[[], float], count: int) -> Tensor:
    return torch.tensor([work() for _ in range(count)], dtype=torch.float64)


BENCHMARK = Benchmark("min_norm", "Parameters or privacy", cases, Sizes(), PROMISED)

if __name__ == "__main__":
    raise SystemExit(BENCHMARK.run())
