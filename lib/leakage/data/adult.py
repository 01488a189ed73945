"""Adult: 14 facts about a person from the 1994 census, and whether he or she earned more than 50,000 dollars.

Two forms of the file parse to the same table: CSV with a header, and UCI's `adult.data`. Missing values are the word
"?" and occur in columns of words only. Nothing here drops, fills or shuffles.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from leakage.data import fetch
from leakage.data.registry import lines, malformed

MISSING = "?"
NUMBERS = ("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week")
_HEADER = (
    "age,workclass,fnlwgt,education,education-num,marital-status,occupation,relationship,race,sex,"
    "capital-gain,capital-loss,hours-per-week,native-country,income-per-year"
)
_NAMES = tuple(_HEADER.split(","))
_WHOLE = re.compile("[0-9]{1,15}")  # what fits a 64-bit integer
_INCOMES = {"<=50K": False, ">50K": True}


@dataclass(frozen=True, eq=False)
class AdultTable:
    """One row per person, in the file's order.

    Attributes:
        numbers: by the header's name, as in `NUMBERS`; `fnlwgt` is the number of people the census takes the row to
            stand for, `capital-…` are dollars a year.
        words: all other columns by the header's name.
        over_50k: whether the income is larger.
    """

    numbers: Mapping[str, Int64[Tensor, " n"]]
    words: Mapping[str, tuple[str, ...]]
    over_50k: Bool[Tensor, " n"]

    def __len__(self) -> int:
        return len(self.over_50k)


def load() -> AdultTable:
    """The training part, 32,561 rows, from either of its two forms.

    Raises:
        DataAbsent: if the file is not here.
        DataDamaged: if it is not what it should be.
    """
    file = fetch.good_file("adult")
    return parse(fetch.read_payload("adult", file), source=f"adult/{file}")


def parse(payload: bytes, *, source: str = "payload") -> AdultTable:
    """The table in either form, which the first line tells apart.

    - CSV: the header, then fields separated by commas without blanks;
    - `adult.data`: no header, fields separated by a comma and a blank.

    Raises:
        DataDamaged: if any row departs from the form; `source` and the line are named in the message.
    """
    found = lines(payload, "ASCII", source=source)
    if not found[-1] and len(found) > 1:  # UCI's files end with an empty line
        found.pop()
    if found[0] == _HEADER:
        return _table(_rows(found, first=1, separator=",", source=source), source=source)
    return _table(_rows(found, first=0, separator=", ", source=source), source=source)


def encode(table: AdultTable) -> Float64[Tensor, "n columns"]:
    """Six standardised numbers (by the deviation dividing by n), then zeros and ones for each word of each column.

    Words come by alphabet, "?" last. Means, deviations and words depend on every row of `table`. A constant number is
    only centred.
    """
    numbers = torch.stack([table.numbers[name] for name in NUMBERS], dim=1).double()
    scales = numbers.std(dim=0, correction=0)
    parts = [(numbers - numbers.mean(dim=0)) / torch.where(scales > 0, scales, 1.0)]
    for column in table.words.values():
        known = sorted(set(column), key=lambda word: (word == MISSING, word))
        place = {word: number for number, word in enumerate(known)}
        codes = torch.tensor([place[word] for word in column])
        parts.append(torch.nn.functional.one_hot(codes, len(known)).double())
    return torch.cat(parts, dim=1)


def _rows(found: list[str], *, first: int, separator: str, source: str) -> list[list[str]]:
    """The fields of each row; refuses any row of another form."""
    rows = []
    for number, line in enumerate(found[first:], start=first + 1):
        row = line.split(separator)
        if len(row) != len(_NAMES) or any(not field or field != field.strip(" ,") for field in row):
            fields_wanted = f"{len(_NAMES)} fields separated by {separator!r} in line {number:,}"
            raise malformed(source, fields_wanted, repr(line))
        if row[-1] not in _INCOMES:
            raise malformed(source, f"{' or '.join(_INCOMES)} at the end of line {number:,}", repr(line))
        rows.append(row)
    return rows


def _table(rows: list[list[str]], *, source: str) -> AdultTable:
    if not rows:
        raise malformed(source, "rows", "none")
    columns: dict[str, tuple[str, ...]] = dict(zip(_NAMES, zip(*rows, strict=True), strict=True))
    incomes = columns.pop(_NAMES[-1])
    for name in NUMBERS:
        if wrong := [value for value in columns[name] if not _WHOLE.fullmatch(value)]:
            raise malformed(source, f"a whole number as {name}", repr(wrong[0]))
    numbers = {name: torch.tensor([int(value) for value in columns.pop(name)]) for name in NUMBERS}
    return AdultTable(numbers, columns, torch.tensor([_INCOMES[income] for income in incomes]))
