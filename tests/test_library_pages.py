"""The pages of the library follow from the tree: nothing is missing, no link is dead."""

import re
from pathlib import Path

import pytest

from reproduced.pages.library_pages import Library
from reproduced.pages.sphinx_extension import source_url

ROOT = Path(__file__).parents[1]
REAL = Library(ROOT / "lib", {"one": "from leakage.metrics import roc", "two": "import leakage.theory.ridge"})
PAGES = sorted({REAL.page(module) for module in REAL.modules})
MODULES = [name for name, path in REAL.modules.items() if path.name != "__init__.py"]

TOOLS = '''\
r"""Tools, made of `stone` and `stone.Flint`.

They cut.
"""

from leakage.stones import stone


def cut(edge: float, *, stone: str = "flint") -> float:
    r"""How deep `edge` goes; see `Axe.swing`, `edge` and `stones`.

    $$ d = \\sqrt{e} $$

    Source: Carver (1990).

    Args:
        edge: $e > 0$, in
            millimetres.
        stone: which one.

    Returns:
        The depth.

    Raises:
        ValueError: if `edge` is blunt.
    """
    return edge


@final
class Axe(Tool):
    """An axe."""

    handle: str
    blade: tuple[
        int, ...
    ] = ()

    def swing(self) -> None:
        """Once, with `cut`."""

    @property
    def weight(self) -> float:
        """In kilograms."""

    def _miss(self) -> None:
        """Not shown."""


def _hidden() -> None:
    """Not shown."""
'''


STONES = '''\
"""Stones, and
what they do. More of `stone`:

```python
'`stone`'
Args:
    none
```

After it: `stone`.
"""
'''


@pytest.fixture
def toy(tmp_path) -> Library:
    """A library of three modules in two packages, an experiment, and chapters that import some of them."""
    files = {
        "leakage/__init__.py": '"""A toy. It has two rooms."""',
        "leakage/tools.py": TOOLS,
        "leakage/stones/__init__.py": STONES,
        "leakage/stones/stone.py": '"""One stone."""\n\nfrom leakage import paper\n\n\nclass Flint:\n    """Hard."""\n',
        "leakage/stones/broken.py": "def (",
        "leakage/paper.py": '"""Paper."""',
        "reproduced/studies/__init__.py": '"""Experiments."""',
        "reproduced/studies/caves.py": '"""Caves, with `tools.cut`."""\n\nfrom reproduced import machines\n',
        "reproduced/machines.py": '"""No page."""\n\nfrom leakage import tools\n',
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    sources = {"carving": "from leakage import tools", "folding": "from leakage.paper import Sheet"}
    return Library(tmp_path, sources | {"digging": "from reproduced.studies import caves"})


def test_a_package_is_a_page_and_what_runs_the_book_has_none(toy):
    assert list(toy.pages()) == ["leakage", "stones", "studies"]
    assert toy.pages()["stones"].startswith("# `stones`\n\n```{py:module} leakage.stones\n```\n\nStones, and\nwhat")


def test_the_contents_are_a_tree_with_the_first_sentence_of_each_page(toy):
    tree = "- [`leakage`](/library/leakage.md): A toy.\n  - [`stones`](/library/stones.md): Stones, and what they do.\n"
    assert tree in toy.contents()
    assert toy.contents().strip().endswith("\n## Experiments\n\n- [`studies`](/library/studies.md): Experiments.")


def test_a_function_shows_signature_equation_source_and_what_it_takes(toy):
    page = toy.pages()["leakage"]
    assert '```python\ndef cut(edge: float, *, stone: str = "flint") -> float:\n```' in page
    assert "\n$$ d = \\sqrt{e} $$\n\nSource: Carver (1990).\n" in page
    assert "**Args**\n\n- `edge`: $e > 0$, in\n  millimetres.\n- `stone`: which one.\n" in page
    assert "**Returns:** The depth.\n" in page
    assert "**Raises**\n\n- `ValueError`: if `edge` is blunt.\n" in page
    assert "{source}`source <lib/leakage/tools.py#L9>`" in page


def test_the_code_of_an_example_stays_as_it_is(toy):
    page = toy.pages()["stones"]
    assert "\n\n```python\n'`stone`'\nArgs:\n    none\n```\n\nAfter it: {py:obj}`stone" in page


def test_a_class_shows_its_fields_and_public_methods(toy):
    page = toy.pages()["leakage"]
    assert "@final\nclass Axe(Tool):\n    handle: str\n    blade: tuple[\n        int, ...\n    ] = ()\n```" in page
    assert ":::{py:method} Axe.swing\n" in page
    assert ":::{py:property} Axe.weight\n" in page
    assert "_miss" not in page
    assert "_hidden" not in page


def test_a_name_in_a_docstring_is_a_link_unless_it_means_something_else(toy):
    page = toy.pages()["leakage"]
    assert "see {py:obj}`Axe.swing <leakage.tools.Axe.swing>`, `edge` and `stones`." in page
    assert "Once, with {py:obj}`cut <leakage.tools.cut>`." in page
    assert "{py:obj}`stone <leakage.stones.stone>` and" not in page, "another room's module needs its room"


def test_modules_and_chapters_lead_to_each_other(toy):
    page, stones, studies = (toy.pages()[name] for name in ("leakage", "stones", "studies"))
    tools = (
        "Imports: {py:mod}`stones.stone <leakage.stones.stone>` · Chapters: {doc}`/carving`, {doc}`/digging` · Source"
    )
    assert tools in page
    paper = "Imports: {py:mod}`paper <leakage.paper>` · Chapters: {doc}`/carving`, {doc}`/digging` · Source"
    assert paper in stones
    assert "Chapters: {doc}`/carving`, {doc}`/folding`, {doc}`/digging` · Source" in page, "paper is behind all"
    assert "\nChapters: {doc}`/digging` · Source: {source}`lib/reproduced/studies/caves.py" in studies
    assert "- [`leakage`](/library/leakage.md): {py:obj}`tools <leakage.tools>`\n" in toy.imports_of("carving")


def test_an_experiment_leads_to_the_library(toy):
    assert "Caves, with {py:obj}`tools.cut <leakage.tools.cut>`." in toy.pages()["studies"]


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


@pytest.mark.parametrize("page", PAGES)
def test_every_link_of_a_page_has_a_target(page, pages):
    linked = set(re.findall(r"\{py:\w+\}`[^`<]+ <([^`]+)>`", pages[page]))
    assert linked <= REAL.names.keys()
    for file, line in re.findall(r"\{source\}`[^`<]+ <([^`#]+)(?:#L(\d+))?>`", pages[page]):
        lines = (ROOT / file).read_text("utf-8").splitlines()
        assert not line or re.match(r"\s*(?:def|class|@)", lines[int(line) - 1])


def test_a_page_of_the_library_is_edited_where_it_comes_from():
    edit = "https://h/o/r/edit/main"
    assert source_url(f"{edit}/book/library/theory.logistic.md") == f"{edit}/lib/leakage/theory/logistic/__init__.py"
    assert source_url(f"{edit}/book/library/studies.min_norm.md") == (
        f"{edit}/lib/reproduced/studies/min_norm/__init__.py"
    )
    assert source_url(f"{edit}/book/library/leakage.md") == f"{edit}/lib/leakage/__init__.py"
    assert source_url(f"{edit}/book/library.md") == f"{edit}/book/library.md"


def test_a_file_that_is_no_python_imports_nothing(toy):
    assert toy.imports["leakage.stones.broken"] == frozenset()
