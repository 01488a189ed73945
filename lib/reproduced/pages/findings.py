"""Findings: what the executed chapters found, claim by claim.

What the `Ledger` of a chapter left in its executed notebook is read once, with its claims file, as `ChapterFindings`,
and handed to every builder of a page. Each of their judgements holds the declared claim, the measurements and whatever
the pages say beside them: what a full-scale run and the runs at other seeds found, and where the claim is declared and
judged. Nothing here executes or writes.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from nbformat import NotebookNode

from reproduced import repository
from reproduced.claims import measurements
from reproduced.claims.declarations import DID_NOT_HOLD, HELD, IN_PART, NOT_RUN, UNDECIDED, Claim, Declarations
from reproduced.claims.ledger import JUDGEMENT_KEY, missing_data_text
from reproduced.claims.measurements import Measurement
from reproduced.claims.texts import EARLIER_RULE, NOT_JUDGED, rule_text, verdict_text, verdict_words
from reproduced.run import replications
from reproduced.run.book import Book, UserError, read_mapping
from reproduced.run.chapter_cache import ABSENT, EXECUTION_KEY, PROVENANCE
from reproduced.run.replications import Replication

# Of verdicts: what needs reading comes first.
READING_ORDER = (DID_NOT_HOLD, IN_PART, UNDECIDED, HELD, NOT_RUN, NOT_JUDGED)


@dataclass(frozen=True)
class Chapter:
    """A chapter: the stem of its page, its title, and what `chapters.yml` says of it, "" for a chapter not in it."""

    name: str
    title: str
    number: str = ""
    question: str = ""
    answer: str = ""
    paper: str = ""
    authors: str = ""
    year: str = ""
    key: str = ""

    @property
    def label(self) -> str:
        return f"{self.number} · {self.title}" if self.number else self.title


@dataclass(frozen=True)
class FullScale:
    """What a kept full-scale run found of a claim; `is_current` if the claim has the same `rule_digest` today."""

    verdict: str
    values: Mapping[str, Measurement]
    is_current: bool = True


@dataclass(frozen=True)
class Judgement:
    """One claim of an executed chapter, with what the runs at other seeds and at full scale found of it."""

    chapter: Chapter
    claim: Claim
    verdict: str  # one of `READING_ORDER`
    reason: str = ""  # why, in words
    values: Mapping[str, Measurement] = field(default_factory=dict)  # what was measured, by name
    rule: str = ""  # as it was executed
    rule_digest: str = ""  # that of the claim when it was executed
    seconds: float | None = None  # since the previous judgement
    has_chip: bool = True  # whether an output of the notebook has it, so that the page of the chapter shows a chip
    replication: Replication | None = None
    full_scale: FullScale | None = None
    # Addresses of the lines in the public repository that declare and judge it, by the words of a link.
    source_links: Mapping[str, str] = field(default_factory=dict)

    @property
    def told(self) -> str:
        """The words of the verdict."""
        return verdict_words(self.verdict, self.claim.kind)

    @property
    def told_at_full_scale(self) -> str:
        """Sign and words of the verdict at full scale, and whether it is that of an earlier rule; "" without one."""
        if self.full_scale is None:
            return ""
        earlier = "" if self.full_scale.is_current else EARLIER_RULE
        return f"{verdict_text(self.full_scale.verdict, self.claim.kind)}{earlier}"

    @property
    def row(self) -> str:
        """The name of its place on the scoreboard."""
        return row_anchor(self.claim.id)

    @property
    def page_link(self) -> str:
        """Where its chip is, or its chapter if it has none."""
        return f"{self.chapter.name}.html" + f"#{chip_anchor(self.claim.id)}" * self.has_chip

    @property
    def is_judged(self) -> bool:
        return self.verdict not in (NOT_RUN, NOT_JUDGED)

    @property
    def is_unexpected(self) -> bool:
        return self.is_judged and self.verdict != self.claim.expected

    @property
    def repeats_full_scale(self) -> bool:
        """Whether the record has the values of this build: it repeats its draws, and confirms nothing."""
        kept = self.full_scale.values if self.full_scale else {}
        same_names = bool(kept) and kept.keys() == self.values.keys()
        return same_names and all(measurements.are_equal(kept[name], self.values[name]) for name in kept)

    @property
    def differs_at_full_scale(self) -> bool:
        return self.is_judged and self.full_scale is not None and self.verdict != self.full_scale.verdict

    @property
    def shows(self) -> str:
        """What stands beside the verdict in few words; "" if what was measured is not what is declared now."""
        return self.claim.summary(self.values) if self._has_todays_values else ""

    @property
    def defence(self) -> str:
        """The paper's side, where a charge stands; "" if what was measured is not what is declared now."""
        return self.claim.argued(self.values) if self._has_todays_values else ""

    @property
    def _has_todays_values(self) -> bool:
        return self.values.keys() == self.claim.values.keys()

    @cached_property
    def as_json(self) -> dict[str, Any]:
        """The judgement as `claims.json` has it."""
        claim = self.claim
        stored = [{"name": name, "measured": measurements.to_json(value)} for name, value in self.values.items()]
        return {
            "values": stored,
            "rule": self.rule,
            "rule_digest": self.rule_digest,
            "seconds": self.seconds,
            "id": claim.id,
            "verdict": self.verdict,
            "reason": self.reason,
            "claim": claim.claim,
            "where": claim.where or None,
            "paper": claim.paper or None,
            "how": rule_text(claim),
            "expected": claim.expected,
            "kind": claim.kind,
            "idle": list(claim.unused_thresholds(self.values)) if self.is_judged and self._has_todays_values else [],
            "shows": self.shows,
            "exact": claim.exact,
        }


