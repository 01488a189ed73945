r"""Attacks with one threshold for all points, on ridge logistic regression in the limit.

"Member if the loss is below τ" is weaker than `output_law.sample_attack`, which has a threshold of its own for each
point. Rates are averages over points and labels. Nothing is random, and nothing here solves for α, σ and γ.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from leakage.theory.logistic.output_law import LossThreshold, OutputLaw, exceedance
from leakage.theory.logistic.prox import inverse_prox, prox

_TAIL = 9.0  # deviations of the fresh output within which thresholds are looked for
_CELLS = 64  # of each round's grid
_ROUNDS = 5


class Rates(NamedTuple):
    """True and false positive rate of a rule, and their difference."""

    tpr: Float[Tensor, "*b"]
    fpr: Float[Tensor, "*b"]
    advantage: Float[Tensor, "*b"]


def threshold_rates(law: OutputLaw, threshold: Float[Tensor, "*#b"]) -> Rates:
    r"""Rates of "member if the loss is below τ", elementwise.

    For label 1 the loss is below τ where the output exceeds $c = -\log(e^\tau - 1)$; a member's does if it exceeded
    $c - \gamma\rho'(-c)$ before.
    """
    return _rates(law, -torch.log(torch.expm1(threshold)))


def best_threshold(law: OutputLaw) -> LossThreshold:
    r"""The one loss threshold with the largest advantage, by grids of c (`threshold_rates`) that close in on it.

    The search covers all outputs of members and outsiders; an error of the threshold costs only its square.
    """
    one, reach = torch.ones_like(law.alpha), _TAIL * law.spread
    low, high = -reach, prox(reach, law.gamma, one)
    wide = law.unsqueeze()
    for _ in range(_ROUNDS):
        steps = torch.linspace(0, 1, _CELLS + 1, dtype=low.dtype, device=low.device)
        cuts = torch.lerp(low[..., None], high[..., None], steps)
        index = _rates(wide, cuts).advantage.argmax(-1, keepdim=True)
        low, high = (cuts.gather(-1, (index + i).clamp(0, _CELLS)).squeeze(-1) for i in (-1, 1))
    cut = low + (high - low) / 2
    return LossThreshold(torch.nn.functional.softplus(-cut, threshold=40.0), *_rates(law, cut))


def _rates(law: OutputLaw, cut: Tensor) -> Rates:
    cut, one = torch.broadcast_tensors(cut, torch.ones_like(law.alpha))
    tpr, fpr = exceedance(law, inverse_prox(cut, law.gamma, one)), exceedance(law, cut)
    return Rates(tpr, fpr, tpr - fpr)
