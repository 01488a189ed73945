"""Answer and label: the law of trained models, and its total variation against cases with a known value."""

import math

import pytest
import torch

from leakage.draws import gaussian
from leakage.precision import DTYPE
from planted import doubles
from reproduced.papers.min_norm import labelled_answers, ridge, two_gaussians
from reproduced.papers.min_norm.labelled_answers import LabelledLaw, advantage, limit_law, trained_pairs
from reproduced.papers.min_norm.least_squares import Design, Query
from reproduced.runtime import stream

ODDS = doubles(0.1, 1.0, 10.0, 1e3)


def typical(penalty, ratios=(0.2, 1.1, 2.0, 10.0)):
    space = Design(1000, 30_000)
    p = 1000 * doubles(*ratios)
    return space, p, doubles(penalty), Query.typical(space, p)


def test_without_correlation_the_residual_alone_decides():
    alone = two_gaussians.advantage(member=(1 + ODDS) ** -2, outsider=torch.ones_like(ODDS))
    pair = advantage(LabelledLaw(ODDS, torch.zeros_like(ODDS), torch.ones_like(ODDS)))
    torch.testing.assert_close(pair, alone, rtol=0, atol=1e-8)


def test_the_advantage_is_that_of_the_likelihood_ratio_test():
    law, draws = LabelledLaw(doubles(1.5), doubles(0.8), doubles(1.0)), 200_000
    outsider = torch.tensor([[1.0, 0.8], [0.8, 1.0]], dtype=DTYPE)
    shrink = torch.diag(doubles(1 / 2.5, 1.0))
    sides = {"outsider": outsider, "member": shrink @ outsider @ shrink}
    models = {who: torch.distributions.MultivariateNormal(doubles(0.0, 0.0), cov) for who, cov in sides.items()}
    says = {}
    for who, cov in sides.items():
        pairs = gaussian((draws, 2), generator=stream(0, who)) @ torch.linalg.cholesky(cov).mT
        says[who] = (models["member"].log_prob(pairs) > models["outsider"].log_prob(pairs)).double().mean()
    found = float(says["member"] - says["outsider"])
    assert float(advantage(law)) == pytest.approx(found, abs=4 / math.sqrt(draws))


@pytest.mark.parametrize("penalty", [1e-3, 0.1, 5.0])
def test_the_label_adds_to_the_answer(penalty):
    blind = ridge.limit_advantage(*typical(penalty))
    assert (advantage(limit_law(*typical(penalty))) > blind + 0.05).all()


def test_without_a_penalty_nothing_is_missing_beyond_interpolation():
    found = advantage(limit_law(*typical(1e-7)))
    torch.testing.assert_close(found[1:], torch.ones(3, dtype=DTYPE), rtol=0, atol=1e-4)
    assert found[0] < 0.2  # 0.2 features per row do not interpolate


def test_twice_the_angles_change_nothing(monkeypatch):
    laws = [limit_law(*typical(penalty)) for penalty in (1e-6, 0.1, 5.0)]
    found = [advantage(law) for law in laws]
    monkeypatch.setattr(labelled_answers, "_ANGLES", 40_001)
    for value, law in zip(found, laws, strict=True):
        torch.testing.assert_close(advantage(law), value, rtol=0, atol=1e-8)


def test_trained_models_have_the_law_and_a_member_the_smaller_residual():
    design, p, penalty, generator = Design(40, 80), 60, doubles(0.5), stream(0, "pairs")
    point = gaussian((80,), generator=generator)
    query = Query.from_point(point, design, p)
    law, variances = limit_law(design, p, penalty, query), ridge.limit_variances(design, p, penalty, query)
    residuals = {}
    for who, variance in variances._asdict().items():
        pairs = trained_pairs(design, point, p, penalty=0.5, trials=2000, member=who == "member", generator=generator)
        assert float(pairs[:, 0].square().mean()) == pytest.approx(float(variance), rel=0.15)  # sampling, and 1/n
        residuals[who] = pairs[:, 1] - pairs[:, 0]
        correlation = torch.corrcoef(torch.stack([residuals[who], pairs[:, 1]]))[0, 1]
        assert float(correlation) == pytest.approx(float(law.correlation), abs=0.04)
    assert float(residuals["outsider"].square().mean()) == pytest.approx(float(law.error), rel=0.15)
    ratio = residuals["outsider"].std() / residuals["member"].std()
    assert float(ratio) == pytest.approx(1 + float(law.odds), rel=0.1)
