"""Random small changes that leave an image what it is: shifts by a few pixels, and mirror images.

Whole batches of several models are changed at once, every image in a way of its own. Nothing here reads a file.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from leakage.arguments import count


def shift_and_flip(
    images: Float[Tensor, "*b channels h w"], generator: torch.Generator, *, pixels: int = 4
) -> Float[Tensor, "*b channels h w"]:
    """Each image shifted by up to `pixels` either way, zeros moving in, and mirrored with probability one half.

    The shifts are uniform on the whole numbers from -`pixels` to `pixels`, independent in height and width. Zeros are
    the mean colour of standardised images.

    Raises:
        ValueError: if `pixels` is negative or not less than the images' sides.
    """
    *batch, _, height, width = images.shape
    pixels = count("pixels", pixels, most=min(height, width) - 1)
    device = images.device
    down, right = torch.randint(-pixels, pixels + 1, (2, *batch), generator=generator, device=device)
    mirrored = torch.rand(batch, dtype=torch.float32, generator=generator, device=device) < 0.5
    rows = torch.arange(height, device=device) - down[..., None]
    columns = torch.arange(width, device=device) - right[..., None]
    inside = ((rows >= 0) & (rows < height))[..., :, None] & ((columns >= 0) & (columns < width))[..., None, :]
    columns = torch.where(mirrored[..., None], width - 1 - columns, columns)
    # What lies outside is read anywhere and then set to zero.
    moved = images.gather(-2, rows.clamp(0, height - 1)[..., None, :, None].expand_as(images))
    moved = moved.gather(-1, columns.clamp(0, width - 1)[..., None, None, :].expand_as(images))
    return moved * inside.unsqueeze(-3)