@dataclass(frozen=True)
class ChapterFindings:
    """What one chapter found: where its run comes from, a judgement of each declared claim, and what is wrong."""

    chapter: Chapter
    run: Mapping[str, Any]
    judgements: tuple[Judgement, ...]
    faults: tuple[str, ...] = ()
    withdrawn: tuple[int, int] = (0, 0)  # verdicts at other seeds on claims declared no more, and those not expected

    @cached_property
    def as_json(self) -> dict[str, Any]:
        """The findings as `claims.json` and the records have it."""
        return {"chapter": self.chapter.name, **self.run, "claims": [one.as_json for one in self.judgements]}


def slug(text: str) -> str:
    """A claim's id or a verdict as part of an address or a class: `mn.fig2b` → `mn-fig2b`."""
    return re.sub(r"[. ]", "-", text)


def chip_anchor(id: str) -> str:
    """The name of a claim's place on the page of its chapter."""
    return f"claim-{slug(id)}"


def row_anchor(id: str) -> str:
    """The name of a claim's place on the scoreboard."""
    return f"row-{slug(id)}"


def sort_for_reading(findings: Iterable[ChapterFindings]) -> list[Judgement]:
    """All judgements, what needs reading first, otherwise in the order of the book."""
    return sorted(
        (one for found in findings for one in found.judgements), key=lambda one: READING_ORDER.index(one.verdict)
    )


def read_all_findings(book: Book, notebooks: Mapping[str, NotebookNode]) -> dict[str, ChapterFindings]:
    """The findings of the executed notebooks that came to their end, by chapter, with all that the pages say."""
    runs, chapters, found = replications.read(book), read_chapters(book), {}
    for name, notebook in notebooks.items():
        if notebook.metadata[EXECUTION_KEY]["status"] != "ok":
            continue
        own = read_findings(notebook, book.declarations(name))
        full_scale, source_links = read_full_scale(book, name), _source_links(book, name)
        cells = replications.cells_digest(notebook)
        judgements = tuple(
            replace(
                one,
                chapter=chapters[name],
                replication=replications.replication(runs[name], one.claim, cells=cells),
                full_scale=full_scale.get(one.claim.id),
                source_links=source_links.get(one.claim.id, {}),
            )
            for one in own.judgements
        )
        declared = {one.claim.id for one in judgements}
        found[name] = replace(
            own,
            chapter=chapters[name],
            judgements=judgements,
            withdrawn=replications.count_withdrawn(runs[name], declared),
        )
    return found


def read_findings(notebook: NotebookNode, declared: Declarations) -> ChapterFindings:
    """The findings of an executed notebook alone; a claim that it did not judge is "not run", with the reason."""
    chapter, execution = Chapter(declared.chapter, declared.title), notebook.metadata[EXECUTION_KEY]
    outputs = (output for cell in notebook.cells for output in cell.get("outputs", ()))
    judged = [output["metadata"][JUDGEMENT_KEY] for output in outputs if JUDGEMENT_KEY in output.get("metadata", {})]
    by_id = {one["id"]: one for one in reversed(judged)}
    judgements = []
    for claim in declared.claims:
        found = by_id.get(claim.id) or _missing(claim, execution)
        executed = (found.get("rule", ""), found.get("rule_digest", ""), found.get("seconds"))
        told = (found["verdict"], found["reason"], _values(found), *executed)
        judgements.append(Judgement(chapter, claim, *told, has_chip=claim.id in by_id))
    origin = {name: execution[name] for name in (*PROVENANCE, "profile", "seed", "seconds")}
    return ChapterFindings(chapter, origin, tuple(judgements), tuple(_faults(judged, judgements, execution)))


