"""Every chapter runs from its first cell to its last in the profile `smoke`, through the real command line."""

import json
import os
import re
import subprocess
from pathlib import Path

import nbclient
import nbformat
import pytest

from checking import HANGS
from reproduced.pages.plain_notebook import SiteNames, glued_numbers, to_plain_markdown
from reproduced.repository import BUILD_VARIABLE
from small_book import LEAKAGE

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]
CHAPTERS = sorted(path.stem for path in (ROOT / "book" / "claims").glob("*.yml"))


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """The folder that one smoke run of the whole book has filled."""
    folder = tmp_path_factory.mktemp("build")
    # Without LEAKAGE_DATA an empty folder: what this user has in the cache must not decide what is tested.
    environment = {"LEAKAGE_DATA": str(tmp_path_factory.mktemp("data"))} | os.environ
    command = [*LEAKAGE, "build", "--profile", "smoke", "--no-render"]
    result = subprocess.run(
        [*command, "--jobs", "1", "--build-dir", folder],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=len(CHAPTERS) * HANGS,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert re.search(r"^Claims: (\w+: · \d+ not judged(; )?)+$", result.stdout, re.MULTILINE)
    return folder


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


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_the_notebook_for_download_follows_its_seed_and_has_no_markup_of_the_site(
    build, chapter, monkeypatch, tmp_path
):
    monkeypatch.setenv(BUILD_VARIABLE, str(build))
    monkeypatch.setenv("LEAKAGE_DATA", os.environ.get("LEAKAGE_DATA", str(tmp_path)))
    executed = nbformat.read(build / "executed" / "smoke" / f"{chapter}.ipynb", as_version=4)
    notebook = to_plain_markdown(executed, SiteNames(), ROOT)
    prose = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    assert not re.findall(r"^.*(?:\{[a-z:]+\}`|^:::|^```\{|^\([\w-]+\)=).*$", prose, re.MULTILINE)
    (parameters,) = (cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", ()))
    parameters.source = parameters.source.replace("seed = 0", "seed = 7")
    client = nbclient.NotebookClient(notebook, timeout=HANGS, kernel_name="python3")
    client.execute(cwd=str(ROOT))
    before, after = glued_numbers(executed), glued_numbers(notebook)
    assert before.keys() == after.keys()
    assert sum(after[name] != before[name] for name in before) > len(before) / 10
