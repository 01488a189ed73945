"""The steps are those of PyTorch's own optimisers, bit for bit."""

import pytest
import torch

from leakage.trainers import optimisers


@pytest.mark.parametrize(
    ("name", "own", "theirs"),
    [("adam", {}, torch.optim.Adam), ("sgd", {}, torch.optim.SGD), ("sgd", {"momentum": 0.9}, torch.optim.SGD)],
)
def test_steps_are_those_of_pytorch(name, own, theirs):
    draws = torch.Generator().manual_seed(0)
    start = [
        torch.randn(shape, generator=draws, dtype=kind)
        for shape in (3, (4, 5))
        for kind in (torch.float32, torch.float64)
    ]
    ours, others = ([tensor.clone() for tensor in start] for _ in range(2))
    settings = {"lr": 0.1, "weight_decay": 0.01, **own}
    first, second = optimisers.OPTIMISERS[name](ours, **settings), theirs(others, fused=True, **settings)
    for step in range(4):
        if step == 2:  # what is remembered can be handed on
            fresh = optimisers.OPTIMISERS[name](ours, **settings)
            fresh.load_state_dict(first.state_dict())
            first = fresh
        slopes = [torch.randn(tensor.shape, generator=draws, dtype=tensor.dtype) for tensor in start]
        first.step(slopes)
        for tensor, slope in zip(others, slopes, strict=True):
            tensor.grad = slope
        second.step()
    assert all(torch.equal(*pair) for pair in zip(ours, others, strict=True))
