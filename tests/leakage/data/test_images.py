"""Images shrink as Pillow shrinks them; splits are balanced and disjoint; MNIST's idx files parse or are refused."""

import struct
from contextlib import suppress

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from leakage.data import datasets, images
from leakage.data.datasets import DataDamaged
from leakage.data.images import balanced_split, load, parity, resize
from reproduced.runtime import stream
from small_data import entry, pack, put, register, spoiled

LABELS = torch.tensor([1.0] * 30 + [-1.0] * 20)
N = 12
PIXELS = bytes(i * 37 % 256 for i in range(N * 28 * 28))
CODES = bytes(i % 10 for i in range(N))


def noise(count=3, side=28):
    return torch.rand((count, side, side), generator=stream(0, "pixels"), dtype=torch.float64)


def splits(*, labels=LABELS, runs=400, rows_per_class=3, fresh=10):
    generator = stream(0, "splits")
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


def test_rows_of_a_label_are_equally_likely_in_the_training_set_and_rows_of_either_among_the_fresh():
    runs = 20_000
    split = splits(runs=runs)
    expected = {"train": torch.where(LABELS > 0, 3 / 30, 3 / 20), "fresh": torch.where(LABELS > 0, 0.9, 0.85) * 10 / 44}
    for part, chance in expected.items():
        share = getattr(split, part).flatten().bincount(minlength=50) / runs
        # The largest of 50 normal deviations is below 5 with probability 1 - 3e-5.
        assert float(((share - chance).abs() / (chance * (1 - chance) / runs).sqrt()).max()) < 5


@pytest.mark.parametrize("sizes", [{"rows_per_class": 21}, {"fresh": 45}])
def test_too_few_rows_are_refused(sizes):
    with pytest.raises(ValueError, match="`rows_per_class` must be at most 20, and `fresh` at most 50"):
        splits(**sizes)


def test_the_embedded_digits_are_always_there():
    loaded = load("digits")
    assert loaded.pixels.shape == (len(loaded), 8, 8) == (1797, 8, 8)
    assert loaded.pixels.dtype == torch.float32
    assert (float(loaded.pixels.min()), float(loaded.pixels.max())) == (0.0, 1.0)
    row = torch.tensor([0, 0, 5, 13, 9, 1, 0, 0]) / 16  # as the data set prints its first image
    torch.testing.assert_close(loaded.pixels[0, 0], row)


def test_mnist_comes_as_numbers_from_zero_to_one(monkeypatch):
    loaded = torch.full((2, 28, 28), 255, dtype=torch.uint8), torch.tensor([4, 7])
    monkeypatch.setattr(images, "load_mnist", lambda: loaded)
    found = load("mnist", dtype=torch.float64)
    torch.testing.assert_close(found.pixels, torch.ones((2, 28, 28), dtype=torch.float64))
    assert found.labels.tolist() == [4, 7]


# --- the files of MNIST


def images_payload(*, magic=2051, n=N, height=28, width=28, body=PIXELS):
    return struct.pack(">4I", magic, n, height, width) + body


def labels_payload(*, magic=2049, n=N, body=CODES):
    return struct.pack(">2I", magic, n) + body


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A function that makes files with these payloads the data set `mnist`."""

    def put_both(images, labels):
        payloads = {"images": images, "labels": labels}
        files = [entry(payload, name=name, path=f"mnist/{name}.gz") for name, payload in payloads.items()]
        register(monkeypatch, *files, name="mnist")
        for file, payload in zip(files, payloads.values(), strict=True):
            put(tmp_path, pack(payload), file.path)

    monkeypatch.setenv("LEAKAGE_DATA", str(tmp_path))
    return put_both


def test_images_are_rows_of_bytes_in_the_order_of_the_file(small):
    small(images_payload(), labels_payload())
    pixels, labels = images.load_mnist()
    assert (len(pixels), pixels.dtype, labels.dtype) == (N, torch.uint8, torch.int64)
    assert bytes(pixels.flatten().tolist()) == PIXELS
    assert pixels[3, 5, 7] == PIXELS[3 * 784 + 5 * 28 + 7]
    assert bytes(labels.tolist()) == CODES


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        pytest.param(images_payload(magic=2049), "begins with the number 2051, found 2049", id="labels' magic"),
        pytest.param(images_payload(height=14, width=56), "28 by 28 pixels, found 14 by 56", id="reshaped"),
        pytest.param(images_payload()[:-1], "the 9,408 bytes of content its header promises, found 9,407", id="cut"),
        pytest.param(images_payload()[:15], "an idx header of 16 bytes, found 15 bytes", id="half a header"),
    ],
)
def test_images_of_another_form_are_refused(payload, message):
    with pytest.raises(DataDamaged, match=f"^here: expected .*{message}") as caught:
        images.parse_mnist_images(payload, source="here")
    assert "`.venv/bin/leakage data here`" in str(caught.value)


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        pytest.param(labels_payload(magic=2051), "begins with the number 2049, found 2051", id="images' magic"),
        pytest.param(labels_payload(body=CODES[:-1] + b"\x0a"), "labels from 0 to 9, found 10", id="a tenth digit"),
    ],
)
def test_labels_of_another_form_are_refused(payload, message):
    with pytest.raises(DataDamaged, match=message):
        images.parse_mnist_labels(payload)


def test_images_without_their_labels_are_refused(small):
    small(images_payload(), labels_payload(n=N - 1, body=CODES[:-1]))
    with pytest.raises(DataDamaged, match="as many images as labels, found 12 and 11"):
        images.load_mnist()


@pytest.mark.parametrize(
    ("parse", "payload"),
    [
        (images.parse_mnist_images, images_payload(n=2, body=PIXELS[:1568])),
        (images.parse_mnist_labels, labels_payload()),
    ],
)
@settings(max_examples=12)
@given(data=st.data())
def test_a_spoiled_idx_file_is_parsed_or_refused(parse, payload, data):
    with suppress(DataDamaged):
        parse(data.draw(spoiled(payload)))


@pytest.mark.skipif(not datasets.is_available("mnist"), reason="the MNIST test set is not in the data folder")
def test_the_real_mnist_has_ten_thousand_digits():
    pixels, labels = images.load_mnist()
    assert pixels.shape == (10_000, 28, 28)
    assert labels[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    # Published counts of each digit in the test set.
    assert labels.bincount().tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert (pixels.min(), pixels.max()) == (0, 255)
