"""CIFAR-10's binary records parse to colour images, or are refused."""

import numpy as np
import pytest
import torch

from leakage.data import cifar10, fetch
from leakage.data.registry import DataDamaged
from small_data import tar_gz


def record(label: int, red: int, green: int, blue: int) -> bytes:
    return bytes([label]) + bytes([red]) * 1024 + bytes([green]) * 1024 + bytes([blue]) * 1024


PAYLOAD = record(9, 1, 2, 3) + bytes([0]) + bytes(range(256)) * 12


def test_a_record_is_a_class_and_three_planes_row_by_row():
    parsed = cifar10.parse(PAYLOAD)
    assert parsed.labels.tolist() == [9, 0]
    assert parsed.images.shape == (2, 3, 32, 32)
    assert (parsed.images.dtype, parsed.labels.dtype) == (torch.uint8, torch.int64)
    assert [plane.unique().tolist() for plane in parsed.images[0]] == [[1], [2], [3]]
    assert parsed.images[1, 0, 1, :3].tolist() == [32, 33, 34]  # the second row begins at the 33rd byte
    parsed.images[0] = 0  # a view of the payload would warn or refuse


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        pytest.param(PAYLOAD[:-1], "whole records of 3,073 bytes, found 6,145 bytes", id="cut"),
        pytest.param(PAYLOAD + b"\0", "whole records", id="a byte more"),
        pytest.param(b"", "whole records of 3,073 bytes, found 0", id="empty"),
        pytest.param(PAYLOAD + record(10, 0, 0, 0), "a class from 0 to 9 in record 3, found 10", id="class"),
    ],
)
def test_records_of_another_form_are_refused(payload, message):
    with pytest.raises(DataDamaged, match=f"^here: expected {message}"):
        cifar10.parse(payload, source="here")


def test_colours_are_standardised_by_the_set_given():
    noise = np.random.default_rng(0).integers(0, 256, (5, 3, 32, 32), dtype=np.uint8)
    noise[:, 1] //= 2
    images = torch.from_numpy(noise)
    scaled = cifar10.standardised(images, like=images, dtype=torch.float64)
    # Exact but for rounding.
    torch.testing.assert_close(scaled.mean((0, 2, 3)), torch.zeros(3, dtype=torch.float64), atol=1e-12, rtol=0)
    torch.testing.assert_close(scaled.square().mean((0, 2, 3)), torch.ones(3, dtype=torch.float64))
    first = cifar10.standardised(images[:1], like=images, dtype=torch.float64)
    assert torch.equal(first, scaled[:1])


def test_images_that_cannot_be_standardised_are_refused():
    images = torch.zeros(2, 3, 32, 32, dtype=torch.uint8)
    with pytest.raises(ValueError, match="`like` must vary in each colour"):
        cifar10.standardised(images, like=images)
    with pytest.raises(ValueError, match="must hold bytes"):
        cifar10.standardised(images.float(), like=images)


def test_the_training_part_is_five_files_and_the_test_part_one(monkeypatch):
    read = []

    def payload(name: str, file: str) -> bytes:
        read.append((name, file))
        return record(len(read), 0, 0, 0)

    monkeypatch.setattr(fetch, "read_payload", payload)
    assert cifar10.load("train").labels.tolist() == [1, 2, 3, 4, 5]
    assert cifar10.load("test").labels.tolist() == [6]
    assert read == [("cifar10-binary", name) for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]]


def test_an_archive_with_fewer_images_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("LEAKAGE_DATA", str(tmp_path))
    (tmp_path / "cifar10").mkdir()
    names = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    packed = tar_gz(*((f"cifar-10-batches-bin/{name}.bin", PAYLOAD) for name in names))
    (tmp_path / "cifar10" / "cifar-10-binary.tar.gz").write_bytes(packed)
    with pytest.raises(DataDamaged, match="its payload must have 30,730,000 bytes and has 6,146"):
        cifar10.load("test")


def test_an_unknown_part_is_refused():
    with pytest.raises(ValueError, match="`part` must be one of train, test; got 'val'"):
        cifar10.load("val")
