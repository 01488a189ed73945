"""What the book draws on axes: bands, histograms, curves with their intervals, heat maps, whiskers and polygons.

Distributions, means with their intervals and heat maps are drawn by seaborn, in the book's look and with the book's
intervals; it is imported where one is drawn, for it brings pandas with it. Values are tensors, arrays or lists. Import
`figures` to make and show a picture.
"""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from torch import Tensor

from leakage.metrics.estimates import Estimate, mean_interval
from reproduced.palette import colour, dots, line, look


def band(ax: Axes, x: Any, low: Any, high: Any, quantity: str) -> None:
    """Shade the range from `low` to `high` over `x` in the quantity's colour."""
    ax.fill_between(_array(x), _array(low), _array(high), color=colour(quantity), alpha=0.2, linewidth=0)


def histogram(
    ax: Axes, values: Any, edges: Any, quantity: str, *, height: Literal["proportion", "density"] = "proportion"
) -> None:
    """Fill the histogram of the values in the quantity's colour; the outermost bins take all beyond them.

    `height` is the proportion of the values in each bin, or that over the width of the bin. NaN is a `ValueError`.
    """
    import seaborn as sns

    values, edges = _array(values).ravel(), _array(edges)
    if bool(np.isnan(values).any()):  # seaborn would leave them out
        raise ValueError("`values` must be numbers, one is NaN.")
    inside = np.clip(values, edges[0], np.nextafter(edges[-1], edges[0]))
    sns.histplot(
        x=inside,
        bins=edges.tolist(),
        stat=height,
        element="step",
        linewidth=0,
        alpha=0.55,
        color=colour(quantity),
        label=quantity,
        ax=ax,
    )
    ax.set(xlabel="", ylabel="")


def curve(
    ax: Axes, x: Any, samples: Sequence[Any] | np.ndarray | Tensor, quantity: str, *, label: str | None = None
) -> None:
    """Draw the mean of each sample over `x`, joined by a line, with its interval (`estimates.mean_interval`, 95 %).

    The `x` are different numbers; the samples may have any sizes. A number that is not finite is a `ValueError`.
    """
    import seaborn as sns

    drawn = [_array(sample).ravel() for sample in samples]
    for sample in drawn:  # seaborn would leave out what is not finite
        _interval(sample)
    sns.lineplot(
        x=np.repeat(_array(x), [len(sample) for sample in drawn]),
        y=np.concatenate(drawn),
        errorbar=_interval,
        err_style="bars",
        err_kws={"elinewidth": 1.6},
        linewidth=1.2,
        marker=look(quantity).marker,
        markeredgecolor=colour(quantity),
        **line(quantity),
        label=label,
        legend=False,
        ax=ax,
    )
    ax.set(xlabel="", ylabel="")


def _interval(sample: Any) -> tuple[float, float]:
    found = mean_interval(torch.tensor(np.asarray(sample)))
    return found.low, found.high


def heat_map(
    ax: Axes,
    values: Any,
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    label: str,
    form: str = ".2f",
) -> None:
    """Colour a table of shares from 0 to 1, each written in its cell as `form` says; the first row is lowest.

    A colour bar beside it has the label.
    """
    import seaborn as sns

    sns.heatmap(
        _array(values),
        vmin=0.0,
        vmax=1.0,
        cmap="viridis",
        annot=True,
        annot_kws={"fontsize": 10},
        fmt=form,
        xticklabels=list(columns),
        yticklabels=list(rows),
        cbar_kws={"label": label},
        ax=ax,
    )
    ax.invert_yaxis()
    ax.tick_params(rotation=0)


def whiskers(ax: Axes, x: Any, estimates: Sequence[Estimate], quantity: str, *, label: str | None = None) -> None:
    """Draw estimates over `x` as the quantity's markers, each with its interval as a vertical line."""
    x = _array(x)
    ax.vlines(x, [e.low for e in estimates], [e.high for e in estimates], color=colour(quantity), linewidth=1.6)
    ax.plot(x, [e.estimate for e in estimates], **dots(quantity), label=label)


def polygons(
    ax: Axes,
    vertices: Any,
    counts: Any,
    values: Any,
    *,
    limits: tuple[float, float] | None = None,
    shades: str = "viridis",
) -> PolyCollection:
    """Fill polygons by their values, and let the axes end where they do, in true proportion.

    Args:
        ax: the axes.
        vertices: corners (polygons, v, 2), of which the first `counts` of each count.
        counts: how many corners each polygon has.
        values: one for each.
        limits: the values at the two ends of the colours; by default those of the values.
        shades: name of a colour map of matplotlib.

    Returns:
        What was drawn, for a colour bar.
    """
    corners, sizes, heights = _array(vertices), _array(counts), _array(values)
    rings = [ring[:size] for ring, size in zip(corners, sizes, strict=True)]
    # Without a line of its own colour the page would shine through between two polygons.
    drawn = PolyCollection(rings, array=heights, cmap=shades, edgecolors="face", linewidths=0.3)
    drawn.set_clim(*(limits or (heights.min(), heights.max())))
    ax.add_collection(drawn)
    low, high = np.concatenate(rings).min(0), np.concatenate(rings).max(0)
    ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal")
    ax.grid(False)
    return drawn


def _array(values: Any) -> np.ndarray:
    return values.detach().numpy() if isinstance(values, Tensor) else np.asarray(values)
