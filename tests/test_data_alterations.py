"""Hundreds of altered files: what is accepted has the content of the good file, and what is refused is one line."""

import os
import tempfile
from functools import cache, partial
from pathlib import Path

import pytest

from altered_files import BITS, altered_bytes, altered_payloads, hostile_archives, packed, small_sets
from leakage.data import adult, binary_rows, fetch, mnist, multi30k, newsgroups, registry
from leakage.data.registry import DataAbsent, DataDamaged
from small_data import dataset

SETS = small_sets()
CASES = [pytest.param(name, file, id=f"{name}-{file}") for name, small in SETS.items() for file in small.altered]
MARK = Path(tempfile.gettempdir()) / f"a pickle was opened by {os.getpid()}"


@cache
def alterations(name: str, file: str) -> tuple[tuple[str, bytes], ...]:
    small = SETS[name]
    return tuple(altered_bytes(small.payloads[file], small.packings[file], name, MARK))


def not_files(good: bytes):
    """What can lie in the place of a file and is none, or leads to one."""

    def good_elsewhere(path: Path) -> None:
        path.with_name("elsewhere").write_bytes(good)
        path.symlink_to("elsewhere")

    return {
        "a folder": Path.mkdir,
        "a pipe": os.mkfifo,
        "a device": lambda path: path.symlink_to("/dev/zero"),
        "a link to nothing": lambda path: path.symlink_to("nothing"),
        "a link to itself": lambda path: path.symlink_to(path.name),
        "a link to the folder": lambda path: path.symlink_to("."),
        "a link to the good file": good_elsewhere,
    }


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Puts a miniature data set into an empty data folder, and says where its files lie."""
    monkeypatch.setenv("LEAKAGE_DATA", str(tmp_path))

    def put(name):
        small = SETS[name]
        monkeypatch.setitem(registry.DATASETS, name, dataset(*small.files(name), name=name))
        (tmp_path / name).mkdir()
        for file, payload in small.payloads.items():
            (tmp_path / name / file).write_bytes(packed(payload, small.packings[file], name))
        fetch.fetch(name)  # pins what has no checksum; nothing is missing, so nothing is contacted
        assert fetch.available(name)
        small.read()
        return tmp_path / name

    return put


def content(name):
    """The payloads as they are read."""
    return {file: fetch.read_payload(name, file) for file in SETS[name].payloads}


def fault(name: str, good: dict[str, bytes], checksum: str) -> str:
    """How the set departs from the rule: either as good as the original, or absent with an error of one line."""
    try:
        SETS[name].read()
        same = content(name) == good and fetch.available(name) and fetch.checksum(name) == checksum
        return "" if same and not fetch.complaints(name) else "accepted"
    except (DataDamaged, DataAbsent) as error:
        lines = (str(error), *fetch.complaints(name))
        told = all("\n" not in line and len(line) < 1000 for line in lines)
        absent = not fetch.available(name) and fetch.checksum(name) == "absent"
        return "" if told and absent else f"refused, but {'' if absent else 'not absent, '}says {lines}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize(("name", "file"), CASES)
def test_no_altered_content_is_accepted_and_no_error_is_a_traceback(place, name, file):
    folder = place(name)
    path, good, checksum = folder / file, content(name), fetch.checksum(name)
    others = {one.name for one in folder.iterdir()}
    faults = []
    for how, altered in alterations(name, file):
        path.write_bytes(altered)
        if found := fault(name, good, checksum):
            faults.append(f"{how}: {found}")
        if path.read_bytes() != altered or {one.name for one in folder.iterdir()} != others:
            faults.append(f"{how}: something was written")
    assert not faults, "\n".join(faults)
    assert {one.name for one in folder.parent.iterdir()} == {name}
    assert not MARK.exists()


@pytest.mark.parametrize(("name", "file"), CASES)
def test_what_is_no_file_is_refused_or_absent(place, name, file):
    folder = place(name)
    path, good, checksum = folder / file, content(name), fetch.checksum(name)
    faults = []
    for how, make in not_files(path.read_bytes()).items():
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        make(path)
        if found := fault(name, good, checksum):
            faults.append(f"{how}: {found}")
    assert not faults, "\n".join(faults)


PARSERS = {
    ("mnist", "images"): mnist.parse_images,
    ("mnist", "labels"): mnist.parse_labels,
    ("location", "bangkok"): partial(binary_rows.parse, rows=9, quoted=True, **BITS),
    ("adult", "adult.csv"): adult.parse,
    ("multi30k", "train.en"): lambda text: multi30k.parse(text, SETS["multi30k"].payloads["train.de"]),
    ("20newsgroups", "20news-bydate"): partial(newsgroups.parse, part="train", messages=4, groups=2),
    ("purchase100", "dataset_purchase"): partial(binary_rows.parse, rows=9, **BITS),
}


@pytest.mark.parametrize(("name", "file"), PARSERS, ids=[f"{name}-{file}" for name, file in PARSERS])
def test_a_parser_gives_a_table_or_a_refusal_and_nothing_else(name, file):
    parse, payload = PARSERS[name, file], SETS[name].payloads[file]
    parse(payload)
    faults = []
    for how, altered in (*altered_payloads(payload, MARK), *(hostile_archives() if name == "20newsgroups" else ())):
        try:
            parse(altered)
        except DataDamaged as error:
            if len(str(error)) > 1000:
                faults.append(f"{how}: a long message")
        except Exception as error:
            faults.append(f"{how}: {type(error).__name__}: {error}")
    assert not faults, "\n".join(faults)
    assert not MARK.exists()


def test_there_are_five_hundred_altered_files_and_more():
    different = {
        (name, file, altered)
        for name, small in SETS.items()
        for file in small.altered
        for _, altered in alterations(name, file)
        if altered != packed(small.payloads[file], small.packings[file], name)
    }
    assert len(different) >= 1000
