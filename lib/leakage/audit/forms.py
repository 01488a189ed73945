"""An audit in the forms in which it is looked at and saved: a figure, JSON, one HTML page."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from leakage import store
from leakage.audit import exports, report
from leakage.audit.gates import GateResult
from leakage.audit.result import AuditResult


@dataclass(frozen=True, eq=False, repr=False)
class Audit(AuditResult):
    """What an audit has found, and the forms in which it can be saved."""

    def roc(self) -> Figure:
        """ROC curves on logarithmic axes, as a matplotlib figure, with a confidence band for the strongest attack."""
        return report.roc_figure(self)

    def to_json(self, *, gates: Sequence[GateResult] = (), source: Path | None = None) -> str:
        """Numbers, notes, most exposed rows, slices and gates as JSON; null where there is no value.

        Args:
            gates: from `judge`.
            source: the file that was audited, for its name and checksum.
        """
        return exports.to_json(self, gates=gates, source=source)

    def report(
        self,
        path: Path | str,
        *,
        title: str = "Membership audit",
        gates: Sequence[GateResult] = (),
        source: Path | None = None,
    ) -> Path:
        """Write one self-contained HTML page and return its path; `gates` and `source` are as in `to_json`."""
        store.write(Path(path), report.html_page(self, title=title, gates=gates, source=source).encode())
        return Path(path)

    def save_losses(self, path: Path | str) -> Path:
        """Write the losses that were audited, who was trained on what, labels and the like as an `.npz` file.

        `leakage audit` reads it, and `audit.of_losses` takes its arrays: no model is trained or asked again. Features
        are left out, since they are the rows themselves, and with them what only they allow.
        """
        store.write(Path(path), exports.losses_file(self))
        return Path(path)

    def _repr_html_(self) -> str:
        return report.html_summary(self)
