r"""How much means over models would vary with other models, each of which is a target and a reference at once.

$$ \widehat{\text{se}}^2 = \frac{g - 1}{g} \sum_{k=1}^{g} \big(\hat\theta_{(k)} - \bar\theta\big)^2, $$

where $\hat\theta_{(k)}$ is measured again without the k-th of g groups of models, neither as targets nor as references;
partners are left out together. Source: B. Efron, C. Stein (1981), Annals of Statistics 9, who show that it is
conservative.
"""

import math
from collections.abc import Mapping, Sequence

import torch

from leakage.auditing import attacks
from leakage.auditing.given import Given
from leakage.auditing.measures import METRICS, Measured, curve_fprs, tpr_at, visible

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


def errors(given: Given, names: Sequence[str], fprs: Sequence[float]) -> Mapping[str, Mapping[str, float]]:
    """Standard errors by attack and metric; of attacks that need all models there are none, nor of one target."""
    parts = groups(given)
    if len(given.targets) < 2 or len(parts) < _LEAST_GROUPS:
        return {}
    fewest = given.fewest[1]
    rates = [fpr for fpr in (*fprs, *curve_fprs(fewest)) if visible(fewest, fpr)]
    metrics = (*METRICS, *dict.fromkeys(map(tpr_at, rates)))
    again: dict[str, list[torch.Tensor]] = {name: [] for name in names}
    for part in parts:
        rest = given.without(part)
        if not rest.targets:
            return {}
        for name, scores in attacks.scores(rest):
            if name in again:
                again[name].append(Measured(scores, rest.attacked).means(metrics))
    found = {}
    for name, values in again.items():
        if len(values) == len(parts):
            stacked = torch.stack(values)
            spread = (stacked.var(0, correction=0) * (len(parts) - 1)).sqrt()
            found[name] = dict(zip(metrics, map(float, spread), strict=True))
    assert all(math.isfinite(error) for one in found.values() for error in one.values())
    return found
