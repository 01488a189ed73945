"""What a chapter reports: that every claim, number, figure and data set is declared, judged, labelled and visible.

Like `chapter_form`, each rule is a function from a chapter to the sentences that say how it breaks the rule, and reads
the source only.
"""

import ast
import re
from collections import Counter

from chapter_language import typed_decimals
from chapter_reading import (
    APPENDIX,
    EXPERIMENTS,
    TITLE,
    VERDICTS,
    Block,
    Chapter,
    called,
    headings,
    literal,
    prose,
    words,
)
from leakage import content_keys
from leakage.data import registry

# What a cell whose code the page does not show may use of the imports: it reports, it computes no result.
REPORTING = frozenset({"Count", "Exact", "Ledger", "Table", "figures", "glue", "math", "table"})
SHOWING = ("figures.show", "figures.frames")

GLUE_ROLE = re.compile(r"\{glue(?::\w+)?\}`([^`]+)`")
GLUE_DIRECTIVE = re.compile(r"^\s*(?:`{3,}|:{3,})\{glue(?::\w+)?\}\s+(\S+)", re.MULTILINE)


def results_are_not_typed(chapter: Chapter) -> list[str]:
    faults = []
    for block in chapter.blocks:
        if block.section not in (TITLE, EXPERIMENTS, VERDICTS):
            continue
        typed = typed_decimals(prose(block.readable), words(block.readable))
        faults += [f"{block}: {number} is typed; a result reaches the text through glue" for number in typed]
    return faults


def every_claim_is_judged(chapter: Chapter) -> list[str]:
    judged, faults = _written_out(chapter, "judge", "the claim's id")
    declared = [claim["id"] for claim in chapter.claims]
    faults += [f"{name} is declared and never judged" for name in declared if not judged[name]]
    faults += [f"{name} is judged and not declared" for name in judged if name not in declared]
    return faults


def generated_tables_are_shown(chapter: Chapter) -> list[str]:
    places = {name: {block.section for block, _ in chapter.calls(name)} for name in ("declared", "verdicts")}
    wanted = {"declared": APPENDIX, "verdicts": VERDICTS}
    return [
        f"`ledger.{name}()` belongs in {wanted[name]!r}; found in {sorted(places[name]) or 'no section'}"
        for name in wanted
        if places[name] != {wanted[name]}
    ]


def glue_is_defined_and_used(chapter: Chapter) -> list[str]:
    defined, faults = _written_out(chapter, "glue", "the name")
    used = {key for block in chapter.blocks for key in _glue_keys(block.readable) if "::" not in key}
    visited = {
        key.split("::")[1].split(":")[0]
        for text in chapter.visitors
        for key in _glue_keys(text)
        if key.split("::")[0].split(".")[0] == chapter.name and "::" in key
    }
    plain = {key.split(":")[0] for key in used}
    faults += [f"the text uses {key!r}, which no cell glues" for key in sorted(plain - defined.keys())]
    faults += [f"a cell glues {key!r}, which no text uses" for key in sorted(defined.keys() - plain - visited)]
    return faults + [f"{key!r} is glued {times} times" for key, times in defined.items() if times > 1]


def figures_are_labelled(chapter: Chapter) -> list[str]:
    faults, names = [], Counter()
    for block in chapter.code:
        calls = [call for call in block.calls if ast.unparse(call.func) in SHOWING]
        figure = block.figure or {}
        # A slider is one piece of HTML with a caption of its own; everything else gets both from the cell.
        captioned = any(keyword.arg == "caption" for call in calls for keyword in call.keywords)
        missing = [part for part in ("name", "caption") if not captioned and not str(figure.get(part) or "").strip()]
        names[figure.get("name")] += bool(figure)
        if calls and missing:
            faults.append(
                f"{block}: it shows a figure without {' and '.join(missing)} (`mystnb: figure:` in the cell's options)"
            )
        if figure and not calls:
            faults.append(f"{block}: it declares a figure and shows none with {' or '.join(SHOWING)}")
        if len(calls) > 1:
            faults.append(f"{block}: one figure to a cell, so that each has its caption")
        faults += [
            f"{block}: `{ast.unparse(call.func)}` needs `alt`, words for who cannot see it"
            for call in calls
            if not _has_alt(call)
        ]
    return faults + [f"the figure name {name!r} is used {times} times" for name, times in names.items() if times > 1]


