"""`leakage data` fetches what claims need, and a build that calls it never fails, waits or overwrites for it."""

import math
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest
import yaml

from leakage.data import fetch, registry
from leakage.pipeline import cli, datasets
from patience import HANGS
from small_data import dataset, entry, pack, put, serving, tree, unverified

ROOT = Path(__file__).parents[1]
NAMES = ("one", "two")
RULES = "kind: figure, values: {x: W}, holds: x.low > 1, refuted: x.low < 1"
CLAIM = "{id: b.%s, claim: C., where: W, " + RULES + ", expected: held, needs: [%s]}"
CLAIMS = f"{{chapter: mini, prefix: b, title: T, paper: k, data: [one, two], claims: [{{}}, {CLAIM % ('x', 'two')}]}}"
BUILD = ("--needed", "--if-possible")


@pytest.fixture
def site():
    with serving() as running:
        running.files |= {f"/{name}": pack(name.encode(), "gzip") for name in NAMES}
        yield running


@pytest.fixture
def folder(tmp_path, monkeypatch, site):
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
    monkeypatch.setattr(fetch, "fetch", partial(fetch.fetch, _schemes=("http",)))
    for name in NAMES:
        register(monkeypatch, name, f"{site.address}/{name}")
    return tmp_path / "data"


def register(monkeypatch, name, url):
    files = (entry(name.encode(), path=f"{name}/content.bin", url=url),)
    monkeypatch.setitem(registry.DATASETS, name, dataset(*files, name=name))


def run(capsys, *arguments):
    """Exit status, lines of output and lines of complaint."""
    status = cli.main(["data", *arguments])
    told = capsys.readouterr()
    return status, told.out.splitlines(), told.err.splitlines()


