"""What a reader takes away of a figure: its numbers as a table (CSV) and the figure itself as an SVG.

The numbers are read from what matplotlib has drawn, so the table cannot differ from the figure. A row is a point, a
bar, a cell or an interval; its columns say in which panel it is, to which series it belongs, and what its axes measure.
Pictures made of pixels have no rows. The same figure gives the same bytes. Nothing here draws.
"""

import base64
import csv
import gzip
import io
import math
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import Collection, LineCollection, PathCollection, PolyCollection, QuadMesh
from matplotlib.colors import to_hex
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from reproduced.palette import QUANTITIES

METADATA = "figure_files"  # of an output: the files of its figure by their ending, compressed
_COLUMNS = (
    *("panel", "series", "drawn as", "horizontal axis", "x", "x low", "x high"),
    *("vertical axis", "y", "y low", "y high", "shade", "value"),
)
_MOST_VALUES = 5000  # of one artist that are listed
_DENSE = 1000  # points or pieces from which on an artist is pixels in the SVG, and lines from which on all are
_LARGEST = 400_000  # bytes of a file that is offered

Row = dict[str, Any]


def compressed_files(picture: Figure) -> dict[str, str]:
    """The files of a figure that was drawn, by ending, for `read_files`; without one that would be too large."""
    files = {"csv": values_csv(picture).encode(), "svg": svg(picture)}
    return {
        ending: base64.b64encode(gzip.compress(content, mtime=0)).decode()
        for ending, content in files.items()
        if content and len(content) <= _LARGEST
    }


def read_files(compressed: dict[str, str]) -> dict[str, bytes]:
    """The files that `compressed_files` made, by ending."""
    return {ending: gzip.decompress(base64.b64decode(text)) for ending, text in compressed.items()}


def svg(picture: Figure) -> bytes:
    """A drawn figure as SVG, its letters as outlines, in the layout that it has; what is dense in it becomes pixels."""
    picture.set_layout_engine("none")
    for ax in picture.axes:
        for artist in (*ax.collections, *(ax.lines if len(ax.lines) > _DENSE // 10 else ())):
            artist.set_rasterized(not isinstance(artist, Collection) or _size(artist) > _DENSE)
    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "figure", "svg.fonttype": "path"}):
        picture.savefig(buffer, format="svg", dpi=200, metadata={"Date": None, "Creator": None})
    return buffer.getvalue()


def values_csv(picture: Figure) -> str:
    """The numbers of a drawn figure as a table with a header, six digits each; "" if it shows none.

    Columns that no row fills are left out. Of an artist with more than some thousand values a row says only that.
    """
    drawn: list[Any] = [one for ax in picture.axes for one in (ax, *ax.child_axes)]
    panels = [ax for ax in drawn if ax.get_label() != "<colorbar>"]
    rows = []
    for number, ax in enumerate(panels, start=1):
        name = _title(ax) or (str(number) if len(panels) > 1 else "")
        panel = {"panel": _one_line(": ".join(filter(None, (picture.get_suptitle(), name))))}
        panel |= {"horizontal axis": _axis_label(ax, "x"), "vertical axis": _axis_label(ax, "y")}
        for row in _join_intervals(list(_panel_rows(ax))):
            unnamed = not row["series"] and not row["drawn as"].endswith(" line")
            rows.append(panel | row | ({"series": _panel_name(ax)} if unnamed else {}))
    columns = [column for column in _COLUMNS if any(row.get(column, "") != "" for row in rows)]
    if "x" not in columns and "y" not in columns:
        return ""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()


def _panel_rows(ax: Axes) -> Iterator[Row]:
    """The rows of one panel: numbers in six digits, or names where an axis has names."""
    names = {one: box.get_label() for box in ax.containers for one in box.get_children()}
    bars: dict[Any, BarContainer] = {
        bar: box for box in ax.containers if isinstance(box, BarContainer) for bar in box.patches
    }
    ends = {cap for box in ax.containers if isinstance(box, ErrorbarContainer) for cap in box.lines[1]}
    ticks = {side: _tick_names(ax, side) for side in "xy"}
    noise = {side: _rounding_noise(ax, side) for side in "xy"}
    for artist in (*ax.lines, *ax.collections, *ax.patches):
        if artist in ends or not artist.get_visible():
            continue
        kind, rows = _artist_rows(artist, ax, bars.get(artist))
        about = {"series": _series(artist, ax, names.get(artist, ""))}
        if len(rows) > _MOST_VALUES:
            yield about | {"drawn as": f"{kind}, {len(rows)} values that are not listed"}
            continue
        for row in rows:
            if all(isinstance(value, str) or math.isfinite(value) for value in row.values()):
                told = {
                    key: _name_or_number(value, ticks.get(key[0]), noise.get(key[0], 0.0)) for key, value in row.items()
                }
                yield about | {"drawn as": kind} | told


