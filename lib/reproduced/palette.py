"""How each quantity of the book is drawn: one colour, dash and marker in every chapter.

Colours carry meaning, so a curve that is no quantity of the book is grey, and a family of curves takes `shades`. Import
`figures` to make a picture; this module only knows what it looks like.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import matplotlib
from cycler import cycler

from leakage.figure_style import GREY, ORANGE, STYLE


@dataclass(frozen=True)
class Look:
    """How one quantity is drawn."""

    colour: str
    dash: str | tuple[float, tuple[float, ...]]
    marker: str


# Okabe and Ito's hues, made darker by hand: each has a contrast of 3 : 1 on white, and the nine differ so much in
# lightness that they can be told apart without red or without green receptors (tests check both). Dash and marker say
# the same once more.
QUANTITIES: Mapping[str, Look] = {
    "member": Look(ORANGE, (0, (8, 1.5)), "o"),
    "outsider": Look("#4160af", (0, (4, 1.5)), "s"),
    "theory": Look("#111111", "-", "x"),
    "exact": Look("#46966b", (0, (6, 1.5, 1.5, 1.5)), "D"),
    "simulated": Look("#1b96f9", (0, (1.5, 1.5)), "^"),
    "published": Look("#d172b0", (0, (3, 1.5, 1, 1.5, 1, 1.5)), "v"),
    "threshold": Look("#a15408", (0, (2, 3)), "P"),
    "defence": Look("#521186", (0, (11, 4)), "*"),
    "neutral": Look(GREY, (0, (1, 3)), "."),
}

_STYLE: dict[Any, Any] = STYLE | {
    "axes.facecolor": "white",
    "axes.prop_cycle": cycler(color=[GREY]),  # what is no quantity of the book has no colour
    "axes.titlelocation": "left",
    "axes.titlesize": 13,
    "figure.facecolor": "white",
    "grid.linewidth": 0.8,
    "image.cmap": "viridis",
    "lines.markersize": 6,
    "lines.markeredgewidth": 1.6,
    "savefig.facecolor": "white",
}


def use_style() -> None:
    """Set matplotlib's defaults to the book's look, whatever a reader's own settings say; `figure` does so too."""
    matplotlib.rcdefaults()
    matplotlib.rcParams.update(_STYLE)


def look(quantity: str) -> Look:
    """The look of a quantity of the book, one of `QUANTITIES`."""
    return QUANTITIES[quantity]


def colour(quantity: str) -> str:
    """The colour of a quantity, as `#rrggbb`."""
    return look(quantity).colour


def line(quantity: str) -> dict[str, Any]:
    """Arguments that draw a quantity as a line: `ax.plot(x, y, **line("theory"), label="theory")`."""
    return {"color": look(quantity).colour, "linestyle": look(quantity).dash}


def dots(quantity: str) -> dict[str, Any]:
    """Arguments that draw a quantity as markers: `ax.plot(x, y, **dots("published"))`."""
    return {"color": look(quantity).colour, "marker": look(quantity).marker, "linestyle": "none"}
