r"""How much means over models would vary with other models, each of which is a target and a reference at once.

$$ \widehat{\text{se}}^2 = \frac{g - 1}{g} \sum_{k=1}^{g} \big(\hat\theta_{(k)} - \bar\theta\big)^2, $$

where $\hat\theta_{(k)}$ is measured again without the k-th of g groups of models, neither as targets nor as references;
partners are left out together. Source: B. Efron, C. Stein (1981), Annals of Statistics 9, who show that it is
conservative.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import torch

from leakage.audit import attacks
from leakage.audit.given import Given
from leakage.audit.measures import METRICS, Measured, curve_fprs, tpr_at, visible

Means = Mapping[str, torch.Tensor]
"""Of every attack, by name: what is measured, (metrics,), float64; of none if no target is left."""
Again = Callable[[Sequence[Sequence[int]], Sequence[str]], Iterable[Means]]
"""Measures the metrics again without each part of the models in turn."""
_MOST_GROUPS = 10
_LEAST_GROUPS = 3


def groups(given: Given) -> list[list[int]]:
    """The models in ten groups at most, partners together."""
    if given.partner is None:
        units = [[model] for model in range(len(given.losses))]
    else:
        units = [[model, other] for model, other in enumerate(given.partner.tolist()) if model < other]
    count = min(len(units), _MOST_GROUPS)
    return [[model for unit in units[first::count] for model in unit] for first in range(count)]


def without(given: Given, part: Sequence[int], metrics: Sequence[str]) -> Means:
    """The means over the targets that are left without some models."""
    rest = given.without(part)
    scores = attacks.scores(rest) if rest.targets else ()
    return {name: Measured(found, rest.attacked).means(metrics) for name, found in scores}


def errors(
    given: Given, names: Sequence[str], fprs: Sequence[float], *, again: Again | None = None
) -> Mapping[str, Mapping[str, float]]:
    """Standard errors by attack and metric; of attacks that need all models there are none, nor of one target.

    Args:
        given: the models.
        names: of the attacks on all of them.
        fprs: false positive rates.
        again: measures without each part, elsewhere say; by default here, one part after the other.
    """
    parts = groups(given)
    if len(given.targets) < 2 or len(parts) < _LEAST_GROUPS:
        return {}
    fewest = given.fewest[1]
    rates = [fpr for fpr in (*fprs, *curve_fprs(fewest)) if visible(fewest, fpr)]
    metrics = (*METRICS, *dict.fromkeys(map(tpr_at, rates)))
    gathered: dict[str, list[torch.Tensor]] = {name: [] for name in names}
    for means in again(parts, metrics) if again else (without(given, part, metrics) for part in parts):
        if not means:
            return {}
        for name in gathered.keys() & means.keys():
            gathered[name].append(means[name])
    found = {}
    for name, values in gathered.items():
        if len(values) == len(parts):
            stacked = torch.stack(values)
            spread = (stacked.var(0, correction=0) * (len(parts) - 1)).sqrt()
            found[name] = dict(zip(metrics, map(float, spread), strict=True))
    assert all(math.isfinite(error) for one in found.values() for error in one.values())
    return found
