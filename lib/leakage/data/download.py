"""One file over HTTPS into a partial file that a later call can resume.

The partial file keeps a note beside it: the address, and the server's mark for this version of the content (its ETag
or date). Only with both unchanged are the bytes already here kept. Nothing here judges content: `fetch` does, and moves
the finished file into place.
"""

import http
import http.client
import json
import math
import queue
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from tqdm import tqdm

_CHUNK = 1 << 16
_NETWORK_ERRORS = (OSError, http.client.HTTPException)


class DownloadFailed(OSError):
    """The network, the server or the disk did not let a download finish; the message says which, and what to do."""


class DownloadBlocked(DownloadFailed):
    """A failure that any other download would meet as well: no network, or a folder that cannot be used."""


class TooLarge(ValueError):
    """The server sends more than the registry allows."""


def note_of(partial: Path) -> Path:
    """Where the note of a partial file lies."""
    return partial.with_name(f"{partial.name}.json")


def discard(partial: Path) -> None:
    """Delete a partial file and its note."""
    partial.unlink(missing_ok=True)
    note_of(partial).unlink(missing_ok=True)


def download(
    url: str,
    partial: Path,
    *,
    limit: int,
    progress: bool | None = None,
    patience: float = 30.0,
    until: float = math.inf,
    _schemes: tuple[str, ...] = ("https",),
) -> None:
    """Bring the content of `url` to the file `partial`, resuming it where that is safe.

    Args:
        url: an `https` address; redirects to any other scheme are refused.
        partial: where the bytes go; its folder must exist.
        limit: bytes after which the download is refused.
        progress: show a bar; None shows it on a terminal only.
        patience: seconds to wait for the answer, names looked up and redirects followed, and for its next bytes.
        until: when to stop waiting for more, by `time.monotonic`: a server may send a byte now and then for ever.
        _schemes: the schemes allowed, for tests against a local server.

    Raises:
        DownloadFailed: if the server fails; what has arrived stays, to be resumed.
        DownloadBlocked: if there is no connection, the time is up, or `partial` cannot be written.
        TooLarge: if the content exceeds `limit`; nothing stays.
    """
    _check_scheme(url, _schemes)
    try:
        response = _open(url, partial, patience=patience, schemes=_schemes)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE or not partial.exists():
            raise DownloadFailed(f"{url} answers {error.code} {error.reason}. Try again later.") from error
        discard(partial)  # the bytes here are not a beginning of what the server has now
        download(url, partial, limit=limit, progress=progress, patience=patience, until=until, _schemes=_schemes)
        return
    except DownloadFailed:
        raise
    except (*_NETWORK_ERRORS, ValueError) as error:  # a redirect to what is no address is a ValueError
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise DownloadBlocked(f"{url} cannot be reached ({reason}). Check the network and try again.") from error
    with response:
        start = _begin(response, partial, url)
        try:
            _receive(response, partial, url=url, start=start, limit=limit, until=until, progress=progress)
        except TooLarge:
            discard(partial)
            raise


def _open(url: str, partial: Path, *, patience: float, schemes: tuple[str, ...]) -> Any:
    """The server's answer, asked for the rest only where the note beside `partial` makes resuming safe."""
    headers = {"User-Agent": "leakage", "Accept-Encoding": "identity"}
    validator = _noted(partial, url)
    if validator:
        headers |= {"Range": f"bytes={partial.stat().st_size}-", "If-Range": validator}
    opener = urllib.request.build_opener(_Redirects(schemes))
    request = urllib.request.Request(url, headers=headers)
    return _within(patience, lambda: opener.open(request, timeout=patience))


def _within(seconds: float, connect: Callable[[], Any]) -> Any:
    """What `connect` returns or raises, if it does so in time: a name may be looked up for minutes, without a limit."""
    results: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()
    given_up = threading.Event()

    def work() -> None:
        try:
            response = connect()
        except BaseException as error:  # handed over, whatever it is
            results.put((None, error))
            return
        results.put((response, None))
        if given_up.is_set():
            response.close()

    threading.Thread(target=work, daemon=True).start()
    try:
        response, error = results.get(timeout=seconds)
    except queue.Empty:
        given_up.set()
        raise TimeoutError(f"no answer within {seconds:g} seconds") from None
    try:
        if error is not None:
            raise error
        return response
    finally:
        del error  # it refers to this frame: the circle would keep its connection open


