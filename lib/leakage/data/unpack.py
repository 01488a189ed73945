"""Payloads out of packed files, without trusting them.

An archive is never extracted to disk: its members are read as a stream and held against a list of the names that may
occur, headers are bounded before they are read, and every stream stops at the size the registry declares. So a hostile
file can neither write anywhere nor fill the memory. Checksums are the caller's business.
"""

import gzip
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Protocol, runtime_checkable

from leakage.data.registry import PACKINGS, DataFile

_CHUNK = 1 << 20
_OVERHEAD = 16 << 20  # bytes of headers, padding and tolerated members an archive may have beside its payloads
_LARGEST_HEADER = 1 << 16  # bytes of a long name or of extended attributes; real ones have some hundred
_MOST_MEMBERS = 10_000  # each costs a kilobyte of memory while the archive is read
_SHOWN = 60  # characters of a member's name that a message repeats


class UnpackError(ValueError):
    """Why a packed file cannot be unpacked, in a few words."""


@runtime_checkable
class _Readable(Protocol):
    def read(self, size: int = -1, /) -> bytes: ...


class _Limited:
    """A readable stream that refuses to give more than `limit` bytes."""

    def __init__(self, stream: _Readable, limit: int) -> None:
        self._stream = stream
        self._limit = limit
        self._left = limit

    def read(self, size: int = -1, /) -> bytes:
        # One byte more than is left is asked for, so that a stream of exactly `limit` bytes passes.
        wanted = self._left + 1 if size < 0 else min(size, self._left + 1)
        data = self._stream.read(wanted)
        self._left -= len(data)
        if self._left < 0:
            raise UnpackError(f"it unpacks to more than the {self._limit:,} bytes allowed")
        return data


class Header(tarfile.TarInfo):
    """A header that is looked at before what it announces is read: `tarfile` reads names and attributes whole."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> "Header":
        info = super().frombuf(buf, encoding, errors)
        if info.size < 0:
            raise UnpackError("the archive has a member of negative size")
        if info.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) and info.size > _LARGEST_HEADER:
            raise UnpackError(
                f"the archive has a header of {info.size:,} bytes, more than the {_LARGEST_HEADER:,} allowed"
            )
        return info


def payloads(path: Path, archive: tuple[DataFile, ...]) -> Iterator[tuple[DataFile, bytes]]:
    """Every payload of the packed file at `path`, in pieces and in one pass; use none before the last has come.

    Args:
        path: the packed file, which need not lie where the registry says.
        archive: all payloads of it (`Dataset.archive`), which tell what members may occur.

    Raises:
        UnpackError: if the file cannot be read, is truncated, corrupt or too large or, for an archive, lacks a payload
            or holds anything unexpected.
        ValueError: if the packing is unknown.
    """
    packing = archive[0].packing
    if packing not in PACKINGS:
        raise ValueError(f"`packing` must be one of {', '.join(PACKINGS)}; got {packing!r}.")
    try:
        with path.open("rb") as stream:
            _check_packed_size(path.stat().st_size, archive)
            yield from _READERS[packing](stream, archive)
    except UnpackError:
        raise
    # A chain of headers, each about the next, is read by recursion.
    except (gzip.BadGzipFile, EOFError, zlib.error, tarfile.TarError, ValueError, RecursionError) as error:
        raise UnpackError(f"it is truncated or corrupt ({_short(str(error))})") from error
    except OSError as error:
        raise UnpackError(f"it cannot be read ({error.strerror})") from error


def chunks(path: Path, file: DataFile, archive: tuple[DataFile, ...]) -> Iterator[bytes]:
    """The payload of `file` alone, in pieces; the rest is as for `payloads`."""
    return (piece for found, piece in payloads(path, archive) if found.name == file.name)


def download_limit(archive: tuple[DataFile, ...]) -> int:
    """The most bytes a packed file with these payloads can sensibly have."""
    return sum(file.at_most for file in archive) + (0 if archive[0].packing == "plain" else _OVERHEAD)


def _check_packed_size(size: int, archive: tuple[DataFile, ...]) -> None:
    if size == 0:  # which gzip would take for an empty payload
        raise UnpackError("it is empty")
    if size > download_limit(archive):
        raise UnpackError(f"it has {size:,} bytes, more than the {download_limit(archive):,} allowed")


def _plain(stream: BinaryIO, archive: tuple[DataFile, ...]) -> Iterator[tuple[DataFile, bytes]]:
    (file,) = archive
    return _pieces(_Limited(stream, file.at_most), file)


def _gzip(stream: BinaryIO, archive: tuple[DataFile, ...]) -> Iterator[tuple[DataFile, bytes]]:
    (file,) = archive
    with gzip.GzipFile(fileobj=stream) as unzipped:
        yield from _pieces(_Limited(unzipped, file.at_most), file)


def _tar_gz(stream: BinaryIO, archive: tuple[DataFile, ...]) -> Iterator[tuple[DataFile, bytes]]:
    expected = {file.member: file for file in archive}
    with gzip.GzipFile(fileobj=stream) as unzipped:
        limited = _Limited(unzipped, download_limit(archive))
        seen: set[str] = set()
        # Stream mode never seeks, and its headers pass through the limit as well as its contents.
        with tarfile.open(fileobj=limited, mode="r|", tarinfo=Header) as tar:  # pyright: ignore[reportArgumentType, reportCallIssue]
            for info in tar:
                _check_member(info, archive, seen)
                if info.name in expected:
                    member = tar.extractfile(info)
                    assert member is not None, "only regular members come this far"
                    with member:
                        yield from _pieces(member, expected[info.name])
        for _ in _pieces(limited, archive[0]):  # to the end, where gzip keeps its own checksum
            pass
    for name in expected:
        if name not in seen:
            raise UnpackError(f"the archive has no member {name!r}")


_READERS = {"plain": _plain, "gzip": _gzip, "tar.gz": _tar_gz}


def _pieces(stream: _Readable, file: DataFile) -> Iterator[tuple[DataFile, bytes]]:
    while piece := stream.read(_CHUNK):
        yield file, piece


def _check_member(info: tarfile.TarInfo, archive: tuple[DataFile, ...], seen: set[str]) -> None:
    """Pass expected regular files, tolerated ones and the folders above them; refuse everything else."""
    name = _short(info.name)
    if info.name.startswith("/") or ".." in info.name.split("/"):
        raise UnpackError(f"the archive's member {name!r} is unsafe (it leads out of the archive)")
    plain = info.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not info.issparse()
    if not plain and not info.isdir():
        raise UnpackError(f"the archive's member {name!r} is unsafe (it is neither a plain file nor a folder)")
    if info.name in seen:
        raise UnpackError(f"the archive has the member {name!r} twice")
    seen.add(info.name)
    if len(seen) > _MOST_MEMBERS:
        raise UnpackError(f"the archive has more than the {_MOST_MEMBERS:,} members allowed")
    expected = {file.member: file.at_most for file in archive}
    folders = tuple({file.tolerated for file in archive if file.tolerated})
    if plain:
        allowed = info.name in expected or info.name.startswith(folders)
    else:
        allowed = any(known.startswith(f"{info.name}/") for known in (*expected, *folders))
    if not allowed:
        raise UnpackError(f"the archive has the unexpected member {name!r}")
    most = expected.get(info.name, _OVERHEAD)
    if info.size > most:
        raise UnpackError(f"the archive's member {name!r} has {info.size:,} bytes, more than the {most:,} allowed")


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
