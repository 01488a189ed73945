"""The landing page's texts: how much of what was said held, and a row for each chapter with its picture and answer.

Plain MyST, made from the plan of the chapters and the entries of all claims. What the papers say and what this book
found are counted apart. Everything here is a function from values to text.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from reproduced.claims.declarations import HELD
from reproduced.claims.texts import escape_text
from reproduced.pages.chips import EXACT
from reproduced.pages.entries import Entry
from reproduced.pages.scoreboard import at_full_scale, counted

_WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def tally(entries: Sequence[Entry]) -> str:
    """How many claims of whom have which verdict, a line for each of statements, findings and slips."""
    if not entries:
        return "No chapter was executed for this copy of the book.\n"
    papers, ours, slips = _split(entries)
    number = len({entry.place.name for entry in papers})
    of = f"{_WORDS[number] if number < len(_WORDS) else number} paper{'s' * (number > 1)}"
    lines = [
        _line(papers, f"statement{'s' * (len(papers) > 1)} of {of}"),
        _line(ours, f"finding{'s' * (len(ours) > 1)} of ours"),
        _line(slips, f"claim{'s' * (len(slips) > 1)} that a printed text slips, counted apart"),
    ]
    return "".join([*(f"- {line}\n" for line in lines if line), f"\n{at_full_scale(entries)}"]).rstrip() + "\n"


def _split(entries: Iterable[Entry]) -> tuple[list[Entry], list[Entry], list[Entry]]:
    """Claims of the papers, findings of ours and slips."""
    kinds: dict[str, list[Entry]] = {"paper": [], "ours": [], "erratum": []}
    for entry in entries:
        kinds.get(entry.claim.kind, kinds["paper"]).append(entry)
    return kinds["paper"], kinds["ours"], kinds["erratum"]


def _line(entries: Sequence[Entry], name: str) -> str:
    exact = sum(entry.claim.exact for entry in entries if entry.verdict == HELD)
    marked = f" ({exact} of those that held are {EXACT}: true by algebra or construction)" * bool(exact)
    return f"**{len(entries)} {name}**: {counted(entries)}{marked}." if entries else ""


def rows(
    chapters: Iterable[Mapping[str, Any]],
    entries: Iterable[Entry],
    existing: Collection[str],
    pictures: Mapping[str, str],
) -> str:
    """A row for each planned chapter: picture, question, answer and verdicts.

    Args:
        chapters: as planned.
        entries: of all claims.
        existing: the chapters that are written; only they are links.
        pictures: the file of each chapter's picture, as the page names it; a chapter without one has none.
    """
    found: dict[str, list[Entry]] = {}
    for entry in entries:
        found.setdefault(entry.place.name, []).append(entry)
    told = [_row(chapter, found.get(chapter["name"], []), existing, pictures) for chapter in chapters]
    return "::::::{div} chapter-rows\n" + "\n".join(told) + "::::::\n" if told else ""


def _row(
    chapter: Mapping[str, Any], entries: Sequence[Entry], existing: Collection[str], pictures: Mapping[str, str]
) -> str:
    name, title = chapter["name"], f"{chapter['number']} · {escape_text(chapter['title'])}"
    there = name in existing
    heading = f"[{title}](/{name})" if there else title
    picture = f"![{escape_text(chapter['answer'])}]({pictures[name]})\n\n" if name in pictures else ""
    paper = f"*{escape_text(chapter['paper'])}*, {chapter['year']}"
    lines = [
        f"**{heading}** {escape_text(chapter['question'])}",
        f"{escape_text(chapter['answer'])}",
        _verdicts(entries, there),
    ]
    text = "\n\n".join([*lines, paper])
    return f":::::{{div}} chapter-row\n{picture}::::{{div}} chapter-told\n{text}\n::::\n:::::\n"


def _verdicts(entries: Sequence[Entry], there: bool) -> str:
    if not entries:
        return "Not executed in this build." if there else "In preparation."
    papers, ours, slips = _split(entries)
    parts = [f"The paper: {counted(papers)}"] * bool(papers) + [f"ours: {counted(ours)}"] * bool(ours)
    parts += [f"slips: {len(slips)}"] * bool(slips)
    return "; ".join(parts) + "."
