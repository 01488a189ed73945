"""A file that is not what it should be counts as absent; one nobody can vouch for is pinned, and can be unpinned."""

import errno
import json
import os
from functools import partial
from pathlib import Path

import pytest

from leakage.data import fetch, unpack
from leakage.data import states as states_module
from leakage.data.registry import DataDamaged
from small_data import entry, pack, put, register_tiny, serving, sha256, tree, unverified

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


# --- damage counts as absence


def _make_folder(path):
    path.mkdir()


def _make_pipe(path):
    os.mkfifo(path)


def _make_circle(path):
    path.symlink_to(path.name)


DAMAGE = {
    "altered": pack(b"!" + PAYLOAD[1:], "gzip"),
    "cut": pack(PAYLOAD, "gzip")[:-9],
    "empty": b"",
    "foreign": b"<html>not found</html>",
    "a folder": _make_folder,
    "a pipe": _make_pipe,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a link to itself": _make_circle,
}


@pytest.fixture(params=DAMAGE)
def damaged(request, root, register):
    """The path of a file that is not what it should be."""
    register(entry(PAYLOAD))
    path = root / "tiny/content.bin"
    path.parent.mkdir()
    damage = DAMAGE[request.param]
    if callable(damage):
        damage(path)
    else:
        path.write_bytes(damage)
    return path


def test_a_damaged_set_counts_as_absent_and_reading_it_is_an_error(damaged):
    assert states() == ["damaged"]
    assert not fetch.available("tiny")
    assert fetch.checksum("tiny") == "absent"
    with pytest.raises(DataDamaged, match="is refused") as caught:
        fetch.read_payload("tiny", "content")
    assert fetch.complaints("tiny") == (str(caught.value),)
    assert "\n" not in str(caught.value)
    assert str(damaged) in str(caught.value)
    assert "`.venv/bin/leakage data tiny`" in str(caught.value)


def test_the_words_for_a_page_are_the_same_for_a_missing_and_a_damaged_file(root, register):
    register(entry(PAYLOAD))
    missing = str(fetch.absent("tiny"))
    put(root, b"damaged")
    assert str(fetch.absent("tiny")) == missing
    assert str(root) not in missing


@pytest.mark.parametrize(("where", "what"), [(unpack, "promptly"), (Path, "stat")], ids=["file", "folder"])
def test_what_may_not_be_read_or_entered_is_named_with_the_systems_word(root, register, monkeypatch, where, what):
    register(entry(PAYLOAD))
    put(root, pack(PAYLOAD, "gzip"))
    monkeypatch.setattr(where, what, _forbidden)  # permissions would not stop the superuser
    assert fetch.checksum("tiny") == "absent"
    assert "it cannot be read (Permission denied)" in fetch.complaints("tiny")[0]