def absent_data_are_shown_as_absent(chapter: Chapter) -> list[str]:
    """Where all that a part judges needs data, each figure and table names the stand-in, or says "not run" itself."""
    needs = {claim["id"] for claim in chapter.claims if claim.get("needs")}
    part: list[Block] = []
    faults = []
    for block in (*chapter.blocks, Block("markdown", "## The end", "")):
        if block.kind == "code":
            part.append(block)
        elif headings(block.source, 2) or headings(block.source, 3):
            calls = [(one, call) for one in part for call in one.calls]
            judged = {literal(call) for _, call in calls if called(call) == "judge"}
            for one, call in calls if judged and judged <= needs else ():
                given = {keyword.arg for keyword in call.keywords}
                shown = ast.unparse(call.func) in (*SHOWING, "Table")
                if shown and "stand_in" not in given and "not run" not in one.source:
                    faults.append(f"{one}: `{ast.unparse(call.func)}` needs `stand_in`, for where the data are absent")
            part = []
    return faults


def hidden_cells_only_report(chapter: Chapter) -> list[str]:
    imported, faults = {name for _, _, name in chapter.imports}, []
    for block in chapter.code:
        if not block.hidden:
            continue
        nodes = list(ast.walk(block.tree))
        doing = [n for n in nodes if isinstance(n, ast.stmt) and not isinstance(n, ast.Expr | ast.If)]
        used = {n.id for n in nodes if isinstance(n, ast.Name)} & imported - REPORTING
        faults += [
            f"{block}: hidden, with `{ast.unparse(n).splitlines()[0]}`; it may only call and branch" for n in doing
        ]
        faults += [f"{block}: hidden, and uses `{name}`; show what computes a result" for name in sorted(used)]
    return faults


def data_read_is_declared(chapter: Chapter) -> list[str]:
    declared = set(chapter.declaration.get("data") or ())
    code = "\n".join(block.source for block in chapter.code)
    read = {
        file.stem for file in content_keys.module_files(code) if file.parent.name == "data"
    } & registry.DATASETS.keys()
    for name in ("available", "read_payload", "fetch"):
        read |= {literal(call) for _, call in chapter.calls(name)} & registry.DATASETS.keys()
    needed = {name for claim in chapter.claims for name in claim.get("needs") or ()}
    return [
        *(
            f"the cells read {name}; declare it under `data`, so that its checksum counts"
            for name in sorted(read - declared)
        ),
        *(f"`data` declares {name}, which no cell reads through leakage.data" for name in sorted(declared - read)),
        *(f"a claim needs {name}, which `data` does not declare" for name in sorted(needed - declared)),
    ]


def _written_out(chapter: Chapter, function: str, what: str) -> tuple[Counter[str], list[str]]:
    """How often each text is the first argument of a function, and the calls in which it is no text."""
    names = [(block, literal(call)) for block, call in chapter.calls(function)]
    faults = [
        f"{block}: write {what} out in `{function}`, so that a search finds it" for block, name in names if not name
    ]
    return Counter(name for _, name in names if name), faults


def _glue_keys(text: str) -> list[str]:
    return GLUE_ROLE.findall(text) + GLUE_DIRECTIVE.findall(text)


def _has_alt(call: ast.Call) -> bool:
    given = [keyword.value for keyword in call.keywords if keyword.arg in ("alt", "alts")]
    return any(not isinstance(value, ast.Constant) or bool(str(value.value or "").strip()) for value in given)


RULES = (
    results_are_not_typed,
    every_claim_is_judged,
    generated_tables_are_shown,
    glue_is_defined_and_used,
    figures_are_labelled,
    absent_data_are_shown_as_absent,
    hidden_cells_only_report,
    data_read_is_declared,
)
