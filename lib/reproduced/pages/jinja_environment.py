"""The templates of pages and parts of pages, which lie in the folder `templates`, and what they call.

A template `*.html` escapes every text; a template `*.md` makes MyST and passes claims through `escape_text`.
"""

import functools
import html
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markdown_it import MarkdownIt
from markupsafe import Markup
from mdit_py_plugins.dollarmath import dollarmath_plugin

from reproduced.claims import measurements
from reproduced.claims.declarations import HELD, KINDS
from reproduced.claims.texts import OURS, SIGNS, escape_text, rule_text, verdict_words
from reproduced.pages.findings import READING_ORDER, slug

EXACT_MARK = "exact"  # the mark of a claim that is true by algebra or construction, and the term of the glossary


def fill_template(template: str, **values: Any) -> str:
    """The text of a template with these values."""
    return _environment().get_template(template).render(values)


@functools.cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("reproduced.pages"),
        autoescape=select_autoescape(["html"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "escape_text": escape_text,
        "name": lambda name: name.replace("_", " "),
        "rule_text": rule_text,
        "sentence": sentence_html,
        "describe": measurements.describe,
        "short_name": lambda module: module.partition(".")[2],
        "slug": slug,
        "thousands": "{:,}".format,
        "verdict_words": verdict_words,
    }
    environment.globals |= {
        "EXACT_MARK": EXACT_MARK,
        "HELD": HELD,
        "KINDS": KINDS,
        "OURS": OURS,
        "READING_ORDER": READING_ORDER,
        "SIGNS": SIGNS,
    }
    return environment


def sentence_html(text: str) -> Markup:
    """One line of Markdown with `$mathematics$` as HTML, as MathJax expects it; a tag in the text is text."""
    return Markup(_markdown().renderInline(escape_text(text).replace("&lt;", "<")).strip())


@functools.cache
def _markdown() -> MarkdownIt:
    reader = MarkdownIt("commonmark", {"html": False})
    reader.use(dollarmath_plugin, allow_space=False, renderer=lambda content, _: rf"\({html.escape(content)}\)")
    return reader.disable("image")
