"""The README is short, leads with the book, and its example runs as it stands and prints what it says."""

import re
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[1] / "README.md").read_text("utf-8")
(EXAMPLE,) = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
(PRINTED,) = re.findall(r"^```text\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
MOST_LINES = 140


def numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"\d\.\d+", text)]


def agrees(found: str, said: str) -> bool:
    """The same words, and numbers that differ by what another processor's rounding does to a training at most."""
    assert re.sub(r"\d\.\d+", "0", found) == re.sub(r"\d\.\d+", "0", said)
    return numbers(found) == pytest.approx(numbers(said), abs=0.02)


def test_it_is_short_and_leads_with_the_book():
    assert len(TEXT.splitlines()) <= MOST_LINES
    places = [TEXT.index(part) for part in ("<img ", "## Two commands", "## How to read a verdict", "```python")]
    assert places == sorted(places)
    assert len([line for line in EXAMPLE.splitlines() if line]) <= 10


def test_a_pipeline_is_audited_as_it_says(capsys):
    exec(EXAMPLE, {})
    assert agrees(capsys.readouterr().out, PRINTED)


def test_running_times_are_given_in_one_place():
    assert not re.search(r"\bminutes?\b|\bseconds?\b|\bhours?\b", TEXT), "book/run_it.md has the running times"
