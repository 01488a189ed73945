"""The page *Performance*: how many times faster than the straightforward method, as one drawing and one table.

A row of a benchmark record has `what` was computed, the two methods (`theirs`, `ours`), their CPU seconds for one
`unit` (`theirs_seconds`, `ours_seconds`), the `ratio` and a `note` whose parts are separated by semicolons; the other
fields of a record are its origin. Everything here is a function from records to text.
"""

import math
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from leakage.claims.texts import in_text
from leakage.pipeline.inline import block, element, escape, rendered, table

_HEADS = ("computed", "straightforward method", "this book's method", "ratio", "same result")
_RANGE = re.compile(r"([\d.,]+) to ([\d.,]+) in \d+ rounds?")
_NEEDED = re.compile(r"[≥≤] .* needed")
_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_NAMELESS = ("date", "cpu", "versions", "clock")  # fields of an origin that say by themselves what they are
_LEFT, _WIDTH, _STEP = 330, 700, 18  # of the drawing: where its axis begins, its width, the height of a line


@dataclass(frozen=True)
class Comparison:
    """A row of a record, with the least and the most of its ratio over the rounds, and what its note says besides."""

    title: str
    row: Mapping[str, Any]
    least: float
    most: float
    rest: str

    @property
    def ratio(self) -> float:
        return float(self.row["ratio"])


def performance(records: Mapping[str, Mapping[str, Any]], titles: Mapping[str, str] | None = None) -> str:
    """A sentence, a drawing, a table and the origins of the benchmark records (name → content).

    A record of a chapter, `performance.<chapter>`, goes by the chapter's title, as `titles` has it.
    """
    chapters = {f"performance.{name}": title for name, title in (titles or {}).items()}
    named = {name: str(chapters.get(name, record.get("title", name))) for name, record in records.items()}
    found = [_comparison(named[name], row) for name, record in records.items() for row in record["rows"]]
    if not found:
        return "No benchmark record is kept in this copy of the book; `benchmarks/` says how to make one.\n"
    found.sort(key=lambda one: -one.ratio)
    drawn = element("div", chart(found), class_="chart-box")
    origins = "".join(f"- {origin(named[name], record)}\n" for name, record in records.items())
    return "\n".join(
        [f"{sentence(found)}\n", block(drawn), block(_table(found)), f"## Where the numbers come from\n\n{origins}"]
    )


def sentence(found: Iterable[Comparison]) -> str:
    """How many comparisons there are, and between what their ratios lie."""
    ratios = sorted(one.ratio for one in found)
    if len(ratios) == 1:
        return f"One comparison: {_times(ratios[0])} times."
    half = statistics.median(ratios)
    return (
        f"{len(ratios)} comparisons, from {_times(ratios[0])} to {_times(ratios[-1])} times, "
        f"half of them above {_times(half)}."
    )


def _times(ratio: float) -> str:
    digits = 1 - math.floor(math.log10(ratio)) if ratio > 0 else 0
    return f"{round(ratio, digits):,.{max(0, digits)}f}"


def _comparison(title: str, row: Mapping[str, Any]) -> Comparison:
    ends = _RANGE.search(row["note"])
    least, most = (float(end.replace(",", "")) for end in ends.groups()) if ends else (row["ratio"], row["ratio"])
    parts = [part for part in row["note"].split("; ") if not (_RANGE.fullmatch(part) or _NEEDED.fullmatch(part))]
    return Comparison(title, row, min(least, row["ratio"]), max(most, row["ratio"]), "; ".join(parts))


