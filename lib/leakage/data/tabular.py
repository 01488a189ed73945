"""Rows of numbers with their classes, for attacks on classifiers: Location-30, Adult, scikit-learn's sets, your own.

`load` gives a set by name, float32 and encoded as the book uses it. Encodings depend on all rows of a set, so they
reveal nothing about a split. Nothing here shuffles or splits, and the tensors are on the CPU.
"""

import io
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import sklearn.datasets
import torch
from jaxtyping import Bool, Float, Float64, Int, Int64
from torch import Tensor

from leakage import arguments, store
from leakage.data.datasets import best_file, format_error, read_payload, split_lines


@dataclass(frozen=True, eq=False)
class LabelledData:
    """Points and their classes, from 0. Do not change the tensors: `content_key` is computed once."""

    features: Float[Tensor, "n d"]
    labels: Int[Tensor, " n"]

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def classes(self) -> int:
        """The number of classes, if the last one occurs."""
        return int(self.labels.max()) + 1

    @cached_property
    def content_key(self) -> str:
        """SHA-256 of the tensors, in hexadecimal; stored results that depend on these data have it in their key."""
        return store.digest((self.features, self.labels))


def load(name: str) -> LabelledData:
    """The data set called `name`, a key of `LOADERS`, float32 on the CPU."""
    return LOADERS[arguments.check_choice("name", name, LOADERS)]()


def load_npz(path: str | os.PathLike[str]) -> LabelledData:
    """The points `x` and classes `y` of an `.npz` file of your own, as float32 and int64.

    `np.savez(path, x=x, y=y)` writes such a file: `x` has one point a row, `y` the class of each, counted from 0.
    Nothing is scaled. Pickled objects are never read.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the file does not have this form; the message says what is wrong with it.
    """
    with open(path, "rb") as file:
        try:
            with np.load(file, allow_pickle=False) as arrays:
                x, y = arrays["x"], arrays["y"]
        except (EOFError, KeyError, OSError, TypeError, ValueError, zipfile.BadZipFile, zlib.error) as error:
            raise ValueError(f"{path} must be an .npz file with arrays `x` and `y` of numbers: {error}.") from error
    if x.ndim != 2 or not x.size:
        raise ValueError(f"{path}: `x` must have one point a row, so a shape (n, d); got {x.shape}.")
    if x.dtype.kind not in "fiub":
        raise ValueError(f"{path}: `x` must hold real numbers, got {x.dtype}.")
    if y.shape != x.shape[:1] or y.dtype.kind not in "iu":
        raise ValueError(f"{path}: `y` must hold {len(x)} whole numbers, one a point; got {y.shape} of {y.dtype}.")
    classes = np.unique(y)
    if len(classes) < 2 or classes.tolist() != list(range(len(classes))):
        shown = ", ".join(map(str, classes[:8])) + ", …" * (len(classes) > 8)
        raise ValueError(f"{path}: `y` must hold all classes from 0 to k - 1, two or more; got {shown}.")
    with np.errstate(over="ignore"):  # values too large for float32 are refused in the next lines
        features = torch.from_numpy(x.astype(np.float32))
    finite = features.isfinite().all(1)
    if not bool(finite.all()):
        raise ValueError(f"{path}: `x` must be finite in float32; row {int(finite.int().argmin())} is not.")
    return LabelledData(features, torch.from_numpy(y.astype(np.int64)))


def load_digits() -> LabelledData:
    """1,797 handwritten digits of 8 × 8 pixels, row by row, as grey values in [0, 1], float64; part of scikit-learn.

    Source: Alpaydin and Kaynak (1998), Optical Recognition of Handwritten Digits, test part, doi:10.24432/C50P49;
    CC BY 4.0.
    """
    return _embedded(sklearn.datasets.load_digits(), unit=16)  # a pixel counts the dark cells of a 4 × 4 block


def load_breast_cancer() -> LabelledData:
    """569 tumours, 30 measurements each in the file's units, float64; 0 is malignant, 1 benign; part of scikit-learn.

    Source: Wolberg, Mangasarian, Street and Street (1993), Breast Cancer Wisconsin (Diagnostic), doi:10.24432/C5DW2B;
    CC BY 4.0.
    """
    return _embedded(sklearn.datasets.load_breast_cancer(), unit=1)


def _embedded(bunch: Any, *, unit: float) -> LabelledData:
    return LabelledData(torch.from_numpy(bunch.data).double() / unit, torch.from_numpy(bunch.target).long())


def load_location() -> LabelledData:
    """Location-30: which of 446 places of Bangkok each of 5,010 users has visited (0 or 1), and one of 30 clusters."""
    payload = read_payload("location", "bangkok")
    return parse_location(payload, 5_010, places=446, classes=30, source="location/bangkok")


def parse_location(payload: bytes, rows: int, *, places: int, classes: int, source: str = "payload") -> LabelledData:
    """Visits and classes from rows such as `"3",0,1,1`; the file counts classes from 1, the result from 0.

    The file is CSV without a header; `classes` is the largest class number, `source` names the file in messages.
    """
    if payload and not payload.endswith(b"\n"):
        raise format_error(source, "a line break after the last row", repr(payload[-20:]))
    if (count := payload.count(b"\n")) != rows:
        raise format_error(source, f"{rows:,} rows", f"{count:,}")
    pattern = re.compile(f'"([1-9][0-9]*)",([01](?:,[01]){{{places - 1}}})'.encode())
    bits, labels = np.empty((rows, places), np.float32), np.empty(rows, np.int64)
    for row, line in enumerate(io.BytesIO(payload)):
        line = line[:-1]
        match = pattern.fullmatch(line)
        if not match or int(match[1]) > classes:
            expected = f'a class "1" to "{classes}" in quotes and {places} values 0 or 1 in row {row + 1:,}'
            found = f"{line[:20]!r}{'…' if len(line) > 20 else ''} with {line.count(b',')} commas"
            raise format_error(source, expected, found)
        labels[row] = int(match[1]) - 1
        bits[row] = np.frombuffer(match[2], np.uint8)[::2] - ord("0")  # digits and commas alternate
    return LabelledData(torch.from_numpy(bits), torch.from_numpy(labels))


