r"""Min-norm regression on random ReLU features: exact variances without the D-dimensional data.

Rows $x \sim N(0, I_D)$, labels $y = x^\top\beta + \varepsilon$ as in `least_squares.Design`, features
$\max(x^\top v_j, 0)$, $j \le p$, with $v_j$ uniform on the unit sphere of $R^D$ and drawn anew for every design.
Given the design, $\hat y_0 = w^\top y$ is a centred Gaussian with variance $w^\top (XX^\top/D + \sigma^2 I) w$. The
samplers return these variances for many widths p at once (the designs are nested) and never draw $\beta$ or
$\varepsilon$.
Source: Tan et al. (2022), Section 5.

**Reduction** (not in the paper). Everything depends on the points $[x_0; X]$ through their inner products with each
other and with the $v_j$. Let $[x_0; X] = LE$ with orthonormal rows $E$, so that $L$ has the first row
$(\lVert x_0 \rVert, 0, \dots)$, a first column of $N(0, 1)$ below it and the factor of an $n \times (D-1)$ Gaussian
matrix as the rest. With $v_j = g_j / \lVert g_j \rVert$, $g_j$ Gaussian, $Z_j = E g_j$ is Gaussian in $r = n + 1$
dimensions and

$$ [x_0; X]\, v_j = L Z_j \big/ \sqrt{\lVert Z_j \rVert^2 + \chi^2_{D-r}}. $$

Only an outsider's norm matters: $w$ is proportional to $\lVert x_0 \rVert$, so one set of draws serves every $x_0$.
"""

from collections.abc import Callable, Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from leakage.data.gaussians import bartlett_factor, chi_square
from leakage.draws import gaussian
from leakage.precision import DTYPE
from reproduced.papers.min_norm.gaussian_mixtures import total_variation
from reproduced.papers.min_norm.least_squares import Design
from reproduced.papers.min_norm.nested_fits import nested_weights

QUERIES = {"relu": torch.relu, "linear": torch.clone}
_SURE = 64  # with more features than this, and than n, a design of full rank is as good as certain: 1 - n / 2^64
_CHUNK = 2**24  # features held at once, to bound memory


def outsider_variances(
    design: Design,
    norms: Float[Tensor, "*b"],
    *,
    widths: Sequence[int],
    query: str = "relu",
    trials: int,
    generator: torch.Generator,
) -> Float[Tensor, "*b w trials"]:
    r"""Variances of the prediction at a fresh $x_0$, for `trials` designs seen at every width.

    `norms` are the $\lVert x_0 \rVert^2$ (about D), and `widths` increase. With `query="relu"` $x_0$ has the features
    that training points have; with `"linear"` its features lack the ReLU, as in the authors' released simulation.
    """
    activation, parts = QUERIES[query], []
    for points, products in _draw_designs(design, design.n + 1, widths[-1], trials, generator):
        weights = nested_weights(products[:, 1:].relu(), activation(products[:, :1]), widths=widths)
        parts.append(_variance(design, points[:, 1:], weights))
    return norms[..., None, None] * torch.cat(parts).mT


def member_variances(
    design: Design,
    norms: Float[Tensor, "*b"],
    *,
    widths: Sequence[int],
    query: str = "relu",
    trials: int,
    generator: torch.Generator,
) -> Float[Tensor, "*b w trials"]:
    r"""Variances of the prediction at $x_0$, for `trials` designs whose first row is $x_0$ with its label.

    For $p > n$ it is the variance of the label, $\lVert x_0 \rVert^2 / D + \sigma^2$, wherever the features of the
    training rows have full rank, whatever the query. A row has no positive feature, and a prediction of 0, with
    probability $2^{-p}$; rows with too few among them lose rank, too. So designs with $p \le 64$ or $D < n$ are drawn
    and queried with the ReLU. For $p \le n$ the model is trained, and queried as `query` says.
    """
    activation, label = QUERIES[query], norms / design.D + design.sigma**2
    variances = label[..., None, None].expand(*norms.shape, len(widths), trials).clone()
    sure = max(design.n, _SURE) if design.D >= design.n else widths[-1]
    narrow, drawn = ([p for p in widths if p <= most] for most in (design.n, sure))
    if drawn:
        fits = [(part, asked) for part, asked in ((narrow, activation), (drawn[len(narrow) :], torch.relu)) if part]
        trained = [
            torch.cat([_fit_member(design, points, products, norms, *fit) for fit in fits], dim=-2)
            for points, products in _draw_designs(design, design.n, drawn[-1], trials, generator)
        ]
        variances[..., : len(drawn), :] = torch.cat(trained, dim=-1)
    return variances


def advantages(
    design: Design,
    norms: Float[Tensor, "*b"],
    *,
    widths: Sequence[int],
    query: str = "relu",
    trials: int,
    generator: torch.Generator,
) -> Float[Tensor, "*b w"]:
    """Advantage of the best attack at points of these squared norms, at every width."""
    outsider, member = (
        variances(design, norms, widths=widths, query=query, trials=trials, generator=generator)
        for variances in (outsider_variances, member_variances)
    )
    return total_variation(member=member, outsider=outsider)


def _fit_member(
    design: Design, points: Tensor, products: Tensor, squares: Tensor, widths: list[int], activation: Callable
) -> Float[Tensor, "*b w trials"]:
    """Variances of fits in which row 0 has each of the norms in turn."""
    scale = squares.sqrt().reshape(*squares.shape, 1, 1, 1)
    points, products = (
        torch.cat([scale * part[:, :1], part[:, 1:].expand(*scale.shape[:-3], -1, -1, -1)], dim=-2)
        for part in (points, products[..., : widths[-1]])
    )
    weights = nested_weights(products.relu(), activation(products[..., :1, :]), widths=widths)
    return _variance(design, points, weights).mT


def _variance(design: Design, points: Tensor, weights: Float[Tensor, "*b w 1 n"]) -> Float[Tensor, "*b w"]:
    r"""$\lVert X^\top w \rVert^2 / D + \sigma^2 \lVert w \rVert^2$."""
    weights = weights.squeeze(-2)
    return (weights @ points).square().sum(-1) / design.D + design.sigma**2 * weights.square().sum(-1)


def _draw_designs(
    design: Design, rows: int, p: int, trials: int, generator: torch.Generator
) -> Iterator[tuple[Float[Tensor, "trials rows rank"], Float[Tensor, "trials rows p"]]]:
    """Points in coordinates of their span (row 0 has unit norm) and their products with the directions, in pieces."""
    step = max(1, _CHUNK // (rows * p))
    for start in range(0, trials, step):
        count = min(step, trials - start)
        points = torch.ones((count, 1, 1), dtype=DTYPE)
        if rows > 1:
            column = gaussian((count, rows - 1, 1), generator=generator)
            rest = bartlett_factor(rows - 1, design.D - 1, (count,), generator=generator)
            first = torch.cat([points, torch.zeros_like(rest[:, :1])], dim=-1)
            points = torch.cat([first, torch.cat([column, rest], dim=-1)], dim=-2)
        rank = points.shape[-1]
        directions = gaussian((count, rank, p), generator=generator)
        outside = chi_square(design.D - rank, (count, p), generator=generator)
        norm = (directions.square().sum(-2) + outside).sqrt()
        yield points, points @ directions / norm.unsqueeze(-2)
