"""Run an audit: every attack on losses and labels that the design allows, measured, with notes on its limits."""

from collections.abc import Mapping, Sequence

from leakage import arguments
from leakage.attacks.membership.table import ATTACKS, Attack
from leakage.attacks.membership.trained_models import TrainedModels
from leakage.audit.inputs import AuditInputs
from leakage.audit.notes import explain_intervals, find_duplicate_losses, find_limits, find_swapped_members
from leakage.audit.result import Audit
from leakage.evaluation import METRICS, Remeasure, curve_fprs, evaluate, fewest_outsiders, is_resolvable, tpr_name

AUDIT_ATTACKS = (
    *("loss", "sample threshold", "calibrated loss", "LiRA", "LiRA, own variance", "LiRA, offline"),
    *("RMIA", "RMIA, offline", "gap"),
)
"""The attacks of `ATTACKS` that need no more than losses, and right or wrong. An offline form is left out where the
online one, which is stronger, is possible."""


def run_audit(
    inputs: AuditInputs,
    *,
    fprs: Sequence[float],
    level: float,
    notes_on_rows: Sequence[str] | None = None,
    remeasure: Remeasure | None = None,
) -> Audit:
    """Every attack that the design allows, measured for these very rows.

    Args:
        inputs: the models.
        fprs: false positive rates.
        level: of the intervals.
        notes_on_rows: notes from somebody who knows the rows themselves; by default losses are searched for duplicates.
        remeasure: see `evaluation.Remeasure`.

    Raises:
        TypeError: if the rates are no sequence.
        ValueError: if a rate or the level is not in (0, 1).
    """
    if isinstance(fprs, float | str):
        raise TypeError(f"`fprs` must be several rates, such as (0.01, 0.001), got {fprs!r}; for one give ({fprs},).")
    rates = tuple(dict.fromkeys(arguments.check_number("fprs", fpr, above=0, below=1) for fpr in fprs))
    level = arguments.check_number("level", level, above=0, below=1)
    evaluation = evaluate(inputs.models, possible_attacks(inputs.models), fprs=rates, remeasure=remeasure)
    outsiders = fewest_outsiders(inputs.models)
    seen = [fpr for fpr in (*rates, *curve_fprs(outsiders)) if is_resolvable(fpr, outsiders)]
    evaluation.standard_errors([*METRICS, *dict.fromkeys(map(tpr_name, seen))])  # all in one go
    loss = evaluation.interval("loss", interval="rows", level=level)
    notes = (
        *find_swapped_members(loss.low, loss.high),
        *(find_duplicate_losses(inputs.models) if notes_on_rows is None else notes_on_rows),
        *find_limits(inputs.models, fprs=rates),
        *inputs.notes,
        explain_intervals(len(inputs.models.target_numbers), level),
    )
    return Audit(evaluation, fprs=rates, level=level, labels=inputs.labels, groups=inputs.groups, notes=notes)


def possible_attacks(models: TrainedModels) -> Mapping[str, Attack]:
    """The attacks of an audit, without offline forms where LiRA and RMIA have shadow models of both kinds."""
    support = models.shadow_support
    online = support.both and min(support.members, support.outsiders) >= 2
    return {name: ATTACKS[name] for name in AUDIT_ATTACKS if not (online and name.endswith(", offline"))}
