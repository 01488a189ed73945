"""The ROC curves of an audit on logarithmic axes, where the certain finds at few false alarms can be seen.

A reader's settings of matplotlib stay as they were. Nothing here judges.
"""

import io
from itertools import cycle
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from leakage.audit.result import Audit
from leakage.evaluation import curve_fprs, measure, tpr_at

_MEMBER, _GREY = "#eb6009", "#696969"
_DASHES = ("-", "--", ":", "-.")
_LIGHTEST_SHADE = 0.59  # of viridis: its contrast on white falls to 3 : 1 there
_SIZE = (7.0, 4.8)  # inches
_STYLE: dict[Any, Any] = {
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
    """True against false positive rates of every attack; the band belongs to the strongest.

    At each rate the curve is `metrics.roc.tpr_at_fpr`, or its mean over the targets, with its interval.
    """
    fewest = audit.outsiders
    grid = curve_fprs(fewest)
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        picture = Figure(figsize=_SIZE, layout="constrained")
        ax = picture.subplots()
        ax.plot([1 / fewest, 1], [1 / fewest, 1], color=_GREY, linestyle=(0, (1, 3)), label="guessing")
        others = [row.attack for row in audit.results if row is not audit.strongest]
        shades = matplotlib.colormaps["viridis"](np.linspace(0, _LIGHTEST_SHADE, max(len(others), 1)))
        drawn = zip(others, shades, cycle(_DASHES), strict=False)
        for name, shade, dash in drawn:
            result, member = audit.evaluation.results[name], audit.evaluation.models.target_member
            rates = [float(rate.mean()) for rate in measure(result.scores, None, member, [*map(tpr_at, grid)]).values()]
            ax.plot(grid, _drawn(rates), color=shade, linestyle=dash, linewidth=1.2, label=name)
        best = [audit.interval(audit.strongest.attack, tpr_at(fpr)) for fpr in grid]
        ax.fill_between(
            grid,
            _drawn([estimate.low for estimate in best]),
            _drawn([estimate.high for estimate in best]),
            color=_MEMBER,
            alpha=0.2,
            linewidth=0,
        )
        label = f"{audit.strongest.attack}, with {100 * audit.level:g} % band"
        ax.plot(grid, _drawn([estimate.estimate for estimate in best]), color=_MEMBER, label=label)
        ax.set(xscale="log", yscale="log", xlim=(1 / fewest, 1), ylim=(1 / (2 * fewest), 1.1))
        ax.set(xlabel="false positive rate", ylabel="true positive rate")
        ax.legend(loc="lower right")
        return picture


def svg(picture: Figure) -> str:
    """The figure as an SVG element, the same for the same numbers; letters stay letters."""
    content = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "leakage"}):
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        picture.savefig(content, format="svg", facecolor="white", metadata=nothing)
    text = content.getvalue()
    return text[text.index("<svg") :]


def _drawn(rates: list[float]) -> np.ndarray:
    """Rates of 0 have no place on a logarithmic axis: they lie below its end."""
    return np.maximum(rates, 1e-12)
