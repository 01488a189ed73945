"""The table of data sets is complete and consistent, and the data folder is the one the user names."""

import re
from pathlib import Path, PurePosixPath

import pytest

from leakage.data import registry
from leakage.data.registry import DATASETS

EVERY_FILE = [pytest.param(d, f, id=f"{d.name}-{f.name}") for d in DATASETS.values() for f in d.files]


@pytest.mark.parametrize(("dataset", "file"), EVERY_FILE)
def test_an_entry_is_complete_and_its_path_stays_below_the_folder(dataset, file):
    assert all((dataset.title, dataset.licence, dataset.source, dataset.citation))
    assert file.url is None or file.url.startswith("https://")
    assert file.url or dataset.any_file
    assert file.size > 0
    assert re.fullmatch("[0-9a-f]{64}", file.sha256)
    path = PurePosixPath(file.path)
    assert not path.is_absolute()
    assert ".." not in path.parts
    assert bool(file.member) == (path.suffix == ".tgz")


def test_a_wrong_name_lists_the_names():
    with pytest.raises(ValueError, match="`name` must be one of mnist, location, adult, multi30k"):
        registry.dataset("minst")
    with pytest.raises(ValueError, match="`file` must be one of images, labels for data set mnist; got 'image'"):
        registry.dataset("mnist").file("image")


def test_the_folder_is_the_one_the_user_names(monkeypatch, tmp_path):
    monkeypatch.setenv("LEAKAGE_DATA", str(tmp_path))
    assert registry.folder() == tmp_path
    monkeypatch.setenv("LEAKAGE_DATA", "~/data")
    assert registry.folder() == Path.home() / "data"


def test_the_folder_is_in_the_users_cache_by_default(monkeypatch, tmp_path):
    monkeypatch.setenv("LEAKAGE_DATA", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert registry.folder() == tmp_path / "leakage"
    for ignored in ("", "relative/path"):
        monkeypatch.setenv("XDG_CACHE_HOME", ignored)
        assert registry.folder() == Path.home() / ".cache" / "leakage"
