"""Rows of numbers with their classes, by the name of the data set: what attacks on classifiers are tried on.

`load` gives float32, encoded as the book's studies want it; the strict parsers are in modules of their own. Encodings
are fixed by all rows of a set, so that they say nothing about a split. Nothing here shuffles or splits.
"""

from collections.abc import Callable, Mapping

from leakage import arguments
from leakage.data import adult, embedded, location
from leakage.data.points import Labelled


def load(name: str) -> Labelled:
    """The data set called `name`, on the CPU.

    Raises:
        ValueError: if it is not in `LOADERS`.
        DataAbsent: if its file is not here.
        DataDamaged: if that is not what it should be.
    """
    return LOADERS[arguments.choice("name", name, LOADERS)]()


def _location() -> Labelled:
    rows = location.load()
    return Labelled(rows.features.float(), rows.labels)


def _adult() -> Labelled:
    """Numbers standardised and words one-hot."""
    people = adult.load()
    return Labelled(adult.encode(people).float(), people.over_50k.long())


def _digits() -> Labelled:
    """Black and white, so that they are bits like the places of Location-30."""
    digits = embedded.digits()
    return Labelled((digits.features >= 0.5).float(), digits.labels)


def _tumours() -> Labelled:
    """Measurements standardised."""
    tumours = embedded.breast_cancer()
    centred = tumours.features - tumours.features.mean(0)
    return Labelled((centred / tumours.features.std(0)).float(), tumours.labels)


LOADERS: Mapping[str, Callable[[], Labelled]] = {
    "location": _location,
    "adult": _adult,
    "digits": _digits,
    "breast-cancer": _tumours,
}
"""Where the data come from, by name; the last two are always here."""
