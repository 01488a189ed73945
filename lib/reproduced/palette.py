"""How each quantity of the book is drawn: one colour, dash and marker in every chapter.

Colours carry meaning, so a curve that is no quantity of the book is grey, and a family of curves takes `shades`. Import
`figures` to make a picture; this module only knows what it looks like.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import matplotlib
import matplotlib.colors
import numpy as np
from cycler import cycler

_LIGHTEST_SHADE = 0.59  # of viridis: its contrast on white falls to 3 : 1 there


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
    "member": Look("#eb6009", (0, (8, 1.5)), "o"),
    "outsider": Look("#4160af", (0, (4, 1.5)), "s"),
    "theory": Look("#111111", "-", "x"),
    "exact": Look("#46966b", (0, (6, 1.5, 1.5, 1.5)), "D"),
    "simulated": Look("#1b96f9", (0, (1.5, 1.5)), "^"),
    "published": Look("#d172b0", (0, (3, 1.5, 1, 1.5, 1, 1.5)), "v"),
    "threshold": Look("#a15408", (0, (2, 3)), "P"),
    "defence": Look("#521186", (0, (11, 4)), "*"),
    "neutral": Look("#696969", (0, (1, 3)), "."),
}

_STYLE: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.facecolor": "white",
    "axes.grid": True,
    "axes.labelsize": 12,
    "axes.prop_cycle": cycler(color=[QUANTITIES["neutral"].colour]),  # what is no quantity of the book has no colour
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 13,
    "figure.facecolor": "white",
    "font.size": 12,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.8,
    "image.cmap": "viridis",
    "legend.fontsize": 11.5,
    "legend.framealpha": 0.85,
    "legend.handlelength": 2.6,
    "legend.edgecolor": "white",
    "lines.linewidth": 2.0,
    "lines.markersize": 6,
    "lines.markeredgewidth": 1.6,
    "savefig.facecolor": "white",
    "xtick.labelsize": 11.5,
    "ytick.labelsize": 11.5,
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


def shades(count: int) -> list[str]:
    """Colours, from dark to light, for at most eight curves of a family, such as one for each penalty."""
    steps = np.linspace(0, _LIGHTEST_SHADE, count)
    return [matplotlib.colors.to_hex(shade) for shade in matplotlib.colormaps["viridis"](steps)]
