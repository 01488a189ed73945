"""What is around a build may be missing, foreign, full or of another encoding: one line says so, nothing is lost."""

import errno
import http.client
import io
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from unittest.mock import Mock

import pytest

from leakage.claims import declarations
from leakage.claims.rules import Rule
from leakage.pipeline import build as building
from leakage.pipeline import cli, lacking_data, plan, scoreboard, serve
from leakage.pipeline.book import Book
from leakage.pipeline.progress import Progress
from miniature import add_chapter, build, leakage, make_repository, without_chapters
from patience import HANGS


@pytest.fixture
def book(tmp_path):
    """A book of one chapter that was never built."""
    root = make_repository(tmp_path / "repository", "sums")
    add_chapter(root, "sums")
    return root


# ── the file system ─────────────────────────────────────────────────────────────────────────────────────────────────


def is_one_line(status: int, err: str, *words: str) -> bool:
    return status == 1 and err.startswith("leakage: ") and err.count("\n") == 1 and all(word in err for word in words)


@pytest.mark.parametrize("folder", ["_toc.yml/below", "_toc.yml/a/b", "x" * 300])
def test_a_build_folder_that_cannot_be_made_is_one_line(book, capsys, monkeypatch, folder):
    monkeypatch.chdir(book)
    status = cli.main(["build", "--no-render", "--build-dir", folder])
    assert is_one_line(status, capsys.readouterr().err, folder.split("/")[-1])


FAULTS = [errno.EACCES, errno.EROFS, errno.ENOSPC, errno.EFBIG, errno.EIO, errno.EDQUOT, errno.EMFILE]


@pytest.mark.parametrize("number", FAULTS, ids=errno.errorcode.get)
@pytest.mark.parametrize("part", ["alone", "carry_out", "_collect", "stage"])
def test_whatever_the_file_system_refuses_ends_a_build_in_one_line(book, capsys, monkeypatch, part, number):
    def refuse(*given, **more):
        raise OSError(number, os.strerror(number), str(book / "_build" / "x"))

    monkeypatch.setattr(building, "carry_out", lambda *given, **more: [])
    monkeypatch.setattr(building, part, refuse)
    assert is_one_line(build(book), capsys.readouterr().err, os.strerror(number), "_build", "what was finished is kept")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no device that is always full")
def test_a_full_standard_output_is_one_line(book):
    code = "import sys; from leakage.pipeline import cli; sys.exit(cli.main(['data']))"
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", code], stdout=full, stderr=subprocess.PIPE, text=True, timeout=HANGS
        )
    assert is_one_line(done.returncode, done.stderr, os.strerror(errno.ENOSPC))


def test_a_tree_that_nobody_may_write_to_is_staged_as_one_that_can_be_written(book, tmp_path, capsys):
    """Modes rather than failures are looked at: root may write everywhere."""
    without_chapters(book)
    folders = [path for path in book.rglob("*") if path.is_dir()]
    for path in (*book.rglob("*"), book):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        for _ in range(2):
            assert build(book, "--build-dir", str(tmp_path / "build")) == 0
    finally:
        for path in (book, *folders):
            path.chmod(0o755)
    staged = list((tmp_path / "build" / "site-src").rglob("*"))
    assert {"intro.md", "numbers.py"} <= {path.name for path in staged}
    assert all(path.stat().st_mode & 0o200 for path in staged)


# ── the terminal, the user and the installation ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp437", "koi8-r"])
def test_a_terminal_of_another_encoding_is_written_to(book, monkeypatch, encoding):
    streams = [io.TextIOWrapper(io.BytesIO(), encoding=encoding) for _ in range(2)]
    monkeypatch.setattr(sys, "stdout", streams[0])
    monkeypatch.setattr(sys, "stderr", streams[1])
    monkeypatch.setattr(building, "build", lambda *given, **more: print("✓ sums") or building.Report({}, ()))
    assert build(book, "--seed", "1") == 0
    assert leakage(book, "build", "--", "☃") == 2
    for stream in streams:
        stream.flush()
    assert b"sums" in streams[0].buffer.getvalue()
    assert streams[1].buffer.getvalue().startswith(b"leakage: ")


def test_a_package_that_is_not_installed_is_named_with_the_extra_that_has_it(book):
    code = "import sys; sys.modules['{}'] = None; from leakage.pipeline import cli; sys.exit(cli.main({}))"
    for package, command in (("jupytext", "status"), ("jupytext", "build"), ("nbformat", "serve")):
        arguments = [command, "--root", str(book)]
        script = [sys.executable, "-c", code.format(package, arguments)]
        done = subprocess.run(script, capture_output=True, text=True, timeout=HANGS)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(
            f"leakage: this needs the package {package}, which is not installed; install leak"
        )
        assert done.stderr.count("\n") == 1


