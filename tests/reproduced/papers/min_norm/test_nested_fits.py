"""The nested sweep gives what a separate least-squares solve gives at every width."""

import pytest
import torch

from leakage.draws import gaussian
from reproduced.papers.min_norm.nested_fits import nested_min_norm, nested_weights
from reproduced.runtime import stream

WIDTHS = [1, 3, 7, 8, 9, 12, 30]


def problem(*, batch=(3,), n=8, p=30, queries=2):
    generator = stream(0, "nested")
    return (
        gaussian((*batch, n, p), generator=generator),
        gaussian((*batch, n), generator=generator),
        gaussian((*batch, queries, p), generator=generator),
    )


def separate_fits(features, labels, queries, widths):
    """The definition: one SVD-based solve for each width."""
    fits = [
        queries[..., :p] @ torch.linalg.lstsq(features[..., :p], labels[..., None], driver="gelsd").solution
        for p in widths
    ]
    return torch.stack([fit.squeeze(-1) for fit in fits], dim=-2)


@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_every_width_equals_its_own_least_squares_solve(batch):
    features, labels, queries = problem(batch=batch)
    ours = nested_min_norm(features, labels, queries, widths=WIDTHS)
    # The Gram matrix squares the condition number, which next to p = n = 8 is in the hundreds here.
    torch.testing.assert_close(ours, separate_fits(features, labels, queries, WIDTHS), rtol=1e-8, atol=1e-9)


def test_away_from_the_interpolation_threshold_the_agreement_is_to_rounding():
    generator = stream(1, "nested")
    features, queries = (gaussian(size, generator=generator) for size in ((100, 3000), (1, 3000)))
    labels, widths = gaussian((100,), generator=generator), [20, 50, 80, 150, 300, 1000, 3000]
    ours = nested_min_norm(features, labels, queries, widths=widths)
    torch.testing.assert_close(ours, separate_fits(features, labels, queries, widths), rtol=1e-11, atol=1e-12)


def test_weights_reproduce_the_labels_of_training_points_from_n_features_on():
    features, _, _ = problem()
    weights = nested_weights(features, features, widths=[8, 9, 30])
    torch.testing.assert_close(weights, torch.eye(8, dtype=torch.float64).expand_as(weights), rtol=0, atol=1e-9)


def test_designs_that_lose_rank_get_the_minimum_norm_solution():
    features, labels, queries = problem()
    features[0, :, [0, 4]] = 0  # features dead on every row
    features[1, :, 3] = 2 * features[1, :, 1]  # a repeated feature
    features[1, 5] = 0  # and a row without features: of no use at any width
    ours = nested_min_norm(features, labels, queries, widths=WIDTHS)
    torch.testing.assert_close(ours, separate_fits(features, labels, queries, WIDTHS), rtol=1e-8, atol=1e-9)
