"""The networks that are attacked, trained on Gaussian points or digits, and their answers to members and outsiders."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.func import functional_call

from leakage.data import mixtures
from leakage.data.images import balanced_split, parity, resize
from leakage.models import initialisation, two_layer
from leakage.models.two_layer import TwoLayer
from leakage.precision import DTYPE
from leakage.trainers import margin_flow
from leakage.trainers.margin_flow import Descent
from reproduced.runtime import stream

_FIRST_SCALE = 0.1  # of the first convolution's initial weights
_CHUNK = 256  # images whose outputs are computed at once


class Answers(NamedTuple):
    r"""Answers of networks: $q_i = y_i \Phi(x_i)$ at their training points, $\Phi(x)$ at fresh points."""

    margins: Float[Tensor, "runs n"]
    fresh: Float[Tensor, "runs t"]


class Targets(NamedTuple):
    """`Answers` of trained networks, labels of fresh points, steps of each network, and answers at earlier steps."""

    margins: Float[Tensor, "runs n"]
    fresh: Float[Tensor, "runs t"]
    fresh_labels: Float[Tensor, "runs t"]
    steps: Int[Tensor, " runs"]
    snapshots: tuple[Answers, ...] = ()


# ── Gaussian points ──────────────────────────────────────────────────────────────────────────────────────────────────


def train_on_gaussians(
    dimension: int,
    *,
    law: str | mixtures.Law = "mixture",
    rows: int,
    width: int,
    fresh: int,
    runs: int,
    descent: Descent,
    seed: int,
    snapshots: Sequence[int] = (),
    hidden_scale: float = two_layer.HIDDEN_SCALE,
    output_scale: float = 1.0,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = DTYPE,
) -> Targets:
    r"""Train `runs` two-layer networks on `rows` points each of a Gaussian law and ask them about `fresh` others.

    The cost does not depend on the dimension once it exceeds `rows`. One seed gives the same draws for every descent
    and dtype, so that these are compared in pairs. `snapshots` are step counts at which the networks are asked, too.
    """
    name = f"{law}/{dimension}/{rows}/{width}"
    draws = stream(seed, f"points/{name}")
    sample = mixtures.draw_sample(law, rows=rows, fresh=fresh, dimension=dimension, runs=runs, generator=draws).to(
        dtype
    )
    start = two_layer.initial(
        (runs,),
        width,
        sample.train.shape[-1],
        generator=stream(seed, f"weights/{name}"),
        hidden_scale=hidden_scale,
        output_scale=output_scale,
    )
    trained = margin_flow.train(start.to(dtype), sample.train, sample.labels, descent, snapshots=snapshots)

    def ask_fresh(model: TwoLayer) -> Tensor:
        draws = stream(seed, f"unseen/{name}")
        return fresh_outputs(model, sample, draws, hidden_scale=hidden_scale).to(DTYPE)

    earlier = [Answers((sample.labels * one(sample.train)).to(DTYPE), ask_fresh(one)) for one in trained.snapshots]
    labels = sample.fresh_labels.to(DTYPE)
    return Targets(trained.margins.to(DTYPE), ask_fresh(trained.model), labels, trained.steps, tuple(earlier))


def fresh_outputs(
    model: TwoLayer,
    sample: mixtures.Sample,
    generator: torch.Generator,
    *,
    hidden_scale: float = two_layer.HIDDEN_SCALE,
) -> Tensor:
    r"""$\Phi(x)$ of networks trained on `sample.train` at `sample.fresh`, with the weights off the span as they began.

    No gradient ever moves those weights, so their contribution to a pre-activation is
    $N(0, \text{hidden\_scale}^2 \cdot \text{radius}^2)$ whatever the training. Drawing it anew for each fresh point
    gives each answer its exact law; only correlations between answers of one network are dropped.
    """
    return model(sample.fresh, generator=generator, spread=hidden_scale * sample.radius)


def candidate_groups(
    *, member: Float[Tensor, "*b n"], outsider: Float[Tensor, "*b t"], size: int = 10
) -> Float[Tensor, "*b groups size"]:
    """Candidates for `find_member`: the outsiders in groups of `size - 1`, each with one member in the last place."""
    groups = outsider.shape[-1] // (size - 1)
    innocent = outsider[..., : groups * (size - 1)].unflatten(-1, (groups, size - 1))
    turns = torch.arange(groups, device=member.device) % member.shape[-1]
    return torch.cat([innocent, member[..., turns].unsqueeze(-1)], dim=-1)


# ── digits ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def train_on_digits(
    side: int,
    *,
    images: Float[Tensor, "N s s"],
    digits: Int[Tensor, " N"],
    network: str,
    width: int,
    rows_per_class: int,
    fresh: int,
    runs: int,
    descent: Descent,
    centred: bool,
    seed: int,
) -> Targets:
    r"""Train `runs` networks to tell even from odd digits, at one side length of Figures 2 and 3.

    All sides, networks and descents see the same random balanced sets for the same seed, so that they can be compared
    in pairs. The paper leaves open how the images are scaled, which are drawn, and what the labels are; these choices
    are ours: the images, grey values in [0, 1], are shrunk to `side` pixels a side; even digits are +1, odd are -1.
    `width` is the number of neurons of the hidden layer, or of channels of the first convolution. `centred` subtracts
    the mean of the training points, from the fresh ones too.
    """
    labels = parity(digits, dtype=images.dtype)
    draws = stream(seed, "image splits")
    split = balanced_split(labels, rows_per_class=rows_per_class, fresh=fresh, runs=runs, generator=draws)
    points = resize(images, side=side).flatten(1)
    train = points[split.train]
    centre = train.mean(-2, keepdim=True) if centred else torch.zeros_like(train[:, :1])
    draws = stream(seed, f"image networks/{network}/{side}")
    margins, steps, predict = NETWORKS[network](train - centre, labels[split.train], side, width, descent, draws)
    # A run at a time: the fresh points of all runs together would be many copies of the images.
    found = [predict(run, points[split.fresh[run]] - centre[run]) for run in range(runs)]
    return Targets(margins, torch.stack(found), labels[split.fresh], steps)


_Fit = tuple[Float[Tensor, "runs n"], Int[Tensor, " runs"], Callable[[int, Tensor], Tensor]]
"""Margins and steps of trained networks, and the outputs of one of them at given points."""


def _two_layer(
    points: Tensor, labels: Tensor, side: int, width: int, descent: Descent, generator: torch.Generator
) -> _Fit:
    start = two_layer.initial((len(points),), width, side**2, generator=generator).to(points.dtype)
    trained = margin_flow.train(start, points, labels, descent)
    return trained.margins, trained.steps, lambda run, asked: trained.model[run](asked)


def _convolutional(
    points: Tensor, labels: Tensor, side: int, width: int, descent: Descent, generator: torch.Generator
) -> _Fit:
    module = Convolutional(side, width=width)
    start = initial_convolutional(module, len(points), generator=generator)
    trained = []
    for run in range(len(points)):
        own = {name: part[run].to(points) for name, part in start.items()}
        trained.append(margin_flow.train_module(module, own, points[run], labels[run], descent))

    @torch.no_grad()
    def predict(run: int, asked: Tensor) -> Tensor:
        return torch.cat([functional_call(module, trained[run].model, (part,)) for part in asked.split(_CHUNK)])

    margins, steps = (torch.stack(parts) for parts in zip(*((one.margins, one.steps) for one in trained), strict=True))
    return margins, steps, predict


class Convolutional(nn.Module):
    r"""$\Phi(\theta; x) = \langle v, [W_2 * [W_1 * x + b_1]_+]_+ \rangle$ for flattened square images $x$.

    The 3 × 3 convolutions keep the size of the image. Only the first has biases, so that $\Phi$ is homogeneous of
    degree 3 in its parameters. These are on PyTorch's `meta` device; `initial_convolutional` draws real ones.

    Args:
        side: pixels of a side of the images.
        width: channels after the first convolution; after the second there are twice as many.
    """

    def __init__(self, side: int, *, width: int = 32) -> None:
        super().__init__()
        self.side, self.width = side, width
        with torch.device("meta"):  # where PyTorch's own initialisation draws nothing
            self.lower = nn.Conv2d(1, width, 3, padding=1)
            self.upper = nn.Conv2d(width, 2 * width, 3, padding=1, bias=False)
            self.output = nn.Linear(2 * width * side**2, 1, bias=False)

    def forward(self, points: Float[Tensor, "t d"]) -> Float[Tensor, " t"]:
        r"""$\Phi$ of images given row by row, $d = \text{side}^2$."""
        # With the channel last in memory: the convolutions keep this order, and are a fifth faster in it on a CPU.
        images = points.reshape(-1, self.side, self.side, 1).permute(0, 3, 1, 2)
        hidden = self.upper(self.lower(images).relu()).relu()
        weights = self.output.weight.view(-1, self.side, self.side).permute(1, 2, 0)  # in the same order: no copies
        return hidden.permute(0, 2, 3, 1).flatten(1) @ weights.flatten()


def initial_convolutional(module: Convolutional, runs: int, *, generator: torch.Generator) -> dict[str, Tensor]:
    r"""Parameters of `runs` networks, stacked, at PyTorch's default initialisation with a smaller first convolution.

    Weights and biases of a layer are $U(-1, 1)/\sqrt{\text{fan-in}}$, those of the first convolution a tenth of that:
    it plays the part of the small hidden weights in `two_layer.initial`.
    """
    drawn = initialisation.initial(module, runs, generator=generator, dtype=DTYPE).parameters
    return {name: tensor * (_FIRST_SCALE if name.startswith("lower") else 1.0) for name, tensor in drawn.items()}


NETWORKS: Mapping[str, Callable[[Tensor, Tensor, int, int, Descent, torch.Generator], _Fit]] = {
    "two-layer": _two_layer,
    "convolutional": _convolutional,
}
"""How the networks of Figures 2 and 3 are trained, by name."""
