r"""A convolutional ReLU network with one output, homogeneous of degree 3 in its parameters.

Two 3 × 3 convolutions that keep the size of the image, each followed by a ReLU, and a linear layer. Only the first has
biases: one further up would spoil the homogeneity. The module is a form without parameters (they are on PyTorch's
`meta` device); `torch.func.functional_call` fills it in with those that `initial` draws. Nothing here trains.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from leakage import arguments
from leakage.runtime import DTYPE


class Convolutional(nn.Module):
    r"""$\Phi(\theta; x) = \langle v, [W_2 * [W_1 * x + b_1]_+]_+ \rangle$ for flattened square images $x$.

    Args:
        side: pixels of a side of the images.
        width: channels after the first convolution; after the second there are twice as many.

    Raises:
        ValueError: if the side or the width is not positive.
    """

    def __init__(self, side: int, *, width: int = 32) -> None:
        super().__init__()
        self.side, width = arguments.count("side", side, least=1), arguments.count("width", width, least=1)
        with torch.device("meta"):  # where PyTorch's own initialisation draws nothing
            self.lower = nn.Conv2d(1, width, 3, padding=1)
            self.upper = nn.Conv2d(width, 2 * width, 3, padding=1, bias=False)
            self.output = nn.Linear(2 * width * side**2, 1, bias=False)

    def forward(self, points: Float[Tensor, "t d"]) -> Float[Tensor, " t"]:
        r"""$\Phi$ of images given row by row, $d = \text{side}^2$."""
        images = points.reshape(-1, 1, self.side, self.side)
        hidden = self.upper(self.lower(images).relu()).relu()
        return self.output(hidden.flatten(1)).squeeze(-1)


def initial(
    module: Convolutional, runs: int, *, generator: torch.Generator, first_scale: float = 0.1
) -> dict[str, Tensor]:
    r"""Parameters of `runs` networks, stacked, at PyTorch's default initialisation with a smaller first convolution.

    Weights and biases of a layer are $U(-1, 1)/\sqrt{\text{fan-in}}$, those of the first convolution multiplied by
    `first_scale`: the part that the small hidden weights play in `two_layer.initial`.

    Raises:
        ValueError: if there is no run, or the scale is negative.
    """
    runs, first_scale = arguments.count("runs", runs, least=1), arguments.number("first_scale", first_scale, least=0)
    parameters = {}
    for layer in ("lower", "upper", "output"):
        bound = 1 / math.sqrt(module.get_parameter(f"{layer}.weight")[0].numel())
        scale = bound * (first_scale if layer == "lower" else 1.0)
        for name, form in module.get_submodule(layer).named_parameters():
            uniform = torch.rand((runs, *form.shape), generator=generator, device=generator.device, dtype=DTYPE)
            parameters[f"{layer}.{name}"] = scale * (2 * uniform - 1)
    return parameters
