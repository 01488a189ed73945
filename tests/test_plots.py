"""What is drawn has the values given, and refuses what does not fit."""

import matplotlib
import numpy as np
import pytest
import torch

from leakage.metrics.estimates import Estimate, mean_interval
from refusing import refusals, refused
from reproduced.figures import colour, dots, figure, png
from reproduced.plots import band, curve, heat_map, histogram, polygons, whiskers


@pytest.fixture(autouse=True)
def _own_settings():
    with matplotlib.rc_context():
        yield


@pytest.mark.parametrize("kind", [list, np.asarray, lambda x: torch.tensor(x, requires_grad=True)])
def test_a_band_takes_lists_arrays_and_tensors(kind):
    _, ax = figure()
    band(ax, kind([0.0, 1.0]), kind([1.0, 2.0]), kind([2.0, 4.0]), "theory")
    (shade,) = ax.collections
    assert shade.get_datalim(ax.transData).get_points().tolist() == [[0, 1], [1, 4]]
    assert matplotlib.colors.to_hex(shade.get_facecolor()[0]) == colour("theory")


test_a_band_turned_over_is_refused = refusals(
    (lambda: band(figure()[1], [0, 1], [1, 2], [0, 3], "theory"), "swapped"),
)


def test_whiskers_span_the_intervals():
    _, ax = figure()
    estimates = [Estimate(0.5, 0.25, 1, n=9), Estimate(2, 1, 2.5, n=9)]
    whiskers(ax, torch.tensor([3.0, 4.0]), estimates, "exact", label="exact")
    spans = [segment.tolist() for segment in ax.collections[0].get_segments()]
    assert spans == [[[3, 0.25], [3, 1]], [[4, 1], [4, 2.5]]]
    assert ax.lines[0].get_ydata().tolist() == [0.5, 2]
    assert ax.lines[0].get_marker() == dots("exact")["marker"]
    refused(lambda: whiskers(ax, [1, 2, 3], estimates, "exact"), r"`x` must have shape \(estimates\)")


def test_a_histogram_shows_shares_and_puts_what_is_beyond_into_the_last_bin():
    _, ax = figure()
    histogram(ax, torch.tensor([[0.1, 0.6], [0.7, 99.0]]), [0.0, 0.5, 1.0], "member")
    (outline,) = ax.collections[0].get_paths()
    assert sorted({float(height) for height in outline.vertices[:, 1]}) == [0, 0.25, 0.75]
    assert ax.get_legend_handles_labels()[1] == ["member"]
    histogram(ax, [0.1, 0.6, 0.7, 0.8], [0.0, 0.5, 1.0], "outsider", height="density")
    assert float(ax.collections[1].get_paths()[0].vertices[:, 1].max()) == pytest.approx(1.5)


def test_a_curve_has_the_means_and_the_intervals_of_the_book():
    _, ax = figure()
    samples = [torch.tensor([0.1, 0.4, 0.2]), torch.tensor([1.0, 3.0])]
    curve(ax, [10, 20], samples, "exact", label="ours")
    expected = [mean_interval(sample) for sample in samples]
    assert np.allclose(ax.lines[0].get_xydata(), [(10, expected[0].estimate), (20, expected[1].estimate)])
    segments = ax.collections[0].get_segments()
    assert np.allclose([segment[:, 1] for segment in segments], [(one.low, one.high) for one in expected])
    assert ax.get_legend_handles_labels()[1] == ["ours"]
    refused(lambda: curve(ax, [10], samples, "exact"), r"`x` must have shape \(samples\) with samples = 2")


def test_a_heat_map_writes_its_numbers_from_the_lowest_row_up():
    picture, ax = figure()
    values = torch.tensor([[0.0, 0.5], [1.0, 0.25], [0.1, 0.2]])
    heat_map(ax, values, rows=["a", "b", "c"], columns=["x", "y"], label="share")
    assert [text.get_text() for text in ax.texts] == ["0.00", "0.50", "1.00", "0.25", "0.10", "0.20"]
    assert ax.get_ylim() == (0, 3)
    assert picture.axes[1].get_ylabel() == "share"
    with pytest.raises(ValueError, match=r"`values` must have shape \(rows, columns\)"):
        heat_map(ax, values, rows=["a"], columns=["x", "y"], label="share")


@pytest.mark.parametrize("values", [[], [0.2, float("nan")]])
def test_a_histogram_of_nothing_or_of_a_failed_run_is_refused(values):
    _, ax = figure()
    refused(lambda: histogram(ax, values, [0.0, 1.0], "member"), "`values`")


@pytest.mark.parametrize("lost", [float("nan"), float("inf")])
def test_a_curve_leaves_no_failed_run_out(lost):
    _, ax = figure()
    refused(lambda: curve(ax, [1, 2], [[1.0, 2.0, lost], [1.0, 2.0]], "exact"), "finite")
    refused(lambda: curve(ax, [1, 1], [[1.0, 2.0], [1.0, 2.0]], "exact"), "`x` must be different")


def two_triangles():
    return torch.tensor([[[0, 0], [1, 0], [1, 1], [1, 1]], [[0, 0], [1, 1], [0, 1], [0, 1]]]).double()


def test_polygons_fill_their_corners_with_the_shade_of_their_value():
    picture, ax = figure(height=2.0)
    drawn = polygons(ax, two_triangles(), torch.tensor([3, 3]), torch.tensor([0.0, 1.0]), limits=(0.0, 2.0))
    assert [len(path.vertices) for path in drawn.get_paths()] == [4, 4]  # three corners, and the first again
    assert drawn.get_clim() == (0, 2)
    assert (*ax.get_xlim(), *ax.get_ylim(), ax.get_aspect()) == (0, 1, 0, 1, 1)
    assert len(png(picture)) > 0
    low, middle = drawn.get_facecolor()
    assert np.allclose(low, matplotlib.colormaps["viridis"](0.0))
    assert np.allclose(middle, matplotlib.colormaps["viridis"](0.5), atol=0.01)


def test_polygons_refuse_what_does_not_fit():
    _, ax = figure()
    corners, counts, values = two_triangles(), torch.tensor([3, 3]), torch.tensor([0.0, 1.0])
    refused(lambda: polygons(ax, corners, counts, values[:1]), "as many")
    refused(lambda: polygons(ax, corners[:0], counts[:0], values[:0]), "as many")
    refused(lambda: polygons(ax, corners, counts - 1, values), "between 3 and 4")
