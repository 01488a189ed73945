"""Data files are handed out only when they are what they should be; refusals leave nothing behind."""

import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from leakage.data import fetch, registry
from leakage.data.download import DownloadBlocked, DownloadFailed
from leakage.data.registry import DataAbsent, DataDamaged
from patience import wait_until
from small_data import PACKINGS, entry, member, pack, put, register_tiny, serving, sha256, tar_gz, tree, unverified

PAYLOAD = bytes(range(256)) * 200


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
    return partial(register_tiny, monkeypatch)


def get(name="tiny"):
    return fetch.fetch(name, _schemes=("http",))


def states(name="tiny"):
    return [found.state for found in fetch.status(name)]


# --- where the files lie


def test_the_folder_is_the_one_the_user_names(monkeypatch, tmp_path):
    monkeypatch.setenv("LEAKAGE_DATA", str(tmp_path))
    assert fetch.folder() == tmp_path
    monkeypatch.setenv("LEAKAGE_DATA", "~/data")
    assert fetch.folder() == Path.home() / "data"


@pytest.mark.parametrize("unset", [None, ""])
def test_the_folder_is_in_the_users_cache_by_default(monkeypatch, tmp_path, unset):
    monkeypatch.delenv("LEAKAGE_DATA", raising=False)
    if unset is not None:
        monkeypatch.setenv("LEAKAGE_DATA", unset)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert fetch.folder() == tmp_path / "leakage"
    for ignored in ("", "relative/path"):
        monkeypatch.setenv("XDG_CACHE_HOME", ignored)
        assert fetch.folder() == Path.home() / ".cache" / "leakage"


# --- reading


@pytest.mark.parametrize("packing", PACKINGS)
def test_a_good_file_is_read_without_writing_anything(root, register, packing):
    register(entry(PAYLOAD, packing))
    put(root, pack(PAYLOAD, packing))
    before = tree(root)
    assert fetch.available("tiny")
    assert fetch.read_payload("tiny", "content") == PAYLOAD
    assert states() == ["verified"]
    assert len(fetch.checksum("tiny")) == 64
    assert get()[0].state == "verified"  # nothing to do, so nothing is contacted
    assert tree(root) == before


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("change", ["altered", "truncated", "extended"])
def test_an_altered_payload_is_refused_with_file_expected_found_and_cure(root, register, packing, change):
    altered = {"altered": b"!" + PAYLOAD[1:], "truncated": PAYLOAD[:-1], "extended": PAYLOAD + b"!"}[change]
    register(entry(PAYLOAD, packing))
    path = put(root, pack(altered, packing))
    with pytest.raises(DataDamaged) as caught:
        fetch.read_payload("tiny", "content")
    message = str(caught.value)
    assert str(path) in message
    assert "Run `.venv/bin/leakage data tiny` to replace it, or set LEAKAGE_DATA" in message
    if change == "altered":
        assert sha256(PAYLOAD) in message
        assert sha256(altered) in message
    else:
        assert f"{len(PAYLOAD):,}" in message
    assert states() == ["damaged"]


@pytest.mark.parametrize("packing", ["gzip", "tar.gz"])
def test_a_cut_file_is_refused(root, register, packing):
    register(entry(PAYLOAD, packing))
    put(root, pack(PAYLOAD, packing)[:-30])
    with pytest.raises(DataDamaged, match="is refused: it is truncated or corrupt"):
        fetch.read_payload("tiny", "content")


def test_a_hostile_archive_is_refused_and_nothing_is_written(root, register):
    register(entry(PAYLOAD, "tar.gz"))
    put(root, tar_gz(("inside", PAYLOAD), ("../../evil", b"x")))
    before = tree(root.parent)
    with pytest.raises(DataDamaged, match="unsafe"):
        fetch.read_payload("tiny", "content")
    assert tree(root.parent) == before


