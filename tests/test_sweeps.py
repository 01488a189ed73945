"""A grid computes each point once, keeps what is finished, and gives back what it stored."""

import functools
import hashlib
import io
import os
import pickle
import subprocess
import sys
import types
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

import alterations
from leakage import content_keys, runtime
from leakage.metrics.intervals import Estimate
from patience import HANGS, wait_until
from reproduced import processes, sweeps

RUN = runtime.begin("ci", 0, "cpu")


def square(x):
    return float(x * x)


def noted_square(x, *, notes):
    """The square of `x`, which also leaves a line in a file for each time it was computed."""
    with Path(notes).open("a") as file:
        print(x, file=file)
    return square(x)


def square_until_three(x, *, notes):
    if x == 3:
        raise ArithmeticError("three is too much")
    return noted_square(x, notes=notes)


@pytest.fixture
def notes(tmp_path):
    return str(tmp_path / "notes")


def computed(notes: str) -> list[int]:
    """The points that were computed, in order."""
    path = Path(notes)
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def sweep(function, points, folder, **options):
    return sweeps.sweep(function, points, **{"name": "toy", "run": RUN, "folder": folder / "grids"} | options)


def cells(folder: Path) -> list[Path]:
    return sorted((folder / "grids" / "toy").iterdir())


def test_a_grid_is_the_list_of_the_functions_values(tmp_path):
    assert sweep(square, [2, 0, 2, 1], tmp_path) == [4, 0, 4, 1]
    assert sweep(square, [], tmp_path) == []


def test_each_point_is_computed_once(tmp_path, notes):
    measure = functools.partial(noted_square, notes=notes)
    assert sweep(measure, [1, 2, 1], tmp_path) == [1, 4, 1]
    assert sweep(measure, [2, 3, 1], tmp_path) == [4, 9, 1]
    assert computed(notes) == [1, 2, 3]


def test_what_was_finished_before_an_error_is_kept_and_the_point_is_named(tmp_path, notes):
    measure = functools.partial(square_until_three, notes=notes)
    with pytest.raises(ArithmeticError) as caught:
        sweep(measure, [1, 2, 3, 4], tmp_path)
    assert caught.value.__notes__ == ["at the grid point 3"]
    assert sweep(measure, [1, 2], tmp_path) == [1, 4]
    assert computed(notes) == [1, 2]


@pytest.mark.parametrize(
    "change",
    [
        {"run": runtime.begin("ci", 1, "cpu")},
        {"run": runtime.begin("smoke", 0, "cpu")},
        {"name": "other"},
    ],
)
def test_another_seed_profile_or_name_computes_again(tmp_path, notes, change):
    measure = functools.partial(noted_square, notes=notes)
    sweep(measure, [1], tmp_path)
    sweep(measure, [1], tmp_path, **change)
    assert computed(notes) == [1, 1]


def test_another_processor_computes_again_and_another_data_folder_does_not(tmp_path, notes, monkeypatch):
    measure = functools.partial(noted_square, notes=notes)
    sweep(measure, [1], tmp_path)
    monkeypatch.setenv("LEAKAGE_DATA", str(tmp_path))
    sweep(measure, [1], tmp_path)
    assert computed(notes) == [1]
    monkeypatch.setattr(content_keys, "processor", lambda: "abacus")
    sweep(measure, [1], tmp_path)
    assert computed(notes) == [1, 1]


def test_a_variable_of_a_notebook_counts(tmp_path, monkeypatch):
    module = types.ModuleType("__main__")
    module.__file__ = str(tmp_path / "cell.py")
    Path(module.__file__).write_text("shift = 1\nmeasure = lambda x: x + shift\n")
    monkeypatch.setitem(sys.modules, "__main__", module)
    exec(compile(Path(module.__file__).read_text(), module.__file__, "exec"), vars(module))
    assert sweep(module.measure, [1], tmp_path) == [2]
    module.shift = 5
    assert sweep(module.measure, [1], tmp_path) == [6]


def test_a_damaged_cell_is_told_and_computed_again(tmp_path, notes, capsys):
    measure = functools.partial(noted_square, notes=notes)
    sweep(measure, [1, 2, 3], tmp_path)
    first, second, _ = cells(tmp_path)
    first.write_bytes(first.read_bytes()[:-3])
    second.write_bytes(b"")
    assert sweep(measure, [1, 2, 3], tmp_path) == [1, 4, 9]
    assert len(computed(notes)) == 5
    assert "grid toy: 2 damaged on disk, computed again" in capsys.readouterr().out


SPRUNG = []


class Trap:
    def __reduce__(self):
        return (SPRUNG.append, ("sprung",))


