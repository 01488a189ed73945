r"""Membership from the size of an output: at a KKT point training points have $|\Phi| \ge m$, fresh points stay below.

The attacker sees the one output $\Phi(x)$ of a network at each point, and knows the network's margin $m$, or estimates
it from shadow models (`shadow_margin`), or knows only that one of several candidates is a member. Outputs are
(..., points), margins (...); scores are larger for likelier members. No attack here has a theory for a network
that does not fit its labels.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

HALF = 0.5  # of the margin: where Corollaries 3.3 and 3.4 draw the line between members and fresh points


class FoundMember(NamedTuple):
    r"""The answer of the attack of Corollary 3.4.

    Attributes:
        index: of the candidate with the largest $|\Phi|$; of equal ones the first.
        margin: that $|\Phi|$, α in the paper: the attacker's estimate of m.
        unique: whether every other candidate stays below half of it.
    """

    index: Int[Tensor, "*b"]
    margin: Float[Tensor, "*b"]
    unique: Bool[Tensor, "*b"]


def flag_above(outputs: Float[Tensor, "*#b t"], margin: Float[Tensor, "*#b"]) -> Bool[Tensor, "*b t"]:
    r"""The points called members if the margin is known: $|\Phi(x)| > m / 2$.

    Source: Smorodinsky et al., Corollary 3.3. Corollary 3.5, for an attacker who knows only a lower
    bound of the margin, is the same rule with that bound for m. The other rule of Corollary 3.3, $|\Phi(x)| \approx m$,
    is a threshold on `distance_score` or `one_sided_score`.
    """
    return size_score(outputs) > HALF * margin.unsqueeze(-1)


def find_member(outputs: Float[Tensor, "*b k"]) -> FoundMember:
    r"""The likeliest member of k candidates, one of which is known to be one: $\arg\max_i |\Phi(z_i)|$.

    Source: Smorodinsky et al., Corollary 3.4.
    """
    sizes = size_score(outputs)
    alpha, index = sizes.max(-1)
    below = sizes < HALF * alpha.unsqueeze(-1)
    return FoundMember(index, alpha, below.sum(-1) == sizes.shape[-1] - 1)


def shadow_margin(margins: Float[Tensor, "*b nets"]) -> Float[Tensor, "*b nets"]:
    r"""Each network's margin as estimated by an attacker who trained all the others: their mean.

    The "reference networks" of Smorodinsky et al., Section 2: shadow models trained with the same recipe on other data.
    """
    return (margins.sum(-1, keepdim=True) - margins) / (margins.shape[-1] - 1)


def size_score(outputs: Float[Tensor, "*b t"]) -> Float[Tensor, "*b t"]:
    r"""$|\Phi(x)|$, the score whose thresholds are the attacks of Corollaries 3.3 to 3.5."""
    return outputs.abs()


def distance_score(outputs: Float[Tensor, "*#b t"], margin: Float[Tensor, "*#b"]) -> Float[Tensor, "*b t"]:
    r"""How close a point is to the margin: $-\bigl||\Phi(x)| - m\bigr|$.

    Members *equal* the margin, so this also rejects a fresh point whose output exceeds m; no threshold on $|\Phi|$ can
    do that. Ours; `one_sided_score` is the better test.
    """
    return -(size_score(outputs) - margin.unsqueeze(-1)).abs()


def one_sided_score(
    outputs: Float[Tensor, "*#b t"], margin: Float[Tensor, "*#b"], *, slack: float = 0.0
) -> Float[Tensor, "*b t"]:
    r"""How close a point is to the margin, where points below the margin are outsiders.

    $$ s(x) = \begin{cases} \min(r, 1/r) & r \ge 1 - \text{slack} \\ r - 1 & \text{else,} \end{cases} \qquad
       r = |\Phi(x)| / m $$

    No member answers less than m, the smallest answer of all members, at any time of training. So a smaller answer
    has a negative score, below all others; `distance_score` gives it the score of a larger answer as far away. Ours.

    Args:
        slack: by which share of m an answer may be smaller; 0 for the margin itself, more for an estimate of it.
    """
    sizes, level = size_score(outputs), margin.unsqueeze(-1)
    close = torch.minimum(sizes / level, level / sizes)
    return torch.where(sizes >= (1 - slack) * level, close, sizes / level - 1)
