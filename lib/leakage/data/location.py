"""Location-30: which places of Bangkok a user has been to, and the cluster of users he or she belongs to.

One row per user: 446 bits and a class. The file counts classes from 1; tensors here count from 0, as every loss
expects. Nothing here shuffles or splits.
"""

import re
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from leakage.data import fetch
from leakage.data.registry import malformed

ROWS, FEATURES, CLASSES = 5_010, 446, 30


@dataclass(frozen=True, eq=False)
class LocationSet:
    """Users with their classes.

    Attributes:
        features: 1 where the user has been to a place (or kind of place), else 0.
        labels: the class, 0 to 29 (the file's "1" to "30").
    """

    features: UInt8[Tensor, "n features"]
    labels: Int64[Tensor, " n"]

    def __len__(self) -> int:
        return len(self.labels)


def load(*, download: bool = False) -> LocationSet:
    """All 5,010 users of Location-30, in the file's order.

    Args:
        download: fetch the file if it is not here.

    Raises:
        DataAbsent: if the file is not here and `download` is false.
        DataDamaged: if it is not what it should be.
    """
    if download and not fetch.available("location"):
        fetch.fetch("location")
    return parse(fetch.read_payload("location", "bangkok"), source="location/bangkok")


def parse(
    payload: bytes, *, rows: int = ROWS, features: int = FEATURES, classes: int = CLASSES, source: str = "payload"
) -> LocationSet:
    """Users from CSV without a header: the class in quotes, then `features` digits 0 or 1.

    Raises:
        DataDamaged: if the number of rows or the form of any row differs; `source` and the row are named.
    """
    lines = payload.split(b"\n")
    if lines.pop() != b"":
        raise malformed(source, "a line break after the last row", repr(payload[-20:]))
    if len(lines) != rows:
        raise malformed(source, f"{rows:,} rows", f"{len(lines):,}")
    form = re.compile(rb'"([1-9][0-9]*)",([01](?:,[01]){%d})' % (features - 1))
    labels, bits = [], []
    for number, line in enumerate(lines, start=1):
        match = form.fullmatch(line)
        if not match or int(match[1]) > classes:
            row = f'a class "1" to "{classes}" in quotes and {features} values 0 or 1 in row {number:,}'
            raise malformed(source, row, f"{line[:20]!r}… with {line.count(b',')} commas")
        labels.append(int(match[1]) - 1)
        bits.append(match[2])
    # Digits and commas alternate, so every second byte is a digit; "0" is byte 48.
    digits = np.frombuffer(b",".join(bits), dtype=np.uint8)[::2] - ord("0")
    return LocationSet(torch.from_numpy(digits.reshape(rows, features)), torch.tensor(labels, dtype=torch.int64))
