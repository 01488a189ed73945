"""The palette can be read on white, with or without all three kinds of cones, and in grey by its dashes."""

import itertools

import matplotlib
import matplotlib.colors
import numpy as np
import pytest

from leakage.figure_style import shades
from reproduced.palette import QUANTITIES, colour, look, use_style

# G. M. Machado, M. M. Oliveira, L. A. F. Fernandes (2009), IEEE TVCG 15: full deficiency, on linear RGB.
CONES = {
    "all": np.eye(3),
    "no red": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "no green": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "no blue": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
# B. Ottosson (2020), the Oklab colour space: linear RGB to cone responses, their cube roots to lightness and two hues.
TO_LMS = np.array([[0.412221, 0.536333, 0.051446], [0.211903, 0.680700, 0.107397], [0.088302, 0.281719, 0.629979]])
TO_LAB = np.array([[0.210454, 0.793618, -0.004072], [1.977998, -2.428592, 0.450594], [0.025904, 0.782772, -0.808676]])
JUST_NOTICEABLE = 0.02  # of Oklab, side by side


@pytest.fixture(autouse=True)
def _own_settings():
    with matplotlib.rc_context():
        yield


def linear(colours):
    """Linear RGB of colours in any of matplotlib's notations."""
    encoded = np.array([matplotlib.colors.to_rgb(c) for c in colours])
    return np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)


def contrast_on_white(colours):
    """WCAG 2 contrast ratio."""
    return 1.05 / (linear(colours) @ [0.2126, 0.7152, 0.0722] + 0.05)


def closest(colours, cones):
    """The smallest distance of two colours in Oklab, as seen with some cones missing."""
    lab = np.cbrt((linear(colours) @ CONES[cones].T).clip(0, 1) @ TO_LMS.T) @ TO_LAB.T
    return min(np.linalg.norm(a - b) for a, b in itertools.combinations(lab, 2))


def test_every_colour_stands_out_from_white():
    assert contrast_on_white([colour(quantity) for quantity in QUANTITIES]).min() >= 3  # WCAG 2.2, 1.4.11
    assert all(contrast_on_white(shades(count)).min() >= 3 for count in range(1, 9))


@pytest.mark.parametrize("cones", CONES)
def test_colours_differ_whatever_cones_one_has(cones):
    assert closest([colour(quantity) for quantity in QUANTITIES], cones) > 4 * JUST_NOTICEABLE
    assert closest(shades(8), cones) > 2 * JUST_NOTICEABLE


def test_the_measure_of_difference_sees_colour_blindness():
    red_and_green = ["#c03030", "#607000"]
    assert closest(red_and_green, "all") > 5 * JUST_NOTICEABLE > 2 * closest(red_and_green, "no green")


def test_dashes_and_markers_differ_too():
    assert len({look(quantity).dash for quantity in QUANTITIES}) == len(QUANTITIES)
    assert len({look(quantity).marker for quantity in QUANTITIES}) == len(QUANTITIES)


def test_shades_run_from_dark_to_light():
    assert bool((np.diff(contrast_on_white(shades(8))) < 0).all())


def test_text_can_be_read_on_a_phone():
    use_style()
    sizes = [
        matplotlib.rcParams[name] for name in ("axes.labelsize", "xtick.labelsize", "legend.fontsize", "font.size")
    ]
    # A figure of 7 inches shown 360 pixels wide: a point is 360 / 7 / 72 pixels.
    assert min(sizes) * 360 / 7 / 72 > 8
