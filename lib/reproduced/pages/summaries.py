"""The book in numbers: how many claims have which verdict, a row for each chapter, and where the runs come from.

Claims of the papers and findings of this book are counted apart. Everything here is a function from findings to text.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from leakage.data import datasets
from reproduced.claims.declarations import GROUPS, KINDS, NOT_RUN
from reproduced.claims.texts import SIGNS, escape_text, machine_text, provenance, table
from reproduced.pages.claim_tables import full_scale_differences
from reproduced.pages.findings import Chapter, ChapterFindings, Judgement
from reproduced.pages.jinja_environment import fill_template

_PLURALS = {"erratum": "errata", "ours": "ours"}  # of kinds, where it is not an s
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_NOT_EXECUTED = "No chapter was executed for this copy of the book."


def verdict_counts(judgements: Iterable[Judgement]) -> str:
    """`theorems: ✓ 20 held, ◐ 3 held in part; ours: ✓ 2 held`, leaving out kinds and verdicts that no claim has."""
    given = list(judgements)
    kinds = {kind: [one for one in given if one.claim.kind == kind] for kind in KINDS}
    return "; ".join(f"{_PLURALS.get(kind, kind + 's')}: {_count_verdicts(of)}" for kind, of in kinds.items() if of)


def tally(judgements: Sequence[Judgement]) -> str:
    """Verdict counts in three lines: the papers' statements, our findings, errors in the papers' texts."""
    papers, ours, slips = ([one for one in judgements if one.claim.group == group] for group in GROUPS)
    number = len({one.chapter.name for one in papers})
    many = f"{_NUMBERS[number] if number < len(_NUMBERS) else number} paper{'s' * (number > 1)}"
    lines = [
        {"claims": claims, "name": name, "counts": _count_verdicts(claims), "rest": rest}
        for claims, name, rest in (
            (papers, "statement", f" of {many}"),
            (ours, "finding", " of ours"),
            (slips, "error", " in the papers' texts, counted separately"),
        )
        if claims
    ]
    return fill_template("tally.md", lines=lines, not_executed=_NOT_EXECUTED, **full_scale_differences(judgements))


def _count_verdicts(judgements: Iterable[Judgement]) -> str:
    """`✓ 99 held, ◐ 43 held in part`, best first."""
    found = Counter((SIGNS[one.verdict], one.told) for one in judgements)
    best_first = sorted(found, key=lambda told: [*SIGNS.values()].index(told[0]))
    return ", ".join(f"{sign} {found[sign, words]} {words}" for sign, words in best_first)


def chapter_rows(
    chapters: Iterable[Chapter], findings: Mapping[str, ChapterFindings], pictures: Mapping[str, str]
) -> str:
    """A row for each chapter: picture, question, answer and paper."""
    return fill_template("chapters.md", chapters=list(chapters), findings=findings, pictures=pictures)


def status(findings: Mapping[str, ChapterFindings]) -> str:
    """When, where and how long each chapter ran, and with which versions."""
    if not findings:
        return f"{_NOT_EXECUTED}\n"
    heads = ("chapter", "executed", "seconds", "profile", "seed", "device", "commit")
    versions = (found.run["versions"].items() for found in findings.values())
    lines = dict.fromkeys(", ".join(f"{name} {version}" for name, version in one) for one in versions)
    rows = []
    for name, found in findings.items():
        run, date = found.run, found.run["date"].replace("T", " ").replace("+00:00", " UTC")
        commit = f"{(run['commit'] or 'unknown')[:10]}{' with local changes' if run['dirty'] else ''}"
        row = [f"[](/{name})", date, f"{run['seconds']:.0f}", run["profile"], str(run["seed"]), machine_text(run)]
        rows.append([*row, commit])
    return table(heads, rows) + "".join(f"\nVersions: {escape_text(line)}.\n" for line in lines)


def origins(findings: Mapping[str, ChapterFindings]) -> dict[str, str]:
    """The sentence under each page: which run its numbers come from; under "" that of a page without numbers."""
    told = {
        name: f"Executed in {duration(found.run['seconds'])}: {provenance(found.run)}."
        for name, found in findings.items()
    }
    runs = dict.fromkeys(provenance(found.run) for found in findings.values())
    seconds = duration(sum(found.run["seconds"] for found in findings.values()))
    return told | {"": f"Chapters executed in {seconds}: {'; '.join(runs)}." if findings else _NOT_EXECUTED}


def bibtex(citation: Mapping[str, Any], address: str, commit: str | None) -> str:
    """The book as an entry of BibTeX, from the fields of `CITATION.cff`; what is not known is left out."""
    people = citation["authors"]
    fields = {
        "author": " and ".join(
            f"{{{one['name']}}}" if "name" in one else f"{one['family-names']}, {one['given-names']}" for one in people
        ),
        "title": citation["title"],
        "version": citation.get("version"),
        "year": str(citation.get("date-released", ""))[:4],
        "doi": citation.get("doi"),
        "url": address,
        "note": f"Commit {commit[:10]}" if commit else "",
    }
    lines = [f"  {name} = {{{value}}}," for name, value in fields.items() if value]
    return "\n".join(["```bibtex", "@software{privacy_leakage_reproduced,", *lines, "}", "```", ""])


def duration(seconds: float) -> str:
    """A time as a reader says it: `8 s`, `3 min 20 s`, `1 h 5 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def lacking_data(findings: Iterable[ChapterFindings]) -> str:
    """How many claims lack which data sets, what is damaged, and what to do; "" if none lacks any.

    A data set is lacking if it is absent or damaged now. A claim that lacks two sets counts once among the claims and
    once for each set.
    """
    needs = [one.claim.needs for found in findings for one in found.judgements if one.verdict == NOT_RUN]
    lacking = [name for name in sorted({name for claim in needs for name in claim}) if not datasets.is_available(name)]
    counts = Counter(name for claim in needs for name in claim if name in lacking)
    if not counts:
        return ""
    claims = sum(any(name in lacking for name in claim) for claim in needs)
    listed = ", ".join(f"{name} {number}" for name, number in sorted(counts.items(), key=lambda one: (-one[1], one[0])))
    states = {name: [one.file.path for one in datasets.status(name) if one.state == "damaged"] for name in lacking}
    damaged = {name: ", ".join(files) for name, files in states.items() if files}
    absent = [name for name in lacking if name not in damaged]
    these = ", ".join(absent) if damaged else "these sets" if len(absent) > 1 else "this set"
    cures = [f"`make data` fetches {these}"] * bool(absent)
    cures += [
        f"{name} is damaged ({files}): move it away and run `{datasets.FETCH_COMMAND} {name}`"
        for name, files in damaged.items()
    ]
    return f"Not run for want of data: {claims} claim{'s' * (claims > 1)} ({listed}); {'; '.join(cures)}."
