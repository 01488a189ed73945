r"""What near-orthogonal training points force on a KKT point: bounds on its activations and on its outputs.

All bounds follow from inner products alone, $\delta = \max_{i \ne j} |x_i^\top x_j|$,
$\Delta = \min_i \lVert x_i \rVert^2$ and $\Delta_{\max} = \max_i \lVert x_i \rVert^2$, whatever the labels, the width
and the KKT point. A bound that says nothing is infinite (above) or 0 (below), never a number without meaning. Leading
dimensions are independent training sets. Nothing here trains, and nothing is random.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from jaxtyping import Float
from torch import Tensor

from leakage import arguments
from leakage.models.two_layer import TwoLayer
from leakage.theory.kkt.conditions import Conditions, check


@dataclass(frozen=True, eq=False)
class Geometry:
    r"""The sizes of a training set's inner products.

    Attributes:
        delta: $\delta$, the largest $|x_i^\top x_j|$ of two different points.
        least: $\Delta$, the smallest $\lVert x_i \rVert^2$.
        most: $\Delta_{\max}$, the largest.
        n: the number of points.
    """

    delta: Float[Tensor, "*b"]
    least: Float[Tensor, "*b"]
    most: Float[Tensor, "*b"]
    n: int

    @classmethod
    def of(cls, points: Float[Tensor, "*b n d"]) -> "Geometry":
        """The geometry of these training points.

        Raises:
            ValueError: if there is no point, or one is not a finite floating-point number.
        """
        arguments.filled("points", arguments.real("points", points, "*b n d"))
        return cls.of_gram(points @ points.mT)

    @classmethod
    def of_gram(cls, gram: Float[Tensor, "*b n n"]) -> "Geometry":
        """The geometry of training points with these inner products.

        Raises:
            ValueError: if `gram` is not square, is empty or is not finite floating-point.
        """
        arguments.filled("gram", arguments.real("gram", gram, "*b n n"))
        squares = gram.diagonal(dim1=-2, dim2=-1)
        others = (gram - torch.diag_embed(squares)).abs()
        return cls(others.amax((-2, -1)), squares.amin(-1), squares.amax(-1), gram.shape[-1])

    @property
    def ratio(self) -> Float[Tensor, "*b"]:
        r"""$n\delta/\Delta$, which Assumption 3.1 of Smorodinsky et al. sends to 0."""
        return self.n * self.delta / self.least

    @property
    def den(self) -> Float[Tensor, "*b"]:
        r"""$\Delta + 1 - 2(\delta + 1)(n - 1)$, the denominator of the bounds; they hold where it is positive."""
        return self.least + 1 - 2 * (self.delta + 1) * (self.n - 1)

    def delta_x(self, products: Float[Tensor, "*b t n"]) -> Float[Tensor, "*b t"]:
        r"""$\delta_x = \max(\delta, \max_i |x_i^\top x|)$ of fresh points, from their `products` with each $x_i$.

        Raises:
            ValueError: if the products are not finite, or are not with n points.
        """
        arguments.real("products", products, "*b t n", n=self.n, like=self.delta)
        return torch.maximum(self.delta.unsqueeze(-1), products.abs().amax(-1))


def activation_ceiling(geometry: Geometry, margin: Float[Tensor, "*#b"]) -> Float[Tensor, "*b"]:
    r"""The most that `activation_sums` can be at a KKT point: $m / \text{den}$.

    Source: Smorodinsky et al., Lemma B.3.

    Raises:
        ValueError: if a margin is not positive and finite.
    """
    arguments.real("margin", margin, above=0, like=geometry.delta)
    return torch.where(geometry.den > 0, margin / geometry.den, torch.inf)


def activation_floor(geometry: Geometry, margin: Float[Tensor, "*#b"]) -> Float[Tensor, "*b"]:
    r"""The least that the `activation_sums` of the point's own sign can be at a KKT point:

    $$ \Bigl( m - \frac{(\delta + 1)(n - 1)\, m}{\text{den}} \Bigr) \frac1{\Delta_{\max} + 1} . $$

    Where it is positive, which is for $\Delta + 1 > 3 (\delta + 1)(n - 1)$, every training point has $\lambda > 0$ and
    lies on the margin. It is 0 where it says nothing.

    Source: Smorodinsky et al., Lemma B.4; the paper's expression is negative where ours is 0.

    Raises:
        ValueError: if a margin is not positive and finite.
    """
    others = (geometry.delta + 1) * (geometry.n - 1) * activation_ceiling(geometry, margin)
    return (margin - others).clamp_min(0) / (geometry.most + 1)


def output_bound(
    geometry: Geometry, delta_x: Float[Tensor, "*b t"], margin: Float[Tensor, "*#b"], *, factor: int = 2
) -> Float[Tensor, "*b t"]:
    r"""The most that $|\Phi(x)|$ can be at a KKT point, for a fresh x:

    $$ \text{factor} \cdot n (\delta_x + 1) \frac m{\text{den}} . $$

    The paper adds the bounds of the neurons with $v_j > 0$ and of those with $v_j < 0$ (`factor` 2). The two parts of
    $\Phi$ have opposite signs, so the larger of them suffices (`factor` 1).

    Source: Smorodinsky et al., proof of Theorem 3.2.

    Raises:
        ValueError: if `factor` is neither 1 nor 2, a margin is not positive and finite, or $\delta_x$ is negative.
    """
    arguments.count("factor", factor, least=1, most=2)
    arguments.real("delta_x", delta_x, "*b t", least=0, like=geometry.delta)
    return factor * geometry.n * (delta_x + 1) * activation_ceiling(geometry, margin).unsqueeze(-1)


def activation_sums(model: TwoLayer, conditions: Conditions) -> tuple[Float[Tensor, "*b n"], Float[Tensor, "*b n"]]:
    r"""$\sum_j v_j^2 \lambda_l s_{lj}$ of every training point, over the neurons with $v_j > 0$ and with $v_j < 0$."""
    weights = conditions.multipliers.unsqueeze(-1) * conditions.subgradients
    plus, minus = ((sign * model.outputs).clamp_min(0).square().unsqueeze(-1) for sign in (1, -1))
    return (weights @ plus).squeeze(-1), (weights @ minus).squeeze(-1)


@dataclass(frozen=True, eq=False)
class Tightness:
    """How close networks come to the bounds: what was found over what is allowed, for each network.

    Attributes:
        ceiling: the largest of the `activation_sums` over `activation_ceiling`; at most 1 at a KKT point.
        floor: the least of the own sign over `activation_floor`; at least 1, and infinite where that says nothing.
        fresh: the largest fresh answer over `output_bound` with factor 1; at most 1.
        member: the largest training answer over the margin, less 1: 0 where the floor is positive. 0 elsewhere.
    """

    ceiling: Float[Tensor, "*b"]
    floor: Float[Tensor, "*b"]
    fresh: Float[Tensor, "*b"]
    member: Float[Tensor, "*b"]

    @classmethod
    def worst(cls, found: Sequence["Tightness"]) -> "Tightness":
        """The single numbers nearest to a violation, or furthest into it: the least floor, the largest of all others.

        Raises:
            ValueError: if nothing was found.
        """
        if not found:
            raise ValueError("`found` must have one at least, got an empty sequence.")
        every = {each.name: torch.cat([getattr(one, each.name).flatten() for one in found]) for each in fields(cls)}
        return cls(**{name: values.amin() if name == "floor" else values.amax() for name, values in every.items()})


def tightness(
    model: TwoLayer,
    points: Float[Tensor, "*b n d"],
    labels: Float[Tensor, "*b n"],
    *,
    margin: Float[Tensor, "*#b"],
    products: Float[Tensor, "*b t n"],
    answers: Float[Tensor, "*b t"],
    kinks: float = 1e-2,
) -> Tightness:
    r"""Hold networks against every bound of this module.

    Args:
        model: networks at KKT points, or near them.
        points: their training points.
        labels: ±1.
        margin: m.
        products: $x_i^\top x$ of fresh points with the training points.
        answers: $\Phi(x)$ of the fresh points.
        kinks: as in `conditions.check`.

    Raises:
        ValueError, RuntimeError: as `conditions.check`.
    """
    geometry = Geometry.of(points)
    ceiling, floor = (bound(geometry, margin).unsqueeze(-1) for bound in (activation_ceiling, activation_floor))
    plus, minus = activation_sums(model, check(model, points, labels, kinks=kinks))
    own = torch.where(labels > 0, plus, minus)
    excess = (labels * model(points)).amax(-1) / margin - 1
    return Tightness(
        ceiling=(torch.maximum(plus, minus) / ceiling).amax(-1),
        floor=torch.where(floor > 0, own / floor, torch.inf).amin(-1),
        fresh=(answers.abs() / output_bound(geometry, geometry.delta_x(products), margin, factor=1)).amax(-1),
        member=torch.where(floor.squeeze(-1) > 0, excess, 0.0),
    )
