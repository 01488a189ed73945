"""Pictures of the book: made in one look, shown with a text for those who cannot see them.

`palette` gives each quantity its colour, dash and marker, and `plots` draws on axes; the names of both are reachable
from here too. Figures are plain objects outside pyplot's global list, drawn on white at twice the size they are shown
in, and the same numbers give the same bytes. Nothing here computes a result.
"""

import base64
import gzip
import hashlib
import html
import io
import os
import re
import sys
from collections.abc import Sequence
from string import Template
from typing import Any, Literal

import numpy as np
from IPython.display import display
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from leakage.figure_style import shades
from reproduced import figure_files, phone_layout, repository
from reproduced.palette import QUANTITIES, colour, dots, line, look, use_style
from reproduced.plots import band, curve, heat_map, histogram, polygons, whiskers

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
    "use_style",
    "whiskers",
]

CSS_DPI = 100  # page pixels per inch of figure, so a figure of 7 inches is 700 pixels wide on the page
SHARPNESS = 2  # picture pixels per page pixel: sharp on the fine screens of phones and laptops
WIDTHS = {"text": 7.0, "wide": 10.0}  # inches: the text column, and the column with its margin (tag `full-width`)
_SHORTEST_ALT = 20  # characters; less cannot say what a picture shows
_ANNOUNCED = re.compile(r"(an?\s|the\s)?(figure|image|picture|photo)\b", re.IGNORECASE)
_PALETTE = 256  # colours of a slider's frame and of a picture for phones; line art and one colour map do not need more


def figure(
    width: Literal["text", "wide"] = "text",
    *,
    height: float = 4.2,
    panels: tuple[int, int] = (1, 1),
    sharex: bool | Literal["row", "col"] = False,
    sharey: bool | Literal["row", "col"] = False,
) -> tuple[Figure, Any]:
    """A new figure in the book's look, with its axes: one, a row or column of them, or a grid.

    Args:
        width: `text` for the text column; `wide` for the column with its margin, in a cell with the tag `full-width`.
        height: inches of a figure that is 7 (`text`) or 10 (`wide`) inches wide.
        panels: rows and columns.
        sharex: give all panels one horizontal axis, or those of a row or a column (`"row"`, `"col"`).
        sharey: the same for the vertical axis.
    """
    use_style()
    new = Figure(figsize=(WIDTHS[width], height), layout="constrained")
    return new, new.subplots(*panels, sharex=sharex, sharey=sharey)


