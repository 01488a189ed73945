"""Two questions about sentences: is a result typed in them, and do they point up or down the page?

Both are answered by patterns, on words alone (`chapter_reading.words`), so both have a table of cases in
tests/test_chapters.py. A miss costs little; a false alarm costs a writer's patience, so in doubt they keep silent.
"""

import re

_NUMBER = r"\d+\.\d+(?:[eE][+-]?\d+)?"
_DECIMAL = re.compile(rf"(?<![\w.]){_NUMBER}(?![.\d]*[A-Za-z_])")
_BARE_FORMULA = re.compile(
    rf"(?<![\\$])\$\s*(?:\\(?:approx|sim|pm|leq?|geq?|ll|gg)\b|[=<>≈~±+-]|\s)*({_NUMBER})\s*(?:\\?%)?\s*\$(?!\$)"
)
# A number after one of these is the name of a place in a text, of a version or of a licence.
_NAMED = "|".join(
    (
        "Theorem|Thm|Lemma|Proposition|Prop|Corollary|Cor|Definition|Remark|Assumption|Algorithm",
        "Chapter|Section|Sec|Appendix|Table|Figure|Fig|Equation|Eqn?|arXiv:|version|v|CC BY|CC BY-SA",
    )
)
_ONE_NAME = r"\(?[A-Z]?\.?\d+(?:\.\d+)*\)?(?:\([a-z]\))?"
_NAMED_NUMBER = re.compile(
    rf"\b(?:{_NAMED})s?\.?[\s~]*{_ONE_NAME}(?:(?:,| and|,? or|–|-| to)[\s~]*{_ONE_NAME})*|§\s*{_ONE_NAME}",
    re.IGNORECASE,
)

_THING = "|".join(
    (
        "box|cell|code|curve|equation|example|figure|formula|histogram|line|list|panel|paragraph|picture|plot|result",
        "section|table|theorem",
    )
)
_DONE = "|".join(
    (
        "as|defined|described|derived|discussed|drawn|explained|found|given|listed|mentioned|noted|plotted|proved|said",
        "see|seen|shown|stated|used",
    )
)
# "the curve below." points; "the curve below the diagonal" does not.
_ENDS = r"(?=\s*(?:[.,;:)!?—–]|\Z|(?:is|are|was|were|has|have|shows?|gives?|says?|we)\b))"
_POINTERS = (
    re.compile(r"\b(?:the|all) (?:above|below)\b(?![\s-]*(?:\$|average))", re.IGNORECASE),
    re.compile(rf"\b(?:{_THING})s? (?:above|below)\b{_ENDS}", re.IGNORECASE),
    re.compile(rf"\b(?:{_DONE}) (?:above|below)\b{_ENDS}", re.IGNORECASE),
    re.compile(r"(?:\A|(?<=[.!?:]\s))(?:Above|Below)(?=,| (?:is|are|we|you)\b)"),
    re.compile(r"\b(?:above|below)-(?:mentioned|named|given)\b", re.IGNORECASE),
)


def typed_decimals(prose: str, words: str) -> list[str]:
    """Decimals among the words, and formulas that hold nothing but one; numbers that name a place do not count."""
    return [match.group(0) for match in _DECIMAL.finditer(_NAMED_NUMBER.sub(" ", words))] + _BARE_FORMULA.findall(prose)


def pointers(words: str) -> list[str]:
    """The places where the words refer to something as "above" or "below"; comparisons may use both words."""
    flat = [" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", words)]
    return [match.group(0) for text in flat for pattern in _POINTERS for match in pattern.finditer(text)]
