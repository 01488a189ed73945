"""The kept replications: what each claim's rules said at seeds that nobody chose.

`book/records/replication.jsonl` has one run, a chapter at a seed, on each line: the commit whose hash gave the seed and
its index in that draw, where and on which data it ran, a digest of the chapter's code, and for each claim the verdict,
every measured value, the margins of the rules and a digest of the declaration. Lines are only ever added. A run under
an earlier declaration stays, and is counted apart; so is a run of older code of the chapter, once there are ten of
today's. Until then pages say how many of the runs are older than the code.

The oldest runs lack the fields that were not kept then, and some judged only the claims whose rule had changed. In
older lines several values of one kind are one object with a list for each of their numbers, and the verdict that was
expected when they ran is in `expected_verdicts.json` beside them, by claim and digest of the declaration.
"""

import ast
import hashlib
import json
import math
import statistics
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from nbformat import NotebookNode

from reproduced.claims.declarations import DECIDING_RULE, DIGEST_DIGITS, Claim
from reproduced.claims.measurements import ROUNDING
from reproduced.claims.texts import verdict_words
from reproduced.run.book import Book, UserError

ENOUGH = 10  # runs of a claim's declaration and code of today: then older ones are counted apart
_ROUNDING_ALONE = 1000.0  # standard deviations: so far from its threshold is only what is exact but for rounding
_PARAMETERS = {"parameters", "injected-parameters"}  # tags of the cells that set profile, seed and device


@dataclass(frozen=True)
class Replication:
    """How often a claim was judged at drawn seeds, and with which verdicts."""

    expected: str  # the verdict that is declared
    verdicts: Counter[str]  # how many runs gave which verdict under today's declaration
    earlier: Counter[str]  # the same of earlier runs: under other declarations, or by code that newer runs replace
    # How far the rule that gives the expected verdict was from its threshold in each run under today's declaration, in
    # standard deviations over these runs; empty for fewer than two, and for an exact claim.
    distances: tuple[float, ...] = ()
    older_code: int = 0  # runs under today's declaration that executed other code of the chapter than today's
    earlier_flips: int = 0  # earlier runs that gave another verdict than was expected then
    is_steady: bool = False  # whether the margins are equal in all runs, so that the verdicts could not differ
    kind: str = ""  # that of the claim

    @property
    def as_expected(self) -> int:
        """How many runs under today's declaration gave the expected verdict."""
        return self.verdicts[self.expected]

    @property
    def brief(self) -> str:
        """Expected verdicts among the runs that count, and the rest: `9 of 10; 40 earlier, by other rules or code`."""
        found = f"{self.as_expected} of {self.verdicts.total()}"
        now = found if self.verdicts else "not yet repeated with today's rule"
        return now + f"; {self.earlier.total()} earlier, by other rules or code" * bool(self.earlier)

    @property
    def sentence(self) -> str:
        """All verdicts: `Runs under today's declaration: 10 held. Earlier runs: 37 held.`"""
        now = f"Runs under today's declaration: {_list_counts(self.verdicts, self.kind)}." if self.verdicts else ""
        since = f"The chapter's code has changed since {self.older_code} of them." if self.older_code else ""
        earlier = f"Earlier runs: {_list_counts(self.earlier, self.kind)}." if self.earlier else ""
        return " ".join(filter(None, (now, since, earlier)))

    @property
    def distances_text(self) -> str:
        """`At 10 seeds 1.5 to 4.2 standard deviations from the threshold.`; "" where nothing varies but by rounding."""
        finite = [one for one in self.distances if math.isfinite(one)]
        if not finite or min(finite) >= _ROUNDING_ALONE:
            return ""
        most = f"{max(finite):.1f}" if max(finite) < _ROUNDING_ALONE else "more than 1,000"
        return f"At {len(finite)} seeds {min(finite):.1f} to {most} standard deviations from the threshold."


def _list_counts(counts: Counter[str], kind: str) -> str:
    return ", ".join(f"{number} {verdict_words(verdict, kind)}" for verdict, number in counts.most_common())


def file_path(book: Book) -> Path:
    """Where the replications are kept."""
    return book.folder / "records" / "replication.jsonl"


def draw_seeds(commit: str, number: int) -> list[int]:
    """The first seeds of a commit, each in 0 … 2³¹ − 1."""
    return [int(word) >> 1 for word in np.random.SeedSequence(int(commit, 16)).generate_state(number)]


def cells_digest(notebook: NotebookNode) -> str:
    """A digest of the source of a chapter's code cells, in their order.

    Prose, outputs and the cells of the parameters do not count, so it is the same before and after an execution and
    for every seed. Nor do imports, so that a module may move: what a name means, the code says that uses it.
    """
    cells = (cell for cell in notebook.cells if cell.cell_type == "code")
    code = [_without_imports(cell.source) for cell in cells if _PARAMETERS.isdisjoint(cell.metadata.get("tags", ()))]
    return hashlib.sha256(repr([*filter(None, code)]).encode()).hexdigest()[:DIGEST_DIGITS]


def _without_imports(source: str) -> str:
    """The lines of a cell that belong to no import at its outermost level."""
    lines = source.splitlines()
    try:
        statements = ast.parse(source).body
    except SyntaxError:  # a command of IPython
        return source
    for statement in reversed(statements):
        if isinstance(statement, ast.Import | ast.ImportFrom):
            del lines[statement.lineno - 1 : statement.end_lineno]
    return "\n".join(lines).strip()


