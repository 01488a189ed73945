"""Which claims were not run for want of data, told in one sentence with the command that gets it.

A data set is lacking if it is absent or damaged now; a set that is here and good explains no verdict. Nothing here
fetches or changes a file.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from leakage.data.registry import COMMAND
from reproduced.claims.declarations import NOT_RUN
from reproduced.run.book import Book


def sentence(book: Book, ledgers: Mapping[str, Mapping[str, Any]]) -> str:
    """How many claims of the ledgers lack which data sets, what is damaged, and what to do; "" if none lacks any.

    A claim that lacks two sets counts once among the claims and once for each set.
    """
    needs = [claim for name, ledger in ledgers.items() for claim in _unmet(book, name, ledger)]
    lacking = {
        name: lack for name in sorted({n for claim in needs for n in claim}) if (lack := _lack(name)) is not None
    }
    unmet = [claim for claim in needs if any(name in lacking for name in claim)]
    if not unmet:
        return ""
    sets = Counter(name for claim in unmet for name in claim if name in lacking)
    listed = ", ".join(
        f"{name} {number}" for name, number in sorted(sets.items(), key=lambda item: (-item[1], item[0]))
    )
    absent = [name for name, files in lacking.items() if not files]
    these = ", ".join(absent) if len(absent) < len(lacking) else "these sets" if len(absent) > 1 else "this set"
    cures = [f"`make data` fetches {these}"] * bool(absent)
    damaged = [(name, files) for name, files in lacking.items() if files]
    cures += [f"{name} is damaged ({files}): move it away and run `{COMMAND} {name}`" for name, files in damaged]
    return f"Not run for want of data: {len(unmet)} claim{'s' * (len(unmet) > 1)} ({listed}); {'; '.join(cures)}."


def _unmet(book: Book, chapter: str, ledger: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """What each claim needs that was not run although the profile is large enough for it."""
    declared = book.declarations(chapter).by_id
    not_run = [declared[entry["id"]] for entry in ledger["claims"] if entry["verdict"] == NOT_RUN]
    return [claim.needs for claim in not_run if claim.needs and claim.is_judgeable(ledger["profile"])]


def _lack(name: str) -> str | None:
    """The damaged files of a data set that cannot be read, "" if it is absent rather, `None` if it can be read."""
    from leakage.data import fetch  # only where a claim was not run

    if fetch.available(name):
        return None
    return ", ".join(file.file.path for file in fetch.status(name) if file.state == "damaged")
