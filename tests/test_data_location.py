"""Location-30's rows parse to bits and classes, or are refused."""

import pytest
import torch

from leakage.data import fetch, location
from leakage.data.registry import DataDamaged

ROWS = ((3, "0110"), (1, "1111"), (2, "0001"))
PAYLOAD = b"".join(b'"%d",%s\n' % (label, ",".join(bits).encode()) for label, bits in ROWS)


def parse(payload):
    return location.parse(payload, rows=3, features=4, classes=3, source="here")


def test_rows_become_bits_and_classes_from_zero():
    parsed = parse(PAYLOAD)
    assert parsed.features.tolist() == [[0, 1, 1, 0], [1, 1, 1, 1], [0, 0, 0, 1]]
    assert parsed.labels.tolist() == [2, 0, 1]
    assert (len(parsed), parsed.features.dtype, parsed.labels.dtype) == (3, torch.uint8, torch.int64)
    parsed.features[0, 0] = 1  # a view of the payload would warn or refuse


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        pytest.param(b'"2",0,0,0,1\n', b"", "3 rows, found 2", id="a row missing"),
        pytest.param(b'"2"', b'"2",0,0,0,1\n"2"', "3 rows, found 4", id="a row more"),
        pytest.param(b"0,0,0,1\n", b"0,0,0,1", "a line break after the last row", id="cut at the end"),
        pytest.param(b"0,0,0,1\n", b"0,0,0\n", "row 3, found .* with 3 commas", id="a feature missing"),
        pytest.param(b"1,1,1,1", b"1,1,1,1,1", "row 2", id="a feature more"),
        pytest.param(b"1,1,1,1", b"1,1,2,1", "row 2", id="not binary"),
        pytest.param(b"1,1,1,1", b"1,1,,1", "row 2", id="empty"),
        pytest.param(b"1,1,1,1", b"1, 1,1,1", "row 2", id="a blank"),
        pytest.param(b"1,1,1,1", b"1,1,1,1\r", "row 2", id="another line break"),
        pytest.param(b'"1"', b"1", "row 2", id="no quotes"),
        pytest.param(b'"1"', b'"0"', 'a class "1" to "3"', id="class zero"),
        pytest.param(b'"1"', b'"4"', 'a class "1" to "3"', id="a class too many"),
        pytest.param(b'"1"', b'"01"', "row 2", id="class with a leading zero"),
        pytest.param(b'"1"', b'"\xb2"', "row 2", id="not a digit"),
    ],
)
def test_rows_of_another_form_are_refused_and_named(old, new, message):
    assert PAYLOAD.count(old) == 1
    with pytest.raises(DataDamaged, match=f"^here: expected .*{message}"):
        parse(PAYLOAD.replace(old, new))


def test_an_empty_file_is_refused():
    with pytest.raises(DataDamaged, match="3 rows, found 0"):
        parse(b"")


@pytest.mark.skipif(not fetch.available("location"), reason="Location-30 is not in the data folder")
def test_the_real_set_has_every_user_and_class():
    loaded = location.load()
    assert loaded.features.shape == (5_010, 446)
    assert loaded.labels[0] == 12  # the file's first row is of class "13"
    assert loaded.labels.unique().tolist() == list(range(30))
    assert int(loaded.features.sum()) == 269_047  # counted with grep in the file, without the classes
    assert loaded.features.unique().tolist() == [0, 1]
