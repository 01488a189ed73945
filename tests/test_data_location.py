"""Location-30 parses to bits and classes, or the first wrong row is named."""

from contextlib import suppress

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from leakage.data import fetch, location
from leakage.data.registry import DataDamaged
from small_data import spoiled

ROWS = b'"3",0,1,1,0\n"1",1,1,1,1\n"2",0,0,0,1\n'


def parse(payload):
    return location.parse(payload, 3, places=4, classes=3, source="here")


def test_classes_are_counted_from_zero_and_places_are_bits():
    found = parse(ROWS)
    assert (len(found), found.labels.tolist()) == (3, [2, 0, 1])
    assert found.features.tolist() == [[0, 1, 1, 0], [1, 1, 1, 1], [0, 0, 0, 1]]
    assert (found.features.dtype, found.labels.dtype) == (torch.uint8, torch.int64)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        pytest.param(ROWS, b"", "3 rows, found 0", id="nothing"),
        pytest.param(b'"2",0,0,0,1\n', b"", "3 rows, found 2", id="a row missing"),
        pytest.param(b'"2",0,0,0,1\n', 2 * b'"2",0,0,0,1\n', "3 rows, found 4", id="a row more"),
        pytest.param(b"0,0,0,1\n", b"0,0,0,1", "a line break after the last row", id="cut at the end"),
        pytest.param(b"0,0,0,1", b"0,0,1", "row 3, found .* with 3 commas", id="a place missing"),
        pytest.param(b"1,1,1,1", b"1,1,1,1,1", "row 2", id="a place more"),
        pytest.param(b"1,1,1,1", b"1,1,,1", "row 2", id="empty"),
        pytest.param(b"1,1,1,1", b"1,1,2,1", "row 2", id="not binary"),
        pytest.param(b"1,1,1,1", b"1,1,1,1\r", "row 2", id="another line break"),
        pytest.param(b'"1"', b"1", 'a class "1" to "3" in quotes and 4 values 0 or 1 in row 2', id="no quotes"),
        pytest.param(b'"2"', b'"0"', "row 3", id="class zero"),
        pytest.param(b'"2"', b'"4"', "row 3", id="a class too many"),
        pytest.param(b'"2"', b'"02"', "row 3", id="class with a leading zero"),
    ],
)
def test_rows_of_another_form_are_refused_and_named(old, new, message):
    assert ROWS.count(old) == 1
    with pytest.raises(DataDamaged, match=f"^here: expected .*{message}"):
        parse(ROWS.replace(old, new))


@settings(max_examples=12)
@given(data=st.data())
def test_a_spoiled_file_is_parsed_or_refused_and_nothing_else(data):
    with suppress(DataDamaged):
        parse(data.draw(spoiled(ROWS)))


@pytest.mark.skipif(not fetch.available("location"), reason="Location-30 is not in the data folder")
def test_the_real_set_has_every_user_and_class():
    loaded = location.load()
    assert loaded.features.shape == (5_010, 446)
    assert loaded.labels[0] == 12  # the file's first row is of class "13"
    assert loaded.labels.unique().tolist() == list(range(30))
    assert int(loaded.features.sum()) == 269_047  # counted with grep in the file, without the classes
    assert loaded.features.unique().tolist() == [0, 1]
