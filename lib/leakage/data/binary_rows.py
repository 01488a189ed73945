"""Rows of bits with their classes: places a user has been to, goods a shopper bought, what is known of a stay.

They are read strictly from text: digits 0 and 1 with commas between them, and class numbers. Files count classes from
1; tensors here count from 0, as every loss expects. A row of another form is refused and named. Nothing here shuffles
or splits.
"""

import io
import re
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from leakage.arguments import choice
from leakage.data import fetch
from leakage.data.registry import malformed

NAMES = ("location", "purchase100", "texas100")


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


def load(name: str) -> BinaryRows:
    """All rows of a data set, in the file's order.

    - `location`, Location-30: which of 446 places of Bangkok each of 5,010 users has been to, and one of 30 clusters.
    - `purchase100`, Purchase-100: which of 600 goods each of 197,324 shoppers bought, and one of 100 clusters. The file
      was not at hand when this was written: its form is that of Location, published at the same place, with or without
      quotes around the class.
    - `texas100`, Texas-100: diagnoses, causes and patient of 67,330 stays in hospital, and the main procedure, one of
      100; some 400 MB as tensors. Its two files were not at hand either; known of their form is that row i of one
      belongs to row i of the other, and that texts about them give 6,169 or 6,170 bits.

    Raises:
        ValueError: if the name is another.
        DataAbsent: if a file is not here.
        DataDamaged: if it is not what it should be.
    """
    if choice("name", name, NAMES) == "location":
        source = "location/bangkok"
        return parse(
            fetch.read_payload(*source.split("/")), 5_010, features=446, classes=30, source=source, quoted=True
        )
    if name == "purchase100":
        source = "purchase100/dataset_purchase"
        return parse(fetch.read_payload(*source.split("/")), 197_324, features=600, classes=100, source=source)
    features, labels = (fetch.read_payload(name, file) for file in ("feats", "labels"))
    return parse_apart(features, labels, 67_330, widths=(6_169, 6_170), classes=100, source=name)


def parse(
    payload: bytes, rows: int, *, features: int, classes: int, source: str = "payload", quoted: bool = False
) -> BinaryRows:
    """Bits and classes from rows that begin with the class, in quotes or not, all alike.

    Args:
        payload: the file's content, CSV without a header.
        rows: how many there are.
        features: bits of a row.
        classes: the largest class number.
        source: what a refusal names.
        quoted: whether the class must have its quotes.

    Raises:
        DataDamaged: if the number of rows or the form of any row differs; `source` and the row are named.
    """
    quote = '"' if quoted or payload[:1] == b'"' else ""
    form = f"{quote}([1-9][0-9]*){quote},([01](?:,[01]){{{features - 1}}})"
    expected = f"a class 1 to {classes} and {features:,} values 0 or 1, quoted as in the first row,"
    if quoted:
        expected = f'a class "1" to "{classes}" in quotes and {features} values 0 or 1'
    return _parse(payload, form, rows=rows, features=features, classes=classes, expected=expected, source=source)


def parse_apart(
    features: bytes, labels: bytes, rows: int, *, widths: tuple[int, ...], classes: int, source: str = "payload"
) -> BinaryRows:
    """Bits and classes from two files; all rows of bits are equally wide, as wide as one of `widths`.

    Raises:
        DataDamaged: as `parse`.
    """
    width = (features.find(b"\n") + 1) // 2
    width = width if width in widths else widths[0]
    expected = f"{' or '.join(f'{count:,}' for count in widths)} values 0 or 1"
    form = f"()([01](?:,[01]){{{width - 1}}})"
    bits = _parse(features, form, rows=rows, features=width, classes=1, expected=expected, source=f"{source}/feats")
    form, expected = "([1-9][0-9]*)()", f"a class 1 to {classes}"
    found = _parse(labels, form, rows=rows, features=0, classes=classes, expected=expected, source=f"{source}/labels")
    return BinaryRows(bits.features, found.labels)


def _parse(
    payload: bytes, form: str, *, rows: int, features: int, classes: int, expected: str, source: str
) -> BinaryRows:
    """Rows of a form whose first group is the class, and whose second one the bits."""
    if payload and not payload.endswith(b"\n"):
        raise malformed(source, "a line break after the last row", repr(payload[-20:]))
    if (count := payload.count(b"\n")) != rows:
        raise malformed(source, f"{rows:,} rows", f"{count:,}")
    pattern, bits, labels = re.compile(form.encode()), np.empty((rows, features), np.uint8), np.zeros(rows, np.int64)
    for row, line in enumerate(io.BytesIO(payload)):
        line = line[:-1]
        match = pattern.fullmatch(line)
        if not match or int(match[1] or 1) > classes:
            found = f"{line[:20]!r}{'…' if len(line) > 20 else ''} with {line.count(b',')} commas"
            raise malformed(source, f"{expected} in row {row + 1:,}", found)
        labels[row] = int(match[1] or 1) - 1
        if features:
            bits[row] = np.frombuffer(match[2], np.uint8)[::2] - ord("0")  # digits and commas alternate
    return BinaryRows(torch.from_numpy(bits), torch.from_numpy(labels))
