r"""Training sets and fresh points of Gaussian mixtures and spheres, in few coordinates whatever the dimension.

Everything that a two-layer network learns from n points happens in their span. Where the dimension is larger than that,
the points are drawn directly in an orthonormal basis of it (Bartlett's decomposition), so $d = 10^6$ costs what $d = n$
does; a fresh point keeps only the length of its part outside. Nothing here trains.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from leakage.arguments import choice, count, number
from leakage.data.gaussians import chi_square, factor_diagonal, gaussian


@dataclass(frozen=True)
class Law:
    r"""A law of points with identity covariance, or its projection to the sphere of radius $\sqrt d$.

    Attributes:
        means: the components' means, in their first coordinates; all components are equally likely.
        labels: the label ±1 of each component; none for labels that are coin flips.
        sphere: scale every point to norm $\sqrt d$.

    Raises:
        ValueError: if there is no mean, their lengths differ, one is not finite, or labels are not ±1, one for each.
    """

    means: tuple[tuple[float, ...], ...]
    labels: tuple[float, ...] = ()
    sphere: bool = False

    def __post_init__(self) -> None:
        if not self.means or len({len(mean) for mean in self.means}) > 1:
            raise ValueError(f"`means` must be at least one, all of one length; got {self.means!r}.")
        if self.labels and (len(self.labels) != len(self.means) or not set(self.labels) <= {1.0, -1.0}):
            raise ValueError(f"`labels` must be ±1, one for each of the {len(self.means)} means; got {self.labels!r}.")
        for value in itertools.chain(*self.means):
            number("means", value)


LAWS: Mapping[str, Law] = {
    "mixture": Law(means=((1.0,), (-1.0,)), labels=(1.0, -1.0)),
    "mixture, random labels": Law(means=((1.0,), (-1.0,))),
    "gaussian": Law(means=((1.0,),)),
    "sphere": Law(means=((),), sphere=True),
}
"""The mixture of Smorodinsky et al., Section 3.2 (the label is the component: theirs is unstated), the same with random
labels, $N(e_1, I)$, and the uniform law on the sphere (both Section 3)."""


@dataclass(frozen=True, eq=False)
class Sample:
    r"""Training sets with fresh points of the same law, in coordinates of the training points' span.

    Attributes:
        train: the training points, one a row.
        labels: their labels ±1.
        fresh: the fresh points' parts in the span.
        radius: the length of their parts outside, 0 where the coordinates are all there are.
        fresh_labels: their labels ±1.
        dimension: d, that of the space the points stand for.
    """

    train: Float[Tensor, "runs n c"]
    labels: Float[Tensor, "runs n"]
    fresh: Float[Tensor, "runs t c"]
    radius: Float[Tensor, "runs t"]
    fresh_labels: Float[Tensor, "runs t"]
    dimension: int

    def to(self, dtype: torch.dtype) -> "Sample":
        """The same in another precision."""
        parts = (self.train, self.labels, self.fresh, self.radius, self.fresh_labels)
        return Sample(*(part.to(dtype) for part in parts), dimension=self.dimension)


def draw(law: str | Law, *, rows: int, fresh: int, dimension: int, runs: int, generator: torch.Generator) -> Sample:
    r"""Independent training sets of `rows` points each, and `fresh` points for each of them.

    With $x = (\mu + z_1, z_2)$, $z_1$ in the few coordinates of the means and $z_2 \sim N(0, I_{d'})$: if $d' > n$ the
    training points' $z_2$ are the rows of Bartlett's factor $L$ (lower triangular, $L_{ii}^2 \sim \chi^2_{d'-i}$ for
    $i = 0, …, n-1$, standard normal elsewhere), and a fresh $z_2$ is $N(0, I_n)$ in that basis with a rest of length
    $\chi_{d'-n}$. Otherwise $z_2$ is drawn as it is. Inner products have the law of those in $\mathbb R^d$.

    Raises:
        ValueError: if the law is unknown, a count is below its least value, or d is smaller than the means need.
    """
    if not isinstance(law, Law):
        law = LAWS[choice("law", law, LAWS)]
    explicit = len(law.means[0])
    rows, fresh, runs = count("rows", rows, least=1), count("fresh", fresh), count("runs", runs, least=1)
    dimension = count("dimension", dimension, least=max(explicit, 1))
    rest = dimension - explicit
    offsets, labels = _components(law, (runs, rows + fresh), generator)
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


def clusters(means: Sequence[Sequence[float]], labels: Sequence[float] = ()) -> Law:
    """A mixture of unit Gaussians with these means, and these labels of the components (coin flips without).

    Raises:
        ValueError: as `Law`.
    """
    return Law(tuple(tuple(float(value) for value in mean) for mean in means), tuple(float(label) for label in labels))


def _components(law: Law, size: tuple[int, int], generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Each point's mean and label."""
    pick = torch.randint(len(law.means), size, generator=generator, device=generator.device)
    means = torch.tensor(law.means, dtype=torch.float64, device=generator.device).reshape(len(law.means), -1)
    coins = 2.0 * torch.randint(2, size, generator=generator, device=generator.device).double() - 1
    labels = torch.tensor(law.labels, dtype=torch.float64, device=generator.device)[pick] if law.labels else coins
    return means[pick], labels


def _span(runs: int, rows: int, fresh: int, rest: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Bartlett's factor over the fresh points' coordinates, and the lengths of the latter's rests."""
    # `gaussian_factor`, but the diagonal drawn first: another order would move every number of chapter kkt_margin.
    factor = factor_diagonal(rows, rest, (runs,), generator=generator)
    factor = factor + gaussian((runs, rows, rows), generator=generator).tril(-1)
    seen = gaussian((runs, fresh, rows), generator=generator)
    radius = chi_square(float(rest - rows), (runs, fresh), generator=generator).sqrt()
    return torch.cat([factor, seen], dim=-2), radius
