"""The files of a figure hold the numbers that were drawn, say what these are, and are the same bytes every time."""

import csv
import io
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
import torch

from leakage.metrics.estimates import Estimate
from reproduced import figure_files
from reproduced.figures import band, dots, figure, heat_map, histogram, line, png, whiskers


@pytest.fixture(autouse=True)
def _own_settings():
    with matplotlib.rc_context():
        yield


def rows_of(picture):
    """The table of a figure once it is drawn, a dictionary for each row, without what is empty."""
    png(picture)
    table = csv.DictReader(io.StringIO(figure_files.values_csv(picture)))
    return [{name: value for name, value in row.items() if value} for row in table]


def row(**values):
    return {name.replace("_", " "): value for name, value in values.items()}


def test_points_have_their_intervals_their_series_and_what_their_axes_measure():
    picture, ax = figure()
    ax.plot([1, 2], [0.25, 1 / 3], **line("member"), label="members")
    whiskers(ax, [1, 2], [Estimate(0.5, 0.25, 0.75, n=9), Estimate(2, 1, 2.5, n=9)], "exact")
    ax.errorbar([1.5], [3], yerr=[0.5], capsize=3, **dots("outsider"), label="outsiders")
    ax.axhline(0.1, color="black", label="chance")
    ax.set(xlabel="rows\n$n$", ylabel="error", title="A panel")
    about = {"panel": "A panel", "horizontal axis": "rows $n$", "vertical axis": "error"}
    assert rows_of(picture) == [
        about | row(series="members", drawn_as="line", x="1", y="0.25"),
        about | row(series="members", drawn_as="line", x="2", y="0.333333"),
        about | row(series="exact", drawn_as="points", x="1", y="0.5", y_low="0.25", y_high="0.75"),
        about | row(series="exact", drawn_as="points", x="2", y="2", y_low="1", y_high="2.5"),
        about | row(series="outsiders", drawn_as="points", x="1.5", y="3", y_low="2.5", y_high="3.5"),
        about | row(series="chance", drawn_as="horizontal line", y="0.1"),
    ]


def test_areas_bars_and_cells_are_listed_with_the_names_of_their_places():
    picture, (left, middle, right) = figure(panels=(1, 3))
    band(left, [0, 1], [0.1, 0.2], [0.3, 0.5], "member")
    histogram(left, torch.tensor([0.1, 0.6, 0.7, 0.8]), [0.0, 0.5, 1.0], "outsider")
    middle.bar([0, 1], [0.3, 0.4], color="black")
    middle.set_xticks([0, 1], ["digits", "wine"])
    heat_map(right, torch.tensor([[0.0, 0.5]]), rows=["a"], columns=["u", "v"], label="share")
    assert rows_of(picture) == [
        row(panel="1", series="member", drawn_as="area", x="0", y_low="0.1", y_high="0.3"),
        row(panel="1", series="member", drawn_as="area", x="1", y_low="0.2", y_high="0.5"),
        row(panel="1", series="outsider", drawn_as="area", x_low="0", x_high="0.5", y="0.25"),
        row(panel="1", series="outsider", drawn_as="area", x_low="0.5", x_high="1", y="0.75"),
        row(panel="2", drawn_as="bar", x="digits", y="0.3"),
        row(panel="2", drawn_as="bar", x="wine", y="0.4"),
        row(panel="3", drawn_as="cell", x="u", y="a", shade="share", value="0"),
        row(panel="3", drawn_as="cell", x="v", y="a", shade="share", value="0.5"),
    ]


def test_a_picture_of_pixels_has_no_rows_and_a_series_of_many_values_is_only_named():
    picture, (left, right) = figure(panels=(1, 2))
    left.imshow([[1.0, 2.0], [3.0, 4.0]])
    right.plot([0, 1], [0.5, np.nan])
    right.plot(np.zeros(6000), np.zeros(6000), label="many")
    one, many = rows_of(picture)
    assert (one["panel"], one["x"], one["y"]) == ("2", "0", "0.5")
    assert many["drawn as"] == "line, 6000 values that are not listed"


