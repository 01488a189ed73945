"""Adult: 14 facts about a person from the 1994 census, and whether he or she earned more than 50,000 dollars.

Three forms of the file parse to the same table: CSV with a header, UCI's `adult.data`, and UCI's `adult.test`. Missing
values ("?" in the files) occur in categorical columns only and have code -1. Nothing here drops, fills or shuffles.
"""

import re
from dataclasses import dataclass, fields
from typing import Any

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from leakage.arguments import choice
from leakage.data import fetch
from leakage.data.registry import malformed

MISSING = "?"
_HEADER = (
    "age,workclass,fnlwgt,education,education-num,marital-status,occupation,relationship,race,sex,"
    "capital-gain,capital-loss,hours-per-week,native-country,income-per-year"
)
_WHOLE = re.compile("[0-9]{1,15}")  # what fits a 64-bit integer
_INCOMES = {"<=50K": False, ">50K": True}
_PARTS = {"train": "adult", "test": "adult-test"}


@dataclass(frozen=True, eq=False)
class Categorical:
    """A column of words.

    Attributes:
        codes: the index into `categories` of each row; -1 where the value is missing.
        categories: the words that occur in this table, sorted.
    """

    codes: Int64[Tensor, " n"]
    categories: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class AdultTable:
    """One row per person, in the file's order.

    `fnlwgt` is the number of people the census takes the row to stand for; `capital_*` are dollars a year.
    """

    age: Int64[Tensor, " n"]
    workclass: Categorical
    fnlwgt: Int64[Tensor, " n"]
    education: Categorical
    education_num: Int64[Tensor, " n"]
    marital_status: Categorical
    occupation: Categorical
    relationship: Categorical
    race: Categorical
    sex: Categorical
    capital_gain: Int64[Tensor, " n"]
    capital_loss: Int64[Tensor, " n"]
    hours_per_week: Int64[Tensor, " n"]
    native_country: Categorical
    over_50k: Bool[Tensor, " n"]

    def __len__(self) -> int:
        return len(self.over_50k)


_FEATURES = tuple(field.name for field in fields(AdultTable) if field.name != "over_50k")
_CATEGORICAL = tuple(field.name for field in fields(AdultTable) if field.type is Categorical)
_NUMERIC = tuple(name for name in _FEATURES if name not in _CATEGORICAL)


def load(part: str = "train") -> AdultTable:
    """The training part (32,561 rows, from either of its two forms) or the test part (16,281 rows).

    Args:
        part: `train` or `test`.

    Raises:
        DataAbsent: if the file is not here.
        DataDamaged: if it is not what it should be.
    """
    choice("part", part, _PARTS)
    name = _PARTS[part]
    file = fetch.chosen(name)
    return parse(fetch.read_payload(name, file), source=f"{name}/{file}")


def parse(payload: bytes, *, source: str = "payload") -> AdultTable:
    """The table in any of the three forms, which the first line tells apart.

    - CSV: the header, then fields separated by commas without blanks;
    - `adult.data`: no header, fields separated by a comma and a blank;
    - `adult.test`: a first line starting with "|", then as `adult.data` with a full stop after the income.

    Raises:
        DataDamaged: if any row departs from the form; `source` and the line are named in the message.
    """
    try:
        text = payload.decode("ascii")
    except UnicodeDecodeError as error:
        raise malformed(source, "ASCII", f"byte 0x{payload[error.start]:02x} at {error.start:,}") from error
    if not text.endswith("\n"):
        raise malformed(source, "a line break after the last row", repr(text[-20:]))
    lines = text.rstrip("\n").split("\n")  # UCI's files end with an empty line
    if lines[0] == _HEADER:
        return _table(_rows(lines, first=1, separator=",", stop="", source=source), source=source)
    if lines[0].startswith("|"):
        return _table(_rows(lines, first=1, separator=", ", stop=".", source=source), source=source)
    return _table(_rows(lines, first=0, separator=", ", stop="", source=source), source=source)


@dataclass(frozen=True)
class Encoder:
    """A fixed map from a row of the table to numbers, learned by `fit_encoder`.

    Attributes:
        columns: the name of each output column: "age", …, "workclass=Private", …, "workclass=?" for missing.
        means: what is subtracted from each numeric column.
        scales: what it is then divided by.
        categories: for each categorical column its words, with "?" last if any value was missing.
    """

    columns: tuple[str, ...]
    means: tuple[float, ...]
    scales: tuple[float, ...]
    categories: tuple[tuple[str, ...], ...]


