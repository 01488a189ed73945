"""Adult's three forms parse to one table, or are refused; the encoder is fixed by the table it was fitted on."""

import hashlib
from dataclasses import fields

import pytest
import torch

from leakage.data import adult, fetch, registry
from leakage.data.registry import DataDamaged

HEADER = (
    "age,workclass,fnlwgt,education,education-num,marital-status,occupation,relationship,race,sex,"
    "capital-gain,capital-loss,hours-per-week,native-country,income-per-year"
)
ROWS = (
    "39,State-gov,77516,Bachelors,13,Never-married,Adm-clerical,Not-in-family,White,Male,2174,0,40,Cuba,<=50K",
    "50,?,83311,Masters,14,Divorced,?,Husband,Black,Female,0,0,13,?,>50K",
    "28,Private,215646,HS-grad,9,Divorced,Sales,Wife,White,Male,0,0,40,Cuba,<=50K",
)
CSV = "\n".join((HEADER, *ROWS, "")).encode()
UCI = "\n".join((*(row.replace(",", ", ") for row in ROWS), "", "")).encode()
TEST = b"|1x3 Cross validator\n" + UCI.replace(b"50K\n", b"50K.\n")


def words(column):
    """The word of each row; None where it is missing."""
    return tuple(column.categories[code] if code >= 0 else None for code in column.codes.tolist())


def plain(table):
    """The table as lists, so that two can be compared."""
    columns = {field.name: getattr(table, field.name) for field in fields(table)}
    return {
        name: words(column) if isinstance(column, adult.Categorical) else column.tolist()
        for name, column in columns.items()
    }


def test_each_column_has_its_values():
    table = adult.parse(CSV)
    assert len(table) == 3
    assert table.age.tolist() == [39, 50, 28]
    assert table.capital_gain.tolist() == [2174, 0, 0]
    assert words(table.education) == ("Bachelors", "Masters", "HS-grad")
    assert table.sex.categories == ("Female", "Male")
    assert table.sex.codes.tolist() == [1, 0, 1]
    assert table.over_50k.tolist() == [False, True, False]


def test_missing_values_are_marked_and_are_no_category():
    table = adult.parse(CSV)
    assert words(table.workclass) == ("State-gov", None, "Private")
    assert table.workclass.codes.tolist() == [1, -1, 0]
    assert table.workclass.categories == ("Private", "State-gov")
    assert words(table.native_country) == ("Cuba", None, "Cuba")


@pytest.mark.parametrize("payload", [UCI, TEST, UCI[:-1]], ids=["adult.data", "adult.test", "without the empty line"])
def test_every_form_parses_to_the_same_table(payload):
    assert plain(adult.parse(payload)) == plain(adult.parse(CSV))


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        pytest.param(CSV.replace(b"age,", b"years,"), "15 fields .* in line 1, found 'years", id="another header"),
        pytest.param(CSV.replace(b",", b";"), "15 fields", id="another separator"),
        pytest.param(CSV.replace(b"Male,2174", b"Male, 2174"), "separated by ',' in line 2", id="blank in the CSV"),
        pytest.param(UCI.replace(b"Male, 2174", b"Male,2174"), "separated by ', ' in line 1", id="no blank in UCI's"),
        pytest.param(CSV.replace(b",Cuba,<", b",<", 1), "15 fields separated by ',' in line 2", id="a field missing"),
        pytest.param(CSV.replace(b",Cuba", b",,Cuba", 1), "15 fields", id="a field more"),
        pytest.param(CSV.replace(b"Sales", b""), "15 fields", id="an empty field"),
        pytest.param(CSV.replace(b"\n50,?", b"\n\n50,?"), "in line 3, found ''", id="an empty line"),
        pytest.param(CSV.replace(b">50K", b">50k"), "<=50K or >50K at the end of line 3", id="another income"),
        pytest.param(CSV.replace(b">50K", b">50K."), "<=50K or >50K at the end of line 3", id="full stop in the CSV"),
        pytest.param(TEST.replace(b">50K.", b">50K"), r"<=50K\. or >50K\. at the end of line 3", id="no full stop"),
        pytest.param(CSV.replace(b"\n", b"\r\n"), "15 fields|at the end of line", id="Windows"),
        pytest.param(CSV.replace(b"39,", b"39.5,"), "a whole number as age, found '39.5'", id="a fraction"),
        pytest.param(CSV.replace(b"39,", b"-39,"), "a whole number as age, found '-39'", id="negative"),
        pytest.param(CSV.replace(b"39,", b"?,"), "a whole number as age, found '[?]'", id="missing number"),
        pytest.param(CSV.replace(b"77516", b"9" * 30), "a whole number as fnlwgt, found '9999", id="too large"),
        pytest.param(CSV.replace(b"Sales", b"S\xe4les"), "ASCII, found byte 0xe4", id="not ASCII"),
        pytest.param(CSV[:-1], "a line break after the last row, found", id="cut at the end"),
        pytest.param(CSV[:-30], "a line break after the last row, found", id="cut within a row"),
        pytest.param(HEADER.encode() + b"\n", "rows, found none", id="no rows"),
        pytest.param(b"\n", "in line 1, found ''", id="one empty line"),
        pytest.param(b"", "a line break after the last row", id="nothing"),
    ],
)
def test_files_of_another_form_are_refused_and_the_line_named(payload, message):
    assert payload not in (CSV, UCI, TEST)
    with pytest.raises(DataDamaged, match=f"^here: expected .*{message}"):
        adult.parse(payload, source="here")


