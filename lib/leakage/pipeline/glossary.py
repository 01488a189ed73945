"""Back links of the glossary: below each term, the chapters whose text links to it.

A chapter uses a term by the role `{term}`; which do is read from their sources, so that the list cannot be out of date.
Everything here is a function from texts to text.
"""

import re
from collections.abc import Mapping

_ROLE = re.compile(r"\{term\}`(?:[^`<]*<([^`>]+)>|([^`]+))`")
_BLOCK = re.compile(r"^(:{3,})\{glossary\}\n(.*?)^\1$", re.MULTILINE | re.DOTALL)


def terms(source: str) -> frozenset[str]:
    """The terms that a page links to, in lower case."""
    return frozenset(" ".join((named or said).split()).lower() for named, said in _ROLE.findall(source))


def with_links(glossary: str, chapters: Mapping[str, str], labels: Mapping[str, str]) -> str:
    """The glossary with the chapters that use each term.

    Args:
        glossary: the source of the page; a term stands alone on a line, its definition indented below it.
        chapters: the sources of the chapters, by name.
        labels: what a link to each is called.
    """
    used = {name: terms(source) for name, source in chapters.items()}
    return _BLOCK.sub(lambda block: f"{block[1]}{{glossary}}\n{_linked(block[2], used, labels)}{block[1]}", glossary)


def _linked(block: str, used: Mapping[str, frozenset[str]], labels: Mapping[str, str]) -> str:
    entries = [_entry(entry, used, labels) for entry in block.strip("\n").split("\n\n")]
    return "\n\n".join(entries) + "\n"


def _entry(entry: str, used: Mapping[str, frozenset[str]], labels: Mapping[str, str]) -> str:
    names = {line.strip().lower() for line in entry.splitlines() if line and not line.startswith(" ")}
    links = [f"[{labels[name]}]({name})" for name, found in used.items() if names & found]
    return f"{entry}\n  *Used in* {', '.join(links)}." if links else entry
