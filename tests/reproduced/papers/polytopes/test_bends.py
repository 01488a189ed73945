"""Hyperedges bend where the answer is known, and nowhere but on those of earlier layers."""

import math

import pytest
import torch

from leakage.models.mlp import Mlp
from planted import SQUARE, network
from reproduced.papers.polytopes.bends import find_bends
from reproduced.papers.polytopes.subdivision import subdivide


def test_a_deeper_neuron_turns_by_the_known_angle_on_the_earlier_one():
    # The second layer's neuron is [x]₊ + y: level left of x = 0, and falling by 45° on the right.
    first = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0.0, 10.0])
    second = torch.tensor([[1.0, 1.0]]), torch.tensor([-10.0])
    last = torch.ones(1, 1), torch.zeros(1)
    weights, biases = zip(first, second, last, strict=True)
    model = Mlp(tuple(part.double() for part in weights), tuple(part.double() for part in biases))
    found = find_bends(subdivide(model, SQUARE))
    deep = found.layer == 1
    torch.testing.assert_close(found.turn[deep], torch.tensor([math.pi / 4]).double())
    assert found.on_earlier.tolist() == deep.tolist()
    torch.testing.assert_close(found.turn[~deep], torch.zeros_like(found.turn[~deep]))


@pytest.mark.parametrize("seed", range(3))
def test_hyperedges_bend_on_those_of_earlier_layers_only(seed):
    found = find_bends(subdivide(network((2, 10, 10, 10, 2), seed), 3 * SQUARE))
    assert int((found.bent & found.on_earlier).sum()) > 20
    assert int((found.bent & ~found.on_earlier).sum()) == 0
    assert int((~found.on_earlier).sum()) > 20
    assert float(found.departure[~found.on_earlier].max()) < 1e-11  # a hundred times what was seen
    assert not found.bent[found.layer == 0].any()
