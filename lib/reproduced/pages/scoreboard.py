"""The scoreboard: every claim of the book as a row of one table, as HTML for a reader and as CSV for a spreadsheet.

A row can be linked to, carries what it can be filtered by as attributes, and folds away its rule and what was measured.
The table stands whole without a script; `_static/tables.js` makes it one that sorts, searches and filters. Everything
here is a function from entries to text.
"""

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence

from reproduced.claims import measurements
from reproduced.claims.declarations import DID_NOT_HOLD, HELD, IN_PART, KINDS, NOT_RUN, UNDECIDED
from reproduced.claims.texts import NOT_JUDGED, SIGNS, escape_text, finding_text, measured_text, verdict_text
from reproduced.pages import inline
from reproduced.pages.chips import EXACT, slug
from reproduced.pages.entries import ORDER, Entry
from reproduced.pages.inline import block, element, escape, link, rendered

_ABSENT = "This chapter did not run to its end for this copy of the book, so no claim of it is judged."
_REASONED = (DID_NOT_HOLD, IN_PART, UNDECIDED, NOT_RUN)  # verdicts whose reason stands in the row itself
_HEADS = {"verdict": "verdict", "chapter": "chapter", "kind": "kind", "claim": "claim", "paper": "the paper"}
_HEADS |= {"ours": "ours", "again": "seeds", "needs": "needs", "full": "at full scale"}
_SHOWN = 2  # values in a row; the others stand in its fold


def scoreboard(entries: Sequence[Entry], absent: Iterable[str] = (), lacking: str = "") -> str:
    """The table of all `entries`, in their order.

    Args:
        entries: of all chapters.
        absent: titles of chapters that have no ledger.
        lacking: the sentence that says which claims were not run for want of data; it stands first.
    """
    first = [f"{escape_text(lacking)}\n"] if lacking else []
    first += [f"{told}\n" for told in (findings(entries), at_other_seeds(entries), at_full_scale(entries)) if told]
    missing = [f"**{escape_text(title)}.** {_ABSENT}\n" for title in absent]
    return "\n".join([*first, *missing, table(entries)] if entries else [*first, *missing])


def findings(entries: Iterable[Entry]) -> str:
    """How our own findings fared, and why that is no score; "" without any."""
    ours = [entry for entry in entries if entry.claim.kind == "ours"]
    held = [entry for entry in ours if entry.verdict == HELD]
    again = [entry.again for entry in held if entry.again and entry.again.verdicts]
    same = sum(one.same == one.verdicts.total() for one in again)
    if not ours:
        return ""
    told = f"**Of {len(ours)} findings of ours {len(held)} held.** That is no score: a paper's claim was there before "
    told += "we measured, while a finding of ours was written down after it was seen, with a rule that it satisfies."
    if again:
        fewest = min(one.verdicts.total() for one in again)
        told += (
            f" What it is worth shows afterwards, in the column *seeds*: {same} of the {len(again)} that were judged "
        )
        told += f"again gave the same verdict at every one of {fewest} or more seeds that nobody chose."
    return told


def at_other_seeds(entries: Iterable[Entry]) -> str:
    """How often today's rules and the rules before them gave the expected verdict at drawn seeds; "" without any."""
    again = [entry.again for entry in entries if entry.again]
    if not again:
        return ""
    same, all_ = sum(one.same for one in again), sum(one.verdicts.total() for one in again)
    told = f"**At seeds that nobody chose, {same:,} of {all_:,} verdicts of today's rules were the expected ones.**"
    if earlier := sum(one.earlier.total() for one in again):
        same = sum(one.earlier[one.expected] for one in again)
        told += (
            f" Rules that have been replaced since gave {earlier:,} more, {same:,} of them the verdict expected today."
        )
    return told


