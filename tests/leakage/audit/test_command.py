"""`leakage audit` judges a file, fails where a leak surely passes a bar, and writes nothing about a bad file."""

import hashlib
import io
import json
import os
import pickle
import re
import subprocess
import sys
import tomllib
from contextlib import suppress
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from checking import HANGS, is_a_refusal
from leakage import command_line
from leakage.audit.inputs import inputs_from_file
from reproduced.runtime import stream
from small_data import spoiled

ROOT = Path(__file__).parents[3]
MEMBER = (torch.rand(8, 300, generator=stream(0, "member")) < 0.5).numpy()
LOSSES = -torch.rand(8, 300, generator=stream(0, "losses"), dtype=torch.float64).log().numpy() * np.where(
    MEMBER, 0.3, 1.0
)
GOOD = {"losses": LOSSES, "member": MEMBER}


@pytest.fixture
def scores(tmp_path):
    path = tmp_path / "scores.npz"
    np.savez(path, **GOOD, labels=np.arange(300) % 3, groups=np.array(["old", "new"] * 150))
    return path


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "scores"
    path.mkdir()
    for name, values in (GOOD | {"labels": np.arange(300) % 3, "target": np.array(2)}).items():
        np.save(path / f"{name}.npy", values)
    return path


def run(capsys, *arguments):
    status = command_line.main(["audit", *map(str, arguments)])
    return status, *capsys.readouterr()


def test_it_prints_the_table_and_writes_what_is_asked(scores, tmp_path, capsys):
    page, numbers = tmp_path / "audit.html", tmp_path / "audit.json"
    status, out, err = run(capsys, scores, "--report", page, "--json", numbers)
    assert (status, err) == (0, "")
    found = json.loads(numbers.read_text("utf-8"))
    assert all(row["attack"] in out for row in found["attacks"])
    assert {row["slice"] for row in found["slices"]} == {"0", "1", "2", "old", "new"}
    assert page.read_text("utf-8").startswith("<!DOCTYPE html>")
    assert {path.name for path in tmp_path.iterdir()} == {"audit.html", "audit.json", "scores.npz"}


def test_the_lower_end_decides(scores, tmp_path, capsys):
    from leakage import audit

    surely = audit.of_losses(**GOOD).at_least("auc")
    page = tmp_path / "audit.html"
    assert run(capsys, scores, "--fail-above", f"auc={surely + 1e-6}")[0] == 0
    status, _, err = run(
        capsys, scores, f"--fail-above=auc={surely - 1e-6}", "--fail-above=tpr@0.05=0.9", "--report", page
    )
    assert status == 1
    assert err.startswith("leakage: auc is at least")
    assert err.count("\n") == 1
    assert page.is_file()
    status, _, err = run(capsys, scores, "--fail-above=auc=0", "--fail-above=tpr@0.05=0", "--fail-above=advantage=0")
    assert (status, err.count("\n")) == (1, 3)


def test_a_bar_that_no_scores_could_break_is_refused_with_the_number_it_takes(tmp_path, capsys):
    path, member = tmp_path / "total.npz", np.arange(600) < 300
    np.savez(path, losses=np.where(member, 0.01, 3.0), member=member)
    answer = run(capsys, path, "--fail-above", "tpr@0.01=0.01")
    assert is_a_refusal(*answer)
    assert "takes 466 outsiders" in answer[2]
    assert run(capsys, path, "--fail-above", "tpr@0.1=0.9")[0] == 1


def test_the_json_names_the_file_and_judges_it(scores, folder, tmp_path, capsys):
    status, out, err = run(capsys, scores, "--json", "-", "--fail-above", "slice:auc=0.5")
    found = json.loads(out)
    assert status == 1
    assert "LiRA" in err  # the table
    assert found["input"] == {"file": "scores.npz", "sha256": hashlib.sha256(scores.read_bytes()).hexdigest()}
    assert {"leakage", "torch", "numpy", "python"} == found["versions"].keys()
    (gate,) = found["gates"]
    assert gate["failed"]
    assert gate["slice"].startswith(("label ", "group "))
    assert found["verdict"] == "failed"
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(folder.iterdir())]
    of_folder = json.loads(run(capsys, folder, "--json", "-")[1])
    assert of_folder["input"]["sha256"] == hashlib.sha256("".join(lines).encode()).hexdigest()


def test_junit_shows_each_bar_as_a_test(scores, tmp_path, capsys):
    page = tmp_path / "audit.xml"
    assert run(capsys, scores, "--junit", page, "--fail-above=auc=0.5", "--fail-above=auc=0.95")[0] == 1
    suite = ElementTree.parse(page).getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    assert [case.get("name") for case in suite] == ["auc <= 0.5", "auc <= 0.95"]
    assert [case.find("failure") is None for case in suite] == [False, True]
    assert "exceeds 0.5" in suite[0].find("failure").get("message")


