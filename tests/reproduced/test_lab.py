"""JupyterLab gets trusted copies of the built notebooks, and what somebody changed there is never lost."""

import json

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from reproduced.lab import copy_notebooks, disable_news


@pytest.fixture
def made(tmp_path, monkeypatch):
    """The folder of a build's notebooks; signatures go to another folder than this user's."""
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))
    folder = tmp_path / "made"
    folder.mkdir()
    write(folder, "1")
    return folder


def write(folder, text):
    output = new_output("execute_result", data={"text/html": text}, execution_count=1)
    nbformat.write(new_notebook(cells=[new_code_cell(text, outputs=[output])]), folder / "one.ipynb")


def test_a_new_build_replaces_a_copy_that_nobody_changed(made, tmp_path):
    lab = tmp_path / "lab"
    assert copy_notebooks(made, lab) == []
    write(made, "2")
    assert copy_notebooks(made, lab) == []
    assert (lab / "one.ipynb").read_bytes() == (made / "one.ipynb").read_bytes()
    assert nbformat.sign.NotebookNotary().check_signature(nbformat.read(lab / "one.ipynb", as_version=4))


def test_a_copy_that_was_changed_is_kept(made, tmp_path):
    lab = tmp_path / "lab"
    copy_notebooks(made, lab)
    write(lab, "mine")
    write(made, "2")
    assert copy_notebooks(made, lab) == ["one.ipynb"]
    assert "mine" in (lab / "one.ipynb").read_text("utf-8")


def test_the_question_about_news_is_turned_off_beside_other_settings(tmp_path):
    settings = tmp_path / "labconfig" / "default_setting_overrides.json"
    disable_news(settings)
    settings.write_text(json.dumps({"other": 1} | json.loads(settings.read_text("utf-8"))), "utf-8")
    disable_news(settings)
    told = json.loads(settings.read_text("utf-8"))
    assert told == {"other": 1, "@jupyterlab/apputils-extension:notification": {"fetchNews": "false"}}
