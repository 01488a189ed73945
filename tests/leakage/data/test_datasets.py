"""Data files are read only when they have their checksum, and an existing file is never changed."""

import hashlib
import re
from functools import partial
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import small_data
from leakage import command_line
from leakage.data import datasets
from leakage.data.datasets import DATASETS, DataAbsent, DataDamaged, DownloadFailed, ServerUnreachable
from small_data import PACKINGS, entry, pack, put, serving, spoiled, tree

PAYLOAD = bytes(range(256)) * 20
REAL = ("mnist", "location", "adult", "multi30k")
EVERY_FILE = [pytest.param(d, f, id=f"{d.name}-{f.name}") for d in DATASETS.values() for f in d.files]


@pytest.fixture
def root(tmp_path, monkeypatch):
    """An empty data folder."""
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("LEAKAGE_DATA", str(folder))
    return folder


@pytest.fixture
def site():
    with serving() as running:
        yield running


@pytest.fixture
def register(monkeypatch):
    """Make a data set called `tiny` of the files given."""
    return partial(small_data.register, monkeypatch)


get = partial(datasets.fetch, "tiny", retries=0)


def states():
    return [found.state for found in datasets.status("tiny")]


# --- the table and the folder


@pytest.mark.parametrize(("dataset", "file"), EVERY_FILE)
def test_an_entry_is_complete_and_its_path_stays_below_the_folder(dataset, file):
    assert all((dataset.title, dataset.licence, dataset.source, dataset.citation))
    assert file.url is None or file.url.startswith("https://")
    assert file.url or dataset.any_file
    assert file.size > 0
    assert re.fullmatch("[0-9a-f]{64}", file.sha256)
    path = PurePosixPath(file.path)
    assert not path.is_absolute()
    assert ".." not in path.parts
    assert bool(file.member) == (path.suffix == ".tgz")


def test_a_home_that_nobody_has_is_one_line(monkeypatch, capsys):
    monkeypatch.setenv("LEAKAGE_DATA", "~nobody-of-this-name/data")
    for words in (["data"], ["data", "mnist"], ["data", "--needed"]):
        assert command_line.main(words) == 1
        complaint = capsys.readouterr().err
        assert "there is no home for ~nobody-of-this-name/data; set HOME, or LEAKAGE_DATA" in complaint
        assert complaint.count("\n") == 1
    assert command_line.main(["data", "--needed", "--if-possible"]) == 0


def test_the_folder_is_the_one_the_user_names(monkeypatch, tmp_path):
    monkeypatch.setenv("LEAKAGE_DATA", str(tmp_path))
    assert datasets.data_folder() == tmp_path
    monkeypatch.setenv("LEAKAGE_DATA", "~/data")
    assert datasets.data_folder() == Path.home() / "data"


