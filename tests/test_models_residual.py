"""ResNet18(w) has the size and the shapes of the known network, and normalises over batches."""

import pytest
import torch
from torch import nn
from torch.func import functional_call

from leakage.models.initialisation import initial
from leakage.models.residual import ResNet18
from leakage.runtime import stream


@pytest.mark.parametrize(("width", "classes"), [(1, 10), (4, 3), (64, 10)])
def test_the_number_of_parameters_is_the_closed_form(width, classes):
    found = sum(tensor.numel() for tensor in ResNet18(width, classes=classes).parameters())
    assert found == 2724 * width**2 + (177 + 8 * classes) * width + classes


def test_the_usual_width_has_the_published_number_of_parameters():
    # That of the usual variant for CIFAR-10; the ImageNet form has another first layer and 1,000 classes.
    assert sum(tensor.numel() for tensor in ResNet18(64).parameters()) == 11_173_962


def test_eighteen_layers_have_weights_beside_three_shortcuts():
    layers = [layer for layer in ResNet18(2).modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    shortcuts = [layer for layer in layers if isinstance(layer, nn.Conv2d) and layer.kernel_size == (1, 1)]
    assert (len(layers) - len(shortcuts), len(shortcuts)) == (18, 3)


def test_there_is_a_logit_for_every_class_and_the_last_stage_is_an_eighth_as_wide():
    module = ResNet18(2)
    stack = initial(module, 1, generator=stream(0, "residual"))
    state = {name: tensor[0] for name, tensor in (stack.parameters | stack.buffers).items()}
    sizes = []
    module.blocks[-1].register_forward_hook(lambda _, __, output: sizes.append(tuple(output.shape)))
    images = torch.rand(3, 3, 32, 32, generator=stream(0, "images"))
    assert functional_call(module, state, (images,)).shape == (3, 10)
    assert sizes == [(3, 16, 4, 4)]


def test_in_evaluation_an_image_does_not_depend_on_the_others():
    module = ResNet18(2)
    stack = initial(module, 1, generator=stream(0, "residual"))
    state = {name: tensor[0] for name, tensor in (stack.parameters | stack.buffers).items()}
    images = torch.rand(4, 3, 32, 32, generator=stream(0, "images"))
    together, alone = (functional_call(module.train(), state, (some,))[:1] for some in (images, images[:2]))
    assert not torch.allclose(together, alone)
    together, alone = (functional_call(module.eval(), state, (some,))[:1] for some in (images, images[:2]))
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)  # float32 through 18 layers
