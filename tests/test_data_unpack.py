"""Packed files give their payload or a refusal, never anything else and never more than declared."""

import gzip
import io
import os
import tarfile
import tracemalloc

import pytest

from leakage.data import unpack
from leakage.data.unpack import UnpackError
from small_data import PACKINGS, entry, member, pack, tar_gz, tree

PAYLOAD = bytes(range(256)) * 20


def unpacked(tmp_path, packed, *files):
    """The payload of the first of `files` from a file with the bytes `packed`."""
    path = tmp_path / "packed"
    path.write_bytes(packed)
    return dict(unpack.payloads(path, files))[files[0]]


@pytest.mark.parametrize("packing", PACKINGS)
def test_a_good_file_gives_its_payload(tmp_path, packing):
    assert unpacked(tmp_path, pack(PAYLOAD, packing), entry(PAYLOAD, packing)) == PAYLOAD


@pytest.mark.parametrize("packing", ["gzip", "tar.gz"])
def test_a_file_cut_anywhere_is_refused(tmp_path, packing):
    packed = pack(os.urandom(2000), packing)
    for length in range(0, len(packed), 101):
        with pytest.raises(UnpackError):
            unpacked(tmp_path, packed[:length], entry(b"x" * 2000, packing))


@pytest.mark.parametrize("packing", ["gzip", "tar.gz"])
def test_a_file_with_one_byte_changed_gives_the_same_payload_or_a_refusal(tmp_path, packing):
    packed = pack(PAYLOAD, packing)
    for place in range(0, len(packed), 3):
        altered = packed[:place] + bytes([packed[place] ^ 0xFF]) + packed[place + 1 :]
        try:
            assert unpacked(tmp_path, altered, entry(PAYLOAD, packing)) == PAYLOAD
        except UnpackError:
            continue


@pytest.mark.parametrize("packing", PACKINGS)
def test_a_payload_one_byte_too_long_is_refused(tmp_path, packing):
    with pytest.raises(UnpackError, match="more than"):
        unpacked(tmp_path, pack(PAYLOAD + b"!", packing), entry(PAYLOAD, packing))


def test_something_else_than_gzip_is_refused(tmp_path):
    with pytest.raises(UnpackError, match=r"truncated or corrupt \(Not a gzipped file"):
        unpacked(tmp_path, b"<html>not found</html>", entry(PAYLOAD))


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        pytest.param(("../evil", b"x"), r"'../evil' is unsafe", id="parent folder"),
        pytest.param(("/etc/evil", b"x"), r"'/etc/evil' is unsafe", id="absolute path"),
        pytest.param(("inside/../../evil", b"x"), r"unsafe", id="parent folder, hidden"),
        pytest.param(member("link", tarfile.SYMTYPE, target="inside"), r"'link' is unsafe", id="symbolic link"),
        pytest.param(member("link", tarfile.SYMTYPE, target="/etc/passwd"), r"'link' is unsafe", id="link outside"),
        pytest.param(member("link", tarfile.LNKTYPE, target="inside"), r"'link' is unsafe", id="hard link"),
        pytest.param(member("device", tarfile.CHRTYPE), r"'device' is unsafe", id="device"),
        pytest.param(member("pipe", tarfile.FIFOTYPE), r"'pipe' is unsafe", id="pipe"),
        pytest.param(member("folder", tarfile.DIRTYPE), r"unexpected member 'folder'", id="folder"),
        pytest.param(("surprise", b"x"), r"unexpected member 'surprise'", id="another file"),
        pytest.param(("inside", PAYLOAD), r"'inside' twice", id="the same name twice"),
    ],
)
@pytest.mark.parametrize("first", [True, False], ids=["before", "after"])
def test_an_archive_with_anything_unexpected_is_refused_and_writes_nothing(tmp_path, extra, reason, first):
    good = ("inside", PAYLOAD)
    packed = tar_gz(extra, good) if first else tar_gz(good, extra)
    folder = tmp_path / "data"
    folder.mkdir()
    with pytest.raises(UnpackError, match=reason):
        unpacked(folder, packed, entry(PAYLOAD, "tar.gz"))
    assert list(tree(tmp_path)) == [".", "data", "data/packed"]


def test_the_expected_member_may_not_be_a_link(tmp_path):
    packed = tar_gz(("target", PAYLOAD), member("inside", tarfile.SYMTYPE, target="target"))
    with pytest.raises(UnpackError, match="'inside' is unsafe"):
        unpacked(tmp_path, packed, entry(PAYLOAD, "tar.gz"), entry(PAYLOAD, "tar.gz", member="target"))


def test_an_archive_without_the_member_is_refused(tmp_path):
    files = (entry(PAYLOAD, "tar.gz"), entry(PAYLOAD, "tar.gz", member="other"))
    with pytest.raises(UnpackError, match="no member 'inside'"):
        unpacked(tmp_path, tar_gz(("other", PAYLOAD)), *files)


def test_tolerated_members_are_passed_over_and_their_folders_too(tmp_path):
    file = entry(PAYLOAD, "tar.gz", member="set/inside", tolerated="set/")
    folder = member("set", tarfile.DIRTYPE)
    assert unpacked(tmp_path, tar_gz(folder, ("set/readme", b"hello"), ("set/inside", PAYLOAD)), file) == PAYLOAD
    with pytest.raises(UnpackError, match="unexpected member 'settings'"):
        unpacked(tmp_path, tar_gz(("settings", b""), ("set/inside", PAYLOAD)), file)