def _artist_rows(artist: Any, ax: Axes, bars: BarContainer | None) -> tuple[str, list[Row]]:
    """What an artist is, and a row for each of its points; none where its place is not in the axes' units."""
    across, up = artist.get_transform().contains_branch_seperately(ax.transData)
    if isinstance(artist, Rectangle):
        (x0, y0), (x1, y1) = artist.get_bbox().get_points()
        if bars and bars.orientation == "horizontal":
            return "bar", [{"y": (y0 + y1) / 2} | _from_to("x", x0, x1)]
        if bars:
            return "bar", [{"x": (x0 + x1) / 2} | _from_to("y", y0, y1)]
        row = {"x low": x0, "x high": x1} if across else {}
        row |= {"y low": y0, "y high": y1} if up else {}
        return "area", [row] if row else []
    if isinstance(artist, PathCollection):
        return "points", _with_values(_numbers(artist.get_offsets()), artist)
    if isinstance(artist, QuadMesh):
        corners = np.asarray(artist.get_coordinates())
        centres = (corners[:-1, :-1] + corners[1:, :-1] + corners[:-1, 1:] + corners[1:, 1:]) / 4
        return "cell", _with_values(centres.reshape(-1, 2), artist)
    if isinstance(artist, PolyCollection) and across and up:
        outlines = [np.asarray(path.vertices) for path in artist.get_paths()]
        if artist.get_array() is None:
            return "area", [row for outline in outlines for row in _area_rows(outline)]
        return "centre of a polygon", _with_values([outline[:-1].mean(0) for outline in outlines], artist)
    if isinstance(artist, LineCollection) and across and up:
        # A segment with an end that is not finite comes without it.
        segments = [_numbers(segment) for segment in artist.get_segments() if len(segment) > 1]
        rows = [row for segment in segments for row in _segment_rows(segment)]
        return "interval" if len(rows) == len(segments) else "line", rows
    if isinstance(artist, Line2D):
        points = _numbers(artist.get_xydata())
        if across and up:
            is_line = str(artist.get_linestyle()).lower() not in ("none", "", " ")
            return "line" if is_line else "points", [{"x": x, "y": y} for x, y in points]
        marks = dict.fromkeys(points[:, 0] if across else points[:, 1] if up else ())
        return ("vertical" if across else "horizontal") + " line", [{"x" if across else "y": mark} for mark in marks]
    return "shape", []


def _numbers(values: Any) -> np.ndarray:
    """An array in which what is masked is NaN."""
    return np.ma.filled(np.ma.asarray(values, float), np.nan)


def _segment_rows(segment: np.ndarray) -> list[Row]:
    """An upright or level segment as an interval, anything else as points."""
    (x0, y0), (x1, y1) = segment[0], segment[-1]
    if len(segment) == 2 and x0 == x1:
        return [{"x": x0, "y low": min(y0, y1), "y high": max(y0, y1)}]
    if len(segment) == 2 and y0 == y1:
        return [{"y": y0, "x low": min(x0, x1), "x high": max(x0, x1)}]
    return [{"x": x, "y": y} for x, y in segment]


def _area_rows(outline: np.ndarray) -> list[Row]:
    """The outline of an area as its ends over each x; where it has steps, between two x."""
    xs, steps = np.unique(outline[:, 0]), {}
    for (x0, y0), (x1, y1) in pairwise(outline):
        if y0 == y1 and x0 != x1:
            steps.setdefault((min(x0, x1), max(x0, x1)), []).append(y0)
    if len(steps) == len(xs) - 1 and all(len(ends) == 2 for ends in steps.values()):
        return [{"x low": x0, "x high": x1} | _from_to("y", *ends) for (x0, x1), ends in sorted(steps.items())]
    return [{"x": x} | _from_to("y", *outline[outline[:, 0] == x, 1]) for x in xs]


def _from_to(side: str, *ends: float) -> Row:
    """Where something begins and ends; only the other end if one is zero, as of a bar."""
    low, high = min(ends), max(ends)
    return {side: high or low} if low == 0 or high == 0 else {f"{side} low": low, f"{side} high": high}


def _with_values(places: Iterable[Any], artist: Any) -> list[Row]:
    """Rows of places with the values that their colours show, and what the bar of the colours says that they are."""
    rows: list[Row] = [{"x": x, "y": y} for x, y in places]
    if artist.get_array() is None:
        return rows
    bar = getattr(artist, "colorbar", None)
    shade = _one_line(bar.ax.get_ylabel() or bar.ax.get_xlabel()) if bar else ""
    values = _numbers(artist.get_array()).ravel()
    return [row | {"shade": shade, "value": value} for row, value in zip(rows, values, strict=True)]


