"""Sphinx extension of the book: pages work without a network, link to files that exist and say where they come from.

It is listed in `_config.yml`. Of the staged book it reads only `_generated/claims.json`, for the line under each page;
it runs no code of a chapter and changes no text of a page.
"""

import functools
import html
import importlib.util
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.environment import BuildEnvironment
from sphinx.errors import ConfigError

from reproduced.claims.texts import provenance
from reproduced.pages import downloads, glossary
from reproduced.pages.layers import duration
from reproduced.pages.library import PAGE
from reproduced.run.book import GENERATED

# What the component `tex-chtml` loads at run time, 6.4 of the package's 24 MB: fonts, TeX extensions, accessibility.
_MATHJAX_PARTS = ("tex-chtml.js", "output/chtml/fonts", "input/tex/extensions", "a11y", "sre")
_MATHJAX_PACKAGE = "sphinx-mathjax-offline"
# Sphinx calls listeners in the order of these numbers; those of the theme and of MyST run at 500 and 501.
_BEFORE_THE_PARSER = 100
_THEME_IS_DONE = 900

Context = dict[str, Any]


def copy_mathjax(destination: Path) -> None:
    """Copy the parts of MathJax that the pages load into `destination`.

    Raises:
        ConfigError: if the package with MathJax is not installed, or lacks a part.
    """
    spec = importlib.util.find_spec(_MATHJAX_PACKAGE)
    if spec is None or spec.origin is None:
        raise ConfigError(f"MathJax comes from the package {_MATHJAX_PACKAGE}, which is absent; install leakage[book].")
    source = Path(spec.origin).parent / "static" / "mathjax"
    for part in _MATHJAX_PARTS:
        if (source / part).is_dir():
            shutil.copytree(source / part, destination / part, dirs_exist_ok=True)
        elif (source / part).is_file():
            destination.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source / part, destination / part)
        else:
            raise ConfigError(f"The package {_MATHJAX_PACKAGE} has no {part}; install the version in requirements.txt.")


def source_url(url: str) -> str:
    """The address of a page's source in the repository, where the theme gives that of the staged file.

    A chapter is staged as an executed notebook, and the repository holds it as MyST Markdown; a page of the library is
    made from a package. A link within the site, to download the notebook, stays. Colab opens notebooks only, so the
    workflow that publishes the site keeps those that were executed on a branch of their own.
    """
    if not url.startswith("https://"):
        return url
    if url.startswith("https://colab."):
        return re.sub(r"/blob/.*/", f"/blob/{downloads.BRANCH}/", url)
    if made := re.fullmatch(rf"(.*)/book/{PAGE}/(.+)\.md", url):
        folders = ["lib", "leakage", *made[2].split(".")]
        return "/".join([made[1], *dict.fromkeys(folders), "__init__.py"])
    return re.sub(r"\.ipynb(?=$|[?#&])", ".md", url)


def origin(ledgers: Mapping[str, Mapping[str, Any]], page: str) -> str:
    """The sentence under `page`: which run its numbers come from, or for a page without numbers those of the book."""
    if page in ledgers:
        ledger = ledgers[page]
        return f"Executed in {duration(ledger['seconds'])}: {provenance(ledger)}."
    if not ledgers:
        return "No chapter was executed for this copy of the book."
    runs = dict.fromkeys(provenance(ledger) for ledger in ledgers.values())
    seconds = duration(sum(ledger["seconds"] for ledger in ledgers.values()))
    return f"Chapters executed in {seconds}: {'; '.join(runs)}."


def read_ledgers(path: Path) -> dict[str, Mapping[str, Any]]:
    """The judged chapters by name; none if the book was staged without a run.

    Raises:
        ConfigError: if the file is not what `leakage build` writes.
    """
    if not path.exists():
        return {}
    try:
        ledgers = json.loads(path.read_text(encoding="utf-8"))["chapters"]
        return {ledger["chapter"]: ledger for ledger in ledgers}
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} is not a list of judged chapters ({error!r}); run `leakage build` again.") from error


