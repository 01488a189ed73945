"""Batches whose gradient a server has seen, by autograd through a real module, with the secret beside it."""

from dataclasses import dataclass

import torch

from leakage.attacks.gradient_inversion.observation import Observation
from leakage.data.gaussians import gaussian, sphere
from leakage.models.clients import Client
from leakage.runtime import stream
from leakage.trainers.federated import batch_gradient


@dataclass(frozen=True, eq=False)
class Batch:
    """What the server sees and, for the tests alone, what it must not."""

    observation: Observation
    inputs: torch.Tensor
    residuals: torch.Tensor


def observe(name, inputs, weights, *, labels=None, bias=30.0):
    """The batch with these inputs, labels -1, 1, -1, … and weights, under the activation called `name`."""
    labels = (-1.0) ** torch.arange(1, len(inputs) + 1, dtype=inputs.dtype) if labels is None else labels
    module = Client(weights, activation=name, bias=bias)
    gradient = batch_gradient(module, inputs, labels, loss="half_sum")
    seen = Observation.from_module(module, gradient, batch=len(inputs), loss="half_sum", activation=name)
    return Batch(seen, inputs, module(inputs).detach() - labels)


def draw(name, batch, d, m, *, seed=0, bias=30.0, labels=None, orthonormal=False):
    """A batch of unit inputs and Gaussian weights, from streams of their own."""
    inputs = torch.eye(batch, d, dtype=torch.float64)
    if not orthonormal:
        inputs = sphere(batch, d, generator=stream(seed, "inputs"))
    weights = gaussian((m, d), generator=stream(seed, "weights"))
    return observe(name, inputs, weights, bias=bias, labels=labels)
