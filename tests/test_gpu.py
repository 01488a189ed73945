"""The GPU gives the numbers of the CPU."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from containers import map_tensors
from leakage.draws import gaussian
from leakage.inversion import hermite
from leakage.metrics import roc
from leakage.models.initialisation import initial
from leakage.precision import DTYPE
from leakage.trainers import ensembles
from leakage.trainers.ensembles import Examples, ModuleEnsemble, Recipe
from reproduced.papers.blessing.proximal_operator import prox
from reproduced.papers.min_norm.nested_fits import nested_min_norm
from reproduced.runtime import stream

DEVICE = "cuda"
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


def normal(*shape):
    return gaussian(shape, generator=stream(0, f"gpu {shape}"))


def move(value: Any, device: str) -> Any:
    return map_tensors(value, lambda tensor: tensor.to(device))


def one_step(stack, examples, rows):
    generator, networks = stream(0, "shuffles"), ModuleEnsemble(FORM.to("meta"), stack)
    return ensembles.train(networks, examples, rows, Recipe(1, 20), generator=generator).compute_losses(examples)


FORM = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3))
STACK = initial(FORM, 2, generator=stream(0, "networks"), dtype=DTYPE)
# A function and what moves to the GPU.
NUMBERS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "AUC": (
        lambda **scores: torch.tensor(roc.auc(**scores).estimate, device=scores["member"].device),
        dict(member=0.5 + normal(2000), outsider=normal(1900)),
    ),
    "moments": (partial(hermite.moment, torch.tanh, order=3), dict(norm=normal(20).exp())),
    "proximal operator": (prox, dict(output=normal(20), gamma=normal(20).exp(), label=torch.arange(20) % 2)),
    "nested fits": (
        partial(nested_min_norm, widths=[1, 7, 8, 30]),
        dict(features=normal(3, 8, 30), labels=normal(3, 8), queries=normal(3, 2, 30)),
    ),
    "an ensemble": (
        one_step,
        dict(
            stack=STACK,
            examples=Examples((normal(30, 1, 4, 4),), torch.arange(30) % 3),
            rows=torch.stack([torch.arange(20), torch.arange(10, 30)]),
        ),
    ),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_the_gpu_gives_the_same_numbers(name):
    function, given = NUMBERS[name]
    found = function(**move(given, DEVICE))
    assert {part.device.type for part in (found if isinstance(found, tuple) else (found,))} == {DEVICE}
    # Sums in another order, times the condition numbers of designs close to the interpolation threshold.
    torch.testing.assert_close(move(found, "cpu"), function(**given), rtol=1e-5, atol=1e-9)
