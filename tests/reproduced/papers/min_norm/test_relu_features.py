"""The reduced sampler of the random ReLU model has the law of the regression it stands for."""

import math

import pytest
import torch
from scipy.stats import ks_2samp

from leakage.draws import gaussian
from reproduced.papers.min_norm import relu_features
from reproduced.papers.min_norm.gaussian_mixtures import ScaleMixture
from reproduced.papers.min_norm.least_squares import Design
from reproduced.papers.min_norm.relu_features import member_variances, outsider_variances
from reproduced.runtime import stream

P_VALUE = 1e-3  # the seeds are fixed: a right law fails once in a thousand choices of seed, and then always
TRIALS = 2500
WIDTHS = [5, 9, 12, 13, 24]
DESIGNS = [Design(12, 40, 0.8), Design(12, 7, 0.8)]  # and one with fewer inputs than points


def designs(design, p, point, query, generator, *, member):
    """The definition: inputs, weights of the labels in the prediction, and the features behind them."""
    inputs = gaussian((TRIALS, design.n, design.D), generator=generator)
    if member:
        inputs[:, 0] = point
    directions = gaussian((TRIALS, design.D, p), generator=generator)
    directions = directions / directions.norm(dim=-2, keepdim=True)
    features = (inputs @ directions).relu()
    asked = relu_features.QUERIES[query](point @ directions)
    return inputs, features, asked


def brute_variances(design, p, point, query, generator, *, member):
    inputs, features, asked = designs(design, p, point, query, generator, member=member)
    weights = torch.linalg.pinv(features.mT, rtol=1e-12) @ asked.unsqueeze(-1)
    signal = (inputs.mT @ weights).square().sum(dim=(-2, -1)) / design.D
    return signal + design.sigma**2 * weights.square().sum(dim=(-2, -1))


@pytest.mark.parametrize("query", ["relu", "linear"])
@pytest.mark.parametrize("design", DESIGNS)
def test_variances_have_the_law_of_the_full_regression(design, query):
    generator = stream(0, f"relu {design.D} {query}")
    point = gaussian((design.D,), generator=generator)
    arguments = {"widths": WIDTHS, "query": query, "trials": TRIALS, "generator": generator}
    outsider = outsider_variances(design, point.square().sum(), **arguments)
    member = member_variances(design, point.square().sum(), **arguments)
    for index, p in enumerate(WIDTHS):
        brute = brute_variances(design, p, point, query, generator, member=False)
        assert ks_2samp(outsider[index], brute).pvalue > P_VALUE
        if p <= design.n:
            brute = brute_variances(design, p, point, query, generator, member=True)
            if query == "relu" and p == design.n:  # interpolation: a constant, up to rare dead features
                assert float((brute - member[index]).abs().median()) < 1e-6
            else:
                assert ks_2samp(member[index], brute).pvalue > P_VALUE


def test_a_relu_query_of_a_training_point_returns_its_label():
    design, generator = DESIGNS[0], stream(0, "relu label")
    point = gaussian((design.D,), generator=generator)
    brute = brute_variances(design, 40, point, "relu", generator, member=True)
    ours = member_variances(design, point.square().sum(), widths=[40], trials=3, generator=generator)
    torch.testing.assert_close(ours[0], brute[:3], rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(ours[0, 0], point.square().sum() / design.D + design.sigma**2)


def test_predictions_drawn_from_the_variances_match_fitted_predictions():
    design, generator, p = DESIGNS[0], stream(0, "relu predictions"), 24
    point = gaussian((design.D,), generator=generator)
    inputs, features, asked = designs(design, p, point, "relu", generator, member=False)
    coefficients = gaussian((TRIALS, design.D, 1), generator=generator) / math.sqrt(design.D)
    labels = inputs @ coefficients + design.sigma * gaussian((TRIALS, design.n, 1), generator=generator)
    fits = torch.linalg.lstsq(features, labels, driver="gelsd").solution
    predictions = (asked.unsqueeze(-2) @ fits).flatten()
    variances = outsider_variances(design, point.square().sum(), widths=[p], trials=TRIALS, generator=generator)
    ours = ScaleMixture(variances).sample(TRIALS, generator=generator)[0]
    assert ks_2samp(ours, predictions).pvalue > P_VALUE


@pytest.mark.parametrize(("design", "p"), [(Design(3, 30), 4), (Design(5, 30), 6), (Design(8, 2), 12)])
def test_a_member_that_some_designs_do_not_interpolate_has_the_law_of_the_full_regression(design, p):
    generator = stream(0, f"silent rows {design.n}")
    point = gaussian((design.D,), generator=generator)
    found = member_variances(design, point.square().sum(), widths=[p], trials=TRIALS, generator=generator)[0]
    brute = brute_variances(design, p, point, "relu", generator, member=True)
    label = point.square().sum() / design.D + 1
    silent = (found - label).abs() > 1e-6
    assert 0.01 < float(silent.double().mean()) < 0.99  # both kinds of design are there
    # Rounded, since designs that interpolate all give one number.
    assert ks_2samp(found.round(decimals=6), brute.round(decimals=6)).pvalue > P_VALUE


def test_members_of_a_batch_are_fitted_with_their_own_norm():
    design, norms = DESIGNS[0], torch.tensor([10.0, 90.0]).double()
    together = member_variances(design, norms, widths=[5, 9], trials=20, generator=stream(0, "relu batch"))
    alone = member_variances(design, norms[1], widths=[5, 9], trials=20, generator=stream(0, "relu batch"))
    torch.testing.assert_close(together[1], alone)


def test_many_features_leak_more_than_few_above_the_threshold():
    design, generator = Design(20, 100), stream(0, "advantages")
    norms = torch.tensor([100.0, 110.0], dtype=torch.float64)
    for query in ("relu", "linear"):
        found = relu_features.advantages(design, norms, widths=[160, 1600], query=query, trials=60, generator=generator)
        assert found.shape == (2, 2)
        assert (found[:, 1] > found[:, 0]).all()