def at_full_scale(entries: Iterable[Entry]) -> str:
    """Which verdicts the records at full scale have that differ, as HTML with links to the rows; "" if none does."""
    both = [entry for entry in entries if entry.full and entry.verdict != NOT_RUN]
    other = [entry for entry in both if _differs(entry)]
    if not other:
        return ""
    named = "; ".join(
        f"{link(escape(one.claim.id), f'scoreboard.html#{one.row}')} {escape(one.full['verdict'])}"
        for one in other
        if one.full
    )
    told = f"At full scale {len(other)} of {len(both)} verdicts on record are others than here"
    return block(element("p", f"{element('strong', told)}: {named}."))


def _differs(entry: Entry) -> bool:
    return entry.full is not None and entry.verdict not in (NOT_RUN, entry.full["verdict"])


def table(entries: Sequence[Entry], name: str = "claims") -> str:
    """A table of claims as a raw block of a page."""
    again, full = any(entry.again for entry in entries), any(entry.full for entry in entries)
    heads = {key: _HEADS[key] for key in _HEADS if (key != "again" or again) and (key != "full" or full)}
    head = "".join(element("th", text, class_=key, scope="col") for key, text in heads.items())
    rows = (_row(entry, heads) for entry in entries)
    return block(element("div", inline.table(head, rows, id=name, class_="claims-table table"), class_="claims-box"))


def _row(entry: Entry, heads: Mapping[str, str]) -> str:
    claim, again = entry.claim, entry.again
    cells = {
        "verdict": (_verdict(entry), str(ORDER.index(entry.verdict))),
        "chapter": (link(escape(entry.place.number or entry.place.title), f"{entry.place.name}.html"), None),
        "kind": (claim.kind, str(KINDS.index(claim.kind))),
        "claim": (_claim(entry), None),
        "paper": (rendered(claim.paper), None),
        "ours": (_ours(entry), None),
        "again": (again.brief if again else "", _share(entry)),
        "needs": (escape(", ".join(claim.needs)), None),
        "full": (_full(entry), None),
    }
    told = "".join(
        element("td", cells[key][0], class_=key, data_label=head, data_order=cells[key][1])
        for key, head in heads.items()
    )
    return element(
        "tr",
        told,
        id=entry.row,
        data_verdict=slug(entry.verdict),
        data_chapter=entry.place.name,
        data_title=entry.place.label,
        data_kind=claim.kind,
        data_needs=",".join(claim.needs) or "nothing",
        data_profile=claim.profile,
    )


def _share(entry: Entry) -> str | None:
    again = entry.again
    return f"{again.same / again.verdicts.total():.3f}" if again and again.verdicts else None


def _verdict(entry: Entry) -> str:
    sign = element("span", SIGNS[entry.verdict], class_=f"verdict-sign {slug(entry.verdict)}")
    unexpected = entry.verdict not in (NOT_RUN, NOT_JUDGED, entry.claim.expected)
    mark = ", " + link(EXACT, f"glossary.html#term-{EXACT}") if entry.claim.exact else ""
    return f"{sign} {entry.verdict}{mark}" + f" <strong>(expected: {entry.claim.expected})</strong>" * unexpected


def _claim(entry: Entry) -> str:
    """What is claimed and where, the reason of a verdict that needs one, and the fold."""
    claim, reason = entry.claim, entry.record["reason"]
    told = [element("p", rendered(claim.claim), class_="claimed")]
    if reason and (entry.verdict in _REASONED or claim.proof):
        told += [element("p", rendered(reason), class_="reason")]
    told += [element("p", f"{rendered(claim.where)} {link(escape(claim.id), entry.page)}".strip(), class_="where")]
    return "".join([*told, _fold(entry)])


def _fold(entry: Entry) -> str:
    """Rules as they are executed, what each value is and was, how far from the threshold, and the ways from here."""
    claim = entry.claim
    rules = "".join(
        element("li", f"{word} if {element('code', escape(rule.text))}") for word, rule in claim.rules.items()
    )
    measured = _measured(entry)
    values = "".join(
        element("li", f"{element('code', name)} {escape(measured.get(name, ''))} – {rendered(what)}")
        for name, what in claim.values.items()
    )
    ways = [link("in the chapter", entry.page), link("this row", f"#{entry.row}")]
    ways += [link(text, address) for text, address in _sources(entry) if address]
    ways += [f"decided in {entry.record['seconds']:.1f} s"] if entry.record["seconds"] is not None else []
    parts = [element("ul", rules, class_="rules"), element("ul", values, class_="values"), strip(entry)]
    parts += [element("p", f"At other seeds. {escape(entry.again.sentence)}", class_="seeds")] if entry.again else []
    parts += [element("p", " · ".join(ways), class_="ways")]
    return element("details", element("summary", "rule, values, code") + "".join(parts))


