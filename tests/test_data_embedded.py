"""The embedded sets are there without a file or a network."""

import pytest
import torch

from leakage.data.embedded import EMBEDDED, breast_cancer, digits


@pytest.mark.parametrize("name", EMBEDDED)
def test_an_embedded_set_is_complete(name):
    loaded = EMBEDDED[name]()
    assert loaded.name == name
    assert all((loaded.title, loaded.licence, loaded.source, loaded.citation))
    assert loaded.features.shape == (len(loaded), len(loaded.feature_names))
    assert (loaded.features.dtype, loaded.labels.dtype) == (torch.float64, torch.int64)
    assert loaded.labels.unique().tolist() == list(range(len(loaded.label_names)))
    assert bool(torch.isfinite(loaded.features).all())


def test_digits_are_grey_values_from_zero_to_one():
    loaded = digits()
    assert len(loaded) == 1_797
    assert (float(loaded.features.min()), float(loaded.features.max())) == (0.0, 1.0)
    assert torch.equal((loaded.features * 16).round() / 16, loaded.features)
    assert loaded.labels[:10].tolist() == list(range(10))


def test_breast_cancer_has_its_published_classes():
    loaded = breast_cancer()
    assert len(loaded) == 569
    assert loaded.label_names == ("malignant", "benign")
    assert loaded.labels.bincount().tolist() == [212, 357]


@pytest.mark.parametrize("load", EMBEDDED.values())
def test_an_embedded_set_may_be_changed_without_changing_the_next(load):
    first = load()
    first.features.zero_()
    first.labels.zero_()
    assert float(load().features.abs().sum()) > 0
    assert int(load().labels.sum()) > 0
