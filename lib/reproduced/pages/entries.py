"""Every claim of the book with all that the pages say of it: declaration, judgement, replication, and where it stands.

An entry is what a row of a table shows. Entries are put together from the claims files, the ledgers and the kept
records, once for each build; nothing here judges or writes.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reproduced.claims import measurements
from reproduced.claims.declarations import DID_NOT_HOLD, HELD, IN_PART, NOT_RUN, UNDECIDED, Claim
from reproduced.claims.texts import NOT_JUDGED
from reproduced.pages import contents
from reproduced.pages.chips import chip_anchor, row_anchor
from reproduced.run import replications
from reproduced.run.book import Book, read_mapping
from reproduced.run.replications import Replication

ORDER = (DID_NOT_HOLD, IN_PART, UNDECIDED, HELD, NOT_RUN, NOT_JUDGED)  # of verdicts: what needs reading comes first


@dataclass(frozen=True)
class Place:
    """The chapter of a claim: the stem of its page, its title and its number in the book, "" if it has none."""

    name: str
    title: str
    number: str = ""

    @property
    def label(self) -> str:
        return f"{self.number} · {self.title}" if self.number else self.title


@dataclass(frozen=True)
class Entry:
    """One claim.

    Attributes:
        place: the chapter.
        claim: as declared.
        record: its entry in the chapter's ledger.
        again: what its replications say, None without one.
        page: the address of its chip in the chapter, or of the chapter where it has none.
        declared: the address of its lines in the claims file, "" if the book has no public repository.
        judged: the same for the line that judges it.
        full: its entry in the record of a full-scale run, None without one.
    """

    place: Place
    claim: Claim
    record: Mapping[str, Any]
    again: Replication | None = None
    page: str = ""
    declared: str = ""
    judged: str = ""
    full: Mapping[str, Any] | None = None

    @property
    def verdict(self) -> str:
        return self.record["verdict"]

    @property
    def row(self) -> str:
        """The anchor of its row."""
        return row_anchor(self.claim.id)

    @property
    def values(self) -> dict[str, measurements.Measurement]:
        """What was measured, by name; empty if nothing was."""
        values = self.record.get("values") or ()
        return {one["name"]: measurements.from_json(one["measured"]) for one in values}


def gather(book: Book, ledgers: Mapping[str, Mapping[str, Any]]) -> list[Entry]:
    """The entries of all chapters that have a ledger, what needs reading first, otherwise in the book's order."""
    kept, chapters = replications.read(book), places(book)
    found = [
        entry for name, ledger in ledgers.items() for entry in _of_chapter(book, chapters[name], ledger, kept[name])
    ]
    return sorted(found, key=lambda entry: ORDER.index(entry.verdict))


def places(book: Book) -> dict[str, Place]:
    """The chapters by name."""
    numbers = {chapter["name"]: chapter["number"] for chapter in contents.planned_chapters(book)}
    return {name: Place(name, book.declarations(name).title, numbers.get(name, "")) for name in book.chapters}


def _of_chapter(
    book: Book, place: Place, ledger: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]
) -> Iterator[Entry]:
    records = {record["id"]: record for record in ledger["claims"]}
    full = {record["id"]: record for record in contents.record(book, place.name).get("claims", ())}
    staged = "".join(p.read_text("utf-8") for p in [book.staged / f"{place.name}.ipynb"] if p.is_file())
    chips = {*re.findall(r"\{claim\} ([\w.]+)", staged)}
    sources = _Sources(book, place.name)
    for claim in book.declarations(place.name).claims:
        if claim.id not in records:
            continue
        yield Entry(
            place,
            claim,
            records[claim.id],
            replications.replication(runs, claim),
            f"{place.name}.html" + f"#{chip_anchor(claim.id)}" * (claim.id in chips),
            sources.declared(claim.id),
            sources.judged(claim.id),
            full.get(claim.id),
        )


class _Sources:
    """Where in the repository a chapter's claims are declared and judged, as public addresses with a line."""

    def __init__(self, book: Book, chapter: str) -> None:
        given = read_mapping(book.root / "_config.yml").get("repository") or {}
        self._root = f"{given['url']}/blob/{given.get('branch', 'main')}/book" if given.get("url") else ""
        self._texts = {
            f"claims/{chapter}.yml": (book.folder / "claims" / f"{chapter}.yml").read_text("utf-8").splitlines(),
            f"{chapter}.md": book.source(chapter).read_text("utf-8").splitlines(),
        }
        self._claims, self._page = self._texts

    def declared(self, name: str) -> str:
        return self._line(self._claims, rf'\bid: "?{re.escape(name)}"?\s*(?:,|$)')

    def judged(self, name: str) -> str:
        return self._line(self._page, rf"""["']{re.escape(name)}["']""")

    def _line(self, path: str, pattern: str) -> str:
        number = next((n for n, line in enumerate(self._texts[path], start=1) if re.search(pattern, line)), None)
        return f"{self._root}/{path}?plain=1#L{number}" if self._root and number else ""
