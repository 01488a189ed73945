"""The glossary's links both ways: below a term the chapters that use it, and on a page what its terms mean.

A chapter uses a term by the role `{term}`; which do is read from their sources, so that the list cannot be out of date.
The first link to a term on a page carries its definition, which `_static/custom.css` shows to whoever points at the
link or comes to it by the keyboard. Everything here is a function from texts to text.
"""

import html
import re
from collections.abc import Mapping

_ROLE = re.compile(r"\{term\}`(?:[^`<]*<([^`>]+)>|([^`]+))`")
_CITED = re.compile(r" *\{cite:\w+\}`[^`]*`")
_LINKED = re.compile(r"\[([^]]*)\]\([^)]*\)")
_MATHS = {
    r"\varepsilon": "ε",
    r"\delta": "δ",
    r"\lambda": "λ",
    r"\beta": "β",
    r"\lVert": "‖",
    r"\rVert": "‖",
    r"\pm": "±",
}
_MATHS |= {r"\max": "max", "^2": "²", "^{ε}": "^ε"}  # all that the first sentences have
_TO_A_TERM = re.compile(r'<a class="reference internal" href="(?:\.\./)*glossary\.html#term-([^"]+)"')
_BLOCK = re.compile(r"^(:{3,})\{glossary\}\n(.*?)^\1$", re.MULTILINE | re.DOTALL)


def terms(source: str) -> frozenset[str]:
    """The terms that a page links to, in lower case."""
    return frozenset(" ".join((named or said).split()).lower() for named, said in _ROLE.findall(source))


def link_chapters(glossary: str, chapters: Mapping[str, str], labels: Mapping[str, str]) -> str:
    """The source of the glossary with links to the chapters that use each term, by their sources and labels."""
    used = {name: terms(source) for name, source in chapters.items()}

    def link(block: re.Match[str]) -> str:
        entries = [_entry(entry, used, labels) for entry in block[2].strip("\n").split("\n\n")]
        return f"{block[1]}{{glossary}}\n" + "\n\n".join(entries) + f"\n{block[1]}"

    return _BLOCK.sub(link, glossary)


def _entry(entry: str, used: Mapping[str, frozenset[str]], labels: Mapping[str, str]) -> str:
    names = {line.strip().lower() for line in entry.splitlines() if line and not line.startswith(" ")}
    links = [f"[{labels[name]}]({name})" for name, found in used.items() if names & found]
    return f"{entry}\n  *Used in* {', '.join(links)}." if links else entry


def definitions(source: str) -> dict[str, str]:
    """What each term of a glossary means, its first sentence as plain text, by the name of its place in lower case."""
    found = {}
    for block in _BLOCK.findall(source):
        for entry in block[1].strip("\n").split("\n\n"):
            names = [line for line in entry.splitlines() if not line.startswith(" ")]
            first = next(line.strip() for line in entry.splitlines() if line.startswith(" "))
            found |= {re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-"): _remove_markup(first) for name in names}
    return found


def _remove_markup(sentence: str) -> str:
    """A sentence of the glossary without markup."""
    text = _ROLE.sub(lambda role: role[2] or role[0].partition("`")[2].partition("<")[0].strip(), sentence)
    text = _LINKED.sub(r"\1", _CITED.sub("", text))
    for written, meant in _MATHS.items():
        text = text.replace(written, meant)
    return re.sub(r"[$*`]", "", text).replace("  ", " ")


def add_definitions(body: str, meanings: Mapping[str, str]) -> str:
    """The HTML of a page in which the first link to each term carries what the term means."""
    told = set()

    def carry(link: re.Match[str]) -> str:
        name = link[1].lower()
        if name in told or name not in meanings:
            return link[0]
        told.add(name)
        return f'{link[0]} data-definition="{html.escape(meanings[name])}"'

    return _TO_A_TERM.sub(carry, body)
