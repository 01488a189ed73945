r"""What support vector machines say of one point, trained with it and without it, at many numbers of features.

The models of a training set are nested: with p features it uses the first p, and Gram matrices grow by what is new.
A member's training set is an outsider's with the first point exchanged, so one draw and one Gram matrix serve both.
From p = n on the margin is hard, below it soft with C = 1, as in Tan et al. (2023), Appendix G.5. An output is the
signed distance of the point from the hyperplane. An attacker who knows the point's label calls a member whoever is far
on its side; his threshold is chosen on one half of the training sets and judged on the other, so that he shows no
advantage where nothing leaks.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from leakage import arguments
from leakage.metrics.histograms import histogram_null_bias, histograms
from leakage.metrics.roc import calibrate_threshold
from leakage.studies.blessing.feature_models import FEATURE_MODELS, FeatureModel, Sets
from leakage.trainers.min_norm import check_widths
from leakage.trainers.svm import Machine, hard_margin, soft_margin

_BATCH = {"cpu": 2**22, "cuda": 2**27}  # features drawn at once


class MarginOutputs(NamedTuple):
    """Signed distances of the point from machines trained with and without it, one column a training set.

    Attributes:
        member: with the point in place of the first training point.
        outsider: without it.
        errors: share of fresh points that the machine without it misclassifies.
    """

    member: Float[Tensor, "widths T"]
    outsider: Float[Tensor, "widths T"]
    errors: Float[Tensor, "widths T"]


class Curve(NamedTuple):
    """Privacy and accuracy at each number of features.

    Attributes:
        gains: 1 for a member accused, less 1 for an outsider accused, of each training set; the mean is the advantage
            of a threshold that never saw the set.
        errors: share of fresh points misclassified, of each training set.
        null: `gains` between two halves of the outsiders, where there is nothing to find.
        histogram: the advantage that the paper's histograms show on the draws they were made of: members of one half,
            outsiders of the other.
        histogram_null: what they would show if nothing leaked, on average.
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
    r"""One panel of Figure 14: fix a point, train `trials` machines with it and as many without it at every width.

    The paper reads the advantage off histograms of the very draws it is measured on; that and its bias are given beside
    the threshold's. The paper draws the training sets of members anew; here they are paired, which changes no law of
    an output and makes differences sharper.

    Source: Tan et al. (2023), Figure 14 and Appendix G.5.

    Args:
        name: of `FEATURE_MODELS`.
        widths: numbers of features, increasing.
        rows: n.
        trials: training sets, at least 4.
        generator: draws the point first.
        fresh: test points for each machine.
        bin_width: of the histograms, in units of the distance.

    Raises:
        ValueError: if the law is unknown, there are fewer than 4 trials, or as `margin_outputs`.
    """
    arguments.choice("name", name, FEATURE_MODELS)
    arguments.count("trials", trials, least=4)  # two to tune on and two to judge
    arguments.number("bin_width", bin_width, above=0)
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
    """Train on `trials` data sets of `rows` points at every width, with and without the point, and ask for it.

    Args:
        model: the law of the features, with its point.
        widths: numbers of features, increasing.
        rows: training points, the point included for a member.
        trials: training sets, each used at every width.
        fresh: points of the same law on which each machine is tested.
        box: C of the soft margin, which is used where p < n.

    Raises:
        ValueError: if the widths are wrong, a count is below 1, the box is not positive, or a training set has one
            class only.
    """
    checked = check_widths(widths)
    for name, value in (("rows", rows), ("trials", trials), ("fresh", fresh)):
        arguments.count(name, value, least=1)
    arguments.number("box", box, above=0)
    batch = max(1, _BATCH.get(generator.device.type, _BATCH["cpu"]) // ((rows + fresh) * checked[-1]))
    parts = []
    for begin in range(0, trials, batch):
        count = min(batch, trials - begin)
        sets = model.sets(count, rows=rows, fresh=fresh, width=checked[-1], generator=generator)
        parts.append(_answers(sets, model.label, checked, box))
    return MarginOutputs(*torch.cat(parts, dim=-1))


def split_gains(*, member: Float[Tensor, " T"], outsider: Float[Tensor, " T"]) -> Float[Tensor, " T"]:
    """1 for a member accused less 1 for an outsider accused, pair by pair, by a threshold tuned on the other half.

    Where both laws are one its mean is 0, whatever pairs have in common.

    Raises:
        ValueError: if the scores are not pairs of finite numbers, or fewer than two.
    """
    arguments.real("member", member, "T")
    arguments.real("outsider", outsider, "T", like=member)
    if member.shape != outsider.shape or len(member) < 2:
        raise ValueError(f"`member` and `outsider` must be pairs, two or more, got {len(member)} and {len(outsider)}.")
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
    # The last row of the products is the point's own, as the member's first.
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
