"""The pages of the library follow from the tree: nothing is missing, no link is dead."""

import re
from pathlib import Path

import pytest

from reproduced.pages import library, tree
from reproduced.pages.site import source_url

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "lib" / "leakage"
REAL = library.Library(PACKAGE, {"one": frozenset({"metrics.roc"}), "two": frozenset({"theory.ridge"})})
PAGES = sorted({REAL.page(module) for module in REAL.modules})
MODULES = [name for name, path in REAL.modules.items() if path.name != "__init__.py"]

TOOLS = '''\
r"""Tools, made of `stone` and `stone.Flint`.

They cut.
"""

from toy.stones import stone


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


@pytest.fixture
def toy(tmp_path) -> library.Library:
    """A package of three modules in two rooms, and a chapter that imports one of them."""
    files = {
        "__init__.py": '"""A toy. It has two rooms."""',
        "tools.py": TOOLS,
        "stones/__init__.py": '"""Stones, and\nwhat they do. More."""',
        "stones/stone.py": '"""One stone."""\n\nfrom toy import paper\n\n\nclass Flint:\n    """Hard."""\n',
        "stones/broken.py": "def (",
        "paper.py": '"""Paper."""',
        "pipeline/cli.py": '"""No page."""',
    }
    for name, text in files.items():
        (tmp_path / "toy" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "toy" / name).write_text(text, "utf-8")
    return library.Library(tmp_path / "toy", {"carving": frozenset({"tools"}), "folding": frozenset({"paper"})})


def test_a_package_is_a_page_and_the_runner_has_none(toy):
    assert list(toy.pages()) == ["toy", "stones"]
    assert toy.pages()["stones"].startswith("# `stones`\n\n```{py:module} toy.stones\n```\n\nStones, and\nwhat")


def test_the_contents_say_of_each_page_its_first_sentence(toy):
    assert "- [`stones`](/library/stones.md): Stones, and what they do.\n" in toy.contents()
    assert "- [`toy`](/library/toy.md): A toy.\n" in toy.contents()
    assert "## Experiments" not in toy.contents()
    assert "## Experiments" in REAL.contents()


def test_a_function_shows_signature_equation_source_and_what_it_takes(toy):
    page = toy.pages()["toy"]
    assert '```python\ndef cut(edge: float, *, stone: str = "flint") -> float:\n```' in page
    assert "\n$$ d = \\sqrt{e} $$\n\nSource: Carver (1990).\n" in page
    assert "**Args**\n\n- `edge`: $e > 0$, in\n  millimetres.\n- `stone`: which one.\n" in page
    assert "**Returns:** The depth.\n" in page
    assert "**Raises**\n\n- `ValueError`: if `edge` is blunt.\n" in page
    assert "{source}`source <lib/toy/tools.py#L9>`" in page


def test_a_class_shows_its_fields_and_public_methods(toy):
    page = toy.pages()["toy"]
    assert "@final\nclass Axe(Tool):\n    handle: str\n    blade: tuple[\n        int, ...\n    ] = ()\n```" in page
    assert ":::{py:method} Axe.swing\n" in page
    assert ":::{py:property} Axe.weight\n" in page
    assert "_miss" not in page
    assert "_hidden" not in page


def test_a_name_in_a_docstring_is_a_link_unless_it_means_something_else(toy):
    page = toy.pages()["toy"]
    assert "see {py:obj}`Axe.swing <toy.tools.Axe.swing>`, `edge` and `stones`." in page
    assert "Once, with {py:obj}`cut <toy.tools.cut>`." in page
    assert "{py:obj}`stone <toy.stones.stone>` and" not in page, "another room's module needs its room"


def test_modules_and_chapters_lead_to_each_other(toy):
    page, stones = toy.pages()["toy"], toy.pages()["stones"]
    assert "Imports: {py:mod}`stones.stone <toy.stones.stone>` · Chapters: {doc}`/carving` · Source" in page
    assert "Imports: {py:mod}`paper <toy.paper>` · Chapters: {doc}`/carving` · Source" in stones
    assert "Chapters: {doc}`/carving`, {doc}`/folding` · Source" in page, "paper is behind both"
    assert "- [`toy`](/library/toy.md): {py:obj}`tools <toy.tools>`\n" in toy.of_chapter("carving")


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    """The text of each page."""
    return REAL.pages()


def test_every_module_is_on_a_page(pages):
    assert sorted(pages) == PAGES


def test_every_public_name_of_the_library_has_its_entry(pages):
    for module, path in REAL.modules.items():
        entries = re.findall(r"^(?:def|class) ([A-Za-z]\w*)", path.read_text("utf-8"), re.MULTILINE)
        section = pages[REAL.page(module)].partition(f"{{py:module}} leakage.{module}\n")[2].partition("\n## ")[0]
        assert re.findall(r"^::::\{py:(?:function|class)\} (\w+)$", section, re.MULTILINE) == entries, module


@pytest.mark.parametrize("page", PAGES)
def test_every_link_of_a_page_has_a_target(page, pages):
    linked = set(re.findall(r"\{py:\w+\}`[^`<]+ <leakage\.([^`]+)>`", pages[page]))
    assert linked <= REAL.names.keys()
    for file, line in re.findall(r"\{source\}`[^`<]+ <([^`#]+)(?:#L(\d+))?>`", pages[page]):
        lines = (ROOT / file).read_text("utf-8").splitlines()
        assert not line or re.match(r"\s*(?:def|class|@)", lines[int(line) - 1])


def test_a_page_of_the_library_is_edited_where_it_comes_from():
    edit = "https://h/o/r/edit/main"
    assert source_url(f"{edit}/book/library/theory.kkt.md") == f"{edit}/lib/leakage/theory/kkt/__init__.py"
    assert source_url(f"{edit}/book/library/leakage.md") == f"{edit}/lib/leakage/__init__.py"
    assert source_url(f"{edit}/book/library.md") == f"{edit}/book/library.md"


def test_a_file_that_is_no_python_imports_nothing(toy):
    assert tree.imports(toy.package)["stones.broken"] == frozenset()
