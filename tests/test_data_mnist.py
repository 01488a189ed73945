"""MNIST's idx files parse to images and labels, or are refused."""

import struct
from contextlib import suppress

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from leakage.data import fetch, mnist
from leakage.data.registry import DataDamaged
from small_data import entry, pack, put, register, spoiled

N = 12
PIXELS = bytes(i * 37 % 256 for i in range(N * 28 * 28))
LABELS = bytes(i % 10 for i in range(N))


def images_payload(*, magic=2051, n=N, height=28, width=28, body=PIXELS):
    return struct.pack(">4I", magic, n, height, width) + body


def labels_payload(*, magic=2049, n=N, body=LABELS):
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
    images, labels = mnist.load()
    assert (len(images), images.dtype, labels.dtype) == (N, torch.uint8, torch.int64)
    assert bytes(images.flatten().tolist()) == PIXELS
    assert images[3, 5, 7] == PIXELS[3 * 784 + 5 * 28 + 7]
    assert bytes(labels.tolist()) == LABELS


def test_loaded_tensors_can_be_written_to():
    images = mnist.parse_images(images_payload())
    images[0, 0, 0] = 9  # a view of the payload would warn or refuse
    assert images[0, 0, 0] == 9


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        pytest.param(images_payload(magic=2049), "begins with the number 2051, found 2049", id="labels' magic"),
        pytest.param(struct.pack("<4I", 2051, N, 28, 28) + PIXELS, "found 50855936", id="little-endian"),
        pytest.param(images_payload(height=28, width=27), "28 by 28 pixels, found 28 by 27", id="narrow"),
        pytest.param(images_payload(height=14, width=56), "28 by 28 pixels, found 14 by 56", id="reshaped"),
        pytest.param(images_payload()[:-1], "the 9,408 bytes of content its header promises, found 9,407", id="cut"),
        pytest.param(images_payload() + b"\0", "promises, found 9,409", id="too long"),
        pytest.param(images_payload(n=2**32 - 1), "found 9,408", id="absurd count"),
        pytest.param(images_payload()[:15], "an idx header of 16 bytes, found 15 bytes", id="half a header"),
        pytest.param(b"", "found 0 bytes", id="nothing"),
    ],
)
def test_images_of_another_form_are_refused(payload, message):
    with pytest.raises(DataDamaged, match=f"^here: expected .*{message}") as caught:
        mnist.parse_images(payload, source="here")
    assert "`.venv/bin/leakage data`" in str(caught.value)


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        pytest.param(labels_payload(magic=2051), "begins with the number 2049, found 2051", id="images' magic"),
        pytest.param(labels_payload()[:-1], "promises, found 11", id="cut"),
        pytest.param(labels_payload(body=LABELS[:-1] + b"\x0a"), "labels from 0 to 9, found 10", id="a tenth digit"),
        pytest.param(b"\0\0\x08\x01", "an idx header of 8 bytes, found 4 bytes", id="half a header"),
    ],
)
def test_labels_of_another_form_are_refused(payload, message):
    with pytest.raises(DataDamaged, match=message):
        mnist.parse_labels(payload)


def test_images_without_their_labels_are_refused(small):
    small(images_payload(), labels_payload(n=N - 1, body=LABELS[:-1]))
    with pytest.raises(DataDamaged, match="as many images as labels, found 12 and 11"):
        mnist.load()


@pytest.mark.parametrize(
    ("parse", "payload"),
    [(mnist.parse_images, images_payload(n=2, body=PIXELS[:1568])), (mnist.parse_labels, labels_payload())],
)
@settings(max_examples=12)
@given(data=st.data())
def test_a_spoiled_file_is_parsed_or_refused_and_nothing_else(parse, payload, data):
    with suppress(DataDamaged):
        parse(data.draw(spoiled(payload)))


@pytest.mark.skipif(not fetch.available("mnist"), reason="the MNIST test set is not in the data folder")
def test_the_real_test_set_has_ten_thousand_digits():
    images, labels = mnist.load()
    assert images.shape == (10_000, 28, 28)
    assert labels[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    # Published counts of each digit in the test set.
    assert labels.bincount().tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert (images.min(), images.max()) == (0, 255)
