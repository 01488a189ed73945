"""A grid computes each point once, keeps what is finished, and gives back what it stored."""

import functools
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import torch

from checking import HANGS, wait_until
from reproduced import code_keys, grids, runtime

RUN = runtime.begin("ci", 0, "cpu")


def square(x):
    return float(x * x)


def noted_square(x, *, notes, fails_at=None):
    """The square of `x`, which also leaves a line in a file for each time it was computed."""
    if x == fails_at:
        raise ArithmeticError("too much")
    with Path(notes).open("a") as file:
        print(x, file=file)
    return square(x)


@pytest.fixture
def notes(tmp_path):
    return str(tmp_path / "notes")


def computed(notes: str) -> list[int]:
    """The points that were computed, in order."""
    return [int(line) for line in Path(notes).read_text().split()]


@pytest.fixture(autouse=True)
def _own_build_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("LEAKAGE_BUILD", str(tmp_path))


def run_grid(function, points, **options):
    return grids.run_grid(function, points, **{"name": "toy", "run": RUN} | options)


def files(folder: Path) -> list[Path]:
    return sorted((folder / "grids" / "toy").iterdir())


def test_a_grid_is_the_list_of_the_functions_values():
    assert run_grid(square, [2, 0, 2, 1]) == [4, 0, 4, 1]
    assert run_grid(square, []) == []


def test_each_point_is_computed_once(notes):
    measure = functools.partial(noted_square, notes=notes)
    assert run_grid(measure, [1, 2, 1]) == [1, 4, 1]
    assert run_grid(measure, [2, 3, 1]) == [4, 9, 1]
    assert computed(notes) == [1, 2, 3]


def test_an_interrupted_grid_goes_on_and_the_point_that_failed_is_named(notes):
    measure = functools.partial(noted_square, notes=notes, fails_at=3)
    with pytest.raises(ArithmeticError) as caught:
        run_grid(measure, [1, 2, 3, 4])
    assert caught.value.__notes__ == ["at the grid point 3"]
    assert run_grid(measure, [4, 1, 2]) == [16, 1, 4]
    assert computed(notes) == [1, 2, 4]


@pytest.mark.parametrize(
    "change",
    [
        {"run": replace(RUN, seed=1)},
        {"run": replace(RUN, profile="smoke")},
        {"name": "other"},
        {"processor": lambda: "abacus"},
        {"environment": lambda root: {"torch": "of tomorrow"}},
    ],
)
def test_another_run_name_machine_or_version_computes_again(tmp_path, notes, change, monkeypatch):
    measure = functools.partial(noted_square, notes=notes)
    run_grid(measure, [1])
    monkeypatch.setenv("LEAKAGE_DATA", str(tmp_path))  # the folder of the data does not count
    run_grid(measure, [1])
    for name in ("processor", "environment"):
        if name in change:
            monkeypatch.setattr(code_keys, name, change.pop(name))
    run_grid(measure, [1], **change)
    assert computed(notes) == [1, 1]


def test_a_damaged_file_is_told_and_computed_again(tmp_path, notes, capsys):
    measure = functools.partial(noted_square, notes=notes)
    run_grid(measure, [1, 2, 3])
    first, second, _ = files(tmp_path)
    first.write_bytes(first.read_bytes()[:-3])
    second.write_bytes(b"")
    assert run_grid(measure, [1, 2, 3]) == [1, 4, 9]
    assert len(computed(notes)) == 5
    assert capsys.readouterr().out.count("is damaged (its checksum does not match), computed again") == 2


@pytest.mark.slow
def test_processes_leave_interrupts_to_the_one_that_began_them_and_end_with_it(tmp_path):
    script = """
import time
from reproduced import runtime
from reproduced import grids
if __name__ == "__main__":
    run = runtime.begin("ci", 0, "cpu")
    grids.run_grid(waiting.wait, [599.0, 600.0], name="toy", run=run)
"""
    waiting = f"""
import pathlib, time
def wait(seconds):
    pathlib.Path({str(tmp_path)!r}, f"begun {{seconds}}").touch()
    time.sleep(seconds)
"""
    (tmp_path / "waiting.py").write_text(waiting)
    (tmp_path / "script.py").write_text(f"import waiting\n{script}")
    command, environment = [sys.executable, tmp_path / "script.py"], os.environ | {"LEAKAGE_PROCESSES": "2"}
    runner = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: len([*tmp_path.glob("begun *")]) == 2)
    family = psutil.Process(runner.pid).children(recursive=True)
    for member in family:
        member.send_signal(signal.SIGINT)
    runner.kill()
    assert "KeyboardInterrupt" not in runner.communicate(timeout=HANGS)[1]
    wait_until(lambda: not any(member.is_running() and member.status() != "zombie" for member in family))


def power(base, *, exponent=1):
    return base**exponent


def test_calls_by_name_are_a_grid(tmp_path):
    calls = {"a": dict(base=2), "b": dict(base=2, exponent=3), "c": dict(exponent=0, base=5)}
    for function in (power, functools.partial(power, exponent=1)):
        found = grids.run_calls(function, calls, name="powers", run=RUN)
        assert found == {"a": 2, "b": 8, "c": 1}
    assert len(list((tmp_path / "grids" / "powers").iterdir())) == 6
    assert grids.run_calls(power, {}, name="powers", run=RUN) == {}
    with pytest.raises(TypeError, match="power"):
        grids.run_calls(power, {"a": dict(square=2)}, name="powers", run=RUN)


CALLS = []


def walk(steps, scale, *, generator=None):
    CALLS.append(steps)
    return {"walk": scale * torch.rand(steps, generator=generator)}


def test_a_kept_function_computes_a_call_once_and_leaves_its_generator_where_the_call_left_it(capfd):
    CALLS.clear()
    kept = grids.keep(functools.partial(walk, scale=torch.ones(1)), name="walk", run=RUN)
    for _ in range(2):
        generator, plain = runtime.stream(0, "walk"), runtime.stream(0, "walk")
        drawn = [kept(steps, generator=generator)["walk"] for steps in (3, 3, 2)]
        torch.testing.assert_close(torch.cat(drawn), torch.rand(8, generator=plain))
        assert kept(0)["walk"].tolist() == []
    assert CALLS == [3, 3, 2, 0]
    assert capfd.readouterr().err == "", "a single call has no bar"
