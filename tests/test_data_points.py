"""Points and classes that fit are data; others are refused and named."""

import pytest
import torch

from leakage.data.points import Labelled


@pytest.mark.parametrize(
    ("features", "labels", "message"),
    [
        (torch.ones(3), torch.arange(3), "`features` must have shape"),
        (torch.ones(3, 2).byte(), torch.arange(3), "`features` must be floating-point"),
        (torch.ones(3, 2), torch.arange(2), "`labels` must have shape"),
        (torch.ones(3, 2), torch.ones(3), "`labels` must be whole numbers"),
    ],
)
def test_parts_that_do_not_fit_are_refused(features, labels, message):
    with pytest.raises(ValueError, match=message):
        Labelled(features, labels)
