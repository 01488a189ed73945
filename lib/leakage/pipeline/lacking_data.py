"""Which claims were not run for want of data, told in one sentence with the command that gets it.

A data set is lacking if it is absent or damaged now; a set that is here and good explains no verdict. Nothing here
fetches or changes a file.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from leakage.declarations import NOT_RUN
from leakage.pipeline.book import Book

GOOD = frozenset({"verified", "pinned", "unverified"})  # states of a file that can be read


def sentence(book: Book, ledgers: Mapping[str, Mapping[str, Any]]) -> str:
    """How many claims of the ledgers lack which data sets, what is damaged, and what to do; "" if none lacks any.

    A claim that lacks two sets counts once among the claims and once for each set.
    """
    needs = [claim for name, ledger in ledgers.items() for claim in _unmet(book, name, ledger)]
    lacking = {name: damage for name in sorted({n for claim in needs for n in claim}) if (damage := _lack(name)) != ""}
    unmet = [claim for claim in needs if any(name in lacking for name in claim)]
    if not unmet:
        return ""
    sets = Counter(name for claim in unmet for name in claim if name in lacking)
    listed = ", ".join(
        f"{name} {number}" for name, number in sorted(sets.items(), key=lambda item: (-item[1], item[0]))
    )
    claims = f"{len(unmet)} claim{'s' * (len(unmet) > 1)} ({listed})"
    damaged = "".join(f"; {name} is damaged: {file}" for name, file in lacking.items() if file)
    these = "these sets" if len(lacking) > 1 else "this set"
    return f"Not run for want of data: {claims}{damaged}; `{_command(tuple(sets))}` fetches {these}."


def _unmet(book: Book, chapter: str, ledger: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """What each claim needs that was not run although the profile is large enough for it."""
    declared = book.declarations(chapter).by_id
    not_run = [declared[entry["id"]] for entry in ledger["claims"] if entry["verdict"] == NOT_RUN]
    return [claim.needs for claim in not_run if claim.needs and claim.judged_in(ledger["profile"])]


def _lack(name: str) -> str | None:
    """The damaged files of a data set that is here, `None` for one that is absent, "" for one that is good."""
    from leakage.data import fetch, registry  # only where a claim was not run

    files = fetch.status(name)
    good = [file for file in files if file.state in GOOD]
    if len(good) == len(files) or (good and registry.DATASETS[name].any_file):
        return ""
    return ", ".join(file.file.path for file in files if file.state == "damaged") or None


def _command(names: tuple[str, ...]) -> str:
    """`make data` has the sets whose checksums the registry knows."""
    from leakage.data import registry

    known = all(file.verified for name in names for file in registry.DATASETS[name].files)
    return "make data" if known else f"leakage data {' '.join(names)}"
