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


def test_the_first_link_to_a_term_says_what_it_means_in_plain_text():
    said = "  The {term}`share <a share>` of *it*, $e^{\\varepsilon}$ at most {cite:p}`x2020`; [how](there).\n"
    meanings = glossary.definitions(SOURCE.replace("  The share.\n", said))
    meant = "The share of it, e^ε at most; how."
    assert meanings == {"tpr": meant, "true-positive-rate": meant, "idle": "Not used."}
    link = '<a class="reference internal" href="../glossary.html#term-TPR"'
    page = f'<p>{link}>one</a> {link}>two</a> <a class="reference internal" href="glossary.html#term-x">three</a></p>'
    told = glossary.add_definitions(page, meanings | {"tpr": 'a "b"'})
    assert told == page.replace(link, f'{link} data-definition="a &quot;b&quot;"', 1)
