"""What the pages include: every text that a build makes from ledgers, plans and records, by the name of its file."""

from collections.abc import Mapping
from typing import Any

from reproduced.pages import contents, entries, glossary, landing, layers, scoreboard, tables, wrong_papers
from reproduced.run.book import GENERATED, Book
from reproduced.run.data_command import lacking_data


def pages(book: Book, ledgers: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """The generated texts; the chapters must be staged, for rows lead to places in them."""
    claims = entries.gather(book, ledgers)
    titles = {name: book.declarations(name).title for name in book.chapters}
    absent = [title for name, title in titles.items() if name not in ledgers]
    stories = {name: f"{GENERATED}/{layers.STORY}/{name}.png" for name in book.chapters}
    pictures = {name: path for name, path in stories.items() if (book.staged / path).is_file()}
    texts = {
        "scoreboard.md": scoreboard.scoreboard(claims, absent, lacking_data(book, ledgers)),
        "claims.csv": scoreboard.as_csv(claims),
        "wrong_papers.md": wrong_papers.page(claims),
        "tally.md": landing.tally(claims),
        "chapters.md": landing.rows(contents.planned_chapters(book), claims, book.chapters, pictures),
        "last_lines.md": tables.last_lines(ledgers),
        "status.md": tables.status(ledgers),
    }
    page = book.folder / "glossary.md"
    if page.is_file():
        sources = {name: book.source(name).read_text("utf-8") for name in book.chapters}
        labels = {name: place.label for name, place in entries.places(book).items()}
        texts["../glossary.md"] = glossary.with_links(page.read_text("utf-8"), sources, labels)
    return texts