def chart(found: Iterable[Comparison]) -> str:
    """Ratios on an axis of powers of ten, a dot with its range for each, the chapters apart and each sorted."""
    groups: dict[str, list[Comparison]] = {}
    for one in sorted(found, key=lambda one: -one.ratio):
        groups.setdefault(one.title, []).append(one)
    everything = [one for members in groups.values() for one in members]
    named = Counter((one.title, one.row["what"]) for one in everything)
    decades = max(1, math.ceil(math.log10(max(one.most for one in everything))))
    first = min(0.0, math.log10(min(one.least for one in everything)))  # a little left of 1 where one is slower

    def at(ratio: float) -> float:
        return _LEFT + 5 + (_WIDTH - _LEFT - 45) * (math.log10(ratio) - first) / (decades - first)

    height = _STEP * (2 * len(groups) + sum(map(len, groups.values()))) + 30
    lines, y = [], 12
    for title, members in groups.items():
        lines.append(element("text", escape(title), class_="group", x="0", y=str(y + 4)))
        for one in members:
            y += _STEP
            alone = named[one.title, one.row["what"]] == 1
            lines.append(_dot(one, one.row["what"] if alone else f"{one.row['what']}: {one.row['theirs']}", y, at))
        y += 2 * _STEP
    grid = "".join(
        f'<path class="grid" d="M{at(10**n):.1f} 4V{height - 24}"/>'
        + element("text", _power(n), class_="tick", x=f"{at(10**n):.1f}", y=str(height - 8), text_anchor="middle")
        for n in range(decades + 1)
    )
    told = f"Ratios of time on a logarithmic axis. {sentence(everything)}"
    return element(
        "svg",
        grid + "".join(lines),
        class_="chart",
        viewBox=f"0 0 {_WIDTH} {height}",
        role="img",
        aria_label=told,
    )


def _power(exponent: int) -> str:
    return f"{10**exponent:,} ×" if exponent < 4 else "10" + str(exponent).translate(_RAISED) + " ×"


def _dot(one: Comparison, name: str, y: int, at: Any) -> str:
    what = name if len(name) <= 52 else f"{name[:51].rstrip()}…"
    label = element("text", escape(_plain(what)), class_="what", x=str(_LEFT - 8), y=str(y + 4), text_anchor="end")
    line = f'<path class="range" d="M{at(one.least):.1f} {y}H{at(one.most):.1f}"/>'
    dot = element(
        "circle",
        element("title", escape(f"{_plain(one.row['what'])}: {one.ratio:,.6g} ×")),
        cx=f"{at(one.ratio):.1f}",
        cy=str(y),
        r="4",
    )
    return label + line + dot


def _plain(text: str) -> str:
    return text.replace("$", "").replace("\\", "")


def _table(found: Iterable[Comparison]) -> str:
    heads = "".join(element("th", text, scope="col") for text in _HEADS)
    return table(heads, map(_row, found), class_="sortable-table table")


def _row(one: Comparison) -> str:
    row = one.row
    seconds = {side: row[f"{side}_seconds"] for side in ("theirs", "ours")}
    sides = [(f"{rendered(row[side])}: {time_text(time)}", time) for side, time in seconds.items()]
    spread = f" [{_times(one.least)}, {_times(one.most)}]" if one.least < one.most else ""
    what = f"{rendered(row['what'])}, {for_unit(row['unit'])} ({escape(one.title)})"
    cells: list[tuple[str, Any]] = [(what, None), *sides, (f"{row['ratio']:,.6g} ×{spread}", row["ratio"])]
    cells.append((rendered(one.rest), None))
    return element(
        "tr",
        "".join(
            element("td", text, data_label=head, data_order=None if order is None else f"{order:.6g}")
            for (text, order), head in zip(cells, _HEADS, strict=True)
        ),
    )


def for_unit(unit: str) -> str:
    """What the seconds are for: `for one network`, but `for 5 networks`."""
    return f"for {'' if unit[:1].isdigit() else 'one '}{escape(unit)}"


def origin(title: str, record: Mapping[str, Any]) -> str:
    """`A blessing of dimensionality: 2026-11-21, AMD EPYC, …`, to the day."""
    fields = {key: value for key, value in record.items() if key not in ("title", "rows")}
    if "date" in fields:
        fields["date"] = str(fields["date"])[:10]
    told = ", ".join(f"{value}" if key in _NAMELESS else f"{key} {value}" for key, value in fields.items())
    return f"{in_text(title)}: {in_text(told)}"


def time_text(seconds: float) -> str:
    """`3.45 ms`: the largest unit of which there is at least one."""
    units = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
    size, name = next((unit for unit in units if seconds >= unit[0]), units[-1])
    return f"{seconds / size:.3g} {name}"
