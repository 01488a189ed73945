r"""Membership from the size of an answer: at a KKT point a training point answers $\pm m$, a fresh one stays below.

The attacker sees the one output $\Phi(x)$ of a network for each point, and knows the network's margin $m$, or estimates
it from shadow models (`shadow_margin`), or knows only that one of several candidates is a member; labels where a score
asks for them. `outputs` are (models…, points), margins (models…); verdicts and scores are (models…, points), scores
larger for likelier members. A margin that is not positive belongs to a network without one; attacks and scores refuse
it, and answers that are not finite. Nothing here trains or draws.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Real
from torch import Tensor

from leakage import arguments

HALF = 0.5  # of the margin: where Corollaries 3.3 and 3.4 draw the line between members and fresh points


class Margin(NamedTuple):
    r"""The margin of trained networks, which their owner knows.

    Attributes:
        absolute: $\min_i |\Phi(x_i)|$, the m of Smorodinsky et al., Assumption 2.1.
        signed: $\min_i y_i \Phi(x_i)$. The same number where all labels are fitted, and not positive elsewhere.
    """

    absolute: Float[Tensor, "*b"]
    signed: Float[Tensor, "*b"]

    @property
    def exists(self) -> Bool[Tensor, "*b"]:
        """Whether the network fits all its labels; without that no theorem speaks about it."""
        return self.signed > 0


class Leak(NamedTuple):
    r"""Whom the attack of Corollary 3.4 names.

    Attributes:
        named: the candidate with the largest $|\Phi|$; of equal ones the first.
        margin: that $|\Phi|$, α in the paper: the attacker's estimate of m.
        alone: whether every other candidate stays below half of it.
    """

    named: Int[Tensor, "*b"]
    margin: Float[Tensor, "*b"]
    alone: Bool[Tensor, "*b"]


# ── the network's owner ─────────────────────────────────────────────────────────────────────────────────────────────


def margin_of(targets: Float[Tensor, "*b n"]) -> Margin:
    r"""Both readings of the margin, from $q_i = y_i \Phi(x_i)$ of all training points.

    Raises:
        ValueError: if there is no point, or a value is not finite.
    """
    arguments.filled("targets", arguments.real("targets", targets, "*b n"))
    return Margin(targets.abs().amin(-1), targets.amin(-1))


def share_on(
    outputs: Float[Tensor, "*#b t"], margin: Float[Tensor, "*#b"], *, slack: float = 0.1
) -> Float[Tensor, "*b"]:
    r"""The share of points with $|\Phi(x)| \le (1 + \text{slack})\, m$.

    The quantity of the panels (a) in Figures 1 to 5 of Smorodinsky et al., who do not spell it out. Of n training
    points it is at least 1/n if m is their $\min |\Phi|$.

    Raises:
        ValueError: if there is no point, an output is not finite, a margin is negative or not finite, or the slack is
            not in [0, 1). Zero is the $\min |\Phi|$ of a network that is silent at a training point, and allowed.
    """
    slack = arguments.number("slack", slack, least=0, below=1)
    sizes = arguments.filled("outputs", size_score(outputs))
    return (sizes <= (1 + slack) * _measured(margin, outputs)).to(outputs).mean(-1)


def share_above(
    outputs: Float[Tensor, "*#b t"], margin: Float[Tensor, "*#b"], *, slack: float = 0.0
) -> Float[Tensor, "*b"]:
    r"""The share of points with $|\Phi(x)| \ge (1 - \text{slack})\, m$.

    The quantity of the panels (b) in the same figures, without slack. With a margin that the attacker estimated
    (`shadow_margin`) it is a rate of the attack: of true positives on members, of false ones on fresh points.

    Raises:
        ValueError: as `share_on`.
    """
    slack = arguments.number("slack", slack, least=0, below=1)
    sizes = arguments.filled("outputs", size_score(outputs))
    return (sizes >= (1 - slack) * _measured(margin, outputs)).to(outputs).mean(-1)


# ── attackers, by what they know ────────────────────────────────────────────────────────────────────────────────────


def known_margin(
    outputs: Float[Tensor, "*#b t"], margin: Float[Tensor, "*#b"], *, cut: float = HALF
) -> Bool[Tensor, "*b t"]:
    r"""Who is called a member if the margin is known: $|\Phi(x)| > \text{cut} \cdot m$.

    Source: Smorodinsky et al., Corollary 3.3, where the cut is ½. Corollary 3.5, for an attacker who knows only a lower
    bound of the margin, is the same rule with that bound for m. The other rule of Corollary 3.3, $|\Phi(x)| \approx m$,
    is a threshold on `distance_score`.

    Raises:
        ValueError: if an output is not finite, a margin is not positive and finite, or the cut is not between 0 and 1,
            in units of the margin.
    """
    return size_score(outputs) > _level(margin, arguments.number("cut", cut, above=0, below=1), outputs)


def leaked_point(outputs: Float[Tensor, "*b k"]) -> Leak:
    r"""The likeliest member of k candidates, one of which is known to be one: $\arg\max_i |\Phi(z_i)|$.

    Source: Smorodinsky et al., Corollary 3.4.

    Raises:
        ValueError: if there is no candidate, an output is not finite, or all candidates of a network answer 0, so that
            nobody can be named.
    """
    sizes = arguments.filled("outputs", size_score(outputs))
    alpha, named = sizes.max(-1)
    below = sizes < _level(alpha, HALF, outputs, name="the largest |Φ| of the candidates")
    return Leak(named, alpha, below.sum(-1) == sizes.shape[-1] - 1)


def shadow_margin(margins: Float[Tensor, "*b nets"]) -> Float[Tensor, "*b nets"]:
    r"""Each network's margin as an attacker estimates it who trained all the others: their mean.

    The reference networks of Smorodinsky et al., Section 2, trained with the same recipe on other data.

    Raises:
        ValueError: if there are fewer than two networks, or a margin is not positive and finite.
    """
    others = arguments.tensor("margins", margins, "*b nets").shape[-1] - 1
    arguments.real("margins", margins.new_empty(0))
    if others < 1:
        raise ValueError(f"`margins` must be of at least 2 networks, one of them the target; got {others + 1}.")
    return (_positive(margins, name="`margins`").sum(-1, keepdim=True) - margins) / others


# ── scores ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def size_score(outputs: Float[Tensor, "*b t"]) -> Float[Tensor, "*b t"]:
    r"""$|\Phi(x)|$, the score whose thresholds are the attacks of Corollaries 3.3 to 3.5.

    Raises:
        ValueError: if an output is not finite: NaN would count as below every margin.
    """
    return arguments.real("outputs", outputs, "*b t").abs()


def distance_score(
    outputs: Float[Tensor, "*#b t"], margin: Float[Tensor, "*#b"], *, labels: Real[Tensor, "*#b t"] | None = None
) -> Float[Tensor, "*b t"]:
    r"""How close a point is to the margin: $-\bigl||\Phi(x)| - m\bigr|$, or with its label $-|y \Phi(x) - m|$.

    Members *equal* the margin, so a fresh point that answers more than m is told apart, too; no threshold on
    $|\Phi|$ can do that. Ours.

    Raises:
        ValueError: if an output is not finite, a margin is not positive and finite, or a label is not ±1.
    """
    sizes = size_score(outputs)
    answers = sizes if labels is None else loss_score(outputs, labels=labels)
    return -(answers - _level(margin, 1.0, outputs)).abs()


def loss_score(outputs: Float[Tensor, "*#b t"], *, labels: Real[Tensor, "*#b t"]) -> Float[Tensor, "*b t"]:
    r"""The usual score, small loss, as the logit of the label's probability: $\log \frac{p}{1 - p} = y \Phi(x)$.

    `posterior.margin` of a network with one output: $p = 1 / (1 + e^{-y \Phi(x)})$ has the logistic loss $-\log p$, so
    that a threshold on it is a threshold on the loss, without ties where the loss is tiny.

    Raises:
        ValueError: if an output is not finite, or a label is not ±1.
    """
    arguments.real("outputs", outputs, "*b t")
    return _broadcast("labels", arguments.signs("labels", labels), outputs.shape) * outputs


# ── small pieces ────────────────────────────────────────────────────────────────────────────────────────────────────


def _level(margin: Tensor, factor: float, outputs: Tensor, *, name: str = "`margin`") -> Tensor:
    """`factor` times a margin that exists, to compare `outputs` with."""
    return factor * _positive(_beside(margin, outputs), name=name)


def _measured(margin: Tensor, outputs: Tensor) -> Tensor:
    """Margins that are sizes, as `Margin.absolute`, of networks that fit their labels or not, beside `outputs`."""
    return arguments.real("margin", _beside(margin, outputs), least=0)


def _beside(margin: Tensor, outputs: Tensor) -> Tensor:
    """The margins, whatever they are, if there is one for each network of `outputs`, with an axis for its points."""
    arguments.real("margin", arguments.tensor("margin", margin).new_empty(0), like=outputs)
    return _broadcast("margin", margin, outputs.shape[:-1]).unsqueeze(-1)


def _broadcast(name: str, values: Tensor, shape: tuple[int, ...]) -> Tensor:
    try:
        torch.broadcast_shapes(values.shape, shape)
    except RuntimeError as error:
        raise ValueError(f"`{name}` must fit the outputs, {tuple(shape)}, got {tuple(values.shape)}.") from error
    return values


def _positive(margin: Tensor, *, name: str = "`margin`") -> Tensor:
    """The margins, all of which exist."""
    sound = (margin > 0) & torch.isfinite(margin)
    if not bool(sound.all()):
        raise ValueError(
            f"{name} must be positive and finite, got {margin[~sound][0].item()!r} as one of {margin.numel()}; "
            "leave out networks without a margin (`Margin.exists`), and say how many they are."
        )
    return margin
