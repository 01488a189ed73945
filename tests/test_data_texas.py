"""Texas-100's two files load from an archive in their real form, or are refused."""

import pytest

from leakage.data import texas
from leakage.data.registry import DataDamaged
from small_data import member, tar_gz

BITS = b"0,1,1\n1,0,0\n"
CLASSES = b"7\n100\n"


def test_row_i_of_one_file_belongs_to_row_i_of_the_other():
    parsed = texas.parse(BITS, CLASSES, rows=2, widths=(3,))
    assert parsed.features.tolist() == [[0, 1, 1], [1, 0, 0]]
    assert (len(parsed), parsed.labels.tolist()) == (2, [6, 99])


@pytest.mark.parametrize("width", [6_169, 6_170])
def test_either_width_that_is_reported_passes(width):
    row = b",".join([b"1"] * width) + b"\n"
    assert texas.parse(2 * row, CLASSES, rows=2).features.shape == (2, width)


def test_either_file_is_named_where_it_is_wrong():
    with pytest.raises(DataDamaged, match=r"^payload/feats: expected 6,169 or 6,170 values 0 or 1 in row 1"):
        texas.parse(BITS, CLASSES, rows=2)
    with pytest.raises(DataDamaged, match=r"^payload/labels: expected 2 rows, found 1"):
        texas.parse(BITS, b"7\n", rows=2, widths=(3,))


def test_the_archive_is_read_where_the_registry_says(tmp_path, monkeypatch):
    monkeypatch.setenv("LEAKAGE_DATA", str(tmp_path))
    (tmp_path / "texas100").mkdir()
    packed = tar_gz(
        member("texas", b"5"), ("texas/readme", b""), ("texas/100/feats", BITS), ("texas/100/labels", CLASSES)
    )
    (tmp_path / "texas100" / "dataset_texas.tgz").write_bytes(packed)
    with pytest.raises(DataDamaged, match="texas100/feats: expected 67,330 rows, found 2"):
        texas.load()
