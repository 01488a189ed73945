r"""Two-layer ReLU networks with hidden biases and no output bias, homogeneous of degree 2 in their parameters.

$$ \Phi(\theta; x) = \sum_{j \le k} v_j\, [w_j^\top x + b_j]_+ $$

Parameters are plain tensors; leading dimensions are independent networks. Training lives in `kkt_margin.margin_flow`.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from leakage import draws
from leakage.draws import gaussian

HIDDEN_SCALE = 1e-4
"""Standard deviation of the initial hidden weights and biases in Haim et al. (2022)."""
_MOST_ACTIVATIONS = 2**18  # of one chunk of points: 2 MiB in float64 stay in the cache


@dataclass(frozen=True, eq=False)
class TwoLayer:
    """The parameters $w_j$, $b_j$, $v_j$ of one network, or of as many as the leading dimensions hold."""

    weights: Float[Tensor, "*b k d"]
    biases: Float[Tensor, "*b k"]
    outputs: Float[Tensor, "*b k"]

    def __getitem__(self, index: int | slice) -> "TwoLayer":
        """The networks at `index` of the first leading dimension."""
        return TwoLayer(self.weights[index], self.biases[index], self.outputs[index])

    def to(self, kind: torch.dtype) -> "TwoLayer":
        """The same networks in another precision."""
        return TwoLayer(self.weights.to(kind), self.biases.to(kind), self.outputs.to(kind))

    def preactivations(self, points: Float[Tensor, "... t d"]) -> Float[Tensor, "... t k"]:
        r"""$w_j^\top x + b_j$ of every point and neuron."""
        return points @ self.weights.mT + self.biases.unsqueeze(-2)

    def __call__(
        self,
        points: Float[Tensor, "... t d"],
        *,
        generator: torch.Generator | None = None,
        spread: Tensor | None = None,
    ) -> Float[Tensor, "... t"]:
        r"""$\Phi(\theta; x)$ at every point, a chunk of points at a time.

        Args:
            generator: draws the part of the pre-activations that `spread` describes, in float32. On a GPU a generator
                of the GPU does, seeded by this one: drawn by a CPU, 10 networks of 10,000 neurons at 5,000 points
                would take 4 s, longer than their training.
            spread: `(*b, t)`; each pre-activation of a point gets an independent $N(0, \text{spread}^2)$ added. It
                replaces the weights in directions that no training point reaches (`kkt_margin.mixtures`). If it is 0
                everywhere, nothing is drawn.
        """
        spread = spread if spread is not None and bool(spread.any()) else None
        step = max(1, _MOST_ACTIVATIONS // max(1, math.prod(self.biases.shape)))
        leading = torch.broadcast_shapes(points.shape[:-2], self.biases.shape[:-1])
        found = points.new_empty((*leading, points.shape[-2]))
        if spread is not None:
            assert generator is not None, "something has to be drawn"
            generator = draws.generator_on(points.device, generator)
        for start in range(0, points.shape[-2], step):
            chunk = slice(start, start + step)
            hidden = self.preactivations(points[..., chunk, :])
            if spread is not None and generator is not None:
                noise = draws.gaussian(hidden.shape, generator=generator, like=hidden, dtype=torch.float32)
                hidden.addcmul_(spread[..., chunk, None], noise)
            found[..., chunk] = (hidden.clamp_min_(0) @ self.outputs.unsqueeze(-1)).squeeze(-1)
        return found

    def squared_norm(self) -> Float[Tensor, "*b"]:
        r"""$\lVert\theta\rVert^2$ over all three groups of parameters."""
        return self.weights.square().sum((-2, -1)) + self.biases.square().sum(-1) + self.outputs.square().sum(-1)


def cosine(first: TwoLayer, second: TwoLayer) -> Float[Tensor, "*b"]:
    r"""The cosine of the angle between the parameters of two networks of one shape; no positive factor changes it."""
    # In units of the largest parameter: the squares of very large or small ones leave the range of a float.
    one, other = (torch.cat([net.weights.flatten(-2), net.biases, net.outputs], dim=-1) for net in (first, second))
    one, other = (part / part.abs().amax(-1, keepdim=True) for part in (one, other))
    return (one * other).sum(-1) / (one.norm(dim=-1) * other.norm(dim=-1))


def initial(
    runs: tuple[int, ...],
    width: int,
    dimension: int,
    *,
    generator: torch.Generator,
    hidden_scale: float = HIDDEN_SCALE,
    output_scale: float = 1.0,
) -> TwoLayer:
    r"""Networks at the initialisation of Haim et al. (2022): small hidden layer, PyTorch's default output layer.

    $w_j, b_j \sim N(0, \text{hidden\_scale}^2)$ and $v_j \sim \text{output\_scale} \cdot U(-1, 1)/\sqrt k$, so that
    $\lVert v(0) \rVert^2 \approx \text{output\_scale}^2/3$ at any width.
    """
    hidden = hidden_scale * gaussian((*runs, width, dimension + 1), generator=generator)
    uniform = draws.uniform((*runs, width), generator=generator, dtype=hidden.dtype)
    outputs = output_scale * (2 * uniform - 1) / math.sqrt(width)
    return TwoLayer(hidden[..., :-1], hidden[..., -1], outputs)
