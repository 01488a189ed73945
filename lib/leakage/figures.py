"""Pictures of the book: made in one look, shown with a text for those who cannot see them.

`palette` gives each quantity its colour, dash and marker; its names are reachable from here too. Distributions, means
with their intervals and heat maps are drawn by seaborn, in the book's look and with the book's intervals. Figures are
plain objects outside pyplot's global list, drawn on white at twice the size they are shown in, and the same numbers
give the same bytes. Nothing here computes a result.
"""

import base64
import hashlib
import html
import io
import re
import sys
from collections.abc import Sequence
from string import Template
from typing import Any, Literal

import numpy as np
import seaborn as sns
import torch
from IPython.display import display
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor

from leakage.metrics.estimates import Estimate, mean_interval
from leakage.palette import QUANTITIES, colour, dots, line, look, shades, use_style

__all__ = [
    "QUANTITIES",
    "band",
    "colour",
    "curve",
    "dots",
    "figure",
    "frames",
    "heat_map",
    "histogram",
    "line",
    "look",
    "png",
    "polygons",
    "shades",
    "show",
    "slider",
    "use_style",
    "whiskers",
]

CSS_DPI = 100  # page pixels per inch of figure, so a figure of 7 inches is 700 pixels wide on the page
SHARPNESS = 2  # picture pixels per page pixel: sharp on the fine screens of phones and laptops
WIDTHS = {"text": 7.0, "wide": 10.0}  # inches: the text column, and the column with its margin (tag `full-width`)
_SHORTEST_ALT = 20  # characters; less cannot say what a picture shows
_ANNOUNCED = re.compile(r"(an?\s|the\s)?(figure|image|picture|photo)\b", re.IGNORECASE)
_PALETTE = 256  # colours of a slider's frame; line art and one colour map do not need more


def figure(
    width: Literal["text", "wide"] = "text",
    *,
    height: float = 4.2,
    panels: tuple[int, int] = (1, 1),
    sharex: bool = False,
    sharey: bool = False,
) -> tuple[Figure, Any]:
    """A new figure in the book's look, with its axes.

    Args:
        width: `text` for the text column; `wide` for the column with its margin, in a cell with the tag `full-width`.
        height: inches of a figure that is 7 (`text`) or 10 (`wide`) inches wide.
        panels: rows and columns.
        sharex: give all panels one horizontal axis.
        sharey: give all panels one vertical axis.

    Returns:
        The figure and its axes: one, a row or column of them, or a grid, as `panels` says.

    Raises:
        ValueError: if `width` is unknown, or `height` or a number of panels is not positive.
    """
    if width not in WIDTHS:
        raise ValueError(f"`width` must be one of {', '.join(WIDTHS)}; got {width!r}.")
    if not height > 0 or min(panels) < 1:
        raise ValueError(f"`height` and `panels` must be positive, got {height!r} and {panels!r}.")
    use_style()
    new = Figure(figsize=(WIDTHS[width], height), layout="constrained")
    return new, new.subplots(*panels, sharex=sharex, sharey=sharey)


def band(ax: Axes, x: Any, low: Any, high: Any, quantity: str, *, label: str | None = None) -> None:
    """Shade the range from `low` to `high` over `x` in the quantity's colour. Tensors on any device are welcome.

    Raises:
        ValueError: as `look`, or if `low` exceeds `high` somewhere.
    """
    x, low, high = (_array(values) for values in (x, low, high))
    if bool((low > high).any()):
        raise ValueError("`low` must not exceed `high`, got a band turned over; are they swapped?")
    ax.fill_between(x, low, high, color=colour(quantity), alpha=0.2, linewidth=0, label=label)