def _values(judged: Mapping[str, Any]) -> dict[str, Measurement]:
    return {one["name"]: measurements.from_json(one["measured"]) for one in judged.get("values") or ()}


def _missing(claim: Claim, execution: Mapping[str, Any]) -> dict[str, Any]:
    if execution["profile"] == "smoke":
        return {"verdict": NOT_JUDGED, "reason": ""}
    return {"verdict": NOT_RUN, "reason": _absence(claim, execution) or "The chapter did not judge it."}


def _absence(claim: Claim, execution: Mapping[str, Any]) -> str:
    """Why the claim could not be judged when the notebook was executed; "" if its data were here."""
    return missing_data_text(claim, lambda name: execution["data"].get(name, ABSENT) == ABSENT)


def _faults(
    judged: Sequence[Mapping[str, Any]], judgements: Sequence[Judgement], execution: Mapping[str, Any]
) -> Iterator[str]:
    """What is wrong with the judgements, a line each that begins with the id of the claim."""
    counts, known = Counter(one["id"] for one in judged), {one.claim.id for one in judgements}
    yield from (f"{name}: judged {times} times" for name, times in counts.items() if times > 1)
    yield from (f"{name}: judged, but not declared" for name in counts if name not in known)
    for one in judgements:
        difference = _difference(one, data_absent=bool(_absence(one.claim, execution)))
        if difference and execution["profile"] != "smoke":
            yield f"{one.claim.id}: {difference}"


def _difference(judgement: Judgement, *, data_absent: bool) -> str:
    """How a judgement differs from the declared one; "" if it does not, or if its data were absent."""
    verdict, expected = judgement.verdict, judgement.claim.expected
    if data_absent:
        wrong = judgement.has_chip and verdict != NOT_RUN
        return f"judged {verdict}, although its data were absent" if wrong else ""
    if verdict == expected:
        return ""
    if not judgement.has_chip:
        return f"expected {expected}, not run: the chapter did not judge it"
    if verdict == NOT_RUN:
        return f"expected {expected}, not run, although its data are here: {judgement.reason}"
    value = next(map(measurements.describe, judgement.values.values()), "")
    return f"expected {expected}, measured {verdict}: {value} against {judgement.rule}"


def read_chapters(book: Book) -> dict[str, Chapter]:
    """The chapters by name: those that `book/chapters.yml` lists, in its order, then the others that make claims."""
    path = book.folder / "chapters.yml"
    try:
        entries = read_mapping(path)["chapters"] if path.is_file() else []
        listed = [Chapter(**{name: " ".join(text.split()) for name, text in entry.items()}) for entry in entries]
    except (LookupError, TypeError, AttributeError) as error:
        raise UserError(f"{path.name} must list chapters, each with fields of one text: {error}.") from error
    found = {chapter.name: chapter for chapter in listed}
    return found | {name: Chapter(name, book.declarations(name).title) for name in book.chapters if name not in found}


def read_full_scale(book: Book, chapter: str) -> dict[str, FullScale]:
    """What the kept full-scale run of a chapter found, by the id of the claim; empty if there is none."""
    path = book.full_scale_file(chapter)
    if not path.is_file():
        return {}
    today = {claim.id: claim.rule_digest for claim in book.declarations(chapter).claims}
    try:
        return {
            one["id"]: FullScale(one["verdict"], _values(one), one["rule_digest"] == today.get(one["id"]))
            for one in json.loads(path.read_text("utf-8"))["claims"]
        }
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{path.name} is not what `leakage record` writes; delete it, or get it back.") from error


def _source_links(book: Book, chapter: str) -> dict[str, dict[str, str]]:
    """Where in the public repository each claim of a chapter is declared and judged, by its id and in words."""
    address = repository.public_address(book.root)
    if not address:
        return {}
    root = f"{address}/blob/main/book"
    claims = (book.folder / "claims" / f"{chapter}.yml").read_text("utf-8").splitlines()
    page = book.source(chapter).read_text("utf-8").splitlines()

    def find(words: str, path: str, lines: Iterable[str], pattern: str) -> dict[str, str]:
        number = next((number for number, line in enumerate(lines, start=1) if re.search(pattern, line)), 0)
        return {words: f"{root}/{path}?plain=1#L{number}"} if number else {}

    return {
        one.id: find("rule as declared", f"claims/{chapter}.yml", claims, rf'\bid: "?{re.escape(one.id)}"?\s*(?:,|$)')
        | find("code that judges it", f"{chapter}.md", page, rf"""["']{re.escape(one.id)}["']""")
        for one in book.declarations(chapter).claims
    }
