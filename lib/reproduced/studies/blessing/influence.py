r"""How far one record moves its own output: γ of a given record, and laws of the outputs at given records.

Theorem 2 of Tan et al. (2023) has one γ for all records, its limit as $n, p \to \infty$. At finite p a long record
moves its output further. Nothing here is random or trains anything.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from scipy import stats
from torch import Tensor

from leakage.metrics.intervals import Estimate
from leakage.theory.logistic.fixed_point import Solution
from leakage.theory.logistic.output_law import OutputLaw
from leakage.theory.logistic.prox import inverse_prox
from reproduced.studies.blessing.bilevel import Bilevel, Points
from reproduced.studies.blessing.logistic_simulation import PointOutputs


class LawDistances(NamedTuple):
    """Largest distances between the distribution functions of outputs and of the theory, point by point.

    Attributes:
        without: outputs without the point against the law of outsiders.
        refits: outputs after training with it against the law of members.
        control: the same outputs against the law of outsiders, which is wrong for them.
    """

    without: list[Estimate]
    refits: list[Estimate]
    control: list[Estimate]


def influence(ensemble: Bilevel, points: Points, solution: Solution, *, penalty: float) -> Float[Tensor, " k"]:
    r"""γ of each point, from the solution of the system for the ensemble and the lengths of the point's two parts:

    $$ \gamma(x) = \frac s\delta \left[ \frac{\lVert x_{\text{head}} \rVert^2}A
       + \frac{\phi - 1}{\eta B}\,\lVert x_{\text{tail}} \rVert^2 \right], \qquad A = \phi + \lambda s, \quad
       B = \phi + \lambda s (\phi - 1)/\eta . $$

    It is $x^\top (X^\top W X + \mu I)^{-1} x$ with the inverse replaced by its deterministic equivalent, which is
    diagonal; the mean over points is the γ of the paper, since $\lVert x \rVert^2$ is 1 in the head and η in the tail
    on average. Not in the paper. The ensemble has power 1, and `penalty` is λ.
    """
    scale, phi, eta = solution.scale, ensemble.phi, ensemble.eta
    head = ensemble.strong * points.strong.square().sum(-1)
    tail = ensemble.weak * points.weak.square().sum(-1)
    return (
        scale
        / ensemble.delta
        * (head / (phi + penalty * scale) + tail * (phi - 1) / (eta * (phi + penalty * scale * (phi - 1) / eta)))
    )


def law_at(law: OutputLaw, gamma: Float[Tensor, " k"]) -> OutputLaw:
    """The law of the output at each point, with the point's own γ and the other constants of the limit."""
    one = torch.ones_like(gamma)
    return OutputLaw(law.alpha * one, law.sigma * one, gamma, law.kappa * one)


def law_distances(found: PointOutputs, points: Points, law: OutputLaw, *, level: float = 0.95) -> LawDistances:
    r"""Distances of outputs at fixed points from $N(\alpha Z_j, \sigma^2)$ and from the law of its proximal operator.

    A member's output w is mapped back to the output of the model without it, $w + \gamma(\rho'(w) - y)$; both laws are
    then the standard normal one of $(h - \alpha Z_j) / \sigma$. Intervals are over training sets, by the inequality of
    Dvoretzky, Kiefer, Wolfowitz and Massart. Together, the intervals of both laws at all points cover with `level`, so
    they are conservative.
    """
    labels, centre = points.labels.unsqueeze(-1), (law.alpha * points.teacher).unsqueeze(-1)
    spread = law.sigma.unsqueeze(-1)
    pulled = inverse_prox(found.refits, law.gamma.unsqueeze(-1).expand_as(found.refits), labels)
    together = 2 * len(points.labels)
    return LawDistances(
        *(_distances((outputs - centre) / spread, level, together) for outputs in (found.without, pulled, found.refits))
    )


def _distances(samples: Float[Tensor, "k T"], level: float, together: int) -> list[Estimate]:
    rows = samples.cpu().numpy()
    reach = math.sqrt(math.log(2 * together / (1 - level)) / (2 * samples.shape[-1]))
    found = [float(stats.kstest(row, "norm").statistic) for row in rows]
    return [
        Estimate(gap, max(0.0, gap - reach), min(1.0, gap + reach), n=samples.shape[-1], level=level) for gap in found
    ]
