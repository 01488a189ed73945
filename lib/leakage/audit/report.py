"""Render an audit as tables, the ROC figure, and one HTML page that needs no network.

`report.html` has the page without its content. Every text of the user is escaped. Nothing is measured or judged here.
"""

import html
import io
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from string import Template
from typing import Any

import matplotlib
import matplotlib.style
import numpy as np
from matplotlib.figure import Figure

from leakage.audit import exports
from leakage.audit.gates import GateResult
from leakage.audit.result import AuditResult
from leakage.figure_style import GREY, ORANGE, STYLE, shades
from leakage.membership.evaluation import curve_fprs, measure, tpr_name
from leakage.metrics.tables import NumberTable


def roc_figure(audit: AuditResult) -> Figure:
    """The ROC curves of every attack on logarithmic axes; the band is the strongest attack's interval.

    At each rate the curve is `metrics.roc.tpr_at_fpr`, averaged over targets. The settings of matplotlib are the
    same afterwards.
    """
    least = 1 / audit.outsiders
    fprs = curve_fprs(audit.outsiders)
    metrics = [tpr_name(fpr) for fpr in fprs]
    with matplotlib.style.context(["default", STYLE]):
        figure = Figure(figsize=(7.0, 4.8), layout="constrained")
        ax = figure.subplots()
        ax.plot([least, 1], [least, 1], color=GREY, linestyle=(0, (1, 3)), label="guessing")
        others = [row.attack for row in audit.results if row is not audit.strongest]
        for name, shade, dash in zip(others, shades(len(others)), cycle(("-", "--", ":", "-.")), strict=False):
            scores, member = audit.evaluation.scores(name), audit.evaluation.models.target_member
            rates = [float(each.mean()) for each in measure(scores, None, member, metrics).values()]
            ax.plot(fprs, _above_zero(rates), color=shade, linestyle=dash, linewidth=1.2, label=name)
        rates = [audit.interval(audit.strongest.attack, metric) for metric in metrics]
        low, middle, high = (_above_zero([getattr(rate, end) for rate in rates]) for end in ("low", "estimate", "high"))
        ax.fill_between(fprs, low, high, color=ORANGE, alpha=0.2, linewidth=0)
        ax.plot(fprs, middle, color=ORANGE, label=f"{audit.strongest.attack}, with {100 * audit.level:g} % band")
        ax.set(xscale="log", yscale="log", xlim=(least, 1), ylim=(least / 2, 1.1))
        ax.set(xlabel="false positive rate", ylabel="true positive rate")
        ax.legend(loc="lower right")
        return figure


def _above_zero(rates: Any) -> np.ndarray:
    """The rates, with 1e-12 in place of 0, which a logarithmic axis cannot show."""
    return np.maximum(rates, 1e-12)


def _to_svg(figure: Figure) -> str:
    """The figure as an SVG element, the same for the same numbers; text stays text, not outlines."""
    content = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "leakage"}):
        metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(content, format="svg", facecolor="white", metadata=metadata)
    text = content.getvalue()
    return text[text.index("<svg") :]


def html_summary(audit: AuditResult) -> str:
    """The result in a sentence, the table and the notes."""
    notes = "".join(f"<li>{html.escape(note)}</li>" for note in audit.notes)
    return f"<p><strong>{html.escape(audit.sentence)}</strong></p>{audit.table()._repr_html_()}<ul>{notes}</ul>"


def html_page(audit: AuditResult, *, title: str, gates: Sequence[GateResult], source: Path | None) -> str:
    """The whole page, with the figure inside."""
    slices = audit.slices()
    results, custom_attack_text = audit.evaluation.results, "It is an attack of yours."
    attacks = ((row.attack, results[row.attack].attack.sentence or custom_attack_text) for row in audit.results)
    page = Template(Path(__file__).with_name("report.html").read_text("utf-8"))
    return page.substitute(
        title=html.escape(title),
        source=html.escape(_source_sentence(audit, source)),
        summary=html_summary(audit),
        gates=_gates_section(gates),
        attacks="".join(f"<dt>{html.escape(name)}</dt><dd>{html.escape(text)}</dd>" for name, text in attacks),
        figure=_to_svg(roc_figure(audit)),
        strongest=html.escape(audit.strongest.attack),
        exposed=audit.exposed_rows()._repr_html_(),
        slices=f"<h2>Slices</h2>\n{slices._repr_html_()}" if len(slices) else "",
    )


def _source_sentence(audit: AuditResult, source: Path | None) -> str:
    found = exports.provenance(source)
    file = f"{found['input']['file']}, SHA-256 {found['input']['sha256']}. " if source else ""
    versions = ", ".join(f"{name} {number}" for name, number in found["versions"].items())
    return f"{file}Audited on {found['date']} (UTC) by {versions}. Design: {exports.describe_design(audit)}."


def _gates_section(gates: Sequence[GateResult]) -> str:
    if not gates:
        return ""
    columns = ("metric", "bar", "lower bound", "attainable", "verdict", "attack", "slice")
    told = ((one, "failed" if one.failed else "passed") for one in gates)
    rows = [(one.metric, one.bar, one.at_least, one.attainable, word, one.attack, one.slice) for one, word in told]
    too_small = "".join(f"<li>{html.escape(str(one))}</li>" for one in gates if one.too_small)
    table = NumberTable(columns, tuple(rows))._repr_html_()
    return f"<h2>Gates: {exports.verdict(gates)}</h2>\n{table}<ul>{too_small}</ul>"
