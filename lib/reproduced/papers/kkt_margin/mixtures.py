r"""Training sets and fresh points of Gaussian mixtures and spheres, in few coordinates whatever the dimension.

A two-layer network learns from n points only what lies in their span. In more than n dimensions the points are drawn
directly in an orthonormal basis of the span (Bartlett's decomposition), so $d = 10^6$ costs as much as $d = n$; of the
part of a fresh point outside the span only the length is kept. Nothing here trains.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from leakage import draws
from leakage.data.gaussians import bartlett_diagonal, chi_square
from leakage.draws import gaussian


@dataclass(frozen=True)
class Law:
    r"""A law of points with identity covariance, or its projection to the sphere of radius $\sqrt d$.

    Attributes:
        means: the components' means, all of one length, in their first coordinates; components are equally likely.
        labels: the label ±1 of each component; none for labels that are coin flips.
        sphere: scale every point to norm $\sqrt d$.
    """

    means: tuple[tuple[float, ...], ...]
    labels: tuple[float, ...] = ()
    sphere: bool = False


LAWS: Mapping[str, Law] = {
    "mixture": Law(means=((1.0,), (-1.0,)), labels=(1.0, -1.0)),
    "mixture, random labels": Law(means=((1.0,), (-1.0,))),
    "gaussian": Law(means=((1.0,),)),
    "sphere": Law(means=((),), sphere=True),
}
"""The mixture of Smorodinsky et al., Section 3.2 (the label is the component; the paper does not state it), the same
with random labels, $N(e_1, I)$, and the uniform law on the sphere (both Section 3)."""


@dataclass(frozen=True, eq=False)
class Sample:
    r"""Training sets with fresh points of the same law, in coordinates of the training points' span.

    Attributes:
        fresh: the parts of the fresh points in the span.
        radius: the lengths of their parts outside; 0 where the coordinates are those of the whole space.
        dimension: d, that of the whole space.
    """

    train: Float[Tensor, "runs n c"]
    labels: Float[Tensor, "runs n"]
    fresh: Float[Tensor, "runs t c"]
    radius: Float[Tensor, "runs t"]
    fresh_labels: Float[Tensor, "runs t"]
    dimension: int

    def to(self, dtype: torch.dtype) -> "Sample":
        """The same sample in another precision."""
        parts = (self.train, self.labels, self.fresh, self.radius, self.fresh_labels)
        return Sample(*(part.to(dtype) for part in parts), dimension=self.dimension)


def draw_sample(
    law: str | Law, *, rows: int, fresh: int, dimension: int, runs: int, generator: torch.Generator
) -> Sample:
    r"""Independent training sets of `rows` points each, and `fresh` points for each of them.

    With $x = (\mu + z_1, z_2)$, $z_1$ in the few coordinates of the means and $z_2 \sim N(0, I_{d'})$: if $d' > n$, the
    training points' $z_2$ are the rows of Bartlett's factor $L$ (lower triangular, $L_{ii}^2 \sim \chi^2_{d'-i}$ for
    $i = 0, …, n-1$, standard normal below the diagonal), and a fresh $z_2$ is $N(0, I_n)$ in that basis with a part
    outside of length $\chi_{d'-n}$. Otherwise $z_2$ is drawn as it is. Inner products have the law of those in
    $\mathbb R^d$.

    Args:
        law: a key of `LAWS`, or another law.
        dimension: d, at least that of the means.
    """
    if not isinstance(law, Law):
        law = LAWS[law]
    rest = dimension - len(law.means[0])
    pick = draws.integers(len(law.means), (runs, rows + fresh), generator=generator)
    means, own = (torch.tensor(part, dtype=torch.float64, device=generator.device) for part in (law.means, law.labels))
    coins = 2.0 * draws.integers(2, (runs, rows + fresh), generator=generator).double() - 1
    offsets, labels = means[pick], own[pick] if law.labels else coins
    if rest > rows:
        tail, radius = _span(runs, rows, fresh, rest, generator)
    else:
        tail = gaussian((runs, rows + fresh, rest), generator=generator)
        radius = tail.new_zeros((runs, fresh))
    points = torch.cat([offsets + gaussian(tuple(offsets.shape), generator=generator), tail], dim=-1)
    if law.sphere:
        outside = torch.cat([radius.new_zeros((runs, rows)), radius], dim=-1)
        stretch = (dimension / (points.square().sum(-1) + outside.square())).sqrt()
        points, radius = points * stretch[..., None], radius * stretch[:, rows:]
    return Sample(points[:, :rows], labels[:, :rows], points[:, rows:], radius, labels[:, rows:], dimension)


def _span(runs: int, rows: int, fresh: int, rest: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Bartlett's factor above the coordinates of the fresh points, and the lengths of their parts outside."""
    # As `bartlett_factor`, but the diagonal is drawn first: another order would change every published draw.
    factor = bartlett_diagonal(rows, rest, (runs,), generator=generator)
    factor = factor + gaussian((runs, rows, rows), generator=generator).tril(-1)
    inside = gaussian((runs, fresh, rows), generator=generator)
    radius = chi_square(float(rest - rows), (runs, fresh), generator=generator).sqrt()
    return torch.cat([factor, inside], dim=-2), radius
