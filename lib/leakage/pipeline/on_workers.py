"""The section *On several workers* of the page *Performance*: what a cluster costs, and what it would take for more.

The record `cluster.json` has `tasks` and their `seconds` in one process, `runs` with so many workers, `rate` and
`plain_rate` of empty tasks, the seconds of each of the `chapters`, and what is `projected`. The other fields are its
origin. Everything here is a function from a record to text.
"""

from collections.abc import Mapping
from typing import Any

from leakage.pipeline.inline import block, element, table
from leakage.pipeline.layers import duration
from leakage.pipeline.performance import origin, time_text

FIELDS = ("tasks", "seconds", "cores", "runs", "rate", "plain_rate", "chapters", "projected")
_HEADS = ("workers", "by the clock", "efficiency")


def on_workers(record: Mapping[str, Any]) -> str:
    """The table of efficiencies, what a task costs, the projection, and the origin of a record."""
    if not record:
        return "No record of workers is kept in this copy of the book; `benchmarks/cluster.py --record` makes one.\n"
    heads = "".join(element("th", text, scope="col") for text in _HEADS)
    rows = (
        element(
            "tr",
            "".join(
                element("td", text, data_label=head)
                for head, text in zip(
                    _HEADS, (f"{run['workers']}", f"{run['seconds']:.1f} s", f"{run['efficiency']:.0%}"), strict=True
                )
            ),
        )
        for run in record["runs"]
    )
    source = {name: value for name, value in record.items() if name not in FIELDS}
    first = (
        f"{record['tasks']} tasks of {time_text(record['seconds'] / record['tasks'])} each take "
        f"{record['seconds']:.1f} s one after the other in a process of their own. "
        f"The efficiency is that time over the one by the clock, for each worker that has a core; "
        f"this machine has {record['cores']}."
    )
    paragraphs = (first, block(element("div", table(heads, rows, class_="table"), class_="chart-box")), _law(record))
    return "\n\n".join([*paragraphs, f"{origin('This record', source)}.\n"])


def _law(record: Mapping[str, Any]) -> str:
    chapters, projected = record["chapters"], record["projected"]
    each, plainly = time_text(1 / record["rate"]), time_text(1 / record["plain_rate"])
    return (
        f"A task that does nothing costs the client and its scheduler {each} of a core ({plainly} by dask alone, which "
        f"believes what comes back); the shortest chapter takes {duration(min(chapters.values()))}."
        f"\n\nThe {len(chapters)} chapters take {duration(sum(chapters.values()))} of one core at a seed. "
        f"At {projected['seeds']:,} seeds they would take {projected['workers']} workers like these "
        f"{duration(projected['seconds'])}: all chapters at all seeds over the workers, at the efficiency of as many "
        "as there are cores here, and at the end the longest chapter, for which the others wait."
    )
