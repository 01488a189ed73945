"""Problems on the line are drawn as their laws say."""

import math

import pytest
import torch

from leakage.runtime import stream
from leakage.studies.kkt_margin.line_problems import LABEL_LAWS, draw_problem


@pytest.mark.parametrize("law", LABEL_LAWS)
def test_problems_are_drawn_sorted_with_both_signs_equally_often(law):
    generator = stream(0, law)
    draws = [draw_problem(law, count=6, generator=generator) for _ in range(400)]
    assert all(bool((points.diff() > 0).all()) and bool((labels.abs() == 1).all()) for points, labels in draws)
    first = torch.stack([labels[0] for _, labels in draws])
    assert abs(float(first.mean())) < 4 / math.sqrt(400)  # four standard errors


def test_spaced_points_keep_their_distance():
    points = draw_problem("random", count=50, generator=stream(0, "spaced"), points="spaced")[0]
    assert -2 < float(points[0]) < float(points[-1]) < 2
    assert float(points.diff().min()) >= 0.5 * 4 / 50 - 1e-12


def test_blocks_alternate():
    generator = stream(0, "blocks")
    for law, size in (("alternating", 1), ("pairs", 2), ("triples", 3)):
        labels = draw_problem(law, count=6, generator=generator)[1]
        assert (labels[size:] == -labels[:-size]).all()


def test_unknown_laws_are_refused():
    with pytest.raises(ValueError, match="`law` must be one of random, alternating"):
        draw_problem("sorted", count=3, generator=stream(0, "x"))
    with pytest.raises(ValueError, match="`points` must be one of normal, spaced"):
        draw_problem("random", count=3, generator=stream(0, "x"), points="uniform")
    with pytest.raises(ValueError, match="`count`"):
        draw_problem("random", count=0, generator=stream(0, "x"))
