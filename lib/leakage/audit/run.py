"""Run an audit: every attack that is possible on the losses, what features alone show, and notes on the limits."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import torch

from leakage import arguments
from leakage.audit.forms import Audit
from leakage.audit.inputs import LEAST_OF_A_KIND, AuditInputs
from leakage.audit.notes import (
    explain_intervals,
    find_differing_members,
    find_duplicate_losses,
    find_limits,
    find_swapped_members,
    share_one_split,
)
from leakage.audit.result import AttackSummary
from leakage.membership.evaluation import (
    METRICS,
    AttackResult,
    Evaluation,
    curve_fprs,
    evaluate,
    fewest_outsiders,
    is_resolvable,
    mean_estimate,
    measure_without,
    model_groups,
    pooled_estimate,
    scores_and_flags,
    tpr_name,
)
from leakage.membership.row_features import tell_members_apart
from leakage.membership.table import ATTACKS, Attack, own_attack
from leakage.membership.trained_models import TrainedModels
from leakage.threads import use_threads

AUDIT_ATTACKS = (
    *("loss", "sample threshold", "calibrated loss", "LiRA", "LiRA, own variance", "LiRA, offline"),
    *("RMIA", "RMIA, offline", "quantile regression", "gap"),
)
"""The attacks of `ATTACKS` that need losses, whether predictions are right, and features of the rows at most. Offline
forms and the quantile regression are used only where online forms, stronger and quicker, are not possible."""

_KNOWS = (
    "knows whom its target was trained on, since it gives other scores if the target's members and outsiders change "
    "places; it may read the losses, and the members of the shadow models (`models.shadows`) alone"
)


class AuditOptions(NamedTuple):
    """What is measured, and the attacks of a user, checked."""

    fprs: tuple[float, ...]
    level: float
    attacks: Mapping[str, Attack]


def check_options(fprs: Any, level: Any, attacks: Any = None) -> AuditOptions:
    """The options of an audit; see `audit.of_losses`."""
    if isinstance(fprs, float | str) or not isinstance(fprs, Iterable):
        raise TypeError(
            f"`fprs` must be a sequence of rates, such as (0.01, 0.001), got {arguments.shown(fprs)}; of one rate, of "
            "one element."
        )
    rates = tuple(dict.fromkeys(_check_rate(fpr) for fpr in fprs))
    if not isinstance(attacks or {}, Mapping):
        raise TypeError(f"`attacks` must be a mapping of names to functions, got {type(attacks).__name__}.")
    own: dict[str, Attack] = {}
    for name, attack in (attacks or {}).items():
        if not isinstance(name, str) or name in ATTACKS:
            raise ValueError(
                f"`attacks` must have names of their own, got {name!r}, which the audit has or is no text."
            )
        own[name] = own_attack(name, attack)
    return AuditOptions(rates, arguments.check_number("level", level, above=0, below=1), own)


def _check_rate(fpr: Any) -> float:
    """A rate in (0, 1); of float32 the shortest number that it stands for: 0.01, not 0.0099999998."""
    rate = arguments.check_number("fprs", fpr, above=0, below=1)
    return float(f"{rate:.7g}") if getattr(fpr, "itemsize", 8) == 4 else rate


def try_attacks(models: TrainedModels, attacks: Mapping[str, Attack]) -> None:
    """Run a user's attacks on models that were made up, with and without some of them, before any is trained."""
    groups = [[], *model_groups(models)[:1]]
    for name, attack in attacks.items():
        try:
            for group in groups:
                measure_without(models, group, {name: attack}, METRICS)
        except Exception as error:
            raise ValueError(
                f"`attacks`: {name!r} fails on drawn losses of {len(models.member)} models, or without some of them: "
                f"{error}; it must read all that it needs from the models it is given."
            ) from error


