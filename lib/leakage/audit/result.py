"""The result of an audit: its tables, its curve, the rows most exposed, and what it can be saved as.

Everything follows from the scores, which it holds; nothing here trains or attacks.
"""

from pathlib import Path
from typing import Any

from leakage import store
from leakage.audit import report
from leakage.audit.evidence import Evidence
from leakage.audit.report import Table


class Audit(Evidence):
    """How much models give away of who was trained on; the attributes are those of `Evidence`."""

    def table(self) -> Table:
        """Every attack with its intervals; a dash where the outsiders are too few."""
        columns = ("attack", "sees", "AUC", "advantage", *(f"TPR at {100 * fpr:g} % FPR" for fpr in self.fprs))
        return Table(
            columns, tuple((row.attack, row.sees, row.auc, row.advantage, *row.tpr.values()) for row in self.found)
        )

    def at_least(self, metric: str) -> float:
        """What the strongest attack achieves at least, at the level of this audit.

        It is the largest lower end among the attacks' intervals, each at the level 1 - (1 - level) / attacks: so the
        bound stands although the best of several attacks is taken (Bonferroni's correction).

        Args:
            metric: `auc`, `advantage` or `tpr@F`, with F in (0, 1).

        Raises:
            ValueError: if the metric is unknown, its rate cannot be seen on so few outsiders, or it is none of `fprs`
                while there are several targets.
        """
        from leakage.audit import exposure

        return exposure.at_least(self, metric)

    def records(self, k: int = 20) -> Table:
        """The k members most exposed to the strongest attack.

        `found` says of how many of the models that were trained on the row the attack found it while accusing at most
        a share `at FPR` of the outsiders, the least of `fprs` that can be seen; `outranks` is the mean share of the
        outsiders whose score is lower. Rows are in order of found / (of models + 1), then of `outranks`.

        Raises:
            ValueError: if `k` is no whole number from 1 on.
        """
        from leakage.audit import exposure

        return exposure.records(self, k)

    def slices(self) -> Table:
        """AUC and TPR of the strongest attack within each label and group, at the thresholds of the whole.

        AUC compares members and outsiders of the slice; TPR is the share of its members found at the least visible
        false positive rate of the whole. Of several targets both ends of an interval are means over them: a wide one.
        A slice with too few members or outsiders has a dash and says so.
        """
        from leakage.audit import exposure

        return exposure.slices(self)

    def roc(self) -> Any:
        """The ROC curves on logarithmic axes, as a matplotlib figure; the strongest attack has a band of its level."""
        return report.roc_figure(self)

    def to_json(self) -> str:
        """Numbers, notes, most exposed rows and slices as JSON; what cannot be seen is null."""
        return report.to_json(self, records=self.records(), slices=self.slices())

    def report(self, path: Path | str) -> Path:
        """Write one HTML page that needs nothing else, and give its path.

        Raises:
            OSError: if the file cannot be written.
        """
        text = report.html_page(self, table=self.table(), records=self.records(), slices=self.slices())
        store.write(Path(path), text.encode())
        return Path(path)

    def _repr_html_(self) -> str:
        return report.html_summary(self, self.table())

    def __str__(self) -> str:
        return "\n".join([str(self.table()), "", *(f"* {note}" for note in self.notes)])

    __repr__ = __str__
