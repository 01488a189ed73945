r"""Networks trained to tell even from odd digits at a given resolution, and their outputs on fresh digits.

`parity_targets` is the experiment of Smorodinsky et al., Figures 2 and 3, for one side length. Computation is in the
dtype of the images.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from leakage.data.images import balanced_split, parity, resize
from leakage.models import convolutional, two_layer
from leakage.runtime import stream
from leakage.trainers import margin_flow, module_flow
from leakage.trainers.margin_flow import Descent
from reproduced.studies.kkt_margin.gaussian_networks import Targets


@dataclass(frozen=True, eq=False)
class _Fit:
    """Trained networks; `predict(run, points)` gives the outputs of one."""

    margins: Float[Tensor, "runs n"]
    steps: Int[Tensor, " runs"]
    predict: Callable[[int, Tensor], Tensor]


def parity_targets(
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
    r"""Train `runs` networks on random balanced sets of digits, and ask them about `fresh` others.

    All sides, networks and descents see the same splits for the same seed, so that they can be compared in pairs. The
    paper leaves open how the images are scaled, which are drawn, and what the labels are; these choices are ours.

    The images, grey values in [0, 1], are shrunk to `side` pixels a side; even digits are +1, odd are -1. `width` is
    the number of neurons of the hidden layer, or of channels of the first convolution; `rows_per_class` is half the
    size of a training set. `centred` subtracts the mean of the training points, from the fresh ones too.
    """
    labels = parity(digits, dtype=images.dtype)
    draws = stream(seed, "image splits", images.device)
    split = balanced_split(labels, rows_per_class=rows_per_class, fresh=fresh, runs=runs, generator=draws)
    points = resize(images, side=side).flatten(1)
    train = points[split.train]
    centre = train.mean(-2, keepdim=True) if centred else torch.zeros_like(train[:, :1])
    draws = stream(seed, f"image networks/{network}/{side}", images.device)
    fit = NETWORKS[network](train - centre, labels[split.train], side, width, descent, draws)
    # A run at a time: the fresh points of all runs together would be many copies of the images.
    found = [fit.predict(run, points[split.fresh[run]] - centre[run]) for run in range(runs)]
    return Targets(fit.margins, torch.stack(found), labels[split.fresh], fit.steps)


def _two_layer(
    points: Tensor, labels: Tensor, side: int, width: int, descent: Descent, generator: torch.Generator
) -> _Fit:
    start = two_layer.initial((len(points),), width, side**2, generator=generator).to(points.dtype)
    trained = margin_flow.train(start, points, labels, descent)
    return _Fit(trained.margins, trained.steps, lambda run, asked: trained.model[run](asked))


def _convolutional(
    points: Tensor, labels: Tensor, side: int, width: int, descent: Descent, generator: torch.Generator
) -> _Fit:
    module = convolutional.Convolutional(side, width=width)
    start = convolutional.initial(module, len(points), generator=generator)
    trained = module_flow.train(
        module, {name: tensor.to(points) for name, tensor in start.items()}, points, labels, descent
    )

    def predict(run: int, asked: Tensor) -> Tensor:
        own = {name: tensor[run : run + 1] for name, tensor in trained.model.items()}
        return module_flow.outputs(module, own, asked.unsqueeze(0)).squeeze(0)

    return _Fit(trained.margins, trained.steps, predict)


NETWORKS: Mapping[str, Callable[[Tensor, Tensor, int, int, Descent, torch.Generator], _Fit]] = {
    "two-layer": _two_layer,
    "convolutional": _convolutional,
}
"""How the networks of Figures 2 and 3 are trained, by name."""