MISSING = "?"
"""Adult's mark for a missing value; only text columns have it."""
NUMBERS = ("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week")
_HEADER = (
    "age,workclass,fnlwgt,education,education-num,marital-status,occupation,relationship,race,sex,"
    "capital-gain,capital-loss,hours-per-week,native-country,income-per-year"
)
_COLUMNS = tuple(_HEADER.split(","))
_WHOLE_NUMBER = re.compile("[0-9]{1,15}")  # fits a 64-bit integer
_INCOMES = {"<=50K": False, ">50K": True}


@dataclass(frozen=True, eq=False)
class AdultTable:
    """14 facts about each person of the 1994 census, and the income class, in the file's order.

    Attributes:
        numbers: the columns `NUMBERS`; `fnlwgt` is the number of people whom a row represents, `capital-…` are dollars
            a year.
        words: all other columns by the header's name.
        over_50k: whether the person earned more than 50,000 dollars.
    """

    numbers: Mapping[str, Int64[Tensor, " n"]]
    words: Mapping[str, tuple[str, ...]]
    over_50k: Bool[Tensor, " n"]


def load_adult() -> LabelledData:
    """Adult's training part, 32,561 rows as in `encode_adult`, float32; class 1 earned more than 50,000 dollars."""
    file = best_file("adult")
    table = parse_adult(read_payload("adult", file), source=f"adult/{file}")
    return LabelledData(encode_adult(table).float(), table.over_50k.long())


def parse_adult(payload: bytes, *, source: str = "payload") -> AdultTable:
    """The table in either of its two forms. Nothing is dropped, filled or shuffled.

    - CSV: a header, then fields separated by commas without blanks;
    - UCI's `adult.data`: no header, fields separated by a comma and a blank, an empty line at the end.
    """
    lines = split_lines(payload, "ASCII", source=source)
    if not lines[-1] and len(lines) > 1:
        lines.pop()
    first, separator = (1, ",") if lines[0] == _HEADER else (0, ", ")
    rows = [
        _adult_fields(line, number, separator=separator, source=source)
        for number, line in enumerate(lines[first:], start=first + 1)
    ]
    if not rows:
        raise format_error(source, "rows", "none")
    columns: dict[str, tuple[str, ...]] = dict(zip(_COLUMNS, zip(*rows, strict=True), strict=True))
    incomes = columns.pop(_COLUMNS[-1])
    for name in NUMBERS:
        if wrong := [value for value in columns[name] if not _WHOLE_NUMBER.fullmatch(value)]:
            raise format_error(source, f"a whole number as {name}", repr(wrong[0]))
    numbers = {name: torch.tensor([int(value) for value in columns.pop(name)]) for name in NUMBERS}
    return AdultTable(numbers, columns, torch.tensor([_INCOMES[income] for income in incomes]))


def _adult_fields(line: str, number: int, *, separator: str, source: str) -> list[str]:
    fields = line.split(separator)
    if len(fields) != len(_COLUMNS) or any(not field or field != field.strip(" ,") for field in fields):
        expected = f"{len(_COLUMNS)} fields separated by {separator!r} in line {number:,}"
        raise format_error(source, expected, repr(line))
    if fields[-1] not in _INCOMES:
        raise format_error(source, f"{' or '.join(_INCOMES)} at the end of line {number:,}", repr(line))
    return fields


def encode_adult(table: AdultTable) -> Float64[Tensor, "n columns"]:
    """Six standardised numbers (by the deviation with divisor n), then one-hot codes of each column of words.

    Words come in alphabetical order, "?" last. A constant number is only centred.
    """
    numbers = torch.stack([table.numbers[name] for name in NUMBERS], dim=1).double()
    scales = numbers.std(dim=0, correction=0)
    parts = [(numbers - numbers.mean(dim=0)) / torch.where(scales > 0, scales, 1.0)]
    for column in table.words.values():
        known = sorted(set(column), key=lambda word: (word == MISSING, word))
        codes = {word: code for code, word in enumerate(known)}
        parts.append(torch.nn.functional.one_hot(torch.tensor([codes[word] for word in column]), len(known)).double())
    return torch.cat(parts, dim=1)


def _load_binary_digits() -> LabelledData:
    """Black and white, so that they are bits as in Location-30."""
    digits = load_digits()
    return LabelledData((digits.features >= 0.5).float(), digits.labels)


def _load_standardised_tumours() -> LabelledData:
    tumours = load_breast_cancer()
    centred = tumours.features - tumours.features.mean(0)
    return LabelledData((centred / tumours.features.std(0)).float(), tumours.labels)


LOADERS: Mapping[str, Callable[[], LabelledData]] = {
    "location": load_location,
    "adult": load_adult,
    "digits": _load_binary_digits,
    "breast-cancer": _load_standardised_tumours,
}
"""The sets of `load`; the last two are part of scikit-learn and need no file."""
