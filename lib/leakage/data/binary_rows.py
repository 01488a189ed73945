"""Rows of bits with their classes, read strictly from text: digits 0 and 1 with commas between them, and class numbers.

Files count classes from 1; tensors here count from 0, as every loss expects. A row of another form is refused and
named. Nothing here touches a file.
"""

import re
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from leakage.data.registry import malformed

_ZERO, _COMMA, _BREAK = b"0,\n"
_CLASS = re.compile(rb"([1-9][0-9]*)")


@dataclass(frozen=True, eq=False)
class BinaryRows:
    """Rows of bits, one for each person or stay, with their classes.

    Attributes:
        features: 1 where something is true of a row, else 0.
        labels: the class, from 0 (the file's 1) on.
    """

    features: UInt8[Tensor, "n features"]
    labels: Int64[Tensor, " n"]

    def __len__(self) -> int:
        return len(self.labels)


def parse_labelled(
    payload: bytes, *, rows: int, features: int, classes: int, source: str, quoted: bool = False
) -> BinaryRows:
    """Bits and classes from rows that begin with the class, in quotes or not, all alike.

    Args:
        payload: the file's content.
        rows: how many there are.
        features: bits of a row.
        classes: the largest class number.
        source: what a refusal names.
        quoted: whether the class must have its quotes.

    Raises:
        DataDamaged: if the number of rows or the form of any row differs; `source` and the row are named.
    """
    lines = _lines(payload, rows=rows, source=source)
    quote = b'"' if quoted or payload[:1] == b'"' else b""
    form = re.compile(rb"%s([1-9][0-9]*)%s,([01](?:,[01]){%d})" % (quote, quote, features - 1))
    expected = f"a class 1 to {classes} and {features:,} values 0 or 1, quoted as in the first row,"
    if quoted:
        expected = f'a class "1" to "{classes}" in quotes and {features} values 0 or 1'
    labels, bits = [], []
    for number, line in enumerate(lines, start=1):
        match = form.fullmatch(line)
        if not match or int(match[1]) > classes:
            raise malformed(source, f"{expected} in row {number:,}", _shown(line))
        labels.append(int(match[1]) - 1)
        bits.append(match[2])
    # Digits and commas alternate, so every second byte is a digit.
    digits = np.frombuffer(b",".join(bits), dtype=np.uint8)[::2] - _ZERO
    return BinaryRows(torch.from_numpy(digits.reshape(rows, features)), torch.tensor(labels, dtype=torch.int64))


def parse_bits(payload: bytes, *, rows: int, features: tuple[int, ...], source: str) -> UInt8[Tensor, "rows features"]:
    """Bits from rows without a class; all rows are equally wide, as wide as one of `features`.

    Every row has two bytes a value, so a good file is one rectangle of bytes, checked without a loop: such files have
    hundreds of megabytes.

    Raises:
        DataDamaged: as `parse_labelled`.
    """
    width = (payload.find(b"\n") + 1) // 2
    expected = f"{' or '.join(f'{count:,}' for count in features)} values 0 or 1"
    if width not in features or len(payload) != rows * 2 * width:
        lines = _lines(payload, rows=rows, source=source)
        wrong = next((n for n, line in enumerate(lines) if len(line) + 1 != 2 * width), 0) if width in features else 0
        raise malformed(source, f"{expected} in row {wrong + 1:,}", _shown(lines[wrong]))
    table = np.frombuffer(payload, dtype=np.uint8).reshape(rows, 2 * width)
    bits = table[:, ::2] - _ZERO  # anything but the two digits is larger than 1, for bytes wrap around
    good = (bits <= 1).all(1) & (table[:, 1:-1:2] == _COMMA).all(1) & (table[:, -1] == _BREAK)
    if not good.all():
        wrong = int(good.argmin())
        raise malformed(source, f"{expected} in row {wrong + 1:,}", _shown(table[wrong].tobytes().rstrip(b"\n")))
    return torch.from_numpy(bits)


def parse_classes(payload: bytes, *, rows: int, classes: int, source: str) -> Int64[Tensor, " rows"]:
    """Classes from rows that hold nothing else.

    Raises:
        DataDamaged: as `parse_labelled`.
    """
    found = []
    for number, line in enumerate(_lines(payload, rows=rows, source=source), start=1):
        match = _CLASS.fullmatch(line)
        if not match or int(match[1]) > classes:
            raise malformed(source, f"a class 1 to {classes} in row {number:,}", _shown(line))
        found.append(int(match[1]) - 1)
    return torch.tensor(found, dtype=torch.int64)


def _lines(payload: bytes, *, rows: int, source: str) -> list[bytes]:
    lines = payload.split(b"\n")
    if lines.pop() != b"":
        raise malformed(source, "a line break after the last row", repr(payload[-20:]))
    if len(lines) != rows:
        raise malformed(source, f"{rows:,} rows", f"{len(lines):,}")
    return lines


def _shown(line: bytes) -> str:
    return f"{line[:20]!r}{'…' if len(line) > 20 else ''} with {line.count(b',')} commas"
