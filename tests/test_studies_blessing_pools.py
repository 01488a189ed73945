import math

import pytest
import torch

from leakage.metrics.estimates import mean_interval
from leakage.runtime import stream
from leakage.studies.blessing.pools import over_pools


def test_a_pool_counts_once_however_many_models_it_has():
    values = torch.randn(6, 10, generator=stream(0, "pools"))
    assert over_pools(values) == mean_interval(values.double().mean(-1))
    assert over_pools(values.repeat_interleave(3, dim=-1)).high == pytest.approx(over_pools(values).high)


def test_where_a_pool_has_no_value_nothing_is_known():
    found = over_pools(torch.tensor([0.1, math.nan, 0.3]))
    assert (float(found), found.low, found.high) == (pytest.approx(0.2), -math.inf, math.inf)
    nowhere = over_pools(torch.tensor([math.nan, math.nan]))
    assert (nowhere.low, nowhere.high) == (-math.inf, math.inf)


@pytest.mark.parametrize("values", [torch.zeros(1), torch.tensor([0.0, math.inf]), torch.tensor([math.nan])])
def test_one_pool_or_an_infinite_value_is_refused(values):
    with pytest.raises(ValueError, match="`values`"):
        over_pools(values)
