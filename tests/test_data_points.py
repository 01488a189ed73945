"""Points and classes that fit are data, also those of a reader's own file; others are refused and named."""

import numpy as np
import pytest
import torch

from leakage.data.points import Labelled, load_npz

POINTS, CLASSES = np.arange(12.0).reshape(6, 2), np.array([0, 1, 2, 2, 1, 0])


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.uint8, bool])
def test_a_file_of_ones_own_is_read_as_it_was_written(tmp_path, dtype):
    path = tmp_path / "mine.npz"
    np.savez(path, x=POINTS.astype(dtype), y=CLASSES.astype(np.uint8), more=np.ones(3))
    found = load_npz(path)
    assert (found.features.dtype, found.labels.dtype, found.classes) == (torch.float32, torch.int64, 3)
    torch.testing.assert_close(found.features.numpy(), POINTS.astype(dtype).astype(np.float32))
    assert found.labels.tolist() == CLASSES.tolist()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": POINTS}, "must be an .npz file with arrays `x` and `y`"),
        ({"x": POINTS.astype(object), "y": CLASSES}, "of numbers: Object arrays cannot be loaded"),
        ({"x": POINTS[:, 0], "y": CLASSES}, r"`x` must have .* a shape \(n, d\); got \(6,\)"),
        ({"x": POINTS[:0], "y": CLASSES[:0]}, r"a shape \(n, d\); got \(0, 2\)"),
        ({"x": POINTS.astype(str), "y": CLASSES}, "`x` must hold real numbers"),
        ({"x": POINTS + 1j, "y": CLASSES}, "`x` must hold real numbers, got complex"),
        ({"x": POINTS, "y": CLASSES[:5]}, r"`y` must hold 6 whole numbers, one a point; got \(5,\)"),
        ({"x": POINTS, "y": CLASSES.reshape(6, 1)}, r"one a point; got \(6, 1\)"),
        ({"x": POINTS, "y": CLASSES + 0.0}, "whole numbers, .* of float64"),
        ({"x": POINTS, "y": CLASSES + 1}, "all classes from 0 to k - 1, two or more; got 1, 2, 3"),
        ({"x": POINTS, "y": 2 * CLASSES}, "got 0, 2, 4"),
        ({"x": POINTS, "y": 0 * CLASSES}, "two or more; got 0"),
        ({"x": np.where(POINTS == 5, np.nan, POINTS), "y": CLASSES}, "`x` must be finite in float32; row 2 is not"),
        ({"x": POINTS * 1e38, "y": CLASSES}, "`x` must be finite in float32"),
    ],
)
def test_a_file_of_ones_own_that_cannot_be_used_is_refused_and_named(tmp_path, arrays, message):
    path = tmp_path / "mine.npz"
    np.savez(path, **arrays)
    with pytest.raises(ValueError, match=f"^{path}.*{message}"):
        load_npz(path)


@pytest.mark.parametrize("spoil", ["no archive", "one array", "cut", "empty"])
def test_what_is_no_such_file_is_refused_and_named(tmp_path, spoil):
    path = tmp_path / "mine.npz"
    np.savez(path, x=POINTS, y=CLASSES)
    array = tmp_path / "array.npy"
    np.save(array, POINTS)
    whole = path.read_bytes()
    path.write_bytes({"no archive": b"words", "one array": array.read_bytes(), "cut": whole[:-9], "empty": b""}[spoil])
    with pytest.raises(ValueError, match=f"^{path} must be an .npz file"):
        load_npz(path)


@pytest.mark.usefixtures("unchecked_types")
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
