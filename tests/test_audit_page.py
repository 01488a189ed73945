"""The page *Audit your own model* runs as it stands, from top to bottom."""

import re
import shlex
from pathlib import Path

import pytest

from reproduced import command_line

TEXT = (Path(__file__).parents[1] / "book" / "audit_your_model.md").read_text("utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
(COMMAND,) = re.findall(r"^leakage audit .*$", TEXT, re.MULTILINE)


def test_the_examples_go_on_from_each_other(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for example in EXAMPLES:
        exec(example, names)
        assert names["found"].strongest.auc.estimate > 0.5, example
        if "bound" in names:
            assert names["bound"].epsilon > 1.5, example
    assert command_line.main(shlex.split(COMMAND)[1:]) == 0
    assert "are clipped" in capsys.readouterr().out
    assert {path.name for path in tmp_path.iterdir()} == {"audit.html", "audit.json", "scores.npz", "trained"}


@pytest.mark.parametrize("name", ["of_losses", "of_sklearn", "of_module", "one_run", "of_trials"])
def test_every_door_is_shown(name):
    assert any(f"audit.{name}(" in example for example in EXAMPLES)
