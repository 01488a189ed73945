"""The registry's table is complete, consistent and honest about what it does not know."""

import re
from pathlib import PurePosixPath

import pytest
from sklearn.datasets import _twenty_newsgroups

from leakage.data import registry
from leakage.data.registry import DATASETS, DataAbsent
from small_data import PACKINGS

EVERY_FILE = [pytest.param(d, f, id=f"{d.name}-{f.name}") for d in DATASETS.values() for f in d.files]


def test_the_table_has_every_set_the_book_names():
    assert list(DATASETS) == [
        "mnist",
        "mnist-train",
        "location",
        "adult",
        "adult-test",
        "multi30k",
        "purchase100",
        "texas100",
        "20newsgroups",
    ]
    assert all(DATASETS[name].name == name for name in DATASETS)


@pytest.mark.parametrize(("dataset", "file"), EVERY_FILE)
def test_an_entry_is_complete_and_its_path_stays_below_the_folder(dataset, file):
    assert all((dataset.title, dataset.licence, dataset.source, dataset.citation))
    assert file.url is None or file.url.startswith("https://")
    assert file.url or dataset.any_file
    assert file.packing in PACKINGS
    assert file.at_most > 0
    assert file.sha256 is None or re.fullmatch("[0-9a-f]{64}", file.sha256)
    path = PurePosixPath(file.path)
    assert not path.is_absolute()
    assert ".." not in path.parts
    assert bool(file.member) == (file.packing == "tar.gz")
    assert {other.url for other in dataset.archive(file.path)} == {file.url}


def test_what_was_never_held_is_marked_unverified():
    unverified = {name for name, dataset in DATASETS.items() if not all(file.verified for file in dataset.files)}
    assert unverified == {"mnist-train", "adult-test", "purchase100", "texas100"}


def test_the_newsgroups_checksum_is_the_one_scikit_learn_enforces():
    archive = _twenty_newsgroups.ARCHIVE
    (file,) = DATASETS["20newsgroups"].files
    assert (file.url, file.sha256) == (archive.url, archive.checksum)


@pytest.mark.parametrize("name", ["minst", "", None, ["mnist"]])
def test_a_wrong_name_lists_the_names(name):
    with pytest.raises(ValueError, match="`name` must be one of mnist, mnist-train, location, adult"):
        registry.dataset(name)


def test_a_wrong_file_lists_the_files():
    with pytest.raises(ValueError, match="`file` must be one of images, labels for data set mnist; got 'image'"):
        registry.dataset("mnist").file("image")


def test_absence_is_a_missing_file_with_its_own_words():
    assert issubclass(DataAbsent, FileNotFoundError)
    assert str(DataAbsent("run it")) == "run it"
