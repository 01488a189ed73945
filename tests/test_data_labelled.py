"""Data sets come by name, as numbers with classes."""

from functools import partial

import pytest
import torch

from leakage.data import fetch, images, labelled, multi30k
from leakage.data.registry import DataAbsent


@pytest.mark.parametrize(("name", "shape", "classes"), [("digits", (1797, 64), 10), ("breast-cancer", (569, 30), 2)])
def test_what_comes_with_scikit_learn_is_always_there(name, shape, classes):
    found = labelled.load(name)
    assert (found.features.dtype, found.features.shape, found.classes) == (torch.float32, shape, classes)
    torch.testing.assert_close(found.to("cpu").labels, found.labels)
    assert len(found) == shape[0]


def test_digits_are_bits_and_measurements_are_standardised():
    assert labelled.load("digits").features.unique().tolist() == [0.0, 1.0]
    tumours = labelled.load("breast-cancer").features
    torch.testing.assert_close(tumours.std(0), torch.ones(30))


@pytest.mark.parametrize(
    ("name", "load"),
    [
        ("location", partial(labelled.load, "location")),
        ("adult", partial(labelled.load, "adult")),
        ("mnist", partial(images.load, "mnist")),
        ("multi30k", multi30k.load),
    ],
)
def test_an_absent_set_is_named_with_the_command_that_gets_it_and_never_fetched(name, load, tmp_path, monkeypatch):
    monkeypatch.setenv("LEAKAGE_DATA", str(tmp_path))
    monkeypatch.setattr(fetch, "fetch", None)
    with pytest.raises(DataAbsent, match=f"leakage data {name}`"):
        load()


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(ValueError, match=r"`name` must be one of location, adult, .*; got 'mnist'"):
        labelled.load("mnist")


@pytest.mark.skipif(not fetch.available("adult"), reason="Adult is not in the data folder")
def test_adult_has_numbers_and_words():
    found = labelled.load("adult")
    assert (found.features.shape, found.classes) == ((32_561, 108), 2)