def test_an_unnamed_curve_is_called_what_the_legend_or_the_text_of_its_colour_says():
    picture, ax = figure()
    ax.plot([0, 1], [0, 1], color="#123456")
    ax.text(0.5, 0.5, "a wide\nnetwork", color="#123456")
    ax.plot([0, 1], [1, 0], **line("theory"))
    assert [one["series"] for one in rows_of(picture)] == ["a wide network"] * 2 + ["theory"] * 2


def test_a_series_without_a_name_has_that_of_its_panel_and_a_mark_across_it_has_none():
    picture, (left, right) = figure(panels=(1, 2))
    for ax in (left, right):
        ax.plot([0, 1], [0, 1])
        ax.axhline(0.5)
    left.set_title("pieces")
    right.set_ylabel("wall per area")
    named = [(one.get("series"), one["drawn as"]) for one in rows_of(picture)]
    assert named == [
        *[("pieces", "line")] * 2,
        (None, "horizontal line"),
        *[("wall per area", "line")] * 2,
        (None, "horizontal line"),
    ]


def test_rounding_on_a_linear_axis_is_zero_and_a_small_number_on_a_logarithmic_one_stays():
    picture, (left, right) = figure(panels=(1, 2))
    for ax in (left, right):
        ax.plot([1, 2], [1e-16, 1], label="a")
    right.set_yscale("log")
    assert [one["y"] for one in rows_of(picture)] == ["0", "1", "1e-16", "1"]


def test_the_files_are_the_same_bytes_and_stand_alone():
    made = []
    for _ in range(2):
        picture, ax = figure()
        ax.scatter(np.arange(2000.0), np.arange(2000.0), color="#123456")
        ax.plot([0, 1], [0, 1], label=r"$\hat y_0$")
        ax.legend(loc="upper left")
        png(picture)
        made.append(figure_files.compressed_files(picture))
    assert made[0] == made[1]
    files = figure_files.read_files(made[0])
    assert sorted(files) == ["csv", "svg"]
    assert len(files["svg"]) < 100_000
    links = [tag.get("{http://www.w3.org/1999/xlink}href") for tag in ElementTree.fromstring(files["svg"]).iter()]
    assert {link[0] for link in links if link} == {"#", "d"}  # a letter that is used again, and `data:` of the points


def test_what_shows_no_number_or_is_too_large_has_no_file():
    empty, _ = figure()
    png(empty)
    assert "csv" not in figure_files.compressed_files(empty)
    full, ax = figure()
    for shift in range(10):
        ax.plot(np.arange(4000.0), np.arange(4000.0) + shift / 7)
    png(full)
    assert "csv" not in figure_files.compressed_files(full)


def test_an_interval_without_end_is_left_out_and_a_second_one_has_its_own_row():
    picture, ax = figure()
    ax.errorbar([1, 2], [0.5, 0.6], yerr=[0.1, np.nan], linestyle="none", marker="o", color="C0", label="found")
    ax.vlines([3, 4], [0, -np.inf], [1, 1], color="C1")
    ax.plot([5], [2.0], "o", color="C2", label="twice")
    ax.vlines([5, 5], [1.5, 1.0], [2.5, 3.0], color="C2", label="twice")
    ax.set_title("A panel")
    assert rows_of(picture) == [
        row(panel="A panel", series="found", drawn_as="points", x="1", y="0.5", y_low="0.4", y_high="0.6"),
        row(panel="A panel", series="found", drawn_as="points", x="2", y="0.6"),
        row(panel="A panel", series="twice", drawn_as="points", x="5", y="2", y_low="1.5", y_high="2.5"),
        row(panel="A panel", series="A panel", drawn_as="interval", x="3", y_low="0", y_high="1"),
        row(panel="A panel", series="twice", drawn_as="interval", x="5", y_low="1", y_high="3"),
    ]
