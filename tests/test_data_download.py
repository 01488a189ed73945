"""Downloads resume where that is safe, and refuse what they must."""

import socket
import sys
import threading

import pytest

from leakage.data import download as download_module
from leakage.data.download import DownloadBlocked, DownloadFailed, TooLarge, download
from patience import HANGS
from small_data import serving

CONTENT = bytes(range(256)) * 1000
LENGTH = len(CONTENT)
HALF = LENGTH // 2


@pytest.fixture
def sink(tmp_path):
    with (tmp_path / "x.part").open("ab") as opened:
        yield opened


@pytest.fixture
def site():
    with serving() as running:
        running.files["/file"] = CONTENT
        yield running


def get(site, partial, *, path="/file", limit=LENGTH, patience=30.0):
    with partial.open("ab") as sink:
        download(site.address + path, sink, limit=limit, patience=patience, _schemes=("http",))


def interrupted(site, partial):
    """Leave the first half of the content in `partial`, as a broken connection does."""
    site.break_after = HALF
    with pytest.raises(DownloadFailed, match=f"broke off after {HALF:,} of {LENGTH:,} bytes. Run the command again"):
        get(site, partial)
    site.break_after = None
    assert partial.read_bytes() == CONTENT[:HALF]


def test_a_download_brings_every_byte(site, tmp_path):
    get(site, tmp_path / "x.part")
    assert (tmp_path / "x.part").read_bytes() == CONTENT


def test_a_download_without_announced_length_brings_every_byte(site, tmp_path):
    site.send_length = False
    get(site, tmp_path / "x.part")
    assert (tmp_path / "x.part").read_bytes() == CONTENT


def test_a_broken_download_is_resumed_where_it_stopped(site, tmp_path):
    partial = tmp_path / "x.part"
    interrupted(site, partial)
    get(site, partial)
    assert partial.read_bytes() == CONTENT
    assert site.headers[-1]["Range"] == f"bytes={HALF}-"


def test_a_download_stopped_by_the_user_is_resumed(site, tmp_path, monkeypatch):
    partial = tmp_path / "x.part"
    with monkeypatch.context() as patch:
        patch.setattr(download_module.tqdm, "update", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            get(site, partial)
    held = partial.stat().st_size
    assert 0 < held < LENGTH
    get(site, partial)
    assert partial.read_bytes() == CONTENT
    assert site.headers[-1]["Range"] == f"bytes={held}-"


def _interrupt(*_):
    raise KeyboardInterrupt


def test_a_download_starts_again_where_a_server_sends_no_parts(site, tmp_path):
    partial = tmp_path / "x.part"
    interrupted(site, partial)
    site.files["/file"], site.resumes = CONTENT[::-1], False
    get(site, partial)
    assert partial.read_bytes() == CONTENT[::-1]


def test_a_partial_file_as_long_as_the_content_starts_again(site, tmp_path):
    partial = tmp_path / "x.part"
    interrupted(site, partial)
    partial.write_bytes(CONTENT)
    get(site, partial)  # the server answers 416 to the first request
    assert partial.read_bytes() == CONTENT
    assert "Range" not in site.headers[-1]


def test_another_part_than_asked_for_is_refused_and_nothing_stays(site, tmp_path):
    partial = tmp_path / "x.part"
    interrupted(site, partial)
    site.wrong_range = True
    with pytest.raises(DownloadFailed, match="another part"):
        get(site, partial)
    assert (tmp_path / "x.part").read_bytes() == b""


@pytest.mark.parametrize("announced", [True, False])
def test_more_than_allowed_is_refused_and_nothing_stays(site, tmp_path, announced):
    site.send_length = announced
    with pytest.raises(TooLarge, match=f"{LENGTH - 1:,} "):
        get(site, tmp_path / "x.part", limit=LENGTH - 1)
    assert (tmp_path / "x.part").read_bytes() == b""


def test_a_plain_http_address_is_refused_before_it_is_opened(site, sink):
    with pytest.raises(DownloadFailed, match="only https addresses are followed"):
        download(f"{site.address}/file", sink, limit=1)
    assert site.headers == []


@pytest.mark.parametrize("target", ["ftp://127.0.0.1/file", "https://127.0.0.1/file"])
def test_a_redirect_to_another_scheme_is_refused(site, tmp_path, target):
    site.redirects["/away"] = target
    with pytest.raises(DownloadFailed, match=f"{target} is refused"):
        get(site, tmp_path / "x.part", path="/away")
    assert (tmp_path / "x.part").read_bytes() == b""


def test_a_redirect_within_the_scheme_is_followed(site, tmp_path):
    site.redirects["/here"] = f"{site.address}/file"
    get(site, tmp_path / "x.part", path="/here")
    assert (tmp_path / "x.part").read_bytes() == CONTENT


def test_a_missing_page_is_named_with_its_answer(site, tmp_path):
    with pytest.raises(DownloadFailed, match=r"/nowhere answers 404 Not Found. Try again later"):
        get(site, tmp_path / "x.part", path="/nowhere")
    assert (tmp_path / "x.part").read_bytes() == b""


def test_an_unreachable_server_is_named_with_a_cure(sink):
    with socket.socket() as closed:  # bound and not listening: connections are refused
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/file"
        with pytest.raises(DownloadFailed, match=r"cannot be reached .* Check the network and try again"):
            download(url, sink, limit=1, _schemes=("http",))


def test_a_server_that_says_nothing_is_waited_for_no_longer_than_asked(site, tmp_path):
    site.pause = threading.Event()
    with pytest.raises(DownloadBlocked, match=r"cannot be reached \(.*\). Check the network"):
        get(site, tmp_path / "x.part", patience=0.05)
    site.pause.set()
    assert (tmp_path / "x.part").read_bytes() == b""


def test_a_name_that_is_looked_up_for_ever_is_waited_for_no_longer_than_asked(sink, monkeypatch):
    answer = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answer.wait(HANGS))  # which takes no limit of ours
    with pytest.raises(DownloadBlocked, match=r"cannot be reached \(no answer within 0.05 seconds\)"):
        download("http://slow.invalid/file", sink, limit=1, patience=0.05, _schemes=("http",))
    answer.set()


def test_a_part_that_nobody_asked_for_is_refused(site, tmp_path):
    site.unasked_part = True
    with pytest.raises(DownloadFailed, match="another part"):
        get(site, tmp_path / "x.part")
    assert (tmp_path / "x.part").read_bytes() == b""


def test_a_terminal_shows_a_bar_with_the_name_of_the_file_and_its_size(site, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with (tmp_path / "x.gz.part").open("ab") as sink:
        download(f"{site.address}/file", sink, limit=LENGTH, _schemes=("http",))
    shown = capsys.readouterr().err
    assert "x.gz:" in shown
    assert "256k/256k" in shown
