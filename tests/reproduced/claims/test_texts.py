"""No text of the ledger becomes more on a page than words, links, mathematics and code."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it.renderer import RendererHTML
from myst_parser.config.main import MdParserConfig
from myst_parser.parsers.mdit import create_md_parser

from reproduced.claims import texts


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("a | b", r"a \| b"),
        ("two\nlines", "two lines"),
        ("$|x| < 2$ and <b>", r"$\|x\| < 2$ and &lt;b>"),
        ("`a < b` < c", "`a < b` &lt; c"),
        (r"$\|x\|$", r"$\\|x\\|$"),
        (r"\$<script>x</script>\$", r"\$&lt;script>x&lt;/script>\$"),
        (r"\`<img src=x>\`", r"\`&lt;img src=x>\`"),
        ("![x](http://a.b) `![`", "! [x](http://a.b) `! [`"),
    ],
)
def test_no_text_can_end_a_cell_of_a_table(text, cell):
    assert texts.escape_cell(text) == cell


EXTENSIONS = ["amsmath", "attrs_inline", "colon_fence", "deflist", "dollarmath", "substitution", "tasklist"]
READER = create_md_parser(MdParserConfig(enable_extensions=EXTENSIONS), RendererHTML)
LIVE = {"html_inline", "html_block", "substitution_inline", "substitution_block", "myst_role", "fence", "colon_fence"}
LIVE |= {"heading_open", "blockquote_open", "code_block", "myst_line_comment", "image"}
# What Markdown, mathematics and templates are made of; texts of these are more hostile than texts at random.
PIECES = ["<", "<b>", "<!--", "<?", "</", ">", "$", "$$", "`", "``", "```", "~~~", ":::", "\\", "{", "{{", "}", "}}"]
PIECES += ["|", "{raw}", "!", "[x]", "(javascript:a)", "&lt;", "#", "%", "script", "a", "5", "é", "*", "_", " ", "\n"]
PIECES += ["\u2028", "\t"]


def live(text: str) -> set[str]:
    """What the book's renderer would make of a text, beyond words, links, mathematics and code."""
    tokens = READER.parse(text)
    return {part.type for token in tokens for part in (token, *(token.children or ()))} & LIVE


def test_the_renderer_makes_tags_templates_and_roles_of_raw_text():
    raw = "<b> ![x](a) {{ x }} {raw}`x`\n\n# T\n\n> q\n\n% c\n\n```{x}\n```\n\n<p>\n\n    code\n\n:::{x}\n:::\n\n"
    assert live(raw + "{{ y }}\n") == LIVE


@settings(max_examples=400, deadline=None, derandomize=True)
@given(text=st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
@example(text=r"\$<script>alert(1)</script>\$")
@example(text=r"\`<img src=x onerror=alert(1)>\`")
@example(text="`{{ x }}` <b>")
@example(text="![x](javascript:a) `![x](a)")
def test_no_text_becomes_more_than_words_mathematics_and_code(text):
    assert not live(texts.escape_text(text) + "\n")
    row = texts.table(("a", "b", "c"), [("x", text, "y")])
    assert not live(row)
    body = [token.content for token in READER.parse(row) if token.type == "inline"][3:]
    assert (len(body), body[0], body[-1]) == (3, "x", "y")