def run_audit(
    inputs: AuditInputs,
    options: AuditOptions,
    *,
    notes_on_rows: Sequence[str] | None = None,
    drawn: bool = False,
) -> Audit:
    """Run every attack that is possible on these models, and measure its success on their rows or units.

    Args:
        notes_on_rows: notes on duplicate rows, from a caller that has the rows; by default rows with equal losses are
            noted.
        drawn: whether members were drawn at random, so that only chance tells them from outsiders without a model.
    """
    rates, level = options.fprs, options.level
    every = {**possible_attacks(inputs.models), **options.attacks}
    with use_threads():
        evaluation = leave_out_attacks_that_know(evaluate(inputs.models, every, fprs=rates), options.attacks)
        outsiders = fewest_outsiders(inputs.models)
        resolvable = [fpr for fpr in (*rates, *curve_fprs(outsiders)) if is_resolvable(fpr, outsiders)]
        evaluation.standard_errors([*METRICS, *dict.fromkeys(map(tpr_name, resolvable))])  # of all in one pass
        baseline = None if drawn else measure_baseline(inputs.models, fprs=rates, level=level)
    loss = evaluation.interval("loss", interval="rows", level=level)
    swapped = find_swapped_members(loss.low, loss.high, probabilities=inputs.models.probabilities)
    warnings = (*swapped, *(find_differing_members(baseline.auc) if baseline else ()))
    named = {"labels": inputs.labels, "groups": inputs.groups, "units": inputs.units, "baseline": baseline}
    found = Audit(evaluation, rates, level, **named, notes=(), warnings=warnings)
    notes = (
        *warnings,
        *explain_own_attacks(found, options.attacks),
        *(find_duplicate_losses(inputs.models) if notes_on_rows is None else notes_on_rows),
        *find_limits(inputs.models, fprs=rates),
        *found.explain_blind_rates(),
        *found.explain_small_slices(),
        *inputs.notes,
        explain_intervals(
            len(inputs.models.target_numbers),
            level,
            one_split=share_one_split(inputs.models),
            rows="rows" if inputs.units is None else "units",
        ),
    )
    return dataclasses.replace(found, notes=notes)


def leave_out_attacks_that_know(evaluation: Evaluation, names: Iterable[str]) -> Evaluation:
    """Without the scores of each attack that gives a target others if its members change places with outsiders.

    The target's losses stay, and so do all shadow models: an attacker sees no difference.
    """
    models, results = evaluation.models, dict(evaluation.results)
    target = models.target_numbers[0]
    own = [target] if models.partner is None else [target, int(models.partner[target])]
    swapped = models.member.clone()
    swapped[own] = ~swapped[own]
    others = dataclasses.replace(models, member=swapped)
    for name in names:
        attack = results[name].attack
        with suppress(ValueError):  # an attack that cannot run on one of them has not shown that it knows
            before, after = (
                scores_and_flags(one, name, attack, torch.Generator().manual_seed(0))[0][0] for one in (models, others)
            )  # with the same draws
            if not torch.allclose(before, after, equal_nan=True):
                results[name] = AttackResult(attack, None, None, {}, _KNOWS)
    return dataclasses.replace(evaluation, results=results)


def explain_own_attacks(found: Audit, names: Iterable[str]) -> list[str]:
    """A note for each attack of a user that has no row, or whose scores are smaller for members."""
    notes = []
    for name in names:
        result = found.evaluation.results[name]
        if result.scores is None:
            notes.append(f"The attack {name!r} has no row: it {result.missing}.")
        elif (area := found.interval(name, "auc")).high < 0.5:
            notes.append(
                f"The attack {name!r} ranks outsiders above members (AUC {area:.2f}): scores must be larger for "
                "likelier members; turn their sign."
            )
    return notes


def possible_attacks(models: TrainedModels) -> Mapping[str, Attack]:
    """The attacks of an audit, some of which are left out if LiRA and RMIA have enough shadow models to be online.

    Models of one split have no attack that knows shadow models: these would tell it who is a member.
    """
    if share_one_split(models):
        return {name: ATTACKS[name] for name in AUDIT_ATTACKS if "shadow models" not in ATTACKS[name].knows}
    support = models.shadow_support
    online = support.both and min(support.members, support.outsiders) >= 2
    weaker = [name for name in AUDIT_ATTACKS if name.endswith(", offline") or name == "quantile regression"]
    return {name: ATTACKS[name] for name in AUDIT_ATTACKS if not (online and name in weaker)}


def measure_baseline(models: TrainedModels, *, fprs: Sequence[float], level: float) -> AttackSummary | None:
    """What `row_features.tell_members_apart` achieves; None without features. Ends are means of the targets' ends."""
    if models.features is None:
        return None
    scores, member = tell_members_apart(models.target_member, models.average_units(models.features.mT).mT)
    outsiders = (~member).sum(1)
    able = ((member.sum(1) >= LEAST_OF_A_KIND) & (outsiders >= LEAST_OF_A_KIND)).nonzero().flatten().tolist()
    if not able:
        return None
    shown = [fpr for fpr in fprs if is_resolvable(fpr, int(outsiders[able].min()))]
    means = {}
    for metric in [*METRICS, *map(tpr_name, shown)]:
        each = [pooled_estimate(scores[[one]], scores[[one]] > 0, member[[one]], metric, level=level) for one in able]
        means[metric] = mean_estimate(each, level=level)
    tpr = {fpr: means.get(tpr_name(fpr)) for fpr in fprs}
    return AttackSummary("no attack: without the model", "features", means["auc"], means["advantage"], tpr)