def png(picture: Figure, *, colours: int | None = None) -> bytes:
    """The figure as a PNG at twice its size on the page, without date or version: built again, it is the same bytes.

    Args:
        picture: the figure, not drawn before: a second drawing can move its layout by a pixel.
        colours: reduce it to a palette of that many colours, for size; None keeps all.
    """
    dpi, buffer = picture.dpi, io.BytesIO()
    picture.set(dpi=CSS_DPI * SHARPNESS, facecolor="white")
    canvas = FigureCanvasAgg(picture)
    canvas.draw()  # once: `savefig` draws twice, the first time for the layout alone
    drawn = Image.fromarray(np.asarray(canvas.buffer_rgba()))
    picture.set_dpi(dpi)
    if colours is None:
        drawn.save(buffer, format="PNG", dpi=(CSS_DPI * SHARPNESS,) * 2)
        return buffer.getvalue()
    # No channel moves by more than some 8 of 255: `MAXCOVERAGE` keeps the rare colours of text. Dithering would be
    # noise to the compressor and to the eye.
    fewer = drawn.convert("RGB").quantize(colours, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    fewer.save(buffer, format="PNG", optimize=True)
    return buffer.getvalue()


def show(picture: Figure, *, alt: str, stand_in: str = "") -> None:
    """Display a figure as a sharp PNG with its text, and close it.

    While a page is made, the files that the page offers of the figure are kept with it (`figure_files`), and the same
    figure laid out for a phone as `png`, if there is room for it.

    Args:
        picture: the figure.
        alt: what the picture shows, for those who cannot see it: one sentence that gives the finding, not the title.
        stand_in: the replacement data that were drawn, if the data of the caption are missing, such as
            `8×8 digits in place of Location-30`; it is written above the panels and takes the place of `alt`, whose
            finding is not about these data.

    Raises:
        ValueError: if `alt` is missing, shorter than 20 characters, or begins with "Figure", "Image" or the like.
    """
    alt = _check_alt(alt)
    if stand_in:
        picture.suptitle(f"{stand_in} (absent)", color=colour("threshold"))
        alt = f"{stand_in}, which is absent: not what the caption describes, and no claim is judged by it."
    width = round(picture.get_figwidth() * CSS_DPI)
    data = {"image/png": base64.b64encode(png(picture)).decode(), "text/plain": alt}
    # Only the width: with a height beside it the page could not shrink the picture to a phone without distorting it.
    metadata: dict[str, Any] = {"image/png": {"alt": alt, "width": width}}
    if os.environ.get(repository.QUIET_VARIABLE):
        files = metadata[figure_files.METADATA] = figure_files.compressed_files(picture)
        if phone_layout.lay_out_for_phone(picture):
            files["png"] = base64.b64encode(gzip.compress(png(picture, colours=_PALETTE), mtime=0)).decode()
    display(data, raw=True, metadata=metadata)
    _close(picture)


def frames(
    pictures: Sequence[Figure],
    *,
    labels: Sequence[str],
    alts: Sequence[str],
    name: str,
    slider_label: str,
    caption: str = "",
    first: int = 0,
) -> None:
    """Display pictures of one size under a slider that works without a kernel, a network or a mouse.

    The browser decodes a hidden frame only when it is first shown. Without scripts all frames stand below each other.

    Args:
        pictures: at least two figures, which are closed.
        labels: for each picture what the slider then stands at, such as `λ = 0.3`.
        alts: for each picture its text, as in `show`.
        name: tells this slider from all others of the book; its ids are a hash of it.
        slider_label: what is moved, such as `ridge penalty λ`.
        caption: plain text below, if any.
        first: index of the picture that is shown until somebody moves the slider: the one that tells most.

    Raises:
        ValueError: if the sizes of the pictures differ, or a text is missing.
    """
    alts = [_check_alt(alt) for alt in alts]
    files = [png(picture, colours=_PALETTE) for picture in pictures]
    sizes = {Image.open(io.BytesIO(file)).size for file in files}
    if len(sizes) > 1:
        raise ValueError(f"`pictures` must have one size, else the page jumps; got {sorted(sizes)} pixels.")
    width, height = (pixels // SHARPNESS for pixels in sizes.pop())
    images = "\n".join(
        f'<img src="data:image/png;base64,{base64.b64encode(file).decode()}" alt="{html.escape(alt)}" '
        f'data-label="{html.escape(label)}" width="{width}" height="{height}" style="max-width:100%;height:auto">'
        for file, alt, label in zip(files, alts, labels, strict=True)
    )
    page = _SLIDER.substitute(
        id="frames-" + hashlib.sha256(name.encode()).hexdigest()[:12],
        width=width,
        images=images,
        last=len(files) - 1,
        start=first,
        label=html.escape(slider_label),
        first=html.escape(labels[first]),
        accent=colour("outsider"),
        caption=f'<figcaption style="color:inherit">{html.escape(caption)}</figcaption>' if caption else "",
    )
    display({"text/html": page, "text/plain": "\n".join(alts)}, raw=True)
    for picture in pictures:
        _close(picture)


# The label encloses its slider and the script finds its parts by class, not by id, so that two views of one output in
# JupyterLab each work. The script comes last: it sees the pictures, and hides all but one before they are painted.
_SLIDER = Template("""<figure class="frames" data-frames="$id" style="margin:0;max-width:${width}px">
<style>[data-frames="$id"] img[hidden]{display:none!important}</style>
$images
<div style="display:flex;flex-wrap:wrap;align-items:center;gap:.25em 1em">
<label style="display:flex;flex:1 1 18em;align-items:center;gap:.75em">$label
<input id="$id" type="range" min="0" max="$last" step="1" value="$start" autocomplete="off" aria-valuetext="$first"
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


def _close(picture: Figure) -> None:
    """Forget a figure that a reader made with pyplot, which would show it once more; ours are in nobody's list."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None:
        pyplot.close(picture)
