"""What the extension makes of pages: the numbers of figures, share cards and the footer."""

from types import SimpleNamespace
from typing import Any

from bs4 import BeautifulSoup
from docutils import nodes
from docutils.utils import new_document

from reproduced.pages import sphinx_extension


def test_a_commit_leads_to_the_repository_where_its_address_is_known():
    told = "Executed in 8 s: seed 0, commit 0123456789 with <local> changes."
    linked = sphinx_extension.link_commits(told, "https://example.org/book")
    assert '<a href="https://example.org/book/commit/0123456789">0123456789</a> with &lt;local&gt;' in linked
    assert sphinx_extension.link_commits(told, "") == told.replace("<", "&lt;").replace(">", "&gt;")
    assert "href" not in sphinx_extension.link_commits("commit unknown", "https://example.org/book")


def test_a_share_card_has_what_is_known_of_the_page(tmp_path):
    (tmp_path / "_static/story").mkdir(parents=True)
    (tmp_path / "_static/story/chapter.png").touch()
    document = new_document("chapter")
    document += [nodes.title("", "T"), nodes.paragraph("", 'Does it\nleak "all"?'), nodes.paragraph("", "Yes.")]
    meta = {"description lang=en": "Five papers."}
    config = SimpleNamespace(html_baseurl="", html_title="Book", root_doc="intro", myst_html_meta=meta)

    def card(page, document=None):
        app: Any = SimpleNamespace(srcdir=tmp_path, config=config)
        tags = sphinx_extension._share_card(app, page, {"title": "A <em>title</em>"}, document)
        return {one["property"]: one["content"] for one in BeautifulSoup(tags, "html.parser").find_all("meta")}

    page = {"og:title": "A title"}
    assert card("chapter", document) == page | {"og:type": "article", "og:description": 'Does it leak "all"?'}
    assert card("intro") == page | {"og:type": "website", "og:description": "Five papers."}
    config.html_baseurl = "https://example.org/book/"
    assert card("chapter", document)["og:image"] == "https://example.org/book/_static/story/chapter.png"
    assert card("chapter")["og:url"] == "https://example.org/book/chapter.html"
    assert "og:image" not in card("intro")


def test_figures_are_numbered_page_by_page_as_they_are_seen_and_then_those_in_folds():
    chapter, other = new_document("chapter"), new_document("other")
    proof = nodes.section("", nodes.title("", "A control"), nodes.comment("", "fold"), nodes.figure(ids=["control"]))
    fold = sphinx_extension.Details("", nodes.figure(ids=["more"]))
    chapter += nodes.section("", nodes.title("", "One"), nodes.figure(ids=["first"]), proof)
    chapter += nodes.section("", nodes.title("", "Two"), fold, nodes.figure(ids=["second"]))
    given = {"first": (4, 1), "control": (4, 2), "more": (4, 3), "second": (4, 4)}
    env: Any = SimpleNamespace(
        toc_fignumbers={"chapter": {"figure": given, "theorem": {"t": (4, 3)}}, "other": {"table": {"t": (7,)}}},
        get_doctree={"chapter": chapter, "other": other}.__getitem__,
    )
    assert sphinx_extension._number_what_is_seen_first(env, env) == []
    assert env.toc_fignumbers == {
        "chapter": {
            "figure": {"first": (4, 1), "second": (4, 2), "control": (4, 3), "more": (4, 4)},
            "theorem": {"t": (4, 3)},
        },
        "other": {"table": {"t": (1,)}},
    }


def test_a_figure_that_was_laid_out_for_phones_is_shown_so_where_the_page_is_narrow(tmp_path):
    kept, other = "a" * 64, "b" * 64
    (tmp_path / "_static" / "figures").mkdir(parents=True)
    (tmp_path / "_static" / "figures" / f"{kept}.png").write_bytes(b"a picture")
    images = [f'<img alt="A line." src="_images/{name}.png" style="width: 700px;"/>' for name in (kept, other)]
    page = BeautifulSoup(sphinx_extension.add_pictures_for_phones("".join(images), tmp_path), "html.parser")
    assert [source["srcset"] for source in page.find_all("source")] == [f"_static/figures/{kept}.png"]
    assert page.picture.img["alt"] == "A line."
    assert len(page.find_all("img")) == 2