def behind_a_checksum(payload: bytes) -> bytes:
    return hashlib.sha256(payload).digest() + payload


def saved(value) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def altered(good: bytes) -> Iterator[bytes]:
    """A cell's file after what happens to files, and others behind a right checksum."""
    yield from alterations.at_random(good)
    forged = ("intervals:Estimate", "nothing:X", "grids:Path")
    names = (*(f"leakage.{name}" for name in forged), "os:system", "subprocess:Popen", 3)
    records = [{"leakage record": name, "args": "true"} for name in names]
    strange = (*records, {"trap": Trap()}, object, torch.nn.Linear(1, 1))
    payloads = (b"", b"text", pickle.dumps(Trap()), pickle.dumps(3), good[32:-5], *map(saved, strange))
    yield from map(behind_a_checksum, payloads)


def test_an_altered_cell_is_never_believed_runs_no_code_and_is_computed_again(tmp_path):
    folder = tmp_path / "grids" / "toy"
    expected = sweep(tensor_of, [1], tmp_path)
    (cell,) = cells(tmp_path)
    good, times = cell.read_bytes(), 0
    for times, content in enumerate(altered(good), start=1):  # noqa: B007
        cell.write_bytes(content)
        assert not sweeps._stored({cell}, "toy"), content[:40]
    assert times > alterations.LEAST
    assert SPRUNG == []
    torch.testing.assert_close(sweep(tensor_of, [1], tmp_path), expected, rtol=0, atol=0)
    assert (cell.read_bytes(), [*folder.iterdir()]) == (good, [cell])


def tensor_of(x):
    return torch.arange(3.0) * x


VALUES = [
    None, True, 3, 0.1, float("inf"), "text", [1, [2.5]], (1, (2,)), {"a": {1: 2.0}},
    Estimate(0.5, 0.4, float("inf"), 10, level=0.9),
]  # fmt: skip


def everything(index):
    return VALUES[index]


def test_plain_values_and_estimates_come_back_as_they_were(tmp_path):
    for _ in range(2):
        assert sweep(everything, range(len(VALUES)), tmp_path) == VALUES


def tensors(dtype):
    values = torch.arange(4).reshape(2, 2).to(dtype)
    return {"tensor": values, "array": values.numpy(), "scalar": np.float64(0.5), "part": values[:, :1]}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.int64, torch.bool])
def test_tensors_and_arrays_keep_their_type_whether_computed_or_read(tmp_path, dtype):
    for _ in range(2):
        (value,) = sweep(tensors, [dtype], tmp_path)
        torch.testing.assert_close(value["tensor"], tensors(dtype)["tensor"], rtol=0, atol=0)
        assert isinstance(value["array"], np.ndarray)
        assert value["array"].dtype == tensors(dtype)["array"].dtype
        assert type(value["scalar"]) is float
        assert value["part"].shape == (2, 1)


def strange(_):
    return object()


def test_a_result_that_cannot_be_stored_is_refused(tmp_path):
    with pytest.raises(TypeError, match="a grid's result cannot hold a object"):
        sweep(strange, [1], tmp_path)


@pytest.mark.parametrize("name", ["", "../up", "a b", ".hidden"])
def test_a_name_that_is_no_folder_name_is_refused(tmp_path, name):
    with pytest.raises(ValueError, match="`name` must be made of"):
        sweep(square, [1], tmp_path, name=name)


def whose(_):
    return os.getpid()


def test_processors_that_a_build_has_to_spare_are_used(tmp_path, monkeypatch):
    monkeypatch.setenv("LEAKAGE_PROCESSES", "2")
    here = os.getpid()
    assert sweep(whose, [1], tmp_path / "one point") == [here]
    assert set(sweep(lambda _: os.getpid(), [1, 2], tmp_path / "what no process can be told")) == {here}
    first, second = sweep(whose, range(4), tmp_path), sweep(whose, range(4, 8), tmp_path)
    assert here not in first
    assert len({*first, *second}) <= 2, "they are kept for the next grid"
    with pytest.raises(ArithmeticError, match="three is too much"):
        sweep(functools.partial(square_until_three, notes=str(tmp_path / "notes")), range(8), tmp_path)
    monkeypatch.setenv("LEAKAGE_PROCESSES", "many")
    assert set(sweep(whose, range(8, 10), tmp_path)) == {here}


