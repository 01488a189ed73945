"""Sentences of the claims files as HTML: Markdown of one line with mathematics, safe whatever is in it.

For tables whose rows have anchors, properties and folds, which a Markdown table cannot have. The mathematics comes out
as MathJax expects it; a tag in the text is text. Nothing here knows what the sentences say.
"""

import functools
import html
from collections.abc import Iterable
from typing import Any

from markdown_it import MarkdownIt
from mdit_py_plugins.dollarmath import dollarmath_plugin

from reproduced.claims.texts import escape_text

escape = html.escape


def _mathematics(content: str, options: dict[str, Any]) -> str:
    return rf"\({escape(content)}\)"


@functools.cache
def _reader() -> MarkdownIt:
    reader = MarkdownIt("commonmark", {"html": False})
    reader.use(dollarmath_plugin, allow_space=False, renderer=_mathematics)
    return reader.disable("image")


def rendered(text: str) -> str:
    """`text`, one line of Markdown with `$mathematics$`, as the HTML of a sentence."""
    return _reader().renderInline(escape_text(text).replace("&lt;", "<")).strip()


def element(tag: str, content: str, **attributes: str | None) -> str:
    """An element with `content`, which is HTML already; an underscore in an attribute's name becomes a dash.

    Attributes that are None are left out.
    """
    given = {name.strip("_").replace("_", "-"): value for name, value in attributes.items() if value is not None}
    told = "".join(f' {name}="{escape(value)}"' for name, value in given.items())
    return f"<{tag}{told}>{content}</{tag}>"


def link(content: str, address: str) -> str:
    """A link; `content` alone where there is no address."""
    return element("a", content, href=address) if address else content


def block(*lines: str) -> str:
    """HTML as a block of a MyST page."""
    return "````{raw} html\n" + "\n".join(lines) + "\n````\n"


def table(heads: str, rows: Iterable[str], **attributes: str | None) -> str:
    """A table of a row of heads and rows of cells, which are HTML already; attributes as of `element`."""
    body = "\n".join(rows)
    return element("table", f"<thead>{element('tr', heads)}</thead>\n<tbody>\n{body}\n</tbody>", **attributes)
