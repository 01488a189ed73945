"""The glossary's links: each term names the chapters that use it, and a page's first link to it says what it means."""

from reproduced.pages import glossary

SOURCE = """# Glossary

:::{glossary}
TPR
true positive rate
  The share.
  An example.

idle
  Not used.
:::

Words.
"""


def test_a_term_leads_to_the_chapters_that_use_it_by_any_of_its_names():
    chapters = {"one": "The {term}`TPR` of it.", "two": "{term}`Rates <True positive\nrate>`", "three": "TPR"}
    linked = glossary.link_chapters(SOURCE, chapters, {name: name.title() for name in chapters})
    assert "  The share.\n  An example.\n  *Used in* [One](one), [Two](two).\n\nidle\n  Not used.\n:::\n" in linked
    assert linked.replace("  *Used in* [One](one), [Two](two).\n", "") == SOURCE
