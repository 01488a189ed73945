"""The embedded sets are there without a file or a network."""

import pytest
import torch

from leakage.data.embedded import breast_cancer, digits


@pytest.mark.parametrize(("load", "shape", "classes"), [(digits, (1_797, 64), 10), (breast_cancer, (569, 30), 2)])
def test_an_embedded_set_is_complete(load, shape, classes):
    loaded = load()
    assert loaded.features.shape == (len(loaded), shape[1]) == shape
    assert (loaded.features.dtype, loaded.labels.dtype) == (torch.float64, torch.int64)
    assert loaded.labels.unique().tolist() == list(range(classes))
    assert bool(torch.isfinite(loaded.features).all())


def test_digits_are_grey_values_from_zero_to_one():
    loaded = digits()
    assert (float(loaded.features.min()), float(loaded.features.max())) == (0.0, 1.0)
    torch.testing.assert_close((loaded.features * 16).round() / 16, loaded.features)
    assert loaded.labels[:10].tolist() == list(range(10))


def test_breast_cancer_has_its_published_classes():
    assert breast_cancer().labels.bincount().tolist() == [212, 357]


@pytest.mark.parametrize("load", [digits, breast_cancer])
def test_an_embedded_set_may_be_changed_without_changing_the_next(load):
    first = load()
    first.features.zero_()
    first.labels.zero_()
    assert float(load().features.abs().sum()) > 0
    assert int(load().labels.sum()) > 0
