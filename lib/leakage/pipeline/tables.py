"""The generated pages in words: counts of verdicts, status and performance, as Markdown made from ledgers.

Plain MyST that also reads well as text; a verdict is a sign and words, never a colour alone. Everything here is a
function from values to text.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from leakage.claims.declarations import KINDS
from leakage.claims.texts import SIGNS, in_text, machine, table
from leakage.pipeline.collect import counts

Ledger = Mapping[str, Any]
_KINDS = {"erratum": "errata", "ours": "ours"}  # in the plural, where it is not an s


def verdict_counts(ledgers: Sequence[Ledger]) -> str:
    """`theorems: ✓ 20 held, ◐ 3 held in part; ours: ✓ 2 held`, leaving out kinds and verdicts that no claim has."""
    found = counts(ledgers)
    kinds = {
        kind: [f"{sign} {number} {verdict}" for verdict, sign in SIGNS.items() if (number := found[kind, verdict])]
        for kind in KINDS
    }
    return "; ".join(f"{_KINDS.get(kind, kind + 's')}: {', '.join(told)}" for kind, told in kinds.items() if told)


def status(ledgers: Mapping[str, Ledger]) -> str:
    """When, where and how long each chapter ran, and with which versions."""
    if not ledgers:
        return "No chapter was executed for this copy of the book.\n"
    heads = ("chapter", "executed", "seconds", "profile", "seed", "device", "commit")
    lines = dict.fromkeys(_versions(ledger) for ledger in ledgers.values())
    rows = [_run(name, ledger) for name, ledger in ledgers.items()]
    return table(heads, rows) + "".join(f"\nVersions: {in_text(line)}.\n" for line in lines)


def _run(name: str, ledger: Ledger) -> list[str]:
    date = ledger["date"].replace("T", " ").replace("+00:00", " UTC")
    commit = f"{(ledger['commit'] or 'unknown')[:10]}{' with local changes' if ledger['dirty'] else ''}"
    size = [f"{ledger['seconds']:.0f}", ledger["profile"], str(ledger["seed"])]
    return [f"[](/{name})", date, *size, machine(ledger), commit]


def _versions(ledger: Ledger) -> str:
    return ", ".join(f"{name} {version}" for name, version in ledger["versions"].items())


def performance(records: Mapping[str, Mapping[str, Any]]) -> str:
    """Tables of the benchmark records (name → content), each with its title and where it comes from.

    A row has `what` was computed, the two methods (`theirs`, `ours`), their CPU seconds for one `unit`
    (`theirs_seconds`, `ours_seconds`), the `ratio` and a `note`; the other fields of a record are its origin.
    """
    if not records:
        return "No benchmark record is kept in this copy of the book; `benchmarks/` says how to make one.\n"
    return "\n".join(_benchmark(name, record) for name, record in records.items())


def _benchmark(name: str, record: Mapping[str, Any]) -> str:
    rows = [_comparison(row) for row in record["rows"]]
    origin = (in_text(f"{key} {value}") for key, value in record.items() if key not in ("title", "rows"))
    heads = ("computed", "straightforward method", "this book's method", "ratio", "how it was measured")
    return f"## {in_text(record.get('title', name))}\n\n{table(heads, rows)}\nFrom {'; '.join(origin)}.\n"


def _comparison(row: Mapping[str, Any]) -> list[str]:
    sides = [f"{row[side]}: {_time(row[f'{side}_seconds'])}" for side in ("theirs", "ours")]
    return [f"{row['what']} (times for one {row['unit']})", *sides, f"{row['ratio']:,.6g} ×", row["note"]]


def _time(seconds: float) -> str:
    """`3.45 ms`: the largest unit of which there is at least one."""
    units = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
    size, name = next((unit for unit in units if seconds >= unit[0]), units[-1])
    return f"{seconds / size:.3g} {name}"