@pytest.mark.slow
def test_processes_end_with_the_one_that_began_them(tmp_path):
    script = f"""
import time
from leakage import runtime
from reproduced import sweeps
def wait(seconds):
    time.sleep(seconds)
if __name__ == "__main__":
    run = runtime.begin("ci", 0, "cpu")
    sweeps.sweep(wait, [0.0, 600.0], name="toy", run=run, folder={str(tmp_path)!r})
"""
    (tmp_path / "script.py").write_text(script)
    command = [sys.executable, "-P", str(tmp_path / "script.py")]
    runner = subprocess.Popen(command, env=os.environ | {"LEAKAGE_PROCESSES": "2"})
    wait_until(lambda: list((tmp_path / "toy").glob("*.pt")))  # the first point is there, the second never will be
    family = psutil.Process(runner.pid).children(recursive=True)
    runner.kill()
    runner.wait(HANGS)
    wait_until(lambda: not any(member.is_running() and member.status() != "zombie" for member in family))


class Cancelling(Executor):
    """One point fails at once and the others never begin; it counts those that were cancelled."""

    def __init__(self):
        self.futures = []

    def submit(self, function, /, *arguments):
        self.futures.append(Future())
        if len(self.futures) == 1:
            self.futures[0].set_exception(ArithmeticError("at once"))
        return self.futures[-1]


def test_an_error_in_a_process_cancels_what_has_not_begun(tmp_path, monkeypatch):
    executor = Cancelling()
    monkeypatch.setattr(processes, "spare", lambda *_: executor)
    with pytest.raises(ArithmeticError) as caught:
        sweep(square, range(50), tmp_path)
    assert caught.value.__notes__ == ["at the grid point 0"]
    assert [future.cancelled() for future in executor.futures] == [False] + [True] * 49
    assert not (tmp_path / "grids").exists()


def test_the_bar_is_shown_unless_a_page_is_made(tmp_path, monkeypatch, capsys):
    sweep(square, [1], tmp_path, description="squares")
    assert "squares: 100%" in capsys.readouterr().err
    monkeypatch.setenv("LEAKAGE_QUIET", "1")
    sweep(square, [2], tmp_path, description="squares")
    assert capsys.readouterr().err == ""


def test_the_folder_is_the_build_folder_by_default(tmp_path, monkeypatch):
    monkeypatch.setenv("LEAKAGE_BUILD", str(tmp_path / "built"))
    sweeps.sweep(square, [1], name="toy", run=RUN)
    assert len(list((tmp_path / "built" / "grids" / "toy").iterdir())) == 1
    monkeypatch.delenv("LEAKAGE_BUILD")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match="run inside the repository"):
        sweeps.sweep(square, [1], name="toy", run=RUN)


def _scaled(values, *, factor, exponent=1):
    CALLS.append(factor)
    return {"scaled": values * factor**exponent}


CALLS = []


def _power(base, *, exponent=1):
    return base**exponent


def test_calls_by_name_are_a_grid(tmp_path):
    calls = {"a": dict(base=2), "b": dict(base=2, exponent=3), "c": dict(exponent=0, base=5)}
    for function in (_power, functools.partial(_power, exponent=1)):
        found = sweeps.each(function, calls, name="powers", run=RUN, folder=tmp_path)
        assert found == {"a": 2, "b": 8, "c": 1}
    assert len(list((tmp_path / "powers").iterdir())) == 6
    assert sweeps.each(_power, {}, name="powers", run=RUN, folder=tmp_path) == {}
    with pytest.raises(TypeError, match="_power"):
        sweeps.each(_power, {"a": dict(square=2)}, name="powers", run=RUN, folder=tmp_path)


def test_a_kept_function_computes_a_call_once(tmp_path, capfd):
    CALLS.clear()
    scaled = sweeps.kept(functools.partial(_scaled, exponent=2), name="scaled", run=RUN, folder=tmp_path)
    values = torch.arange(3.0)
    for _ in range(2):
        assert scaled(values, factor=3)["scaled"].tolist() == [0, 9, 18]
        assert scaled(values + 1, factor=3)["scaled"].tolist() == [9, 18, 27]
        assert scaled(values, factor=2)["scaled"].tolist() == [0, 4, 8]
    assert CALLS == [3, 3, 2]
    assert capfd.readouterr().err == ""


def _walk(steps, *, generator):
    CALLS.append(steps)
    return torch.rand(steps, generator=generator)


def test_a_kept_function_leaves_its_generator_where_the_call_left_it(tmp_path):
    CALLS.clear()
    walk = sweeps.kept(_walk, name="walk", run=RUN, folder=tmp_path)
    for _ in range(2):
        generator, plain = runtime.stream(0, "walk"), runtime.stream(0, "walk")
        drawn = [walk(steps, generator=generator) for steps in (3, 3, 2)]
        torch.testing.assert_close(torch.cat(drawn), torch.rand(8, generator=plain))
    assert CALLS == [3, 3, 2]
