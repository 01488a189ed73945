"""The Sphinx extension of the book: chips and folds, sources and footers of pages, MathJax and the scripts of tables.

It is listed in `_config.yml`. What opens on a click becomes the browser's own `<details>`, which needs no script,
prints, and is found by a search in the page; a link to a place within opens it, by `_static/folds.js` where the browser
does not. An id of a claim, wherever it stands in code, leads to the claim. Pages work without a network, link to files
that exist and say where their numbers come from. Of the staged book only `_generated/` and the glossary are read; no
code of a chapter runs here.
"""

import importlib.util
import json
import os
import re
import shutil
import textwrap
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar, cast

import nbformat
import pybtex.database
from docutils import nodes
from docutils.parsers.rst import directives, roles
from markupsafe import Markup, escape
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.domains.math import MathDomain
from sphinx.domains.std import StandardDomain
from sphinx.environment import BuildEnvironment
from sphinx.errors import ConfigError
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.docutils import SphinxDirective

from reproduced.pages import glossary, plain_notebook
from reproduced.pages.findings import chip_anchor, row_anchor
from reproduced.pages.jinja_environment import EXACT_MARK, fill_template
from reproduced.pages.library_pages import PAGE, page_file
from reproduced.pages.page_layout import FIGURES, FOLD_COMMENT, NOTEBOOKS, ORIGINS, STORIES
from reproduced.run.book import GENERATED
from reproduced.run.chapter_cache import EXECUTION_KEY

BRANCH = "notebooks"  # of the public repository, on which .github/workflows/book.yml puts the executed notebooks
_SCOREBOARD = "scoreboard"  # the page that has a row for each claim
_GLOSSARY = "glossary"  # the page that says what the mark `EXACT_MARK` means
# What the component `tex-chtml` loads at run time, 6.4 of the package's 24 MB: fonts, TeX extensions, accessibility.
_MATHJAX_PARTS = ("tex-chtml.js", "output/chtml/fonts", "input/tex/extensions", "a11y", "sre")
_MATHJAX_PACKAGE = "sphinx-mathjax-offline"
# Sphinx calls listeners in the order of these numbers; those of the theme and of MyST run at 500 and 501, and the
# headings of a page are collected at 500.
_BEFORE_THE_PARSER = 100
_CONTENTS_ARE_DONE = _THEME_IS_DONE = 900
_CODE = re.compile(r"<code>([a-z][\w.]*)</code>")
_CLAIMS_TABLE = re.compile(r'class="[^"]*\bclaims-table\b')
_PICTURE = re.compile(r'<img\b[^>]*\bsrc="([^"]*)_images/([0-9a-f]{64})\.png"[^>]*>')
_CHAPTER_TABLE = re.compile(r"<th[^>]*>(?:<p>)?why(?:</p>)?</th>")  # a column of what a chapter's `Ledger` shows

_NOTE = (
    "*The numbers in the text are those of the build: profile {profile}, seed {seed}, commit {at}. "
    "Cells that you run show theirs.*"
)

_MOST_DESCRIBED = 300  # characters of a page that a share card shows
_NUMBERED = {"figure", "table", "code-block"}

Context = dict[str, Any]


# ── chips and folds ─────────────────────────────────────────────────────────────────────────────────────────────────


class Details(nodes.General, nodes.Element):
    """What opens on a click: a `Summary`, then what it hides."""


class Summary(nodes.General, nodes.Element):
    """The line that is seen while its `Details` are closed."""


class ClaimDirective(SphinxDirective):
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
        ways = [("on the scoreboard", _SCOREBOARD, row_anchor(id))]
        if EXACT_MARK in self.options.get("class", ()):
            ways.append((f"what “{EXACT_MARK}” means", _GLOSSARY, f"term-{EXACT_MARK}"))
        for text, page, place in ways:
            if page in self.env.found_docs:
                way = nodes.reference("", text, refuri=f"{page}.html#{place}", internal=True)
                links += [nodes.Text(" · "), way]
        return links


