r"""What membership scores achieve against each model: advantage, area under the curve, hits at few false alarms.

Scores are larger for likelier members and positive where the attack says "member". `metrics.roc` measures
one model, with intervals over points; here every model and epoch is measured at once, and intervals come from
comparing models. Nothing here tunes: a threshold that looks at members (for a rate of false alarms) says so.
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor

from leakage import arguments
from leakage.metrics.estimates import Estimate, mean_interval

FPRS = (0.01, 0.001)


def rates(
    scores: Float[Tensor, "*e models points"], member: Bool[Tensor, "models points"], *, fprs: Sequence[float] = FPRS
) -> dict[str, Float64[Tensor, "*e models"]]:
    r"""All rates of each model.

    Returns:
        `advantage`: $\mathrm{TPR} - \mathrm{FPR}$ of accusing positive scores; `auc`: ties count half; and for each of
        `fprs` `tpr_at_<fpr>`: see `tpr_at_fpr`.

    Raises:
        ValueError: if scores are not finite, shapes do not fit, a model has no member or no outsider, or a rate in
            `fprs` cannot be seen on its outsiders.
    """
    _check(scores, member)
    outsiders = _sorted_outsiders(scores, member)
    found = {"advantage": _advantage(scores, member), "auc": _auc(scores, member, outsiders)}
    return found | {f"tpr_at_{fpr}": _tpr_at_fpr(scores, member, outsiders, fpr) for fpr in fprs}


def tpr_at_fpr(
    scores: Float[Tensor, "*e models points"], member: Bool[Tensor, "models points"], *, fpr: float
) -> Float64[Tensor, "*e models"]:
    """The share of a model's members that score above all but a share `fpr` of its outsiders; ties help nobody.

    Raises:
        ValueError: as `rates`: if `fpr` is outside (0, 1) or some model has fewer than 1 / `fpr` outsiders.
    """
    _check(scores, member)
    return _tpr_at_fpr(scores, member, _sorted_outsiders(scores, member), fpr)


def at_crossing(
    level: Float[Tensor, "*b epochs"], value: Float[Tensor, "*b epochs"], *, target: float
) -> Float64[Tensor, "*b"]:
    """`value` where `level` first reaches `target`, by linear interpolation between epochs; NaN if it never does.

    `level` must rise to the target where its first epoch is below it, and fall to it where its first epoch is above; a
    curve that crosses several times is read where it crosses first. A curve that starts on the target has not been seen
    crossing it: NaN too, never the value at an end.

    Raises:
        ValueError: if shapes differ, there are fewer than two epochs, or a number is not finite.
    """
    arguments.real("level", level)
    arguments.real("value", value)
    arguments.number("target", target)
    if level.shape != value.shape or level.ndim < 1 or level.shape[-1] < 2:
        raise ValueError(
            f"`level` and `value` must be curves over the same epochs, two at least; got {tuple(level.shape)} and "
            f"{tuple(value.shape)}."
        )
    level, value = level.double(), value.double()
    towards = torch.where(level[..., :1] > target, -1.0, 1.0)
    reached = towards * level >= towards * target
    after = reached.to(torch.int8).argmax(-1, keepdim=True)
    valid = reached.any(-1, keepdim=True) & (after > 0)
    before = (after - 1).clamp_min(0)
    (low, high), (start, end) = ([curve.gather(-1, place) for place in (before, after)] for curve in (level, value))
    share = (target - low) / torch.where(valid, high - low, 1.0)
    return torch.where(valid, start + share * (end - start), math.nan).squeeze(-1)


def pairs_at_crossing(
    level: Float[Tensor, "*s epochs models"], value: Float[Tensor, "*s epochs models"], *, target: float
) -> Float64[Tensor, "*s pairs"]:
    """`at_crossing` for the mean curves of every complementary pair of models, as `audit` gives the curves.

    Each pair is stopped where its own curve crosses, so that the spread over pairs includes how well that is known.

    Raises:
        ValueError: as `at_crossing`, or if the number of models is odd.
    """
    arguments.real("level", level, "*s epochs models")
    arguments.real("value", value, "*s epochs models")
    if level.shape[-1] % 2 or not level.shape[-1] or value.shape != level.shape:
        raise ValueError(
            f"`level` and `value` must hold the same pairs of models, got {tuple(level.shape)}, {tuple(value.shape)}."
        )
    curves = (curve.double().unflatten(-1, (-1, 2)).mean(-1).mT for curve in (level, value))
    return at_crossing(*curves, target=target)


def over_models(values: Float[Tensor, "*splits models"], *, level: float = 0.95) -> Estimate:
    """Mean over models with Student's t interval over *pairs* of them.

    Models 2i and 2i + 1 are trained on complements of each other, so that they are no independent observations; their
    means nearly are. For a difference, give differences model by model: what both share then cancels.

    Raises:
        ValueError: if the number of models is odd, there are fewer than two pairs, or a value is not finite (NaN: a
            target that some model never reached).
    """
    if arguments.real("values", values, "*splits models").shape[-1] % 2:
        raise ValueError(f"`values` must hold pairs of models, got {values.shape[-1]} models.")
    return mean_interval(values.double().unflatten(-1, (-1, 2)).mean(-1).flatten(), level=level)


def _check(scores: Tensor, member: Tensor) -> None:
    """Raise the errors of `rates` that concern scores and members."""
    arguments.truth("member", member, "models points")
    models, points = member.shape
    arguments.real("scores", scores, "*e models points", models=models, points=points)
    if bool((member.all(-1) | ~member.any(-1)).any()):
        raise ValueError("`member` must have members and outsiders in every model.")


def _advantage(scores: Tensor, member: Tensor) -> Float64[Tensor, "*e models"]:
    accused = scores > 0
    hits, alarms = (accused & member).sum(-1), (accused & ~member).sum(-1)
    return hits / member.sum(-1).double() - alarms / (~member).sum(-1).double()


def _sorted_outsiders(scores: Tensor, member: Tensor) -> Float[Tensor, "*e models points"]:
    """Each model's outsiders from the lowest score on; +∞ fills the places of its members."""
    return scores.masked_fill(member, math.inf).sort(-1).values


def _auc(scores: Tensor, member: Tensor, outsiders: Tensor) -> Float64[Tensor, "*e models"]:
    beaten = [torch.searchsorted(outsiders, scores.contiguous(), right=right) for right in (False, True)]
    return ((beaten[0] + beaten[1]) * member).sum(-1) / (2.0 * member.sum(-1) * (~member).sum(-1)).double()


def _tpr_at_fpr(scores: Tensor, member: Tensor, outsiders: Tensor, fpr: float) -> Float64[Tensor, "*e models"]:
    arguments.number("fpr", fpr, above=0, below=1)
    count = (~member).sum(-1)
    # 0.29 * 100 is 28.999999999999996: the tolerance keeps what was meant as a whole number whole.
    allowed = (count.double() * (fpr * (1 + 1e-12))).long()
    if bool((allowed < 1).any()):
        raise ValueError(
            f"`fpr` = {fpr!r} cannot be seen on {int(count.min())} outsiders; take at least {math.ceil(1 / fpr)}."
        )
    spared = (count - 1 - allowed).clamp_min(0).unsqueeze(-1).expand(*scores.shape[:-1], 1)
    return ((scores > outsiders.gather(-1, spared)) & member).sum(-1) / member.sum(-1).double()
