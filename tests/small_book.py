"""A book in miniature: a repository with its own tiny `leakage` and chapters of three cells, and judgements of one.

Its package has no claims module: chapters show their records themselves, so that no kernel has to load PyTorch.
"""

import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import nbformat
import yaml

import chapter_rules
from leakage import command_line
from reproduced.claims import measurements
from reproduced.claims.declarations import Claim
from reproduced.claims.rules import Rule
from reproduced.pages.findings import Chapter, ChapterFindings, Judgement
from reproduced.run import executor

LEAKAGE = (sys.executable, "-P", "-c", "import sys; from leakage.command_line import main; sys.exit(main())")
"""The command `leakage`, in a process of its own."""
HEADER = f"---\n{chapter_rules.HEADER}---\n"
PARAMETERS = 'profile = "ci"\nseed = 0\ndevice = "auto"'
INTRO = """\
# A small book

```{include} _generated/scoreboard.md
```

```{include} _generated/status.md
```

{download}`claims <_generated/claims.json>`
"""
CONFIG = """\
title: A small book
only_build_toc_files: true
exclude_patterns: [_generated, lib, claims, records]
execute: {execute_notebooks: "off"}
parse: {myst_enable_extensions: [colon_fence, dollarmath]}
sphinx:
  extra_extensions: [reproduced.pages.sphinx_extension]
  config: {nb_render_markdown_format: myst, suppress_warnings: [myst.header]}
"""


def cell(source: str, tags: str = "") -> str:
    """A code cell of a MyST notebook."""
    options = f":tags: [{tags}]\n\n" if tags else ""
    return f"```{{code-cell}}\n{options}{source.strip()}\n```\n"


RULE = "held if x.high < 2; refuted if x.low > 2"


def claim_cell(name: str, verdict: str = "held", reason: str = "") -> str:
    """Source of a cell that records a claim the way `reproduced.claims` does."""
    measured = {"kind": "estimate", "estimate": 1.0, "low": 0.9, "high": 1.1, "n": 5, "level": 0.95}
    record = {"id": name, "verdict": verdict, "values": [{"name": "x", "measured": measured}]}
    record |= {"rule": RULE, "reason": reason, "seconds": 0.1, "profile": "ci", "seed": 0, "device": "cpu"}
    record |= {"rule_digest": "0123456789ab"}
    return f"IPython.display.display({{'text/plain': ''}}, raw=True, metadata={{'claim': {record!r}}})"


def chapter_text(name: str, *cells: str, module: str = "numbers") -> str:
    """A chapter that imports `module` of the small package, leaves a trace of having run, and then runs `cells`."""
    first = f"import os, sys, time, IPython\nfrom leakage import {module}"
    trace = f'print("{name}", file=open("executions.txt", "a"))'
    sources = [trace, *cells, claim_cell(f"{name}.a")]
    blocks = [cell(first), cell(PARAMETERS, "parameters"), *map(cell, sources)]
    return f"{HEADER}\n(ch-{name})=\n# Chapter {name}\n\n" + "\nWords.\n\n".join(blocks)


def claims_text(name: str, expected: str = "held") -> str:
    """Declarations of one claim, `<name>.a`."""
    head = f"chapter: {name}\nprefix: {name}\ntitle: Chapter {name}\npaper: key\n"
    fields = claim_entry(f"{name}.a", paper="1.05", expected=expected)
    lines = [f"{field}: {json.dumps(value)}" for field, value in fields.items()]
    return f"{head}claims:\n  - " + "\n    ".join(lines) + "\n"


def add_chapter(root: Path, name: str, *cells: str, module: str = "numbers", expected: str = "held") -> None:
    """Write a chapter with its claims into the book."""
    (root / "book" / f"{name}.md").write_text(chapter_text(name, *cells, module=module), "utf-8")
    (root / "book" / "claims" / f"{name}.yml").write_text(claims_text(name, expected), "utf-8")


def make_repository(root: Path, *chapters: str) -> Path:
    """A repository whose table of contents lists `chapters`; none of them is written yet."""
    for folder in ("book/claims", "book/records", "lib/leakage"):
        (root / folder).mkdir(parents=True)
    listed = "".join(f"  - file: {name}\n" for name in chapters)
    texts = {
        "_toc.yml": f"format: jb-book\nroot: intro\nchapters:\n{listed}",
        "_config.yml": CONFIG,
        "book/intro.md": INTRO,
        "lib/leakage/__init__.py": '"""A small package."""\n',
        "lib/leakage/numbers.py": "VALUE = 3\n",
        "lib/leakage/letters.py": "from leakage.alphabet import LETTERS\n",
        "lib/leakage/alphabet.py": 'LETTERS = "abc"\n',
    }
    for path, text in texts.items():
        (root / path).write_text(text, "utf-8")
    return root


def without_chapters(root: Path) -> Path:
    """The repository with nothing to execute."""
    for path in (root / "book/claims").glob("*.yml"):
        path.unlink()
    return root


def copy_of(root: Path, target: Path) -> Path:
    """The repository with everything built in it, elsewhere."""
    return Path(shutil.copytree(root, target))


def leakage(root: Path, *arguments: str) -> int:
    """Run a command of the command line on the repository; the exit status."""
    command, *rest = arguments
    return command_line.main([command, "--root", str(root), *rest])