def histogram(
    ax: Axes, values: Any, edges: Any, quantity: str, *, height: Literal["proportion", "density"] = "proportion"
) -> None:
    """Fill the histogram of the values in the quantity's colour; the outermost bins take all beyond them.

    Args:
        ax: the axes.
        values: numbers in any shape.
        edges: of the bins, ascending.
        quantity: see `look`.
        height: `proportion` of the values in each bin, or that over the width of the bin.

    Raises:
        ValueError: as `look`, or if there are no values, or one is NaN.
    """
    values, edges = _array(values).ravel(), _array(edges)
    if not len(values) or np.isnan(values).any():
        raise ValueError("`values` must be at least one, and none may be NaN.")
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

    Args:
        ax: the axes.
        x: where each sample stands; different numbers.
        samples: one sample of numbers for each `x`, of any sizes.
        quantity: see `look`.
        label: for the legend.

    Raises:
        ValueError: as `look` and `mean_interval`, or if there are not as many samples as different `x`.
    """
    x = _array(x)
    if x.shape != (len(samples),):
        raise ValueError(f"`samples` must be as many as `x`, got {len(samples)} for shape {x.shape}.")
    if len(np.unique(x)) < len(x):
        raise ValueError("`x` must be different numbers, one for each sample.")
    drawn = [_array(sample).ravel() for sample in samples]
    for sample in drawn:  # seaborn would leave out what is not finite
        _interval(sample)
    sns.lineplot(
        x=np.repeat(x, [len(sample) for sample in drawn]),
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
    limits: tuple[float, float] = (0.0, 1.0),
    form: str = ".2f",
) -> None:
    """Colour a table of numbers, with each written in its cell and a colour bar beside it; the first row is lowest.

    Args:
        ax: the axes.
        values: the numbers (rows, columns).
        rows: what stands beside each row.
        columns: what stands below each column.
        label: of the colour bar: the quantity, with its unit.
        limits: the values at the two ends of the colours.
        form: how a number is written.

    Raises:
        ValueError: if there are not as many names as rows and columns.
    """
    values = _array(values)
    if values.shape != (len(rows), len(columns)):
        raise ValueError(
            f"`rows` and `columns` must name all of shape {values.shape}, got {len(rows)}, {len(columns)}."
        )
    low, high = limits
    sns.heatmap(
        values,
        vmin=low,
        vmax=high,
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
    """Draw estimates over `x` as the quantity's markers, each with its interval as a vertical line.

    Raises:
        ValueError: as `look`, or if there are not as many estimates as `x`.
    """
    x = _array(x)
    if x.shape != (len(estimates),):
        raise ValueError(f"`estimates` must be as many as `x`, got {len(estimates)} for shape {x.shape}.")
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
    edges: bool = False,
) -> PolyCollection:
    """Fill polygons by their values, and let the axes end where they do, in true proportion. Tensors are welcome.

    Args:
        ax: the axes.
        vertices: corners (polygons, v, 2), of which the first `counts` of each count.
        counts: how many corners each polygon has.
        values: one for each.
        limits: the values at the two ends of the colours; by default those of the values.
        shades: name of a colour map of matplotlib.
        edges: draw a thin white line around each polygon.

    Returns:
        What was drawn, for a colour bar.

    Raises:
        ValueError: if there is no polygon, the numbers differ, or a polygon has fewer than three corners or more than
            there are.
    """
    corners, sizes, heights = _array(vertices), _array(counts), _array(values)
    if not len(corners) or not len(corners) == len(sizes) == len(heights):
        raise ValueError(
            "`vertices`, `counts` and `values` must be as many, and at least one; "
            f"got {len(corners)}, {len(sizes)} and {len(heights)}."
        )
    if sizes.min() < 3 or sizes.max() > corners.shape[1]:
        raise ValueError(f"`counts` must lie between 3 and {corners.shape[1]}, got {sizes.min()} to {sizes.max()}.")
    rings = [ring[:size] for ring, size in zip(corners, sizes, strict=True)]
    # Without a line of its own colour the page would shine through between two polygons.
    drawn = PolyCollection(rings, array=heights, cmap=shades, edgecolors="white" if edges else "face", linewidths=0.3)
    drawn.set_clim(*(limits or (heights.min(), heights.max())))
    ax.add_collection(drawn)
    low, high = np.concatenate(rings).min(0), np.concatenate(rings).max(0)
    ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal")
    ax.grid(False)
    return drawn


def png(picture: Figure, *, colours: int | None = None) -> bytes:
    """The figure as a PNG at twice its size on the page, without date or version: built again, it is the same bytes.

    Args:
        picture: the figure; drawing it a second time can move its layout by a pixel.
        colours: reduce it to a palette of that many colours, for size; None keeps all.
    """
    buffer = io.BytesIO()
    picture.savefig(buffer, format="png", dpi=CSS_DPI * SHARPNESS, facecolor="white", metadata={"Software": None})
    return buffer.getvalue() if colours is None else _reduce(buffer.getvalue(), colours)


def show(picture: Figure, *, alt: str, stand_in: str = "") -> None:
    """Display a figure as a sharp PNG with its text, and close it.

    Args:
        picture: the figure.
        alt: what the picture shows, for those who cannot see it: one sentence that gives the finding, not the title.
        stand_in: names the data that were drawn where those that caption and `alt` speak of are absent, such as
            `8×8 digits in place of Location-30`; it is written above the panels and takes the place of `alt`, whose
            finding is not about these data.

    Raises:
        ValueError: if `alt` is missing, shorter than 20 characters, or begins with "Figure", "Image" or the like.
    """
    alt = _check_alt(alt)
    if stand_in:
        picture.suptitle(f"{stand_in} (absent)", color=colour("threshold"))
        alt = f"{stand_in}, which is absent: not what the caption describes, and no claim is judged by it."
    data = {"image/png": base64.b64encode(png(picture)).decode(), "text/plain": alt}
    # Only the width: with a height beside it the page could not shrink the picture to a phone without distorting it.
    display(data, raw=True, metadata={"image/png": {"alt": alt, "width": _page_width(picture)}})
    _close(picture)


def frames(
    pictures: Sequence[Figure | bytes],
    *,
    labels: Sequence[str],
    alts: Sequence[str],
    name: str,
    slider_label: str,
    caption: str = "",
) -> None:
    """Display pictures of one size under a slider that works without a kernel, a network or a mouse.

    The browser decodes a hidden frame only when it is first shown. Without scripts all frames stand below each other.

    Args:
        pictures: at least two figures, which are closed, or PNG files.
        labels: for each picture what the slider then stands at, such as `λ = 0.3`.
        alts: for each picture its text, as in `show`.
        name: tells this slider from all others of the book; its ids are a hash of it.
        slider_label: what is moved, such as `ridge penalty λ`.
        caption: plain text below, if any.

    Raises:
        ValueError: if there are fewer than two pictures, the numbers or sizes differ, or a text is missing.
    """
    page = slider(pictures, labels=labels, alts=alts, name=name, slider_label=slider_label, caption=caption)
    display({"text/html": page, "text/plain": "\n".join(alts)}, raw=True)
    for picture in pictures:
        if isinstance(picture, Figure):
            _close(picture)


def slider(
    pictures: Sequence[Figure | bytes],
    *,
    labels: Sequence[str],
    alts: Sequence[str],
    name: str,
    slider_label: str,
    caption: str = "",
) -> str:
    """The HTML that `frames` displays; arguments and errors as there."""
    if len(pictures) < 2 or not len(pictures) == len(labels) == len(alts):
        raise ValueError(
            "`frames` needs at least two pictures, and as many `labels` and `alts`; "
            f"got {len(pictures)}, {len(labels)} and {len(alts)}."
        )
    texts = [("name", name), ("slider_label", slider_label), *((f"labels[{i}]", text) for i, text in enumerate(labels))]
    for argument, text in texts:
        if not text.strip():
            raise ValueError(f"`{argument}` must say something, got {text!r}.")
    alts = [_check_alt(alt) for alt in alts]
    files = [png(p, colours=_PALETTE) if isinstance(p, Figure) else p for p in pictures]
    sizes = {Image.open(io.BytesIO(file)).size for file in files}
    if len(sizes) > 1:
        raise ValueError(f"`pictures` must have one size, else the page jumps; got {sorted(sizes)} pixels.")
    width, height = (pixels // SHARPNESS for pixels in sizes.pop())
    images = "\n".join(
        f'<img src="data:image/png;base64,{base64.b64encode(file).decode()}" alt="{html.escape(alt)}" '
        f'data-label="{html.escape(label)}" width="{width}" height="{height}" style="max-width:100%;height:auto">'
        for file, alt, label in zip(files, alts, labels, strict=True)
    )
    return _SLIDER.substitute(
        id="frames-" + hashlib.sha256(name.encode()).hexdigest()[:12],
        width=width,
        images=images,
        last=len(files) - 1,
        label=html.escape(slider_label),
        first=html.escape(labels[0]),
        accent=colour("outsider"),
        caption=f'<figcaption style="color:inherit">{html.escape(caption)}</figcaption>' if caption else "",
    )


# The label encloses its slider and the script finds its parts by class, not by id, so that two views of one output in
# JupyterLab each work. The script comes last: it sees the pictures, and hides all but one before they are painted.
_SLIDER = Template("""<figure class="frames" data-frames="$id" style="margin:0;max-width:${width}px">
<style>[data-frames="$id"] img[hidden]{display:none!important}</style>
$images
<div style="display:flex;flex-wrap:wrap;align-items:center;gap:.25em 1em">
<label style="display:flex;flex:1 1 18em;align-items:center;gap:.75em">$label
<input id="$id" type="range" min="0" max="$last" step="1" value="0" autocomplete="off" aria-valuetext="$first"
 style="flex:1;min-width:8em;height:2em;accent-color:$accent"></label>
