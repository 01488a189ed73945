"""Sphinx extension: pages with a table of claims or of measurements get the scripts that sort and filter it.

jupyter-book puts every script and style below `_static/` on every page; those of the tables weigh more than most pages
and stay only where there is such a table. MathJax is loaded
where a table has formulas. Nothing here changes the text of a page.
"""

import re
from collections.abc import Callable
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

_AFTER_THE_THEME = 950  # Sphinx calls listeners in the order of these numbers
_LIBRARY = re.compile(r"(?:^|/)datatables/")
_OURS = re.compile(r"(?:^|/)tables\.js")
_SORTED = re.compile(r'class="[^"]*\bclaims-table\b')
_FORMULA = 'class="math'
_VERDICTS = re.compile(r"<th[^>]*>(?:<p>)?why(?:</p>)?</th>")  # a column of what a chapter's ledger writes


def unneeded(body: str) -> Callable[[str], bool]:
    """Whether a page with this text has no need of the script or style of a name."""
    is_sorted = bool(_SORTED.search(body))
    has_any = is_sorted or bool(_VERDICTS.search(body))
    return lambda name: bool((_LIBRARY.search(name) and not is_sorted) or (_OURS.search(name) and not has_any))


def _keep_where_needed(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
    leave_out = unneeded(context.get("body") or "")
    for kind in ("script_files", "css_files"):
        if kind in context:
            context[kind] = [file for file in context[kind] if not leave_out(str(getattr(file, "filename", file)))]


def _expect_mathematics(app: Sphinx, document: nodes.document) -> None:
    """Tell Sphinx that a page has formulas if they stand in a raw table, so that it loads MathJax there."""
    if any(_FORMULA in node.astext() for node in document.findall(nodes.raw)):
        app.env.get_domain("math").data["has_equations"][app.env.docname] = True


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the listeners (called by Sphinx)."""
    app.connect("doctree-read", _expect_mathematics)
    app.connect("html-page-context", _keep_where_needed, priority=_AFTER_THE_THEME)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