def closed_address():
    """An address where nobody listens."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{closed.getsockname()[1]}/file"


def test_the_sets_that_claims_of_the_book_need_are_verified_small_and_have_an_address():
    names = datasets.needed(ROOT)
    assert names == ("mnist", "location", "adult", "multi30k")
    files = [file for name in names for file in registry.dataset(name).files]
    assert all(file.verified for file in files)
    assert 19e6 < sum(file.at_most for file in files if file.url) < 21e6  # twice and more what they are today


def test_the_list_tells_sizes_that_are_known_as_they_are_and_others_as_bounds(folder, monkeypatch, capsys):
    payload, other = b"1" * 1_500_000, b"2" * 2_500_000
    forms = [
        entry(form, url=url, name=name, path=f"forms/{name}")
        for name, form, url in (("a", payload, None), ("b", other, "https://x.invalid"))
    ]
    monkeypatch.setitem(registry.DATASETS, "forms", dataset(*forms, any_file=True, name="forms"))
    bound = entry(payload, path="bound/file", size=None, limit=9_000_000)
    monkeypatch.setitem(registry.DATASETS, "bound", dataset(bound, name="bound"))

    def sizes():
        lines = run(capsys)[1]
        return [
            re.search(rf"^{name} .*? ((?:≤ )?[0-9.]+) MB", "\n".join(lines), re.MULTILINE)[1]
            for name in ("forms", "bound")
        ]

    assert sizes() == ["2.5", "≤ 9.0"]
    put(folder, pack(payload, "gzip"), "forms/a")
    put(folder, pack(payload, "gzip"), "bound/file")
    assert sizes() == ["1.5", "1.5"]


@pytest.mark.parametrize("options", [("--needed",), BUILD])
def test_what_claims_need_is_fetched_once(folder, site, capsys, options):
    assert run(capsys, *options) == (0, [f"{name}: verified, in {folder}" for name in NAMES], [])
    before = tree(folder)
    status, told, complaints = run(capsys, *options)
    assert (status, complaints, len(told)) == (0, [], 0 if options == BUILD else 2)
    assert tree(folder) == before
    assert len(site.headers) == 2


def test_without_a_network_one_line_says_so_and_a_build_goes_on(folder, site, capsys, monkeypatch):
    asked = []
    monkeypatch.setattr(
        fetch, "fetch", lambda name, original=fetch.fetch, **given: asked.append(name) or original(name, **given)
    )
    for name in NAMES:
        register(monkeypatch, name, closed_address())
    status, told, complaints = run(capsys, *BUILD)
    assert (status, told, asked) == (0, [], ["one"])
    (line,) = complaints
    assert line.startswith("leakage: not fetched: one, two. http://127.0.0.1")
    assert "OFFLINE=1 does not try" in line
    assert list(tree(folder)) == [".", "one"]


def test_a_host_that_cannot_be_reached_keeps_no_other_set_away(folder, site, capsys, monkeypatch):
    register(monkeypatch, "one", closed_address())
    for arguments in (("--needed",), NAMES):
        status, told, (line,) = run(capsys, *arguments)
        assert (status, len(told)) == (1, 1)
        assert "cannot be reached" in line
        assert fetch.available("two")


def test_a_server_that_dribbles_holds_a_build_up_no_longer_than_its_budget(folder, site, capsys, monkeypatch):
    monkeypatch.setattr(datasets, "BUDGET", 0.0)
    site.dribble = threading.Event()
    status, told, (line,) = run(capsys, *BUILD)
    site.dribble.set()
    assert (status, told) == (0, [])
    assert re.match("leakage: not fetched: one, two. http.* is too slow: 1 of [0-9]+ bytes came, which are kept", line)
    assert "`make data` tries again" in line
    site.dribble = None
    assert run(capsys, *BUILD)[0] == 0
    assert "Range" in site.headers[1]
    assert all(map(fetch.available, NAMES))


def test_a_build_waits_for_one_answer_only_and_not_long(folder, monkeypatch):
    given = []

    def fetched(name, *, patience, until):
        given.append(patience)
        assert (until < math.inf) == (patience == datasets.HURRIED)
        raise datasets.DownloadBlocked("no answer")

    monkeypatch.setattr(fetch, "fetch", fetched)
    for hurried in (True, False):
        list(datasets.fetch_needed(None, hurried=hurried))
    assert given == [datasets.HURRIED, fetch.PATIENCE, fetch.PATIENCE]
    assert datasets.HURRIED <= 5


@pytest.mark.parametrize(("options", "expected"), [(("--needed",), 1), (BUILD, 0)])
@pytest.mark.parametrize("damage", [b"damaged", pack(b"eno", "gzip"), pack(b"one", "gzip")[:-9]])
def test_a_damaged_file_is_named_with_the_cure_and_left_as_it_is(folder, site, capsys, options, expected, damage):
    path = put(folder, damage, "one/content.bin")
    status, told, complaints = run(capsys, *options)
    assert (status, told) == (expected, [f"two: verified, in {folder}"])
    (line,) = complaints
    assert line.startswith(f"leakage: Tiny: {path} is refused: ")
    assert "Run `.venv/bin/leakage data one` to replace it" in line
    assert path.read_bytes() == damage
    assert len(site.headers) == 1


def test_a_damaged_file_is_replaced_where_its_set_is_named(folder, site, capsys):
    path = put(folder, b"damaged", "one/content.bin")
    assert run(capsys, "one", "two") == (
        0,
        [f"{path}: verified, replaced a damaged file", f"{folder}/two/content.bin: verified"],
        [],
    )


@pytest.mark.parametrize("arguments", [("--needed",), NAMES])
@pytest.mark.parametrize("fault", ["missing", "wrong"])
def test_a_set_that_its_server_spoils_keeps_no_other_set_away(folder, site, capsys, arguments, fault):
    if fault == "missing":
        del site.files["/one"]
    else:
        site.files["/one"] = pack(b"eno", "gzip")
    status, told, (line,) = run(capsys, *arguments)
    assert status == 1
    assert len(told) == 1
    assert f"{site.address}/one" in line
    assert fetch.available("two")


def test_a_folder_that_cannot_be_written_is_one_line(folder, capsys, monkeypatch):
    (folder / "not a folder").write_bytes(b"")
    monkeypatch.setenv("LEAKAGE_DATA", str(folder / "not a folder"))
    for arguments, expected, lines in ((("--needed",), 1, 2), (BUILD, 0, 1), (("one", "two"), 1, 2)):
        status, told, complaints = run(capsys, *arguments)
        assert (status, told, len(complaints)) == (expected, [], lines)
        assert "set LEAKAGE_DATA to a folder you may write to" in complaints[0]


def test_a_book_that_cannot_be_read_is_left_to_the_build_to_refuse(folder, capsys):
    (folder.parent / "book/claims/mini.yml").write_text("[", encoding="utf-8")
    assert run(capsys, *BUILD)[0] == 0
    status, _, complaints = run(capsys, "--needed")
    assert (status, len(complaints)) == (1, 1)


def test_the_list_names_states_and_damage_and_the_folder(folder, site, capsys, monkeypatch):
    put(folder, b"damaged", "one/content.bin")
    monkeypatch.setitem(registry.DATASETS, "tiny", dataset(unverified(b"t", site)))
    put(folder, pack(b"t", "gzip"))
    fetch.fetch("tiny")
    status, told, (line,) = run(capsys)
    assert status == 0
    states = {row.split()[0]: row for row in told if row and not row.startswith((" ", "Folder"))}
    assert states.keys() == registry.DATASETS.keys()
    assert "damaged" in states["one"]
    assert "absent" in states["two"]
    assert "unverified, pinned" in states["tiny"]
    assert f"{folder}/one/content.bin is refused" in line
    assert told[-1] == f"Folder: {folder} (set LEAKAGE_DATA to change it)"


def test_every_workflow_that_makes_the_book_has_the_data_that_claims_need():
    building = []
    for path in sorted((ROOT / ".github" / "workflows").glob("*.yml")):
        for name, job in yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].items():
            commands = " ".join(step.get("run", "") for step in job["steps"])
            if re.search("make book(?!.*OFFLINE=1)|leakage build", commands):
                given = [step.get("with", {}).get("data") for step in job["steps"] if "set-up" in step.get("uses", "")]
                assert given == ["needed"], f"{path.name}: {name}"
                building.append(path.name)
    assert {*building} == {"book.yml", "weekly.yml"}
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
        (("book",), ["data --needed --if-possible", "build --profile ci --seed 0"]),
        (("book", "OFFLINE=1"), ["build --profile ci --seed 0"]),
        (("book", "OFFLINE=0"), ["data --needed --if-possible", "build --profile ci --seed 0"]),
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
