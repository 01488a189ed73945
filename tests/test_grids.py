"""A grid computes each point once, keeps what is finished, and gives back what it stored."""

import functools
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import torch

from leakage import store
from leakage.metrics.estimates import Estimate
from patience import HANGS, wait_until
from reproduced import grids, repository, runtime

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


def gated_square(x, *, notes, gate):
    """Fails at 3; later points wait for the file `gate` first."""
    if x > 3:
        wait_until(Path(gate).exists)
    return noted_square(x, notes=notes, fails_at=3)


@pytest.fixture
def notes(tmp_path):
    return str(tmp_path / "notes")


def computed(notes: str) -> list[int]:
    """The points that were computed, in order."""
    return [int(line) for line in Path(notes).read_text().split()]


def run_grid(function, points, folder, **options):
    return grids.run_grid(function, points, **{"name": "toy", "run": RUN, "folder": folder / "grids"} | options)


def files(folder: Path) -> list[Path]:
    return sorted((folder / "grids" / "toy").iterdir())


def test_a_grid_is_the_list_of_the_functions_values(tmp_path):
    assert run_grid(square, [2, 0, 2, 1], tmp_path) == [4, 0, 4, 1]
    assert run_grid(square, [], tmp_path) == []


def test_each_point_is_computed_once(tmp_path, notes):
    measure = functools.partial(noted_square, notes=notes)
    assert run_grid(measure, [1, 2, 1], tmp_path) == [1, 4, 1]
    assert run_grid(measure, [2, 3, 1], tmp_path) == [4, 9, 1]
    assert computed(notes) == [1, 2, 3]


def test_an_interrupted_grid_goes_on_and_the_point_that_failed_is_named(tmp_path, notes):
    measure = functools.partial(noted_square, notes=notes, fails_at=3)
    with pytest.raises(ArithmeticError) as caught:
        run_grid(measure, [1, 2, 3, 4], tmp_path)
    assert caught.value.__notes__ == ["at the grid point 3"]
    assert run_grid(measure, [4, 1, 2], tmp_path) == [16, 1, 4]
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
    run_grid(measure, [1], tmp_path)
    monkeypatch.setenv("LEAKAGE_DATA", str(tmp_path))  # the folder of the data does not count
    run_grid(measure, [1], tmp_path)
    for name in ("processor", "environment"):
        if name in change:
            monkeypatch.setattr(store, name, change.pop(name))
    run_grid(measure, [1], tmp_path, **change)
    assert computed(notes) == [1, 1]


def test_a_damaged_file_is_told_and_computed_again(tmp_path, notes, capsys):
    measure = functools.partial(noted_square, notes=notes)
    run_grid(measure, [1, 2, 3], tmp_path)
    first, second, _ = files(tmp_path)
    first.write_bytes(first.read_bytes()[:-3])
    second.write_bytes(b"")
    assert run_grid(measure, [1, 2, 3], tmp_path) == [1, 4, 9]
    assert len(computed(notes)) == 5
    assert capsys.readouterr().out.count("is damaged (its checksum does not match), computed again") == 2


def everything(index):
    return [Estimate(0.5, 0.4, float("inf"), 10, level=0.9), {"a": (1, [2.0])}, torch.arange(3.0), "text"][index]


def test_values_are_alike_whether_computed_or_read(tmp_path):
    for _ in range(2):
        record, plain, tensor, text = run_grid(everything, range(4), tmp_path)
        assert (record, plain, text) == (everything(0), everything(1), everything(3))
        torch.testing.assert_close(tensor, everything(2))


def strange(_):
    return object()


def test_what_cannot_be_kept_is_refused(tmp_path):
    with pytest.raises(TypeError, match="a object cannot be kept in a file"):
        run_grid(strange, [1], tmp_path)
    with pytest.raises(TypeError, match="a Generator has no content key"):
        run_grid(square, [torch.Generator()], tmp_path)
    with pytest.raises(TypeError, match="is no function of a module"):
        run_grid(lambda x: x, [1], tmp_path)


def whose(_):
    return os.getpid()


def test_processors_that_a_build_has_to_spare_are_used(tmp_path, monkeypatch):
    monkeypatch.setenv("LEAKAGE_PROCESSES", "2")
    here = os.getpid()
    assert run_grid(whose, [1], tmp_path / "one point") == [here]
    assert set(run_grid(whose, [1, 2], tmp_path, run=replace(RUN, profile="smoke"))) == {here}
    first, second = run_grid(whose, range(4), tmp_path), run_grid(whose, range(4, 8), tmp_path)
    assert here not in first
    assert len({*first, *second}) <= 2, "they serve the next grid, too"
    assert run_grid(square, range(8), tmp_path) == [square(x) for x in range(8)]


