"""Rows of bits and classes parse, or the first wrong row is named."""

import pytest
import torch

from leakage.data.binary_rows import parse_bits, parse_classes, parse_labelled
from leakage.data.registry import DataDamaged

LABELLED = b"3,0,1,1,0\n1,1,1,1,1\n2,0,0,0,1\n"
BITS = b"0,1,1,0\n1,1,1,1\n0,0,0,1\n"


def labelled(payload):
    return parse_labelled(payload, rows=3, features=4, classes=3, source="here")


def bits(payload):
    return parse_bits(payload, rows=3, features=(4, 5), source="here")


@pytest.mark.parametrize("quoted", [False, True])
def test_classes_may_have_quotes_if_all_have(quoted):
    payload = b"".join(b'"%b"%b' % (line[:1], line[1:]) for line in LABELLED.splitlines(True)) if quoted else LABELLED
    found = labelled(payload)
    features, labels = found.features, found.labels
    assert features.tolist() == [[0, 1, 1, 0], [1, 1, 1, 1], [0, 0, 0, 1]]
    assert labels.tolist() == [2, 0, 1]
    assert (features.dtype, labels.dtype) == (torch.uint8, torch.int64)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        pytest.param(b"2,0,0,0,1\n", b"", "3 rows, found 2", id="a row missing"),
        pytest.param(b"0,0,0,1\n", b"0,0,0,1", "a line break after the last row", id="cut at the end"),
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


def test_rows_of_bits_are_as_wide_as_one_of_the_widths():
    assert bits(BITS).tolist() == [[0, 1, 1, 0], [1, 1, 1, 1], [0, 0, 0, 1]]
    assert bits(BITS.replace(b"\n", b",1\n")).shape == (3, 5)


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
        pytest.param(b"1,1,1,1\n", b"1,1,1,1,", "row 2", id="a line break missing"),
        pytest.param(b"0,1,1,0\n1,1,1,1\n", b"0,1,1,0\n1,1,1\n1,", "row 2, found b'1,1,1", id="shifted line breaks"),
    ],
)
def test_bits_of_another_form_are_refused_and_named(old, new, message):
    assert BITS.count(old) == 1
    with pytest.raises(DataDamaged, match=f"^here: expected .*{message}"):
        bits(BITS.replace(old, new))


def test_empty_files_are_refused():
    for read in (labelled, bits):
        with pytest.raises(DataDamaged, match="3 rows, found 0"):
            read(b"")
    with pytest.raises(DataDamaged, match="2 rows, found 0"):
        parse_classes(b"", rows=2, classes=3, source="here")


def test_classes_count_from_zero():
    assert parse_classes(b"3\n1\n", rows=2, classes=3, source="here").tolist() == [2, 0]


@pytest.mark.parametrize("wrong", [b"0", b"4", b"01", b"1.0", b"", b" 1"])
def test_a_class_of_another_form_is_refused(wrong):
    with pytest.raises(DataDamaged, match=r"^here: expected a class 1 to 3 in row 2"):
        parse_classes(b"3\n" + wrong + b"\n", rows=2, classes=3, source="here")
