"""Synthetic shoppers follow the law they are said to follow."""

import pytest
import torch

from leakage.runtime import stream
from leakage.studies.blessing import purchase_like


def test_shoppers_are_flipped_prototypes_of_their_class():
    drawn = purchase_like.draw(2000, generator=stream(0, "shoppers"))
    assert drawn.features.shape == (2000, 600)
    assert (len(drawn), drawn.features.dtype, drawn.labels.dtype) == (2000, torch.uint8, torch.int64)
    assert set(drawn.features.unique().tolist()) == {0, 1}
    differing = (drawn.features != drawn.prototypes[drawn.labels, drawn.styles]).double().mean()
    # 1.2 million independent flips of chance 0.1: five standard errors.
    assert abs(float(differing) - 0.1) < 5 * (0.09 / 1.2e6) ** 0.5
    # 180,000 bits of prototypes of chance 0.15.
    assert abs(float(drawn.prototypes.double().mean()) - 0.15) < 5 * (0.1275 / 1.8e5) ** 0.5


def test_classes_and_styles_are_all_used():
    drawn = purchase_like.draw(2000, generator=stream(0, "shoppers"))
    assert len(torch.stack([drawn.labels, drawn.styles]).unique(dim=-1).T) > 295  # of 300, with 6.7 shoppers each
    # 20 expected in each class; a Poisson count of 20 exceeds 50 or misses 2 with a chance below 1e-6.
    assert bool(((drawn.labels.bincount() > 2) & (drawn.labels.bincount() < 50)).all())


def test_without_flips_a_shopper_is_a_prototype():
    drawn = purchase_like.draw(50, generator=stream(0, "shoppers"), features=20, classes=4, styles=2, flip=0.0)
    assert torch.equal(drawn.features, drawn.prototypes[drawn.labels, drawn.styles])
    again = purchase_like.draw(50, generator=stream(0, "shoppers"), features=20, classes=4, styles=2, flip=0.0)
    assert torch.equal(drawn.features, again.features)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        (dict(classes=0), "classes"),
        (dict(density=1.0), "density"),
        (dict(flip=0.5), "flip"),
        (dict(flip=float("nan")), "flip"),
    ],
)
def test_impossible_laws_are_refused(settings, name):
    with pytest.raises(ValueError, match=f"`{name}`"):
        purchase_like.draw(10, generator=stream(0, "shoppers"), **settings)
