"""The pages of the library follow from the tree: nothing is missing, no link is dead."""

import re
from pathlib import Path

import pytest

from reproduced.pages.library_pages import Library

ROOT = Path(__file__).parents[3]
REAL = Library(
    ROOT / "lib", {"one": "from leakage.metrics import roc", "two": "import reproduced.papers.min_norm.ridge"}
)
PAGES = sorted({REAL.page(module) for module in REAL.modules})


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    """The text of each page."""
    return REAL.pages()


def test_every_module_is_on_a_page(pages):
    assert sorted(pages) == PAGES


def test_every_public_name_of_the_library_has_its_entry(pages):
    for module, path in REAL.modules.items():
        entries = re.findall(r"^(?:def|class) ([A-Za-z]\w*)", path.read_text("utf-8"), re.MULTILINE)
        section = pages[REAL.page(module)].partition(f"{{py:module}} {module}\n")[2].partition("\n## ")[0]
        assert re.findall(r"^::::\{py:(?:function|class)\} (\w+)$", section, re.MULTILINE) == entries, module


def test_an_entry_has_signature_source_equation_reference_and_arguments(pages):
    page = pages[REAL.page("leakage.membership.lira")]
    entry = page.partition("::::{py:function} lira_of_logits\n")[2].partition("\n::::\n")[0]
    for part in (
        r"\{source\}`source <lib/leakage/membership/lira\.py#L\d+-L\d+>`",
        r"\n```python\ndef lira_of_logits\(\n    logits: .*\n\) -> .*:\n```\n",
        r"\n\$\$ s\(x\) = .*\$\$\n",
        r"\n.*Source: \w",
        r"\n\*\*Args\*\*\n\n- `\w+`: \S",
        r"\n:::\{fold\} Source\n\n`{6}python\n.*\ndef lira_of_logits\(\n.*\n`{6}\n",
    ):
        assert re.search(part, entry, re.DOTALL), part


@pytest.mark.parametrize("page", PAGES)
def test_every_link_of_a_page_has_a_target(page, pages):
    linked = set(re.findall(r"\{py:\w+\}`[^`<]+ <([^`]+)>`", pages[page]))
    assert linked <= REAL.names.keys()
    for file, line in re.findall(r"\{source\}`[^`<]+ <([^`#]+)(?:#L(\d+)-L\d+)?>`", pages[page]):
        lines = (ROOT / file).read_text("utf-8").splitlines()
        assert not line or re.match(r"\s*(?:def|class|@)", lines[int(line) - 1])
