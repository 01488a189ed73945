r"""A convolutional ReLU network with one output, homogeneous of degree 3 in its parameters.

Two 3 × 3 convolutions that keep the size of the image, each followed by a ReLU, and a linear layer. Only the first has
biases: one further up would spoil the homogeneity. The module is a form without parameters (they are on PyTorch's
`meta` device); `torch.func.functional_call` fills it in with those that `initial` draws. Nothing here trains.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from leakage.models import initialisation
from leakage.runtime import DTYPE

_FIRST_SCALE = 0.1


class Convolutional(nn.Module):
    r"""$\Phi(\theta; x) = \langle v, [W_2 * [W_1 * x + b_1]_+]_+ \rangle$ for flattened square images $x$.

    Args:
        side: pixels of a side of the images.
        width: channels after the first convolution; after the second there are twice as many.
    """

    def __init__(self, side: int, *, width: int = 32) -> None:
        super().__init__()
        self.side, width = side, width
        with torch.device("meta"):  # where PyTorch's own initialisation draws nothing
            self.lower = nn.Conv2d(1, width, 3, padding=1)
            self.upper = nn.Conv2d(width, 2 * width, 3, padding=1, bias=False)
            self.output = nn.Linear(2 * width * side**2, 1, bias=False)

    def forward(self, points: Float[Tensor, "t d"]) -> Float[Tensor, " t"]:
        r"""$\Phi$ of images given row by row, $d = \text{side}^2$."""
        # With the channel last in memory: the convolutions keep this order, and are a fifth faster in it on a CPU.
        images = points.reshape(-1, self.side, self.side, 1).permute(0, 3, 1, 2)
        hidden = self.upper(self.lower(images).relu()).relu()
        # The weights are put into this order, not the images back into theirs: no copy for each of them, nor one of
        # its gradient.
        weights = self.output.weight.view(-1, self.side, self.side).permute(1, 2, 0)
        return hidden.permute(0, 2, 3, 1).flatten(1) @ weights.flatten()


def initial(module: Convolutional, runs: int, *, generator: torch.Generator) -> dict[str, Tensor]:
    r"""Parameters of `runs` networks, stacked, at PyTorch's default initialisation with a smaller first convolution.

    Weights and biases of a layer are $U(-1, 1)/\sqrt{\text{fan-in}}$, those of the first convolution a tenth of that:
    the part that the small hidden weights play in `two_layer.initial`.
    """
    drawn = initialisation.initial(module, runs, generator=generator, dtype=DTYPE).parameters
    return {name: tensor * (_FIRST_SCALE if name.startswith("lower") else 1.0) for name, tensor in drawn.items()}