def _announced(kind: bytes, size: int, content: int = 0, before: bytes = b"") -> bytes:
    """An archive with a header that announces `size` bytes of a long name or of attributes, `content` of them there."""
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = kind, size
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb", compresslevel=1) as packed:
        packed.write(before + info.tobuf(tarfile.GNU_FORMAT))
        for _ in range(content >> 20):
            packed.write(bytes(1 << 20))
    return out.getvalue()


HEADERS = [
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
]


@pytest.mark.parametrize("before", [b"", tarfile.TarInfo.create_pax_global_header({"comment": "x"})], ids=len)
@pytest.mark.parametrize("kind", HEADERS)
def test_a_header_is_refused_before_what_it_announces_is_read(tmp_path, kind, before):
    with pytest.raises(UnpackError, match="header of 209,715,200 bytes, more than the 65,536 allowed"):
        unpacked(tmp_path, _announced(kind, 200 << 20, before=before), entry(PAYLOAD, "tar.gz"))


def test_a_member_of_negative_size_is_refused(tmp_path):
    info = tarfile.TarInfo("inside")
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[124:136] = b"\xff" * 12  # -1 in base 256
    header[148:156] = b"%06o\0 " % (256 + sum(header[:148]) + sum(header[156:512]))
    with pytest.raises(UnpackError, match="negative size"):
        unpacked(tmp_path, gzip.compress(bytes(header) + bytes(1024)), entry(PAYLOAD, "tar.gz"))


def test_a_long_chain_of_headers_is_refused(tmp_path):
    header = tarfile.TarInfo.create_pax_global_header({"comment": "x"})
    with pytest.raises(UnpackError, match="truncated or corrupt"):
        unpacked(tmp_path, gzip.compress(header * 2000 + bytes(1024)), entry(PAYLOAD, "tar.gz"))


def test_more_members_than_memory_should_hold_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(unpack, "_MOST_MEMBERS", 20)
    packed = tar_gz(*((f"set/{number}", b"") for number in range(21)), ("set/inside", PAYLOAD))
    with pytest.raises(UnpackError, match="more than the 20 members"):
        unpacked(tmp_path, packed, entry(PAYLOAD, "tar.gz", member="set/inside", tolerated="set/"))


def test_a_message_repeats_no_more_of_a_name_than_a_reader_needs(tmp_path):
    with pytest.raises(UnpackError) as caught:
        unpacked(tmp_path, tar_gz(("x" * 50_000, b"")), entry(PAYLOAD, "tar.gz"))
    assert len(str(caught.value)) < 200


def test_a_packed_file_larger_than_any_download_is_refused_unread(tmp_path):
    path = tmp_path / "packed"
    with path.open("wb") as sparse:
        sparse.truncate(1 << 40)
    file = entry(PAYLOAD)
    with pytest.raises(UnpackError, match="1,099,511,627,776 bytes, more than the"):
        list(unpack.payloads(path, (file,)))


@pytest.mark.parametrize("packing", PACKINGS)
def test_nothing_is_asked_of_python_that_came_with_a_later_release(tmp_path, monkeypatch, packing):
    for name in ("data_filter", "tar_filter", "fully_trusted_filter", "FilterError"):  # since 3.11.4
        monkeypatch.delattr(tarfile, name, raising=False)
    assert unpacked(tmp_path, pack(PAYLOAD, packing), entry(PAYLOAD, packing)) == PAYLOAD
    if packing == "tar.gz":
        with pytest.raises(UnpackError, match=r"'\.\./evil' is unsafe"):
            unpacked(tmp_path, tar_gz(("inside", PAYLOAD), ("../evil", b"")), entry(PAYLOAD, packing))


def test_all_payloads_of_an_archive_come_in_one_pass(tmp_path):
    files = [entry(bytes([i]), "tar.gz", name=f"file{i}", member=f"file{i}") for i in range(3)]
    path = tmp_path / "packed"
    path.write_bytes(tar_gz(*((file.member, bytes([i])) for i, file in enumerate(files))))
    assert list(unpack.payloads(path, tuple(files))) == list(zip(files, (b"\0", b"\1", b"\2"), strict=True))


@pytest.mark.parametrize(
    ("bomb", "packing"),
    [
        pytest.param(lambda: gzip.compress(bytes(100 << 20), compresslevel=1), "gzip", id="gzip"),
        pytest.param(lambda: tar_gz(("inside", bytes(100 << 20))), "tar.gz", id="member"),
        pytest.param(lambda: _announced(tarfile.GNUTYPE_LONGNAME, 100 << 20, content=100 << 20), "tar.gz", id="header"),
    ],
)
def test_a_bomb_is_refused_before_it_fills_the_memory(tmp_path, bomb, packing):
    packed = bomb()
    assert len(packed) < 1 << 20
    tracemalloc.start()
    try:
        with pytest.raises(UnpackError, match="more than"):
            unpacked(tmp_path, packed, entry(PAYLOAD, packing))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The allowance for headers is 16 MiB, held at most twice while pieces are joined; the bombs hold 100 MiB.
    assert peak < 50 << 20
