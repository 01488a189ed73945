"""The generated pages in words: counts of verdicts and the status of the chapters, as Markdown made from ledgers.

Plain MyST that also reads well as text; a verdict is a sign and words, never a colour alone. Everything here is a
function from values to text.
"""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from reproduced.claims.declarations import KINDS
from reproduced.claims.texts import SIGNS, escape_text, machine, table
from reproduced.pages.collect import counts

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
    return table(heads, rows) + "".join(f"\nVersions: {escape_text(line)}.\n" for line in lines)


def _run(name: str, ledger: Ledger) -> list[str]:
    date = ledger["date"].replace("T", " ").replace("+00:00", " UTC")
    commit = f"{(ledger['commit'] or 'unknown')[:10]}{' with local changes' if ledger['dirty'] else ''}"
    size = [f"{ledger['seconds']:.0f}", ledger["profile"], str(ledger["seed"])]
    return [f"[](/{name})", date, *size, machine(ledger), commit]


def _versions(ledger: Ledger) -> str:
    return ", ".join(f"{name} {version}" for name, version in ledger["versions"].items())


def last_lines(ledgers: Mapping[str, Ledger]) -> str:
    """What a build says at its end, as a reader sees it on a terminal."""
    told = f"Claims: {verdict_counts([*ledgers.values()]) or 'none'}"
    lines = textwrap.wrap(told, 80, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return "\n".join(["```text", "The book: …/_build/site/_build/html/index.html", *lines, "```", ""])
