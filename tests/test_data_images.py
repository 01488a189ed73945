"""Images shrink as Pillow shrinks them; splits are balanced, disjoint and blind to everything but the labels."""

import numpy as np
import pytest
import torch
from PIL import Image

from leakage.data import images, mnist
from leakage.data.images import balanced_split, load, parity, resize
from leakage.runtime import stream

LABELS = torch.tensor([1.0] * 30 + [-1.0] * 20)


def noise(count=3, side=28):
    return torch.rand((count, side, side), generator=stream(0, "pixels"), dtype=torch.float64)


def splits(*, labels=LABELS, runs=400, rows_per_class=3, fresh=10, seed=0):
    generator = stream(seed, "splits")
    return balanced_split(labels, rows_per_class=rows_per_class, fresh=fresh, runs=runs, generator=generator)


@pytest.mark.parametrize("side", [1, 4, 8, 13, 20])
def test_shrinking_is_pillows_bicubic_resize(side):
    pixels = noise()
    shape = (side, side)
    theirs = [
        np.asarray(Image.fromarray(one).resize(shape, Image.Resampling.BICUBIC)) for one in pixels.float().numpy()
    ]
    # Pillow stores the rows it has resized in float32 before it resizes the columns.
    torch.testing.assert_close(resize(pixels, side=side).float(), torch.tensor(np.array(theirs)), rtol=0, atol=1e-6)


def test_every_pixel_of_the_original_counts():
    pixels = noise(1).requires_grad_()
    (seen,) = torch.autograd.grad(resize(pixels, side=4).square().sum(), pixels)
    assert bool((seen != 0).all()), "without antialiasing a quarter of 28 × 28 pixels would do for 4 × 4"


def test_at_their_own_side_images_are_unchanged():
    pixels = noise()
    torch.testing.assert_close(resize(pixels, side=28), pixels)


@pytest.mark.parametrize("side", [3, 8, 28])
def test_a_constant_image_stays_constant(side):
    pixels = torch.full((2, 28, 28), 0.3, dtype=torch.float64)
    torch.testing.assert_close(resize(pixels, side=side), pixels[:, :side, :side], rtol=0, atol=1e-14)


def test_shrinking_commutes_with_mirroring():
    pixels = noise()
    torch.testing.assert_close(resize(pixels.flip(-1), side=9), resize(pixels, side=9).flip(-1), rtol=0, atol=1e-14)


def test_shrunk_images_may_leave_the_range_of_grey_values():
    edge = torch.zeros((1, 28, 28), dtype=torch.float64)
    edge[..., 10:] = 1.0
    shrunk = resize(edge, side=12)
    assert float(shrunk.min()) < 0
    assert float(shrunk.max()) > 1


@pytest.mark.parametrize("side", [0, -3, 29])
def test_a_side_beyond_the_images_own_is_refused(side):
    with pytest.raises(ValueError, match=f"`side` must be a whole number at least 1 and at most 28, got {side}"):
        resize(noise(), side=side)


@pytest.mark.usefixtures("unchecked_types")
@pytest.mark.parametrize("shape", [(28, 28), (2, 28, 27), (1, 1, 8, 8)])
def test_images_must_be_square(shape):
    with pytest.raises(ValueError, match=r"`pixels` must have shape \(n, s, s\)"):
        resize(torch.zeros(shape), side=4)


def test_even_digits_are_positive():
    assert parity(torch.arange(10)).tolist() == [1.0, -1.0] * 5
    assert parity(torch.tensor([3]), dtype=torch.float64).dtype == torch.float64


def test_training_sets_are_balanced_and_disjoint_from_the_fresh_points():
    split = splits()
    assert split.train.shape == (400, 6)
    assert split.fresh.shape == (400, 10)
    assert bool((LABELS[split.train].sum(-1) == 0).all())
    rows = torch.cat([split.train, split.fresh], dim=-1).sort(dim=-1).values
    assert bool((rows.diff(dim=-1) > 0).all())
    assert (int(rows.min()), int(rows.max())) == (0, 49)


def test_all_rows_can_be_used():
    split = splits(rows_per_class=20, fresh=10)
    assert bool((LABELS[split.fresh] == 1).all())
    assert bool((torch.cat([split.train, split.fresh], dim=-1).sort(dim=-1).values == torch.arange(50)).all())


def test_rows_of_a_label_are_equally_likely_in_the_training_set_and_rows_of_either_among_the_fresh():
    runs = 20_000
    split = splits(runs=runs)
    expected = {"train": torch.where(LABELS > 0, 3 / 30, 3 / 20), "fresh": torch.where(LABELS > 0, 0.9, 0.85) * 10 / 44}
    for part, chance in expected.items():
        share = getattr(split, part).flatten().bincount(minlength=50) / runs
        # The largest of 50 normal deviations is below 5 with probability 1 - 3e-5.
        assert float(((share - chance).abs() / (chance * (1 - chance) / runs).sqrt()).max()) < 5


def test_the_first_fresh_point_has_the_label_law_of_the_rest():
    # In the order in which the training set is drawn, what follows it would mostly have the commoner label.
    runs = 20_000
    first = LABELS[splits(runs=runs, fresh=1).fresh].squeeze(-1)
    chance = 27 / 44
    assert abs(float((first > 0).double().mean()) - chance) < 4 * (chance * (1 - chance) / runs) ** 0.5


def test_labels_do_not_follow_the_order_within_a_training_set():
    runs = 4000
    leading = LABELS[splits(runs=runs).train[:, 0]]
    assert abs(float((leading > 0).double().mean()) - 0.5) < 4 * 0.5 / runs**0.5


def test_the_same_stream_gives_the_same_split():
    torch.testing.assert_close(splits().train, splits().train)
    assert not torch.allclose(splits().train, splits(seed=1).train)


@pytest.mark.parametrize(
    "sizes", [{"rows_per_class": 0}, {"rows_per_class": 21}, {"fresh": 45}, {"fresh": -1}, {"runs": 0}]
)
def test_sizes_beyond_the_rows_are_refused(sizes):
    (name,) = sizes
    with pytest.raises(
        ValueError, match=rf"`{name}` (must be a whole number at least [01]|0 to 44)|`{name}` must be 1 to 20"
    ):
        splits(**sizes)


def test_labels_must_be_signs():
    with pytest.raises(ValueError, match=r"`labels` must be -1 or 1, got 0\.0"):
        splits(labels=torch.tensor([1.0, -1.0, 0.0]))


def test_the_embedded_digits_are_always_there():
    loaded = load("digits")
    assert loaded.pixels.shape == (len(loaded), 8, 8) == (1797, 8, 8)
    assert loaded.pixels.dtype == torch.float32
    assert (float(loaded.pixels.min()), float(loaded.pixels.max())) == (0.0, 1.0)
    row = torch.tensor([0, 0, 5, 13, 9, 1, 0, 0]) / 16  # as the data set prints its first image
    torch.testing.assert_close(loaded.pixels[0, 0], row)


def test_mnist_comes_as_numbers_from_zero_to_one(monkeypatch):
    loaded = torch.full((2, 28, 28), 255, dtype=torch.uint8), torch.tensor([4, 7])
    monkeypatch.setattr(mnist, "load", lambda: loaded)
    found = load("mnist", dtype=torch.float64)
    torch.testing.assert_close(found.pixels, torch.ones((2, 28, 28), dtype=torch.float64))
    assert found.labels.tolist() == [4, 7]


def test_an_unknown_source_is_answered_with_the_known_ones():
    with pytest.raises(ValueError, match="`source` must be one of mnist, digits; got 'cifar'"):
        images.load("cifar")
