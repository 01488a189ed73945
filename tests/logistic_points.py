"""Random settings of ridge logistic regression, over many orders of magnitude, for several test modules."""

import math

import torch

from leakage.precision import DTYPE
from leakage.theory.logistic.limit import Setting
from reproduced.runtime import stream


def log_uniform(low, high, count, generator):
    """Log-uniform draws."""
    return low * torch.exp(torch.rand(count, generator=generator, dtype=DTYPE) * math.log(high / low))


def random_settings(count, *, seed=0):
    generator = stream(seed, "settings of ridge logistic regression")
    phi = 1 + log_uniform(0.03, 100.0, count, generator)
    return Setting.bilevel(
        penalty=log_uniform(1e-5, 1e3, count, generator),
        delta=log_uniform(0.1, 30.0, count, generator) / phi,
        phi=phi,
        eta=log_uniform(0.03, 30.0, count, generator),
        kappa=log_uniform(0.2, 100.0, count, generator),
    )


def of(*values):
    return torch.tensor(values, dtype=DTYPE)