class FoldDirective(SphinxDirective):
    """A fold within a section or another fold: the argument is seen, the content opens."""

    required_arguments = 1
    final_argument_whitespace = True
    has_content = True

    def run(self) -> list[nodes.Node]:
        (title,) = self.arguments
        return [Details("", Summary("", nodes.Text(title)), *self.parse_content_to_nodes(), classes=["fold"])]


class Folds(SphinxPostTransform):
    """Fold sections that begin with `FOLD_COMMENT`, and functions and classes, once numbers and links are settled.

    Of a function or class its name and what it is are seen; its signature and the rest open.
    """

    default_priority = 900
    formats = ("html",)

    def run(self, **_: Any) -> None:
        for section in list(self.document.findall(nodes.section)):
            if _is_fold(section):
                title, _mark, *rest = section.children
                folded = Details("", Summary("", *title.children), *rest, classes=["fold"])
                folded["ids"] = section["ids"]
                section.replace_self(folded)
        for entry in list(self.document.findall(addnodes.desc)):
            if entry["domain"] == "py" and not isinstance(entry.parent, addnodes.desc_content):
                entry.replace_self(_fold_entry(entry))


def _fold_entry(entry: addnodes.desc) -> Details:
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


class ClaimLinks(SphinxPostTransform):
    """Make each id of a claim that stands in code a link: to its chip on the same page, else to its scoreboard row."""

    default_priority = 800
    formats = ("html",)

    def run(self, **_: Any) -> None:
        rows = _claim_ids(Path(self.app.srcdir) / GENERATED / "claims.json")
        ids = rows if _SCOREBOARD in self.env.found_docs else ()
        here = self.env.docname
        board = "" if here == _SCOREBOARD else self.app.builder.get_relative_uri(here, _SCOREBOARD)
        chips = {name for chip in self.document.findall(Details) for name in chip["ids"]}

        def address(id: str) -> str:
            chip = chip_anchor(id)
            return f"#{chip}" if chip in chips else f"{board}#{row_anchor(id)}"

        def linked(code: re.Match[str]) -> str:
            return f'<a href="{address(code[1])}">{code[0]}</a>' if code[1] in ids else code[0]

        for literal in list(self.document.findall(nodes.literal)):
            if literal.astext() in ids and not _is_clickable(literal):
                link = nodes.reference("", "", refuri=address(literal.astext()), internal=True)
                literal.replace_self(link)
                link += literal
        for raw in self.document.findall(nodes.raw):
            raw.children = [nodes.Text(_CODE.sub(linked, raw.astext()))]


def _is_clickable(node: nodes.Node) -> bool:
    """Whether a click on the node does something already, or it is in a heading."""
    around = node.parent
    while around is not None and not isinstance(around, nodes.reference | nodes.title | Summary):
        around = around.parent
    return around is not None


@cache
def _claim_ids(path: Path) -> frozenset[str]:
    """The ids of the claims that have a row on the scoreboard."""
    found = json.loads(path.read_text("utf-8"))["chapters"] if path.is_file() else []
    return frozenset(claim["id"] for chapter in found for claim in chapter["claims"])


def _is_fold(section: nodes.Element) -> bool:
    # Docutils notes here that two folds have one title, until a page is written.
    rest = [child for child in section.children[1:] if not isinstance(child, nodes.system_message)]
    return (
        isinstance(section, nodes.section)
        and bool(rest)
        and isinstance(rest[0], nodes.comment)
        and rest[0].astext().strip() == FOLD_COMMENT
    )


def _tag(name: str) -> tuple[Callable[..., None], Callable[..., None]]:
    """How a node is written as HTML: what opens it, and what closes it."""
    return (
        lambda writer, node: writer.body.append(writer.starttag(node, name)),
        lambda writer, node: writer.body.append(f"</{name}>\n"),
    )


