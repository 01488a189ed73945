"""Every chapter runs from its first cell to its last in the profile `smoke`, through the real command line.

Where a process that has imported PyTorch may be forked, chapters are forks of one (`forked_chapters`): to begin takes
them as long as all the rest.
"""

import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import forked_chapters
from patience import HANGS

ROOT = Path(__file__).parents[1]
CHAPTERS = sorted(path.stem for path in (ROOT / "book" / "claims").glob("*.yml"))
BY_ITSELF = [Path(sys.executable).with_name("leakage")]
COMMAND = BY_ITSELF if sys.platform == "darwin" else [sys.executable, forked_chapters.__file__]
JOBS = 1  # whoever runs the tests side by side has no idle core for a second chapter


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder that one smoke run of the whole book has filled, and the CPU seconds that it took."""
    folder = tmp_path_factory.mktemp("build")
    # Without LEAKAGE_DATA an empty folder: what this user has in the cache must not decide what is tested.
    environment = {"LEAKAGE_DATA": str(tmp_path_factory.mktemp("data"))} | os.environ
    options = ["--profile", "smoke", "--no-render", "--jobs", str(JOBS), "--timeout", str(HANGS), "--build-dir", folder]
    before = cpu_seconds()
    result = subprocess.run(
        [*COMMAND, "build", *options],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=len(CHAPTERS) * HANGS,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert re.search(r"^Claims: (\w+: · \d+ not judged(; )?)+$", result.stdout, re.MULTILINE)
    return folder, cpu_seconds() - before


@pytest.fixture(scope="module")
def build(run):
    return run[0]


def cpu_seconds():
    """What all processes took that were started here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_chapter_runs_to_its_end(build, chapter):
    notebook = json.loads((build / "executed" / "smoke" / f"{chapter}.ipynb").read_text(encoding="utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code" and "".join(cell["source"]).strip()]
    assert code
    assert all(cell["execution_count"] for cell in code)
    assert not any(output["output_type"] == "error" for cell in code for output in cell["outputs"])


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_smoke_run_judges_nothing(build, chapter):
    ledger = json.loads((build / "claims" / f"{chapter}.json").read_text(encoding="utf-8"))
    assert (ledger["profile"], ledger["chapter"]) == ("smoke", chapter)
    assert ledger["claims"]
    assert {claim["verdict"] for claim in ledger["claims"]} == {"not judged"}


def test_the_book_has_chapters_to_run():
    assert CHAPTERS


def test_what_a_smoke_run_costs_is_told(run, record_property):
    record_property("smoke run of the whole book", f"{run[1]:.0f} CPU seconds")
