"""The reduced sampler of the latent space model has the law of the regression it stands for."""

import pytest
import torch
from scipy.stats import ks_2samp

from leakage.data.gaussians import sphere
from leakage.draws import gaussian
from reproduced.papers.min_norm import latent_space
from reproduced.papers.min_norm.gaussian_mixtures import total_variation
from reproduced.papers.min_norm.latent_space import LatentSpace, member_variances, outsider_variances
from reproduced.runtime import stream

P_VALUE = 1e-3  # the seeds are fixed: a right law fails once in a thousand choices of seed, and then always
TRIALS = 3000
# n, d, p: fewer features than latent variables, below n, at n, inside (n, n + d), at n + d, beyond, and n ≤ 2d
CONFIGURATIONS = [
    (16, 3, 2),
    (16, 3, 8),
    (16, 3, 15),
    (16, 3, 16),
    (16, 3, 17),
    (16, 3, 19),
    (16, 3, 40),
    (6, 4, 3),
    (6, 4, 7),
]


def designs(model, latent, directions, generator, *, member=None):
    """The definition: latent vectors behind the labels, and the weights of the labels in the prediction."""
    p = len(directions)
    latents = gaussian((TRIALS, model.n, model.d), generator=generator)
    features = latents @ directions.mT + gaussian((TRIALS, model.n, p), generator=generator)
    point = directions @ latent
    if member is not None:
        features[:, 0] = point
        latents[:, 0] = latent if member == "own" else latents[:, 0]
    asked = point.expand(TRIALS, p).unsqueeze(-1)
    weights = torch.linalg.lstsq(features.mT, asked, rcond=1e-13, driver="gelsy").solution.squeeze(-1)
    return latents, features, weights


def brute_variances(model, latent, directions, generator, *, member=None):
    latents, _, weights = designs(model, latent, directions, generator, member=member)
    signal = (weights.unsqueeze(-2) @ latents).square().sum(dim=(-2, -1)) / model.d
    return signal + model.sigma**2 * weights.square().sum(-1)


def setting(n, d, p):
    generator = stream(0, f"latent {n} {d} {p}")
    return (
        LatentSpace(n, d, sigma=0.7),
        gaussian((d,), generator=generator),
        sphere(p, d, generator=generator),
        generator,
    )


@pytest.mark.parametrize(("n", "d", "p"), CONFIGURATIONS)
def test_outsider_variances_have_the_law_of_the_full_regression(n, d, p):
    model, latent, directions, generator = setting(n, d, p)
    ours = outsider_variances(model, latent, directions, trials=TRIALS, generator=generator)
    assert ks_2samp(ours, brute_variances(model, latent, directions, generator)).pvalue > P_VALUE


@pytest.mark.parametrize("label", ["own", "fresh"])
@pytest.mark.parametrize(("n", "d", "p"), CONFIGURATIONS)
def test_member_variances_have_the_law_of_the_full_regression(n, d, p, label):
    model, latent, directions, generator = setting(n, d, p)
    ours = member_variances(model, latent, directions, label=label, trials=TRIALS, generator=generator)
    brute = brute_variances(model, latent, directions, generator, member=label)
    if label == "own" and p >= n:  # interpolation: one number; rounding is amplified by the condition at p = n
        torch.testing.assert_close(ours, brute, rtol=1e-6, atol=1e-6)
    else:
        assert ks_2samp(ours, brute).pvalue > P_VALUE


def test_points_of_a_batch_are_answered_separately():
    generator = stream(0, "latent batch")
    model = LatentSpace(30, 4)
    latent = torch.stack([torch.full((4,), 0.1), torch.full((4,), 10.0)]).double()
    directions = sphere(2 * 60, 4, generator=generator).reshape(2, 60, 4)
    variances = outsider_variances(model, latent, directions, trials=50, generator=generator)
    assert variances.shape == (2, 50)
    # V0 is a quadratic form in x0 once the design is given: a hundredfold point has ten thousand times the variance.
    assert 5e3 < float(variances[1].mean() / variances[0].mean()) < 2e4


def test_without_label_noise_the_latent_signal_is_all_that_is_answered():
    model, latent, directions, generator = setting(16, 3, 400)
    quiet = LatentSpace(model.n, model.d, sigma=0.0)
    own = member_variances(quiet, latent, directions, trials=5, generator=generator)
    torch.testing.assert_close(own, (latent.square().sum() / 3).expand(5))


def test_the_left_branch_of_figure_5a_needs_the_fresh_label():
    """γ = 0.45: published 0.0543. With the label of z0 members hardly differ (0.004); with a fresh label they do."""
    generator = stream(0, "latent figure")
    model = LatentSpace(200, 20)
    latent = gaussian((16, 20), generator=generator)
    directions = sphere(16 * 90, 20, generator=generator).reshape(16, 90, 20)
    outsider = outsider_variances(model, latent, directions, trials=60, generator=generator)
    own, fresh = (
        total_variation(
            outsider=outsider,
            member=member_variances(model, latent, directions, label=label, trials=60, generator=generator),
        ).mean()
        for label in ("own", "fresh")
    )
    assert own < 0.02
    assert abs(fresh - 0.0543) < 0.02  # four standard errors: 0.019 between points over √16


def test_only_below_one_feature_per_row_does_the_label_of_a_member_matter():
    model, generator = LatentSpace(60, 4), stream(0, "labels")
    latent, directions = gaussian((3, 4), generator=generator), gaussian((3, 300, 4), generator=generator)
    directions /= directions.norm(dim=-1, keepdim=True)
    few, many = (
        latent_space.advantages(model, latent, directions[:, :p], trials=60, generator=generator) for p in (20, 300)
    )
    assert (few["fresh"] > few["own"]).all()
    torch.testing.assert_close(many["fresh"].mean(), many["own"].mean(), rtol=0, atol=0.1)  # three points