def _remove_folds_from_contents(app: Sphinx, document: nodes.document) -> None:
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


def _number_what_is_seen_first(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Number figures, tables and listings page by page: those that are seen as they appear, then those in folds."""
    for page, kinds in env.toc_fignumbers.items():
        if not kinds.keys() & _NUMBERED:
            continue
        folds = [
            one for one in env.get_doctree(page).findall(nodes.Element) if isinstance(one, Details) or _is_fold(one)
        ]
        folded = {name for fold in folds for part in fold.findall(nodes.Element) for name in part["ids"]}
        for kind in kinds.keys() & _NUMBERED:
            numbers = kinds[kind]
            for place, name in enumerate(sorted(numbers, key=folded.__contains__), start=1):
                numbers[name] = (*numbers[name][:-1], place)
    return []


# ── pages ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def copy_mathjax(destination: Path) -> None:
    """Copy the parts of MathJax that the pages load; a `ConfigError` if its package is absent or lacks a part."""
    spec = importlib.util.find_spec(_MATHJAX_PACKAGE)
    if spec is None or spec.origin is None:
        raise ConfigError(f"MathJax comes from the package {_MATHJAX_PACKAGE}, which is absent; install leakage[book].")
    source = Path(spec.origin).parent / "static" / "mathjax"
    destination.mkdir(parents=True, exist_ok=True)
    for part in _MATHJAX_PARTS:
        if not (source / part).exists():
            raise ConfigError(f"The package {_MATHJAX_PACKAGE} has no {part}; install the version in requirements.txt.")
        copy = shutil.copyfile if (source / part).is_file() else partial(shutil.copytree, dirs_exist_ok=True)
        copy(source / part, destination / part)


def source_url(url: str) -> str:
    """The address of a page's source in the repository, where the theme gives that of the staged file."""
    if not url.startswith("https://"):
        return url
    if url.startswith("https://colab."):  # which opens notebooks only: those that were executed
        return re.sub(r"/blob/.*/", f"/blob/{BRANCH}/", url)
    if made := re.fullmatch(rf"(.*)/book/{PAGE}/(.+)\.md", url):
        return f"{made[1]}/{page_file(made[2])}"
    return re.sub(r"\.ipynb(?=$|[?#&])", ".md", url)


@cache
def _origins(path: Path) -> Mapping[str, str]:
    return json.loads(path.read_text("utf-8")) if path.is_file() else {}


def _set_repository(app: Sphinx, config: Config) -> None:
    """Give the pages the role `source` and the substitution `repository`, so that no page spells the address."""
    options = config.html_theme_options
    address, branch = options.get("repository_url", ""), options.get("repository_branch", "")
    if address:
        config.extlinks = {**config.extlinks, "source": (f"{address}/blob/{branch}/%s", "%s")}
    else:
        roles.register_generic_role("source", nodes.literal)
    config.myst_substitutions = {**config.myst_substitutions, "repository": address}


def _add_mathjax(app: Sphinx, error: Exception | None) -> None:
    if error is None and app.builder.format == "html":
        copy_mathjax(Path(app.outdir) / "_static" / "mathjax")


def _offer_notebooks(app: Sphinx, error: Exception | None) -> None:
    """Put notebooks in plain Markdown in the place of those that a page was made from."""
    if error is not None:
        return
    names = _site_names(app)
    for path in (Path(app.srcdir) / GENERATED / NOTEBOOKS).glob("*.ipynb"):
        offered = Path(app.outdir) / "_sources" / path.name
        if offered.is_file():
            notebook = nbformat.read(path, as_version=4)
            run = notebook.metadata.get(EXECUTION_KEY, {})
            note = _NOTE.format(**run, at=(run["commit"] or "unknown")[:10]) if "profile" in run else ""
            nbformat.write(plain_notebook.to_plain_markdown(notebook, names, Path(app.srcdir), note), offered)


def _site_names(app: Sphinx) -> plain_notebook.SiteNames:
    """What the pages call equations, figures, headings, works and each other."""
    env, figures = app.env, {}
    labels = cast("StandardDomain", env.get_domain("std")).labels
    for label, (page, id, _) in labels.items():
        if number := env.toc_fignumbers.get(page, {}).get("figure", {}).get(id):
            figures[label] = app.config.numfig_format["figure"] % ".".join(map(str, number))
    works = {}
    for file in app.config.bibtex_bibfiles:
        for key, work in pybtex.database.parse_file(Path(app.srcdir) / file).entries.items():
            people = ["".join(person.last_names[-1:]) for person in work.persons.get("author", [])]
            who = people[0] if len(people) == 1 else " and ".join(people) if len(people) == 2 else f"{people[0]} et al."
            works[key] = (who, work.fields.get("year", ""))
    return plain_notebook.SiteNames(
        equations={
            label: str(number) for label, (_, number) in cast("MathDomain", env.get_domain("math")).equations.items()
        },
        figures=figures,
        titles={page: title.astext() for page, title in env.titles.items()}
        | {label: title for label, (_, _, title) in labels.items() if title},
        citations=works,
        address=app.config.html_theme_options.get("repository_url", ""),
    )


def _write_in_parallel(app: Sphinx, env: BuildEnvironment) -> None:
    """Write pages on all processors. Reading stays serial: not every extension can merge what it has read."""
    app.parallel = os.cpu_count() or 1


def _finish_page(app: Sphinx, pagename: str, templatename: str, context: Context, doctree: Any) -> None:
    """Mend what theme and docutils put into the page: links, names, scripts of an unused service, roles, footer."""
    buttons = (button for group in context.get("header_buttons", ()) for button in group.get("buttons", ()))
    for button in buttons:
        if "url" in button:
            button["url"] = source_url(button["url"])
    page = context.get("body") or ""
    for kind in {"script_files", "css_files"} & context.keys():
        context[kind] = [file for file in context[kind] if is_needed(str(getattr(file, "filename", file)), page)]
    # sphinx-thebe adds these whether or not it is used: a script of another host, and a constant declared twice.
    context["script_files"] = [
        script for script in context.get("script_files", ()) if "thebe" not in _content(script).lower()
    ]
    if "generate_toctree_html" in context:
        context["generate_toctree_html"] = _name_toggles(context["generate_toctree_html"])
    origins = _origins(Path(app.srcdir) / GENERATED / ORIGINS)
    origin, config = origins.get(pagename) or origins.get("", ""), app.config
    address = config.html_theme_options.get("repository_url", "")
    context["theme_extra_footer"] = fill_template("footer.html", origin=link_commits(origin, address), config=config)
    context["metatags"] = f"{context.get('metatags', '')}{_share_card(app, pagename, context, doctree)}"
    if "body" in context:
        # docutils calls a bibliography a list but puts other elements between its items: screen readers stumble there.
        body = context["body"].replace(' role="list" class="citation-list"', ' class="citation-list"')
        body = body.replace(' role="doc-biblioentry"', "")
        body = add_pictures_for_phones(body, Path(app.srcdir))
        context["body"] = glossary.add_definitions(body, _meanings(Path(app.srcdir) / "glossary.md"))


def add_pictures_for_phones(body: str, source: Path) -> str:
    """A page that shows a figure as it was laid out for phones where the page is narrow, if it was."""

    def add(found: re.Match[str]) -> str:
        small = f"{FIGURES}/{found[2]}.png"
        if not (source / small).is_file():
            return found[0]
        return f'<picture><source media="(max-width: 600px)" srcset="{found[1]}{small}">{found[0]}</picture>'

    return _PICTURE.sub(add, body)


def link_commits(text: str, address: str) -> Markup:
    """A text as HTML in which each commit leads to the repository, if it has an `address`."""
    told, link = str(escape(text)), rf'commit <a href="{escape(address)}/commit/\1">\1</a>'
    return Markup(re.sub(r"\bcommit ([0-9a-f]{10})\b", link, told) if address else told)


def _share_card(app: Sphinx, page: str, context: Context, document: nodes.document | None) -> Markup:
    """What other sites show of a link to the page: title, first paragraph and, where the address is known, picture."""
    paragraphs = document.findall(nodes.paragraph) if document else ()
    first = next((one for one in paragraphs if isinstance(one.parent, nodes.section | nodes.document)), None)
    words = textwrap.shorten(first.astext(), _MOST_DESCRIBED, placeholder=" …") if first else ""
    home, picture = (app.config.html_baseurl or "").rstrip("/"), f"{STORIES}/{page}.png"
    card = {
        "og:type": "website" if page == app.config.root_doc else "article",
        "og:title": Markup(context.get("title") or app.config.html_title).striptags(),
        "og:description": words or app.config.myst_html_meta.get("description lang=en", ""),
        "og:url": f"{home}/{page}.html" if home else "",
        "og:image": f"{home}/{picture}" if home and (Path(app.srcdir) / picture).is_file() else "",
    }
    tags = (Markup('\n<meta property="{}" content="{}">').format(*one) for one in card.items() if one[1])
    return Markup("").join(tags)


@cache
def _meanings(page: Path) -> Mapping[str, str]:
    return glossary.definitions(page.read_text("utf-8")) if page.is_file() else {}


def _name_toggles(contents: Callable[..., Any]) -> Callable[..., str]:
    """The function that makes the list of pages, with a name on what unfolds a part: the theme shows a sign only."""
    named = '<summary aria-label="Show or hide the pages below">'
    return lambda *given, **more: str(contents(*given, **more)).replace("<summary>", named)


def _content(script: Any) -> str:
    attributes = getattr(script, "attributes", {}) or {}
    return f"{getattr(script, 'filename', script)} {attributes.get('body', '')}"


# ── scripts of tables ───────────────────────────────────────────────────────────────────────────────────────────────


def is_needed(name: str, body: str) -> bool:
    """Whether a page with this text needs a script or style: those of tables weigh more than most pages."""
    if "datatables/" in name:
        return bool(_CLAIMS_TABLE.search(body))
    return "tables.js" not in name or bool(_CLAIMS_TABLE.search(body) or _CHAPTER_TABLE.search(body))


def _load_mathjax(app: Sphinx, document: nodes.document) -> None:
    """Tell Sphinx that a page has formulas if they stand in a raw table, so that it loads MathJax there."""
    if any('class="math' in node.astext() for node in document.findall(nodes.raw)):
        app.env.get_domain("math").data["has_equations"][app.env.docname] = True


def setup(app: Sphinx) -> dict[str, Any]:
    """Register nodes, directive, transforms and listeners (called by Sphinx)."""
    app.setup_extension("sphinx.ext.extlinks")
    app.config.mathjax_path = "mathjax/tex-chtml.js"
    app.add_node(Details, html=_tag("details"))
    app.add_node(Summary, html=_tag("summary"))
    app.add_directive("claim", ClaimDirective)
    app.add_directive("fold", FoldDirective)
    app.add_post_transform(ClaimLinks)
    app.add_post_transform(Folds)
    app.connect("config-inited", _set_repository, priority=_BEFORE_THE_PARSER)
    app.connect("doctree-read", _load_mathjax)
    app.connect("doctree-read", _remove_folds_from_contents, priority=_CONTENTS_ARE_DONE)
    app.connect("env-get-updated", _number_what_is_seen_first, priority=_CONTENTS_ARE_DONE)
    app.connect("env-check-consistency", _write_in_parallel)
    app.connect("html-page-context", _finish_page, priority=_THEME_IS_DONE)
    app.connect("build-finished", _add_mathjax)
    app.connect("build-finished", _offer_notebooks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
