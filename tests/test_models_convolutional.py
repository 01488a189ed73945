"""The convolutional network is what its formula says, and homogeneous of degree 3."""

import math

import pytest
import torch
from torch import nn
from torch.func import functional_call

from leakage.models.convolutional import Convolutional, initial
from leakage.runtime import DTYPE, stream


def network(side=6, width=3):
    """A module, the parameters of one network, and some images."""
    module = Convolutional(side, width=width)
    stacked = initial(module, 1, generator=stream(0, "network"))
    points = torch.rand((5, side**2), generator=stream(0, "points"), dtype=DTYPE)
    return module, {name: tensor[0] for name, tensor in stacked.items()}, points


def by_hand(parameters, points, side):
    """Convolutions as sums over shifted images."""

    def convolve(channels, kernels):
        padded = nn.functional.pad(channels, (1, 1, 1, 1))
        shifts = [[padded[..., i : i + side, j : j + side] for j in range(3)] for i in range(3)]
        return sum(torch.einsum("tchw,oc->tohw", shifts[i][j], kernels[:, :, i, j]) for i in range(3) for j in range(3))

    hidden = convolve(points.reshape(-1, 1, side, side), parameters["lower.weight"])
    hidden = (hidden + parameters["lower.bias"][:, None, None]).clamp_min(0)
    hidden = convolve(hidden, parameters["upper.weight"]).clamp_min(0)
    return hidden.flatten(1) @ parameters["output.weight"][0]


def test_the_outputs_are_those_of_the_formula():
    module, parameters, points = network()
    found = functional_call(module, parameters, (points,))
    torch.testing.assert_close(found, by_hand(parameters, points, 6), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("scale", [0.5, 3.0])
def test_scaling_all_parameters_scales_the_output_by_the_third_power(scale):
    module, parameters, points = network()
    scaled = functional_call(module, {name: scale * tensor for name, tensor in parameters.items()}, (points,))
    expected = scale**3 * functional_call(module, parameters, (points,))
    assert float(expected.abs().min()) > 0
    torch.testing.assert_close(scaled, expected, rtol=1e-12, atol=0)


def test_the_parameters_times_their_gradient_are_three_times_the_output():
    module, parameters, points = network()
    parameters = {name: tensor.requires_grad_() for name, tensor in parameters.items()}
    output = functional_call(module, parameters, (points[:1],)).sum()
    gradients = torch.autograd.grad(output, list(parameters.values()))
    inner = sum((tensor * g).sum() for tensor, g in zip(parameters.values(), gradients, strict=True))
    torch.testing.assert_close(inner, 3 * output, rtol=1e-12, atol=0)  # Euler's theorem


def test_the_paper_s_sizes_are_the_default():
    shapes = {name: tuple(form.shape) for name, form in Convolutional(28).named_parameters()}
    assert shapes == {
        "lower.weight": (32, 1, 3, 3),
        "lower.bias": (32,),
        "upper.weight": (64, 32, 3, 3),
        "output.weight": (1, 64 * 28 * 28),
    }


def test_the_initial_law_is_pytorchs_default_with_a_smaller_first_layer():
    module = Convolutional(8)
    stacked = initial(module, 4, generator=stream(0, "law"))
    bounds = {
        "lower.weight": 0.1 / 3,
        "lower.bias": 0.1 / 3,
        "upper.weight": 1 / math.sqrt(288),
        "output.weight": 1 / 64,
    }
    assert stacked.keys() == bounds.keys()
    torch.manual_seed(0)
    default = nn.Conv2d(32, 64, 3, padding=1, bias=False).weight  # what PyTorch itself draws
    assert float(default.detach().abs().max()) == pytest.approx(bounds["upper.weight"], rel=1e-3)
    for name, bound in bounds.items():
        tensor = stacked[name]
        assert tensor.dtype == DTYPE
        assert float(tensor.abs().max()) <= bound
        # The variance of U(-b, b) is b²/3, that of its square 4b⁴/45.
        error = abs(float(tensor.square().mean()) / bound**2 - 1 / 3)
        assert error < 4 * math.sqrt(4 / 45 / tensor.numel())


def test_runs_start_from_different_parameters_and_a_stream_repeats_them():
    module = Convolutional(4, width=2)
    first, again = (initial(module, 2, generator=stream(0, "runs")) for _ in range(2))
    for name, tensor in first.items():
        torch.testing.assert_close(tensor, again[name])
        assert not torch.allclose(tensor[0], tensor[1])


def test_making_the_form_draws_nothing():
    state = torch.random.get_rng_state()
    assert all(form.is_meta for form in Convolutional(8).parameters())
    torch.testing.assert_close(torch.random.get_rng_state(), state)


def test_no_networks_are_refused():
    with pytest.raises(ValueError, match="`models` must be a whole number at least 1, got 0"):
        initial(Convolutional(4, width=2), 0, generator=stream(0, "x"))
