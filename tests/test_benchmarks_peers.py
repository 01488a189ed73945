"""The comparison with other tools says in a line that they cannot be had, and records what both sides find."""

import json
import subprocess
import sys

import numpy as np

import benchmark_runs

peers = benchmark_runs.module("peers")


def test_without_a_registry_a_line_says_so_and_nothing_is_written(peers, monkeypatch, capsys, tmp_path):
    def refuse(words, **_):
        return subprocess.CompletedProcess(words, 1, "", "a warning\nno such package")

    monkeypatch.setattr(peers.subprocess, "run", refuse)
    assert peers.main(["--record"], root=tmp_path) == 0
    assert capsys.readouterr().out == "Without other tools: no such package\n"
    assert [*tmp_path.rglob("*.json")] == []


def test_what_both_find_is_recorded(peers, monkeypatch, tmp_path):
    rows, runs = 600, 2

    def answer(words, **_):
        scores = np.random.default_rng(0).random((1, rows)).tolist()
        found = {"scores": scores, "rows": [*range(rows)], "bounds": [1.0] * runs, "seconds": 2.0}
        return subprocess.CompletedProcess(words, 0, json.dumps(found), "")

    monkeypatch.setattr(peers, "install", lambda root: sys.executable)
    monkeypatch.setattr(peers.subprocess, "run", answer)
    monkeypatch.setattr(peers, "provenance", lambda title, clock, root: {"title": title})
    sizes = peers.Sizes(data="digits", rows=rows, models=6, targets=1, runs=runs)
    assert peers.main(["--record"], sizes=sizes, root=tmp_path) == 0
    record = json.loads((tmp_path / peers.RECORD).read_text("utf-8"))
    assert [row["id"] for row in record["rows"]][:3] == ["lira", "quantiles", "black box"]
    assert all(row["theirs_seconds"] > 1 and "nan" not in row["ours_found"] for row in record["rows"])
