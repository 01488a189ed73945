"""A figure laid out for a phone is as wide as its screen, says all that it said before, and hides nothing."""

import io
from itertools import pairwise

import matplotlib
import numpy as np
import pytest
from PIL import Image

from reproduced.figures import SHARPNESS, figure, line, png
from reproduced.phone_layout import WIDTH, lay_out_for_phone


@pytest.fixture(autouse=True)
def _own_settings():
    with matplotlib.rc_context():
        yield


def test_panels_beside_each_other_stand_below_each_other_and_each_says_what_it_measures():
    picture, (left, right) = figure(panels=(1, 2), sharey=True)
    for ax in (left, right):
        ax.plot([0, 1], [0, 1], **line("member"), label="trained on the record")
        ax.plot([0, 1], [1, 0], **line("outsider"), label="not trained on the record")
        ax.set_title("a title that says in one line more than a phone has room for")
    left.set_ylabel("density")
    legend = picture.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    png(picture)
    assert lay_out_for_phone(picture)
    assert Image.open(io.BytesIO(png(picture))).width == WIDTH * 100 * SHARPNESS
    assert left.get_position().y0 > right.get_position().y1
    assert right.get_ylabel() == "density"
    assert any(name.get_visible() and name.get_text() for name in right.get_yticklabels())
    box = legend.get_window_extent()
    assert picture.bbox.x0 <= box.x0 < box.x1 <= picture.bbox.x1
    assert picture.bbox.y0 <= box.y0


def test_a_legend_that_would_hide_curves_stands_below_them():
    picture, ax = figure()
    for shift in range(4):
        ax.plot([0, 1], [shift, 0], label=f"a curve that begins at {shift}")
    ax.legend()
    png(picture)
    assert lay_out_for_phone(picture)
    (legend,) = picture.legends
    assert [text.get_text() for text in legend.get_texts()] == [f"a curve that begins at {i}" for i in range(4)]
    assert legend.get_window_extent().y1 < ax.get_window_extent().y0


def test_names_along_an_axis_do_not_overlap():
    picture, ax = figure()
    ax.bar(range(6), range(6))
    ax.set_xticks(range(6), [f"attack number {i}" for i in range(6)])
    ax.set_yticks([1, 4], ["a name that takes more than a line", "short"])
    png(picture)
    assert lay_out_for_phone(picture)
    png(picture)
    boxes = [name.get_window_extent() for name in ax.get_xticklabels()]
    assert all(one.x1 < other.x0 for one, other in pairwise(boxes))
    assert [name.get_text().count("\n") for name in ax.get_yticklabels()] == [2, 0]


def test_images_keep_their_places():
    picture, axes = figure(panels=(2, 4))
    for ax in axes.flat:
        ax.imshow(np.eye(4))
        ax.set_axis_off()
    png(picture)
    before = picture.get_size_inches()
    assert lay_out_for_phone(picture)
    assert axes[0, 0].get_position().y0 == pytest.approx(axes[0, 3].get_position().y0)
    assert picture.get_size_inches() == pytest.approx(before * WIDTH / before[0])


def test_a_figure_whose_texts_leave_no_room_is_left():
    picture, ax = figure()
    ax.plot([0, 1], [0, 1])
    ax.text(1.1, 0.5, "what stands beside the panel", transform=ax.transAxes)
    png(picture)
    assert not lay_out_for_phone(picture)
