"""What a reader sees of an audit: tables, the ROC figure, one HTML page that needs no network, and JSON.

Every text of the user is escaped. Nothing is measured or judged here.
"""

import html
import io
import json
from itertools import cycle
from string import Template
from typing import Any

import matplotlib
import matplotlib.style
import numpy as np
from matplotlib.figure import Figure

from leakage import __version__
from leakage.audit.result import Audit, Table
from leakage.evaluation import curve_fprs, measure, tpr_name
from leakage.metrics.estimates import Estimate

# ── figure ──────────────────────────────────────────────────────────────────────────────────────────────────────────

_STRONGEST, _GUESSING = "#eb6009", "#696969"  # colours
_LIGHTEST_SHADE = 0.59  # of viridis: its contrast on white falls to 3 : 1 there
_STYLE = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.labelsize": 12,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 12,
    "grid.color": "#e4e4e4",
    "legend.edgecolor": "white",
    "legend.fontsize": 11.5,
    "legend.framealpha": 0.85,
    "legend.handlelength": 2.6,
    "lines.linewidth": 2.0,
    "xtick.labelsize": 11.5,
    "ytick.labelsize": 11.5,
}


def roc_figure(audit: Audit) -> Figure:
    """The ROC curves of every attack on logarithmic axes; the band is the strongest attack's interval.

    At each rate the curve is `metrics.roc.tpr_at_fpr`, of several targets the mean. The settings of matplotlib are the
    same afterwards.
    """
    least = 1 / audit.outsiders
    fprs = curve_fprs(audit.outsiders)
    metrics = [tpr_name(fpr) for fpr in fprs]
    with matplotlib.style.context(["default", _STYLE]):
        figure = Figure(figsize=(7.0, 4.8), layout="constrained")
        ax = figure.subplots()
        ax.plot([least, 1], [least, 1], color=_GUESSING, linestyle=(0, (1, 3)), label="guessing")
        others = [row.attack for row in audit.results if row is not audit.strongest]
        shades = matplotlib.colormaps["viridis"](np.linspace(0, _LIGHTEST_SHADE, max(len(others), 1)))
        for name, shade, dash in zip(others, shades, cycle(("-", "--", ":", "-.")), strict=False):
            scores, member = audit.evaluation.scores(name), audit.evaluation.models.target_member
            rates = [float(each.mean()) for each in measure(scores, None, member, metrics).values()]
            ax.plot(fprs, _above_zero(rates), color=shade, linestyle=dash, linewidth=1.2, label=name)
        rates = [audit.interval(audit.strongest.attack, metric) for metric in metrics]
        low, middle, high = (_above_zero([getattr(rate, end) for rate in rates]) for end in ("low", "estimate", "high"))
        ax.fill_between(fprs, low, high, color=_STRONGEST, alpha=0.2, linewidth=0)
        ax.plot(fprs, middle, color=_STRONGEST, label=f"{audit.strongest.attack}, with {100 * audit.level:g} % band")
        ax.set(xscale="log", yscale="log", xlim=(least, 1), ylim=(least / 2, 1.1))
        ax.set(xlabel="false positive rate", ylabel="true positive rate")
        ax.legend(loc="lower right")
        return figure


def _above_zero(rates: Any) -> np.ndarray:
    """Rates of 0, which a logarithmic axis lacks, as rates below its end."""
    return np.maximum(rates, 1e-12)


def _to_svg(figure: Figure) -> str:
    """The figure as an SVG element, the same for the same numbers; letters stay letters."""
    content = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "leakage"}):
        metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(content, format="svg", facecolor="white", metadata=metadata)
    text = content.getvalue()
    return text[text.index("<svg") :]


# ── page ────────────────────────────────────────────────────────────────────────────────────────────────────────────

_PAGE = Template("""\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Membership audit</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #111; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
th, td { padding: 0.25rem 0.7rem; text-align: left; border-bottom: 1px solid #ddd; white-space: nowrap; }
svg { max-width: 100%; height: auto; }
footer { color: #555; font-size: 0.9rem; }
</style>
</head>
<body>
<h1>Membership audit</h1>
$summary
<h2>ROC curves</h2>
<figure role="img" aria-label="True against false positive rates of every attack, on logarithmic axes">$figure</figure>
<h2>Most exposed rows</h2>
<p>Members that the strongest attack finds while it flags few outsiders; <em>outranks</em> is the share of the
outsiders whose score is lower.</p>
$records
$slices
<footer>Made by leakage $version. A larger score means a likelier member. AUC ½ and advantage 0 are guessing.</footer>
</body>
</html>
""")


def html_summary(audit: Audit, table: Table) -> str:
    """The result in a sentence, the table and the notes."""
    notes = "".join(f"<li>{html.escape(note)}</li>" for note in audit.notes)
    return f"<p><strong>{html.escape(_sentence(audit))}</strong></p>{table._repr_html_()}<ul>{notes}</ul>"


def html_page(audit: Audit, *, table: Table, records: Table, slices: Table) -> str:
    """The whole page, with the figure inside."""
    return _PAGE.substitute(
        summary=html_summary(audit, table),
        figure=_to_svg(roc_figure(audit)),
        records=records._repr_html_(),
        slices=f"<h2>Slices</h2>\n{slices._repr_html_()}" if len(slices) else "",
        version=html.escape(__version__),
    )


def _sentence(audit: Audit) -> str:
    best = audit.strongest
    models = f"{len(audit.targets)} models" if len(audit.targets) > 1 else "1 model"
    rates = "".join(
        f", and finds {100 * tpr.estimate:.1f} % [{100 * tpr.low:.1f}, {100 * tpr.high:.1f}] of the members at "
        f"{100 * fpr:g} % FPR"
        for fpr, tpr in best.tpr.items()
        if tpr is not None
    )
    return (
        f"On {models} of {audit.member.shape[1]:,} rows the strongest attack, {best.attack}, reaches AUC "
        f"{best.auc:.3f}{rates}; allowing for its choice among several, AUC {audit.at_least('auc'):.3f} at "
        "least."
    )


# ── JSON ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def to_json(audit: Audit, *, records: Table, slices: Table) -> str:
    """Strict JSON, without NaN or infinity."""
    content = {
        "leakage": __version__,
        "models": audit.models,
        "targets": list(audit.targets),
        "rows": audit.member.shape[1],
        "level": audit.level,
        "strongest": audit.strongest.attack,
        "attacks": [
            {
                "attack": row.attack,
                "sees": row.sees,
                "auc": row.auc,
                "advantage": row.advantage,
                "tpr": {f"{fpr:g}": tpr for fpr, tpr in row.tpr.items()},
            }
            for row in audit.results
        ],
        "records": list(records),
        "slices": list(slices),
        "notes": list(audit.notes),
    }
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False, default=_interval)


def _interval(estimate: Estimate) -> dict[str, float]:
    return {"estimate": estimate.estimate, "low": estimate.low, "high": estimate.high}
