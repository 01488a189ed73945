"""The networks that are attacked, trained on Gaussian points or digits, and their answers to members and outsiders."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.func import functional_call

from leakage.data.images import balanced_split, parity, resize
from leakage.models import initialisation
from leakage.precision import DTYPE
from reproduced.papers.kkt_margin import margin_flow, mixtures, two_layer
from reproduced.papers.kkt_margin.margin_flow import Descent
from reproduced.papers.kkt_margin.two_layer import TwoLayer
from reproduced.runtime import Run, move

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
    run: Run,
    snapshots: Sequence[int] = (),
    hidden_scale: float = two_layer.HIDDEN_SCALE,
    output_scale: float = 1.0,
    dtype: torch.dtype = DTYPE,
) -> Targets:
    r"""Train `runs` two-layer networks on `rows` points each of a Gaussian law and ask them about `fresh` others.

    The cost does not depend on the dimension once it exceeds `rows`. One seed gives the same draws for every descent
    and dtype, so that these are compared in pairs. `snapshots` are step counts at which the networks are asked, too.
    Points and initial weights are the same on every device; the noise of `fresh_outputs` is not.
    """
    name = f"{law}/{dimension}/{rows}/{width}"
    draws = run.stream(f"points/{name}")
    drawn = mixtures.draw_sample(law, rows=rows, fresh=fresh, dimension=dimension, runs=runs, generator=draws)
    coordinates = drawn.train.shape[-1]
    start = two_layer.initial(
        (runs,),
        width,
        coordinates,
        generator=run.stream(f"weights/{name}"),
        hidden_scale=hidden_scale,
        output_scale=output_scale,
    )
    device = run.device_for("margin flow", runs * rows * width * min(rows, coordinates))
    sample, start = move((drawn.to(dtype), start.to(dtype)), device)
    trained = margin_flow.train(start, sample.train, sample.labels, descent, snapshots=snapshots)

    def ask_fresh(model: TwoLayer) -> Tensor:
        draws = run.stream(f"unseen/{name}")
        return fresh_outputs(model, sample, draws, hidden_scale=hidden_scale).to(DTYPE)

    earlier = [Answers((sample.labels * one(sample.train)).to(DTYPE), ask_fresh(one)) for one in trained.snapshots]
    labels = sample.fresh_labels.to(DTYPE)
    found = Targets(trained.margins.to(DTYPE), ask_fresh(trained.model), labels, trained.steps, tuple(earlier))
    return move(found, "cpu")


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
    turns = [group % member.shape[-1] for group in range(groups)]
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
    run: Run,
) -> Targets:
    r"""Train `runs` networks to tell even from odd digits, at one side length of Figures 2 and 3.

    All sides, networks and descents see the same random balanced sets for the same seed, so that they can be compared
    in pairs. The paper leaves open how the images are scaled, which are drawn, and what the labels are; these choices
    are ours: the images, grey values in [0, 1], are shrunk to `side` pixels a side; even digits are +1, odd are -1.
    `width` is the number of neurons of the hidden layer, or of channels of the first convolution. `centred` subtracts
    the mean of the training points, from the fresh ones too.
    """
    labels = parity(digits, dtype=images.dtype)
    draws = run.stream("image splits")
    split = balanced_split(labels, rows_per_class=rows_per_class, fresh=fresh, runs=runs, generator=draws)
    points = resize(images, side=side).flatten(1)
    train = points[split.train]
    centre = train.mean(-2, keepdim=True) if centred else torch.zeros_like(train[:, :1])
    margins, steps, predict = NETWORKS[network](train - centre, labels[split.train], side, width, descent, run)
    # A network at a time: the fresh points of all together would be many copies of the images.
    found = [predict(one, points[split.fresh[one]] - centre[one]) for one in range(runs)]
    return move(Targets(margins, torch.stack(found), labels[split.fresh], steps), "cpu")


_Fit = tuple[Float[Tensor, "runs n"], Int[Tensor, " runs"], Callable[[int, Tensor], Tensor]]
"""Margins and steps of trained networks, and the outputs of one of them at given points, where they were trained."""


def _two_layer(points: Tensor, labels: Tensor, side: int, width: int, descent: Descent, run: Run) -> _Fit:
    draws = run.stream(f"image networks/two-layer/{side}")
    start = two_layer.initial((len(points),), width, side**2, generator=draws).to(points.dtype)
    device = run.device_for("margin flow", labels.numel() * width * min(points.shape[1:]))
    start, points, labels = move((start, points, labels), device)
    trained = margin_flow.train(start, points, labels, descent)
    return trained.margins, trained.steps, lambda index, asked: trained.model[index](asked.to(device))


def _convolutional(points: Tensor, labels: Tensor, side: int, width: int, descent: Descent, run: Run) -> _Fit:
    module = Convolutional(side, width=width)
    draws = run.stream(f"image networks/convolutional/{side}")
    start = initial_convolutional(module, len(points), generator=draws)
    # One network at a time; a weight is multiplied once for each pixel.
    weights = side**2 * (module.lower.weight.numel() + module.upper.weight.numel())
    device = run.device_for("networks", labels.shape[1] * weights)
    points, labels = move((points, labels), device)
    trained = []
    for index in range(len(points)):
        own = {name: part[index].to(points) for name, part in start.items()}
        trained.append(margin_flow.train_module(module, own, points[index], labels[index], descent))

    @torch.no_grad()
    def predict(index: int, asked: Tensor) -> Tensor:
        parts = asked.to(device).split(_CHUNK)
        return torch.cat([functional_call(module, trained[index].model, (part,)) for part in parts])

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


NETWORKS: Mapping[str, Callable[[Tensor, Tensor, int, int, Descent, Run], _Fit]] = {
    "two-layer": _two_layer,
    "convolutional": _convolutional,
}
"""How the networks of Figures 2 and 3 are trained, by name."""