def _forbidden(*_, **__):
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def test_a_user_without_a_home_has_no_data_and_no_error(register, monkeypatch):
    register(entry(PAYLOAD))
    for name in ("LEAKAGE_DATA", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", _no_home)
    assert fetch.checksum("tiny") == "absent"
    assert fetch.folder() == Path("/var/cache/leakage")


def _no_home():
    raise RuntimeError("Could not determine home directory.")


def test_a_good_form_is_read_although_another_one_is_damaged(root, register):
    register(entry(b"a", name="a", path="tiny/a"), entry(b"b", name="b", path="tiny/b"), any_file=True)
    put(root, pack(b"b", "gzip"), "tiny/b")
    alone = fetch.checksum("tiny")
    put(root, b"damaged", "tiny/a")
    assert fetch.available("tiny")
    assert fetch.chosen("tiny") == "b"
    assert fetch.checksum("tiny") == alone
    assert len(fetch.complaints("tiny")) == 1


def test_of_several_damaged_forms_one_is_complained_of_when_the_set_is_read(root, register):
    register(entry(b"a", name="a", path="tiny/a"), entry(b"b", name="b", path="tiny/b"), any_file=True)
    assert fetch.chosen("tiny") == "a"
    put(root, b"damaged", "tiny/b")
    assert fetch.chosen("tiny") == "b"
    assert not fetch.available("tiny")


def test_a_file_is_hashed_once_for_each_version(root, register, monkeypatch):
    register(entry(PAYLOAD))
    path = put(root, pack(PAYLOAD, "gzip"))
    looks = []
    payloads = unpack.payloads
    monkeypatch.setattr(unpack, "payloads", lambda *given: looks.append(given) or payloads(*given))
    monkeypatch.setattr(states_module, "_SETTLED", 0)  # as if the file were an hour old
    assert [fetch.available("tiny") for _ in range(3)] == [True] * 3
    assert len(looks) == 1
    path.write_bytes(path.read_bytes() + b"!")
    assert not fetch.available("tiny")
    assert len(looks) == 2


def test_a_change_of_the_same_length_and_time_is_seen(root, register):
    register(entry(PAYLOAD, "plain"))
    path = put(root, PAYLOAD)
    before = path.stat()
    assert fetch.available("tiny")
    path.write_bytes(b"!" + PAYLOAD[1:])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert not fetch.available("tiny")


# --- unverified files


def test_the_first_download_of_an_unverified_file_pins_what_it_found(root, register, site):
    register(unverified(PAYLOAD, site))
    site.files["/file"] = pack(PAYLOAD, "gzip")
    assert [found.state for found in get()] == ["pinned"]
    pin = json.loads((root / "tiny/content.bin.pin.json").read_text())
    assert pin["payloads"] == {"content": {"bytes": len(PAYLOAD), "sha256": sha256(PAYLOAD)}}
    assert list(tree(root)) == [".", "tiny", "tiny/content.bin", "tiny/content.bin.pin.json"]
    assert fetch.read_payload("tiny", "content") == PAYLOAD


def test_a_pinned_file_that_changes_is_refused(root, register, site):
    register(unverified(PAYLOAD, site))
    site.files["/file"] = pack(PAYLOAD, "gzip")
    get()
    put(root, pack(b"!" + PAYLOAD[1:], "gzip"))
    with pytest.raises(DataDamaged, match=sha256(PAYLOAD)):
        fetch.read_payload("tiny", "content")
    assert [found.state for found in get()] == ["pinned"]  # fetched anew, with the same pin


def test_a_later_download_that_differs_from_the_pin_is_refused(root, register, site):
    register(unverified(PAYLOAD, site))
    site.files["/file"] = pack(PAYLOAD, "gzip")
    get()
    (root / "tiny/content.bin").unlink()
    site.files["/file"] = pack(b"!" + PAYLOAD[1:], "gzip")
    with pytest.raises(DataDamaged, match=sha256(PAYLOAD)):
        get()
    assert list(tree(root)) == [".", "tiny", "tiny/content.bin.pin.json"]


def test_an_unverified_file_put_there_by_hand_says_so(root, register, site):
    register(unverified(PAYLOAD, site))
    put(root, pack(PAYLOAD, "gzip"))
    before = tree(root)
    assert states() == ["unverified"]
    assert fetch.read_payload("tiny", "content") == PAYLOAD
    assert tree(root) == before


def test_an_unverified_file_is_still_bounded(root, register, site):
    register(unverified(PAYLOAD, site))
    site.files["/file"] = pack(PAYLOAD + b"!", "gzip")
    with pytest.raises(DataDamaged, match="more than"):
        get()
    assert list(tree(root)) == [".", "tiny"]


@pytest.mark.parametrize("text", ["", "[]", '{"payloads": {}}', '{"payloads": {"content": {"bytes": "many"}}}'])
def test_an_unreadable_pin_is_an_error_and_not_a_permission(root, register, site, text):
    register(unverified(PAYLOAD, site))
    path = put(root, pack(PAYLOAD, "gzip"))
    path.with_name("content.bin.pin.json").write_text(text)
    with pytest.raises(DataDamaged, match=r"the pin .*content\.bin\.pin\.json is not readable; delete it"):
        fetch.read_payload("tiny", "content")
    assert states() == ["damaged"]


def test_a_file_put_there_by_hand_is_pinned_when_its_set_is_fetched(root, register, site):
    register(unverified(PAYLOAD, site))
    put(root, pack(PAYLOAD, "gzip"))
    assert [found.state for found in get()] == ["pinned"]
    assert site.headers == []
    pin = json.loads((root / "tiny/content.bin.pin.json").read_text())
    assert pin["url"] is None
    assert pin["payloads"] == {"content": {"bytes": len(PAYLOAD), "sha256": sha256(PAYLOAD)}}
    put(root, pack(b"!" + PAYLOAD[1:], "gzip"))
    assert not fetch.available("tiny")


def test_a_file_put_there_by_hand_is_left_unpinned_in_a_read_only_folder(root, register, site, monkeypatch):
    register(unverified(PAYLOAD, site))
    put(root, pack(PAYLOAD, "gzip"))
    monkeypatch.setattr(Path, "write_text", _read_only)
    assert [found.state for found in get()] == ["unverified"]


def test_a_right_file_beside_a_wrong_pin_is_refused_with_the_pin_and_the_way_out(root, register, site):
    register(unverified(PAYLOAD, site))
    path = put(root, pack(b"!" + PAYLOAD[1:], "gzip"))
    get()
    pin = root / "tiny/content.bin.pin.json"
    put(root, pack(PAYLOAD, "gzip"))
    site.files["/file"] = path.read_bytes()
    with pytest.raises(DataDamaged, match=f"by the pin {pin} and has .* delete the pin {pin}"):
        fetch.read_payload("tiny", "content")
    with pytest.raises(DataDamaged, match=f"by the pin {pin} and has .* To accept what is sent now, delete the pin"):
        get()
    pin.unlink()
    assert [found.state for found in get()] == ["pinned"]
    assert fetch.read_payload("tiny", "content") == PAYLOAD


def test_a_pin_that_is_a_pipe_keeps_nobody_waiting(root, register, site):
    register(unverified(PAYLOAD, site))
    put(root, pack(PAYLOAD, "gzip"))
    os.mkfifo(root / "tiny/content.bin.pin.json")
    assert states() == ["damaged"]


def test_the_checksum_of_an_unverified_payload_says_so(root, register, site):
    register(unverified(PAYLOAD, site))
    put(root, pack(PAYLOAD, "gzip"))
    by_hand = fetch.checksum("tiny")
    assert by_hand.startswith("unverified:")
    get()
    assert states() == ["pinned"]
    assert fetch.checksum("tiny") == by_hand


def _read_only(*_, **__):
    raise OSError(errno.EROFS, os.strerror(errno.EROFS))
