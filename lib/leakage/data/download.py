"""One file over HTTPS, onto the end of what an earlier call brought of it.

Nothing here judges content, and a server may have another version by now: `fetch` compares checksums, and moves the
finished file into place.
"""

import concurrent.futures
import http.client
import io
import math
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tqdm import tqdm

_CHUNK = 1 << 16
_NETWORK_ERRORS = (OSError, http.client.HTTPException)


class DownloadFailed(OSError):
    """The network, the server or the disk did not let a download finish; the message says which, and what to do."""


class DownloadBlocked(DownloadFailed):
    """A failure that any other download would meet as well: no network, or a folder that cannot be used."""


class TooLarge(ValueError):
    """The server sends more than the registry allows."""


def download(
    url: str,
    sink: io.BufferedWriter,
    *,
    limit: int,
    patience: float = 30.0,
    until: float = math.inf,
    _schemes: tuple[str, ...] = ("https",),
) -> None:
    """Bring the content of `url` to the file `sink`, going on where that ends if the server agrees.

    A terminal shows a bar.

    Args:
        url: an `https` address; redirects to any other scheme are refused.
        sink: where the bytes go, opened for appending.
        limit: bytes after which the download is refused.
        patience: seconds to wait for the answer, names looked up and redirects followed, and for its next bytes.
        until: when to stop waiting for more, by `time.monotonic`: a server may send a byte now and then for ever.
        _schemes: the schemes allowed, for tests against a local server.

    Raises:
        DownloadFailed: if the server fails; what has arrived stays, to be resumed.
        DownloadBlocked: if there is no connection, or the time is up.
        TooLarge: if the content exceeds `limit`; nothing stays.
        OSError: if the file cannot be written.
    """
    with _answer(url, sink.tell(), patience=patience, schemes=_schemes) as response:
        start, partly = sink.tell(), response.status == http.HTTPStatus.PARTIAL_CONTENT
        resumed = partly and response.headers.get("Content-Range", "").startswith(f"bytes {start}-")
        if not resumed:
            sink.truncate(0)
            start = 0
        if partly and not resumed:
            raise DownloadFailed(f"{url} sends another part than the one asked for. Run the command again.")
        total = None if response.length is None else start + response.length
        name = Path(sink.name).name.removesuffix(".part")
        with tqdm(total=total, initial=start, unit="B", unit_scale=True, desc=name, disable=None) as bar:
            received = start
            for piece in _pieces(response, url):
                received += len(piece)
                if max(received, total or 0) > limit:
                    sink.truncate(0)
                    raise TooLarge(f"{url} sends more than the {limit:,} bytes allowed")
                sink.write(piece)
                bar.update(len(piece))
                if received != total and time.monotonic() > until:
                    of = "" if total is None else f" of {total:,}"
                    raise DownloadBlocked(
                        f"{url} is too slow: {received:,}{of} bytes came, which are kept to go on from."
                    )
    if total is not None and received != total:
        raise DownloadFailed(f"{url} broke off after {received:,} of {total:,} bytes. Run the command again to resume.")
    sink.flush()


def _answer(url: str, start: int, *, patience: float, schemes: tuple[str, ...]) -> Any:
    """The server's answer, asked for what follows the first `start` bytes."""
    _check_scheme(url, schemes)
    headers = {"User-Agent": "leakage", "Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})
    request, opener = urllib.request.Request(url, headers=headers), urllib.request.build_opener(_Redirects(schemes))
    try:
        return _within(patience, lambda: opener.open(request, timeout=patience))
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and start:
            return _answer(url, 0, patience=patience, schemes=schemes)  # what is here is no beginning of what it has
        raise DownloadFailed(f"{url} answers {error.code} {error.reason}. Try again later.") from error
    except DownloadFailed:
        raise
    except (*_NETWORK_ERRORS, ValueError) as error:  # a redirect to what is no address is a ValueError
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise DownloadBlocked(f"{url} cannot be reached ({reason}). Check the network and try again.") from error


def _within(seconds: float, connect: Callable[[], Any]) -> Any:
    """What `connect` returns or raises, if it does so in time: a name may be looked up for minutes, without a limit."""
    answer: concurrent.futures.Future[Any] = concurrent.futures.Future()

    def work() -> None:
        try:
            answer.set_result(connect())
        except BaseException as error:  # handed over, whatever it is
            answer.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    try:
        return answer.result(timeout=seconds)
    except TimeoutError:
        answer.add_done_callback(lambda late: late.exception() or late.result().close())
        raise TimeoutError(f"no answer within {seconds:g} seconds") from None


def _pieces(response: Any, url: str) -> Iterator[bytes]:
    try:
        while piece := response.read1(_CHUNK):  # what is there: `read` would wait until the piece is full
            yield piece
    except _NETWORK_ERRORS as error:
        raise DownloadFailed(f"{url} broke off ({error}). Run the command again to resume.") from error


def _check_scheme(url: str, schemes: tuple[str, ...]) -> None:
    if urllib.parse.urlsplit(url).scheme not in schemes:
        raise DownloadFailed(f"{url} is refused: only {', '.join(schemes)} addresses are followed.")


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follow redirects, but never to a scheme that is not allowed."""

    def __init__(self, schemes: tuple[str, ...]) -> None:
        self._schemes = schemes

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        fp.close()  # which nobody would after a refusal
        _check_scheme(newurl, self._schemes)
        return super().redirect_request(req, fp, code, msg, headers, newurl)
