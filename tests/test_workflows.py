"""The workflows are valid and harmless, and run commands that exist; so do the scripts and the commit hooks."""

import os
import re
import subprocess
import sys
from pathlib import Path

import check_jsonschema
import pytest
import yaml
from click.testing import CliRunner

from patience import HANGS
from reproduced import runtime

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
ACTIONS = sorted((ROOT / ".github" / "actions").glob("*/action.yml"))
PINNED = re.compile(r"[\w.-]+(?:/[\w.-]+)+@[0-9a-f]{40}")
# Whoever publishes may write to the pages and prove who they are; nobody may do anything else.
MAY_WRITE = {
    ("book.yml", "deploy"): {"pages": "write", "id-token": "write"},
    ("book.yml", "notebooks"): {"contents": "write"},
}


def run(*command: str | Path) -> None:
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=HANGS)
    assert result.returncode == 0, result.stdout + result.stderr


def load(path: Path) -> dict:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def steps(path: Path) -> list[dict]:
    content = load(path)
    return [step for job in content.get("jobs", {"": content.get("runs")}).values() for step in job.get("steps", [])]


@pytest.mark.parametrize(
    ("schema", "paths"),
    [
        ("github-workflows", WORKFLOWS),
        ("github-actions", ACTIONS),
        ("dependabot", [ROOT / ".github" / "dependabot.yml"]),
        ("github-issue-config", [path for path in FORMS if path.name == "config.yml"]),
        ("github-issue-forms", [path for path in FORMS if path.name != "config.yml"]),
    ],
)
def test_files_keep_their_schema(schema, paths):
    assert paths
    arguments = ["--builtin-schema", f"vendor.{schema}", *map(str, paths)]
    result = CliRunner().invoke(check_jsonschema.main, arguments)
    assert result.exit_code == 0, result.output


def test_the_audit_of_the_workflows_finds_nothing():
    run(BIN / "zizmor", "--offline", "--no-progress", "--persona", "auditor", ".github")


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_a_form_names_the_chapters_and_profiles_there_are(path):
    fields = {field.get("id"): field["attributes"] for field in load(path).get("body", ())}
    declared = (ROOT / "book" / "claims").glob("*.yml")
    asked = {name: sorted(fields[name]["options"]) for name in ("chapter", "profile") if name in fields}
    there = {"chapter": sorted(path.stem for path in declared), "profile": sorted(runtime.PROFILES)}
    assert asked == {name: there[name] for name in asked}


def test_the_form_for_a_verdict_asks_for_all_that_it_takes_to_run_it_again():
    (form,) = (load(path) for path in FORMS if path.name == "verdict.yml")
    asked = {field["id"] for field in form["body"] if field.get("validations", {}).get("required")}
    assert {"chapter", "claim", "seed", "profile", "commit"} <= asked


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_may_only_read_and_ends(path):
    content = load(path)
    assert content["permissions"] == {"contents": "read"}
    assert content["concurrency"]
    assert "pull_request_target" not in path.read_text(encoding="utf-8")
    for name, job in content["jobs"].items():
        assert job.get("permissions", {}) == MAY_WRITE.get((path.name, name), {}), name
        assert job["timeout-minutes"] <= 60, name


@pytest.mark.parametrize("path", WORKFLOWS + ACTIONS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_actions_are_pinned_and_leave_no_credentials(path):
    for step in steps(path):
        used = step.get("uses", "")
        assert not used or used.startswith("./") or PINNED.fullmatch(used), used
        if used.startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False
    for line in path.read_text(encoding="utf-8").splitlines():
        assert "uses: ./" in line or "uses:" not in line or re.search(r"# v\d+\.\d+\.\d+$", line), f"no version: {line}"


def test_executed_notebooks_are_kept_even_of_a_failed_run():
    kept = [step for path in WORKFLOWS for step in steps(path) if "upload-artifact@" in step.get("uses", "")]
    kept = [step for step in kept if step["with"]["name"] != "notebooks"]  # those are of a book that was published
    assert kept
    for step in kept:
        assert step["if"] == "always()"
        assert "_build/executed" in step["with"]["path"]


def test_continuous_integration_runs_the_make_targets_that_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([\w-]+):", makefile, re.MULTILINE))
    pages = (ROOT / name for name in ("README.md", "CONTRIBUTING.md", "book/run_it.md"))
    for path in (*WORKFLOWS, *ACTIONS, ROOT / ".ci" / "run", *pages):
        text = path.read_text(encoding="utf-8")
        named = set(re.findall(r"(?:run: |^\s*|`|stage \w+ \d+ )make ([a-z][\w-]*)", text, re.MULTILINE))
        assert named <= targets, f"{path.name} uses {sorted(named - targets)}"


@pytest.mark.parametrize("name", [".ci/run", ".ci/lint-chapters"])
def test_scripts_are_executable_and_stop_at_the_first_failure(name):
    path = ROOT / name
    assert os.access(path, os.X_OK)
    text = path.read_text(encoding="utf-8")
    assert text.startswith("#!/usr/bin/env bash\n")
    assert re.search(r"^set -E?euo pipefail$", text, re.MULTILINE)
    run("bash", "-n", path)


def test_commit_hooks_use_the_locked_tools():
    run(BIN / "pre-commit", "validate-config")
    for repository in load(ROOT / ".pre-commit-config.yaml")["repos"]:
        assert repository["repo"] == "local"
        for hook in repository["hooks"]:
            assert hook["language"] == "system"
            assert hook["entry"].split()[0].startswith((".venv/bin/", ".ci/"))
