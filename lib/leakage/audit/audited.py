"""From what is given to a result: run the attacks, measure each, and say what the design cannot show."""

from collections.abc import Sequence

from leakage import arguments
from leakage.audit import attacks, jackknife
from leakage.audit.evidence import Found
from leakage.audit.given import Given
from leakage.audit.measures import METRICS, Measured, tpr_at, visible
from leakage.audit.notes import find_duplicate_losses, find_swapped_members, write_notes
from leakage.audit.result import Audit


def audited(
    given: Given,
    *,
    fprs: Sequence[float],
    level: float,
    more: Sequence[str] | None = None,
    again: jackknife.Again | None = None,
) -> Audit:
    """Every attack that the design allows, measured.

    Args:
        given: the models.
        fprs: false positive rates.
        level: of the intervals.
        more: further notes, which come first, of whoever knows the rows themselves. By default losses are searched for
            signs of duplicates.
        again: see `jackknife.errors`.

    Raises:
        TypeError: if the rates are no sequence.
        ValueError: if a rate or the level is not in (0, 1).
    """
    if isinstance(fprs, float | str):
        raise TypeError(f"`fprs` must be several rates, such as (0.01, 0.001), got {fprs!r}; for one give ({fprs},).")
    rates = tuple(dict.fromkeys(arguments.number("fprs", fpr, above=0, below=1) for fpr in fprs))
    level = arguments.number("level", level, above=0, below=1)
    scores = dict(attacks.scores(given))
    errors, parts = jackknife.errors(given, [*scores], rates, again=again), len(jackknife.groups(given))
    found = []
    for name, values in scores.items():
        measured = Measured(values, given.attacked, errors.get(name, {}), parts)
        if len(given.targets) > 1:
            measured.each(*METRICS, *(tpr_at(fpr) for fpr in rates if visible(measured.outsiders, fpr)))  # in one go
        found.append(
            Found(
                name,
                attacks.ATTACKS[name].sees,
                measured.interval("auc", level=level),
                measured.interval("advantage", level=level),
                {fpr: measured.tpr(fpr, level=level) for fpr in rates},
            )
        )
    reservations = write_notes(given, attacks.support(given), fprs=rates, level=level)
    loss = found[0].auc  # of the loss itself, which every design allows
    return Audit(
        found=tuple(found),
        notes=(
            *find_swapped_members(loss.low, loss.high),
            *(find_duplicate_losses(given) if more is None else more),
            *reservations,
        ),
        scores={name: values.numpy() for name, values in scores.items()},
        member=given.attacked.numpy(),
        targets=given.targets,
        models=len(given.losses),
        labels=given.labels,
        groups=given.groups,
        fprs=rates,
        level=level,
        errors=errors,
        parts=parts,
    )
