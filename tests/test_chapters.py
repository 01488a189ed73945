"""Every chapter keeps the form in book/README.md, and every rule of it catches a chapter that breaks it."""

from pathlib import Path

import pytest

import chapter_rules
from chapter_rules import Chapter, read_chapter, words

ROOT = Path(__file__).parents[1]
BOOK = ROOT / "book"
RULES = chapter_rules.RULES
CHAPTERS = [path for path in sorted(BOOK.glob("*.md")) if (BOOK / "claims" / f"{path.stem}.yml").exists()]


@pytest.fixture(scope="module")
def chapters() -> list[Chapter]:
    """Every chapter, read once for all rules."""
    return [read_chapter(path) for path in CHAPTERS]


# ── the book ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_every_chapter_keeps_the_contract(rule, chapters):
    faults = [f"{chapter.name}: {fault}" for chapter in chapters for fault in rule(chapter)]
    assert not faults, "\n".join(faults)


# ── the rules, on a small chapter ───────────────────────────────────────────────────────────────────────────────────

MINIATURE = f"""\
---
{chapter_rules.HEADER}---

(ch-mini)=
# A small chapter

Is anybody in?

:::{{admonition}} The answer
:class: tip

Somebody is: the mean is {{glue:text}}`mini_mean`.

Claims: `mini.mean`.
:::

#### Set-up

```{{code-cell}}
:tags: [hide-input]

import math

import torch

from reproduced import runtime
from reproduced import figures
from reproduced.claims.ledger import Ledger, glue
from leakage.data import images
from reproduced.papers.min_norm.least_squares import Design
```

```{{code-cell}}
:tags: [parameters]

profile = "ci"
seed = 0
device = "auto"
```

Sizes follow from the profile.

```{{code-cell}}
run = runtime.begin(profile, seed, device)
ledger = Ledger("mini", run)
```

## The game

The attacker sees one number, at a query between 0.1 and 0.9.

## The idea

$$ s = \\tfrac12 $$

```{{code-cell}}
def share(x):
    return x.mean()
```

(sec-mini)=
## The experiments

We draw a sample at $\\gamma = 1.5$ as Theorem 3.2 and Figure 2.1 ask.

### Is the mean small?

```{{code-cell}}
draws = torch.rand(100, generator=run.stream("draws"))
mean = share(draws)
design = Design(n=100, D=300, sigma=1.0)
digits = images.load_mnist()
```

```{{code-cell}}
:tags: [remove-cell]

glue("mini_mean", f"{{mean:.2f}}")
if mean > 0:
    ledger.judge("mini.mean", mean=mean)
```

The curve stays above the line, at {{glue:text}}`mini_mean:.1f`.

```{{code-cell}}
---
mystnb:
  figure:
    caption: The mean is {{glue:text}}`mini_mean`.
    name: fig-mini
tags: [hide-input]
---
figures.show(figures.plt.figure(), alt="A rising line.", stand_in="A flat line")
```

#### A control

It is large.

## What held, what did not, what is undecided

The verdicts follow.

```{{code-cell}}
ledger.verdicts()
```

The story is told by one picture.

```{{code-cell}}
---
mystnb:
  figure:
    caption: The mean again.
    name: fig-mini-story
tags: [hide-input, story]
---
figures.show(figures.plt.figure(), alt="A falling line.")
```

## Your turn

Import what you need.

```{{code-cell}}
import json

print(json.dumps([math.pi]))
```

#### Exercise: is one half of it small?

Halve it.

```{{code-cell}}
halves = [torch.ones(1) * share / 2 for share in range(3)]
```

Yes.

#### Exercise: and with another seed?

Draw it again.

#### Exercise: and at full scale?

It takes an hour.

## Appendix

#### All claims and their rules

The claims are these.

```{{code-cell}}
ledger.declared()
```
"""
DECLARATION = {"data": ["mnist"], "claims": [{"id": "mini.mean", "needs": ["mnist"]}]}


