"""The section *Growth* of the page *Performance*: seconds along a size, for all methods, and their exponents.

The record `growth.json` has `axes`; an axis has `curves`, ours first, with `sizes`, `seconds`, `bytes` and the fits
`time` and `memory`, each with the `exponent` that was found, its interval and the one of the `theory`. The other fields
of the record are its origin. Everything here is a function from a record to text.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from leakage.pipeline.inline import block, element, escape, rendered, table
from leakage.pipeline.performance import for_unit, origin, time_text

_HEADS = (
    "computed",
    "side",
    "method",
    "sizes",
    "time, least to most",
    "exponent of time",
    "in theory",
    "peak memory",
    "exponent of memory",
    "in theory ",  # a head of its own for a narrow screen, which shows heads beside cells
    "share of flop/s",
    "share of bytes/s",
)
_WIDTH, _HEIGHT = 320, 210
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 76, 10, 34  # of the panel, around its axes
_APART = 13  # between two labels
_TICKS = 5  # on an axis, at most


def growth(record: Mapping[str, Any], titles: Mapping[str, str] | None = None) -> str:
    """The panels, the table in a fold, and the origin of a record; `titles` are those of the chapters."""
    axes = record.get("axes", [])
    if not axes:
        return "No record of growth is kept in this copy of the book; `benchmarks/growth.py --record` makes one.\n"
    drawn = element("div", "\n".join(panel(axis, titles or {}) for axis in axes), class_="panels")
    key = element(
        "p",
        element("span", "● this book's method", class_="ours")
        + " "
        + element("span", "■ straightforward", class_="theirs"),
        class_="panels-key",
    )
    told = element("summary", "Every curve: times, memory, exponents and the reasons for them")
    fold = element("details", told + element("div", _table(axes), class_="chart-box"), class_="fold")
    return "\n".join([f"{_sentence(axes)}\n", block(key, drawn), block(fold), f"{_machine(record)}\n"])


def _sentence(axes: Sequence[Mapping[str, Any]]) -> str:
    """How many of the exponents are those of the theory."""
    fits = [curve["time"] for axis in axes for curve in axis["curves"] if curve["time"]["exponent"] is not None]
    near = sum(abs(one["exponent"] - one["theory"]) <= 0.15 for one in fits)
    return (
        f"Of {len(fits)} exponents along {len(axes)} axes {near} are within 0.15 of the theory; "
        "for others the table says what we take for the reason."
    )


def _machine(record: Mapping[str, Any]) -> str:
    """What the machine can do, and where the record comes from."""
    peak = {name: float(value) / 1e9 for name, value in record["peak"].items()}
    return (
        f"One thread of this machine makes {peak['float64']:.3g} billion operations a second in a product of matrices "
        f"({peak['float32']:.3g} in single precision) and moves {peak['copy']:.3g} billion bytes a second in a copy; "
        "the shares in the table are those of these numbers.\n\n"
        f"{origin('This record', {name: value for name, value in record.items() if name not in ('peak', 'axes')})}."
    )


# ── panels ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def panel(axis: Mapping[str, Any], titles: Mapping[str, str]) -> str:
    """One algorithm: seconds against the size for each of its methods, with the exponents beside the lines."""
    curves = axis["curves"]
    across = _Scale([size for curve in curves for size in curve["sizes"]], _LEFT, _WIDTH - _RIGHT)
    up = _Scale([second for curve in curves for second in curve["seconds"]], _HEIGHT - _BOTTOM, _TOP)
    ends = [up.at(curve["seconds"][-1]) for curve in curves]
    parts = [_grid(across, up), *(_line(curve, across, up) for curve in curves)]
    for curve, y in zip(curves, _parted(ends), strict=True):
        x = across.at(curve["sizes"][-1]) + 8
        parts.append(element("text", _label(curve["time"]), class_=curve["side"], x=f"{x:.1f}", y=f"{y + 4:.1f}"))
    parts.append(
        element(
            "text",
            escape(axis["along"]),
            x=f"{(_LEFT + _WIDTH - _RIGHT) / 2:.0f}",
            y=str(_HEIGHT - 3),
            text_anchor="middle",
        )
    )
    told = "; ".join(f"{curve['method']}: exponent {_label(curve['time'])}" for curve in curves)
    svg = element(
        "svg",
        "".join(parts),
        class_="panel",
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        role="img",
        aria_label=f"Seconds against {axis['along']}, logarithmic. {told}.",
    )
    name = axis["chapter"]  # a page that is no chapter goes by its name
    title = element("strong", rendered(titles.get(name, name.replace("_", " ").capitalize())))
    return element("figure", element("figcaption", f"{title}: {rendered(axis['what'])}") + svg)


class _Scale:
    """A logarithmic axis over values, from one coordinate to another."""

    def __init__(self, values: Sequence[float], first: float, last: float) -> None:
        self.low, self.high = math.log10(min(values)), math.log10(max(values))
        self.first, self.last = first, last

    def at(self, value: float) -> float:
        share = (math.log10(value) - self.low) / (self.high - self.low) if self.high > self.low else 0.5
        return self.first + (self.last - self.first) * share

    def ticks(self) -> list[float]:
        """Powers of ten; where only one or none is in reach, the two ends instead."""
        powers = range(math.ceil(self.low - 1e-9), math.floor(self.high + 1e-9) + 1)
        if len(powers) < 2:
            return sorted({10**self.low, 10**self.high})
        return [10.0**power for power in powers[:: math.ceil(len(powers) / _TICKS)]]


def _grid(across: _Scale, up: _Scale) -> str:
    marks = []
    for tick in across.ticks():
        x = f"{across.at(tick):.1f}"
        marks.append(f'<path class="grid" d="M{x} {_TOP}V{_HEIGHT - _BOTTOM}"/>')
        marks.append(element("text", f"{round(tick):,}", x=x, y=str(_HEIGHT - _BOTTOM + 14), text_anchor="middle"))
    for tick in up.ticks():
        y = up.at(tick)
        marks.append(f'<path class="grid" d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}"/>')
        told = f"{tick:,.0f} s" if tick >= 100 else time_text(tick)  # there is no room for minutes
        marks.append(element("text", told, x=str(_LEFT - 5), y=f"{y + 4:.1f}", text_anchor="end"))
    return "".join(marks)


def _line(curve: Mapping[str, Any], across: _Scale, up: _Scale) -> str:
    """A line through the sizes; dots for ours, squares for the others."""
    points = [(across.at(size), up.at(spent)) for size, spent in zip(curve["sizes"], curve["seconds"], strict=True)]
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    if curve["side"] == "ours":
        marks = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in points)
    else:
        marks = "".join(f'<rect x="{x - 2.7:.1f}" y="{y - 2.7:.1f}" width="5.4" height="5.4"/>' for x, y in points)
    return element("g", element("title", escape(curve["method"])) + f'<path d="{path}"/>{marks}', class_=curve["side"])


def _parted(places: Sequence[float]) -> list[float]:
    """The places, moved apart where labels would touch, in their own order."""
    order = sorted(range(len(places)), key=lambda index: places[index])
    moved = list(places)
    for above, below in pairwise(order):
        moved[below] = max(moved[below], moved[above] + _APART)
    return moved


def _label(found: Mapping[str, Any]) -> str:
    measured = "–" if found["exponent"] is None else f"{_rounded(found['exponent'])}"
    return f"{measured} ({found['theory']:g})"


def _rounded(value: float) -> str:
    return f"{round(value, 2) + 0.0:.2f}".replace("-", "−")  # no minus before a zero


# ── the table ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _table(axes: Iterable[Mapping[str, Any]]) -> str:
    heads = "".join(element("th", text.strip(), scope="col") for text in _HEADS)
    rows = (_row(axis, curve) for axis in axes for curve in axis["curves"])
    return table(heads, rows, class_="sortable-table table")


def _row(axis: Mapping[str, Any], curve: Mapping[str, Any]) -> str:
    ours, sizes, times = curve["side"] == "ours", curve["sizes"], curve["seconds"]
    most = max((held for held in curve["bytes"] if held is not None), default=None)
    cells: list[tuple[str, Any]] = [
        (f"{rendered(axis['what'])}, {for_unit(axis['unit'])}", None),
        ("ours" if ours else "theirs", None),
        (rendered(curve["method"]), None),
        (f"{sizes[0]:,} to {sizes[-1]:,} {escape(axis['along'])}", sizes[-1]),
        (f"{time_text(times[0])} to {time_text(times[-1])}", times[-1]),
        *_fitted(curve["time"]),
        ("–", None) if most is None else (f"{most / 2**20:,.0f} MB", most),
        *_fitted(curve["memory"]),
    ]
    for share, formula in (("flops_share", "flops"), ("traffic_share", "traffic")):
        cells.append((f"{axis[share]:.2%} of {rendered(axis[formula])}", axis[share]) if ours else ("", 0))
    return element(
        "tr",
        "".join(
            element("td", text, data_label=head.strip(), data_order=None if order is None else f"{order:.6g}")
            for (text, order), head in zip(cells, _HEADS, strict=True)
        ),
    )


def _fitted(found: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The exponent with its interval, and the theory with its reason and note."""
    measured = ("not measurable", None)
    if found["exponent"] is not None:
        spread = f"[{_rounded(found['low'])}, {_rounded(found['high'])}]"
        measured = (f"{_rounded(found['exponent'])} {spread}", found["exponent"])
    note = f". {rendered(found['note'])}" if found["note"] else ""
    return [measured, (f"{found['theory']:g}: {rendered(found['reason'])}{note}", found["theory"])]
