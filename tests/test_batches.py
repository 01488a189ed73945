"""A batch of networks, laws or points gives what its members give alone."""

import pytest
import torch

from containers import map_tensors
from leakage.draws import gaussian
from leakage.membership import polytopes, rays
from planted import directions, doubles, network, points
from reproduced.papers.kkt_margin.theorem_bounds import InnerProducts, output_bound
from reproduced.papers.kkt_margin.two_layer import TwoLayer
from reproduced.papers.min_norm import least_squares, ridge, two_gaussians
from reproduced.papers.min_norm.gaussian_mixtures import GaussianMixture, ScaleMixture, total_variation
from reproduced.papers.min_norm.least_squares import Design, Query
from reproduced.papers.polytopes.other_algorithms import search_rays
from reproduced.runtime import stream
from reproduced.statistics import histogram_advantage


def normal(*shape, name="batch"):
    return gaussian(shape, generator=stream(0, f"{name} {shape}"))


def member(value, index):
    """One entry along the first dimension of all tensors in a value."""
    return map_tensors(value, lambda tensor: tensor[index])


def answers_in_row_spaces(networks, inputs):
    reduced, basis = polytopes.row_space(networks)
    return reduced(inputs @ basis)


def jacobian_norm(networks, inputs):
    return polytopes.jacobian_norm(networks, polytopes.activation_pattern(networks, inputs))


def penalised(penalties):
    """The same draws serve every penalty."""
    spectra = ridge.ResolventSamples.draw(NARROW, 12, penalties.reshape(-1), trials=5, generator=stream(0, "spectra"))
    return spectra.member_mixture(QUERY).variances.transpose(0, 1).reshape(*penalties.shape, 3, 5)


DEEP, WIDE = network((4, 6, 5, 3), 0, models=(3,)), network((7, 6, 5, 3), 0, models=(3,))
FOUR, SEVEN, WAYS = (each.expand(3, -1, -1) for each in (points(10, 4), points(10, 7), directions(10, 4)))
NARROW, FIGURE = Design(10, 20), Design(100, 3000)
QUERY = Query(doubles(9.0, 12.0, 15.0), doubles(8.0, 3.0, 11.0))
SPECTRA = ridge.ResolventSamples.draw(NARROW, 12, doubles(0.1, 2.0), trials=5, generator=stream(0, "spectra"))
LAW, MIXTURE = ScaleMixture(normal(6).exp()), GaussianMixture(normal(5), normal(5, name="scales").exp())
ROWS = {
    "affine maps": (lambda nets, x: polytopes.output_map(nets, polytopes.activation_pattern(nets, x)), DEEP, FOUR),
    "Jacobian norms": (jacobian_norm, WIDE, SEVEN),
    "radii": (polytopes.inscribed_radius, WIDE, SEVEN),
    "row spaces": (answers_in_row_spaces, WIDE, SEVEN),
    "crossings": (lambda *rows: rays.ray_crossings(*rows, crossings=3).lengths, DEEP, FOUR, WAYS),
    "label changes": (lambda *rows: rays.ray_label_change(*rows, until=20.0), DEEP, FOUR, WAYS),
    "searches": (lambda *rows: search_rays(*rows, steps=9, event="pattern"), DEEP, FOUR, WAYS),
    "deep networks": (lambda nets, x: nets(x), DEEP, normal(3, 7, 4)),
    "two layers": (
        lambda net, x: (net(x), net.squared_norm()),
        *(TwoLayer(normal(4, 2, 5, 3), normal(4, 2, 5), normal(4, 2, 5, name="outputs")), normal(4, 2, 7, 3)),
    ),
    "bounds": (
        lambda x, fresh, m: output_bound(InnerProducts.from_points(x), fresh, m),
        *(normal(3, 5, 400), normal(3, 2), normal(3).exp()),
    ),
    "histograms": (lambda one, two: histogram_advantage(member=one, outsider=two), normal(3, 400), 2 * normal(3, 500)),
    "two Gaussians": (
        lambda one, two: tuple(f(member=one, outsider=two) for f in (two_gaussians.advantage, two_gaussians.threshold)),
        *(doubles([1.0, 3.0], [torch.inf, 1.0]), doubles([0.5, 2.0], [2.0, 4.0])),
    ),
    "mixtures": (
        lambda law: total_variation(outsider=law, member=LAW),
        ScaleMixture(normal(2, 3, 4).exp(), normal(2, 3, 4, name="weights").softmax(-1)),
    ),
    "mixtures with means": (
        lambda law: total_variation(outsider=law, member=MIXTURE),
        GaussianMixture(normal(2, 3, 5), normal(2, 3, 5, name="scales").exp()),
    ),
    "least squares": (
        lambda query: least_squares.total_variations(FIGURE, [105, 400], query, nodes=(6, 16, 2)),
        Query.draw(FIGURE, [105, 400], count=3, generator=stream(0, "points")),
    ),
    "ridge, points": (lambda q: (SPECTRA.outsider_mixture(q).variances, SPECTRA.member_mixture(q).variances), QUERY),
    "ridge, penalties": (penalised, doubles(0.1, 2.0)),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_batch_gives_what_its_members_give_alone(name):
    function, *batch = ROWS[name]
    together = function(*batch)
    for index in (0, -1):
        alone = function(*member(tuple(batch), index))
        # Sums in another order, of rays through slopes as small as 1e-3.
        torch.testing.assert_close(member(together, index), alone, rtol=1e-9, atol=1e-9)
