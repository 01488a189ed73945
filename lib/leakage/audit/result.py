"""The result of an audit: its table, its curves, the rows most exposed, and the forms in which it can be saved."""

import html
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from leakage import arguments
from leakage.evaluation import METRICS, Evaluation, fewest_outsiders, fpr_of, is_resolvable, mean_estimate, tpr_name
from leakage.metrics.estimates import Estimate, clopper_pearson
from leakage.metrics.scores import Scores, round_ties

_FEW = 10  # members or outsiders of a slice, on average over targets


@dataclass(frozen=True)
class Table:
    """A table that prints as text and shows itself in a notebook; a row is a dictionary by column.

    Attributes:
        columns: their names.
        rows: one value for each column: a number, a text, an interval, or None, which is shown as a dash.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (dict(zip(self.columns, row, strict=True)) for row in self.rows)

    def __getitem__(self, place: int) -> dict[str, Any]:
        return dict(zip(self.columns, self.rows[place], strict=True))

    def __str__(self) -> str:
        lines = [self.columns, *(tuple(map(_format_cell, row)) for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
        )

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self.columns)
        rows = ("".join(f"<td>{html.escape(_format_cell(cell))}</td>" for cell in row) for row in self.rows)
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _format_cell(cell: Any) -> str:
    if cell is None:
        return "–"
    return format(cell, ".3f") if isinstance(cell, float | Estimate) else str(cell)


class AttackSummary(NamedTuple):
    """What one attack achieves.

    Attributes:
        attack: its name.
        sees: what the attacker is given of each row.
        auc: area under the ROC curve.
        advantage: TPR - FPR at the attack's own threshold.
        tpr: true positive rate by false positive rate; None where the outsiders are too few to show it.
    """

    attack: str
    sees: str
    auc: Estimate
    advantage: Estimate
    tpr: Mapping[float, Estimate | None]


@dataclass(frozen=True, eq=False)
class Audit:
    """How much models give away of the rows they were trained on.

    Attributes:
        evaluation: every attack, with its scores.
        fprs: false positive rates asked for.
        level: of the intervals.
        labels: of the rows.
        groups: of the rows.
        notes: what the design cannot show, and reservations.
    """

    evaluation: Evaluation = field(repr=False)
    fprs: tuple[float, ...]
    level: float
    labels: np.ndarray | None
    groups: np.ndarray | None
    notes: tuple[str, ...]

    @cached_property
    def results(self) -> tuple[AttackSummary, ...]:
        """What each attack achieves that the design allows."""
        return tuple(
            AttackSummary(
                name,
                one.attack.sees,
                self.interval(name, "auc"),
                self.interval(name, "advantage"),
                {fpr: self._tpr(name, fpr) for fpr in self.fprs},
            )
            for name, one in self.evaluation.results.items()
            if one.scores is not None
        )

    @property
    def strongest(self) -> AttackSummary:
        """The attack with the largest AUC."""
        return max(self.results, key=lambda row: row.auc.estimate)

    @property
    def targets(self) -> tuple[int, ...]:
        """The models that were attacked."""
        return self.evaluation.models.target_numbers

    @property
    def models(self) -> int:
        """How many models there are, shadow models included."""
        return len(self.evaluation.models.member)

    @property
    def member(self) -> np.ndarray:
        """Who was trained on what, (targets, rows)."""
        return self.evaluation.models.target_member.numpy()

    @property
    def scores(self) -> Mapping[str, np.ndarray]:
        """The scores of each attack, (targets, rows); larger for likelier members."""
        return {name: one.scores.numpy() for name, one in self.evaluation.results.items() if one.scores is not None}

    @property
    def outsiders(self) -> int:
        """The outsiders of the target that has fewest."""
        return fewest_outsiders(self.evaluation.models)

    def interval(self, attack: str, metric: str, *, level: float | None = None) -> Estimate:
        """A metric of an attack, `auc`, `advantage` or a resolvable `tpr@F`, for these rows: see `evaluation`."""
        return self.evaluation.interval(attack, metric, interval="rows", level=self.level if level is None else level)

    def _tpr(self, attack: str, fpr: float) -> Estimate | None:
        return self.interval(attack, tpr_name(fpr)) if is_resolvable(fpr, self.outsiders) else None

    def table(self) -> Table:
        """Every attack with its intervals; a dash where the outsiders are too few."""
        columns = ("attack", "sees", "AUC", "advantage", *(f"TPR at {100 * fpr:g} % FPR" for fpr in self.fprs))
        return Table(
            columns, tuple((row.attack, row.sees, row.auc, row.advantage, *row.tpr.values()) for row in self.results)
        )

    def at_least(self, metric: str) -> float:
        """What the strongest attack achieves at least, at the level of this audit.

        It is the largest lower end among the attacks' intervals, each at the level 1 - (1 - level) / attacks: so the
        bound holds although the best of several attacks is taken (Bonferroni's correction).

        Args:
            metric: `auc`, `advantage` or `tpr@F`, with F in (0, 1).

        Raises:
            ValueError: if the metric is unknown, or so few outsiders cannot show its rate.
        """
        if check_metric(metric) not in METRICS:
            fpr = fpr_of(metric)
            if not is_resolvable(fpr, self.outsiders):
                needed = math.ceil(1 / fpr - 1e-9)
                raise ValueError(f"tpr@{fpr:g} needs {needed:,} or more outsiders; there are {self.outsiders:,}.")
            metric = tpr_name(fpr)
        level = 1 - (1 - self.level) / len(self.results)
        return max(self.interval(row.attack, metric, level=level).low for row in self.results)

    def records(self, k: int = 20) -> Table:
        """The k members most exposed to the strongest attack.

        `found` says by how many of the models that were trained on the row the attack found it while flagging at most
        a share `at FPR` of the outsiders, the least of `fprs` that can be seen; `outranks` is the mean share of the
        outsiders whose score is lower. Rows are in order of found / (of models + 1), then of `outranks`.
        """
        k = arguments.check_count("k", k, least=1)
        scores, member, cuts = self._strongest_scores()
        found, times, outranks, score = (np.zeros(member.shape[1]) for _ in range(4))
        for own, marks, cut in zip(scores, member, cuts, strict=True):
            outside = own[~marks].sort().values
            found += ((own > cut) & marks).numpy()
            times += marks.numpy()
            outranks += (torch.searchsorted(outside, own).double() / len(outside) * marks).numpy()
            score += (own * marks).numpy()
        outranks, score = (total / times.clip(1) for total in (outranks, score))
        share = found / (times + 1)  # nine of ten are surer than one of one
        rows = np.flatnonzero(times)
        rows = rows[np.lexsort((rows, -score[rows], -outranks[rows], -share[rows]))][:k]
        rate = f"{100 * self._least_fpr():g} %"
        named = {"label": self.labels, "group": self.groups}
        named = {name: values for name, values in named.items() if values is not None}
        return Table(
            ("row", "found", "of models", "at FPR", "outranks", "score", *named),
            tuple(
                (
                    *(int(row), int(found[row]), int(times[row]), rate, float(outranks[row]), float(score[row])),
                    *(str(values[row]) for values in named.values()),
                )
                for row in rows
            ),
        )

    def slices(self) -> Table:
        """AUC and TPR of the strongest attack within each label and group, at the thresholds of the whole.

        AUC compares members and outsiders of the slice; TPR is the share of its members found at the least resolvable
        false positive rate of the whole. Of several targets both ends of an interval are means over them: a wide one.
        A slice with too few members or outsiders has a dash and says so.
        """
        columns = ("by", "slice", "members", "outsiders", "AUC", f"TPR at {100 * self._least_fpr():g} % FPR", "note")
        scores, member, cuts = self._strongest_scores()
        return Table(
            columns,
            tuple(
                (by, name, *_measure_slice(scores[:, inside], member[:, inside], cuts, self.level))
                for by, name, inside in self._slices()
            ),
        )

    def _slices(self) -> Iterator[tuple[str, str, Tensor]]:
        for by, values in (("label", self.labels), ("group", self.groups)):
            if values is not None:
                yield from ((by, str(name), torch.from_numpy(values == name)) for name in np.unique(values))

    def _least_fpr(self) -> float:
        """The least of the rates that the outsiders can show, or else the least that they can show at all."""
        outsiders = self.outsiders
        return min((fpr for fpr in self.fprs if is_resolvable(fpr, outsiders)), default=1 / outsiders)

    def _strongest_scores(self) -> tuple[Tensor, Tensor, Tensor]:
        """The scores of the strongest attack, members, and each target's threshold at the least rate."""
        scores = self.evaluation.scores(self.strongest.attack)
        member, fpr = self.evaluation.models.target_member, self._least_fpr()
        pairs = zip(scores, member, strict=True)
        cuts = torch.stack([Scores.from_mask(own, member=marks).threshold_at_fpr(fpr) for own, marks in pairs])
        return round_ties(scores), member, cuts

    def roc(self) -> Any:
        """The ROC curves on logarithmic axes, as a matplotlib figure; the strongest attack has a band of its level."""
        from leakage.audit import report

        return report.roc_figure(self)

    def to_json(self) -> str:
        """Numbers, notes, most exposed rows and slices as JSON; what cannot be seen is null."""
        from leakage.audit import report

        return report.to_json(self, records=self.records(), slices=self.slices())

    def report(self, path: Path | str) -> Path:
        """Write one HTML page that needs nothing else, and give its path."""
        from leakage import store
        from leakage.audit import report

        text = report.html_page(self, table=self.table(), records=self.records(), slices=self.slices())
        store.write(Path(path), text.encode())
        return Path(path)

    def _repr_html_(self) -> str:
        from leakage.audit import report

        return report.html_summary(self, self.table())

    def __str__(self) -> str:
        return "\n".join([str(self.table()), "", *(f"* {note}" for note in self.notes)])

    __repr__ = __str__


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


def _measure_slice(scores: Tensor, member: Tensor, cuts: Tensor, level: float) -> tuple[Any, ...]:
    """Members, outsiders, AUC, TPR and a note; AUC and TPR are means over the targets that have two of each kind."""
    from leakage.metrics import roc

    inside = member.sum(-1)
    members, outsiders = (float(kind.double().mean()) for kind in (inside, member.shape[1] - inside))
    counts = (round(members), round(outsiders))
    able = (torch.minimum(inside, member.shape[1] - inside) >= 2).nonzero().flatten().tolist()
    if not able or min(members, outsiders) < _FEW:
        return (*counts, None, None, f"too few: fewer than {_FEW} members or outsiders")
    areas = [roc.auc(member=scores[i][member[i]], outsider=scores[i][~member[i]], level=level) for i in able]
    hits = ((scores > cuts.unsqueeze(-1)) & member).sum(-1)
    shares = [clopper_pearson(int(hits[i]), int(inside[i]), level=level) for i in able]
    left_out = f"{len(member) - len(able)} models left out" * (len(able) < len(member))
    return (*counts, mean_estimate(areas, level=level), mean_estimate(shares, level=level), left_out)
