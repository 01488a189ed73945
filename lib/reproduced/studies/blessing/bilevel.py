r"""The bi-level feature ensemble: a few strong features that carry the signal, and many weak ones.

$x \sim N(0, \Sigma/p)$ with the eigenvalue $p/d$ of Σ on d strong features and $\eta p/(p - d)$ on the p - d weak ones,
so $\lVert x \rVert^2 \to 1 + \eta$; $y \sim \mathrm{Bernoulli}(\rho'(Z))$ with the teacher's logit
$Z = x^\top \beta^* \sim N(0, \kappa^2)$ on the strong ones. Only inner products matter to a ridge regression, so rows
come in an orthonormal basis in which they are short: the number of features may be ten million. Source: Tan et al.
(2023), Section 2.2.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from leakage.data.gaussians import gaussian, gaussian_factor


@dataclass(frozen=True)
class Bilevel:
    r"""The ensemble and the size of a training set.

    Attributes:
        n: training points.
        d: strong features, at least 1.
        p: all features, more than d.
        sigma_beta: the root mean square of the teacher's d coefficients. The paper draws them from
            $N(0, \sigma_\beta^2)$; here the length of $\beta^*$ is exact, and by symmetry only the length matters.
        eta: η > 0, the total variance of the weak features; that of the strong ones is 1.
        power: to which the eigenvalues are raised; 1/2 gives Σ if (5) defines $\Sigma^2$, as it is printed.
    """

    n: int
    d: int
    p: int
    sigma_beta: float
    eta: float = 1.0
    power: float = 1.0

    @property
    def delta(self) -> float:
        """Training points per feature, n / p."""
        return self.n / self.p

    @property
    def phi(self) -> float:
        """Features per strong feature, p / d."""
        return self.p / self.d

    @property
    def strong(self) -> float:
        """The variance of one strong feature."""
        return (self.p / self.d) ** self.power / self.p

    @property
    def weak(self) -> float:
        """The variance of one weak feature."""
        return (self.eta * self.p / (self.p - self.d)) ** self.power / self.p

    @property
    def kappa(self) -> float:
        r"""κ, the standard deviation of the teacher's logit: $\sigma_\beta$ at power 1."""
        return self.sigma_beta * math.sqrt(self.d * self.strong)

    def ridge(self, penalty: float) -> float:
        r"""$\mu = \lambda n / p$: the penalty beside the sum of the losses, from the paper's λ."""
        return penalty * self.n / self.p


class Points(NamedTuple):
    r"""Fixed points, drawn independently, in coordinates that the rows of `training_sets` share.

    Attributes:
        strong: coordinates among the strong features, the teacher's direction first; standard normal units.
        weak: coordinates among the weak features.
        squares: $\lVert x_j \rVert^2$.
        teacher: $Z_j = x_j^\top \beta^*$.
        labels: $y_j$, 0 or 1.
    """

    strong: Float[Tensor, "k r"]
    weak: Float[Tensor, "k s"]
    squares: Float[Tensor, " k"]
    teacher: Float[Tensor, " k"]
    labels: Float[Tensor, " k"]


class TrainingSets(NamedTuple):
    r"""Independent training sets.

    Attributes:
        strong: coordinates of the rows among the strong features, in some orthonormal basis.
        weak: coordinates among the weak features.
        teacher: $Z_i = x_i^\top \beta^*$.
        labels: 0 or 1.
        cross: $x_i^\top x_j$ with each fixed point.
    """

    strong: Float[Tensor, "T n q"]
    weak: Float[Tensor, "T n w"]
    teacher: Float[Tensor, "T n"]
    labels: Float[Tensor, "T n"]
    cross: Float[Tensor, "T n k"]

    def gram(self) -> Float[Tensor, "T n n"]:
        """Inner products of the rows."""
        return (self.strong @ self.strong.mT).baddbmm_(self.weak, self.weak.mT)


def fixed_points(ensemble: Bilevel, count: int, *, generator: torch.Generator) -> Points:
    """Draw `count` points with labels, which stay fixed while training sets vary."""
    empty = torch.zeros(0, 0, dtype=torch.float64, device=generator.device)
    first = gaussian((count, 1), generator=generator)
    rest = gaussian_factor(count, ensemble.d - 1, (), generator=generator) if count else empty
    weak = gaussian_factor(count, ensemble.p - ensemble.d, (), generator=generator) if count else empty
    strong = torch.cat([first, rest], dim=-1)
    teacher = ensemble.kappa * first.squeeze(-1)
    squares = ensemble.strong * strong.square().sum(-1) + ensemble.weak * weak.square().sum(-1)
    return Points(strong, weak, squares, teacher, _labels(teacher, generator))


def training_sets(
    ensemble: Bilevel, trials: int, *, generator: torch.Generator, points: Points | None = None
) -> TrainingSets:
    """Draw `trials` training sets whose rows of p features have at most 2n + 2k + 1 coordinates, k points being fixed.

    The basis begins with the directions of the teacher and the fixed points. The rest of the rows enters only through
    its Gram matrix, and is drawn as the Bartlett factor of that (`gaussian_factor`); with no more features than rows
    that is the plain draw.
    """
    points = fixed_points(ensemble, 0, generator=generator) if points is None else points
    strong = _rows(ensemble.n, ensemble.d, points.strong.shape[-1], trials, generator)
    weak = _rows(ensemble.n, ensemble.p - ensemble.d, points.weak.shape[-1], trials, generator)
    cross = ensemble.strong * strong[..., : points.strong.shape[-1]] @ points.strong.mT
    cross = cross + ensemble.weak * weak[..., : points.weak.shape[-1]] @ points.weak.mT
    teacher = ensemble.kappa * strong[..., 0]
    labels = _labels(teacher, generator)
    return TrainingSets(strong.mul_(ensemble.strong**0.5), weak.mul_(ensemble.weak**0.5), teacher, labels, cross)


def _rows(n: int, columns: int, explicit: int, trials: int, generator: torch.Generator) -> Tensor:
    """Rows whose first `explicit` coordinates are drawn one by one; the others only give their Gram matrix its law."""
    explicit = min(explicit, columns)
    first = gaussian((trials, n, explicit), generator=generator)
    return torch.cat([first, gaussian_factor(n, columns - explicit, (trials,), generator=generator)], dim=-1)


def _labels(teacher: Tensor, generator: torch.Generator) -> Tensor:
    draws = torch.rand(teacher.shape, generator=generator, dtype=teacher.dtype, device=teacher.device)
    return (draws < torch.sigmoid(teacher)).to(teacher.dtype)
