"""Location-30: which of 446 places of Bangkok each of 5,010 users has been to, and one of 30 clusters of users.

The file is text: a class number in quotes, then digits 0 and 1, with commas between them. Files count classes from 1;
tensors here count from 0, as every loss expects. A row of another form is refused and named. Nothing here shuffles or
splits.
"""

import io
import re
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from leakage.data import fetch
from leakage.data.registry import malformed


@dataclass(frozen=True, eq=False)
class Visits:
    """The places that each user has been to, with the user's class.

    Attributes:
        features: 1 where the user has been to a place, else 0.
        labels: the class, from 0 (the file's 1) on.
    """

    features: UInt8[Tensor, "n places"]
    labels: Int64[Tensor, " n"]

    def __len__(self) -> int:
        return len(self.labels)


def load() -> Visits:
    """All users, in the file's order.

    Raises:
        DataAbsent: if the file is not here.
        DataDamaged: if it is not what it should be.
    """
    return parse(fetch.read_payload("location", "bangkok"), 5_010, places=446, classes=30, source="location/bangkok")


def parse(payload: bytes, rows: int, *, places: int, classes: int, source: str = "payload") -> Visits:
    """Visits and classes from rows such as `"3",0,1,1`.

    Args:
        payload: the file's content, CSV without a header.
        rows: how many there are.
        places: bits of a row.
        classes: the largest class number.
        source: what a refusal names.

    Raises:
        DataDamaged: if the number of rows or the form of any row differs; `source` and the row are named.
    """
    if payload and not payload.endswith(b"\n"):
        raise malformed(source, "a line break after the last row", repr(payload[-20:]))
    if (count := payload.count(b"\n")) != rows:
        raise malformed(source, f"{rows:,} rows", f"{count:,}")
    pattern = re.compile(f'"([1-9][0-9]*)",([01](?:,[01]){{{places - 1}}})'.encode())
    bits, labels = np.empty((rows, places), np.uint8), np.empty(rows, np.int64)
    for row, line in enumerate(io.BytesIO(payload)):
        line = line[:-1]
        match = pattern.fullmatch(line)
        if not match or int(match[1]) > classes:
            expected = f'a class "1" to "{classes}" in quotes and {places} values 0 or 1 in row {row + 1:,}'
            found = f"{line[:20]!r}{'…' if len(line) > 20 else ''} with {line.count(b',')} commas"
            raise malformed(source, expected, found)
        labels[row] = int(match[1]) - 1
        bits[row] = np.frombuffer(match[2], np.uint8)[::2] - ord("0")  # digits and commas alternate
    return Visits(torch.from_numpy(bits), torch.from_numpy(labels))
