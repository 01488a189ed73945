"""The code at the top of the README runs as it stands, prints what it says, and is short."""

import re
import shlex
from pathlib import Path

import pytest

from reproduced import command_line

TEXT = (Path(__file__).parents[1] / "README.md").read_text("utf-8")
PYTHON = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
PRINTED = re.findall(r"^```text\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
(COMMAND,) = re.findall(r"^leakage audit .*$", TEXT, re.MULTILINE)
DOORS = (*PYTHON[:2], PYTHON[2] + COMMAND)


@pytest.fixture(scope="module")
def names():
    """What the examples have defined: each goes on where the one before it ended."""
    return {}


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory):
    """The examples write into the folder that they are run in."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("reader"))
        yield Path.cwd()


def numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"\d\.\d+", text)]


def agrees(found: str, said: str) -> bool:
    """The same words, and numbers that differ by what another processor's rounding does to a training at most."""
    assert re.sub(r"\d\.\d+", "0", found) == re.sub(r"\d\.\d+", "0", said)
    return numbers(found) == pytest.approx(numbers(said), abs=0.02)


@pytest.mark.parametrize("door", DOORS)
def test_each_door_comes_first_and_has_ten_lines(door):
    assert TEXT.index(door.splitlines()[0]) < TEXT.index("\n## ")
    assert len([line for line in door.splitlines() if line]) <= 10


def test_a_pipeline_is_audited_as_the_readme_says(names, capsys):
    exec(PYTHON[0], names)
    assert agrees(capsys.readouterr().out, PRINTED[0])


def test_a_network_is_audited_as_the_readme_says(names, folder, capsys):
    exec(PYTHON[1], names)
    assert agrees(capsys.readouterr().out, PRINTED[1])
    assert len([*(folder / "trained").iterdir()]) == 16


def test_a_file_is_audited_as_the_readme_says(names, folder, capsys):
    exec(PYTHON[2], names)
    assert command_line.main(shlex.split(COMMAND)[1:]) == 0
    assert "RMIA" in capsys.readouterr().out
    assert "<svg" in (folder / "audit.html").read_text("utf-8")


def test_labels_alone_tell_as_the_readme_says(names, capsys):
    exec(PYTHON[3], names)
    assert agrees(capsys.readouterr().out, PRINTED[2])