def _join_intervals(rows: list[Row]) -> list[Row]:
    """Rows in which an interval is in the row of its point, where its series has just one point at its place."""
    points: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        if row["series"] and row["drawn as"] != "interval":
            for at in {"x", "y"} & row.keys():
                points.setdefault((row["series"], at, row[at]), []).append(row)
    joined = []
    for row in rows:
        at, ends = ("x", ("y low", "y high")) if "y low" in row else ("y", ("x low", "x high"))
        near = points.get((row["series"], at, row.get(at, "")), []) if row["drawn as"] == "interval" else []
        if len(near) == 1 and not near[0].keys() & {*ends}:
            near[0].update({end: row[end] for end in ends})
        else:
            joined.append(row)
    return joined


def _series(artist: Any, ax: Axes, container: Any) -> str:
    """What an artist is called: its label, that of its colour in the legend or on the axes, or its quantity's name."""
    for label in (artist.get_label(), container):
        if label and not str(label).startswith("_"):
            return _one_line(str(label))
    colour = _colour(artist)
    legends = [one for drawn in ax.figure.axes if (one := drawn.get_legend())] + list(ax.figure.legends)
    shown = [(to_hex(text.get_color()), text.get_text()) for text in ax.texts]
    keys = [
        (_colour(handle), text.get_text())
        for legend in legends
        for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=True)
    ]
    for known in (keys, shown):
        texts = {text for other, text in known if other == colour and text}
        if colour not in ("", to_hex("black")) and len(texts) == 1:
            return _one_line(texts.pop())
    return next((name for name, look in QUANTITIES.items() if to_hex(look.colour) == colour and name != "neutral"), "")


def _colour(artist: Any) -> str:
    """The one colour of an artist, "" if it has none or several."""
    if isinstance(artist, Collection):
        if artist.get_array() is not None:
            return ""
        colours: Any = artist.get_edgecolor() if isinstance(artist, LineCollection) else artist.get_facecolor()
        found = {to_hex(one) for one in colours}
        return found.pop() if len(found) == 1 else ""
    reader = getattr(artist, "get_color", None) or getattr(artist, "get_facecolor", None)
    return to_hex(reader()) if reader else ""


def _axis_label(ax: Axes, side: str) -> str:
    """What an axis measures, as it or one that it shares its scale with says, else the figure."""
    siblings = (ax, *getattr(ax, f"get_shared_{side}_axes")().get_siblings(ax))
    labels = (getattr(one, f"get_{side}label")() for one in siblings)
    return _one_line(next(filter(None, labels), "") or getattr(ax.figure, f"get_sup{side}label")())


def _tick_names(ax: Axes, side: str) -> dict[float, str]:
    """The names that stand at steps of one along an axis, in the place of numbers; empty if it has numbers."""
    ticks = getattr(ax, f"{side}axis").get_major_ticks()
    names = {float(tick.get_loc()): text for tick in ticks if (text := tick.label1.get_text())}
    is_named = all(any(map(str.isalpha, text)) and "mathdefault" not in text for text in names.values())
    by_one = all(abs(high - low - 1) < 1e-9 for low, high in pairwise(sorted(names)))
    return {at: _one_line(text) for at, text in names.items()} if is_named and by_one else {}


def _title(ax: Axes) -> str:
    return next((text for side in ("left", "center", "right") if (text := ax.get_title(side))), "")


def _panel_name(ax: Axes) -> str:
    """What a series without a name shows: the title of its panel, or what an axis measures."""
    return _one_line(_title(ax)) or _axis_label(ax, "y") or _axis_label(ax, "x")


def _rounding_noise(ax: Axes, side: str) -> float:
    """What is too small to be seen along a linear axis, and to be more than rounding."""
    is_linear = getattr(ax, f"get_{side}scale")() == "linear"
    return 1e-9 * max(map(abs, getattr(ax, f"get_{side}lim")())) if is_linear else 0.0


def _name_or_number(value: Any, names: dict[float, str] | None, noise: float) -> str:
    """A number in six digits, 0 if it is noise, or the name that stands less than half a step away."""
    if isinstance(value, str):
        return value
    if abs(value) < noise:
        value = 0.0
    nearest = min(names, key=lambda at: abs(at - value)) if names else np.inf
    return names[nearest] if names and abs(nearest - value) < 0.5 else f"{value:.6g}"


def _size(artist: Collection) -> int:
    """How many points and pieces an artist has."""
    points: list[Any] = [path.vertices for path in artist.get_paths()]
    places: Any = artist.get_offsets()
    values: Any = artist.get_array()
    return max(sum(map(len, points)), len(places), np.size(values))


def _one_line(text: str) -> str:
    return " ".join(text.split())
