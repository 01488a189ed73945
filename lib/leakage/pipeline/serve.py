"""The site in a browser of this machine: pages and nothing else.

The server listens on this machine only and answers only who names this machine, so that a page of another site cannot
have a browser read this one under a name of its own. It follows no link out of the site and lists no folder.
"""

import re
import sys
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

ADDRESS = "127.0.0.1"
_THIS_MACHINE = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE)


def server(site: Path, port: int) -> ThreadingHTTPServer:
    """A server of the files below `site`, not yet running; port 0 takes a free one.

    Raises:
        OSError: if the port cannot be used.
    """
    return _Server((ADDRESS, port), partial(_Pages, directory=str(site)))


class _Server(ThreadingHTTPServer):
    """One that says nothing of a browser that goes away while it is answered."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Pages(SimpleHTTPRequestHandler):
    """Answers with a file that really lies in the site, or not at all."""

    def send_head(self) -> BytesIO | BinaryIO | None:
        host = self.headers.get("Host")
        if host is not None and not _THIS_MACHINE.fullmatch(host):
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST, "This server answers to localhost only")
            return None
        if not self._is_page():
            self.send_error(HTTPStatus.NOT_FOUND)
            return None
        return super().send_head()

    def _is_page(self) -> bool:
        site, path = Path(self.directory).resolve(), Path(self.translate_path(self.path))
        try:
            real = (path / "index.html" if path.is_dir() else path).resolve()
            return real.is_relative_to(site) and real.is_file()
        except (OSError, ValueError, RuntimeError):  # too long, with a NUL, or links in a circle
            return False

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the addresses that a browser asks for are no news."""
