"""A two-layer network computes its formula, in chunks or at once, and starts from the law it is said to start from."""

import math

import pytest
import torch

from leakage.draws import gaussian
from leakage.metrics.roc import ks_test
from leakage.precision import DTYPE
from reproduced.papers.kkt_margin import two_layer
from reproduced.papers.kkt_margin.two_layer import TwoLayer, initial
from reproduced.runtime import stream


def networks(*batch, k=5, d=3):
    generator = stream(0, f"networks {batch}")
    shapes = (*batch, k, d), (*batch, k), (*batch, k)
    return TwoLayer(*(gaussian(shape, generator=generator) for shape in shapes))


def points(*shape, name="points"):
    return gaussian(shape, generator=stream(0, name))


def test_the_formula_neuron_by_neuron():
    model, asked = networks(), points(7, 3)
    expected = sum(v * (asked @ w + b).clamp_min(0) for w, b, v in zip(*vars(model).values(), strict=True))
    torch.testing.assert_close(model(asked), expected, rtol=1e-13, atol=1e-13)  # a sum in another order
    torch.testing.assert_close(model.squared_norm(), sum(part.square().sum() for part in vars(model).values()))


def test_points_are_shared_by_networks_where_they_broadcast():
    batch, asked = networks(4), points(7, 3)
    torch.testing.assert_close(batch(asked), batch(asked.expand(4, 7, 3)))


def test_a_spread_adds_independent_normal_parts_to_the_preactivations():
    """An active neuron of weight 1 shows its pre-activation, and many points show its law."""
    one = TwoLayer(
        *(torch.full(size, value, dtype=DTYPE) for size, value in (((1, 1), 0.0), ((1,), 50.0), ((1,), 1.0)))
    )
    many = TwoLayer(*(tensor.repeat_interleave(9, dim=0) for tensor in vars(one).values()))
    asked, spread = torch.zeros((2000, 1), dtype=DTYPE), torch.linspace(1, 5, 2000, dtype=DTYPE)
    seen = (one(asked, generator=stream(0, "one"), spread=spread) - 50) / spread
    summed = (many(asked, generator=stream(0, "many"), spread=spread) - 9 * 50) / (3 * spread)
    for sample in (seen, summed):
        assert ks_test(sample, points(2000)).p_value > 1e-3  # the seeds are fixed


def test_a_spread_stands_for_directions_that_are_left_out():
    """Explicit: d = 40 with N(0, s²) weights in the last 37. Short: d = 3 and their contribution as a spread."""
    scale, seen = 0.3, networks(k=6)
    generator = stream(0, "explicit")
    asked = points(3)
    rest = points(37, name="rest")
    hidden = scale * gaussian((4000, 6, 37), generator=generator)
    explicit = TwoLayer(
        torch.cat([seen.weights.expand(4000, -1, -1), hidden], dim=-1),
        seen.biases.expand(4000, -1),
        seen.outputs.expand(4000, -1),
    )(torch.cat([asked, rest]).unsqueeze(0)).squeeze(-1)
    spread = (scale * rest.norm()).expand(4000)
    short = seen(asked.expand(4000, 3), generator=generator, spread=spread)
    assert ks_test(explicit, short).p_value > 1e-3  # the seeds are fixed


def test_the_initial_law_is_that_of_the_recipe():
    model = initial((3,), 2000, 4, generator=stream(0, "initial"), hidden_scale=1e-3, output_scale=0.5)
    assert [tuple(tensor.shape) for tensor in vars(model).values()] == [(3, 2000, 4), (3, 2000), (3, 2000)]
    normal = points(4000, name="normal")
    for sample in (model.weights[0].flatten()[:4000] / 1e-3, model.biases[:2].flatten() / 1e-3):
        assert ks_test(sample, normal).p_value > 1e-3  # the seeds are fixed
    scaled = model.outputs.flatten() * math.sqrt(2000) / 0.5
    uniform = 2 * torch.rand(6000, generator=stream(0, "uniform"), dtype=DTYPE) - 1
    assert float(scaled.abs().max()) < 1
    assert ks_test(scaled, uniform).p_value > 1e-3
    # ‖v(0)‖² is a mean of 2000 squares of variance 4/45: a standard error of 0.0067 before the scale.
    torch.testing.assert_close(
        model.outputs.square().sum(-1) / 0.25, torch.full((3,), 1 / 3, dtype=DTYPE), atol=0.03, rtol=0
    )


@pytest.mark.parametrize(("dtype", "size"), [(torch.float32, 1e11), (DTYPE, 1e80), (DTYPE, 1e-100), (DTYPE, 1e-75)])
def test_a_cosine_does_not_depend_on_sizes(dtype, size):
    model = initial((), 4, 3, generator=stream(0, "sizes"), hidden_scale=1.0)
    large = TwoLayer(*(size * part.to(dtype) for part in (model.weights, model.biases, model.outputs)))
    assert float(two_layer.cosine(large, large)) == pytest.approx(1, rel=1e-5)  # rounding of float32
