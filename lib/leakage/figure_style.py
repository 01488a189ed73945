"""The look of a figure, in the report of an audit and in the book: its sizes, its grid and a family of colours.

What uses it sets matplotlib's own defaults first, whatever a user has set.
"""

from typing import Any

import matplotlib
import matplotlib.colors
import numpy as np

ORANGE, GREY = "#eb6009", "#696969"
"""What a figure is about, and what stands beside it; both have a contrast of 3 : 1 on white."""
STYLE: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.labelsize": 12,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 12,
    "grid.color": "#e4e4e4",
    "legend.edgecolor": "white",
    "legend.fontsize": 11.5,
    "legend.framealpha": 0.85,
    "legend.handlelength": 2.6,
    "lines.linewidth": 2.0,
    "xtick.labelsize": 11.5,
    "ytick.labelsize": 11.5,
}
"""Settings of matplotlib."""
_LIGHTEST_SHADE = 0.59  # of viridis: its contrast on white falls to 3 : 1 there


def shades(count: int) -> list[str]:
    """Colours, from dark to light, for at most eight curves of a family, such as one for each penalty."""
    steps = np.linspace(0, _LIGHTEST_SHADE, count)
    return [matplotlib.colors.to_hex(shade) for shade in matplotlib.colormaps["viridis"](steps)]