def _sources(entry: Entry) -> list[tuple[str, str]]:
    return [("rule as declared", entry.declared), ("code that judges it", entry.judged)]


def _measured(entry: Entry) -> dict[str, str]:
    return {name: measurements.describe(value) for name, value in entry.values.items()}


def _ours(entry: Entry) -> str:
    found = _measured(entry)
    names = sorted(found, key=lambda name: name != entry.claim.main_value)
    told = [
        element("span", f"{escape(name.replace('_', ' '))} {element('b', escape(found[name]))}", class_="value")
        for name in names[:_SHOWN]
    ]
    more = len(found) - _SHOWN
    return "<br>".join([*told, *[element("span", f"and {more} more", class_="more")] * (more > 0)])


def _full(entry: Entry) -> str:
    """What was found at full scale; all of it where the verdict is another one, so that the reason is seen."""
    if not entry.full:
        return ""
    found = finding_text(entry.full) if _differs(entry) else measured_text(entry.full, entry.claim.main_value)
    return escape(f"{found} {verdict_text(entry.full['verdict'])}".strip())


def strip(entry: Entry) -> str:
    """A drawing of how far the rule was from its threshold, one dot for each seed; "" where nothing varies."""
    finite = [one for one in entry.again.distances if math.isfinite(one)] if entry.again else []
    if not finite:
        return ""
    least, most = min(0.0, *finite), max(0.0, *finite)
    scale = 180 / (most - least or 1)
    dots = "".join(f'<circle cx="{10 + scale * (one - least):.0f}" cy="8" r="3"/>' for one in finite)
    at = f"{10 - scale * least:.0f}"
    words = f"At {len(finite)} seeds {min(finite):.1f} to {max(finite):.1f} standard deviations from the threshold"
    drawing = element(
        "svg",
        f'<path d="M{at} 0V16"/>{dots}',
        class_="strip",
        viewBox="0 0 200 16",
        width="200",
        height="16",
        role="img",
        aria_label=f"{words}, which is the line.",
    )
    return element("p", f"{drawing} {words}.", class_="seeds")


def as_csv(entries: Iterable[Entry]) -> str:
    """The same rows for a spreadsheet, in the order of the table."""
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    heads = ("id", "chapter", "kind", "verdict", "claim", "where", "paper", "ours", "reason", "rule", "same", "seeds")
    writer.writerow([*heads, "same_earlier", "seeds_earlier", "needs", "profile", "seconds"])
    for entry in entries:
        claim, record, again = entry.claim, entry.record, entry.again
        seeds: list[int | str] = [""] * 4
        if again:
            seeds = [again.same, again.verdicts.total(), again.earlier[claim.expected], again.earlier.total()]
        ours = "; ".join(f"{name}: {text}" for name, text in _measured(entry).items())
        rule = "; ".join(f"{word} if {rule.text}" for word, rule in claim.rules.items())
        writer.writerow(
            [
                *(claim.id, entry.place.name, claim.kind, entry.verdict, claim.claim, claim.where, claim.paper, ours),
                *(record["reason"], rule, *seeds),
                *(" ".join(claim.needs), claim.profile, record["seconds"]),
            ]
        )
    return written.getvalue()


def counted(entries: Iterable[Entry]) -> str:
    """`✓ 99 held, ◐ 43 held in part`: how many of `entries` have which verdict, best first."""
    found = [entry.verdict for entry in entries]
    order = (HELD, IN_PART, DID_NOT_HOLD, UNDECIDED, NOT_RUN, NOT_JUDGED)
    return ", ".join(f"{SIGNS[verdict]} {number} {verdict}" for verdict in order if (number := found.count(verdict)))
