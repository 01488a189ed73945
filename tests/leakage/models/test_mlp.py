"""Fully connected ReLU networks as plain tensors."""

import itertools

import pytest
import torch
from torch import nn

from leakage.models import mlp
from reproduced.runtime import stream

WIDTHS = (5, 7, 6, 3)


def a_module() -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(WIDTHS):
        layers += [nn.Linear(inputs, outputs, dtype=torch.float64), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def test_it_computes_what_the_module_it_was_made_from_computes():
    modules = [a_module() for _ in range(3)]
    networks = mlp.stack([mlp.from_module(module) for module in modules])
    points = torch.randn(11, 5, dtype=torch.float64, generator=stream(0, "points"))
    expected = torch.stack([module(points) for module in modules])
    assert torch.allclose(networks(points), expected, atol=1e-14)
    torch.testing.assert_close(networks[1](points), mlp.from_module(modules[1])(points))
    assert networks.widths == WIDTHS


def test_a_network_that_has_diverged_is_refused():
    with pytest.raises(ValueError, match="diverged"):
        mlp.Mlp((torch.full((2, 3), torch.nan),), (torch.zeros(2),))


def test_initial_parameters_fill_their_interval():
    network = mlp.initial((50,), (16, 40, 3), generator=stream(0, "networks"), dtype=torch.float32)
    for tensor in (network.weights[0], network.biases[0]):
        # 2,000 uniform draws or more: the largest misses the bound by 1 in 1000, with room for ten times that.
        assert 0.99 * 0.25 < float(tensor.abs().max()) <= 0.25
        assert tensor.dtype == torch.float32


@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)),
        nn.Sequential(nn.Linear(2, 3), nn.ReLU()),
        nn.Sequential(nn.Conv1d(1, 1, 1)),
        nn.Sequential(nn.Linear(2, 3, bias=False)),
        nn.Sequential(),
    ],
)
def test_other_layers_are_refused(module: nn.Sequential):
    with pytest.raises(ValueError, match="Linear"):
        mlp.from_module(module)
