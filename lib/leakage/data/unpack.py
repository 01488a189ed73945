"""Payloads out of packed files, without trusting them.

An archive is never extracted to disk: its members are read as a stream and held against a list of the names that may
occur, headers are bounded before they are read, and every stream stops at the size the registry declares. So a hostile
file can neither write anywhere nor fill the memory. Checksums are the caller's business.
"""

import gzip
import io
import os
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from leakage.data.registry import DataFile

_CHUNK = 1 << 20
_OVERHEAD = 16 << 20  # bytes of headers, padding and tolerated members an archive may have beside its payloads
_LARGEST_HEADER = 1 << 16  # bytes of a long name or of extended attributes; real ones have some hundred
_MOST_MEMBERS = 30_000  # each costs a kilobyte of memory while the archive is read
_SHOWN = 60  # characters of a member's name that a message repeats
_PLAIN = (tarfile.REGTYPE, tarfile.AREGTYPE)


class UnpackError(ValueError):
    """Why a packed file cannot be unpacked, in a few words."""


class _Limited:
    """A readable stream that refuses to give more than `limit` bytes."""

    def __init__(self, stream: Any, limit: int) -> None:
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


class _Header(tarfile.TarInfo):
    """A header that is looked at before what it announces is read: `tarfile` reads names and attributes whole.

    It is looked at as its fields are set, since the methods that set them differ between releases of Python.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name not in ("size", "type"):
            return
        if self.size < 0:
            raise UnpackError("the archive has a member of negative size")
        # A new header has its size first: until its type is read, it is a plain file's.
        if getattr(self, "type", tarfile.REGTYPE) not in _PLAIN and self.size > _LARGEST_HEADER:
            raise UnpackError(
                f"the archive has a header of {self.size:,} bytes, more than the {_LARGEST_HEADER:,} allowed"
            )


def promptly(path: str, flags: int) -> int:
    """An opener for `open` that never waits: a pipe in the place of a file is empty, or cannot be written."""
    return os.open(path, flags | os.O_NONBLOCK, 0o666)


@contextmanager
def refusals() -> Iterator[None]:
    """Turn what comes of reading a file that is no good into `UnpackError`, but not that there is none."""
    try:
        yield
    except (UnpackError, FileNotFoundError, NotADirectoryError):
        raise
    # A chain of headers, each about the next, is read by recursion.
    except (gzip.BadGzipFile, EOFError, zlib.error, tarfile.TarError, ValueError, RecursionError) as error:
        raise UnpackError(f"it is truncated or corrupt ({_short(str(error))})") from error
    except OSError as error:
        raise UnpackError(f"it cannot be read ({error.strerror})") from error


def payloads(path: Path, archive: tuple[DataFile, ...]) -> Iterator[tuple[DataFile, bytes]]:
    """Every payload of the packed file at `path`, in one pass; use none before the last has come.

    Args:
        path: the packed file, which need not lie where the registry says.
        archive: all payloads of it (`Dataset.archive`), which tell what members may occur.

    Raises:
        FileNotFoundError: if there is none, or `NotADirectoryError`.
        UnpackError: if the file cannot be read, is truncated, corrupt or too large or, for an archive, lacks a payload
            or holds anything unexpected.
    """
    first, limit = archive[0], download_limit(archive)
    with refusals(), open(path, "rb", opener=promptly) as stream:
        size = os.fstat(stream.fileno()).st_size
        if size == 0:  # which gzip would take for an empty payload
            raise UnpackError("it is empty")
        if size > limit:
            raise UnpackError(f"it has {size:,} bytes, more than the {limit:,} allowed")
        if first.packing == "plain":
            yield first, _Limited(stream, first.at_most).read()
        elif first.packing == "gzip":
            yield first, _Limited(gzip.GzipFile(fileobj=stream), first.at_most).read()
        else:
            expected = {file.member: file for file in archive}
            for name, content in members(stream, limit=limit, check=lambda info: _check_member(info, archive)):
                if name in expected:
                    yield expected.pop(name), content
            for name in expected:
                raise UnpackError(f"the archive has no member {name!r}")


def members(
    packed: io.BufferedIOBase, *, limit: int, check: Callable[[tarfile.TarInfo], None]
) -> Iterator[tuple[str, bytes]]:
    """Name and content of each plain file of a `tar.gz`, each name once and no other members but folders.

    Args:
        packed: the archive, of which nothing is believed.
        limit: most bytes it may unpack to.
        check: raises `UnpackError` for a member that may not occur, before that is read.

    Raises:
        UnpackError: if the archive is truncated, corrupt or too large, or has a member that may not occur.
    """
    seen: set[str] = set()
    # Not "r|gz": that reads the header of gzip by itself, and stumbles over half of one.
    with refusals(), gzip.GzipFile(fileobj=packed) as unzipped:
        limited: Any = _Limited(unzipped, limit)
        # Stream mode never seeks, and its headers pass through the limit as well as its contents.
        with tarfile.open(fileobj=limited, mode="r|", tarinfo=_Header) as tar:
            for number, info in enumerate(tar, start=1):
                name = _short(info.name)
                if info.name.startswith("/") or ".." in info.name.split("/"):
                    raise UnpackError(f"the archive's member {name!r} is unsafe (it leads out of the archive)")
                plain = info.type in _PLAIN and not info.issparse()
                if not plain and not info.isdir():
                    raise UnpackError(f"the archive's member {name!r} is unsafe (it is no plain file and no folder)")
                check(info)
                if number > _MOST_MEMBERS:
                    raise UnpackError(f"the archive has more than the {_MOST_MEMBERS:,} members allowed")
                if plain:
                    if info.name in seen:
                        raise UnpackError(f"the archive has the member {name!r} twice")
                    seen.add(info.name)
                    content = tar.extractfile(info)
                    assert content is not None, "only regular members come this far"
                    yield info.name, content.read()
        while limited.read(_CHUNK):  # to the end, where gzip keeps its own checksum
            pass


def download_limit(archive: tuple[DataFile, ...]) -> int:
    """The most bytes a packed file with these payloads can sensibly have."""
    return sum(file.at_most for file in archive) + (0 if archive[0].packing == "plain" else _OVERHEAD)


def _check_member(info: tarfile.TarInfo, archive: tuple[DataFile, ...]) -> None:
    """Pass expected files, tolerated ones and the folders above them."""
    name, expected = _short(info.name), {file.member: file.at_most for file in archive}
    folders = tuple({file.tolerated for file in archive if file.tolerated})
    if info.isdir():
        allowed = any(known.startswith(f"{info.name}/") for known in (*expected, *folders))
    else:
        allowed = info.name in expected or info.name.startswith(folders)
    if not allowed:
        raise UnpackError(f"the archive has the unexpected member {name!r}")
    most = expected.get(info.name, _OVERHEAD)
    if info.size > most:
        raise UnpackError(f"the archive's member {name!r} has {info.size:,} bytes, more than the {most:,} allowed")


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