def test_a_note_that_makes_the_answer_wrong_is_on_the_standard_error(tmp_path, capsys):
    path = tmp_path / "swapped.npz"
    np.savez(path, losses=LOSSES, member=~MEMBER)
    status, out, err = run(capsys, path)
    assert status == 0
    assert "is `member` turned over" in out
    assert err.startswith("leakage: Members have the larger losses")


def archive(**arrays):
    content = io.BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()


BAD_FILES = {
    "text": b"losses = [1, 2]",
    "pickle": pickle.dumps(GOOD),
    "no array": archive(**GOOD).replace(b"NUMPY", b"MUNPY"),
    "objects": archive(losses=np.array([{}, None], dtype=object), member=MEMBER),
    "no member": archive(losses=LOSSES),
    "strange name": archive(**GOOD, Labels=np.arange(300)),
    "no number": archive(**GOOD | {"losses": LOSSES.astype(str)}),
    "NaN": archive(**GOOD | {"losses": LOSSES * np.nan}),
    "one side": archive(member_losses=LOSSES[0]),
    "share of probabilities": archive(**GOOD, probabilities=np.array(0.5)),
    "torn units": archive(**GOOD, units=np.arange(300) // 2),
    "target": archive(**GOOD, target=np.array([1.5])),
}


@pytest.mark.parametrize("content", BAD_FILES.values(), ids=BAD_FILES)
def test_a_bad_file_gets_one_line_and_nothing_is_written(content, tmp_path, capsys):
    path = tmp_path / "bad.npz"
    path.write_bytes(content)
    given = (path, "--report", tmp_path / "audit.html", "--json", tmp_path / "audit.json", "--fail-above", "auc=0.5")
    assert is_a_refusal(*run(capsys, *given))
    assert [left.name for left in tmp_path.iterdir()] == ["bad.npz"]


@settings(max_examples=12)
@given(data=st.data())
def test_a_spoiled_archive_is_read_or_refused(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("spoiled") / "scores.npz"
    path.write_bytes(data.draw(spoiled(archive(losses=LOSSES[:, :9], member=MEMBER[:, :9]))))
    with suppress(ValueError):
        inputs_from_file(path)


def test_an_archive_of_too_large_arrays_is_not_read(scores, capsys, monkeypatch):
    monkeypatch.setattr("leakage.audit.inputs._MOST_BYTES", 1000)
    monkeypatch.setattr(np.lib.format, "read_array", None)
    answer = run(capsys, scores)
    assert is_a_refusal(*answer)
    assert "losses.npy holds more than" in answer[2]


def test_a_folder_of_arrays_gives_what_one_file_gives(folder, tmp_path, capsys):
    one = tmp_path / "scores.npz"
    packed = tmp_path / "packed.npz"
    arrays = {path.stem: np.load(path) for path in folder.iterdir()}
    np.savez(one, **arrays)
    np.savez_compressed(packed, **arrays | {"losses": np.asfortranarray(LOSSES)})
    first, *others = (run(capsys, path) for path in (folder, one, packed))
    assert first[0] == 0
    assert others == [first, first]


BAD_FOLDERS = {
    "no member": (lambda folder: (folder / "member.npy").unlink(), "lacks member"),
    "strange name": (lambda folder: np.save(folder / "Labels.npy", np.arange(300)), "'Labels' besides"),
    "objects": (lambda folder: np.save(folder / "labels.npy", np.array([{}] * 300)), "without Python objects"),
    "truncated": (lambda folder: os.truncate(folder / "losses.npy", 128 + 8 * 300 * 8 - 1), "numbers and texts"),
    "a folder": (lambda folder: (folder / "groups.npy").mkdir(), "Is a directory"),
}


@pytest.mark.parametrize(("spoil", "message"), BAD_FOLDERS.values(), ids=BAD_FOLDERS)
def test_a_bad_folder_gets_one_line_and_nothing_is_written(spoil, message, folder, tmp_path, capsys):
    spoil(folder)
    answer = run(capsys, folder, "--json", tmp_path / "audit.json")
    assert is_a_refusal(*answer)
    assert message in answer[2]
    assert [left.name for left in tmp_path.iterdir()] == ["scores"]


def test_no_array_of_a_folder_is_overwritten(folder, capsys):
    before = (folder / "losses.npy").read_bytes()
    assert is_a_refusal(*run(capsys, folder, "--json", folder / "losses.npy"))
    assert (folder / "losses.npy").read_bytes() == before


@pytest.mark.parametrize(
    "more",
    [
        ["--fail-above", "auc"],
        ["--fail-above", "tpr@0.0001=0.5"],
        ["--fail-above", "auc=1"],
        ["--fail-above", "slice:tpr@0.01=0.5", "--json", "{folder}/a"],
        ["--junit", "{folder}/a"],
        ["--fail-above", "precision=0.5"],
        ["--level", "1"],
        ["--report", "{scores}"],
        ["--json", "{folder}/absent/audit.json"],
        ["--report", "{folder}/a", "--json", "{folder}/a"],
        ["--report", "{folder}"],
        ["--seed", "1"],
    ],
    ids=" ".join,
)
def test_a_request_that_cannot_be_met_gets_one_line_and_nothing_is_written(more, scores, tmp_path, capsys):
    before = scores.read_bytes()
    filled = [part.format(scores=scores, folder=tmp_path) for part in more]
    assert is_a_refusal(*run(capsys, scores, "--json", tmp_path / "audit.json", *filled))
    assert [left.name for left in tmp_path.iterdir()] == ["scores.npz"]
    assert scores.read_bytes() == before


def test_no_file_is_no_traceback(tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "absent.npz", tmp_path, tmp_path / "pipe", "/dev/zero"):
        assert is_a_refusal(*run(capsys, path))


def test_a_device_is_written_into_and_not_replaced(scores, capsys):
    assert run(capsys, scores, "--json", os.devnull)[0] == 0
    assert Path(os.devnull).is_char_device()


ALONE = """
import importlib, pkgutil, sys
from importlib.abc import MetaPathFinder

class Absent(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
"""
EVERYTHING = """
import leakage
for module in pkgutil.walk_packages(leakage.__path__, "leakage."):
    importlib.import_module(module.name)
"""
COMMANDS = """
from leakage import command_line
print(*(command_line.main(words) for words in (["audit", {scores!r}, "--report", {page!r}], ["status"], ["build"])))
"""


def run_without(absent: set[str], code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process that has not these packages, but these variables."""
    return subprocess.run(
        [sys.executable, "-c", ALONE.format(absent=absent) + code],
        capture_output=True,
        text=True,
        timeout=HANGS,
        env=os.environ | {"PYTHONPATH": str(ROOT / "lib")} | variables,
    )


def packages_of_the_book() -> set[str]:
    """The modules that only the book's packages bring; those that others need too are left out."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    asked = project["optional-dependencies"]["book"] + project["optional-dependencies"]["cluster"]
    names = {re.split("[<>=]", entry)[0].lower() for entry in asked} - {"pillow"}  # matplotlib needs it
    modules = {"ipython": "IPython", "pyyaml": "yaml"}
    others = {
        "click",
        "dask",
        "jupyter_client",
        "jupyter_core",
        "nbconvert",
        "nbformat",
        "psutil",
        "sphinx",
        "traitlets",
    }
    return {modules.get(name, name.replace("-", "_")) for name in names} | others


def test_the_library_needs_nothing_of_the_book():
    found = run_without({*packages_of_the_book(), "reproduced"}, EVERYTHING)
    assert found.returncode == 0, found.stderr


def test_the_audit_needs_nothing_that_windows_lacks(scores, tmp_path):
    page = tmp_path / "audit.html"
    command = f"command_line.main(['audit', {str(scores)!r}, '--report', {str(page)!r}, '--json', '-'])"
    code = f"from leakage.audit import of_module, of_sklearn\nfrom leakage import command_line\nsys.exit({command})"
    found = run_without({"fcntl", "grp", "pwd", "resource", "termios"}, code, PYTHONIOENCODING="ascii")
    assert found.returncode == 0, found.stderr
    assert "needs ? 1,000 outsiders" in found.stderr  # ≥ is no letter of that console
    assert "≥" in "".join(json.loads(found.stdout)["notes"])
    assert page.is_file()


@pytest.mark.parametrize(
    ("also_absent", "cure"),
    [
        ("reproduced", "is a command of the book; clone its repository"),
        ("papermill", "which is not installed; install leakage[book]"),
    ],
)
def test_the_library_alone_audits_and_refuses_to_build(scores, tmp_path, also_absent, cure):
    page = tmp_path / "audit.html"
    found = run_without({*packages_of_the_book(), also_absent}, COMMANDS.format(scores=str(scores), page=str(page)))
    assert found.stdout.splitlines()[-1:] == ["0 2 2"], found.stderr
    assert found.stderr.count(cure) == 2
    assert page.is_file()


OTHER_FORMS = {
    "two sides": {"member_losses": LOSSES[0, MEMBER[0]], "outsider_losses": LOSSES[0, ~MEMBER[0]]},
    "no probabilities": GOOD | {"losses": LOSSES - 3, "probabilities": np.array(False)},
    "units": {
        "losses": np.repeat(LOSSES, 2, axis=1),
        "member": np.repeat(MEMBER, 2, axis=1),
        "units": np.repeat([f"patient {number}" for number in range(300)], 2),
    },
}


@pytest.mark.parametrize("arrays", OTHER_FORMS.values(), ids=OTHER_FORMS)
def test_a_file_may_hold_what_the_function_takes(arrays, tmp_path, capsys):
    from leakage import audit

    np.savez(tmp_path / "scores.npz", **arrays)
    status, out, _ = run(capsys, tmp_path / "scores.npz")
    given = arrays | {"probabilities": bool(arrays.get("probabilities", True))}
    assert (status, str(audit.of_losses(**given).table()) in out) == (0, True)
