"""Pictures carry their text, are the same bytes every time, and need nothing from anywhere."""

import base64
import gc
import io
import re
import weakref

import matplotlib
import matplotlib.pyplot
import numpy as np
import pytest
from bs4 import BeautifulSoup
from PIL import Image

from reproduced import figures
from reproduced.figures import figure, frames, line, png, show

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


@pytest.mark.parametrize(("width", "inches"), [("text", 7.0), ("wide", 10.0)])
def test_a_figure_has_the_width_of_its_place(width, inches):
    picture, ax = figure(width, height=2.5)
    assert tuple(picture.get_size_inches()) == (inches, 2.5)
    assert picture.get_layout_engine() is not None
    assert ax.figure is picture


def test_panels_come_as_rows_columns_and_grids():
    assert figure(panels=(1, 3))[1].shape == figure(panels=(3, 1))[1].shape == (3,)
    picture, axes = figure(panels=(2, 2), sharex=True, sharey=True)
    assert axes.shape == (2, 2)
    axes[0, 0].set_xlim(0, 7)
    assert axes[1, 1].get_xlim() == axes[1, 0].get_xlim() == (0, 7)
    assert len(picture.axes) == 4


@pytest.mark.parametrize(
    ("options", "said"), [({"width": "huge"}, "text, wide"), ({"height": 0}, "height"), ({"panels": (0, 1)}, "panels")]
)
def test_impossible_figures_are_refused(options, said):
    with pytest.raises(ValueError, match=said):
        figure(**options)


def test_figures_stay_out_of_pyplots_list():
    before = matplotlib.pyplot.get_fignums()
    small_figure()
    assert matplotlib.pyplot.get_fignums() == before


def test_a_shown_figure_is_sharp_sized_for_the_page_and_described(shown):
    show(small_figure(), alt=f"  {ALT[:30]}\n   {ALT[30:]} ")
    ((data, metadata),) = shown
    file = base64.b64decode(data["image/png"])
    assert Image.open(io.BytesIO(file)).size == (1400, 300)
    assert metadata["image/png"]["width"] == 700
    assert "height" not in metadata["image/png"]  # it would distort the picture where the page is narrower
    assert metadata["image/png"]["alt"] == data["text/plain"] == f"{ALT[:30].rstrip()} {ALT[30:].lstrip()}"
    assert (pixels(file)[0] == 255).all()


def test_a_shown_figure_is_let_go(shown):
    picture = small_figure()
    trace = weakref.ref(picture)
    show(picture, alt=ALT)
    del picture
    gc.collect()
    assert trace() is None
    by_pyplot = matplotlib.pyplot.figure()
    show(by_pyplot, alt=ALT)
    assert by_pyplot.number not in matplotlib.pyplot.get_fignums()


@pytest.mark.parametrize(
    "alt",
    [
        "",
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


def test_a_reduced_picture_looks_the_same_and_is_smaller():
    picture, axes = figure(height=2.5, panels=(1, 2))
    axes[0].pcolormesh(np.linspace(0, 1, 400).reshape(20, 20))
    axes[1].plot([0, 1], [0, 1], **line("outsider"))
    png(picture)  # settles the layout, so that the next two drawings agree
    full, reduced = png(picture), png(picture, colours=256)
    assert len(reduced) < 0.7 * len(full)
    assert np.abs(pixels(full) - pixels(reduced)).max() <= 12  # of 255; one step of a colour map of 256 is 2 to 4
    assert (pixels(reduced)[0, 0] == 255).all()


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


def test_one_labelled_slider_moves_through_the_frames(page):
    soup = BeautifulSoup(page, "html.parser")
    (control,) = soup.find_all("input")
    assert (control["type"], control["min"], control["max"], control["value"]) == ("range", "0", "2", "0")
    assert control["aria-valuetext"] == "λ = 0"
    assert control.find_parent("label").get_text(strip=True) == "penalty λ <ridge>"
    (output,) = soup.find_all("output")
    assert output["for"] == [control["id"]]
    assert output.get_text() == "λ = 0"
    assert soup.find("figcaption").get_text() == "Move the slider & watch <both> peaks."
    assert soup.find("figure").find("script") is not None


def test_a_slider_needs_nothing_from_anywhere(page):
    without_data = re.sub(r"data:image/png;base64,[\w+/=]+", "", page)
    assert not re.search(r"https?:|//|url\(|@import|import\(|fetch|\bon\w+=", without_data)
    assert len(without_data) < 3000


def test_a_slider_without_scripts_shows_every_frame(page):
    assert not BeautifulSoup(page, "html.parser").find_all(attrs={"hidden": True})


def test_the_ids_of_a_slider_hang_on_its_name_alone():
    texts = {"labels": ["a", "b"], "alts": [ALT, ALT], "slider_label": "λ"}
    pages = [page_of([small_figure(), small_figure(shift=1)], name=name, **texts) for name in ("one", "one", "two")]
    assert pages[0] == pages[1]
    ids = [BeautifulSoup(page, "html.parser").find("input")["id"] for page in pages]
    assert ids[0] != ids[2]
    assert "figcaption" not in pages[0]


def test_frames_are_displayed_with_a_plain_text_beside_them(shown):
    texts = {"labels": ["a", "b"], "alts": [ALT, ALT.replace("above", "below")], "name": "x", "slider_label": "λ"}
    frames([small_figure(shift=s) for s in (0, 1)], **texts)
    ((data, _),) = shown
    assert data["text/html"] == page_of([small_figure(shift=s) for s in (0, 1)], **texts)
    assert data["text/plain"].splitlines() == texts["alts"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"pictures": 1, "labels": ["a"], "alts": [ALT]}, "at least two"),
        ({"labels": ["a"]}, "got 2, 1 and 2"),
        ({"alts": [ALT, "short"]}, "alt"),
        ({"labels": ["a", " "]}, r"labels\[1\]"),
        ({"name": ""}, "name"),
        ({"slider_label": ""}, "slider_label"),
        ({"heights": (1.5, 2)}, "one size"),
    ],
)
def test_incomplete_frames_are_refused(shown, change, said):
    given = {
        "pictures": 2,
        "heights": (1.5, 1.5),
        "labels": ["a", "b"],
        "alts": [ALT, ALT],
        "name": "x",
        "slider_label": "λ",
    }
    given |= change
    pictures = [small_figure(height) for height in given.pop("heights")[: given.pop("pictures")]]
    with pytest.raises(ValueError, match=said):
        frames(pictures, **given)
    assert not shown


def test_a_stand_in_is_named_on_the_picture_and_in_its_text(shown):
    picture, _ = figures.figure()
    figures.show(picture, alt=ALT, stand_in="8×8 digits, in place of MNIST")
    assert picture.get_suptitle() == "8×8 digits, in place of MNIST (absent)"
    (_, metadata), *_ = shown
    assert "in place of MNIST" in metadata["image/png"]["alt"]
    assert ALT not in metadata["image/png"]["alt"]
