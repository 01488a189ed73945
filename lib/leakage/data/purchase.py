"""Purchase-100: what a shopper bought, and the cluster of shoppers he or she belongs to.

One row per shopper: 600 bits and a class. The file was not at hand when this was written: its form is that of Location,
published at the same place, with or without quotes around the class. Nothing here shuffles or splits.
"""

from leakage.data import fetch
from leakage.data.binary_rows import BinaryRows, parse_labelled

ROWS, FEATURES, CLASSES = 197_324, 600, 100


def load() -> BinaryRows:
    """All 197,324 shoppers of Purchase-100, in the file's order.

    Raises:
        DataAbsent: if the file is not here.
        DataDamaged: if it is not what it should be.
    """
    return parse(fetch.read_payload("purchase100", "dataset_purchase"), source="purchase100/dataset_purchase")


def parse(
    payload: bytes, *, rows: int = ROWS, features: int = FEATURES, classes: int = CLASSES, source: str = "payload"
) -> BinaryRows:
    """Shoppers from CSV without a header: the class, then `features` digits 0 or 1.

    Raises:
        DataDamaged: if the number of rows or the form of any row differs; `source` and the row are named.
    """
    return parse_labelled(payload, rows=rows, features=features, classes=classes, source=source)
