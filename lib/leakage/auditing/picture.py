"""The ROC curves of an audit on logarithmic axes, where the certain finds at few false alarms can be seen.

A reader's settings of matplotlib stay as they were. Nothing here judges.
"""

import io
from itertools import cycle

import matplotlib
import numpy as np
import torch
from matplotlib.figure import Figure

from leakage.auditing.evidence import Evidence
from leakage.auditing.measures import Measured, curve_fprs, tpr_at
from reproduced.palette import colour, line, shades, use_style

_DASHES = ("-", "--", ":", "-.")
_SIZE = (7.0, 4.8)  # inches


def roc_figure(audit: Evidence) -> Figure:
    """True against false positive rates of every attack; the band belongs to the strongest.

    At each rate the curve is `metrics.roc.tpr_at_fpr`, or its mean over the targets, with its interval.
    """
    fewest = audit.outsiders
    grid = curve_fprs(fewest)
    with matplotlib.rc_context():
        use_style()
        picture = Figure(figsize=_SIZE, layout="constrained")
        ax = picture.subplots()
        ax.plot([1 / fewest, 1], [1 / fewest, 1], **line("neutral"), label="guessing")
        others = [row.attack for row in audit.found if row is not audit.strongest]
        drawn = zip(others, shades(max(len(others), 1)), cycle(_DASHES), strict=False)
        for name, shade, dash in drawn:
            rates = _measured(audit, name).means([tpr_at(fpr) for fpr in grid]).tolist()
            ax.plot(grid, _drawn(rates), color=shade, linestyle=dash, linewidth=1.2, label=name)
        measured = _measured(audit, audit.strongest.attack)
        measured.each(*map(tpr_at, grid))  # in one go
        best = [measured.interval(tpr_at(fpr), level=audit.level) for fpr in grid]
        ax.fill_between(
            grid,
            _drawn([estimate.low for estimate in best]),
            _drawn([estimate.high for estimate in best]),
            color=colour("member"),
            alpha=0.2,
            linewidth=0,
        )
        label = f"{audit.strongest.attack}, with {100 * audit.level:g} % band"
        ax.plot(grid, _drawn([estimate.estimate for estimate in best]), color=colour("member"), label=label)
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


def _measured(audit: Evidence, name: str) -> Measured:
    errors = audit.errors.get(name, {})
    return Measured(torch.from_numpy(audit.scores[name]), torch.from_numpy(audit.member), errors, audit.parts)


def _drawn(rates: list[float]) -> np.ndarray:
    """Rates of 0 have no place on a logarithmic axis: they lie below its end."""
    return np.maximum(rates, 1e-12)
