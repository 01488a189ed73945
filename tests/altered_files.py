"""Small files in the real forms of the data sets, and hundreds of ways to alter them, the same ones at every run."""

import bz2
import gzip
import io
import pickle
import random
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import pytest

from leakage.data import adult, binary_rows, mnist, multi30k, newsgroups
from leakage.data.registry import DataFile
from small_data import entry, member, tar_gz

MEMBER = {"location": "bangkok", "purchase100": "dataset_purchase"}
_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 12345\n"
BITS = {"features": 16, "classes": 3}
_FLIPS, _CUTS = 40, 12


@dataclass(frozen=True)
class Small:
    """A data set in miniature.

    Attributes:
        payloads: by the registry's name of the file.
        packings: likewise.
        altered: the files that are altered, one at a time.
        read: the set's own reader, made for the small sizes.
        pinned: whether no checksum is registered, and a pin stands in for it.
    """

    payloads: dict[str, bytes]
    packings: dict[str, str]
    altered: tuple[str, ...]
    read: Callable[[], object]
    pinned: bool = False

    def files(self, name: str) -> tuple[DataFile, ...]:
        """The registry's entries."""
        unknown = {"sha256": None, "size": None} if self.pinned else {}
        return tuple(
            entry(
                payload,
                self.packings[file],
                name=file,
                path=f"{name}/{file}",
                member=MEMBER.get(name, "") if self.packings[file] == "tar.gz" else "",
                limit=2 * len(payload),
                **unknown,
            )
            for file, payload in self.payloads.items()
        )


def packed(payload: bytes, packing: str, name: str) -> bytes:
    """The payload as its set has it packed."""
    if packing == "gzip":
        return gzip.compress(payload, mtime=0)
    return tar_gz((MEMBER[name], payload)) if packing == "tar.gz" else payload


def _idx(magic: int, *sizes: int, content: bytes) -> bytes:
    return struct.pack(f">{1 + len(sizes)}I", magic, *sizes) + content


def _bits(chance: random.Random, rows: int, width: int, quote: str) -> bytes:
    lines = (
        f"{quote}{1 + row % 3}{quote}," + ",".join(str(chance.randrange(2)) for _ in range(width))
        for row in range(rows)
    )
    return "".join(f"{line}\n" for line in lines).encode()


def _adult() -> bytes:
    head = (
        "age,workclass,fnlwgt,education,education-num,marital-status,occupation,relationship,race,sex,"
        "capital-gain,capital-loss,hours-per-week,native-country,income-per-year"
    )
    row = "{},Private,{},Bachelors,13,Never-married,Sales,Own-child,White,Male,0,0,40,?,{}"
    rows = (row.format(20 + i, 1000 * i, "<=50K" if i % 3 else ">50K") for i in range(12))
    return "\n".join([head, *rows, ""]).encode()


def _messages(folder: str, count: int) -> list[tuple[str, bytes]]:
    return [(f"20news-bydate-{folder}/{g}/{i}", b"From: x\n\nWords.\n") for g in ("a.b", "c") for i in range(count)]


def small_sets() -> dict[str, Small]:
    """Every set with a registered checksum, and one with a pin."""
    chance = random.Random(0)
    sentences = {"en": "A dog runs.\nTwo men – old – sing.\n", "de": "Ein Hund läuft.\nZwei Männer singen.\n"}
    texts = {f"{split}.{language}": text.encode() for split in multi30k.SPLITS for language, text in sentences.items()}
    images = _idx(2051, 3, 28, 28, content=chance.randbytes(3 * 784))
    return {
        "mnist": Small(
            {"images": images, "labels": _idx(2049, 3, content=b"\0\5\t")},
            dict.fromkeys(("images", "labels"), "gzip"),
            ("images", "labels"),
            mnist.load,
        ),
        "location": Small(
            {"bangkok": _bits(chance, 9, 16, '"')},
            {"bangkok": "tar.gz"},
            ("bangkok",),
            partial(_rows, "location"),
        ),
        "adult": Small({"adult.csv": _adult()}, {"adult.csv": "plain"}, ("adult.csv",), adult.load),
        "multi30k": Small(texts, dict.fromkeys(texts, "gzip"), ("train.en", "train.de"), multi30k.load),
        "20newsgroups": Small(
            {"20news-bydate": tar_gz(*_messages("train", 2), *_messages("test", 1))},
            {"20news-bydate": "plain"},
            ("20news-bydate",),
            partial(_messages_of, messages=4, groups=2),
        ),
        "purchase100": Small(
            {"dataset_purchase": _bits(chance, 9, 16, "")},
            {"dataset_purchase": "tar.gz"},
            ("dataset_purchase",),
            partial(_rows, "purchase100"),
            pinned=True,
        ),
    }


