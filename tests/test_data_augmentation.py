"""Images are shifted and mirrored at random, each in its own way."""

import pytest
import torch

from leakage.data.augmentation import shift_and_flip
from leakage.runtime import stream


def test_every_result_is_one_of_the_possible_images_and_all_of_them_occur():
    image = torch.arange(1.0, 10.0).reshape(1, 3, 3)
    padded = torch.nn.functional.pad(image, (1, 1, 1, 1))
    shifted = [padded[:, down : down + 3, right : right + 3] for down in range(3) for right in range(3)]
    possible = [*shifted, *(one.flip(-1) for one in shifted)]
    found = shift_and_flip(image.expand(600, 1, 3, 3), stream(0, "images"), pixels=1)
    same = torch.stack([(found == one).flatten(1).all(1) for one in possible])
    assert bool((same.sum(0) == 1).all())
    # 600 draws of 18 images: each is expected 33 times with a standard deviation of 5.6; five of these are allowed.
    assert int(same.sum(1).min()) >= 6
    assert int(same.sum(1).max()) <= 61


def test_without_shifts_half_of_the_images_are_mirrored():
    images = torch.rand(400, 3, 5, 4, generator=stream(0, "pixels"))
    found = shift_and_flip(images, stream(0, "flips"), pixels=0)
    same = (found == images).flatten(1).all(1)
    mirrored = (found == images.flip(-1)).flatten(1).all(1)
    assert bool((same ^ mirrored).all())
    assert abs(int(same.sum()) - 200) < 50  # five standard deviations of a fair coin thrown 400 times


def test_models_and_colours_are_treated_as_they_should():
    image = torch.rand(1, 1, 1, 8, 8, generator=stream(0, "pixels"))
    found = shift_and_flip(image.expand(5, 20, 3, 8, 8), stream(0, "images"))
    assert found.shape == (5, 20, 3, 8, 8)
    assert torch.equal(found[:, :, 0], found[:, :, 2])  # all colours of an image move together
    assert len(found.flatten(0, 1).unique(dim=0)) > 60  # and images on their own: 162 kinds, 100 draws


def test_pixels_beyond_the_image_are_refused():
    images = torch.zeros(2, 3, 4, 8)
    for pixels in (-1, 4):
        with pytest.raises(ValueError, match="`pixels` must be a whole number at least 0 and at most"):
            shift_and_flip(images, stream(0, "images"), pixels=pixels)
