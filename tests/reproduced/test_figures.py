"""Pictures carry their text, are the same bytes every time, need nothing from anywhere, and show the values given."""

import base64
import io
import re

import matplotlib
import numpy as np
import pytest
import torch
from bs4 import BeautifulSoup
from PIL import Image

from checking import refused
from leakage.metrics.estimates import Estimate, mean_interval
from reproduced import figure_files, figures, repository
from reproduced.figures import dots, figure, frames, line, png, show
from reproduced.plots import curve, heat_map, histogram, polygons, whiskers

ALT = "The members' curve lies above the outsiders' at every width."


@pytest.fixture(autouse=True)
def _own_settings():
    with matplotlib.rc_context():
        yield


@pytest.fixture
def shown(monkeypatch):
    """What was displayed: data and metadata of each output."""
    outputs = []

    def display(data, *, raw, metadata=None):
        assert raw
        outputs.append((data, metadata or {}))

    monkeypatch.setattr(figures, "display", display)
    return outputs


def small_figure(height=1.5, shift=0.0):
    picture, ax = figure(height=height)
    x = np.linspace(-3, 3, 50)
    ax.plot(x, np.exp(-((x - shift) ** 2)), **line("member"), label="member, σ² = 0,1 – λ ≥ γ")
    ax.set_xlabel(r"prediction $\hat y_0$")
    ax.legend()
    return picture


def page_of(pictures, **texts):
    """What `frames` displays."""
    shown = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "display", lambda data, **_: shown.append(data["text/html"]))
        frames(pictures, **texts)
    return shown[0]


def pixels(file):
    return np.asarray(Image.open(io.BytesIO(file)).convert("RGB")).astype(int)


def attributes(soup, tag):
    return [element.attrs for element in soup.find_all(tag)]


def test_a_shown_figure_is_sharp_sized_for_the_page_and_described(shown):
    show(small_figure(), alt=f"  {ALT[:30]}\n   {ALT[30:]} ")
    ((data, metadata),) = shown
    file = base64.b64decode(data["image/png"])
    assert Image.open(io.BytesIO(file)).size == (1400, 300)
    assert metadata["image/png"]["width"] == 700
    assert "height" not in metadata["image/png"]  # it would distort the picture where the page is narrower
    assert metadata["image/png"]["alt"] == data["text/plain"] == f"{ALT[:30].rstrip()} {ALT[30:].lstrip()}"
    assert (pixels(file)[0] == 255).all()


def test_a_figure_keeps_its_files_only_while_a_page_is_made(shown, monkeypatch):
    monkeypatch.delenv(repository.QUIET_VARIABLE, raising=False)
    show(small_figure(), alt=ALT)
    monkeypatch.setenv(repository.QUIET_VARIABLE, "1")
    show(small_figure(), alt=ALT)
    (before, kept), (now, more) = shown
    assert before == now
    assert kept.keys() == {"image/png"}
    files = figure_files.read_files(more[figure_files.METADATA])
    assert sorted(files) == ["csv", "png", "svg"]
    assert Image.open(io.BytesIO(files["png"])).width == 840  # for a phone


@pytest.mark.parametrize(
    "alt",
    [
        "Too short.",
        " " * 30,
        None,
        "Figure 3 shows two curves that cross.",
        "An image of two curves that cross each other.",
    ],
)
def test_a_picture_without_a_text_is_refused(shown, alt):
    with pytest.raises(ValueError, match="alt"):
        show(small_figure(), alt=alt)
    assert not shown


def test_the_same_picture_has_the_same_bytes_and_no_date():
    first, rebuilt = png(small_figure()), png(small_figure())
    assert first == rebuilt
    assert not re.findall(rb"tEXt|iTXt|zTXt|tIME", first)


@pytest.fixture(scope="module")
def page():
    """A slider of three frames, with texts that are markup if not escaped."""
    with matplotlib.rc_context():
        return page_of(
            [small_figure(shift=shift) for shift in (0, 1, 2)],
            labels=["λ = 0", "λ < 1", 'λ = "2"'],
            alts=[f'Curve {i} & its "peak" lies at <{i}> on the axis.' for i in range(3)],
            name="min_norm: densities",
            slider_label="penalty λ <ridge>",
            caption="Move the slider & watch <both> peaks.",
        )


def test_every_frame_is_a_described_picture_of_one_size(page):
    images = attributes(BeautifulSoup(page, "html.parser"), "img")
    assert [image["alt"] for image in images] == [
        f'Curve {i} & its "peak" lies at <{i}> on the axis.' for i in range(3)
    ]
    assert [image["data-label"] for image in images] == ["λ = 0", "λ < 1", 'λ = "2"']
    assert {(image["width"], image["height"]) for image in images} == {("700", "150")}
    files = [base64.b64decode(image["src"].removeprefix("data:image/png;base64,")) for image in images]
    assert len(set(files)) == 3
    assert {Image.open(io.BytesIO(file)).size for file in files} == {(1400, 300)}


def test_a_stand_in_is_named_on_the_picture_and_in_its_text(shown):
    picture, _ = figures.figure()
    figures.show(picture, alt=ALT, stand_in="8×8 digits, in place of MNIST")
    assert picture.get_suptitle() == "8×8 digits, in place of MNIST (absent)"
    (_, metadata), *_ = shown
    assert "in place of MNIST" in metadata["image/png"]["alt"]
    assert ALT not in metadata["image/png"]["alt"]


def test_whiskers_span_the_intervals():
    _, ax = figure()
    estimates = [Estimate(0.5, 0.25, 1, n=9), Estimate(2, 1, 2.5, n=9)]
    whiskers(ax, torch.tensor([3.0, 4.0]), estimates, "exact", label="exact")
    spans = [segment.tolist() for segment in ax.collections[0].get_segments()]
    assert spans == [[[3, 0.25], [3, 1]], [[4, 1], [4, 2.5]]]
    assert ax.lines[0].get_ydata().tolist() == [0.5, 2]
    assert ax.lines[0].get_marker() == dots("exact")["marker"]


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


def test_a_heat_map_writes_its_numbers_from_the_lowest_row_up():
    picture, ax = figure()
    values = torch.tensor([[0.0, 0.5], [1.0, 0.25], [0.1, 0.2]])
    heat_map(ax, values, rows=["a", "b", "c"], columns=["x", "y"], label="share")
    assert [text.get_text() for text in ax.texts] == ["0.00", "0.50", "1.00", "0.25", "0.10", "0.20"]
    assert ax.get_ylim() == (0, 3)
    assert picture.axes[1].get_ylabel() == "share"


@pytest.mark.parametrize("lost", [float("nan"), float("inf")])
def test_a_curve_leaves_no_failed_run_out(lost):
    _, ax = figure()
    refused(lambda: curve(ax, [1, 2], [[1.0, 2.0, lost], [1.0, 2.0]], "exact"), "finite")


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
