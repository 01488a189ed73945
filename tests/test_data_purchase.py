"""Purchase-100 loads from an archive in its real form, or is refused."""

import pytest

from leakage.data import purchase
from leakage.data.registry import DataDamaged
from small_data import tar_gz

ROW = b"100," + b",".join([b"0", b"1"] * 300) + b"\n"


def test_rows_become_shoppers():
    parsed = purchase.parse(ROW, rows=1)
    assert (len(parsed), parsed.features.shape, int(parsed.features.sum())) == (1, (1, 600), 300)
    assert parsed.labels.tolist() == [99]


def test_a_set_of_another_size_is_refused():
    with pytest.raises(DataDamaged, match=r"^payload: expected 197,324 rows, found 1"):
        purchase.parse(ROW)


def test_the_archive_is_read_where_the_registry_says(tmp_path, monkeypatch):
    monkeypatch.setenv("LEAKAGE_DATA", str(tmp_path))
    (tmp_path / "purchase100").mkdir()
    (tmp_path / "purchase100" / "dataset_purchase.tgz").write_bytes(tar_gz(("dataset_purchase", ROW)))
    with pytest.raises(DataDamaged, match="purchase100/dataset_purchase: expected 197,324 rows, found 1"):
        purchase.load()
