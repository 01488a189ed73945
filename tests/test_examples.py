"""The examples of README, audit page and packages run as they stand and print what they show; the contract is kept."""

import contextlib
import importlib
import io
import json
import re
import shlex
from pathlib import Path

import check_jsonschema
import jupytext
import numpy as np
import pytest
import torch
from click.testing import CliRunner

import leakage
from leakage import audit, command_line
from leakage.audit.gates import Gate
from leakage.membership.evaluation import outsiders_needed

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
SHOWN, ONE_MODEL = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
(PRINTED,) = re.findall(r"^```text\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def agrees(found: str, said: str) -> bool:
    """The same words, and numbers that differ by what another processor's rounding does to a training at most."""
    assert re.sub(r"\d\.\d+", "0", found) == re.sub(r"\d\.\d+", "0", said)
    pairs = zip(*(re.findall(r"\d\.\d+", text) for text in (found, said)), strict=True)
    # Numbers with one decimal are percentages.
    return all(float(one) == pytest.approx(float(other), abs=2 if len(other) == 3 else 0.02) for one, other in pairs)


def test_the_example_of_the_readme_prints_what_it_shows(capsys):
    exec(SHOWN, {})
    assert agrees(capsys.readouterr().out, PRINTED)


def test_the_example_of_one_model_audits_it_alone_and_beside_references():
    losses, others = np.random.default_rng(0).exponential(size=(2, 60))
    exec(
        SHOWN.split("\nx, y")[0] + "\nimport numpy as np\n" + ONE_MODEL,
        {"losses": losses, "member": np.arange(60) < 30, "others": others[None]},
    )


def test_the_example_of_the_package_audits_and_writes_its_report(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(
        r"^```python\n(.*?)^```$", (ROOT / "lib/README.md").read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    exec(example, {})
    assert "LiRA" in capsys.readouterr().out
    assert (tmp_path / "audit.html").is_file()


LIBRARY = (ROOT / "book/library.md").read_text("utf-8")
SHOWN_BLOCKS = re.findall(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", LIBRARY, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("code", "printed"), SHOWN_BLOCKS, ids=range(len(SHOWN_BLOCKS)))
def test_the_examples_of_the_library_page_print_what_they_show(code, printed, capsys):
    with torch.random.fork_rng(devices=[]):
        exec(code, {})
    assert agrees(capsys.readouterr().out, printed)


def test_the_library_page_shows_every_public_name():
    imported = {
        name for code, _ in SHOWN_BLOCKS for name in re.findall(r"^from leakage import (.*)$", code, re.MULTILINE)
    }
    assert {*", ".join(imported).split(", ")} | {"Attack", "Evaluation"} == {*leakage.__all__}


TEXT = (ROOT / "book/audit_your_model.md").read_text("utf-8")
CONTRACT = (ROOT / "book/audit_contract.md").read_text("utf-8")
CELLS = [cell for cell in jupytext.reads(TEXT, fmt="md:myst").cells if cell.cell_type == "code"]
EXAMPLES = [cell.source for cell in CELLS if not cell.metadata.get("tags")]
COMMAND, EXECUTED = re.findall(r"^(?:command = \")?(leakage audit .*?)\"?$", TEXT, re.MULTILINE)


def test_the_examples_of_the_audit_page_run_one_after_another(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for example in EXAMPLES:
        exec(example, names)
        assert names["found"].strongest.auc.estimate > 0.5, example
        if "bound" in names:
            assert names["bound"].epsilon > 1.5, example
    assert command_line.main(shlex.split(COMMAND)[1:]) == 1  # its bar is below what the forests give away
    assert "are clipped" in capsys.readouterr().out
    assert {path.name for path in tmp_path.iterdir()} == {
        "audit.html",
        "audit.json",
        "audit.xml",
        "scores.npz",
        "trained",
    }


def test_the_command_that_the_audit_page_shows_is_the_one_that_it_executes():
    assert COMMAND == EXECUTED


@pytest.mark.parametrize("name", ["of_losses", "of_sklearn", "of_module", "one_run", "of_trials"])
def test_every_door_is_shown(name):
    assert any(f"audit.{name}(" in example for example in EXAMPLES)


def test_the_workflow_of_the_page_is_one_and_its_command_is_understood(tmp_path):
    (text,) = re.findall(r"^```yaml\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    path = tmp_path / "privacy.yml"
    path.write_text(text, "utf-8")
    result = CliRunner().invoke(check_jsonschema.main, ["--builtin-schema", "vendor.github-workflows", str(path)])
    assert result.exit_code == 0, result.output
    (words,) = re.findall(r"leakage (audit [^\n]*\n[^\n]*)", text)
    options = command_line._parser().parse_args(shlex.split(words))
    assert [Gate(*command_line._parse_limit(limit)).metric for limit in options.limits] == [
        "tpr@0.01",
        "slice:tpr@0.01",
    ]


def test_the_contract_has_the_numbers_of_outsiders_that_bars_take():
    rows = re.findall(r"^\| ([\d.]+) % \| ([\d,]+) \| ([\d,]+) \|$", CONTRACT, re.MULTILINE)
    assert len(rows) == 3
    for percent, *said in rows:
        levels = [1 - 0.05 / attacks for attacks in (1, 6)]
        assert said == [outsiders_needed(f"tpr@{float(percent) / 100!r}", 0.0, level=level) for level in levels]


def test_the_contract_has_every_key_of_the_json():
    member = np.random.default_rng(0).random((8, 100)) < 0.5
    result = audit.of_losses(np.where(member, 0.1, 1.0), member, labels=[0] * 100, groups=[1] * 100)
    found = json.loads(result.to_json(gates=result.judge([Gate("auc", 0.5)])))
    said = CONTRACT[CONTRACT.index("## JSON") :]
    keys = {*found, *(key for part in ("attacks", "exposed_rows", "slices", "gates") for key in found[part][0])}
    assert not [key for key in keys if f"`{key}`" not in said]


LIB = Path(leakage.__file__).parents[1]
FILES = [*LIB.glob("leakage/**/__init__.py"), *LIB.glob("reproduced/papers/*/__init__.py")]
# A package of the library must have an example, that of a paper may.
SHOWING = [path for path in FILES if path.is_relative_to(LIB / "leakage") or "```python" in path.read_text("utf-8")]
PACKAGES = sorted(".".join(path.parent.relative_to(LIB).parts) for path in SHOWING)
EXAMPLE = re.compile(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"-?\d+\.?\d*")


@pytest.mark.parametrize("package", PACKAGES)
def test_the_example_of_a_package_prints_what_its_page_shows(package):
    examples = EXAMPLE.findall(importlib.import_module(package).__doc__ or "")
    assert len(examples) == 1, f"the docstring of {package} needs a ```python block, and its output in a ```text block"
    code, shown = examples[0]
    output = io.StringIO()
    with contextlib.redirect_stdout(output), torch.random.fork_rng(devices=[]):
        exec(compile(code, package, "exec"), {"__name__": package})
    printed = output.getvalue()
    assert NUMBER.sub("#", printed) == NUMBER.sub("#", shown)
    # Other processors round otherwise, which may change the last digit that is shown.
    assert [*map(float, NUMBER.findall(printed))] == pytest.approx([*map(float, NUMBER.findall(shown))], abs=0.011)
