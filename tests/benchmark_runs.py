"""Benchmarks as `python benchmarks/<chapter>.py` loads them, and what a run of any of them leaves behind."""

import importlib
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def module(name):
    """A fixture: benchmarks/`name`.py, loaded with its own folder on the path."""

    @pytest.fixture(scope="module")
    def load():
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(ROOT / "benchmarks")
            yield importlib.import_module(name)

    return load


def recorded(benchmark, sizes, root):
    """The record that `--record` writes under `root` in a run of these sizes."""
    assert benchmark.BENCHMARK.run(["--record"], sizes=sizes, root=root) == 0
    record = json.loads((root / benchmark.BENCHMARK.path).read_text("utf-8"))
    for row in record["rows"]:
        assert min(row["ours_seconds"], row["theirs_seconds"], row["ratio"]) > 0
    return record
