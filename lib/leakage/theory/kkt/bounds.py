r"""What near-orthogonal training points force on a KKT point: bounds on its activations and on its outputs.

All bounds follow from inner products alone, $\delta = \max_{i \ne j} |x_i^\top x_j|$,
$\Delta = \min_i \lVert x_i \rVert^2$ and $\Delta_{\max} = \max_i \lVert x_i \rVert^2$, whatever the labels, the width
and the KKT point. A bound that says nothing is infinite (above) or 0 (below), never a number without meaning. Leading
dimensions are independent training sets. Nothing here trains, and nothing is random.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from leakage.models.two_layer import TwoLayer
from leakage.theory.kkt.conditions import Conditions


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
        """The geometry of these training points."""
        gram = points @ points.mT
        squares = gram.diagonal(dim1=-2, dim2=-1)
        others = (gram - torch.diag_embed(squares)).abs()
        return cls(others.amax((-2, -1)), squares.amin(-1), squares.amax(-1), points.shape[-2])

    @property
    def ratio(self) -> Float[Tensor, "*b"]:
        r"""$n\delta/\Delta$, which Assumption 3.1 of Smorodinsky et al. sends to 0."""
        return self.n * self.delta / self.least

    @property
    def den(self) -> Float[Tensor, "*b"]:
        r"""$\Delta + 1 - 2(\delta + 1)(n - 1)$, the denominator of the bounds; they hold where it is positive."""
        return self.least + 1 - 2 * (self.delta + 1) * (self.n - 1)

    def delta_x(self, products: Float[Tensor, "*b t n"]) -> Float[Tensor, "*b t"]:
        r"""$\delta_x = \max(\delta, \max_i |x_i^\top x|)$ of fresh points, from their `products` with each $x_i$."""
        return torch.maximum(self.delta.unsqueeze(-1), products.abs().amax(-1))


def activation_ceiling(geometry: Geometry, margin: Float[Tensor, "*#b"]) -> Float[Tensor, "*b"]:
    r"""The most that `activation_sums` can be at a KKT point: $m / \text{den}$.

    Source: Smorodinsky et al., Lemma B.3.
    """
    return torch.where(geometry.den > 0, margin / geometry.den, torch.inf)


def activation_floor(geometry: Geometry, margin: Float[Tensor, "*#b"]) -> Float[Tensor, "*b"]:
    r"""The least that the `activation_sums` of the point's own sign can be at a KKT point:

    $$ \Bigl( m - \frac{(\delta + 1)(n - 1)\, m}{\text{den}} \Bigr) \frac1{\Delta_{\max} + 1} . $$

    Where it is positive, which is for $\Delta + 1 > 3 (\delta + 1)(n - 1)$, every training point has $\lambda > 0$ and
    lies on the margin. It is 0 where it says nothing.

    Source: Smorodinsky et al., Lemma B.4; the paper's expression is negative where ours is 0.
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
    """
    return factor * geometry.n * (delta_x + 1) * activation_ceiling(geometry, margin).unsqueeze(-1)


def activation_sums(model: TwoLayer, conditions: Conditions) -> tuple[Float[Tensor, "*b n"], Float[Tensor, "*b n"]]:
    r"""$\sum_j v_j^2 \lambda_l s_{lj}$ of every training point, over the neurons with $v_j > 0$ and with $v_j < 0$."""
    weights = conditions.multipliers.unsqueeze(-1) * conditions.subgradients
    plus, minus = ((sign * model.outputs).clamp_min(0).square().unsqueeze(-1) for sign in (1, -1))
    return (weights @ plus).squeeze(-1), (weights @ minus).squeeze(-1)
