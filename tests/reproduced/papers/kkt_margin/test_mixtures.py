"""Points drawn in the coordinates of their span have the law of points drawn in full, whatever the dimension."""

import math

import pytest
import torch
from scipy import stats

from leakage.draws import gaussian
from leakage.metrics.roc import ks_test
from leakage.precision import DTYPE
from reproduced.papers.kkt_margin import mixtures
from reproduced.papers.kkt_margin.mixtures import LAWS, Law, draw_sample
from reproduced.runtime import stream

P_VALUE = 1e-3  # the seeds are fixed: a right law fails at one choice of seed in a thousand, and then always
MANY = dict(rows=6, fresh=3, runs=900)
PAIRS = {
    "train–train": lambda s: (s.train[:, 1] * s.train[:, 4]).sum(-1),
    "train–train, the last two": lambda s: (s.train[:, 4] * s.train[:, 5]).sum(-1),
    "train–fresh": lambda s: (s.train[:, 5] * s.fresh[:, 0]).sum(-1),
    "train norm": lambda s: s.train[:, 3].square().sum(-1),
    "fresh norm": lambda s: s.fresh[:, 1].square().sum(-1) + s.radius[:, 1].square(),
    "delta": lambda s: (s.train @ s.train.mT).triu(1).abs().amax((-2, -1)),
}


def sample(law="mixture", dimension=30, name="points", **sizes):
    return draw_sample(law, dimension=dimension, generator=stream(0, name), **{**MANY, **sizes})


def explicit(law, dimension):
    """The same sizes in all coordinates, from the definition."""
    generator = stream(0, f"explicit {law}")
    definition = LAWS[law] if isinstance(law, str) else law
    means = torch.zeros((len(definition.means), dimension), dtype=DTYPE)
    means[:, : len(definition.means[0])] = torch.tensor(definition.means, dtype=DTYPE)
    pick = torch.randint(len(means), (900, 9), generator=generator)
    points = means[pick] + gaussian((900, 9, dimension), generator=generator)
    if definition.sphere:
        points = math.sqrt(dimension) * points / points.norm(dim=-1, keepdim=True)
    nothing = torch.zeros((900, 9), dtype=DTYPE)
    return mixtures.Sample(points[:, :6], nothing[:, :6], points[:, 6:], nothing[:, 6:], nothing[:, 6:], dimension)


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("law", [*LAWS, Law(((3.0, 0.0), (0.0, 3.0), (-2.0, -2.0)))], ids=str)
@pytest.mark.parametrize("dimension", [9, 30])  # with the fewest dimensions left outside the span, and with many
def test_inner_products_have_the_law_of_those_in_all_dimensions(law, dimension, pair):
    drawn, full = (PAIRS[pair](points) for points in (sample(law, dimension), explicit(law, dimension)))
    if law == "sphere" and "norm" in pair:  # no law but one number, up to rounding
        torch.testing.assert_close(drawn, full, rtol=1e-13, atol=0)
    else:
        assert ks_test(drawn, full).p_value > P_VALUE


def test_norms_of_a_gaussian_are_chi_square_at_a_million_dimensions():
    points = sample("gaussian", 10**6)
    for square in (PAIRS["train norm"](points), PAIRS["fresh norm"](points)):
        assert stats.kstest(square.numpy(), stats.ncx2(10**6, 1).cdf).pvalue > P_VALUE


def test_the_cost_does_not_depend_on_the_dimension():
    shapes = {tuple(sample(dimension=dimension).train.shape) for dimension in (8, 100, 10**9)}
    assert shapes == {(900, 6, 7)}  # the mean's coordinate and six more


def test_the_label_of_the_mixture_is_its_component():
    points = sample("mixture", 20, rows=2000, runs=1, fresh=2000)
    for place, labels in ((points.train, points.labels), (points.fresh, points.fresh_labels)):
        assert set(labels.unique().tolist()) == {-1.0, 1.0}
        assert abs(float(labels.mean())) < 4 / math.sqrt(2000)
        assert (
            ks_test((place[..., 0] * labels).flatten() - 1, gaussian((2000,), generator=stream(0, "n"))).p_value
            > P_VALUE
        )


@pytest.mark.parametrize("law", ["mixture, random labels", "gaussian", "sphere"])
def test_other_labels_are_coin_flips_that_know_nothing_of_the_points(law):
    points = sample(law, 20, rows=4000, runs=1, fresh=1)
    assert abs(float(points.labels.mean())) < 4 / math.sqrt(4000)
    agreement = (points.labels * points.train[..., 0].sign()).mean()
    assert abs(float(agreement)) < 4 / math.sqrt(4000)


def test_runs_and_fresh_points_are_independent_draws():
    points = sample()
    for first, second in (
        (points.train[:-1, 0, 1], points.train[1:, 0, 1]),
        (points.radius[:, 0], points.radius[:, 1]),
    ):
        correlation = torch.corrcoef(torch.stack([first, second]))[0, 1]
        assert abs(float(correlation)) < 4 / math.sqrt(len(first))


def test_components_of_a_law_are_equally_likely_and_carry_their_labels():
    law = Law(((9.0, 0.0), (-9.0, 0.0), (0.0, 9.0)), labels=(1.0, 1.0, -1.0))
    points = sample(law, 50, rows=3000, runs=1, fresh=0)
    third = points.train[0, :, 1] > 4.5  # 4.5 standard deviations from either side
    torch.testing.assert_close(points.labels[0] < 0, third)
    assert abs(float(third.double().mean()) - 1 / 3) < 4 * math.sqrt(2 / 9 / 3000)
