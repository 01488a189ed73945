"""Means over pools of records, on each of which some models were trained and attacked."""

import math

from jaxtyping import Float
from torch import Tensor

from leakage import arguments
from leakage.metrics.estimates import mean_interval
from leakage.metrics.intervals import Estimate


def over_pools(values: Float[Tensor, "pools ..."]) -> Estimate:
    """Mean with Student's t interval over *pools*, each of which counts once, by the mean of its models.

    The models of a pool share its records, and each other as shadow models: they are no independent observations.
    Where some pool has no value (NaN: a target that it never reached), nothing is known, and the interval is the whole
    line.

    Raises:
        ValueError: if there are fewer than two pools, or a value is infinite.
    """
    each = arguments.filled("values", values).double().reshape(len(values), -1).mean(-1)
    if len(each) < 2 or not bool(each.isnan().any()):
        return mean_interval(each)
    reached = each[~each.isnan()]
    return Estimate(float(reached.mean()) if len(reached) else 0.0, -math.inf, math.inf, n=len(each))
