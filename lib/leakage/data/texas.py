"""Texas-100: what is known of a stay in hospital, and the main procedure.

One row per stay: bits of diagnoses, causes and patient, and a class. The two files were not at hand when this was
written; what is known of their form is that row i of one belongs to row i of the other, and that texts about them give
6,169 or 6,170 bits. Nothing here shuffles or splits.
"""

from leakage.data import fetch
from leakage.data.binary_rows import BinaryRows, parse_bits, parse_classes

ROWS, FEATURES, CLASSES = 67_330, (6_169, 6_170), 100


def load() -> BinaryRows:
    """All 67,330 stays of Texas-100, in the files' order; some 400 MB as tensors.

    Raises:
        DataAbsent: if the files are not here.
        DataDamaged: if one is not what it should be.
    """
    features, labels = (fetch.read_payload("texas100", file) for file in ("feats", "labels"))
    return parse(features, labels, source="texas100")


def parse(
    features: bytes,
    labels: bytes,
    *,
    rows: int = ROWS,
    widths: tuple[int, ...] = FEATURES,
    classes: int = CLASSES,
    source: str = "payload",
) -> BinaryRows:
    """Stays from two files without headers: digits 0 and 1 with commas between them, and one class a line.

    Raises:
        DataDamaged: if the number of rows or the form of any row differs; `source` and the row are named.
    """
    return BinaryRows(
        parse_bits(features, rows=rows, features=widths, source=f"{source}/feats"),
        parse_classes(labels, rows=rows, classes=classes, source=f"{source}/labels"),
    )
