"""The source below a call is that of what the cell calls, whole and once."""

import ast
import re
from pathlib import Path

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from reproduced.pages import page_layout
from reproduced.pages.called_sources import CalledSources, find_calls
from reproduced.pages.library_pages import Library

MODULE = (
    '''
from torch import Tensor

RATE = 0.1  # a constant


def train(rows: Tensor) -> Tensor:
    """Train."""
    return _step(rows) * RATE


def _step(rows):
    return _half(rows)


def _half(rows):
    return rows / 2


def attack(rows):
    return _half(rows)


class Net:
    def fit(self):
        return attack(1)


def _unused():
    return 0


def long(rows):
'''
    + "    rows = rows + 1\n" * 150
)
IMPORTS = "from functools import partial\nfrom reproduced.papers.one import training\nfrom reproduced import grids\n"


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> Library:
    lib = tmp_path_factory.mktemp("lib")
    for name, text in {"leakage": "", "reproduced": "", "reproduced/papers": "", "reproduced/papers/one": ""}.items():
        (lib / name).mkdir(parents=True)
        (lib / name / "__init__.py").write_text(text, "utf-8")
    (lib / "reproduced/papers/one/training.py").write_text(MODULE, "utf-8")
    return Library(lib, {})


def called(library, *cells: str) -> list[list[str]]:
    """The names of what each cell calls, after a cell with the imports."""
    found = find_calls(library, [IMPORTS, *cells])
    return [[path.rpartition(".")[2] for path in found[cell]] for cell in cells]


@pytest.mark.parametrize(
    ("cells", "names"),
    [
        (["x = training.train(rows)"], [["train"]]),
        (["net = training.Net()", "net.fit()"], [["Net"], []]),
        (["f = partial(training.attack, 1)", "f()"], [["attack"], ["attack"]]),
        (["f = grids.keep(partial(training.attack), name='a')", "each = partial(f)", "each()"], [["attack"]] * 3),
        (["f = partial(training.attack)", "f = len", "f()"], [["attack"], [], []]),
        (["x = [training.train(one) for one in (training.attack,)]"], [["train", "attack"]]),
        (["print(training)", "1 +", "train = 2"], [[], [], []]),
    ],
)
def test_a_call_is_followed_through_imports_and_partials(library, cells, names):
    assert called(library, *cells) == names


@pytest.mark.parametrize(
    "line", ["import reproduced.papers.one.training", "import reproduced.papers.one.training as t"]
)
def test_a_module_may_have_a_short_name(library, line):
    name = line.split()[-1]
    assert find_calls(library, [line, f"{name}.train(1)"])[f"{name}.train(1)"]


def test_the_source_of_a_function_holds_all_that_is_private_and_used_in_turn(library):
    source = library.source("reproduced.papers.one.training.train")
    defined = [node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    assert defined == ["train", "_step", "_half"]
    assert source.startswith("RATE = 0.1  # a constant\n\n\ndef train")


def test_nothing_is_shown_twice_on_a_page_and_what_was_shown_is_linked(library):
    cells = [IMPORTS, "training.train(1)", "training.attack(1); training.train(2)", "1 + 1"]
    sources = CalledSources(library, "one", cells)
    first, second, nothing = (sources.below([cell]) for cell in cells[1:])
    assert (first.count("def _half"), second.count("def _half")) == (1, 0)
    assert "def attack" in second
    assert "def train" not in second
    label = re.search(r"Shown further up: \{ref\}`train <([\w-]+)>`", second)[1]
    assert f"\n({label})=\n" in first
    assert nothing == ""


def test_of_a_long_function_the_head_is_shown(library):
    below = CalledSources(library, "one", [IMPORTS, "training.long(1)"]).below(["training.long(1)"])
    assert "def long(rows):\n    ...\n" in below


def test_source_stands_behind_the_section_and_inside_a_fold(library):
    cells = [
        new_code_cell(IMPORTS, metadata={"tags": ["hide-input"]}),
        new_markdown_cell("### One"),
        new_code_cell("training.train(1)"),
        new_code_cell("training.Net()", metadata={"tags": ["hide-input"]}),
        new_markdown_cell("#### A control"),
        new_code_cell("training.attack(1)", metadata={"tags": ["hide-input"]}),
        new_markdown_cell("#### Another\n\nWords."),
    ]
    notebook = new_notebook(cells=cells)
    page_layout.arrange(notebook, None, CalledSources(library, "one", [cell.source for cell in cells]))
    texts = [cell.source for cell in notebook.cells if "remove-cell" not in cell.metadata.get("tags", ())]
    kinds = [re.search(r"\w.*", text)[0] if "def " not in text else re.findall(r"def (\w+)", text) for text in texts]
    start = kinds.index("One")
    assert kinds[start:] == [
        *["One", "training.train(1)", ["train", "_step", "_half"]],
        *["A control", "training.attack(1)", ["attack"], "Another", "The code of this section", "training.Net()"],
    ]


def test_every_call_of_the_book_has_a_source_that_is_python():
    root = Path(__file__).parents[3]
    library = Library(root / "lib", {})
    for path in filter(library.is_entry, library.names):
        assert ast.parse(library.source(path)), path
