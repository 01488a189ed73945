"""A built site, a server for it and a browser, for the tests in this folder.

The folder with the site is `--site`, else `$LEAKAGE_SITE`, else the place where `make book` puts it. Where site or
browser is missing the tests skip and say so; where `$CI` is set they fail.
"""

import functools
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal, NoReturn

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Response, sync_playwright
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from checking import HANGS

ROOT = Path(__file__).parents[2]
_PATIENCE = HANGS * 1000  # milliseconds
_NO_NETWORK = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"  # what a page asks of others is noted
_COLOURED = """theme => document.documentElement.dataset.theme === theme
    && document.getAnimations().every(change => change.playState !== "running")"""
# A window that was resized tells the page so before it draws it.
_DRAWN = "() => new Promise(drawn => requestAnimationFrame(() => requestAnimationFrame(drawn)))"
MADE_BY_MAKE = ROOT / "_build" / "site" / "_build" / "html"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--site", help="folder with the rendered book (default: $LEAKAGE_SITE, else that of `make book`)")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that takes a `name` once for each page, and one that takes a `visit` once for each page it visits."""
    for argument in {"name", "visit"} & {*metafunc.fixturenames}:
        # With no site there is one page, so that the fixture `site` can say what is missing.
        names = page_names(site_folder(metafunc.config)) or ["intro"]
        visited = argument == "visit"
        metafunc.parametrize(argument, names, indirect=visited, scope="session" if visited else None)


class ByPage(LoadScopeScheduling):
    """What looks at one page in a browser is one piece of work, and so is each file of other tests."""

    def _split_scope(self, nodeid: str) -> str:
        file, _, test = nodeid.partition("::")
        page = re.search(r"\[([^]-]+)", test)
        return page[1] if page and file.endswith(("test_browser.py", "test_form.py")) else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByPage:
    """Where several processes share the tests each page is opened once."""
    return ByPage(config, log)


def site_folder(config: pytest.Config) -> Path:
    return Path(config.getoption("--site", default=None) or os.environ.get("LEAKAGE_SITE") or MADE_BY_MAKE)


def page_names(folder: Path) -> list[str]:
    """The pages of the book and the search page, the largest first; `index.html` only leads on to the first page."""
    found = sorted((-path.stat().st_size, path) for at in ("*.html", "[!_]*/*.html") for path in folder.glob(at))
    names = (path.relative_to(folder).as_posix().removesuffix(".html") for _, path in found)
    return [name for name in names if name != "index"]


def unavailable(what: str) -> NoReturn:
    """Fail in CI, skip elsewhere."""
    if os.environ.get("CI"):
        pytest.fail(f"{what}; CI must have it.")
    pytest.skip(what)


@pytest.fixture(scope="session")
def site(pytestconfig: pytest.Config) -> Path:
    folder = site_folder(pytestconfig)
    if not page_names(folder):
        unavailable(f"no rendered book in {folder}: run `make book`, or give --site FOLDER")
    return folder


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the tests read the answers themselves."""


@pytest.fixture(scope="session")
def address(site: Path) -> Iterator[str]:
    """The site served from this machine, as a web server would."""
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(site))) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="session")
def browser(site: Path) -> Iterator[Browser]:
    """The system's Chromium; Playwright downloads none."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        unavailable("no Chromium on the PATH: `apt-get install chromium`")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", _NO_NETWORK])
        yield launched
        launched.close()


class Visit:
    """One page opened in a fresh browser profile, with all that went wrong while it loaded."""

    def __init__(self, page: Page, address: str, name: str) -> None:
        self.page, self.name = page, name
        self.errors: list[str] = []
        self.foreign: list[str] = []
        self.refused: list[str] = []
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self._notice(request.url, address))
        page.on("response", self._check)
        page.goto(f"{address}/{name}.html", wait_until="networkidle")
        page.evaluate("() => window.MathJax?.startup?.promise")

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.errors.append(message.text)

    def _notice(self, url: str, address: str) -> None:
        if not url.startswith((address, "data:", "blob:")):
            self.foreign.append(url)

    def _check(self, response: Response) -> None:
        if response.status >= 400:
            self.refused.append(f"{response.status} {response.url}")

    def in_theme(self, theme: Literal["light", "dark"]) -> Page:
        """The page as it is where the system's theme is this one, its colours having arrived."""
        self.page.emulate_media(color_scheme=theme)
        self.page.wait_for_function(_COLOURED, arg=theme)
        return self.page

    @contextmanager
    def across(self, width: int) -> Iterator[Page]:
        """The page in a window of so many pixels' width."""
        before = self.page.viewport_size
        assert before is not None
        self.page.set_viewport_size({"width": width, "height": before["height"]})
        self.page.evaluate(_DRAWN)
        try:
            yield self.page
        finally:
            self.page.set_viewport_size(before)
            self.page.evaluate(_DRAWN)


@contextmanager
def visiting(browser: Browser, address: str, name: str, *, theme: str = "light", width: int = 1280) -> Iterator[Visit]:
    """A visit to the page `name` in a theme, light or dark, at a width in pixels."""
    context = browser.new_context(
        color_scheme="dark" if theme == "dark" else "light", viewport={"width": width, "height": 900}
    )
    context.set_default_timeout(_PATIENCE)
    try:
        yield Visit(context.new_page(), address, name)
    finally:
        context.close()


@pytest.fixture(scope="session")
def visit(browser: Browser, address: str, request: pytest.FixtureRequest) -> Iterator[Visit]:
    """Each page of the book in turn, opened on a desktop in light mode: whoever changes it restores it."""
    with visiting(browser, address, request.param) as visit:
        yield visit


@pytest.fixture
def opened(browser: Browser, address: str) -> Iterator[Callable[..., Visit]]:
    """Open pages by name, until the test ends: `opened("intro", theme="dark", width=390)`."""
    with ExitStack() as visits:
        yield lambda name, **how: visits.enter_context(visiting(browser, address, name, **how))