def miniature(old: str = "", new: str = "", **declaration: object) -> Chapter:
    """The small chapter, with the first occurrence of one piece of its text replaced by another."""
    assert old in MINIATURE
    return Chapter("mini", MINIATURE.replace(old, new, 1) if old else MINIATURE, {**DECLARATION, **declaration})


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_small_chapter_keeps_every_rule(rule):
    assert rule(miniature()) == []


BREACHES = [
    ("header_is_the_projects", "  formats: md:myst\n", "", "every chapter's"),
    ("sections_are_the_six", "## The game\n", "## Threat model\n", "Threat model"),
    ("sections_are_the_six", "## The game\n", "", "the sections must be"),
    ("parameters_stand_in_the_second_cell", ":tags: [parameters]\n\n", "", "tagged are []"),
    ("parameters_stand_in_the_second_cell", "seed = 0\n", "seed = 0\nsize = 3\n", "size = 3"),
    ("first_cell_imports", "import torch\n", "import torch\nimport pandas\n", "not pandas"),
    ("prose_stands_between_code_cells", "Sizes follow from the profile.", "", "no sentence stands between"),
    ("the_answer_stands_first", ":::{admonition} The answer", ":::{admonition} In short", "gives the answer"),
    ("the_answer_stands_first", ", story]", "]", "tagged `story`"),
    ("the_answer_names_its_claims", "\nClaims: `mini.mean`.\n", "", "names the claims that carry it"),
    (
        "the_answer_names_its_claims",
        "Claims: `mini.mean`.",
        "Claims: `mini.mean`, `mini.median`.",
        "rests on mini.median",
    ),
    ("the_answer_names_its_claims", "Somebody is", "word " * 80 + "is", "words, at most 80"),
    ("the_answer_names_its_claims", "Somebody is", "Somebody is{glue:text}`mini_mean`" * 4, "hold 5 glued numbers"),
    ("definitions_stand_where_code_is_explained", "mean = share", "class A: ...\nmean = share", "`A` is defined here"),
    ("shown_sources_are_found", "We draw", "```{literalinclude} /Makefile\n:start-at: brook\n```\n", "has no brook"),
    ("results_are_not_typed", "The verdicts follow.", "The advantage is 0.668.", "0.668 is typed"),
    ("every_claim_is_judged", 'judge("mini.mean"', 'judge("mini.median"', "mini.mean is declared and never judged"),
    ("every_claim_is_judged", 'judge("mini.mean"', 'judge("mini.median"', "mini.median is judged and not declared"),
    ("generated_tables_are_shown", "ledger.verdicts()", "ledger", "`ledger.verdicts()` belongs in"),
    ("glue_is_defined_and_used", 'glue("mini_mean"', 'glue("mini_other"', "uses 'mini_mean', which no cell glues"),
    ("figures_are_labelled", "    name: fig-mini\n", "", "without name"),
    ("figures_are_labelled", "    caption: The mean is {glue:text}`mini_mean`.\n", "", "without caption"),
    ("figures_are_labelled", ', alt="A rising line."', "", "needs `alt`"),
    ("figures_are_labelled", '"A rising line."', '""', "needs `alt`"),
    ("absent_data_are_shown_as_absent", ', stand_in="A flat line"', "", "`figures.show` needs `stand_in`"),
    ("hidden_cells_only_report", 'glue("mini_mean"', 'x = mean\nglue("mini_mean"', "with `x = mean`"),
    ("hidden_cells_only_report", 'f"{mean:.2f}"', "str(torch.ones(1))", "uses `torch`"),
    ("experiments_are_called_in_sight", "cell}\ndraws", "cell}\n:tags: [hide-input]\n\ndraws", "Is the mean small?"),
    ("experiments_are_called_in_sight", "mean = share(draws)\n", "mean = share(draws)\n" * 9, "10 lines at most"),
    ("enough_code_is_visible", "if mean > 0", "x = 1\n" * 400 + "if mean > 0", "of the lines of code are visible"),
    ("exercises_stand_alone", "share in range(3)", "one in (mean, share)", "uses mean, share, which neither"),
    ("exercises_stand_alone", "with another seed?", "draw again", "asks no question"),
    ("exercises_stand_alone", "#### Exercise: and at", "#### Beyond: at", "2 exercises"),
    ("data_read_is_declared", "images.load_mnist()", "draws", "`data` declares mnist, which no cell reads"),
    ("data_read_is_declared", "images.load_mnist()", 'datasets.is_available("adult")', "the cells read adult"),
    ("no_cell_names_a_device", "x.mean()", "x.mean().cpu()", "names a device"),
    ("no_cell_names_a_device", "torch.rand(100, ", "torch.rand(100, device=run.device, ", "names a device"),
    ("no_cell_names_a_device", "share(draws)", 'share(draws.to("cuda"))', "names a device"),
]


