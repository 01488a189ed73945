"""Downloads resume where that is safe, and refuse what they must."""

import socket
import threading

import pytest

from leakage.data import download as download_module
from leakage.data.download import DownloadBlocked, DownloadFailed, TooLarge, download, note_of
from patience import HANGS
from small_data import serving

CONTENT = bytes(range(256)) * 1000
LENGTH = len(CONTENT)
HALF = LENGTH // 2


@pytest.fixture
def site():
    with serving() as running:
        running.files["/file"] = CONTENT
        yield running


def get(site, partial, *, path="/file", limit=LENGTH, patience=30.0):
    download(site.address + path, partial, limit=limit, progress=False, patience=patience, _schemes=("http",))


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
    assert site.headers[-1]["If-Range"] == site.etag


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


def test_a_download_starts_again_when_the_content_changed(site, tmp_path):
    partial = tmp_path / "x.part"
    interrupted(site, partial)
    site.files["/file"], site.etag = CONTENT[::-1], '"two"'
    get(site, partial)
    assert partial.read_bytes() == CONTENT[::-1]


@pytest.mark.parametrize("etag", ["", 'W/"weak"'])
def test_a_download_starts_again_when_the_server_cannot_tell_versions_apart(site, tmp_path, etag):
    site.etag = etag
    partial = tmp_path / "x.part"
    interrupted(site, partial)
    get(site, partial)
    assert partial.read_bytes() == CONTENT
    assert "Range" not in site.headers[-1]


def test_a_download_starts_again_from_another_address(site, tmp_path):
    partial = tmp_path / "x.part"
    interrupted(site, partial)
    site.files["/other"] = CONTENT
    get(site, partial, path="/other")
    assert "Range" not in site.headers[-1]
    assert partial.read_bytes() == CONTENT


@pytest.mark.parametrize("note", ["", '{"url": "htt', "[]", "{}", '{"url": "URL", "validator": "a\\nHost: b"}'])
def test_a_note_cut_short_is_as_good_as_none(site, tmp_path, note):
    partial = tmp_path / "x.part"
    interrupted(site, partial)
    note_of(partial).write_text(note.replace("URL", f"{site.address}/file"))
    get(site, partial)
    assert "Range" not in site.headers[-1]
    assert partial.read_bytes() == CONTENT


def test_a_partial_file_as_long_as_the_content_starts_again(site, tmp_path):
    partial = tmp_path / "x.part"
    interrupted(site, partial)
    partial.write_bytes(CONTENT)
    get(site, partial)  # the server answers 416 to the first request
    assert partial.read_bytes() == CONTENT
    assert "Range" not in site.headers[-1]


def test_another_part_than_asked_for_is_refused_and_the_partial_file_deleted(site, tmp_path):
    partial = tmp_path / "x.part"
    interrupted(site, partial)
    site.wrong_range = True
    with pytest.raises(DownloadFailed, match="another part"):
        get(site, partial)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("announced", [True, False])
def test_more_than_allowed_is_refused_and_nothing_stays(site, tmp_path, announced):
    site.send_length = announced
    with pytest.raises(TooLarge, match=f"{LENGTH - 1:,} "):
        get(site, tmp_path / "x.part", limit=LENGTH - 1)
    assert list(tmp_path.iterdir()) == []


def test_a_plain_http_address_is_refused_before_it_is_opened(site, tmp_path):
    with pytest.raises(DownloadFailed, match="only https addresses are followed"):
        download(f"{site.address}/file", tmp_path / "x.part", limit=1)
    assert site.headers == []


@pytest.mark.parametrize("target", ["ftp://127.0.0.1/file", "https://127.0.0.1/file"])
def test_a_redirect_to_another_scheme_is_refused(site, tmp_path, target):
    site.redirects["/away"] = target
    with pytest.raises(DownloadFailed, match=f"{target} is refused"):
        get(site, tmp_path / "x.part", path="/away")
    assert list(tmp_path.iterdir()) == []


def test_a_redirect_within_the_scheme_is_followed(site, tmp_path):
    site.redirects["/here"] = f"{site.address}/file"
    get(site, tmp_path / "x.part", path="/here")
    assert (tmp_path / "x.part").read_bytes() == CONTENT


def test_a_missing_page_is_named_with_its_answer(site, tmp_path):
    with pytest.raises(DownloadFailed, match=r"/nowhere answers 404 Not Found. Try again later"):
        get(site, tmp_path / "x.part", path="/nowhere")
    assert list(tmp_path.iterdir()) == []


def test_an_unreachable_server_is_named_with_a_cure(tmp_path):
    with socket.socket() as closed:  # bound and not listening: connections are refused
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/file"
        with pytest.raises(DownloadFailed, match=r"cannot be reached .* Check the network and try again"):
            download(url, tmp_path / "x.part", limit=1, _schemes=("http",))


def test_a_server_that_says_nothing_is_waited_for_no_longer_than_asked(site, tmp_path):
    site.pause = threading.Event()
    with pytest.raises(DownloadBlocked, match=r"cannot be reached \(.*\). Check the network"):
        get(site, tmp_path / "x.part", patience=0.05)
    site.pause.set()
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_is_looked_up_for_ever_is_waited_for_no_longer_than_asked(tmp_path, monkeypatch):
    answer = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answer.wait(HANGS))  # which takes no limit of ours
    with pytest.raises(DownloadBlocked, match=r"cannot be reached \(no answer within 0.05 seconds\)"):
        download("http://slow.invalid/file", tmp_path / "x.part", limit=1, patience=0.05, _schemes=("http",))
    answer.set()


def test_a_part_that_nobody_asked_for_is_refused(site, tmp_path):
    site.unasked_part = True
    with pytest.raises(DownloadFailed, match="another part"):
        get(site, tmp_path / "x.part")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_named(site, tmp_path):
    with pytest.raises(DownloadFailed, match=r"x\.part cannot be written .* Set LEAKAGE_DATA"):
        get(site, tmp_path / "missing" / "x.part")


def test_a_bar_shows_the_name_of_the_file_and_its_size(site, tmp_path, capsys):
    download(f"{site.address}/file", tmp_path / "x.gz.part", limit=LENGTH, progress=True, _schemes=("http",))
    shown = capsys.readouterr().err
    assert "x.gz:" in shown
    assert "256k/256k" in shown