def test_an_absent_set_says_in_one_line_how_to_get_it(root, register):
    register(entry(PAYLOAD))
    with pytest.raises(DataAbsent) as caught:
        fetch.read_payload("tiny", "content")
    message = str(caught.value)
    assert "\n" not in message
    assert "Run `.venv/bin/leakage data tiny`, or set LEAKAGE_DATA to a folder that has tiny/content.bin" in message
    assert not fetch.available("tiny")
    assert states() == ["absent"]
    assert fetch.checksum("tiny") == "absent"
    assert list(root.iterdir()) == []


def test_a_set_with_one_file_missing_is_not_available(root, register):
    register(entry(b"a", name="a", path="tiny/a"), entry(b"b", name="b", path="tiny/b"))
    put(root, pack(b"a", "gzip"), "tiny/a")
    assert states() == ["verified", "absent"]
    assert not fetch.available("tiny")
    assert fetch.checksum("tiny") == "absent"


def test_any_form_of_a_set_in_several_forms_is_the_whole_set(root, register):
    register(entry(b"a", name="a", path="tiny/a"), entry(b"b", name="b", path="tiny/b"), any_file=True)
    put(root, pack(b"b", "gzip"), "tiny/b")
    assert fetch.available("tiny")
    assert [found.state for found in get()] == ["absent", "verified"]


@pytest.mark.parametrize("ask", [fetch.available, fetch.status, fetch.checksum, fetch.fetch, fetch.absent])
def test_an_unknown_name_is_refused_everywhere(ask):
    with pytest.raises(ValueError, match="`name` must be one of mnist"):
        ask("mnits")


def test_an_unknown_file_is_refused():
    with pytest.raises(ValueError, match="`file` must be one of images, labels"):
        fetch.read_payload("mnist", "pictures")


# --- checksums for content keys


def test_the_checksum_follows_the_payload_and_not_its_packing(root, register):
    register(entry(PAYLOAD))
    put(root, pack(PAYLOAD, "gzip"))
    first = fetch.checksum("tiny")
    path = put(root, pack(PAYLOAD, "gzip"))
    path.write_bytes(path.read_bytes()[:9] + b"\x00" + path.read_bytes()[10:])  # another "operating system" byte
    assert fetch.checksum("tiny") == first


# --- downloading


@pytest.mark.parametrize("packing", PACKINGS)
def test_a_fetched_file_is_checked_and_moved_into_place(root, register, site, packing):
    register(entry(PAYLOAD, packing, url=f"{site.address}/file"))
    site.files["/file"] = pack(PAYLOAD, packing)
    assert [found.state for found in get()] == ["verified"]
    assert fetch.read_payload("tiny", "content") == PAYLOAD
    assert list(tree(root)) == [".", "tiny", "tiny/content.bin"]


def test_a_good_file_is_not_fetched_again(root, register, site):
    register(entry(PAYLOAD, url=f"{site.address}/file"))
    site.files["/file"] = pack(PAYLOAD, "gzip")
    get()
    get()
    assert len(site.headers) == 1


@pytest.mark.parametrize(
    ("packing", "sent", "reason"),
    [
        pytest.param("gzip", pack(b"!" + PAYLOAD[1:], "gzip"), "must have SHA-256", id="altered"),
        pytest.param("gzip", pack(PAYLOAD[:-1], "gzip"), "must have 51,200 bytes and has 51,199", id="shorter"),
        pytest.param("gzip", pack(PAYLOAD + b"!", "gzip"), "more than", id="longer"),
        pytest.param("gzip", pack(PAYLOAD, "gzip")[:-9], "truncated or corrupt", id="truncated"),
        pytest.param("gzip", b"<html>", "truncated or corrupt", id="an error page"),
        pytest.param("plain", PAYLOAD + b"!", "more than", id="too much"),
        pytest.param("tar.gz", tar_gz(("inside", PAYLOAD), ("../evil", b"x")), "unsafe", id="traversal"),
        pytest.param("tar.gz", tar_gz(member("inside", b"2", target="/etc/passwd")), "unsafe", id="link"),
    ],
)
def test_a_wrong_download_is_refused_and_leaves_nothing_behind(root, register, site, packing, sent, reason):
    register(entry(PAYLOAD, packing, url=f"{site.address}/file"))
    site.files["/file"] = sent
    with pytest.raises(DataDamaged, match=reason) as caught:
        get()
    assert "is refused and was deleted" in str(caught.value)
    assert "get the file from https://example.invalid" in str(caught.value)
    assert list(tree(root)) == [".", "tiny"]


