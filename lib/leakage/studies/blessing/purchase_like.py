r"""A synthetic stand-in for Purchase-100: shoppers as bits, classes as mixtures of buying styles.

Each class has a few prototypes of random bits; a shopper picks a prototype of the class and every bit of it is flipped
with a small probability. What makes it easy or hard is in the arguments. It shares the shape of Purchase-100, 600 bits
and 100 classes, and no more: it stands in for the download, not for the shoppers. Nothing here reads a file.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from leakage.arguments import count, number

FEATURES, CLASSES = 600, 100


@dataclass(frozen=True, eq=False)
class PurchaseLike:
    """Shoppers with their classes.

    Attributes:
        features: 1 where a product was bought, else 0.
        labels: the class, from 0.
        prototypes: the bits before flipping.
        styles: which prototype of the class each shopper comes from.
    """

    features: UInt8[Tensor, "n features"]
    labels: Int64[Tensor, " n"]
    prototypes: UInt8[Tensor, "classes styles features"]
    styles: Int64[Tensor, " n"]

    def __len__(self) -> int:
        return len(self.labels)


def draw(
    n: int,
    *,
    generator: torch.Generator,
    features: int = FEATURES,
    classes: int = CLASSES,
    styles: int = 3,
    density: float = 0.15,
    flip: float = 0.1,
) -> PurchaseLike:
    r"""Draw shoppers: class and style uniform, $x_j = c_j \oplus \mathrm{Bernoulli}(\text{flip})$, prototypes
    $c_j \sim \mathrm{Bernoulli}(\text{density})$.

    Args:
        n: shoppers.
        generator: source of randomness; its device is the result's.
        features: bits of a shopper.
        classes: number of classes.
        styles: prototypes of a class.
        density: share of ones in a prototype, in (0, 1).
        flip: chance that a bit is flipped, in [0, 0.5).

    Raises:
        ValueError: if a size is below 1, or `density` or `flip` is out of range.
    """
    n, features = count("n", n, least=1), count("features", features, least=1)
    classes, styles = count("classes", classes, least=1), count("styles", styles, least=1)
    density = number("density", density, above=0.0, below=1.0)
    flip = number("flip", flip, least=0.0, below=0.5)  # half of the bits flipped leaves nothing
    device = generator.device
    prototypes = (
        torch.rand(classes, styles, features, dtype=torch.float32, generator=generator, device=device) < density
    )
    labels = torch.randint(classes, (n,), generator=generator, device=device)
    style = torch.randint(styles, (n,), generator=generator, device=device)
    flipped = torch.rand(n, features, dtype=torch.float32, generator=generator, device=device) < flip
    bits = prototypes[labels, style] ^ flipped
    return PurchaseLike(bits.to(torch.uint8), labels, prototypes.to(torch.uint8), style)
