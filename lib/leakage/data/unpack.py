"""Payloads out of packed files, without trusting them.

An archive is never extracted to disk: its members are read as a stream, after `tarfile`'s data filter and a list of
the names that may occur, and every stream stops at the size the registry declares. So a hostile file can neither write
anywhere nor fill the memory. Checksums are the caller's business.
"""

import gzip
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

from leakage.data.registry import PACKINGS, DataFile

_CHUNK = 1 << 20
_OVERHEAD = 16 << 20  # bytes of headers, padding and tolerated members an archive may have beside its payloads


class UnpackError(ValueError):
    """Why a packed file cannot be unpacked, in a few words."""


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


def chunks(path: Path, file: DataFile, archive: tuple[DataFile, ...]) -> Iterator[bytes]:
    """The payload of `file` from the packed file at `path`, in pieces; use none of them before the last has come.

    Args:
        path: the packed file, which need not lie where `file.path` says.
        file: the payload wanted.
        archive: all payloads of the same packed file (`Dataset.archive`), which tell what members may occur.

    Raises:
        UnpackError: if the file is truncated, corrupt, too large or, for an archive, holds anything unexpected.
    """
    if file.packing not in PACKINGS:
        raise ValueError(f"`packing` must be one of {', '.join(PACKINGS)}; got {file.packing!r}.")
    if path.stat().st_size == 0:  # which gzip would take for an empty payload
        raise UnpackError("it is empty")
    with path.open("rb") as stream:
        try:
            yield from _READERS[file.packing](stream, file, archive)
        except UnpackError:
            raise
        except (gzip.BadGzipFile, EOFError, zlib.error, tarfile.TarError, ValueError) as error:
            raise UnpackError(f"it is truncated or corrupt ({error})") from error


def download_limit(archive: tuple[DataFile, ...]) -> int:
    """The most bytes a packed file with these payloads can sensibly have."""
    return sum(file.at_most for file in archive) + (0 if archive[0].packing == "plain" else _OVERHEAD)


def _plain(stream: BinaryIO, file: DataFile, archive: tuple[DataFile, ...]) -> Iterator[bytes]:
    return _pieces(_Limited(stream, file.at_most))


def _gzip(stream: BinaryIO, file: DataFile, archive: tuple[DataFile, ...]) -> Iterator[bytes]:
    with gzip.GzipFile(fileobj=stream) as unzipped:
        yield from _pieces(_Limited(unzipped, file.at_most))


def _tar_gz(stream: BinaryIO, file: DataFile, archive: tuple[DataFile, ...]) -> Iterator[bytes]:
    with gzip.GzipFile(fileobj=stream) as unzipped:
        limited = _Limited(unzipped, download_limit(archive))
        seen: set[str] = set()
        # Stream mode never seeks, and its headers pass through the limit as well as its contents.
        with tarfile.open(fileobj=limited, mode="r|") as tar:  # pyright: ignore[reportArgumentType, reportCallIssue]
            for info in tar:
                _check_member(info, archive, seen)
                if info.name == file.member:
                    yield from _member_pieces(tar, info)
        for _ in _pieces(limited):  # to the end, where gzip keeps its own checksum
            pass
    if file.member not in seen:
        raise UnpackError(f"the archive has no member {file.member!r}")


_READERS = {"plain": _plain, "gzip": _gzip, "tar.gz": _tar_gz}


def _member_pieces(tar: tarfile.TarFile, info: tarfile.TarInfo) -> Iterator[bytes]:
    member = tar.extractfile(info)
    assert member is not None, "only regular members come this far"
    with member:
        yield from _pieces(member)


def _pieces(stream: _Readable) -> Iterator[bytes]:
    while piece := stream.read(_CHUNK):
        yield piece


def _check_member(info: tarfile.TarInfo, archive: tuple[DataFile, ...], seen: set[str]) -> None:
    """Pass expected regular files, tolerated ones and the folders above them; refuse everything else."""
    try:
        tarfile.data_filter(info, ".")
    except tarfile.FilterError as error:
        raise UnpackError(f"the archive's member {info.name!r} is unsafe ({error})") from error
    if info.name in seen:
        raise UnpackError(f"the archive has the member {info.name!r} twice")
    seen.add(info.name)
    expected = {file.member: file.at_most for file in archive}
    folders = tuple({file.tolerated for file in archive if file.tolerated})
    if info.isdir():
        allowed = any(name.startswith(f"{info.name}/") for name in (*expected, *folders))
    else:
        regular = info.type in (tarfile.REGTYPE, tarfile.AREGTYPE)
        allowed = regular and (info.name in expected or info.name.startswith(folders))
    if not allowed:
        raise UnpackError(f"the archive has the unexpected member {info.name!r}")
    most = expected.get(info.name, _OVERHEAD)
    if info.size > most:
        raise UnpackError(f"the archive's member {info.name!r} has {info.size:,} bytes, more than the {most:,} allowed")