def test_a_wrong_download_leaves_the_file_already_there_as_it_was(root, register, site):
    register(entry(PAYLOAD, url=f"{site.address}/file"))
    path = put(root, b"damaged long ago")
    site.files["/file"] = pack(b"!" + PAYLOAD[1:], "gzip")
    with pytest.raises(DataDamaged):
        get()
    assert path.read_bytes() == b"damaged long ago"
    assert list(tree(root)) == [".", "tiny", "tiny/content.bin"]


def test_a_damaged_file_is_replaced_by_a_good_download(root, register, site):
    register(entry(PAYLOAD, url=f"{site.address}/file"))
    put(root, b"damaged long ago")
    site.files["/file"] = pack(PAYLOAD, "gzip")
    assert [found.state for found in get()] == ["verified"]


def test_a_broken_download_is_kept_resumed_and_cleaned_up(root, register, site):
    register(entry(PAYLOAD, "plain", url=f"{site.address}/file"))
    site.files["/file"], site.break_after = PAYLOAD, 1000
    with pytest.raises(DownloadFailed, match="Run the command again to resume"):
        get()
    assert states() == ["partial"]
    assert not fetch.available("tiny")
    site.break_after = None
    assert [found.state for found in get()] == ["verified"]
    assert site.headers[-1]["Range"] == "bytes=1000-"
    assert list(tree(root)) == [".", "tiny", "tiny/content.bin"]


def test_a_download_that_never_began_leaves_no_file(root, register, site):
    register(entry(PAYLOAD, url=f"{site.address}/missing"))
    with pytest.raises(DownloadFailed, match="404"):
        get()
    assert list(tree(root)) == [".", "tiny"]


def test_of_what_nobody_can_vouch_for_no_two_parts_are_put_together(root, register, site):
    register(replace(unverified(PAYLOAD, site), packing="plain"))
    site.files["/file"], site.break_after = PAYLOAD, 1000
    with pytest.raises(DownloadFailed):
        get()
    site.break_after = None
    get()
    assert "Range" not in site.headers[-1]


def test_a_folder_that_cannot_be_made_is_named_with_a_cure(register, tmp_path, monkeypatch, site):
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("LEAKAGE_DATA", str(tmp_path / "file"))
    register(entry(PAYLOAD, url=f"{site.address}/file"))
    with pytest.raises(DownloadFailed, match=r"cannot be put there .* set LEAKAGE_DATA to a folder you may write to"):
        get()
    assert site.headers == []


def test_a_read_only_folder_is_not_fetched_into(root, register, site, monkeypatch):
    register(entry(PAYLOAD, url=f"{site.address}/file"))
    site.files["/file"] = pack(PAYLOAD, "gzip")
    monkeypatch.setattr(Path, "mkdir", _read_only)  # permissions would not stop the superuser
    with pytest.raises(DownloadFailed, match=r"cannot be put there \(Read-only file system\)\. .* set LEAKAGE_DATA"):
        get()
    assert list(tree(root)) == ["."]


def _read_only(*_, **__):
    raise OSError(errno.EROFS, os.strerror(errno.EROFS))


def test_only_https_is_followed_unless_a_test_says_otherwise(root, register, site):
    register(entry(PAYLOAD, url=f"{site.address}/file"))
    with pytest.raises(DownloadFailed, match="only https"):
        fetch.fetch("tiny")
    assert list(tree(root)) == [".", "tiny"]


