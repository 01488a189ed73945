"""Small packed files, registry entries for them, and a local server to download them from."""

import gzip
import hashlib
import io
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from leakage.data import registry
from leakage.data.registry import DataFile, Dataset
from patience import HANGS

PACKINGS = ("plain", "gzip", "tar.gz")


def sha256(payload: bytes) -> str:
    return hashlib.sha256(payload).hexdigest()


def tar_gz(*members: tuple[str | tarfile.TarInfo, bytes]) -> bytes:
    """An archive of the members given: a name or a prepared header, and the content."""
    out = io.BytesIO()
    # Without the time of packing, which would make names of tests differ between the processes that share them.
    with gzip.GzipFile(fileobj=out, mode="wb", mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name) if isinstance(name, str) else name
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def member(name: str, kind: bytes, *, target: str = "") -> tuple[tarfile.TarInfo, bytes]:
    """A member that is not a regular file: a link, a device, a folder."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info, b""


def pack(payload: bytes, packing: str) -> bytes:
    """The payload as a file of this packing; in an archive the member is called `inside`."""
    return {
        "plain": lambda: payload,
        "gzip": lambda: gzip.compress(payload, mtime=0),
        "tar.gz": lambda: tar_gz(("inside", payload)),
    }[packing]()


def entry(payload: bytes, packing: str = "gzip", **changes: Any) -> DataFile:
    """The registry's entry for a file that holds `payload`, called `content`."""
    facts: dict[str, Any] = {
        "name": "content",
        "path": "tiny/content.bin",
        "url": "https://example.invalid/content.bin",
        "packing": packing,
        "size": len(payload),
        "sha256": sha256(payload),
        "member": "inside" if packing == "tar.gz" else "",
    }
    return DataFile(**(facts | changes))


def dataset(*files: DataFile, any_file: bool = False, name: str = "tiny") -> Dataset:
    """A data set of these files."""
    return Dataset(name, "Tiny", files, "CC0", "https://example.invalid", "Nobody (2020)", any_file)


def unverified(payload: bytes, site: "Site") -> DataFile:
    """The entry of a file that the server has and no checksum is known of."""
    return entry(payload, url=f"{site.address}/file", sha256=None, size=None, limit=len(payload))


def register_tiny(monkeypatch: pytest.MonkeyPatch, *files: DataFile, any_file: bool = False) -> None:
    """Put the data set `tiny` of these files into the registry, for one test."""
    monkeypatch.setitem(registry.DATASETS, "tiny", dataset(*files, any_file=any_file))


def put(root: Path, packed: bytes, relative: str = "tiny/content.bin") -> Path:
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


@dataclass
class Site:
    """What the local server has: content by path, and how it behaves.

    Attributes:
        resumes: whether it sends a part that is asked for, or everything.
        break_after: bytes of an answer after which the connection is closed; None for never.
        redirects: from path to address.
        headers: the headers of every request so far.
        pause: what every answer waits for; None for nothing.
        dribble: what every answer waits for after its first byte; None for nothing.
    """

    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    resumes: bool = True
    break_after: int | None = None
    redirects: dict[str, str] = field(default_factory=dict)
    headers: list[dict[str, str]] = field(default_factory=list)
    wrong_range: bool = False
    unasked_part: bool = False
    send_length: bool = True
    pause: threading.Event | None = None
    dribble: threading.Event | None = None


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        site: Site = self.server.site  # pyright: ignore[reportAttributeAccessIssue]
        site.headers.append(dict(self.headers))
        if site.pause:
            site.pause.wait(HANGS)  # a test that forgets to go on ends all the same
        if self.path in site.redirects:
            self.send_response(302)
            self.send_header("Location", site.redirects[self.path])
            self.end_headers()
        elif self.path not in site.files:
            self.send_error(404)
        else:
            self._send(site, site.files[self.path])

    def _send(self, site: Site, content: bytes) -> None:
        start = 0
        asked = self.headers.get("Range")
        if site.unasked_part:
            self.send_response(206)
            self.send_header("Content-Range", f"bytes 5-{len(content) - 1}/{len(content)}")
        elif asked and site.resumes:
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
            if start >= len(content):
                self.send_error(416)
                return
            self.send_response(206)
            first = start + 1 if site.wrong_range else start
            self.send_header("Content-Range", f"bytes {first}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        if site.send_length:
            self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        content = content[start:][: site.break_after]
        if site.dribble:
            self.wfile.write(content[:1])
            site.dribble.wait(HANGS)
            content = content[1:]
        with suppress(ConnectionError):  # who waited for the rest may be gone
            self.wfile.write(content)

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
