"""What the extension makes of pages: the numbers of figures, share cards and the footer."""

from types import SimpleNamespace

from docutils import nodes
from docutils.utils import new_document

from reproduced.pages import sphinx_extension


def test_figures_are_numbered_page_by_page_as_they_are_seen_and_then_those_in_folds():
    chapter, other = new_document("chapter"), new_document("other")
    proof = nodes.section("", nodes.title("", "A control"), nodes.comment("", "fold"), nodes.figure(ids=["control"]))
    fold = sphinx_extension.Details("", nodes.figure(ids=["more"]))
    chapter += nodes.section("", nodes.title("", "One"), nodes.figure(ids=["first"]), proof)
    chapter += nodes.section("", nodes.title("", "Two"), fold, nodes.figure(ids=["second"]))
    given = {"first": (4, 1), "control": (4, 2), "more": (4, 3), "second": (4, 4)}
    env = SimpleNamespace(
        toc_fignumbers={"chapter": {"figure": given, "theorem": {"t": (4, 3)}}, "other": {"table": {"t": (7,)}}},
        get_doctree={"chapter": chapter, "other": other}.__getitem__,
    )
    assert sphinx_extension._number_what_is_seen_first(None, env) == []
    assert env.toc_fignumbers == {
        "chapter": {
            "figure": {"first": (4, 1), "second": (4, 2), "control": (4, 3), "more": (4, 4)},
            "theorem": {"t": (4, 3)},
        },
        "other": {"table": {"t": (1,)}},
    }
