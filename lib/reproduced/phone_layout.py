"""A drawn figure laid out again for a phone: as wide as its screen, with letters that can be read there.

Panels that stood beside each other stand below each other, and what their neighbour said for them, such as the ticks
of a shared axis, they say themselves. The layout that was found good is kept: another drawing would change it again.
"""

import textwrap
import warnings
from itertools import combinations
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

WIDTH = 4.2  # inches, shown on some 360 pixels: letters are nearly as large as those of the text
_NARROW = 2.4  # inches: of panels that are no wider, four and more stand in two columns
_LETTERS = 16  # in a line of a name along the vertical axis
_FITS = 22  # letters along a panel
_LINE = 0.25  # inches
_TALLER = 1.4  # times as high, where texts would hide each other else
_SMALLEST = 0.25  # inches: either side of a panel
_TOUCH = 3  # pixels by which two texts may overlap: their boxes have margins
_LEAST = 0.4  # of the width, for a panel that stands alone; less says that its texts leave no room for it


def lay_out_for_phone(picture: Figure) -> bool:
    """Change size and layout of a drawn figure to those for a phone; False if its texts leave too little room."""
    width, height = picture.get_size_inches()
    places: dict[Axes, Any] = {ax: spec for ax in picture.axes if (spec := ax.get_subplotspec()) is not None}
    panels = sorted(places, key=lambda ax: (places[ax].rowspan.start, places[ax].colspan.start))
    if not panels:  # axes that somebody placed by hand
        return False
    rows, columns = places[panels[0]].get_gridspec().get_geometry()
    if not any(map(_has_ticks, panels)):  # images keep their places
        return _lay_out(picture, panels, columns, height * WIDTH / width)
    if columns > 1:
        for ax in panels:
            _say_what_neighbours_said(ax, places)
    two = columns > 1 and len(panels) > 3 and width / columns <= _NARROW
    choices = [*([(2, 1.0)] if two else []), (1, 1.0), (1, _TALLER)]
    tall = [(fewer, height * more * -(-len(panels) // fewer) / rows) for fewer, more in choices]
    return any(_lay_out(picture, panels, *choice) for choice in tall)


def _lay_out(picture: Figure, panels: list[Any], fewer: int, height: float) -> bool:
    """Place the panels in so many columns; False if texts hide each other or leave a panel no room."""
    if fewer < panels[0].get_gridspec().ncols:
        grid = picture.add_gridspec(-(-len(panels) // fewer), fewer)
        for number, ax in enumerate(panels):
            ax.set_subplotspec(grid[divmod(number, fewer)])
    lines = max(map(_break_names, panels))
    height = max(height, len(panels) / fewer * (lines * _LINE + 0.8))
    legends: list[Any] = [legend for ax in panels if (legend := ax.get_legend())]
    if len(panels) == len(legends) == 1 and len(legends[0].get_texts()) > 2:  # it would hide what is drawn
        legend = legends.pop()
        names = [text.get_text() for text in legend.get_texts()]
        legend.remove()
        picture.legend(legend.legend_handles, names, loc="outside lower center", prop=legend.prop, ncols=len(names))
        height += _LINE
    for legend in (*picture.legends, *legends):
        height += _LINE * _narrow(legend, 0.85 * picture.dpi * WIDTH)
    around: list[Any] = [vars(picture)["_suptitle"], *(text for ax in picture.axes for text in _texts_around(ax))]
    for text in filter(None, around):
        text.set_wrap(len(text.get_text()) > _FITS)
    picture.set_size_inches(WIDTH, height)
    picture.set_layout_engine("constrained")
    try:
        with warnings.catch_warnings(action="error", category=UserWarning):  # that no room is left for a panel
            picture.draw_without_rendering()
            for ax in panels:
                _thin_out_ticks(ax)
            picture.draw_without_rendering()
    except UserWarning:
        return False
    picture.set_layout_engine("none")
    boxes = [ax.get_window_extent() for ax in panels]
    least = max(_SMALLEST * picture.dpi, _LEAST * picture.bbox.width if fewer == 1 else 0)
    texts = [text for ax in picture.axes for one in (ax, *ax.child_axes) for text in (*one.texts, one.title)]
    return all(box.width > least and box.height > _SMALLEST * picture.dpi for box in boxes) and not _collide(texts)


def _collide(texts: list[Any]) -> bool:
    """Whether two of the texts within panels overlap."""
    boxes = [text.get_window_extent() for text in texts if text.get_visible() and text.get_text()]
    return any(one.padded(-_TOUCH).overlaps(other) for one, other in combinations(boxes, 2))


def _has_ticks(ax: Axes) -> bool:
    return bool(ax.axison and (len(ax.get_xticks()) or len(ax.get_yticks())))


def _texts_around(ax: Any) -> list[Any]:
    return [ax._left_title, ax.title, ax._right_title, ax.xaxis.label, ax.yaxis.label]


def _say_what_neighbours_said(ax: Any, places: dict[Axes, Any]) -> None:
    """Show the ticks of an axis that is shared within a row or a column, and its label."""
    for side, edge, span in (("x", "bottom", "colspan"), ("y", "left", "rowspan")):
        shared = getattr(ax, f"get_shared_{side}_axes")().get_siblings(ax)
        beside = [one for one in shared if one in places and getattr(places[one], span) == getattr(places[ax], span)]
        if len(beside) > 1:
            labels = (getattr(one, f"get_{side}label")() for one in (ax, *beside))
            ax.tick_params(axis=side, **{f"label{edge}": True})
            getattr(ax, f"set_{side}label")(next(filter(None, labels), ""))


def _break_names(ax: Axes) -> int:
    """Break long names along the vertical axis; return how many lines they take, 0 if it has numbers."""
    names = [name.get_text() for name in ax.get_yticklabels()]
    if not any(len(name) > _LETTERS and any(map(str.isalpha, name)) and "$" not in name for name in names):
        return 0
    broken = [textwrap.fill(name, _LETTERS) for name in names]
    ax.set_yticks(ax.get_yticks(), broken)
    return sum(name.count("\n") + 1 for name in broken)


def _narrow(legend: Any, room: float) -> int:
    """Give a legend no more columns than there is room for, and one within a panel its best place; the lines added."""
    names, columns = [text.get_text() for text in legend.get_texts()], legend._ncols
    fewer = max(1, min(columns, int(room / (legend.get_window_extent().width / columns))))
    if fewer < columns:
        legend._ncols = fewer
        legend._init_legend_box(legend.legend_handles, names)
    if legend.axes is None:
        legend.set_loc("outside lower center")
    elif legend._bbox_to_anchor is None and not legend.axes.images and not legend.axes.collections:
        legend.set_loc("best")
    else:  # it has its place, or looking for one among thousands of polygons would take seconds
        legend.set_loc(legend._loc_real)
    return -(-len(names) // fewer) - -(-len(names) // columns)


def _thin_out_ticks(ax: Axes) -> None:
    """Turn names along the horizontal axis that would overlap, and hide such numbers."""
    kept: list[Any] = []
    for name in (*ax.get_xticklabels(), *ax.get_xticklabels(minor=True)):
        box = name.get_window_extent()
        if not (name.get_visible() and name.get_text()):
            continue
        if not any(box.x0 < other.x1 + 4 and other.x0 < box.x1 + 4 for other in kept):
            kept.append(box)
        elif "$" not in name.get_text() and any(map(str.isalpha, name.get_text())):
            ax.tick_params(axis="x", rotation=90)
            return
        else:
            name.set_visible(False)
