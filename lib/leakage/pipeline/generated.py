"""What the pages include: every text that a build makes from ledgers, plans and records, by the name of its file."""

from collections.abc import Mapping
from typing import Any

from leakage.pipeline import contents, entries, lacking_data, scoreboard, tables
from leakage.pipeline.book import Book


def pages(book: Book, ledgers: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """The generated texts; the chapters must be staged, for rows lead to places in them."""
    claims = entries.gather(book, ledgers)
    absent = [book.declarations(name).title for name in book.chapters if name not in ledgers]
    return {
        "scoreboard.md": scoreboard.scoreboard(claims, absent, lacking_data.sentence(book, ledgers)),
        "claims.csv": scoreboard.as_csv(claims),
        "cards.md": tables.cards(contents.planned_chapters(book), ledgers, book.chapters),
        "status.md": tables.status(ledgers),
        "performance.md": tables.performance(contents.benchmarks(book)),
    }
