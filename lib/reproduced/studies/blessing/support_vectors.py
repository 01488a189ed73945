r"""Support vector machines trained with and without one point: their outputs at it, at many numbers of features.

The models of a training set are nested: with p features a model uses the first p, and the Gram matrix grows by the
products of the new ones. A member's training set is an outsider's with the first point exchanged, so one draw and one
Gram matrix serve both. From p = n on the margin is hard, below it soft with C = 1, as in Tan et al. (2023), Appendix
G.5. An output is the signed distance of the point from the hyperplane. The attack knows the point's label, and calls it
a member if it is far on that label's side. The threshold is chosen on one half of the training sets and judged on the
other, so that without a leak the advantage is 0 on average.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from leakage.metrics.histograms import histogram_null_bias, histograms
from leakage.metrics.roc import calibrate_threshold
from leakage.trainers.svm import Machine, hard_margin, soft_margin
from reproduced.studies.blessing.feature_models import FEATURE_MODELS, FeatureModel, Sets

_BATCH = {"cpu": 2**22, "cuda": 2**27}  # features drawn at once


class MarginOutputs(NamedTuple):
    """Signed distances of the point from machines trained with and without it, one column a training set.

    A member takes the place of the first training point. `errors` are the shares of fresh points that the machine
    without the point misclassifies.
    """

    member: Float[Tensor, "widths T"]
    outsider: Float[Tensor, "widths T"]
    errors: Float[Tensor, "widths T"]


class Curve(NamedTuple):
    """Privacy and accuracy at each number of features.

    Attributes:
        gains: see `split_gains`, one for each training set; their mean is the advantage.
        errors: share of fresh points misclassified, for each training set.
        null: `gains` between two halves of the outsiders, where nothing leaks.
        histogram: the advantage read off the paper's histograms, of members of one half and outsiders of the other.
        histogram_null: its mean if nothing leaked.
    """

    gains: Float[Tensor, "widths T"]
    errors: Float[Tensor, "widths T"]
    null: Float[Tensor, "widths half"]
    histogram: Float[Tensor, " widths"]
    histogram_null: Float[Tensor, " widths"]


def privacy_and_error(
    name: str,
    *,
    widths: Sequence[int],
    rows: int,
    trials: int,
    generator: torch.Generator,
    fresh: int = 20,
    bin_width: float = 0.05,
) -> Curve:
    r"""One panel of Figure 14, for a point of the law `name`: the generator draws the point first.

    The paper reads the advantage off histograms of the same draws that made them; that advantage and its bias are given
    beside the threshold's. The paper draws the training sets of members anew; here they are paired, which changes no
    law of an output and makes differences more precise. At least four `trials` are needed: two to choose the threshold
    and two to judge it.

    Source: Tan et al. (2023), Figure 14 and Appendix G.5.
    """
    model = FEATURE_MODELS[name](generator)
    found = margin_outputs(model, widths=widths, rows=rows, trials=trials, fresh=fresh, generator=generator)
    inside, outside, half = model.label * found.member, model.label * found.outsider, trials // 2
    # Of different training sets, as the paper's: pairs would hide the histograms' noise.
    biased = [
        _histogram(member=member[:half], outsider=other[half:], bin_width=bin_width)
        for member, other in zip(inside, outside, strict=True)
    ]
    return Curve(
        torch.stack([split_gains(member=of, outsider=other) for of, other in zip(inside, outside, strict=True)]),
        found.errors,
        torch.stack([split_gains(member=row[:half], outsider=row[half : 2 * half]) for row in outside]),
        *torch.tensor(biased, dtype=torch.float64, device=inside.device).mT,
    )


def margin_outputs(
    model: FeatureModel,
    *,
    widths: Sequence[int],
    rows: int,
    trials: int,
    generator: torch.Generator,
    fresh: int = 20,
    box: float = 1.0,
) -> MarginOutputs:
    """Outputs at the point of machines trained on `trials` data sets of `rows` points, at every width (increasing).

    `fresh` points of the same law test each machine. `box` is C of the soft margin, which is used where p < n.
    """
    batch = max(1, _BATCH.get(generator.device.type, _BATCH["cpu"]) // ((rows + fresh) * widths[-1]))
    parts = []
    for begin in range(0, trials, batch):
        count = min(batch, trials - begin)
        sets = model.sets(count, rows=rows, fresh=fresh, width=widths[-1], generator=generator)
        parts.append(_answers(sets, model.label, widths, box))
    return MarginOutputs(*torch.cat(parts, dim=-1))


def split_gains(*, member: Float[Tensor, " T"], outsider: Float[Tensor, " T"]) -> Float[Tensor, " T"]:
    """1 for a member called one, minus 1 for an outsider called one, for each pair.

    The threshold is chosen on the other half of the pairs. If both laws are equal the mean is 0, even for dependent
    pairs.
    """
    inside, outside = member.tensor_split(2), outsider.tensor_split(2)
    gains = []
    for tuned, judged in ((1, 0), (0, 1)):
        threshold = calibrate_threshold(member=inside[tuned], outsider=outside[tuned])
        accused = [(scores >= threshold).to(scores.dtype) for scores in (inside[judged], outside[judged])]
        gains.append(accused[0] - accused[1])
    return torch.cat(gains)


def _answers(sets: Sets, label: float, widths: Sequence[int], box: float) -> Float[Tensor, "3 widths T"]:
    """Distances with and without the point, and errors, of one batch of training sets."""
    rows = sets.rows.shape[1]
    asked = torch.cat([sets.rows, sets.point.unsqueeze(1), sets.fresh], dim=1)
    # The last row of the products belongs to the point, which is the first row of a member's training set.
    train = asked[:, : rows + 1]
    products, last, answers = asked.new_zeros(len(asked), rows + 1, asked.shape[1]), 0, []
    swapped = [rows, *range(1, rows)]
    labels = torch.cat([torch.full_like(sets.labels[:, :1], label), sets.labels[:, 1:]], dim=1)
    for width in widths:
        products = products + train[..., last:width] @ asked[..., last:width].mT
        last = width
        outsider = _machine(products[:, :rows, :rows], sets.labels, width, box)
        member = _machine(products[:, swapped][..., swapped], labels, width, box)
        distances = outsider.distances(products[:, :rows, rows:])
        with_point = member.distances(products[:, swapped, rows : rows + 1])
        wrong = (distances[:, 1:] * sets.fresh_labels <= 0).to(distances.dtype).mean(-1)
        answers.append(torch.stack([with_point[:, 0], distances[:, 0], wrong]))
    return torch.stack(answers, dim=1)


def _machine(gram: Tensor, labels: Tensor, width: int, box: float) -> Machine:
    return hard_margin(gram, labels) if width >= labels.shape[-1] else soft_margin(gram, labels, box=box)


def _histogram(*, member: Tensor, outsider: Tensor, bin_width: float) -> tuple[float, float]:
    """The advantage between two histograms of bins no wider than `bin_width`, and its mean where nothing leaks."""
    pooled = torch.cat([member, outsider])
    edges = max(2, math.ceil(float(pooled.max() - pooled.min()) / bin_width) + 1)
    both = histograms(member=member, outsider=outsider, edges=edges, percentiles=(0.0, 100.0))
    mean = (both.member + both.outsider) / 2
    bias = histogram_null_bias(mean, samples=2 / (1 / len(member) + 1 / len(outsider)))
    return float((both.member - both.outsider).clamp(min=0).sum()), float(bias)
