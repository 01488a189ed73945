"""Small packed files, registry entries for them, ways to spoil them, and a local server to download them from."""

import gzip
import hashlib
import io
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from leakage.data import datasets
from leakage.data.datasets import DataFile, Dataset

PACKINGS = (".bin", ".gz", ".tgz")


def pack(payload: bytes, packing: str = ".gz", member: str = "inside") -> bytes:
    """The payload as a file whose name ends in `packing`."""
    if packing == ".bin":
        return payload
    if packing == ".gz":
        return gzip.compress(payload, mtime=0)
    archive, info = io.BytesIO(), tarfile.TarInfo(member)
    info.size = len(payload)
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.addfile(info, io.BytesIO(payload))
    return gzip.compress(archive.getvalue(), mtime=0)


def entry(payload: bytes, packing: str = ".gz", **changes: Any) -> DataFile:
    """The registry's entry for a file that holds `payload`, called `content`."""
    facts: dict[str, Any] = {
        "name": "content",
        "path": f"tiny/content{packing}",
        "url": "https://example.invalid/content",
        "size": len(payload),
        "sha256": hashlib.sha256(payload).hexdigest(),
        "member": "inside" if packing == ".tgz" else "",
    }
    return DataFile(**(facts | changes))


def dataset(*files: DataFile, any_file: bool = False, name: str = "tiny") -> Dataset:
    """A data set of these files."""
    return Dataset(name, "Tiny", files, "CC0", "https://example.invalid", "Nobody (2020)", any_file)


def register(patch: pytest.MonkeyPatch, *files: DataFile, any_file: bool = False, name: str = "tiny") -> None:
    """Put a data set of these files into the registry, for one test."""
    patch.setitem(datasets.DATASETS, name, dataset(*files, any_file=any_file, name=name))


def put(root: Path, packed: bytes, relative: str = "tiny/content.gz") -> Path:
    """Write a file into a data folder."""
    path = root / relative
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(packed)
    return path


def tree(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Every file and folder below, with content and time of change: equal trees mean that nothing was written."""
    return {
        str(path.relative_to(folder)): (path.read_bytes() if path.is_file() else b"", path.stat().st_mtime_ns)
        for path in sorted((folder, *folder.rglob("*")))
    }


@st.composite
def spoiled(draw: st.DrawFn, good: bytes) -> bytes:
    """The content with a bit flipped, a piece cut out or its end missing, with more at its end, or another content."""
    place = draw(st.integers(0, len(good) - 1))
    bit, gap = 1 << draw(st.integers(0, 7)), draw(st.integers(1, 40))
    return draw(
        st.sampled_from(
            (
                good[:place] + bytes([good[place] ^ bit]) + good[place + 1 :],
                good[:place] + good[place + gap :],
                good[:place],
                good + good[:gap],
                gzip.compress(good, mtime=0),
                b"<html>404</html>",
            )
        )
    )


@dataclass
class Site:
    """What the local server has.

    Attributes:
        files: content by path.
        break_after: bytes of an answer after which the connection is closed; None for never.
        asked: the paths of every request so far.
    """

    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    break_after: int | None = None
    asked: list[str] = field(default_factory=list)


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        site: Site = self.server.site  # pyright: ignore[reportAttributeAccessIssue]
        site.asked.append(self.path)
        if self.path not in site.files:
            self.send_error(404)
            return
        content = site.files[self.path]
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: site.break_after])

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def serving() -> Iterator[Site]:
    """A server on this machine, for the duration of the block."""
    site = Site()
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        server.site = site  # pyright: ignore[reportAttributeAccessIssue]
        site.address = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield site
        finally:
            server.shutdown()
            thread.join()
