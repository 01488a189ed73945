"""What opens on a click, for Sphinx: sections below a heading of the fourth level, chips of verdicts, public names.

All become the browser's own `<details>`, which needs no script, prints, and is found by a search in the page. A link
to a place within opens it: browsers do that, and `_static/folds.js` where they do not.
"""

from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.docutils import SphinxDirective
from sphinx.writers.html5 import HTML5Translator

from reproduced.pages.chips import EXACT, chip_anchor, row_anchor
from reproduced.pages.layers import MARK

SCOREBOARD = "scoreboard"  # the page that has a row for each claim
GLOSSARY = "glossary"  # the page that says what the mark `EXACT` means
_CONTENTS_ARE_DONE = 900  # Sphinx collects the headings of a page at 500


class Details(nodes.General, nodes.Element):
    """What opens on a click: a `Summary`, then what it hides."""


class Summary(nodes.General, nodes.Element):
    """The line that is seen while its `Details` are closed."""


class Claim(SphinxDirective):
    """A verdict: the first paragraph is seen, the rest opens; `:class:` is the verdict, the argument the claim's id."""

    required_arguments = 1
    has_content = True
    option_spec: ClassVar[dict[str, Any]] = {"class": directives.class_option}

    def run(self) -> list[nodes.Node]:
        (id,) = self.arguments
        parsed = self.parse_content_to_nodes()
        first = parsed[0].children if parsed and isinstance(parsed[0], nodes.paragraph) else []
        chip = Details(classes=["claim", *self.options.get("class", ())], ids=[chip_anchor(id)])
        chip += [Summary("", *first), *parsed[1:], self._links(id)]
        return [chip]

    def _links(self, id: str) -> nodes.paragraph:
        links = nodes.paragraph(classes=["claim-links"])
        here = nodes.reference("", "", nodes.literal("", id), refuri=f"#{chip_anchor(id)}", internal=True)
        links += [here]
        ways = [("on the scoreboard", SCOREBOARD, row_anchor(id))]
        ways += [(f"what “{EXACT}” means", GLOSSARY, f"term-{EXACT}")] * (EXACT in self.options.get("class", ()))
        for text, page, place in ways:
            if page in self.env.found_docs:
                way = nodes.reference("", text, refuri=f"{page}.html#{place}", internal=True)
                links += [nodes.Text(" · "), way]
        return links


class FoldSections(SphinxPostTransform):
    """Turn each section that begins with the comment `MARK` into a fold, once its numbers and links are settled."""

    default_priority = 900
    formats = ("html",)

    def run(self, **_: Any) -> None:
        for section in list(self.document.findall(nodes.section)):
            if _is_fold(section):
                title, _mark, *rest = section.children
                folded = Details("", Summary("", *title.children), *rest, classes=["fold"])
                folded["ids"] = section["ids"]
                section.replace_self(folded)


class FoldNames(SphinxPostTransform):
    """Fold the entry of each function and class: its name and what it is are seen, its signature and the rest open."""

    default_priority = 900
    formats = ("html",)

    def run(self, **_: Any) -> None:
        for entry in list(self.document.findall(addnodes.desc)):
            if entry["domain"] == "py" and not isinstance(entry.parent, addnodes.desc_content):
                entry.replace_self(_folded(entry))


def _folded(entry: addnodes.desc) -> Details:
    signature, content = (next(entry.findall(kind)) for kind in (addnodes.desc_signature, addnodes.desc_content))
    said = (part for part in content.children if isinstance(part, nodes.paragraph) and not _leads_to_source(part))
    summary = Summary("", nodes.literal("", signature["fullname"]))
    if (first := next(said, None)) is not None:
        content.remove(first)
        for link in list(first.findall(nodes.reference)):  # a summary is itself what is clicked
            link.replace_self(link.children)
        summary += [nodes.Text(" "), *first.children]
    return Details("", summary, entry.deepcopy(), classes=["fold", "name"])


def _leads_to_source(paragraph: nodes.paragraph) -> bool:
    return any("library-source" in part["classes"] for part in paragraph.findall(nodes.Element))


def _is_fold(section: nodes.section) -> bool:
    # Docutils notes here that two folds have one title, until a page is written.
    rest = [child for child in section.children[1:] if not isinstance(child, nodes.system_message)]
    return bool(rest) and isinstance(rest[0], nodes.comment) and rest[0].astext().strip() == MARK


def _open_details(writer: HTML5Translator, node: nodes.Element) -> None:
    writer.body.append(writer.starttag(node, "details"))


def _close_details(writer: HTML5Translator, node: nodes.Element) -> None:
    writer.body.append("</details>\n")


def _open_summary(writer: HTML5Translator, node: nodes.Element) -> None:
    writer.body.append("<summary>")


def _close_summary(writer: HTML5Translator, node: nodes.Element) -> None:
    writer.body.append("</summary>\n")


def _leave_folds_out(app: Sphinx, document: nodes.document) -> None:
    """Take folds out of the list "On this page": they belong to the heading above them."""
    folds = {f"#{name}" for section in document.findall(nodes.section) if _is_fold(section) for name in section["ids"]}
    contents = app.env.tocs.get(app.env.docname)
    for entry in list(contents.findall(nodes.list_item)) if contents is not None and folds else ():
        place = next(entry.findall(nodes.reference), None)
        if place is not None and place.get("anchorname") in folds:
            around = entry.parent
            around.remove(entry)
            if not around.children and around.parent is not None:
                around.parent.remove(around)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register nodes, directive and transform (called by Sphinx)."""
    app.add_node(Details, html=(_open_details, _close_details))
    app.add_node(Summary, html=(_open_summary, _close_summary))
    app.add_directive("claim", Claim)
    app.add_post_transform(FoldSections)
    app.add_post_transform(FoldNames)
    app.connect("doctree-read", _leave_folds_out, priority=_CONTENTS_ARE_DONE)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