def run(root: Path, arguments: list[str], capsys) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of a command on the repository."""
    status = leakage(root, *arguments)
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def build(root: Path, *arguments: str, render: bool = False) -> int:
    """Run `leakage build`, without the site unless asked for; the exit status."""
    return leakage(root, "build", *arguments, *([] if render else ["--no-render"]))


def executions(root: Path) -> list[str]:
    """Names of the chapters that were executed, in the order in which they began."""
    path = root / "executions.txt"
    return path.read_text("utf-8").split() if path.is_file() else []


def read_findings(root: Path, name: str) -> dict:
    """What the last execution of a chapter found."""
    return json.loads((root / "_build" / "claims" / f"{name}.json").read_text("utf-8"))


def staged(root: Path, page: str) -> str:
    """A page of the staged tree."""
    return (root / "_build" / "site-src" / page).read_text("utf-8")


def snapshot(root: Path) -> dict[str, bytes]:
    """Every file below a folder, with its content."""
    return {os.path.relpath(path, root): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def edit(path: Path, old: str, new: str) -> None:
    """Replace text that must be there."""
    text = path.read_text("utf-8")
    assert re.search(re.escape(old), text), f"{path} has no {old!r}"
    path.write_text(text.replace(old, new), "utf-8")


# ── chapters without a kernel ─────────────────────────────────────────────────────────────────────────────────────────

# Read without `ast`: chapters run in threads, of which two may not parse at once before Python 3.11.8 (gh-106905).
SHOWN = re.compile(r"metadata=(\{.*\})\)$", re.MULTILINE)


def without_kernels(monkeypatch, meanwhile: Callable[[Path], None] = lambda root: None, fails: str = "") -> None:
    """Let chapters end at once, with the records of their claims; `meanwhile` happens while they run, one may fail."""

    def run_process(plan, processes, pipe):
        meanwhile(plan.book.root)
        with (plan.book.root / "executions.txt").open("a") as file:
            print(plan.chapter, file=file)
        notebook = nbformat.from_dict(plan.notebook)
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.metadata["papermill"] = {"duration": 0.5}
                for shown in SHOWN.findall(cell.source):
                    metadata = eval(shown, {})
                    cell.outputs = [nbformat.v4.new_output("display_data", {"text/plain": ""}, metadata=metadata)]
        for path in (plan.working_notebook, plan.log):
            path.parent.mkdir(parents=True, exist_ok=True)
        plan.working_notebook.write_text(nbformat.writes(notebook), "utf-8")
        plan.log.write_text(f"Executing Cell {len(notebook.cells)}---\nValueError: broken\n", "utf-8")
        return int(plan.chapter == fails)

    monkeypatch.setattr(executor, "_run_process", run_process)


# ── a claims file, as the values in it ────────────────────────────────────────────────────────────────────────────────

HEAD = {"chapter": "toy", "prefix": "t", "title": "A toy", "paper": "toy2020"}


def claim_entry(name: str, **fields) -> dict:
    entry = {"id": name, "kind": "figure", "claim": "That $|x| < 2$.", "where": "Figure 1", "expected": "held"}
    rules = {"values": {"x": "what is measured"}, "holds": "x.high < 2", "refuted": "x.low > 2", "why": "Seen."}
    return entry | rules | fields


def declaration(**changes) -> dict:
    ours = claim_entry("t.beyond.more", kind="ours", expected="did not hold")
    del ours["where"]
    listed = [
        claim_entry("t.one", paper=0.60),
        claim_entry("t.two", expected="held in part", in_part="x.low < 2", why="Up to {x}."),
        claim_entry("t.data", needs=["mnist"]),
        ours,
    ]
    return {**HEAD, "data": ["mnist"], "claims": listed} | changes


def save_claims(folder: Path, content: dict | str) -> Path:
    """Write a claims file, given as its values or as its text, and return its path."""
    folder.mkdir(exist_ok=True)
    path = folder / "toy.yml"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content, allow_unicode=True), "utf-8")
    return path


# ── judgements of a toy chapter ───────────────────────────────────────────────────────────────────────────────────────

TOY = Chapter("toy", "A toy", "3", "Is it?", "It is.", "P", "A", "2020", "toy2020")
X = {"kind": "estimate", "estimate": 1.0, "low": 0.9, "high": 1.1, "n": 5, "level": 0.95}
RUN = {"commit": "a" * 40, "dirty": False, "profile": "ci", "seed": 0, "device": "cpu", "device_name": "CPU, 2 cores"}
RUN |= {"versions": {"python": "3.11.7"}, "processor": "x86_64 AVX2", "seconds": 75.0}
RUN |= {"date": "2026-01-02T03:04:05+00:00"}


def claim(name: str = "t.one", **fields) -> Claim:
    """A claim about one value, x."""
    words = {"kind": "figure", "claim": "That $|x| < 2$.", "expected": "held", "where": "Figure 1"}
    rules = {"holds": Rule("x.high < 2"), "refuted": Rule("x.low > 2")}
    return Claim.model_construct(id=name, **{"values": {"x": "what *is* measured"}} | words | rules | fields)


def judgement(name: str = "t.one", verdict: str = "held", reason: str = "", *, fields=None, values=None, **more):
    """A judgement of a claim with these `fields`, of these `values` as JSON has them."""
    declared = claim(name, **{"expected": verdict} | (fields or {}))
    measured = {name: measurements.from_json(value) for name, value in (values or {"x": X}).items()}
    return Judgement(TOY, declared, verdict, reason, measured, **{"rule": "r", "seconds": 0.1} | more)


def findings(*judgements: Judgement, **run) -> ChapterFindings:
    """What the toy chapter found."""
    return ChapterFindings(TOY, RUN | run, judgements)


def heed_interrupts():
    """Undo what a shell does to the commands that it starts in the background: they ignore Ctrl-C, and so does all
    that they start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