def test_the_folder_is_in_the_users_cache_by_default(monkeypatch, tmp_path):
    monkeypatch.setenv("LEAKAGE_DATA", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert datasets.data_folder() == tmp_path / "leakage"
    for ignored in ("", "relative/path"):
        monkeypatch.setenv("XDG_CACHE_HOME", ignored)
        assert datasets.data_folder() == Path.home() / ".cache" / "leakage"


# --- reading


@pytest.mark.parametrize("packing", PACKINGS)
def test_a_good_file_is_read_without_writing_anything(root, register, packing):
    register(entry(PAYLOAD, packing))
    put(root, pack(PAYLOAD, packing), f"tiny/content{packing}")
    before = tree(root)
    assert datasets.is_available("tiny")
    assert datasets.read_payload("tiny", "content") == PAYLOAD
    assert states() == ["verified"]
    assert get()[0].state == "verified"  # nothing to do, so nothing is contacted
    assert tree(root) == before


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("spoil", ["file", "payload"])
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_file_gives_its_own_payload_or_a_refusal(root, packing, spoil, data):
    whole = pack(PAYLOAD, packing)
    bad = data.draw(spoiled(whole)) if spoil == "file" else pack(data.draw(spoiled(PAYLOAD)), packing)
    path = put(root, bad, f"tiny/content{packing}")
    with pytest.MonkeyPatch.context() as patch:
        small_data.register(patch, entry(PAYLOAD, packing))
        if datasets.is_available("tiny"):  # a byte that does not count was altered, as in the header of gzip
            assert datasets.read_payload("tiny", "content") == PAYLOAD
            return
        with pytest.raises(DataDamaged, match=r"is refused: .*Move it away. Fetch it .* `.venv/bin/leakage data tiny`"):
            datasets.read_payload("tiny", "content")
        with pytest.raises(DataDamaged):
            get()
    assert path.read_bytes() == bad


def test_a_refusal_names_the_file_what_was_expected_and_what_was_found(root, register):
    register(entry(PAYLOAD))
    path = put(root, pack(PAYLOAD[:-1]))
    (line,) = datasets.describe_damage("tiny")
    for part in (path, hashlib.sha256(PAYLOAD).hexdigest(), hashlib.sha256(PAYLOAD[:-1]).hexdigest()):
        assert str(part) in line
    assert "\n" not in line


def test_a_folder_in_the_place_of_a_file_is_damage(root, register):
    register(entry(PAYLOAD))
    (root / "tiny/content.gz").mkdir(parents=True)
    assert "cannot be read" in datasets.status("tiny")[0].detail


def test_an_absent_set_says_in_one_line_how_to_get_it(root, register):
    register(entry(PAYLOAD))
    with pytest.raises(DataAbsent) as caught:
        datasets.read_payload("tiny", "content")
    message = str(caught.value)
    assert "\n" not in message
    for cure in (".venv/bin/leakage data tiny", "leakage.data.datasets.fetch('tiny')"):
        assert f"by `{cure}`" in message
    assert "or set LEAKAGE_DATA to a folder that has tiny/content.gz" in message
    assert not datasets.is_available("tiny")
    assert (states(), datasets.checksum("tiny")) == (["absent"], "absent")
    assert list(root.iterdir()) == []


def test_a_set_with_one_file_missing_is_not_available(root, register):
    register(entry(b"a", name="a", path="tiny/a"), entry(b"b", name="b", path="tiny/b"))
    put(root, b"a", "tiny/a")
    assert states() == ["verified", "absent"]
    assert not datasets.is_available("tiny")
    assert datasets.checksum("tiny") == "absent"


def test_any_form_of_a_set_in_several_forms_is_the_whole_set(root, register):
    register(entry(b"a", name="a", path="tiny/a"), entry(b"b", name="b", path="tiny/b"), any_file=True)
    put(root, b"b", "tiny/b")
    assert datasets.is_available("tiny")
    assert datasets.best_file("tiny") == "b"
    assert [found.state for found in get()] == ["absent", "verified"]


def test_the_checksum_follows_the_payload_and_not_its_packing(root, register):
    register(entry(PAYLOAD))
    path = put(root, pack(PAYLOAD))
    first = datasets.checksum("tiny")
    path.write_bytes(path.read_bytes()[:9] + b"\x00" + path.read_bytes()[10:])  # another "operating system" byte
    assert datasets.checksum("tiny") == first
    register(entry(PAYLOAD + b"!"))
    put(root, pack(PAYLOAD + b"!"))
    assert datasets.checksum("tiny") not in (first, "absent")


# --- downloading


@pytest.mark.parametrize("packing", PACKINGS)
def test_a_download_is_checked_and_moved_into_place_once(root, register, site, packing):
    register(entry(PAYLOAD, packing, url=f"{site.address}/file"))
    site.files["/file"] = pack(PAYLOAD, packing)
    assert [found.state for found in get()] == ["verified"]
    assert datasets.read_payload("tiny", "content") == PAYLOAD
    assert list(tree(root)) == [".", "tiny", f"tiny/content{packing}"]
    assert (root / f"tiny/content{packing}").stat().st_mode & 0o444 == 0o444
    get()
    assert site.asked == ["/file"]


@pytest.mark.parametrize("sent", [pack(PAYLOAD[:-1]), pack(PAYLOAD + b"!"), pack(PAYLOAD)[:-9], b"<html>"])
def test_a_wrong_download_is_refused_and_leaves_nothing_behind(root, register, site, sent):
    register(entry(PAYLOAD, url=f"{site.address}/file"))
    site.files["/file"] = sent
    with pytest.raises(DataDamaged, match=r"now sends another file, .* Get it from https://example\.invalid"):
        get()
    assert list(tree(root)) == [".", "tiny"]


def test_a_damaged_file_is_neither_replaced_nor_asked_for(root, register, site):
    register(entry(PAYLOAD, url=f"{site.address}/file"))
    site.files["/file"] = pack(PAYLOAD)
    path = put(root, b"damaged long ago")
    with pytest.raises(DataDamaged, match="Move it away"):
        get()
    assert path.read_bytes() == b"damaged long ago"
    assert site.asked == []
    path.rename(root / "elsewhere")
    assert [found.state for found in get()] == ["verified"]


def test_a_download_that_fails_is_tried_again_and_leaves_no_file(root, register, site, monkeypatch):
    monkeypatch.setattr("pooch.core.time.sleep", lambda seconds: None)
    register(entry(PAYLOAD, url=f"{site.address}/file"))
    site.files["/file"], site.break_after = pack(PAYLOAD), 100
    with pytest.raises(ServerUnreachable):
        get(retries=2)
    register(entry(PAYLOAD, url=f"{site.address}/missing"))
    with pytest.raises(DownloadFailed, match="404"):
        get()
    assert site.asked == ["/file"] * 3 + ["/missing"]
    assert list(tree(root)) == [".", "tiny"]


# --- the real files


@pytest.mark.skipif(not all(map(datasets.is_available, REAL)), reason="a public data set is not in the data folder")
@pytest.mark.parametrize("name", REAL)
def test_a_real_file_is_verified_and_refused_once_cut_or_altered(name, tmp_path, monkeypatch):
    file = DATASETS[name].file(datasets.best_file(name))
    good = (datasets.data_folder() / file.path).read_bytes()
    monkeypatch.setenv("LEAKAGE_DATA", str(tmp_path))
    middle = len(good) // 2
    for bad in (good[:middle], good[:middle] + bytes([good[middle] ^ 1]) + good[middle + 1 :]):
        put(tmp_path, bad, file.path)
        with pytest.raises(DataDamaged, match=rf"is refused: .* `\.venv/bin/leakage data {name}`"):
            datasets.read_payload(name, file.name)
        assert not datasets.is_available(name)