@pytest.mark.parametrize(("rule", "old", "new", "complaint"), BREACHES)
def test_a_breach_of_the_contract_is_found(rule, old, new, complaint):
    check = next(candidate for candidate in RULES if candidate.__name__ == rule)
    faults = check(miniature(old, new))
    assert any(complaint in fault for fault in faults), faults


def test_every_rule_has_a_breach():
    assert {rule.__name__ for rule in RULES} == {breach[0] for breach in BREACHES}


def test_an_answer_on_an_undecided_claim_says_so():
    check, claims = chapter_rules.the_answer_names_its_claims, [{"id": "mini.mean", "expected": "undecided"}]
    assert "undecided" in check(miniature(claims=claims))[0]
    assert check(miniature("Somebody is", "Whether somebody is in is undecided", claims=claims)) == []


def test_a_needed_data_set_is_declared():
    faults = chapter_rules.data_read_is_declared(miniature(claims=[{"id": "mini.mean", "needs": ["adult"]}]))
    assert faults == ["a claim needs adult, which `data` does not declare"]


def test_a_number_may_be_glued_for_another_page():
    alone = miniature("at {glue:text}`mini_mean:.1f`", "there").text.replace("{glue:text}`mini_mean`", "small")
    visited = Chapter("mini", alone, DECLARATION, ("Our mean: {glue:text}`mini.ipynb::mini_mean:.2f`.",))
    assert chapter_rules.glue_is_defined_and_used(visited) == []
    assert chapter_rules.glue_is_defined_and_used(Chapter("mini", alone, DECLARATION)) != []


# ── reading prose ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_code_formulas_and_options_are_no_prose():
    source = """\
Begin $0.1$ and `0.2` and {glue:text}`x:.3f`, [here](https://example.org/0.4).

:::{admonition} Title 0.6
:class: v0.7

Body 0.8.

```{math}
0.9
```
:::

$$
1.4
$$

% comment 1.6
(label-1.7)=
End."""
    assert chapter_rules.typed_decimals("", words(source)) == ["0.6", "0.8"]


@pytest.mark.parametrize(
    ("sentence", "numbers"),
    [
        ("It reaches 0.67 [0.61, 0.73].", ["0.67", "0.61", "0.73"]),
        ("About 1.5e-3 of them.", ["1.5e-3"]),
        ("A rise of 12.5 %.", ["12.5"]),
        ("Theorem 3.2, Lemmas 4.3 and 4.4, Figure 5(a), Section 2.1, Eq. (2.3) and §4.2.", []),
        ("In arXiv:2202.01243, under CC BY 4.0, with version 2.13.0.", []),
        ("On 20 queries with 100 rows.", []),
    ],
)
def test_typed_decimals_are_told_from_names(sentence, numbers):
    assert chapter_rules.typed_decimals(sentence, sentence) == numbers