def test_what_has_not_begun_when_a_point_fails_is_cancelled(tmp_path, notes, monkeypatch):
    monkeypatch.setenv("LEAKAGE_PROCESSES", "2")
    gate = tmp_path / "gate"
    with pytest.raises(ArithmeticError, match="too much") as caught:
        run_grid(functools.partial(gated_square, notes=notes, gate=str(gate)), range(50), tmp_path)
    assert caught.value.__notes__ == ["at the grid point 3"]
    gate.touch()
    assert run_grid(square, range(100, 108), tmp_path) == [square(x) for x in range(100, 108)]
    assert len(computed(notes)) < 40


@pytest.mark.slow
def test_processes_end_with_the_one_that_began_them(tmp_path):
    script = f"""
import time
from reproduced import runtime
from reproduced import grids
if __name__ == "__main__":
    run = runtime.begin("ci", 0, "cpu")
    grids.run_grid(waiting.wait, [0.0, 600.0], name="toy", run=run, folder={str(tmp_path)!r})
"""
    (tmp_path / "waiting.py").write_text("import time\ndef wait(seconds):\n    time.sleep(seconds)\n")
    (tmp_path / "script.py").write_text(f"import waiting\n{script}")
    runner = subprocess.Popen([sys.executable, tmp_path / "script.py"], env=os.environ | {"LEAKAGE_PROCESSES": "2"})
    wait_until(lambda: list((tmp_path / "toy").glob("*.pt")))  # the first point is there, the second never will be
    family = psutil.Process(runner.pid).children(recursive=True)
    runner.kill()
    runner.wait(HANGS)
    wait_until(lambda: not any(member.is_running() and member.status() != "zombie" for member in family))


def test_the_bar_is_shown_unless_a_page_is_made(tmp_path, monkeypatch, capsys):
    run_grid(square, [1], tmp_path, description="squares")
    assert "squares: 100%" in capsys.readouterr().err
    monkeypatch.setenv("LEAKAGE_QUIET", "1")
    run_grid(square, [2], tmp_path, description="squares")
    assert capsys.readouterr().err == ""


def test_the_folder_is_the_build_folder_by_default(tmp_path, monkeypatch):
    monkeypatch.setenv("LEAKAGE_BUILD", str(tmp_path / "built"))
    grids.run_grid(square, [1], name="toy", run=RUN)
    assert len(list((tmp_path / "built" / "grids" / "toy").iterdir())) == 1
    monkeypatch.delenv("LEAKAGE_BUILD")
    (tmp_path / "book" / "claims").mkdir(parents=True)
    (tmp_path / "_toc.yml").touch()
    monkeypatch.chdir(tmp_path / "book" / "claims")
    assert repository.find_root() == tmp_path.resolve()
    grids.run_grid(square, [1], name="toy", run=RUN)
    assert len(list((tmp_path / "_build" / "grids" / "toy").iterdir())) == 1
    with pytest.raises(FileNotFoundError, match="run inside the repository"):
        repository.find_root(tmp_path.parent)


def power(base, *, exponent=1):
    return base**exponent


def test_calls_by_name_are_a_grid(tmp_path):
    calls = {"a": dict(base=2), "b": dict(base=2, exponent=3), "c": dict(exponent=0, base=5)}
    for function in (power, functools.partial(power, exponent=1)):
        found = grids.run_calls(function, calls, name="powers", run=RUN, folder=tmp_path)
        assert found == {"a": 2, "b": 8, "c": 1}
    assert len(list((tmp_path / "powers").iterdir())) == 6
    assert grids.run_calls(power, {}, name="powers", run=RUN, folder=tmp_path) == {}
    with pytest.raises(TypeError, match="power"):
        grids.run_calls(power, {"a": dict(square=2)}, name="powers", run=RUN, folder=tmp_path)


CALLS = []


def walk(steps, scale, *, generator=None):
    CALLS.append(steps)
    return {"walk": scale * torch.rand(steps, generator=generator)}


def test_a_kept_function_computes_a_call_once_and_leaves_its_generator_where_the_call_left_it(tmp_path, capfd):
    CALLS.clear()
    kept = grids.keep(functools.partial(walk, scale=torch.ones(1)), name="walk", run=RUN, folder=tmp_path)
    for _ in range(2):
        generator, plain = runtime.stream(0, "walk"), runtime.stream(0, "walk")
        drawn = [kept(steps, generator=generator)["walk"] for steps in (3, 3, 2)]
        torch.testing.assert_close(torch.cat(drawn), torch.rand(8, generator=plain))
        assert kept(0)["walk"].tolist() == []
    assert CALLS == [3, 3, 2, 0]
    assert capfd.readouterr().err == "", "a single call has no bar"