def test_data_can_be_listed_without_pytorch_and_the_packages_of_the_book(tmp_path):
    absent = ("jupytext", "nbformat", "papermill", "jupyter_book", "sphinx_external_toc", "torch")
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({absent})); from leakage.pipeline import cli; cli.main(['data'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=HANGS)
    assert (done.returncode, done.stderr) == (0, "")
    assert "mnist" in done.stdout


def test_an_import_of_ours_that_fails_is_no_missing_package(book, monkeypatch):
    def lost(*given, **more):
        raise ModuleNotFoundError("No module named 'leakage.x'", name="leakage.x")

    monkeypatch.setattr(building, "build", lost)
    with pytest.raises(ModuleNotFoundError):
        build(book)


@pytest.fixture
def unknown_user(monkeypatch):
    """A user of whom the system knows a number only, as in a container."""
    for name, value in (("HOME", ""), ("LEAKAGE_DATA", "data")):  # set first, so that both are put back afterwards
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("HOME")

    def lost(*given):
        raise KeyError("no such user")

    monkeypatch.setattr("pwd.getpwuid", lost)


def test_a_user_without_a_home_builds_with_one_in_the_build_folder(book, unknown_user, monkeypatch, capsys):
    homes = []
    monkeypatch.setattr(building, "carry_out", lambda *given, **more: homes.append(os.environ["HOME"]) or [])
    assert build(book) == 0
    assert homes == [str(book / "_build")]
    assert os.environ["LEAKAGE_DATA"] == str(Path("data").absolute())
    del os.environ["HOME"]
    assert leakage(book, "status") == 0


# ── the commit ──────────────────────────────────────────────────────────────────────────────────────────────────────


def git(folder: Path, *arguments: str) -> None:
    options = ["-c", "user.name=n", "-c", "user.email=e", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", "-C", folder, *options, *arguments], check=True, capture_output=True, timeout=HANGS)


@pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")
def test_a_commit_is_that_of_the_repository_itself_and_of_no_other(book, tmp_path, monkeypatch):
    assert plan._commit(book) == (None, False)
    git(tmp_path, "init")
    git(tmp_path, "commit", "--allow-empty", "-m", "other")
    assert plan._commit(book) == (None, False), "of the repository around it"
    monkeypatch.setenv("GIT_DIR", str(tmp_path / ".git"))
    assert plan._commit(book) == (None, False), "of the repository of a hook"
    monkeypatch.delenv("GIT_DIR")
    git(book, "init")
    git(book, "add", ".")
    git(book, "commit", "-m", "own")
    own, dirty = plan._commit(book)
    assert (len(own), dirty) == (40, False)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
    (book / "new").touch()
    assert plan._commit(book) == (own, True)


# ── the server ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def answer(tmp_path):
    """Ask the server of a small site for a path; status and body."""
    site = tmp_path / "site"
    (site / "empty").mkdir(parents=True)
    (site / "deep").mkdir()
    (tmp_path / "secret").mkdir()
    for path in ("site/index.html", "site/deep/index.html", "secret/index.html", "secret.txt"):
        (tmp_path / path).write_text(path, "utf-8")
    for link, target in (("out.txt", "secret.txt"), ("out", "secret"), ("circle", "site/circle")):
        (site / link).symlink_to(tmp_path / target)
    (site / "in.html").symlink_to(site / "deep" / "index.html")
    (site / "empty" / "index.html").symlink_to(tmp_path / "secret.txt")
    running = serve.server(site, 0)
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()

    def ask(path: str, host: str | None = "localhost", method: str = "GET") -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", running.server_port, timeout=HANGS)
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        if host is not None:
            connection.putheader("Host", host)
        connection.endheaders()
        response = connection.getresponse()
        body = response.read().decode()
        connection.close()
        return response.status, body

    yield ask
    running.shutdown()
    running.server_close()
    thread.join()


def test_the_server_answers_with_files_of_the_site_to_this_machine_only(answer):
    pages = {"/": "site/index.html", "/index.html?x#y": "site/index.html", "/deep/": "site/deep/index.html"}
    pages |= {"/in.html": "site/deep/index.html", "/%69ndex.html": "site/index.html"}
    for path, body in pages.items():
        assert answer(path) == (200, body)
    for path in ("/out.txt", "/out/", "/out/index.html", "/empty/", "/circle", "/nowhere", "/../secret.txt", "/%00"):
        status, body = answer(path)
        assert (status, "secret" in body) == (404, False), path
    for path in ("//secret.txt", "/..%2fsecret.txt", "/%2e%2e/secret.txt", f"/{'x' * 5000}", "/deep/../../secret.txt"):
        assert answer(path)[0] == 404, path
    assert answer("/", method="POST")[0] == 501


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8000", "127.0.0.1", "127.0.0.1:1", "[::1]:8000", None])
def test_the_server_knows_this_machine_by_its_names(answer, host):
    assert answer("/", host)[0] == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", "", "0.0.0.0"])
def test_the_server_has_no_answer_for_another_host(answer, host):
    assert answer("/", host)[0] == 421


# ── data that is not here ───────────────────────────────────────────────────────────────────────────────────────────


def claim(name: str, *needs: str, profile: str = "ci") -> declarations.Claim:
    rules = (Rule("x.low > 1", ("x",)), Rule("x.high < 1", ("x",)))
    return declarations.Claim(name, "figure", "C.", "held", {"x": "W"}, *rules, profile=profile, needs=needs)


NEEDS = [("location",), ("location", "mnist"), ("location",), ("multi30k",), ("mnist",), ()]


@pytest.fixture
def lacking(monkeypatch, tmp_path):
    """The sentence for claims that need sets, with these verdicts, in this profile."""
    monkeypatch.setenv("LEAKAGE_DATA", str(tmp_path / "data"))

    def say(verdict="not run", profile="ci", least="ci", needs=tuple(NEEDS)) -> str:
        claims = tuple(claim(f"t.c{number}", *sets, profile=least) for number, sets in enumerate(needs))
        declared = declarations.Declarations("toy", "t", "T", "k", (), claims)
        ledger = {"profile": profile, "claims": [{"id": one.id, "verdict": verdict} for one in claims]}
        book = Mock(spec=Book, **{"declarations.return_value": declared})
        return lacking_data.sentence(book, {"toy": ledger})

    return say


def test_claims_that_lack_data_are_counted_by_set_with_the_command_that_gets_it(lacking):
    counted = "5 claims (location 3, mnist 2, multi30k 1)"
    assert lacking() == f"Not run for want of data: {counted}; `make data` fetches these sets."
    one = "Not run for want of data: 1 claim (mnist 1); `make data` fetches this set."
    assert lacking(needs=(("mnist",), ())) == one


@pytest.mark.parametrize(
    "case",
    [{"verdict": "held"}, {"verdict": "not judged", "profile": "smoke"}, {"least": "paper"}, {"needs": ((), ())}],
)
def test_nothing_is_said_of_claims_that_no_data_would_have_run(lacking, case):
    assert lacking(**case) == ""


def test_a_damaged_set_is_named_with_its_file_and_stays_as_it_is(lacking, tmp_path):
    path = tmp_path / "data/location/dataset_location.tgz"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"damaged")
    cure = "move it away and run `.venv/bin/leakage data location`."
    damaged = f"location is damaged (location/dataset_location.tgz): {cure}"
    counted = "Not run for want of data: 5 claims (location 3, mnist 2, multi30k 1)"
    assert lacking() == f"{counted}; `make data` fetches mnist, multi30k; {damaged}"
    assert lacking(needs=(("location",),)) == f"Not run for want of data: 1 claim (location 1); {damaged}"
    assert path.read_bytes() == b"damaged"


@pytest.mark.parametrize(
    ("states", "lack"),
    [
        (("verified", "verified"), None),
        (("verified", "absent"), ""),
        (("verified", "damaged"), "mnist/t10k-labels-idx1-ubyte.gz"),
    ],
)
def test_a_set_is_here_if_all_its_files_are_good(monkeypatch, states, lack):
    from leakage.data import fetch, registry

    files = registry.DATASETS["mnist"].files
    found = tuple(fetch.FileStatus(file, Path(file.path), state) for file, state in zip(files, states, strict=True))
    monkeypatch.setattr(fetch, "status", lambda name: found)
    assert lacking_data._lack("mnist") == lack


def test_either_form_of_a_set_is_enough(monkeypatch):
    from leakage.data import fetch, registry

    found = [fetch.FileStatus(file, Path(file.path), "absent") for file in registry.DATASETS["adult"].files]
    found[0] = fetch.FileStatus(found[0].file, found[0].path, "verified")
    monkeypatch.setattr(fetch, "status", lambda name: tuple(found))
    assert lacking_data._lack("adult") is None


def test_the_sentence_stands_first_on_the_scoreboard():
    board = scoreboard.scoreboard([], ["A toy"], "Not run for want of data: 1 claim (mnist 1).")
    assert board.startswith("Not run for want of data: 1 claim (mnist 1).\n\n**A toy.** This chapter did not run")


def test_a_build_without_a_standard_output_is_a_build(book, monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    with Progress() as progress:
        progress.say("nobody hears")


def test_a_map_that_has_no_place_is_one_line(book, capsys, monkeypatch):
    monkeypatch.chdir(book)
    for content in (b"", b"\xff"):
        (book / "CONTRIBUTING.md").write_bytes(content)
        status = cli.main(["map"])
        assert (status, capsys.readouterr().err.count("\n")) == (2, 1)


def test_a_browser_that_goes_away_is_no_news(tmp_path, capsys):
    with serve.server(tmp_path, 0) as serving:
        for error, told in ((ConnectionResetError(), False), (ValueError("news"), True)):
            try:
                raise error
            except Exception:
                serving.handle_error(None, None)
            assert ("Traceback" in capsys.readouterr().err) == told
