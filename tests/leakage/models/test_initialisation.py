"""Stacks of networks come from named streams, with PyTorch's laws."""

import pytest
import torch
from torch import nn

from leakage.models.initialisation import initial
from leakage.precision import DTYPE
from reproduced.runtime import stream

NORMALISED = nn.Sequential(nn.Conv2d(3, 2, 3), nn.BatchNorm2d(2))


def draw(module, models=3, **settings):
    return initial(module, models, generator=stream(0, "networks"), **settings)


@pytest.mark.parametrize(
    "make",
    [lambda: NORMALISED, lambda: nn.Sequential(nn.Embedding(7, 4), nn.LayerNorm(4)), lambda: nn.Linear(3, 2)],
    ids=["convolution and batch norm", "embedding and layer norm", "linear layer"],
)
def test_every_parameter_and_buffer_is_there_once_a_model(make):
    module = make()
    stack = draw(module)
    forms = dict(module.named_parameters()) | dict(module.named_buffers())
    found = stack.parameters | stack.buffers
    assert {name: tuple(tensor.shape) for name, tensor in found.items()} == {
        name: (3, *form.shape) for name, form in forms.items()
    }
    assert len(stack) == 3
    assert {tensor.dtype for tensor in stack.parameters.values()} == {torch.float32}
    assert {tensor.dtype for tensor in draw(module, dtype=DTYPE).parameters.values()} == {DTYPE}


def test_weights_fill_the_range_of_pytorchs_default():
    layer = nn.Conv2d(8, 50, 3)
    bound = 1 / (8 * 9) ** 0.5
    weights = draw(layer, dtype=DTYPE).parameters["weight"]
    assert float(weights.abs().max()) <= bound
    # 10,800 uniform numbers: the standard error of their second moment is 0.9 % of it.
    assert float(weights.square().mean()) == pytest.approx(bound**2 / 3, rel=0.05)
    theirs = layer.weight.detach().square().mean()
    assert float(theirs) == pytest.approx(bound**2 / 3, rel=0.1)
    assert not torch.allclose(weights[0], weights[1])


def test_normalisation_starts_as_the_identity():
    stack = draw(nn.Sequential(nn.BatchNorm2d(4), nn.LayerNorm(4)))
    assert all(bool((stack.parameters[f"{layer}.weight"] == 1).all()) for layer in (0, 1))
    assert all(bool((stack.parameters[f"{layer}.bias"] == 0).all()) for layer in (0, 1))
    assert bool((stack.buffers["0.running_var"] == 1).all())
    assert bool((stack.buffers["0.running_mean"] == 0).all())
    assert stack.buffers["0.num_batches_tracked"].tolist() == [0, 0, 0]


def test_unknown_layers_are_refused():
    with pytest.raises(ValueError, match=r"`module` has a GRU at '1'; known are Linear, Conv2d, .*stack_module_state"):
        draw(nn.Sequential(nn.Linear(2, 2), nn.GRU(2, 2)))