<output for="$id" style="min-width:6em;font-variant-numeric:tabular-nums">$first</output>
</div>
$caption
<script>
document.querySelectorAll('[data-frames="$id"]').forEach((frames) => {
  const [input, output] = [frames.querySelector("input"), frames.querySelector("output")];
  const turn = () => frames.querySelectorAll("img").forEach((picture, index) => {
    picture.hidden = index !== Number(input.value);
    if (!picture.hidden) input.setAttribute("aria-valuetext", output.value = picture.dataset.label);
  });
  input.addEventListener("input", turn);
  turn();
});
</script>
</figure>""")


def _check_alt(alt: str) -> str:
    """`alt` on one line, once it is known to say something."""
    words = " ".join(alt.split()) if isinstance(alt, str) else ""
    if len(words) < _SHORTEST_ALT:
        raise ValueError(f"`alt` must say in {_SHORTEST_ALT} characters or more what the picture shows, got {alt!r}.")
    if _ANNOUNCED.match(words):
        raise ValueError(f"`alt` must not begin with what a screen reader says anyway, got {alt!r}; say what it shows.")
    return words


def _reduce(file: bytes, colours: int) -> bytes:
    """The PNG with a palette, no channel off by more than some 8 of 255: `MAXCOVERAGE` keeps the rare colours of text.

    No dithering: it would be noise to the compressor and to the eye.
    """
    picture = Image.open(io.BytesIO(file)).convert("RGB")
    reduced = picture.quantize(colours, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    buffer = io.BytesIO()
    reduced.save(buffer, format="PNG", optimize=True)
    return buffer.getvalue()


def _page_width(picture: Figure) -> int:
    return round(picture.get_figwidth() * CSS_DPI)


def _close(picture: Figure) -> None:
    """Forget a figure that a reader made with pyplot, which would show it once more; ours are in nobody's list."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None:
        pyplot.close(picture)


def _array(values: Any) -> np.ndarray:
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
