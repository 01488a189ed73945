"""Data sets come by name, as numbers with classes."""

from functools import partial

import pytest
import torch

from leakage.data import adult, binary_rows, fetch, images, labelled, mnist, multi30k, newsgroups
from leakage.data.binary_rows import BinaryRows
from leakage.data.labelled import Labelled
from leakage.data.registry import DataAbsent


@pytest.mark.parametrize(("name", "shape", "classes"), [("digits", (1797, 64), 10), ("breast-cancer", (569, 30), 2)])
def test_what_comes_with_scikit_learn_is_always_there(name, shape, classes):
    found = labelled.load(name)
    assert (found.features.dtype, found.features.shape, found.classes) == (torch.float32, shape, classes)
    assert torch.equal(found.to("cpu").labels, found.labels)
    assert len(found) == shape[0]


def test_digits_are_bits_and_measurements_are_standardised():
    assert labelled.load("digits").features.unique().tolist() == [0.0, 1.0]
    tumours = labelled.load("breast-cancer").features
    torch.testing.assert_close(tumours.std(0), torch.ones(30))


def test_the_sets_that_readers_bring_are_read_by_their_own_loaders(monkeypatch):
    rows = BinaryRows(torch.ones(4, 3, dtype=torch.uint8), torch.arange(4))
    monkeypatch.setattr(binary_rows, "load", lambda name: rows)
    for name in binary_rows.NAMES:
        found = labelled.load(name)
        assert found.features.dtype == torch.float32
        assert torch.equal(found.labels, rows.labels)
    messages = newsgroups.MessageSet(("one", "two", "three"), torch.arange(3), ("a", "b", "c"))
    monkeypatch.setattr(newsgroups, "load", lambda: messages)
    whole = newsgroups.tf_idf
    monkeypatch.setattr(newsgroups, "tf_idf", lambda training: whole(training, features=3))
    assert labelled.load("20newsgroups").features.shape == (3, 3)


@pytest.mark.parametrize(
    ("name", "load"),
    [
        *(
            (name, partial(labelled.load, name))
            for name in sorted(labelled.LOADERS.keys() - {"digits", "breast-cancer"})
        ),
        ("mnist", partial(images.load, "mnist")),
        ("mnist-train", partial(mnist.load, "train")),
        ("adult-test", partial(adult.load, "test")),
        ("multi30k", multi30k.load),
    ],
)
def test_an_absent_set_is_named_with_the_command_that_gets_it_and_never_fetched(name, load, tmp_path, monkeypatch):
    monkeypatch.setenv("LEAKAGE_DATA", str(tmp_path))
    monkeypatch.setattr(fetch, "fetch", None)
    with pytest.raises(DataAbsent, match=f"leakage data {name}`"):
        load()


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(ValueError, match=r"`name` must be one of location, purchase100, .*; got 'mnist'"):
        labelled.load("mnist")


@pytest.mark.parametrize(
    ("features", "labels", "message"),
    [
        (torch.ones(3), torch.arange(3), "`features` must have shape"),
        (torch.ones(3, 2).byte(), torch.arange(3), "`features` must be floating-point"),
        (torch.ones(3, 2), torch.arange(2), "`labels` must have shape"),
        (torch.ones(3, 2), torch.ones(3), "`labels` must be whole numbers"),
    ],
)
def test_parts_that_do_not_fit_are_refused(features, labels, message):
    with pytest.raises(ValueError, match=message):
        Labelled(features, labels)


@pytest.mark.skipif(not fetch.available("adult"), reason="Adult is not in the data folder")
def test_adult_has_numbers_and_words():
    found = labelled.load("adult")
    assert (found.features.shape, found.classes) == ((32_561, 108), 2)