def _rows(name: str) -> object:
    """`binary_rows.load(name)` with the sizes of the miniature."""
    with pytest.MonkeyPatch.context() as patch:
        real = binary_rows.parse
        patch.setattr(binary_rows, "parse", lambda payload, _, **given: real(payload, 9, **(given | BITS)))
        return binary_rows.load(name)


def _messages_of(**sizes: object) -> object:
    """`newsgroups.load()` likewise."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(newsgroups, "parse", partial(newsgroups.parse, **sizes))
        return newsgroups.load()


class _Touch:
    """Unpickled, it would leave a mark."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def altered_bytes(payload: bytes, packing: str, name: str, mark: Path) -> Iterator[tuple[str, bytes]]:
    """The file altered in every way that can be written as bytes, with the way in words."""
    good = packed(payload, packing, name)
    again = partial(packed, packing=packing, name=name)
    yield from _foreign(mark, payload)
    yield from ((f"packed, {how}", content) for how, content in _spoiled(good))
    if packing != "plain":
        yield from ((f"payload, {how}", again(content)) for how, content in _spoiled(payload))
        yield "gzip within gzip", gzip.compress(good)
        yield "a bomb of gzip", _bomb()
        yield "the payload after a bomb", good + _bomb()
    yield from ((f"payload, {how}", again(content)) for how, content in _rewritten(payload))
    if packing == "tar.gz":
        yield from _archives(payload, MEMBER[name])


def altered_payloads(payload: bytes, mark: Path) -> Iterator[tuple[str, bytes]]:
    """What a parser may be given in the place of `payload`."""
    yield from _foreign(mark, payload)
    yield from _spoiled(payload)
    yield from _rewritten(payload)


def hostile_archives() -> Iterator[tuple[str, bytes]]:
    """Archives that are not to be trusted, with a member called `inside`."""
    yield from _archives(b"content", "inside")


def _foreign(mark: Path, payload: bytes) -> Iterator[tuple[str, bytes]]:
    """Other files in the place of this one."""
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("inside", payload)
    pickled = pickle.dumps(_Touch(mark))
    for how, content in {
        "empty": b"",
        "one byte": b"\0",
        "HTML": b"<!doctype html><html><body>Not found</body></html>\n",
        "a pointer": _POINTER,
        "a pickle": pickled,
        "zip": zipped.getvalue(),
        "bzip2": bz2.compress(payload),
        "a program": b"\x7fELF" + bytes(60),
        "half a gzip header": b"\x1f\x8b\x08\x04\xff\xff",
        "zeros": bytes(5000),
    }.items():
        yield how, content
        yield f"{how}, packed", gzip.compress(content)


def _spoiled(content: bytes) -> Iterator[tuple[str, bytes]]:
    """Flipped bits, cuts, and something in front or behind."""
    chance = random.Random(len(content))
    for _ in range(_FLIPS):
        place, bit = chance.randrange(len(content)), chance.randrange(8)
        yield f"bit {bit} of byte {place}", content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :]
    for place in sorted({0, 1, len(content) - 1, *(chance.randrange(len(content)) for _ in range(_CUTS))}):
        yield f"cut after {place}", content[:place]
        yield f"without the first {place + 1}", content[place + 1 :]
    extra = {"a byte": b"!", "zeros": bytes(512), "itself": content, "a gzip of nothing": gzip.compress(b"")}
    for what, more in extra.items():
        yield f"{what} behind", content + more
        yield f"{what} in front", more + content


