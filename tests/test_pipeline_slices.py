"""Slices of a chapter: what a claim needs is kept, and no more than that where names tell."""

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leakage.pipeline import slices

JUDGE = 'ledger.judge("t.one", x=found)'


@pytest.mark.parametrize(
    ("cells", "kept"),
    [
        (["found = 1", "other = 2", JUDGE], [0, 2]),
        (["a = 1", "found = [a for _ in range(3)]", JUDGE], [0, 1, 2]),
        (["a = 1", "found = [a for a in range(3)]", JUDGE], [1, 2]),
        (["a = b = 1", "found = {a: {b for b in [a]} for a in range(3)}", JUDGE], [1, 2]),
        (["a = 1", "def found(a):\n    return a", JUDGE], [1, 2]),
        (["a = 1", "def found():\n    return a", JUDGE], [0, 1, 2]),
        (["found = 1", "found = 2", JUDGE], [1, 2]),
        (["found = 1", "found += 2", JUDGE], [0, 1, 2]),
        (["found = {}", "found[3] = 2", "found.x = 4", "b[found] = 1", JUDGE], [0, 1, 2, 4]),
        (["found = 1", "if b:\n    found = 2", "b = 3", JUDGE], [0, 1, 3]),
        (["a, b = 1, 2", "for a in range(3):\n    found = a", JUDGE], [1, 2]),
        (["found = 0", "while found < 3:\n    found += 1", JUDGE], [0, 1, 2]),
        (["b = 0", "with open(b) as found:\n    c = 1", "c", JUDGE], [0, 1, 3]),
        (["import a.b as found", "from c import d", JUDGE], [0, 2]),
        (["found = 1", "%magic", JUDGE], [0, 1, 2]),
        (["found = []", "found.append(b)", "found.copy()", "b = found.index(1)", JUDGE], [0, 1, 4]),
        (["found = {}", "found.setdefault(3, []).append(1)", "found.get(3)", JUDGE], [0, 1, 3]),
        (["found = torch.zeros(3)", "found.add_(1)", "found.add(1)", JUDGE], [0, 1, 2, 3]),
        (["found = 1", "try:\n    found = b\nexcept ValueError:\n    pass", JUDGE], [0, 1, 2]),
        (["c = 1", "found = (a := c)", JUDGE, "print(a)"], [0, 1, 2]),
        (["found = 1", 'ledger.judge("t.two", x=found)'], []),
    ],
)
def test_a_cell_is_kept_if_its_names_are_needed(cells, kept):
    assert slices.needed(cells, {"t.one"}) == kept


NAMES = st.sampled_from("abcdef")


@given(st.lists(st.tuples(NAMES, st.lists(NAMES, max_size=3), st.booleans()), min_size=1, max_size=12), st.data())
def test_what_is_kept_gives_the_same_value(lines, data):
    cells = [f"{name} {'+=' if more else '='} {' + '.join(['1', *used])}" for name, used, more in lines]
    wanted = data.draw(NAMES)
    cells = ["a = b = c = d = e = f = 1", *cells, f"show('t.one', {wanted})"]
    kept = slices.needed(cells, {"t.one"})
    assert _shown(cells) == _shown([cells[number] for number in kept])


def _shown(cells):
    found: list[object] = []
    names = {"show": lambda _, value: found.append(value)}
    for source in cells:
        exec(source, names)
    return found


def test_a_cut_notebook_keeps_its_words_and_its_parameters():
    new = nbformat.v4
    parameters = new.new_code_cell("seed = 0", metadata={"tags": ["parameters"]})
    cells = [new.new_markdown_cell("Words."), parameters, *map(new.new_code_cell, ("found = 1", "other = 2", JUDGE))]
    whole = new.new_notebook(cells=cells)
    found = [cell.source for cell in slices.cut(whole, {"t.one"}).cells]
    assert found == ["Words.", "seed = 0", "found = 1", JUDGE]
    assert len(whole.cells) == 5
