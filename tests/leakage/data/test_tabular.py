"""LabelledData rows load by name, the strict parsers name the first wrong row, and your own file is read or refused."""

import hashlib
from contextlib import suppress
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from leakage.data import datasets, images, tabular
from leakage.data.datasets import DATASETS, DataAbsent, DataDamaged
from leakage.data.tabular import load_breast_cancer, load_digits, load_npz
from reproduced.papers.blessing.translation import load_captions
from small_data import spoiled

HEADER = (
    "age,workclass,fnlwgt,education,education-num,marital-status,occupation,relationship,race,sex,"
    "capital-gain,capital-loss,hours-per-week,native-country,income-per-year"
)
PEOPLE = (
    "39,State-gov,77516,Bachelors,13,Never-married,Adm-clerical,Not-in-family,White,Male,2174,0,40,Cuba,<=50K",
    "50,?,83311,Masters,14,Divorced,?,Husband,Black,Female,0,0,13,?,>50K",
    "28,Private,215646,HS-grad,9,Divorced,Sales,Wife,White,Male,0,0,40,Cuba,<=50K",
)
CSV = "\n".join((HEADER, *PEOPLE, "")).encode()
UCI = "\n".join((*(row.replace(",", ", ") for row in PEOPLE), "", "")).encode()
VISITS = b'"3",0,1,1,0\n"1",1,1,1,1\n"2",0,0,0,1\n'
POINTS, CLASSES = np.arange(12.0).reshape(6, 2), np.array([0, 1, 2, 2, 1, 0])


# --- by name


@pytest.mark.parametrize(("name", "shape", "classes"), [("digits", (1797, 64), 10), ("breast-cancer", (569, 30), 2)])
def test_what_comes_with_scikit_learn_is_always_there(name, shape, classes):
    found = tabular.load(name)
    assert (found.features.dtype, found.features.shape, found.classes) == (torch.float32, shape, classes)
    assert len(found) == shape[0]


def test_digits_are_bits_and_measurements_are_standardised():
    assert tabular.load("digits").features.unique().tolist() == [0.0, 1.0]
    tumours = tabular.load("breast-cancer").features
    torch.testing.assert_close(tumours.std(0), torch.ones(30))


@pytest.mark.parametrize(
    ("name", "load"),
    [
        ("location", partial(tabular.load, "location")),
        ("adult", partial(tabular.load, "adult")),
        ("mnist", partial(images.load, "mnist")),
        ("multi30k", partial(load_captions, "train")),
    ],
)
def test_an_absent_set_is_named_with_the_command_that_gets_it_and_never_fetched(name, load, tmp_path, monkeypatch):
    monkeypatch.setenv("LEAKAGE_DATA", str(tmp_path))
    monkeypatch.setattr(datasets, "fetch", None)
    with pytest.raises(DataAbsent, match=f"leakage data {name}`"):
        load()


# --- part of scikit-learn


def test_digits_are_grey_values_from_zero_to_one():
    loaded = load_digits()
    assert (float(loaded.features.min()), float(loaded.features.max())) == (0.0, 1.0)
    torch.testing.assert_close((loaded.features * 16).round() / 16, loaded.features)
    assert loaded.labels[:10].tolist() == list(range(10))


def test_breast_cancer_has_its_published_classes():
    assert load_breast_cancer().labels.bincount().tolist() == [212, 357]


# --- Location-30


def parse_visits(payload):
    return tabular.parse_location(payload, 3, places=4, classes=3, source="here")


def test_classes_are_counted_from_zero_and_places_are_bits():
    found = parse_visits(VISITS)
    assert (len(found), found.labels.tolist()) == (3, [2, 0, 1])
    assert found.features.tolist() == [[0, 1, 1, 0], [1, 1, 1, 1], [0, 0, 0, 1]]
    assert (found.features.dtype, found.labels.dtype) == (torch.float32, torch.int64)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        pytest.param(b'"2",0,0,0,1\n', b"", "3 rows, found 2", id="a row missing"),
        pytest.param(b"0,0,0,1\n", b"0,0,0,1", "a line break after the last row", id="cut at the end"),
        pytest.param(b"1,1,1,1", b"1,1,2,1", "row 2", id="not binary"),
        pytest.param(b'"2"', b'"0"', 'a class "1" to "3" in quotes and 4 values 0 or 1 in row 3', id="class zero"),
        pytest.param(b'"2"', b'"4"', "row 3", id="a class too many"),
    ],
)
def test_visits_of_another_form_are_refused_and_the_row_named(old, new, message):
    assert VISITS.count(old) == 1
    with pytest.raises(DataDamaged, match=f"^here: expected .*{message}"):
        parse_visits(VISITS.replace(old, new))


@settings(max_examples=12)
@given(data=st.data())
def test_a_spoiled_file_of_visits_is_parsed_or_refused(data):
    with suppress(DataDamaged):
        parse_visits(data.draw(spoiled(VISITS)))


@pytest.mark.skipif(not datasets.is_available("location"), reason="Location-30 is not in the data folder")
def test_location_has_every_user_and_class():
    loaded = tabular.load_location()
    assert loaded.features.shape == (5_010, 446)
    assert loaded.labels[0] == 12  # the file's first row is of class "13"
    assert loaded.labels.unique().tolist() == list(range(30))
    assert int(loaded.features.sum()) == 269_047  # counted with grep in the file, without the classes
    assert loaded.features.unique().tolist() == [0, 1]


