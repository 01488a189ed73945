"""The short rows of the bi-level ensemble have the law of rows of all features."""

import pytest
import torch

from leakage.data.gaussians import gaussian
from leakage.metrics.roc import ks_test
from leakage.runtime import stream
from reproduced.studies.blessing.bilevel import Bilevel, fixed_points, training_sets

P_VALUE = 1e-3  # the seeds are fixed: a right law fails once in a thousand choices of seed, and then always


def plain(ensemble, count, trials, generator):
    """Features drawn one by one: Gram matrices, inner products with points and the teacher's logits."""
    scale = torch.full((ensemble.p,), ensemble.weak, dtype=torch.float64)
    scale[: ensemble.d] = ensemble.strong
    draws = gaussian((trials, ensemble.n + count, ensemble.p), generator=generator) * scale.sqrt()
    rows, points = draws[:, : ensemble.n], draws[:, ensemble.n :]
    beta = gaussian((ensemble.d,), generator=generator)
    beta *= ensemble.sigma_beta * ensemble.d**0.5 / beta.norm()
    return rows @ rows.mT, rows @ points.mT, rows[..., : ensemble.d] @ beta, points.square().sum(-1)


@pytest.mark.parametrize(("d", "p", "power"), [(12, 40, 1.0), (3, 9, 1.0), (1, 4, 0.5)])
def test_short_rows_have_the_law_of_plain_draws(d, p, power):
    ensemble, generator = Bilevel(5, d, p, sigma_beta=3.0, eta=2.0, power=power), stream(0, f"bilevel {d} {p} {power}")
    gram, cross, teacher, squares = plain(ensemble, 2, 3000, generator)
    draws = [
        (data.gram()[0], data.cross[0], data.teacher[0], points.squares)
        for points in (fixed_points(ensemble, 2, generator=generator) for _ in range(800))
        for data in [training_sets(ensemble, 1, generator=generator, points=points)]
    ]
    ours = [torch.stack(column) for column in zip(*draws, strict=True)]
    for summary in (
        lambda g, c, t, s: g.diagonal(dim1=-2, dim2=-1).sum(-1),
        lambda g, c, t, s: torch.linalg.det(g + torch.eye(5)),
        lambda g, c, t, s: (t.unsqueeze(-2) @ g @ t.unsqueeze(-1)).flatten(),
        lambda g, c, t, s: c.square().sum((-1, -2)),
        lambda g, c, t, s: (t.unsqueeze(-2) @ c).flatten(1)[:, 0],
        lambda g, c, t, s: (c.mT @ g @ c)[:, 0, 1],
        lambda g, c, t, s: s[:, 0],
    ):
        assert ks_test(summary(*ours), summary(gram, cross, teacher, squares)).p_value > P_VALUE


def test_ten_million_features_cost_what_a_thousand_do():
    ensemble, generator = Bilevel(20, 100, 10**7, sigma_beta=10.0, eta=2.0), stream(0, "ten million")
    points = fixed_points(ensemble, 3, generator=generator)
    data = training_sets(ensemble, 2, generator=generator, points=points)
    assert data.strong.shape == (2, 20, 4 + 20)
    assert data.weak.shape == (2, 20, 3 + 20)
    # |x|² is 1 + η up to the fluctuation of the 100 strong features, sqrt(2/100).
    torch.testing.assert_close(
        data.gram().diagonal(dim1=-2, dim2=-1).mean(), torch.tensor(3.0).double(), rtol=0, atol=0.15
    )
    torch.testing.assert_close(points.squares.mean(), torch.tensor(3.0).double(), rtol=0, atol=0.5)


def test_the_teacher_has_the_variance_of_its_coefficients_and_labels_follow_it():
    ensemble = Bilevel(2000, 5, 20, sigma_beta=2.0)
    data = training_sets(ensemble, 10, generator=stream(0, "teacher"))
    assert ensemble.kappa == pytest.approx(2.0)
    assert float(data.teacher.std()) == pytest.approx(2.0, rel=0.03)  # four standard errors
    noise = data.labels - torch.sigmoid(data.teacher)
    assert abs(float(noise.mean())) < 4 * 0.5 / 20_000**0.5
    assert abs(float((noise * data.teacher).mean())) < 4 * 1.0 / 20_000**0.5


def test_the_reading_with_squares_changes_both_variances():
    ensemble, other = (Bilevel(500, 50, 500, 10.0, eta=3.0, power=power) for power in (1.0, 0.5))
    assert (ensemble.strong, ensemble.weak) == pytest.approx((1 / 50, 3 / 450))
    assert (other.strong * 500) ** 2 == pytest.approx(500 / 50)
    assert (other.weak * 500) ** 2 == pytest.approx(3 * 500 / 450)
    assert ensemble.ridge(0.1) == pytest.approx(0.1)
    assert (ensemble.delta, ensemble.phi) == pytest.approx((1.0, 10.0))
