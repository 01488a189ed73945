"""Rows of bits and classes parse and load, or the first wrong row is named."""

import pytest
import torch

from leakage.data import fetch
from leakage.data.binary_rows import load, parse, parse_apart
from leakage.data.registry import DataDamaged
from small_data import member, tar_gz

LABELLED = b"3,0,1,1,0\n1,1,1,1,1\n2,0,0,0,1\n"
QUOTED = b"".join(b'"%b"%b' % (line[:1], line[1:]) for line in LABELLED.splitlines(True))
BITS, CLASSES = b"0,1,1,0\n1,1,1,1\n0,0,0,1\n", b"3\n1\n2\n"


def labelled(payload, **given):
    return parse(payload, 3, features=4, classes=3, source="here", **given)


def bits(payload, classes=CLASSES):
    return parse_apart(payload, classes, 3, widths=(4, 5), classes=3, source="here")


@pytest.mark.parametrize("payload", [LABELLED, QUOTED])
def test_classes_may_have_quotes_if_all_have(payload):
    found = labelled(payload)
    assert (len(found), found.labels.tolist()) == (3, [2, 0, 1])
    assert found.features.tolist() == [[0, 1, 1, 0], [1, 1, 1, 1], [0, 0, 0, 1]]
    assert (found.features.dtype, found.labels.dtype) == (torch.uint8, torch.int64)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        pytest.param(b"2,0,0,0,1\n", b"", "3 rows, found 2", id="a row missing"),
        pytest.param(b"0,0,0,1\n", b"0,0,0,1", "a line break after the last row", id="cut at the end"),
        pytest.param(b"1,1,1,1,1", b"1,1,,1,1", "row 2", id="empty"),
        pytest.param(b"1,1,1,1,1", b"1,1, 1,1,1", "row 2", id="a blank"),
        pytest.param(b"1,1,1,1,1", b"\xb2,1,1,1,1", "row 2", id="not a digit"),
        pytest.param(b"2,0,0,0,1\n", 2 * b"2,0,0,0,1\n", "3 rows, found 4", id="a row more"),
        pytest.param(b"2,0,0,0,1", b"2,0,0,1", "row 3, found .* with 3 commas", id="a feature missing"),
        pytest.param(b"1,1,1,1,1", b"1,1,1,1,1,1", "row 2", id="a feature more"),
        pytest.param(b"1,1,1,1,1", b"1,1,1,2,1", "row 2", id="not binary"),
        pytest.param(b"1,1,1,1,1", b'"1",1,1,1,1', "quoted as in the first row, in row 2", id="quotes here only"),
        pytest.param(b"1,1,1,1,1", b"1,1,1,1,1\r", "row 2", id="another line break"),
        pytest.param(b"2,0,0,0,1", b"0,0,0,0,1", "a class 1 to 3", id="class zero"),
        pytest.param(b"2,0,0,0,1", b"4,0,0,0,1", "a class 1 to 3", id="a class too many"),
        pytest.param(b"2,0,0,0,1", b"02,0,0,0,1", "row 3", id="class with a leading zero"),
    ],
)
def test_labelled_rows_of_another_form_are_refused_and_named(old, new, message):
    assert LABELLED.count(old) == 1
    with pytest.raises(DataDamaged, match=f"^here: expected .*{message}"):
        labelled(LABELLED.replace(old, new))


@pytest.mark.parametrize(("old", "new"), [(b'"1"', b"1"), (b'"1"', b'"0"'), (b'"1"', b'"4"'), (b'"1"', b'"01"')])
def test_quotes_may_be_demanded(old, new):
    assert labelled(QUOTED, quoted=True).labels.tolist() == [2, 0, 1]
    with pytest.raises(DataDamaged, match='a class "1" to "3" in quotes and 4 values 0 or 1 in row 2'):
        labelled(QUOTED.replace(old, new), quoted=True)


def test_row_i_of_one_file_belongs_to_row_i_of_the_other_and_is_as_wide_as_one_of_the_widths():
    found = bits(BITS)
    assert (found.features.tolist(), found.labels.tolist()) == ([[0, 1, 1, 0], [1, 1, 1, 1], [0, 0, 0, 1]], [2, 0, 1])
    assert bits(BITS.replace(b"\n", b",1\n")).features.shape == (3, 5)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        pytest.param(b"0,0,0,1\n", b"", "3 rows, found 2", id="a row missing"),
        pytest.param(b"0,0,0,1\n", b"0,0,0,1", "a line break after the last row", id="cut at the end"),
        pytest.param(b"0,0,0,1", b"0,0,1", "row 3, found .* with 2 commas", id="a feature missing"),
        pytest.param(b"0,1,1,0", b"0,1,0", "4 or 5 values 0 or 1 in row 1", id="too narrow from the first row"),
        pytest.param(b"1,1,1,1", b"1,1,1,1,1", "row 2", id="a feature more"),
        pytest.param(b"1,1,1,1", b"1,1,2,1", "row 2", id="not binary"),
        pytest.param(b"1,1,1,1", b"1,1,/,1", "row 2", id="just below the digits"),
        pytest.param(b"1,1,1,1", b"1;1,1,1", "row 2", id="another separator"),
        pytest.param(b"1,1,1,1\n", b"1,1,1,1,", "3 rows, found 2", id="a line break missing"),
        pytest.param(b"0,1,1,0\n1,1,1,1\n", b"0,1,1,0\n1,1,1\n1,", "row 2, found b'1,1,1", id="shifted line breaks"),
    ],
)
def test_bits_of_another_form_are_refused_and_named(old, new, message):
    assert BITS.count(old) == 1
    with pytest.raises(DataDamaged, match=f"^here/feats: expected .*{message}"):
        bits(BITS.replace(old, new))


def test_empty_files_are_refused():
    for read in (labelled, bits, lambda payload: bits(BITS, payload)):
        with pytest.raises(DataDamaged, match="3 rows, found 0"):
            read(b"")


@pytest.mark.parametrize("wrong", [b"0", b"4", b"01", b"1.0", b"", b" 1"])
def test_a_class_of_another_form_is_refused(wrong):
    with pytest.raises(DataDamaged, match=r"^here/labels: expected a class 1 to 3 in row 2"):
        bits(BITS, b"3\n" + wrong + b"\n2\n")


TEXAS = member("texas", b"5"), ("texas/readme", b""), ("texas/100/feats", BITS), ("texas/100/labels", CLASSES)


@pytest.mark.parametrize(
    ("name", "path", "members", "message"),
    [
        ("purchase100", "dataset_purchase", [("dataset_purchase", LABELLED)], "dataset_purchase: expected 197,324"),
        ("texas100", "dataset_texas", TEXAS, "feats: expected 67,330"),
    ],
)
def test_the_archive_is_read_where_the_registry_says(tmp_path, monkeypatch, name, path, members, message):
    monkeypatch.setenv("LEAKAGE_DATA", str(tmp_path))
    (tmp_path / name).mkdir()
    (tmp_path / name / f"{path}.tgz").write_bytes(tar_gz(*members))
    with pytest.raises(DataDamaged, match=f"{name}/{message} rows, found 3"):
        load(name)


@pytest.mark.skipif(not fetch.available("location"), reason="Location-30 is not in the data folder")
def test_the_real_set_has_every_user_and_class():
    loaded = load("location")
    assert loaded.features.shape == (5_010, 446)
    assert loaded.labels[0] == 12  # the file's first row is of class "13"
    assert loaded.labels.unique().tolist() == list(range(30))
    assert int(loaded.features.sum()) == 269_047  # counted with grep in the file, without the classes
    assert loaded.features.unique().tolist() == [0, 1]