def _noted(partial: Path, url: str) -> str:
    """The server's mark for the bytes already here, or "" where there are none worth keeping."""
    note = note_of(partial)
    if not (partial.is_file() and note.is_file() and partial.stat().st_size):
        return ""
    try:
        record = json.loads(note.read_text(encoding="utf-8"))
        validator = str(record["validator"]) if record["url"] == url else ""
    except (ValueError, KeyError, TypeError):  # a note cut short by a kill: start again
        return ""
    return validator if validator.isprintable() else ""  # a header is one line


def _begin(response: Any, partial: Path, url: str) -> int:
    """Prepare the partial file for this answer and return the bytes it already holds."""
    if response.status == http.HTTPStatus.PARTIAL_CONTENT:
        start = partial.stat().st_size if partial.exists() else 0
        if not response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
            discard(partial)
            raise DownloadFailed(f"{url} sends another part than the one asked for. Run the command again.")
        return start
    etag = response.headers.get("ETag", "")
    validator = etag if etag and not etag.startswith("W/") else response.headers.get("Last-Modified", "")
    try:
        partial.write_bytes(b"")
        note_of(partial).write_text(json.dumps({"url": url, "validator": validator}), encoding="utf-8")
    except OSError as error:
        raise DownloadBlocked(_cannot_write(partial, error)) from error
    return 0


def _receive(
    response: Any, partial: Path, *, url: str, start: int, limit: int, until: float, progress: bool | None
) -> None:
    total = None if response.length is None else start + response.length
    if (total or 0) > limit:
        raise TooLarge(f"{url} sends {total:,} bytes, more than the {limit:,} allowed")
    name = partial.name.removesuffix(".part")
    hidden = None if progress is None else not progress
    with (
        _opened(partial) as sink,
        tqdm(total=total, initial=start, unit="B", unit_scale=True, desc=name, disable=hidden) as bar,
    ):
        received = start
        while piece := _next_piece(response, url):
            received += len(piece)
            if received > limit:
                raise TooLarge(f"{url} sends more than the {limit:,} bytes allowed")
            _write(sink.write, piece, partial)
            bar.update(len(piece))
            if received != total and time.monotonic() > until:
                of = "" if total is None else f" of {total:,}"
                raise DownloadBlocked(f"{url} is too slow: {received:,}{of} bytes came, which are kept to go on from.")
    if total is not None and received != total:
        raise DownloadFailed(f"{url} broke off after {received:,} of {total:,} bytes. Run the command again to resume.")


def _next_piece(response: Any, url: str) -> bytes:
    try:
        return response.read1(_CHUNK)  # what is there: `read` would wait until the piece is full
    except _NETWORK_ERRORS as error:
        raise DownloadFailed(f"{url} broke off ({error}). Run the command again to resume.") from error


def _opened(partial: Path) -> BinaryIO:
    try:
        return partial.open("ab")
    except OSError as error:
        raise DownloadBlocked(_cannot_write(partial, error)) from error


def _write(write: Callable[[bytes], object], piece: bytes, partial: Path) -> None:
    try:
        write(piece)
    except OSError as error:
        raise DownloadBlocked(_cannot_write(partial, error)) from error


def _cannot_write(path: Path, error: OSError) -> str:
    return f"{path} cannot be written ({error.strerror}). Set LEAKAGE_DATA to a folder you may write to."


def _check_scheme(url: str, schemes: tuple[str, ...]) -> None:
    if urllib.parse.urlsplit(url).scheme not in schemes:
        raise DownloadFailed(f"{url} is refused: only {', '.join(schemes)} addresses are followed.")


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follow redirects, but never to a scheme that is not allowed."""

    def __init__(self, schemes: tuple[str, ...]) -> None:
        self._schemes = schemes

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        _check_scheme(newurl, self._schemes)
        return super().redirect_request(req, fp, code, msg, headers, newurl)
