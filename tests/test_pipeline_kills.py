"""A build may be killed anywhere: the next one goes on from there, and finds what an undisturbed one finds."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import kill_points
from miniature import HEADER, PARAMETERS, cell, claims_text, make_repository
from patience import HANGS

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def trials(tmp_path_factory):
    """What came of each kill."""
    folder = tmp_path_factory.mktemp("kills")
    root = make_repository(folder / "book", *kill_points.CHAPTERS)
    for name in kill_points.CHAPTERS:
        record = {"id": f"{name}.a", "verdict": "held", "rule": "x < 20"}
        record |= {"reason": "", "seconds": 0.1, "profile": "ci", "seed": 0, "device": "cpu"}
        sources = [
            "import kill_points",
            f"found = kill_points.grid({name!r})",
            "measured = {'kind': 'exact', 'value': found, 'error': 0}",
            f"show({record} | {{'values': [{{'name': 'x', 'measured': measured}}]}})",
        ]
        blocks = [cell(sources[0]), cell(PARAMETERS, "parameters"), *map(cell, sources[1:])]
        (root / "book" / f"{name}.md").write_text(f"{HEADER}\n# {name}\n\n" + "\nWords.\n\n".join(blocks), "utf-8")
        (root / "book" / "claims" / f"{name}.yml").write_text(claims_text(name), "utf-8")
    command = [sys.executable, kill_points.__file__, folder]
    paths = os.pathsep.join([str(Path(kill_points.__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"PYTHONPATH": paths}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=HANGS)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_there_are_many_kills_of_every_victim_and_each_came_about(trials):
    undisturbed, *killed = trials
    assert undisturbed["statuses"] == [0, 0]
    assert undisturbed["computed"] == len(kill_points.CHAPTERS) * kill_points.POINTS
    assert len(killed) >= 30
    assert {kill["kill"][3] for kill in killed} == {"itself", "runner", "group", "kernel"}
    assert [kill["kill"] for kill in killed if kill["statuses"][0] == 0] == []


def test_after_every_kill_the_next_build_finds_what_an_undisturbed_one_finds(trials):
    assert [one["kill"] for one in trials if one["statuses"][1] != 0 or not one["as expected"]] == []


def test_no_finished_point_is_computed_again(trials):
    assert [one["kill"] for one in trials if one["computed twice"]] == []


def test_nothing_half_written_is_left_among_the_executed_chapters(trials):
    assert [one["kill"] for one in trials if one["half notebooks"]] == []


def test_a_program_ends_with_whoever_started_it(tmp_path):
    (tmp_path / "program.py").write_text("import sys, time\nprint(sys.argv[1], flush=True)\ntime.sleep(10**6)\n")
    reading, held = os.pipe()
    command = [sys.executable, "-P", "-m", "leakage.pipeline.worker", tmp_path / "program.py", "ready"]
    with subprocess.Popen(command, stdin=reading, stdout=subprocess.PIPE, text=True) as program:
        os.close(reading)
        assert program.stdout.readline() == "ready\n"
        os.close(held)  # what the system does for a process that was killed
        assert program.wait(HANGS) == 1


def test_a_program_that_ends_by_itself_keeps_its_exit_status(tmp_path):
    (tmp_path / "program.py").write_text("raise SystemExit(3)\n")
    command = [sys.executable, "-P", "-m", "leakage.pipeline.worker", tmp_path / "program.py"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as program:
        assert program.wait(HANGS) == 3