# --- Adult


def plain(table):
    """The table as lists, so that two can be compared."""
    numbers = {name: column.tolist() for name, column in table.numbers.items()}
    return numbers | dict(table.words), table.over_50k.tolist()


def test_each_column_has_its_values():
    table = tabular.parse_adult(CSV)
    assert table.numbers["age"].tolist() == [39, 50, 28]
    assert table.numbers["capital-gain"].tolist() == [2174, 0, 0]
    assert table.words["education"] == ("Bachelors", "Masters", "HS-grad")
    assert table.words["workclass"] == ("State-gov", tabular.MISSING, "Private")
    assert table.over_50k.tolist() == [False, True, False]
    assert len(table.numbers | dict(table.words)) == 14


@pytest.mark.parametrize("payload", [UCI, UCI[:-1]], ids=["adult.data", "without the empty line"])
def test_every_form_parses_to_the_same_table(payload):
    assert plain(tabular.parse_adult(payload)) == plain(tabular.parse_adult(CSV))


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        pytest.param(CSV.replace(b"age,", b"years,"), "15 fields .* in line 1, found 'years", id="another header"),
        pytest.param(CSV.replace(b"Male,2174", b"Male, 2174"), "separated by ',' in line 2", id="blank in the CSV"),
        pytest.param(CSV.replace(b"Sales", b""), "15 fields", id="an empty field"),
        pytest.param(CSV.replace(b">50K", b">50k"), "<=50K or >50K at the end of line 3", id="another income"),
        pytest.param(CSV.replace(b"39,", b"39.5,"), "a whole number as age, found '39.5'", id="a fraction"),
        pytest.param(CSV.replace(b"Sales", b"S\xe4les"), "ASCII, found byte 0xe4", id="not ASCII"),
        pytest.param(CSV[:-1], "a line break after the last row, found", id="cut at the end"),
        pytest.param(HEADER.encode() + b"\n", "rows, found none", id="no rows"),
    ],
)
def test_tables_of_another_form_are_refused_and_the_line_named(payload, message):
    assert payload not in (CSV, UCI)
    with pytest.raises(DataDamaged, match=f"^here: expected .*{message}"):
        tabular.parse_adult(payload, source="here")


def test_encoded_rows_have_standardised_numbers_and_one_of_each_category():
    encoded = tabular.encode_adult(tabular.parse_adult(CSV))
    assert encoded.dtype == torch.float64
    age, capital_loss = encoded[:, 0], encoded[:, 4]
    assert age.mean().abs() < 1e-12  # rounding of three sums
    assert (age.std(correction=0) - 1).abs() < 1e-12
    assert capital_loss.tolist() == [0, 0, 0]  # constant, so only centred
    assert encoded[:, 6:].sum(dim=1).tolist() == [8, 8, 8]


def test_words_come_by_alphabet_and_what_is_missing_last():
    private, state_gov, missing = tabular.encode_adult(tabular.parse_adult(CSV))[:, 6:9].mT.tolist()
    assert (private, state_gov, missing) == ([0, 0, 1], [1, 0, 0], [0, 1, 0])


@pytest.mark.parametrize("payload", [CSV, UCI], ids=["CSV", "UCI"])
@settings(max_examples=12)
@given(data=st.data())
def test_a_spoiled_table_is_parsed_or_refused(payload, data):
    with suppress(DataDamaged):
        tabular.parse_adult(data.draw(spoiled(payload)))


@pytest.fixture
def real_csv():
    if datasets.status("adult")[0].state != "verified":
        pytest.skip("Adult as CSV is not in the data folder")
    return datasets.read_payload("adult", "adult.csv")


def test_the_real_table_has_every_row(real_csv):
    table = tabular.parse_adult(real_csv)
    assert len(table.over_50k) == 32_561
    assert int(table.over_50k.sum()) == 7_841  # as published with the set
    assert table.words["workclass"].count(tabular.MISSING) == 1_836
    assert len(set(table.words["native-country"]) - {tabular.MISSING}) == 41
    assert tabular.encode_adult(table).shape == (32_561, 6 + 99 + 3)


def test_the_real_csv_rewritten_in_ucis_form_is_ucis_file(real_csv, tmp_path, monkeypatch):
    _, *rows = real_csv.split(b"\n")[:-1]
    uci = b"\n".join([*(row.replace(b",", b", ") for row in rows), b"", b""])
    file = DATASETS["adult"].file("adult.data")
    assert (len(uci), hashlib.sha256(uci).hexdigest()) == (file.size, file.sha256)
    monkeypatch.setenv("LEAKAGE_DATA", str(tmp_path))
    (tmp_path / "adult").mkdir()
    (tmp_path / file.path).write_bytes(uci)
    loaded = tabular.load_adult()
    torch.testing.assert_close(loaded.features, tabular.encode_adult(tabular.parse_adult(real_csv)).float())
    assert (loaded.features.shape, loaded.classes) == ((32_561, 108), 2)


# --- your own file


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
        ({"x": POINTS.astype(str), "y": CLASSES}, "`x` must hold real numbers"),
        ({"x": POINTS, "y": CLASSES[:5]}, r"`y` must hold 6 whole numbers, one a point; got \(5,\)"),
        ({"x": POINTS, "y": CLASSES + 0.0}, "whole numbers, .* of float64"),
        ({"x": POINTS, "y": CLASSES + 1}, "all classes from 0 to k - 1, two or more; got 1, 2, 3"),
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