def test_encoded_rows_have_standardised_numbers_and_one_of_each_category():
    table = adult.parse(CSV)
    encoder = adult.fit_encoder(table)
    encoded = adult.encode(table, encoder)
    assert encoded.shape == (3, len(encoder.columns))
    assert encoded.dtype == torch.float64
    age, capital_loss = encoded[:, 0], encoded[:, encoder.columns.index("capital_loss")]
    assert age.mean().abs() < 1e-12  # rounding of three sums
    assert (age.std(correction=0) - 1).abs() < 1e-12
    assert capital_loss.tolist() == [0, 0, 0]  # constant, so only centred
    assert encoded[:, 6:].sum(dim=1).tolist() == [8, 8, 8]


def test_columns_name_what_they_hold():
    table = adult.parse(CSV)
    encoder = adult.fit_encoder(table)
    encoded = adult.encode(table, encoder)
    where = encoder.columns.index
    assert encoder.columns[6:9] == ("workclass=Private", "workclass=State-gov", "workclass=?")
    assert encoded[:, where("workclass=State-gov")].tolist() == [1, 0, 0]
    assert encoded[:, where("workclass=?")].tolist() == [0, 1, 0]
    assert encoded[:, where("sex=Male")].tolist() == [1, 0, 1]
    assert "sex=?" not in encoder.columns


def test_the_code_of_a_category_is_the_encoders_and_not_the_tables():
    encoder = adult.fit_encoder(adult.parse(CSV))
    last = adult.parse("\n".join((HEADER, ROWS[2], "")).encode())
    whole = adult.encode(adult.parse(CSV), encoder)
    assert torch.equal(adult.encode(last, encoder), whole[2:])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [("Sales", "Sailing", "occupation 'Sailing'"), ("Male", "?", r"sex '\?'")],
    ids=["category", "missing value"],
)
def test_what_the_encoder_has_not_seen_is_refused(old, new, message):
    encoder = adult.fit_encoder(adult.parse(CSV))
    other = adult.parse(CSV.replace(old.encode(), new.encode()))
    with pytest.raises(ValueError, match=f"`table` has {message}, which the encoder has not seen; fit it"):
        adult.encode(other, encoder)


def test_an_unknown_part_is_refused():
    with pytest.raises(ValueError, match="`part` must be one of train, test; got 'val'"):
        adult.load("val")


def test_the_test_part_is_read_from_the_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("LEAKAGE_DATA", str(tmp_path))
    (tmp_path / "adult").mkdir()
    (tmp_path / "adult/adult.test").write_bytes(TEST)
    assert plain(adult.load("test")) == plain(adult.parse(CSV))


@pytest.fixture
def real_csv():
    if not fetch.status("adult")[0].good:
        pytest.skip("Adult as CSV is not in the data folder")
    return fetch.read_payload("adult", "adult.csv")


def test_the_real_table_has_every_row(real_csv):
    table = adult.parse(real_csv)
    assert len(table) == 32_561
    assert int(table.over_50k.sum()) == 7_841  # as published with the set
    assert int((table.workclass.codes < 0).sum()) == 1_836
    assert len(table.native_country.categories) == 41
    encoder = adult.fit_encoder(table)
    assert adult.encode(table, encoder).shape == (32_561, 6 + 99 + 3)


def test_the_real_csv_rewritten_in_ucis_form_is_ucis_file(real_csv, tmp_path, monkeypatch):
    _, *rows = real_csv.split(b"\n")[:-1]
    uci = b"\n".join([*(row.replace(b",", b", ") for row in rows), b"", b""])
    file = registry.dataset("adult").file("adult.data")
    assert (len(uci), hashlib.sha256(uci).hexdigest()) == (file.size, file.sha256)
    monkeypatch.setenv("LEAKAGE_DATA", str(tmp_path))
    (tmp_path / "adult").mkdir()
    (tmp_path / file.path).write_bytes(uci)
    assert plain(adult.load()) == plain(adult.parse(real_csv))
