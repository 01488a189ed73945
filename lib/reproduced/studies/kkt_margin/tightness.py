"""How close networks at a KKT point, or near one, come to the bounds of `theory.kkt.bounds`."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from jaxtyping import Float
from torch import Tensor

from leakage.models.two_layer import TwoLayer
from leakage.theory.kkt.bounds import Geometry, activation_ceiling, activation_floor, activation_sums, output_bound
from leakage.theory.kkt.conditions import check


@dataclass(frozen=True, eq=False)
class Tightness:
    """How close networks come to the bounds: the value found over the bound, for each network.

    Attributes:
        ceiling: the largest of the `activation_sums` over `activation_ceiling`; at most 1 at a KKT point.
        floor: the least of the own sign over `activation_floor`; at least 1, and infinite where the bound says nothing.
        fresh: the largest fresh answer over `output_bound` with factor 1; at most 1.
        member: the largest training answer over the margin, less 1, which is 0 at a KKT point where the floor is
            positive; elsewhere set to 0.
    """

    ceiling: Float[Tensor, "*b"]
    floor: Float[Tensor, "*b"]
    fresh: Float[Tensor, "*b"]
    member: Float[Tensor, "*b"]

    @classmethod
    def worst(cls, found: Sequence["Tightness"]) -> "Tightness":
        """The numbers closest to a violation of each bound: the least floor, and the largest of the others."""
        every = {each.name: torch.cat([getattr(one, each.name).flatten() for one in found]) for each in fields(cls)}
        return cls(**{name: values.amin() if name == "floor" else values.amax() for name, values in every.items()})


def measure(
    model: TwoLayer,
    points: Float[Tensor, "*b n d"],
    labels: Float[Tensor, "*b n"],
    *,
    margin: Float[Tensor, "*#b"],
    products: Float[Tensor, "*b t n"],
    answers: Float[Tensor, "*b t"],
    kinks: float = 1e-2,
) -> Tightness:
    r"""The tightness of networks at KKT points, or near them.

    `products` are $x_i^\top x$ of fresh points x with the training points, `answers` are $\Phi(x)$, and `kinks` is as
    in `conditions.check`.
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
