"""Adult's two forms parse to one table, or are refused; encoded rows are numbers."""

import hashlib
from contextlib import suppress

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from leakage.data import adult, fetch, registry
from leakage.data.registry import DataDamaged
from small_data import spoiled

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


def plain(table):
    """The table as lists, so that two can be compared."""
    numbers = {name: column.tolist() for name, column in table.numbers.items()}
    return numbers | dict(table.words), table.over_50k.tolist()


def test_each_column_has_its_values():
    table = adult.parse(CSV)
    assert len(table) == 3
    assert table.numbers["age"].tolist() == [39, 50, 28]
    assert table.numbers["capital-gain"].tolist() == [2174, 0, 0]
    assert table.words["education"] == ("Bachelors", "Masters", "HS-grad")
    assert table.words["workclass"] == ("State-gov", adult.MISSING, "Private")
    assert table.over_50k.tolist() == [False, True, False]
    assert len(table.numbers | dict(table.words)) == 14


@pytest.mark.parametrize("payload", [UCI, UCI[:-1]], ids=["adult.data", "without the empty line"])
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
    assert payload not in (CSV, UCI)
    with pytest.raises(DataDamaged, match=f"^here: expected .*{message}"):
        adult.parse(payload, source="here")


def test_encoded_rows_have_standardised_numbers_and_one_of_each_category():
    encoded = adult.encode(adult.parse(CSV))
    assert encoded.dtype == torch.float64
    age, capital_loss = encoded[:, 0], encoded[:, 4]
    assert age.mean().abs() < 1e-12  # rounding of three sums
    assert (age.std(correction=0) - 1).abs() < 1e-12
    assert capital_loss.tolist() == [0, 0, 0]  # constant, so only centred
    assert encoded[:, 6:].sum(dim=1).tolist() == [8, 8, 8]


def test_words_come_by_alphabet_and_what_is_missing_last():
    private, state_gov, missing = adult.encode(adult.parse(CSV))[:, 6:9].mT.tolist()
    assert (private, state_gov, missing) == ([0, 0, 1], [1, 0, 0], [0, 1, 0])


@pytest.mark.parametrize("payload", [CSV, UCI], ids=["CSV", "UCI"])
@settings(max_examples=12)
@given(data=st.data())
def test_a_spoiled_file_is_parsed_or_refused_and_nothing_else(payload, data):
    with suppress(DataDamaged):
        adult.parse(data.draw(spoiled(payload)))


@pytest.fixture
def real_csv():
    if fetch.status("adult")[0].state != "verified":
        pytest.skip("Adult as CSV is not in the data folder")
    return fetch.read_payload("adult", "adult.csv")


def test_the_real_table_has_every_row(real_csv):
    table = adult.parse(real_csv)
    assert len(table) == 32_561
    assert int(table.over_50k.sum()) == 7_841  # as published with the set
    assert table.words["workclass"].count(adult.MISSING) == 1_836
    assert len(set(table.words["native-country"]) - {adult.MISSING}) == 41
    assert adult.encode(table).shape == (32_561, 6 + 99 + 3)


def test_the_real_csv_rewritten_in_ucis_form_is_ucis_file(real_csv, tmp_path, monkeypatch):
    _, *rows = real_csv.split(b"\n")[:-1]
    uci = b"\n".join([*(row.replace(b",", b", ") for row in rows), b"", b""])
    file = registry.dataset("adult").file("adult.data")
    assert (len(uci), hashlib.sha256(uci).hexdigest()) == (file.size, file.sha256)
    monkeypatch.setenv("LEAKAGE_DATA", str(tmp_path))
    (tmp_path / "adult").mkdir()
    (tmp_path / file.path).write_bytes(uci)
    assert plain(adult.load()) == plain(adult.parse(real_csv))