def append(book: Book, run: Mapping[str, Any]) -> None:
    """Add a run to the end of the file; other replications may do so at the same time."""
    path = file_path(book)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab", buffering=0) as file:  # one call to the system, so a line is whole
        file.write(f"{json.dumps(run, allow_nan=False)}\n".encode())


def read(book: Book) -> dict[str, list[dict[str, Any]]]:
    """The kept runs of each chapter; a `UserError` if the file is not what `leakage replicate` writes."""
    path = file_path(book)
    found: dict[str, list[dict[str, Any]]] = {chapter: [] for chapter in book.chapters}
    lines = path.read_bytes().splitlines() if path.is_file() else []
    beside = path.with_name("expected_verdicts.json")
    try:
        expected = json.loads(beside.read_bytes())["expected"] if beside.is_file() else {}
        for run in map(json.loads, lines):
            found.setdefault(run["chapter"], []).append(run)
            for id, one in run["claims"].items():
                one.setdefault("expected", expected.get(id, {}).get(one["rule"]))
        for chapter in book.chapters:
            for claim in book.declarations(chapter).claims:
                replication(found[chapter], claim, cells="")
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise UserError(f"{path.name} is not what `leakage replicate` writes; delete it, or get it back.") from error
    return found


def of_today(runs: Sequence[Mapping[str, Any]], claim: Claim, *, cells: str) -> list[Mapping[str, Any]]:
    """Those runs of a chapter that judged the claim as it is declared now, by code with the digest `cells`."""
    return [run for run in _under_todays_declaration(runs, claim) if run.get("cells") == cells]


def _under_todays_declaration(runs: Sequence[Mapping[str, Any]], claim: Claim) -> list[Mapping[str, Any]]:
    today = claim.rule_digest
    return [run for run in _runs_that_judged(runs, claim) if run["claims"][claim.id]["rule"] == today]


def _runs_that_judged(runs: Sequence[Mapping[str, Any]], claim: Claim) -> list[Mapping[str, Any]]:
    return [run for run in runs if claim.id in run["claims"]]


def replication(runs: Sequence[Mapping[str, Any]], claim: Claim, *, cells: str) -> Replication | None:
    """What the runs of a chapter, whose cells have the digest `cells` today, say of a claim; None if none judged it.

    Under today's declaration the runs of today's code count, and those of older code until there are `ENOUGH` others.
    """
    judging, current = _runs_that_judged(runs, claim), of_today(runs, claim, cells=cells)
    if len(current) < ENOUGH:
        current = _under_todays_declaration(runs, claim)
    if not judging:
        return None
    now = [run["claims"][claim.id] for run in current]
    verdicts = Counter(one["verdict"] for one in now)
    earlier = Counter(run["claims"][claim.id]["verdict"] for run in judging) - verdicts
    older_code = sum(run.get("cells") != cells for run in current)
    flips = sum(map(_is_flip, (run["claims"][claim.id] for run in judging if run not in current)))
    is_steady = len(now) > 1 and _is_steady(now)
    return Replication(
        claim.expected, verdicts, earlier, _distances(now, claim), older_code, flips, is_steady, claim.kind
    )


def count_withdrawn(runs: Sequence[Mapping[str, Any]], declared: Collection[str]) -> tuple[int, int]:
    """How many verdicts a chapter's runs gave on claims declared no more, and how many were not expected then."""
    found = [one for run in runs for id, one in run["claims"].items() if id not in declared]
    return len(found), sum(map(_is_flip, found))


def flips(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Every verdict that was not expected when it was given, with claim, seed, commit and what was expected."""
    found = [
        {"id": id, "seed": run["seed"], "commit": run["commit"][:8], **one}
        for of_chapter in runs.values()
        for run in of_chapter
        for id, one in run["claims"].items()
        if _is_flip(one)
    ]
    return sorted(found, key=lambda one: one["id"])


def _is_flip(judged: Mapping[str, Any]) -> bool:
    return judged.get("expected") not in (None, judged["verdict"])


def _is_steady(judged: Sequence[Mapping[str, Any]]) -> bool:
    rows = [[float(margin) for word in sorted(one["margins"]) for margin in one["margins"][word]] for one in judged]
    return all(map(_same, zip(*rows, strict=True)))


def _same(margins: Sequence[float]) -> bool:
    """Whether numbers differ by rounding alone."""
    return all(math.isclose(margin, margins[0], rel_tol=ROUNDING, abs_tol=ROUNDING**2) for margin in margins)


def _distances(found: Sequence[Mapping[str, Any]], claim: Claim) -> tuple[float, ...]:
    """For each run the distance of the deciding rule, with each margin in units of its standard deviation."""
    word = DECIDING_RULE.get(claim.expected, "")
    margins = [[float(margin) for margin in one["margins"][word]] for one in found if word in one["margins"]]
    if len(margins) < 2 or claim.exact:  # of an exact claim only rounding varies
        return ()
    deviations = [_deviation(column) for column in zip(*margins, strict=True)]
    return tuple(claim.rules[word].distance([*map(_divide, row, deviations)]) for row in margins)


def _deviation(margins: Sequence[float]) -> float:
    return statistics.stdev(margins) if all(map(math.isfinite, margins)) and not _same(margins) else 0.0


def _divide(margin: float, deviation: float) -> float:
    return margin / deviation if deviation else math.copysign(math.inf, margin)
