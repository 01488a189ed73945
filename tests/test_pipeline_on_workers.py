"""The section on workers: a table, the projection, and a record that is read strictly."""

import pytest
from bs4 import BeautifulSoup

import benchmark_runs
import kept_records
from leakage.pipeline import contents, on_workers
from leakage.pipeline.book import Book, Refusal

cluster = benchmark_runs.module("cluster")


@pytest.fixture
def record():
    runs = [{"workers": 1, "seconds": 10.0, "efficiency": 1.0}, {"workers": 2, "seconds": 6.25, "efficiency": 0.8}]
    measured = {"tasks": 50, "seconds": 10.0, "cores": 2, "runs": runs, "rate": 2000.0, "plain_rate": 4000.0}
    told = {"chapters": {"a": 60.0, "b": 100.0}, "projected": {"seeds": 1000, "workers": 100, "seconds": 2100.0}}
    return {"title": "On several workers", "date": "2026-01-02T03:04:05+00:00", "threads": 1, **measured, **told}


@pytest.fixture
def kept(tmp_path):
    """Keeps a record in a book, and reads it."""
    return kept_records.keeper(tmp_path, "cluster.json", contents.cluster)


def test_the_section_is_a_table_the_projection_and_their_origin(record, kept):
    text = on_workers.on_workers(kept(record))
    page = BeautifulSoup(text, "html.parser")
    assert [[cell.get_text() for cell in row("td")] for row in page.select("tbody tr")] == [
        ["1", "10.0 s", "100%"],
        ["2", "6.2 s", "80%"],
    ]
    assert text.startswith("50 tasks of 200 ms each take 10.0 s")
    assert "costs the client and its scheduler 500 µs of a core (250 µs by dask alone" in text
    assert "The 2 chapters take 2 min 40 s of one core at a seed." in text
    assert "At 1,000 seeds they would take 100 workers like these 35 min 0 s" in text
    assert text.endswith("This record: 2026-01-02, threads 1.\n")


def test_without_a_record_the_page_says_how_to_make_one(tmp_path):
    assert contents.cluster(Book(tmp_path, tmp_path / "_build")) == {}
    assert "benchmarks/cluster.py --record" in on_workers.on_workers({})


def test_the_record_of_this_book_is_shown(pytestconfig):
    found = contents.cluster(Book(pytestconfig.rootpath, pytestconfig.rootpath / "_build"))
    assert "by the clock" in on_workers.on_workers(found)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("date",), ["today"]),
        (("rate",), 0),
        (("runs",), 3),
        (("runs", 0), "run"),
        (("runs", 1, "efficiency"), -1),
        (("chapters",), None),
        (("chapters",), {}),
        (("chapters", "a"), "long"),
        (("projected",), None),
        (("projected", "seconds"), "long"),
    ],
)
def test_a_broken_record_is_refused(record, kept, place, value):
    with pytest.raises(Refusal, match=r"cluster\.json"):
        kept(kept_records.broken(record, place, value))


def test_the_projection_divides_the_work_and_ends_with_the_longest_chapter(cluster, monkeypatch):
    monkeypatch.setattr(cluster, "cores", lambda: 2)
    assert cluster.projected([60.0, 100.0], 0.8) == 1000 * 160 / 80 + 100
    assert cluster.efficiency(10.0, 6.25, 2) == 0.8
    assert cluster.efficiency(10.0, 6.25, 4) == 0.8, "four workers have two cores"
    assert cluster.efficiency(10.0, 12.5, 1) == 0.8


def test_without_a_finished_build_nothing_is_measured(cluster, tmp_path):
    (tmp_path / "book").mkdir()
    (tmp_path / "_toc.yml").write_text("format: jb-book\nroot: intro\nchapters:\n  - file: one\n", "utf-8")
    with pytest.raises(SystemExit, match="make book"):
        cluster.main(["--record"], root=tmp_path)
