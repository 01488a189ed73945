r"""Linear regressions trained in batches, the prediction of each at one point, and means over Gaussian points.

Training is that of Tan et al. (2022), Appendix D: draw a training set, put the queried point in or leave it out, train,
predict. `min_norm.least_squares` and `min_norm.ridge` draw from the same laws without training, and are checked against
this module. Means over points are integrals: a Gaussian point enters every law only through two independent numbers,
$r^2 \sim \chi^2_p$ and $\rho^2 \sim \chi^2_{D-p}$.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from scipy import special
from torch import Tensor

from leakage.draws import gaussian
from leakage.metrics import estimates, roc
from leakage.precision import DTYPE
from reproduced.papers.min_norm import least_squares, ridge
from reproduced.papers.min_norm.least_squares import Design, Query
from reproduced.papers.min_norm.nested_fits import nested_min_norm, nested_weights

_CHUNK = 2**24  # numbers in one batch of training sets
_FOURTH_MOMENT = 6  # distance of p from n from which on a prediction's fourth moment is safely finite


def trained_predictions(
    design: Design,
    point: Float[Tensor, " D"],
    *,
    widths: Sequence[int],
    trials: int,
    member: bool,
    generator: torch.Generator,
    penalties: Sequence[float] = (),
) -> Float[Tensor, "trials models"]:
    r"""Predictions at `point` of models trained on `trials` Gaussian data sets: one column a model.

    Every trial draws $X$, $\beta \sim N(0, I/D)$ and ε anew; for a member the first row of $X$ is the point, and its
    label is drawn as all others are. The models are the minimum-norm fits on the first p features for p in `widths`;
    with `penalties`, the ridge fits on the first `widths[0]` features, one for each penalty.
    """
    used = widths[-1]
    per_batch = max(1, _CHUNK // (design.n * design.D))
    parts = []
    for start in range(0, trials, per_batch):
        count = min(per_batch, trials - start)
        rows = gaussian((count, design.n, design.D), generator=generator)
        if member:
            rows[:, 0] = point
        beta = gaussian((count, design.D, 1), generator=generator) / design.D**0.5
        labels = (rows @ beta).squeeze(-1) + design.sigma * gaussian((count, design.n), generator=generator)
        query, features = point.expand(count, 1, -1)[..., :used], rows[..., :used]
        if penalties:
            parts.append(ridge_predictions(features, labels, query.squeeze(-2), penalties=penalties))
        else:
            parts.append(nested_min_norm(features, labels, query, widths=widths).squeeze(-1))
    return torch.cat(parts)


class LawComparison(NamedTuple):
    """Predictions of trained models beside draws of their exact law.

    Args:
        test: the two-sample Kolmogorov–Smirnov test.
        variance_ratio: mean square over the variance that the law has, or None where the fourth moment may be infinite.
    """

    test: roc.KsTest
    variance_ratio: estimates.Estimate | None


def compare_with_law(
    design: Design,
    p: int,
    *,
    trained: int,
    sampled: int,
    generator: torch.Generator,
    penalty: float | None = None,
) -> dict[str, LawComparison]:
    r"""Train models with and without one Gaussian point among their rows, and hold their answers against the exact law.

    The law is that of `least_squares`, or of `ridge` with a penalty. `trained` predictions are compared with `sampled`
    draws of it, first at an outsider, then at a member; both are asked about the same point.
    """
    point = gaussian((design.D,), generator=generator)
    query = Query.from_point(point, design, p)
    penalties, law = ([], least_squares) if penalty is None else ([penalty], ridge)
    found = {}
    for who in ("outsider", "member"):
        answers = trained_predictions(
            design, point, widths=[p], trials=trained, member=who == "member", generator=generator, penalties=penalties
        )[:, 0]
        sample = law.sample_member if who == "member" else law.sample_outsider
        drawn = sample(design, p, *penalties, query, trials=sampled, generator=generator)
        test, ratio = roc.ks_test(answers, drawn, level=0.998), None
        if penalty is None and abs(p - design.n) >= _FOURTH_MOMENT and (p >= design.n or who == "outsider"):
            variances = {"outsider": least_squares.outsider_variance(design, p, query)}
            variances["member"] = least_squares.member_variance(design, query)
            ratio = estimates.mean_interval(answers.square() / variances[who], level=0.99)
        found[who] = LawComparison(test, ratio)
    return found


def outsider_variances(
    rows: Float[Tensor, "*b n D"], point: Float[Tensor, " D"], p: int, *, sigma: float
) -> Float[Tensor, "*b"]:
    r"""Variance of the minimum-norm prediction at an outside point given each design, over β and ε.

    $$ V_0 = \lVert X^\top w \rVert^2 / D + \sigma^2 \lVert w \rVert^2, \qquad w = (X_p^\top)^+ x_{0,p} $$
    """
    asked = point[:p].expand(*rows.shape[:-2], 1, -1)
    weights = nested_weights(rows[..., :p], asked, widths=[p])[..., 0, :, :]
    noise = sigma**2 * weights.square().sum((-2, -1))
    return (weights @ rows).square().sum((-2, -1)) / rows.shape[-1] + noise


def squared_errors(
    design: Design,
    *,
    widths: Sequence[int],
    models: int,
    points: int,
    generator: torch.Generator,
    noise: float = 0.0,
) -> Float[Tensor, "models widths"]:
    """Squared errors of minimum-norm fits, a column a width, each the mean over so many fresh points of its model.

    Every model has a training set of its own. To every answer output noise of the variance `noise` is added.
    """
    used, per_batch = widths[-1], max(1, _CHUNK // ((design.n + points) * design.D))
    parts = []
    for start in range(0, models, per_batch):
        count = min(per_batch, models - start)
        fresh = gaussian((count, points, design.D), generator=generator)
        rows = gaussian((count, design.n, design.D), generator=generator)
        beta = gaussian((count, design.D, 1), generator=generator) / design.D**0.5
        labels = (rows @ beta).squeeze(-1) + design.sigma * gaussian((count, design.n), generator=generator)
        answers = nested_min_norm(rows[..., :used], labels, fresh[..., :used], widths=widths)
        outcomes = (fresh @ beta).squeeze(-1) + design.sigma * gaussian((count, points), generator=generator)
        if noise:
            answers = answers + noise**0.5 * gaussian(tuple(answers.shape), generator=generator)
        parts.append((answers - outcomes.unsqueeze(-2)).square().mean(-1))
    return torch.cat(parts)


def ridge_predictions(
    features: Float[Tensor, "*b n p"],
    labels: Float[Tensor, "*b n"],
    query: Float[Tensor, "*b p"],
    *,
    penalties: Sequence[float],
) -> Float[Tensor, "*b m"]:
    r"""Predictions $x_0^\top (X^\top X + n\lambda I)^{-1} X^\top y$, one for each λ in `penalties`."""
    asked, heard = query.unsqueeze(-1), labels.unsqueeze(-1)
    # The smaller Gram matrix: the larger has a null space, whose rounding errors a small penalty would make large.
    if features.shape[-1] < features.shape[-2]:
        gram, heard = features.mT @ features, features.mT @ heard
    else:
        gram, asked = features @ features.mT, features @ asked
    values, vectors = torch.linalg.eigh(gram)
    cross, target = vectors.mT @ asked, vectors.mT @ heard
    shift = features.shape[-2] * torch.tensor(penalties, dtype=features.dtype)
    return (cross * target / (values.clamp_min(0).unsqueeze(-1) + shift)).sum(-2)


class PointQuadrature(NamedTuple):
    """Quadrature nodes and weights for means over Gaussian points at every width: `mean(f(query))` is that of `f`."""

    query: Query
    weights: Float[Tensor, " points"]

    def mean(self, values: Float[Tensor, "*b points widths"]) -> Float[Tensor, "*b widths"]:
        """The weighted mean over the nodes of `values`, which were computed at `query`."""
        return (self.weights[:, None] * values).sum(-2)


def point_quadrature(design: Design, p: Sequence[int], *, nodes: tuple[int, int] = (64, 4)) -> PointQuadrature:
    r"""Gauss–Legendre nodes in the quantiles of $r^2$ and of $\rho^2$, so many of each, at each of the widths `p`.

    A node is not one point seen at all widths, as `Query.draw` gives: only means over all nodes are right.
    """
    first, second = nodes
    widths = design.widths(list(p))
    used, used_weights = _chi_square_nodes(widths, first)
    unused, unused_weights = _chi_square_nodes(design.D - widths, second)
    query = Query(used.repeat_interleave(second, 0), unused.repeat(first, 1))
    return PointQuadrature(query, torch.outer(used_weights, unused_weights).flatten())


def _chi_square_nodes(dof: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Chi-squared quantiles at the nodes, a column for each number of degrees of freedom (0 for none), and weights."""
    spots, weights = np.polynomial.legendre.leggauss(count)
    quantiles = 2 * special.gammaincinv(dof.clamp_min(1).numpy() / 2, (spots[:, None] + 1) / 2)
    return torch.where(dof > 0, torch.from_numpy(quantiles), 0.0).to(DTYPE), torch.from_numpy(weights / 2)
