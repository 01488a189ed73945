"""Location-30: which places of Bangkok a user has been to, and the cluster of users he or she belongs to.

One row per user: 446 bits and a class. The file counts classes from 1; tensors here count from 0, as every loss
expects. Nothing here shuffles or splits.
"""

from leakage.data import fetch
from leakage.data.binary_rows import BinaryRows, parse_labelled

ROWS, FEATURES, CLASSES = 5_010, 446, 30


def load() -> BinaryRows:
    """All 5,010 users of Location-30, in the file's order.

    Raises:
        DataAbsent: if the file is not here.
        DataDamaged: if it is not what it should be.
    """
    return parse(fetch.read_payload("location", "bangkok"), source="location/bangkok")


def parse(
    payload: bytes, *, rows: int = ROWS, features: int = FEATURES, classes: int = CLASSES, source: str = "payload"
) -> BinaryRows:
    """Users from CSV without a header: the class in quotes, then `features` digits 0 or 1.

    Raises:
        DataDamaged: if the number of rows or the form of any row differs; `source` and the row are named.
    """
    return parse_labelled(payload, rows=rows, features=features, classes=classes, source=source, quoted=True)