def test_one_download_serves_every_payload_of_an_archive(root, register, site):
    facts = {"url": f"{site.address}/file", "path": "tiny/both.tgz"}
    register(
        entry(b"aa", "tar.gz", name="a", member="a", **facts), entry(b"bbb", "tar.gz", name="b", member="b", **facts)
    )
    site.files["/file"] = tar_gz(("a", b"aa"), ("b", b"bbb"))
    assert [found.state for found in get()] == ["verified", "verified"]
    assert len(site.headers) == 1
    assert [fetch.read_payload("tiny", name) for name in "ab"] == [b"aa", b"bbb"]


# --- two at once


def test_two_fetches_at_once_do_not_spoil_each_other(root, register, site):
    register(unverified(PAYLOAD, site))
    site.files["/file"] = pack(PAYLOAD, "gzip")
    site.pause = threading.Event()
    with ThreadPoolExecutor() as pool:
        first = pool.submit(get)
        wait_until(lambda: bool(site.headers))  # the first holds the folder then
        with pytest.raises(
            DownloadBlocked, match=f"another process is fetching {root}/tiny/content.bin. Run the command"
        ):
            get()
        site.pause.set()
        assert [found.state for found in first.result()] == ["pinned"]
    assert len(site.headers) == 1
    assert fetch.read_payload("tiny", "content") == PAYLOAD


def test_a_pipe_in_the_way_of_a_download_is_named_and_not_waited_for(root, register, site):
    register(entry(PAYLOAD, url=f"{site.address}/file"))
    (root / "tiny").mkdir()
    os.mkfifo(root / "tiny/content.bin.part")
    with pytest.raises(DownloadFailed, match=f"{root}/tiny/content.bin cannot be put there .* Move away what is in"):
        get()
    assert site.headers == []


def test_a_file_that_cannot_be_put_there_leaves_no_pin_that_would_refuse_the_next(root, register, site):
    register(unverified(PAYLOAD, site))
    site.files["/file"] = pack(PAYLOAD, "gzip")
    (root / "tiny/content.bin").mkdir(parents=True)
    with pytest.raises(DownloadFailed, match="cannot be put there"):
        get()
    assert not list(root.rglob("*.pin.json"))
    (root / "tiny/content.bin").rmdir()
    assert [found.state for found in get()] == ["pinned"]
    assert f'"url": "{site.address}/file"' in next(root.rglob("*.pin.json")).read_text(encoding="utf-8")


def test_a_folder_in_the_place_of_a_file_is_named_and_stays(root, register, site):
    register(entry(PAYLOAD, url=f"{site.address}/file"))
    site.files["/file"] = pack(PAYLOAD, "gzip")
    (root / "tiny/content.bin").mkdir(parents=True)
    with pytest.raises(DownloadFailed, match=r"content\.bin cannot be put there \(.*\)\. Move away what is in its way"):
        get()
    assert (root / "tiny/content.bin").is_dir()


# --- the real files


@pytest.mark.skipif(
    not all(map(fetch.available, ("mnist", "location", "adult", "multi30k"))),
    reason="MNIST, Location-30, Adult or Multi30k is not in the data folder",
)
@pytest.mark.parametrize("name", ["mnist", "location", "adult", "multi30k"])
def test_a_real_file_is_verified_and_refused_once_cut_or_altered(name, tmp_path, monkeypatch):
    file = registry.dataset(name).file(fetch.chosen(name))
    good = (fetch.folder() / file.path).read_bytes()
    assert fetch.status(name)[0].state == "verified"
    monkeypatch.setenv("LEAKAGE_DATA", str(tmp_path))
    middle = len(good) // 2
    for bad in (good[:middle], good[:-1], good[:middle] + bytes([good[middle] ^ 1]) + good[middle + 1 :]):
        put(tmp_path, bad, file.path)
        with pytest.raises(DataDamaged, match=rf"is refused: .* `\.venv/bin/leakage data {name}`"):
            fetch.read_payload(name, file.name)
        assert not fetch.available(name)
