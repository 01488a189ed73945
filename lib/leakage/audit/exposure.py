"""Which rows an audit finds exposed, which slices, and what its strongest attack achieves at least."""

import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from leakage import arguments, blocks
from leakage.audit.evidence import Evidence
from leakage.audit.measures import METRICS, Measured, mean_of, tpr_at, visible, visible_fpr
from leakage.audit.tables import Table
from leakage.metrics.intervals import clopper_pearson
from leakage.metrics.scores import round_ties

_FEW = 10  # members or outsiders of a slice, on average over targets


def check_metric(metric: str) -> str:
    """`metric` if it is one of `METRICS` or `tpr@F` with F in (0, 1).

    Raises:
        ValueError: otherwise.
    """
    if metric in METRICS:
        return metric
    rate = re.fullmatch(r"tpr@([0-9]*\.?[0-9]+(?:e-?[0-9]{1,3})?)", metric) if isinstance(metric, str) else None
    if not rate or not 0 < float(rate[1]) < 1:
        raise ValueError(
            f"`metric` must be one of {', '.join(METRICS)} or tpr@F with F in (0, 1), such as tpr@0.01; "
            f"got {arguments.shown(metric)}."
        )
    return metric


def at_least(audit: Evidence, metric: str) -> float:
    """See `Audit.at_least`."""
    check_metric(metric)
    if metric not in METRICS:
        metric = _seen(audit, float(metric.removeprefix("tpr@")))
    level = 1 - (1 - audit.level) / len(audit.found)
    lows = []
    for name, scores in audit.scores.items():
        given = torch.from_numpy(scores), torch.from_numpy(audit.member), audit.errors.get(name, {}), audit.parts
        lows.append(Measured(*given).interval(metric, level=level).low)
    return max(lows)


def _seen(audit: Evidence, fpr: float) -> str:
    """The name of the rate, if it can be seen and its error is known."""
    fewest = audit.outsiders
    if not visible(fewest, fpr):
        needed = math.ceil(1 / fpr - 1e-9)
        raise ValueError(f"tpr@{fpr:g} cannot be seen on {fewest:,} outsiders; it needs {needed:,} or more.")
    if len(audit.targets) > 1 and fpr not in audit.fprs:
        raise ValueError(f"tpr@{fpr:g} must be among the rates of the audit, got {audit.fprs}; give it in `fprs`.")
    return tpr_at(fpr)


def records(audit: Evidence, k: int) -> Table:
    """See `Audit.records`."""
    k = arguments.count("k", k, least=1)
    measured = _strongest(audit)
    fpr = visible_fpr(audit.fprs, audit.outsiders)
    found, times, outranks, score = (np.zeros(audit.member.shape[1]) for _ in range(4))
    for rows, ranked in measured.ranked():
        scores, member = round_ties(measured.scores[rows]), measured.member[rows]
        caught = (scores > ranked.threshold_at_fpr(fpr).unsqueeze(-1)) & member
        below = torch.searchsorted(ranked.outsider, scores).clamp_max(ranked.outsiders.unsqueeze(-1))
        found += caught.sum(0).numpy()
        times += member.sum(0).numpy()
        outranks += (below.double() / ranked.outsiders.unsqueeze(-1) * member).sum(0).numpy()
        score += (scores * member).sum(0).numpy()
    outranks, score = (total / times.clip(1) for total in (outranks, score))
    share = found / (times + 1)  # once of one time is less sure than nine of ten
    rows = np.flatnonzero(times)
    rows = rows[np.lexsort((rows, -score[rows], -outranks[rows], -share[rows]))][:k]
    known = {"label": audit.labels, "group": audit.groups}
    named = {name: values for name, values in known.items() if values is not None}
    columns = ("row", "found", "of models", "at FPR", "outranks", "score", *named)
    return Table(
        columns,
        tuple(
            (
                int(row),
                int(found[row]),
                int(times[row]),
                f"{100 * fpr:g} %",
                float(outranks[row]),
                float(score[row]),
                *(str(values[row]) for values in named.values()),
            )
            for row in rows
        ),
    )


def slices(audit: Evidence) -> Table:
    """See `Audit.slices`."""
    measured = _strongest(audit)
    fpr = visible_fpr(audit.fprs, audit.outsiders)
    cuts = torch.cat([ranked.threshold_at_fpr(fpr) for _, ranked in measured.ranked()])
    columns = ("by", "slice", "members", "outsiders", "AUC", f"TPR at {100 * fpr:g} % FPR", "note")
    return Table(
        columns, tuple(_slice(measured.scores, measured.member, cuts, audit.level, *named) for named in _named(audit))
    )


def _named(audit: Evidence) -> Iterator[tuple[str, str, np.ndarray]]:
    for by, values in (("label", audit.labels), ("group", audit.groups)):
        if values is not None:
            yield from ((by, str(name), values == name) for name in np.unique(values))


def _slice(
    scores: Tensor, member: Tensor, cuts: Tensor, level: float, by: str, name: str, inside: np.ndarray
) -> tuple[Any, ...]:
    chosen = torch.from_numpy(np.flatnonzero(inside))
    within, kinds = _columns(scores, chosen), _columns(member, chosen)
    seen = blocks.counted(kinds)
    members, outsiders = (float(kind.double().mean()) for kind in (seen, len(chosen) - seen))
    counts = (round(members), round(outsiders))
    able = (torch.minimum(seen, len(chosen) - seen) >= 2).nonzero().flatten()
    if not len(able) or min(members, outsiders) < _FEW:
        return (by, name, *counts, None, None, f"too few: fewer than {_FEW} members or outsiders")
    whole = Measured(blocks.chosen(within, able.tolist()), blocks.chosen(kinds, able.tolist()))
    area = whole.interval("auc", level=level)
    found = [
        ((round_ties(within[:, part]) > cuts.unsqueeze(-1)) & kinds[:, part]).sum(-1)
        for part in blocks.of(within.shape)
    ]
    hits, of = torch.stack(found).sum(0), seen
    left_out = f"{len(kinds) - len(able)} models left out" * (len(able) < len(kinds))
    shares = zip(hits[able].tolist(), of[able].tolist(), strict=True)
    share = mean_of([clopper_pearson(*each, level=level) for each in shares], level=level)
    return (by, name, *counts, area, share, left_out)


def _columns(table: Tensor, places: Tensor) -> Tensor:
    """These columns of a table."""
    shape = (len(table), len(places))
    return blocks.made(shape, blocks.of(shape), lambda part: table[:, places[part]], dtype=table.dtype)


def _strongest(audit: Evidence) -> Measured:
    return Measured(torch.from_numpy(audit.scores[audit.strongest.attack]), torch.from_numpy(audit.member))
