"""`leakage data` fetches what claims need, and a build that calls it never fails or waits for it."""

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from checking import HANGS
from leakage import command_line
from leakage.data import datasets
from reproduced.run import data_command
from small_data import entry, pack, put, register, serving, tree

ROOT = Path(__file__).parents[3]
NAMES = ("one", "two")
RULES = "kind: figure, values: {x: W}, holds: x.low > 1, refuted: x.low < 1"
CLAIM = "{id: b.%s, claim: C., where: W, " + RULES + ", expected: held, needs: [%s]}"
CLAIMS = f"{{chapter: mini, prefix: b, title: T, paper: k, data: [one, two], claims: [{{}}, {CLAIM % ('x', 'two')}]}}"
BUILD = ("--needed", "--if-possible")


@pytest.fixture
def site():
    with serving() as running:
        running.files |= {f"/{name}": pack(name.encode()) for name in NAMES}
        yield running


@pytest.fixture
def add(monkeypatch):
    """Register a set of one file that holds its own name, to be had at an address."""

    def add_set(name, url):
        register(monkeypatch, entry(name.encode(), path=f"{name}/content.gz", url=url), name=name)

    return add_set


@pytest.fixture
def folder(tmp_path, monkeypatch, site, add):
    """An empty data folder; the registry has two sets that the server has, and a book with a claim for each."""
    for path, text in {
        "book/claims/mini.yml": CLAIMS.replace("{}", CLAIM % ("y", "one"), 1),
        "_toc.yml": "root: intro\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    monkeypatch.setenv("LEAKAGE_DATA", str(tmp_path / "data"))
    monkeypatch.setattr("pooch.core.time.sleep", lambda seconds: None)
    for name in NAMES:
        add(name, f"{site.address}/{name}")
    return tmp_path / "data"


def run(capsys, *arguments):
    """Exit status, lines of output and lines of complaint."""
    status = command_line.main(["data", *arguments])
    told = capsys.readouterr()
    return status, told.out.splitlines(), told.err.splitlines()


def closed_address():
    """An address where nobody listens."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{closed.getsockname()[1]}/file"


def test_the_sets_that_claims_of_the_book_need_are_all_there_are():
    assert data_command.needed_datasets(ROOT) == tuple(datasets.DATASETS)


@pytest.mark.parametrize("options", [("--needed",), BUILD])
def test_what_claims_need_is_fetched_once(folder, site, capsys, options):
    assert run(capsys, *options) == (0, [f"{name}: verified, in {folder}" for name in NAMES], [])
    before = tree(folder)
    status, told, complaints = run(capsys, *options)
    assert (status, complaints, len(told)) == (0, [], 0 if options == BUILD else 2)
    assert tree(folder) == before
    assert len(site.asked) == 2


def test_without_a_network_one_line_says_so_and_a_build_goes_on(folder, capsys, monkeypatch, add):
    asked = []
    original = datasets.fetch
    monkeypatch.setattr(datasets, "fetch", lambda name, **given: asked.append((name, given)) or original(name, **given))
    for name in NAMES:
        add(name, closed_address())
    status, told, complaints = run(capsys, *BUILD)
    assert (status, told, asked) == (0, [], [("one", {"timeout": data_command.HURRIED_SECONDS, "retries": 0})])
    (line,) = complaints
    assert line.startswith("leakage: not fetched: one, two. http://127.0.0.1")
    assert "OFFLINE=1 does not try" in line
    assert list(tree(folder)) == [".", "one"]


@pytest.mark.parametrize("arguments", [("--needed",), NAMES])
def test_a_set_that_cannot_be_had_keeps_no_other_set_away(folder, site, capsys, arguments):
    del site.files["/one"]
    status, told, (line,) = run(capsys, *arguments)
    assert (status, len(told)) == (1, 1)
    assert "http://127.0.0.1" in line
    assert datasets.is_available("two")


@pytest.mark.parametrize(("arguments", "expected"), [(("--needed",), 1), (BUILD, 0), (NAMES, 1)])
@pytest.mark.parametrize("damage", [b"damaged", pack(b"eno")])
def test_a_damaged_file_is_named_with_the_cure_and_left_as_it_is(folder, site, capsys, arguments, expected, damage):
    path = put(folder, damage, "one/content.gz")
    status, told, complaints = run(capsys, *arguments)
    assert (status, len(told)) == (expected, 1)
    (line,) = complaints
    assert line.startswith(f"leakage: Tiny: {path} is refused: ")
    assert "Move it away." in line
    assert "by `.venv/bin/leakage data one`" in line
    assert path.read_bytes() == damage
    assert site.asked == ["/two"]


def test_a_folder_that_cannot_be_written_is_one_line(folder, capsys, monkeypatch):
    (folder / "not a folder").write_bytes(b"")
    monkeypatch.setenv("LEAKAGE_DATA", str(folder / "not a folder"))
    for arguments, expected in ((("--needed",), 1), (BUILD, 0), (NAMES, 1)):
        status, told, complaints = run(capsys, *arguments)
        assert (status, told, len(complaints)) == (expected, [], 2)
        assert "Set LEAKAGE_DATA to a folder you may write to" in complaints[0]


def test_the_list_names_states_and_damage_and_the_folder(folder, capsys):
    put(folder, b"damaged", "one/content.gz")
    status, told, (line,) = run(capsys)
    assert status == 0
    states = {row.split()[0]: row.split()[1] for row in told if row and not row.startswith((" ", "Folder"))}
    assert states.keys() == datasets.DATASETS.keys()
    assert (states["one"], states["two"]) == ("damaged", "absent")
    assert f"{folder}/one/content.gz is refused" in line
    assert told[-1] == f"Folder: {folder} (set LEAKAGE_DATA to change it)"


def test_every_workflow_that_makes_the_book_has_the_data_that_claims_need():
    building = []
    for path in sorted((ROOT / ".github" / "workflows").glob("*.yml")):
        for name, job in yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].items():
            steps = job.get("steps", ())  # a job may be another workflow
            commands = " ".join(step.get("run", "") for step in steps)
            if re.search("make book(?!.*OFFLINE=1)|leakage build", commands):
                given = [step.get("with", {}).get("data") for step in steps if "set-up" in step.get("uses", "")]
                assert given == ["needed"], f"{path.name}: {name}"
                building.append(path.name)
    assert {*building} == {"book.yml", "release.yml", "weekly.yml"}
    action = yaml.safe_load((ROOT / ".github/actions/set-up/action.yml").read_text(encoding="utf-8"))
    assert "make data" in [step.get("run") for step in action["runs"]["steps"]]


@pytest.mark.parametrize("arguments", [("one", "--needed"), ("--if-possible",), ("one", "--if-possible"), ("three",)])
def test_a_request_that_makes_no_sense_is_refused(folder, capsys, arguments):
    status, told, complaints = run(capsys, *arguments)
    assert (status, told, len(complaints)) == (2, [], 1)


@pytest.mark.parametrize(
    ("goal", "expected"),
    [
        (("data",), ["data --needed"]),
        (("book",), ["data --needed --if-possible", "build --profile ci --seed 0 --device auto"]),
        (("book", "OFFLINE=1"), ["build --profile ci --seed 0 --device auto"]),
        (("book", "OFFLINE=0"), ["data --needed --if-possible", "build --profile ci --seed 0 --device auto"]),
    ],
    ids=" ".join,
)
def test_make_asks_for_data_and_goes_on_whatever_comes_of_it(tmp_path, goal, expected):
    asked, command = tmp_path / "asked", tmp_path / "venv" / "bin" / "leakage"
    command.parent.mkdir(parents=True)
    failing = 'case "$*" in *--if-possible*) exit 1;; esac'
    command.write_text(f'#!/bin/sh\necho "$*" >> "{asked}"\n{failing}\n', encoding="utf-8")
    command.chmod(0o755)
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in ("pyproject.toml", "requirements.txt", "venv/.ready"):  # as if it were installed
        (tmp_path / name).touch()
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("MAKE") and name != "OFFLINE"
    }
    result = subprocess.run(
        ["make", *goal, "VENV=venv", f"PYTHON={sys.executable}"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        timeout=HANGS,
    )
    assert result.returncode == 0, result.stderr
    assert asked.read_text(encoding="utf-8").splitlines() == expected
