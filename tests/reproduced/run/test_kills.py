"""A build may be killed anywhere: the next one goes on from there, and finds what an undisturbed one finds."""

import os
import shutil
import signal
import subprocess
from itertools import groupby
from pathlib import Path

import psutil
import pytest

from checking import HANGS, wait_until
from small_book import HEADER, LEAKAGE, PARAMETERS, cell, claims_text, make_repository, read_findings

CHAPTERS, POINTS = ("first", "second"), 4
# A point notes that it was begun. The one that makes so many notes as STUCK_AT says never ends: no clock decides when a
# kill comes.
IMPORTS = """
import os, IPython
from squares import square
from reproduced import runtime
from reproduced import grids
os.environ["LEAKAGE_PROCESSES"] = "1"  # points begin in their order
"""
SQUARES = """
import os, time

def square(point):
    with open("begun.txt", "a+") as notes:
        print(*point, file=notes, flush=True)
        notes.seek(0)
        if len(notes.readlines()) == int(os.environ["STUCK_AT"]):
            time.sleep(10**6)
    return float(point[1] ** 2)
"""
GRID = """
run = runtime.begin(profile, seed, "cpu")
total = sum(grids.run_grid(square, [({name!r}, x) for x in range({points})], name={name!r}, run=run))
record = {{"id": "{name}.a", "verdict": "held", "rule": "x < 20", "reason": "", "seconds": 0.1}}
record |= {{"profile": profile, "seed": seed, "device": "cpu"}}
record |= {{"values": [{{"name": "x", "measured": {{"kind": "exact", "value": total, "error": 0}}}}]}}
IPython.display.display({{"text/plain": ""}}, raw=True, metadata={{"claim": record}})
"""
# After how many begun points a kill comes, and whom it hits. The last two spare the runner, which would go on with a
# further chapter.
KILLS = [(1, "the runner"), (3, "all of them"), (8, "the runner"), (9, "the chapter's process"), (11, "the kernel")]

pytestmark = pytest.mark.slow


def a_book(root: Path) -> Path:
    """A book of two chapters, each with a grid, that uses the real library."""
    make_repository(root, *CHAPTERS)
    shutil.rmtree(root / "lib")
    (root / "squares.py").write_text(SQUARES, "utf-8")
    for name in CHAPTERS:
        blocks = [cell(IMPORTS), cell(PARAMETERS, "parameters"), cell(GRID.format(name=name, points=POINTS))]
        (root / "book" / f"{name}.md").write_text(f"{HEADER}\n# {name}\n\n" + "\nWords.\n\n".join(blocks), "utf-8")
        (root / "book" / "claims" / f"{name}.yml").write_text(claims_text(name), "utf-8")
    return root


def begun(root: Path) -> list[str]:
    """The points that were begun, in order."""
    notes = root / "begun.txt"
    return notes.read_text("utf-8").splitlines() if notes.exists() else []


def start(root: Path, *, stuck_at: int = 0) -> subprocess.Popen:
    command = [*LEAKAGE, "build", "--root", root, "--jobs", "1", "--no-render"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    paths = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
    variables = os.environ | {"STUCK_AT": str(stuck_at), "PYTHONPATH": paths}
    return subprocess.Popen(command, env=variables, start_new_session=True, **quiet)


def kill(runner: psutil.Process, victim: str) -> None:
    """Kill one process of a build, or all, and wait until none is left."""
    family = [runner, *runner.children(recursive=True)]
    kernel = next(member for member in family if any("ipykernel" in word for word in member.cmdline()))
    hit = {
        "the runner": [runner],
        "the kernel": [kernel],
        "the chapter's process": [kernel.parent()],
        "all of them": family,
    }
    for member in hit[victim]:
        member.send_signal(signal.SIGKILL)
    wait_until(lambda: not any(one.is_running() and one.status() != "zombie" for one in family))


def test_a_build_that_is_killed_five_times_goes_on_each_time(tmp_path):
    root = a_book(tmp_path / "book")
    for stuck_at, victim in KILLS:
        runner = start(root, stuck_at=stuck_at)
        wait_until(lambda: len(begun(root)) == stuck_at)  # noqa: B023
        kill(psutil.Process(runner.pid), victim)
        runner.wait(HANGS)
    assert start(root).wait(HANGS) == 0
    # Only points that were killed are begun again, and at once.
    assert len(begun(root)) == len(CHAPTERS) * POINTS + len(KILLS)
    once = [point for point, _ in groupby(begun(root))]
    assert sorted(once) == [f"{name} {x}" for name in CHAPTERS for x in range(POINTS)]
    for name in CHAPTERS:
        assert read_findings(root, name)["claims"][0]["values"][0]["measured"]["value"] == sum(
            x**2 for x in range(POINTS)
        )
    assert [*(root / "_build").rglob("*.partial*")] == []