def _footer(app: Sphinx, page: str) -> str:
    ledgers = read_ledgers(Path(app.srcdir) / GENERATED / "claims.json")
    sentence = html.escape(origin(ledgers, page))
    return (
        f"<p>{sentence}</p>"
        f"<p>© {html.escape(app.config.copyright)} {html.escape(app.config.author)}. "
        "Text and figures: CC BY 4.0. Code: MIT.</p>"
    )


def _name_the_repository(app: Sphinx, config: Config) -> None:
    """Give the pages the role `source` and the substitution `repository`, so that no page spells the address."""
    options = config.html_theme_options
    address, branch = options["repository_url"], options["repository_branch"]
    config.extlinks = {**config.extlinks, "source": (f"{address}/blob/{branch}/%s", "%s")}
    config.myst_substitutions = {**config.myst_substitutions, "repository": address}


def _offline_maths(app: Sphinx, error: Exception | None) -> None:
    if error is None and app.builder.format == "html":
        copy_mathjax(Path(app.outdir) / "_static" / "mathjax")


def _offer_what_was_executed(app: Sphinx, error: Exception | None) -> None:
    """Put the notebooks as they were executed in the place of those that a page was made from."""
    for notebook in (Path(app.srcdir) / GENERATED / downloads.FOLDER).glob("*.ipynb"):
        offered = Path(app.outdir) / "_sources" / notebook.name
        if error is None and offered.is_file():
            shutil.copyfile(notebook, offered)


def _write_side_by_side(app: Sphinx, env: BuildEnvironment) -> None:
    """Write pages on all processors; to read them so, each extension would have to merge what it has read."""
    app.parallel = os.cpu_count() or 1


def _finish_page(app: Sphinx, pagename: str, templatename: str, context: Context, doctree: Any) -> None:
    """Mend what theme and docutils put into the page: links, names, scripts of an unused service, roles, footer."""
    for group in context.get("header_buttons", ()):
        for button in group.get("buttons", ()):
            if "url" in button:
                button["url"] = source_url(button["url"])
    # sphinx-thebe adds these whether or not it is used: a script of another host, and a constant declared twice.
    context["script_files"] = [
        script for script in context.get("script_files", ()) if "thebe" not in _content(script).lower()
    ]
    if "generate_toctree_html" in context:
        context["generate_toctree_html"] = _with_names(context["generate_toctree_html"])
    context["theme_extra_footer"] = _footer(app, pagename)
    if "body" in context:
        body = _without_misplaced_roles(context["body"])
        context["body"] = glossary.with_definitions(body, _meanings(Path(app.srcdir) / "glossary.md"))


@functools.cache
def _meanings(page: Path) -> Mapping[str, str]:
    return glossary.definitions(page.read_text("utf-8")) if page.is_file() else {}


def _with_names(contents: Callable[..., Any]) -> Callable[..., str]:
    """The function that makes the list of pages, with a name on what unfolds a part: the theme shows a sign only."""
    return lambda *given, **named: str(contents(*given, **named)).replace(
        "<summary>", '<summary aria-label="Show or hide the pages below">'
    )


def _without_misplaced_roles(body: str) -> str:
    # docutils calls a bibliography a list but puts other elements between its items, which screen readers stumble over.
    return body.replace(' role="list" class="citation-list"', ' class="citation-list"').replace(
        ' role="doc-biblioentry"', ""
    )


def _content(script: Any) -> str:
    attributes = getattr(script, "attributes", {}) or {}
    return f"{getattr(script, 'filename', script)} {attributes.get('body', '')}"


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the listeners (called by Sphinx)."""
    app.setup_extension("sphinx.ext.extlinks")
    app.setup_extension("reproduced.pages.folds")
    app.config.mathjax_path = "mathjax/tex-chtml.js"
    app.connect("config-inited", _name_the_repository, priority=_BEFORE_THE_PARSER)
    app.connect("env-check-consistency", _write_side_by_side)
    app.connect("html-page-context", _finish_page, priority=_THEME_IS_DONE)
    app.connect("build-finished", _offline_maths)
    app.connect("build-finished", _offer_what_was_executed)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
