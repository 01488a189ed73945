"""Without data every chapter runs from its first cell to its last in the profile `smoke`, and the site is rendered.

Its notebook for download does so at another seed, on the second device: `second_device` says what that refuses.
"""

import asyncio
import json
import os
import re
import subprocess
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from checking import HANGS
from reproduced.pages.plain_notebook import SiteNames, glued_numbers, to_plain_markdown
from reproduced.run.chapter_cache import EXECUTION_KEY
from small_book import LEAKAGE

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]
CHAPTERS = sorted(path.stem for path in (ROOT / "book" / "claims").glob("*.yml"))


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """The folder that one smoke run of the whole book has filled."""
    folder = tmp_path_factory.mktemp("build")
    environment = os.environ | {"LEAKAGE_DATA": str(tmp_path_factory.mktemp("data"))}
    command = [*LEAKAGE, "build", "--profile", "smoke"]
    result = subprocess.run(
        [*command, "--jobs", "2", "--build-dir", folder],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=len(CHAPTERS) * HANGS,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert (folder / "site" / "_build" / "html" / "index.html").is_file()
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


async def run_elsewhere(notebook, folder):
    """Execute a notebook with the second device as its GPU."""
    notebook.cells.insert(0, nbformat.v4.new_code_cell("import second_device\nsecond_device.install()"))
    paths = os.pathsep.join([str(ROOT / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {"LEAKAGE_DATA": str(folder)} | os.environ
    environment |= {"PYTHONPATH": paths, "LEAKAGE_BUILD": str(folder), "LEAKAGE_QUIET": "1"}
    client = NotebookClient(notebook, timeout=HANGS, kernel_name="python3")
    await client.async_execute(env=environment, cwd=str(ROOT))


@pytest.fixture(scope="module")
def elsewhere(build, tmp_path_factory):
    """Each notebook for download, as executed and as it is at another seed on the second device; or its error."""

    built = {one: nbformat.read(build / "executed" / "smoke" / f"{one}.ipynb", as_version=4) for one in CHAPTERS}
    longest_first = sorted(CHAPTERS, key=lambda one: built[one].metadata[EXECUTION_KEY]["seconds"], reverse=True)

    async def run_chapter(chapter, limit):
        executed = built[chapter]
        notebook = to_plain_markdown(executed, SiteNames(), ROOT)
        (parameters,) = (cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", ()))
        for old, new in (("seed = 0", "seed = 7"), ('device = "auto"', 'device = "cuda"')):
            assert old in parameters.source
            parameters.source = parameters.source.replace(old, new)
        async with limit:
            await run_elsewhere(notebook, tmp_path_factory.mktemp(chapter))
        return executed, notebook

    async def run_chapters():
        limit = asyncio.Semaphore(2)
        runs = (run_chapter(chapter, limit) for chapter in longest_first)
        return dict(zip(longest_first, await asyncio.gather(*runs, return_exceptions=True), strict=True))

    return asyncio.run(run_chapters())


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_the_notebook_for_download_has_no_markup_of_the_site_follows_its_seed_and_runs_on_a_gpu(elsewhere, chapter):
    if isinstance(elsewhere[chapter], BaseException):
        raise elsewhere[chapter]
    executed, notebook = elsewhere[chapter]
    prose = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    assert not re.findall(r"^.*(?:\{[a-z:]+\}`|^:::|^```\{|^\([\w-]+\)=).*$", prose, re.MULTILINE)
    before, after = glued_numbers(executed), glued_numbers(notebook)
    assert before.keys() == after.keys()
    assert sum(after[name] != before[name] for name in before) > len(before) / 10


def test_a_tensor_left_on_the_gpu_is_noticed(tmp_path):
    notebook = nbformat.v4.new_notebook()
    source = "import torch\nfrom reproduced import runtime\n"
    source += "torch.ones(2, device=runtime.begin(device='cuda').device).numpy()"
    notebook.cells.append(nbformat.v4.new_code_cell(source))
    with pytest.raises(CellExecutionError, match="copy it to the CPU first"):
        asyncio.run(run_elsewhere(notebook, tmp_path))
