"""A data set whose labels are noise: a network that fits it has memorised it, and has nothing else to say."""

import torch

from leakage.data.tabular import LabelledData
from leakage.trainers.ensembles import Recipe
from reproduced.runtime import stream
from reproduced.studies.polytopes.shadow_attacks import Task

FEATURES = (torch.rand(480, 60, generator=stream(0, "bits")) < 0.3).float()
NOISE = LabelledData(FEATURES, torch.randint(4, (480,), generator=stream(0, "classes")))
"""480 points of 60 random bits, each with one of four classes by lot."""


def task(*, epochs: int = 40, size: int = 120) -> Task:
    """The task of fitting it; with no epochs nothing is learned, and nothing can leak."""
    return Task(NOISE, size=size, hidden=(24,), recipe=Recipe(epochs=epochs, batch=20, learning_rate=5e-3))
