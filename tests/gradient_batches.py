"""Batches whose gradient a server has seen, by autograd through a real module, with the secret beside it."""

from dataclasses import dataclass

import torch

from leakage.attacks.gradient_inversion.observation import Observation
from leakage.data.gaussians import gaussian, sphere
from leakage.trainers.federated import Client, batch_gradient
from reproduced.runtime import stream


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


def hermite_tensor(w, order):
    """$H_p(w)$, the derivatives of the normal density over it, by $H_{p+1} = w \\otimes H_p - \\nabla H_p$."""
    identity = torch.eye(w.shape[-1], dtype=w.dtype)
    before, current = torch.zeros_like(w[..., 0]), torch.ones_like(w[..., 0])
    for degree in range(order):
        slots = list(range(degree + 1))
        raised = torch.einsum(w, [..., 0], current, [..., *slots[1:]], [..., *slots])
        for slot in slots[1:]:
            others = [other for other in slots[1:] if other != slot]
            raised = raised - torch.einsum(identity, [0, slot], before, [..., *others], [..., *slots])
        before, current = current, raised
    return current