def _rewritten(payload: bytes) -> Iterator[tuple[str, bytes]]:
    """Other content that many a reader would take for the same, or for as good."""
    lines = payload.split(b"\n")
    yield "CRLF", payload.replace(b"\n", b"\r\n")
    yield "a mark of byte order", b"\xef\xbb\xbf" + payload
    yield "UTF-16", payload.decode("latin-1").encode("utf-16")
    yield "no last line break", payload.rstrip(b"\n") if payload.endswith(b"\n") else payload[:-1]
    yield "lines reversed", b"\n".join(lines[::-1])
    yield "a line twice", b"\n".join([lines[0], *lines])
    yield "a line less", b"\n".join(lines[1:])
    yield "blank lines", payload.replace(b"\n", b"\n\n")
    yield "a comment", b"# comment\n" + payload
    yield "another digit", payload.replace(b"1", b"0", 1) if b"1" in payload else payload[::-1]
    yield "no number", payload.replace(b"0", b"nan", 1) if b"0" in payload else b"nan"
    yield "zeros", bytes(len(payload))
    for place in range(0, min(16, len(payload)), 4):  # what would be an idx header
        yield f"a large number at {place}", payload[:place] + b"\x7f\xff\xff\xff" + payload[place + 4 :]


def _archives(payload: bytes, name: str) -> Iterator[tuple[str, bytes]]:
    """The payload in archives that are not to be trusted."""
    good, other = (name, payload), b"!" + payload[1:]
    hostile: dict[str, tuple[str | tarfile.TarInfo, bytes]] = {
        "a parent folder": ("../evil", b"x"),
        "a parent folder, hidden": (f"{name}/../../evil", b"x"),
        "an absolute path": ("/evil", b"x"),
        "a second member": ("evil", b"x"),
        "a member of no name": ("", b"x"),
        "a long name": ("x" * 5000, b"x"),
        "a name with a line break": ("x\nleakage: all is well", b"x"),
        "the same name": (name, other),
        "a folder": member("evil", tarfile.DIRTYPE),
        "a folder of the name": member(name, tarfile.DIRTYPE),
        **{f"a device {kind!r}": member("evil", kind) for kind in (tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE)},
        **{
            f"a link {kind!r} to {target}": member(whose, kind, target=target)
            for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE)
            for target in ("/etc/passwd", "../../evil", name)
            for whose in ("evil",)
        },
    }
    for how, one in hostile.items():
        yield f"{how} before", tar_gz(one, good)
        yield f"{how} after", tar_gz(good, one)
        yield f"{how} alone", tar_gz(one)
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.GNUTYPE_SPARSE, b"?"):
        yield f"the member as {kind!r}", tar_gz(member(name, kind, target="/etc/passwd"))
    yield "no member", tar_gz()
    yield "another name", tar_gz((name.upper(), payload))
    yield "below a folder", tar_gz((f"./folder/{name}", payload))
    for size in (0, 1, len(payload) - 1, len(payload) + 1, 1 << 40, (1 << 62) + 1, -1):
        yield f"a header of {size} bytes", gzip.compress(_header(name, tarfile.REGTYPE, size) + payload + bytes(1024))
    for kind in (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK):
        yield f"a bomb in a header {kind!r}", _bomb(_header("@", kind, 50 << 20))
    chain = tarfile.TarInfo.create_pax_global_header({"comment": "x"})
    yield "a chain of headers", gzip.compress(chain * 2000 + bytes(1024))
    for key, value in {
        "path": "../evil",
        "size": "99999999999",
        "GNU.sparse.major": "1",
        "GNU.sparse.map": "x",
    }.items():
        info = tarfile.TarInfo(name)
        info.pax_headers = {key: value}
        yield f"an attribute {key}", tar_gz((info, payload))


@cache
def _bomb(header: bytes = b"") -> bytes:
    """50 MiB of zeros behind a header, packed."""
    return gzip.compress(header + bytes(50 << 20), compresslevel=1, mtime=0)


def _header(name: str, kind: bytes, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, max(size, 0)
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    if size < 0:
        header[124:136] = size.to_bytes(12, "big", signed=True)  # base 256
        header[148:156] = b"%06o\0 " % (256 + sum(header[:148]) + sum(header[156:512]))
    return bytes(header)
