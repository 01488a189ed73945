r"""Min-norm regression on many noisy views of a few latent variables: variances at a cost that n and p do not raise.

Rows $x = Wz + u$ with $z \sim N(0, I_d)$, $u \sim N(0, I_p)$ and fixed directions $W$ ($p \times d$, unit rows); labels
$y = z^\top\theta + \varepsilon$ with $\theta \sim N(0, I_d/d)$, $\varepsilon \sim N(0, \sigma^2)$; the query is
$x_0 = W z_0$, without $u$. Given the design, $\hat y_0 = w^\top y$ is a centred Gaussian. The samplers return its
variance, one for each random design, and never draw $\theta$ or $\varepsilon$. Source: Tan et al. (2022), Section 5.

**Reduction** (not in the paper). With $W = QR$, rotate the features so that $Q$'s columns come first: the design
becomes $[A, U_2]$ with $A = ZR^\top + U_1$ and $p - d$ columns $U_2$ of pure noise, the query $(a_0, 0)$ with
$a_0 = Rz_0$. Rotating the rows too, $[Z, U_1]$ becomes a factor with at most 2d rows (`bartlett_factor`).
What is left:

- $p < n$. Projecting out $U_2$ leaves the regression on $A$ alone with $m = n - p + d$ rows,
  $w = A(A^\top A)^{-1} a_0$.
- $p \ge n$. $w$ is the least-squares solution of $A^\top w = a_0$, $U_2^\top w = 0$. Split the rows into the $2d$ of
  the factor (where $w = v$) and the others ($w = v'$). The part of $U_2$ that involves $v'$ can be solved exactly,
  and leaves
  $$ v = \arg\min \lVert A^\top v - a_0 \rVert^2 + \lVert G^\top v \rVert^2, \qquad
     \lVert v' \rVert^2 = \lVert v \rVert^2 \, \chi^2_{n-2d} / \chi^2_{p-n+d+1}, $$
  with $G$ Gaussian, $2d \times (p - n + d)$. This needs no gap between p and n.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from leakage.data.gaussians import bartlett_factor, chi_square
from leakage.draws import gaussian
from leakage.precision import DTYPE
from reproduced.papers.min_norm.gaussian_mixtures import total_variation

_CHUNK = 2**22  # numbers of the factors held at once, to bound memory: some ten times as many are held in all


@dataclass(frozen=True)
class LatentSpace:
    """The model: `n` rows, `d` latent variables, label noise of standard deviation `sigma`."""

    n: int
    d: int
    sigma: float = 1.0


def outsider_variances(
    model: LatentSpace,
    latent: Float[Tensor, "*b d"],
    directions: Float[Tensor, "*b p d"],
    *,
    trials: int,
    generator: torch.Generator,
) -> Float[Tensor, "*b trials"]:
    r"""Variances of the prediction at $x_0 = Wz_0$ for `trials` designs that do not contain it.

    $$ V_0 = \lVert Z^\top w \rVert^2 / d + \sigma^2 \lVert w \rVert^2 $$

    `directions` is $W$, the same in all trials. For one point at several widths, pass the first p rows of one matrix.
    """
    signal, square = _weights(model.n, latent, directions, trials=trials, generator=generator)
    return signal.square().sum(-1) / model.d + model.sigma**2 * square


def member_variances(
    model: LatentSpace,
    latent: Float[Tensor, "*b d"],
    directions: Float[Tensor, "*b p d"],
    *,
    label: str = "own",
    trials: int,
    generator: torch.Generator,
) -> Float[Tensor, "*b trials"]:
    r"""Variances of the prediction at $x_0 = Wz_0$ for `trials` designs whose first row is $x_0$.

    For $p \ge n$ the label is returned. For $p < n$, leave-one-out with the weights $w'$ of the other rows,
    $q = \lVert w' \rVert^2$, and $z$ the latent vector of the first row's label:

    $$ V_1 = \frac{\lVert q z + Z'^\top w' \rVert^2 / d + \sigma^2 (q^2 + q)}{(1 + q)^2} \quad (p < n), \qquad
       V_1 = \lVert z \rVert^2 / d + \sigma^2 \quad (p \ge n). $$

    With `label="own"` it is the label of $x_0$, $z = z_0$, the experiment that the paper describes. With `"fresh"` it
    is the label of another point, $z \sim N(0, I_d)$ anew in every trial, as in the authors' released simulation,
    which replaces the features of the first row and leaves its label.
    """
    own = latent.unsqueeze(-2)
    shape = (*own.shape[:-2], trials, model.d)
    answered = gaussian(shape, generator=generator) if label == "fresh" else own.expand(shape)
    if directions.shape[-2] >= model.n:
        return answered.square().sum(-1) / model.d + model.sigma**2
    others, leverage = _weights(model.n - 1, latent, directions, trials=trials, generator=generator)
    signal = (leverage.unsqueeze(-1) * answered + others).square().sum(-1) / model.d
    return (signal + model.sigma**2 * (leverage.square() + leverage)) / (1 + leverage).square()


def advantages(
    model: LatentSpace,
    latent: Float[Tensor, "*b d"],
    directions: Float[Tensor, "*b p d"],
    *,
    trials: int,
    generator: torch.Generator,
) -> dict[str, Float[Tensor, "*b"]]:
    """Advantage of the best attack at each $x_0 = Wz_0$: for a member with its `own` label and with a `fresh` one."""
    outsider, found = outsider_variances(model, latent, directions, trials=trials, generator=generator), {}
    for label in ("own", "fresh"):
        member = member_variances(model, latent, directions, label=label, trials=trials, generator=generator)
        found[label] = total_variation(member=member, outsider=outsider)
    return found


def _weights(
    rows: int, latent: Tensor, directions: Tensor, *, trials: int, generator: torch.Generator
) -> tuple[Float[Tensor, "*b trials d"], Float[Tensor, "*b trials"]]:
    r"""Draw $Z^\top w$ and $\lVert w \rVert^2$ for `rows` training points, a few trials at a time."""
    factor = torch.linalg.qr(directions, mode="r").R
    corner = (factor @ latent.unsqueeze(-1)).squeeze(-1)  # the query's rotated features
    (p, _), (head, d) = directions.shape[-2:], factor.shape[-2:]
    step = max(1, _CHUNK // (corner.shape[:-1].numel() * (d + head) ** 2))
    counts = [min(step, trials - start) for start in range(0, trials, step)]
    parts = [_reduced_weights(rows, p, factor, corner, trials=count, generator=generator) for count in counts]
    signals, squares = zip(*parts, strict=True)
    return torch.cat(signals, -2), torch.cat(squares, -1)


def _reduced_weights(
    rows: int, p: int, factor: Tensor, corner: Tensor, *, trials: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    r"""$Z^\top w$ and $\lVert w \rVert^2$ of all trials at once, by the reduction of the module's docstring."""
    head, d = factor.shape[-2:]  # head = min(p, d): features that carry signal once rotated
    effective = rows if p >= rows else rows - p + head
    core = bartlett_factor(d + head, effective, (*corner.shape[:-1], trials), generator=generator)
    latents = core[..., :d, :]  # Z^T, d x (at most 2d)
    signal = factor.unsqueeze(-3) @ latents + core[..., d:, :]  # A^T
    target = corner.unsqueeze(-2).expand(*core.shape[:-2], head).unsqueeze(-1)
    if p < rows:
        q, r = torch.linalg.qr(signal.mT)
        weights = q @ torch.linalg.solve_triangular(r.mT, target, upper=False)
        scale = torch.ones((), dtype=DTYPE)
    else:
        kept = core.shape[-1]
        spare = p - head - (rows - kept)  # noise columns left once the other rows are solved for
        noise = bartlett_factor(kept, spare, core.shape[:-2], generator=generator)
        q, r = torch.linalg.qr(torch.cat([signal, noise.mT], dim=-2))
        weights = torch.linalg.solve_triangular(r, q[..., :head, :].mT @ target, upper=True)
        rest = chi_square(rows - kept, core.shape[:-2], generator=generator)
        scale = 1 + rest / chi_square(spare + 1, core.shape[:-2], generator=generator)
    return (latents @ weights).squeeze(-1), weights.squeeze(-1).square().sum(-1) * scale
