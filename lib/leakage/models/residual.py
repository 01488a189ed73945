r"""ResNet18(w): eighteen convolutional layers with shortcuts, for images of 32 × 32 pixels.

Four stages of two blocks have w, 2w, 4w and 8w channels; w = 64 is the usual network. Batch normalisation keeps running
means as *buffers*: in training mode every forward pass changes those it is given, in place. The module is a form
without parameters (they are on PyTorch's `meta` device); `models.initialisation` draws them. Nothing here trains.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn


class Block(nn.Module):
    """Two normalised 3 × 3 convolutions beside a shortcut, added and rectified."""

    def __init__(self, inputs: int, outputs: int, *, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride > 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, images: Float[Tensor, "b in h w"]) -> Float[Tensor, "b out h2 w2"]:
        """The block's output, half as high and wide where the stride is 2."""
        hidden = self.first_norm(self.first(images)).relu()
        return (self.second_norm(self.second(hidden)) + self.shortcut(images)).relu()


class ResNet18(nn.Module):
    r"""Logits of images; it has $2724 w^2 + (177 + 8k) w + k$ parameters for k classes of colour images.

    Source: He et al. (2016), with the first layer usual for small images, a 3 × 3 convolution without pooling; widths
    as in Tan et al. (2023), section F. They normalise batches, and so does this; models trained together never share
    a mean, because each has buffers of its own.

    Args:
        width: w, channels of the first stage.
        classes: k.
        channels: of the images.
    """

    def __init__(self, width: int, *, classes: int = 10, channels: int = 3) -> None:
        super().__init__()
        with torch.device("meta"):  # where PyTorch's own initialisation draws nothing
            self.stem = nn.Conv2d(channels, width, 3, padding=1, bias=False)
            self.stem_norm = nn.BatchNorm2d(width)
            blocks, inputs = [], width
            for stage in range(4):
                outputs = width * 2**stage
                blocks += [
                    Block(inputs, outputs, stride=1 if stage == 0 else 2),
                    Block(outputs, outputs, stride=1),
                ]
                inputs = outputs
            self.blocks = nn.Sequential(*blocks)
            self.output = nn.Linear(inputs, classes)

    def forward(self, images: Float[Tensor, "b channels h w"]) -> Float[Tensor, "b classes"]:
        """Logits, from the mean over what is left of height and width."""
        hidden = self.stem_norm(self.stem(images)).relu()
        return self.output(self.blocks(hidden).mean((-2, -1)))
