"""Random numbers for tensors on any device: drawn where the generator is, then moved.

So a generator of the CPU gives the same numbers on every device. No other module of the library draws by itself, but
for the gamma draws of `data.gaussians`.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from leakage.precision import DTYPE


def gaussian(
    size: Sequence[int], *, generator: torch.Generator, like: Tensor | None = None, dtype: torch.dtype | None = None
) -> Tensor:
    """Independent standard normal draws of shape `size`, on the device of `like`, or of the generator without it.

    `dtype` is by default that of `like`, or float64.
    """
    own, device = _form(generator, like)
    return torch.randn(size, generator=generator, device=generator.device, dtype=dtype or own).to(device)


def uniform(
    size: Sequence[int], *, generator: torch.Generator, like: Tensor | None = None, dtype: torch.dtype | None = None
) -> Tensor:
    """Independent draws from [0, 1) of shape `size`; otherwise as `gaussian`."""
    own, device = _form(generator, like)
    return torch.rand(size, generator=generator, device=generator.device, dtype=dtype or own).to(device)


def integers(high: int, size: Sequence[int], *, generator: torch.Generator, like: Tensor | None = None) -> Tensor:
    """Independent whole numbers from 0 to `high` - 1, on the device of `like`, or of the generator without it."""
    drawn = torch.randint(high, size, generator=generator, device=generator.device)
    return drawn.to(_form(generator, like)[1])


def permutation(count: int, *, generator: torch.Generator, like: Tensor | None = None) -> Int[Tensor, " count"]:
    """0 to `count` - 1 in a random order, on the device of `like`, or of the generator without it."""
    drawn = torch.randperm(count, generator=generator, device=generator.device)
    return drawn.to(_form(generator, like)[1])


def generator_on(device: torch.device, generator: torch.Generator) -> torch.Generator:
    """The generator if it draws on this device; else one that does, seeded by the next number of the given one.

    For the few draws that would cost a GPU more than a third of its step if the CPU made them. On a GPU these are other
    numbers than on a CPU; the functions that use them say so.
    """
    if generator.device.type == device.type:
        return generator
    return torch.Generator(device).manual_seed(int(integers(2**62, (), generator=generator)))


def _form(generator: torch.Generator, like: Tensor | None) -> tuple[torch.dtype, torch.device]:
    return (DTYPE, generator.device) if like is None else (like.dtype, like.device)
