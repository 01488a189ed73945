r"""Minimum-norm least squares at many widths, by one method for p ≤ n and one for p > n.

The prediction of $\hat\beta = F_p^+ y$ at a query $f$ is linear in the labels, $\hat y = w_p^\top y$ with
$w_p = (F_p^\top)^+ f_p$ and $F_p$ the first p columns of the design. One QR decomposition gives $w_p$ for all p ≤ n,
and one growing Gram matrix for all p > n. Leading dimensions are independent designs. Nothing here is random.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

_SINGULAR = 1e-4  # share of the largest pivot below which the pseudo-inverse is used: condition 1e8 of a Gram matrix


def nested_min_norm(
    features: Float[Tensor, "*b n P"],
    labels: Float[Tensor, "*b n"],
    queries: Float[Tensor, "*b q P"],
    *,
    widths: Sequence[int],
) -> Float[Tensor, "*b w q"]:
    r"""Predictions of the minimum-norm fits on the first p features, for every p in `widths`; see `nested_weights`."""
    return (nested_weights(features, queries, widths=widths) @ labels[..., None, :, None]).squeeze(-1)


def nested_weights(
    features: Float[Tensor, "*b n P"], queries: Float[Tensor, "*b q P"], *, widths: Sequence[int]
) -> Float[Tensor, "*b w q n"]:
    r"""Weights $w_p$ of the training labels in the predictions at `queries`, for every p in `widths`.

    For $p \le n$, with $F = QR$: $w_p = \sum_{j \le p} Q_j u_j$, $u = R^{-\top} f$, and $u_j$ does not depend on p.
    For $p > n$: $w_p = G_p^{-1} F_p f_p$, where $G_p = F_p F_p^\top$ grows by the new columns only. A design that
    nearly loses rank at some width (a feature that is 0 on every row, say) is solved there by its pseudo-inverse.

    The Gram matrix squares the condition number of the design: relative errors are $10^{-13}$ for Gaussian designs away
    from p = n, and at most about $10^{-8}$ next to it. The `widths` increase strictly, from 1 to P.
    """
    rows = features.shape[-2]
    designs, points = (tensor.reshape(-1, *tensor.shape[-2:]) for tensor in (features, queries))
    narrow, wide = [p for p in widths if p <= rows], [p for p in widths if p > rows]
    parts = [solve(designs, points, part) for solve, part in ((_narrow, narrow), (_wide, wide)) if part]
    weights, reliable = (torch.cat(pieces, dim=1) for pieces in zip(*parts, strict=True))
    for index in (~reliable).any(dim=0).nonzero().flatten().tolist():
        unreliable, p = ~reliable[:, index], widths[index]
        weights[unreliable, index] = points[unreliable, :, :p] @ torch.linalg.pinv(designs[unreliable, :, :p])
    return weights.reshape(*features.shape[:-2], *weights.shape[1:])


def _narrow(designs: Tensor, points: Tensor, widths: list[int]) -> tuple[Tensor, Tensor]:
    """Weights at all widths up to n from one QR decomposition, and whether they can be trusted."""
    q, r = torch.linalg.qr(designs[..., : widths[-1]])
    pivots = r.diagonal(dim1=-2, dim2=-1).abs()
    ends = torch.tensor(widths, device=designs.device)
    reliable = (pivots > _SINGULAR * pivots.cummax(dim=-1).values).cumprod(dim=-1)[:, ends - 1].bool()
    coordinates = torch.linalg.solve_triangular(r.mT, points[..., : widths[-1]].mT, upper=False).mT
    keep = torch.arange(widths[-1], device=designs.device) < ends[:, None, None]
    return torch.where(keep, coordinates.unsqueeze(1), 0.0) @ q.mT.unsqueeze(1), reliable


def _wide(designs: Tensor, points: Tensor, widths: list[int]) -> tuple[Tensor, Tensor]:
    """Weights at all widths above n from a Gram matrix that grows, and whether they can be trusted."""
    batch, rows, _ = designs.shape
    gram, cross = designs.new_zeros((batch, rows, rows)), designs.new_zeros((batch, rows, points.shape[1]))
    weights, pivots, failures, start = [], [], [], 0
    for p in widths:
        gram.baddbmm_(designs[..., start:p], designs[..., start:p].mT)
        cross.baddbmm_(designs[..., start:p], points[..., start:p].mT)
        factor, failure = torch.linalg.cholesky_ex(gram)
        weights.append(torch.cholesky_solve(cross, factor).mT)
        pivots.append(factor.diagonal(dim1=-2, dim2=-1))
        failures.append(failure)
        start = p
    smallest, largest = torch.stack(pivots, dim=1).aminmax(dim=-1)
    reliable = (torch.stack(failures, dim=1) == 0) & (smallest > _SINGULAR * largest)
    return torch.stack(weights, dim=1), reliable