def fit_encoder(table: AdultTable) -> Encoder:
    """Learn means, standard deviations (dividing by n) and categories from `table`.

    What is learned depends on every row of `table`, so an encoder fitted on members alone tells something about them;
    fit it on members and outsiders together where that matters. A constant column is only centred.
    """
    if not len(table):
        raise ValueError("`table` must have at least one row.")
    numeric = _numeric(table)
    scales = numeric.std(dim=0, correction=0)
    words = {name: _with_missing(getattr(table, name)) for name in _CATEGORICAL}
    return Encoder(
        columns=(*_NUMERIC, *(f"{name}={word}" for name in _CATEGORICAL for word in words[name])),
        means=tuple(numeric.mean(dim=0).tolist()),
        scales=tuple(torch.where(scales > 0, scales, 1.0).tolist()),
        categories=tuple(words.values()),
    )


def encode(table: AdultTable, encoder: Encoder) -> Float64[Tensor, "n columns"]:
    """Six standardised numeric columns, then one column of zeros and ones for each category, as `encoder.columns`.

    Raises:
        ValueError: if `table` has a category, or a missing value, in a column where the encoder saw none.
    """
    raw = _numeric(table)
    numeric = (raw - raw.new_tensor(encoder.means)) / raw.new_tensor(encoder.scales)
    pairs = zip(_CATEGORICAL, encoder.categories, strict=True)
    return torch.cat([numeric, *(_one_hot(getattr(table, name), known, name=name) for name, known in pairs)], dim=1)


def _numeric(table: AdultTable) -> Float64[Tensor, "n numeric"]:
    return torch.stack([getattr(table, name) for name in _NUMERIC], dim=1).double()


def _with_missing(column: Categorical) -> tuple[str, ...]:
    return (*column.categories, MISSING) if bool((column.codes < 0).any()) else column.categories


def _one_hot(column: Categorical, known: tuple[str, ...], *, name: str) -> Float64[Tensor, "n known"]:
    unknown = sorted(set(_with_missing(column)) - set(known))
    if unknown:
        raise ValueError(
            f"`table` has {name} {', '.join(map(repr, unknown))}, which the encoder has not seen; "
            "fit it on a table that has every category."
        )
    # Code -1, missing, takes the last entry, which exists whenever it is used.
    place = column.codes.new_tensor([known.index(word) for word in _with_missing(column)])
    return torch.nn.functional.one_hot(place[column.codes], len(known)).double()


def _rows(lines: list[str], *, first: int, separator: str, stop: str, source: str) -> list[list[str]]:
    """The fields of each row, the income without its full stop; refuses any row of another form."""
    rows = []
    for number, line in enumerate(lines[first:], start=first + 1):
        row = line.split(separator)
        if len(row) != len(_FEATURES) + 1 or any(not field or field != field.strip(" ,") for field in row):
            fields_wanted = f"{len(_FEATURES) + 1} fields separated by {separator!r} in line {number:,}"
            raise malformed(source, fields_wanted, repr(line))
        row[-1] = row[-1].removesuffix(stop)
        if row[-1] not in _INCOMES or not line.endswith(row[-1] + stop):
            allowed = " or ".join(f"{income}{stop}" for income in _INCOMES)
            raise malformed(source, f"{allowed} at the end of line {number:,}", repr(line))
        rows.append(row)
    return rows


def _table(rows: list[list[str]], *, source: str) -> AdultTable:
    if not rows:
        raise malformed(source, "rows", "none")
    *features, incomes = zip(*rows, strict=True)
    columns: dict[str, Any] = {
        name: _categorical(column) if name in _CATEGORICAL else _integers(column, name=name, source=source)
        for name, column in zip(_FEATURES, features, strict=True)
    }
    return AdultTable(**columns, over_50k=torch.tensor([_INCOMES[income] for income in incomes]))


def _categorical(column: tuple[str, ...]) -> Categorical:
    categories = tuple(sorted(set(column) - {MISSING}))
    code = {MISSING: -1} | {word: i for i, word in enumerate(categories)}
    return Categorical(torch.tensor([code[word] for word in column], dtype=torch.int64), categories)


def _integers(column: tuple[str, ...], *, name: str, source: str) -> Int64[Tensor, " n"]:
    wrong = next((value for value in column if not _WHOLE.fullmatch(value)), None)
    if wrong is not None:
        raise malformed(source, f"a whole number as {name}", repr(wrong))
    return torch.tensor([int(value) for value in column], dtype=torch.int64)
