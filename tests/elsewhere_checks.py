"""What the second device refuses and allows, and calls that ordinary tests do not show or are too slow to show.

Run with `pytest -p second_device`, in a process of its own (`second_device`).
"""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.linear_model import LinearRegression
from torch import nn

from leakage import draws
from leakage.data.gaussians import sphere
from leakage.inversion import recover
from leakage.inversion.federated import Client, DeepStack, batch_gradient
from leakage.models import initialisation
from leakage.precision import DTYPE
from leakage.trainers import ensembles
from leakage.trainers.ensembles import Examples, ModuleEnsemble
from reproduced.papers.kkt_margin import margin_flow
from reproduced.papers.kkt_margin.margin_flow import Descent
from reproduced.runtime import stream
from second_device import DEVICE, RemoteGenerator, SecondDevice, generator_on, held

NEAR = torch.arange(4.0)
PLACES = torch.tensor([1, 0])
# What fails on a GPU, with a tensor `far` of four numbers there: without these a chapter that passes means nothing.
REFUSED = {
    "a sum with numbers of the CPU": lambda far: far + NEAR,
    "a number of the GPU beside numbers of the CPU": lambda far: NEAR * far[0],
    "a stack with a number of the CPU": lambda far: torch.stack([far[0], NEAR[0]]),
    "a search among numbers of the CPU": lambda far: torch.searchsorted(NEAR, far),
    "places on the CPU to gather from": lambda far: far.gather(0, PLACES),
    "numbers of the CPU at places on the GPU": lambda far: NEAR[far.long()],
    "a draw on the GPU by the CPU": lambda far: torch.randn(2, generator=torch.Generator(), device=DEVICE),
    "a draw on the CPU by the GPU": lambda far: torch.randn(2, generator=RemoteGenerator()),
    "a draw in place": lambda far: far.normal_(generator=torch.Generator()),
    "a choice by the CPU": lambda far: torch.multinomial(far, 2, generator=torch.Generator()),
    "numpy": lambda far: far.numpy(),
    "asarray": lambda far: np.asarray(far),
    "asarray of a list": lambda far: np.asarray([far[0], far[1]]),
    "a function of NumPy": lambda far: np.sort(far),
    "a figure": lambda far: plt.subplots()[1].plot(range(4), far),
    "a histogram": lambda far: plt.subplots()[1].hist(far),
    "scikit-learn": lambda far: LinearRegression().fit(far[:, None], NEAR),
    "SciPy": lambda far: stats.kstest(far, "norm"),
}
ALLOWED = {
    "a single number of the CPU": lambda far: (far * NEAR[2], torch.where(far > 1, far, NEAR[0])),
    "places on the CPU": lambda far: (far[PLACES], far[NEAR > 1]),
    "numbers that are read": lambda far: (float(far[1]), f"{far[1]:.1f}", far.tolist(), torch.tensor([far[0], far[1]])),
    "a vector times a matrix": lambda far: far @ far.expand(4, 4) @ far,
    "copies": lambda far: (far.cpu() + NEAR, far.copy_(NEAR), NEAR.to(far) + far),
    "a draw by the GPU": lambda far: torch.randn(2, generator=generator_on(DEVICE, torch.Generator()), device=DEVICE),
    "a draw of the library": lambda far: draws.gaussian((4,), generator=torch.Generator(), like=far) + far,
}


@pytest.fixture
def far():
    with SecondDevice():
        yield torch.arange(4.0, device=DEVICE)
    plt.close("all")


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_gpu_refuses_is_refused(far, name):
    with pytest.raises((RuntimeError, TypeError), match=r"device|numpy"):
        REFUSED[name](far)


@pytest.mark.parametrize("name", ALLOWED)
def test_what_a_gpu_allows_is_allowed(far, name):
    assert ALLOWED[name](far) is not None


def test_a_result_on_the_cpu_is_noticed():
    with pytest.raises(RuntimeError, match="gives a result on the CPU"):
        held(lambda x: x.cpu())(NEAR)


# ── calls of the library ─────────────────────────────────────────────────────────────────────────────────────────────

DRAWS = stream(0, "elsewhere")
POINTS = draws.gaussian((6, 2), generator=DRAWS)
FORM = nn.Linear(2, 2).to("meta")
LINEAR = initialisation.initial(FORM, 2, generator=DRAWS, dtype=DTYPE)


def margin():
    module = nn.Sequential(nn.Linear(9, 1, bias=False, dtype=DTYPE), nn.Flatten(0))
    points, labels = draws.gaussian((2, 9), generator=DRAWS), torch.tensor([1.0, -1], dtype=DTYPE)
    start = {"0.weight": draws.gaussian((1, 9), generator=DRAWS)}
    return margin_flow.train_module(module, start, points, labels, Descent(2, learning_rate=0.1))


def classifiers(start, points, *, batched):
    examples, recipe = Examples((points,), (points[:, 0] > 0).long()), ensembles.Recipe(1, 2, optimiser="sgd")
    networks = ModuleEnsemble(FORM, start, batched=batched)
    half = torch.arange(4, device=points.device).expand(2, 4)
    return ensembles.train(networks, examples, half, recipe, generator=DRAWS).compute_losses(examples)


def stack(weights):
    return DeepStack(weights, activation="sigmoid", bias=1.0, depth=3, kind="paired")


def few_neurons():
    inputs, labels = sphere(2, 4, generator=DRAWS), torch.tensor([1.0, -1.0], dtype=DTYPE)
    client = Client(draws.gaussian((8, 4), generator=DRAWS), activation="gelu")
    gradient = batch_gradient(client, inputs, labels, loss="half_sum")
    seen = recover.Observation.from_module(client, gradient, batch=2, loss="half_sum")
    return recover.recover(seen, batch=2, generator=DRAWS, tries=2)


CALLS = {
    "a deep client": lambda: held(stack)(POINTS),
    "few neurons": few_neurons,
    "a margin": margin,
    **{
        f"classifiers, {batched}": lambda batched=batched: held(classifiers)(LINEAR, POINTS, batched=batched)
        for batched in (False, True)
    },
}


@pytest.mark.parametrize("name", CALLS)
def test_what_no_quick_test_calls_is_computed_elsewhere(name):
    assert CALLS[name]() is not None
