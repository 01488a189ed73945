"""Results live where the inputs live: checks are run on a second device that refuses to meet the CPU.

The device is a pretence (`second_device`), so that a tensor made in the wrong place fails on machines without a GPU.
Each chapter has a module `devices_<chapter>` with `CHECKS`, functions of its `Inputs` by name; `test_devices` asks one
process for the faults of them all.
"""

import importlib
import json

import pytest
import torch

from leakage.data import gaussians
from leakage.runtime import DTYPE


class Inputs:
    """Arguments on the device under test; chapters add theirs."""

    def __init__(self, device, generator):
        self.device, self.generator = device, generator
        self.single = self.of(12.0)[0]
        self.pool = gaussians.gaussian((30, 6), generator=generator)
        self.asked = gaussians.gaussian((2, 5, 3), generator=generator)

    def of(self, *values):
        return torch.tensor([float(value) for value in values], dtype=DTYPE, device=self.device)

    def shortly(self, work, module, **limits):
        """What `work` makes where searches of `module` end early: a result lives in one place from the first step."""
        with pytest.MonkeyPatch.context() as patch:
            for name, limit in limits.items():
                patch.setattr(module, name, limit)
            return work()


# Mistakes that must be noticed, or a check without a fault means nothing.
PLANTED = {
    "a constant of the CPU": lambda x: x.single + torch.ones(2, dtype=DTYPE),
    "a result on the CPU": lambda x: x.single.cpu(),
    "an index of the CPU": lambda x: torch.where(torch.tensor([True, False]), x.of(1, 2), 0.0),
}


def report(modules):
    """Run the checks of each module and the planted mistakes on the second device, and print their faults."""
    import second_device  # in a process of its own: see there

    faults = {}
    for module in modules:
        tests = importlib.import_module(module)
        generator = second_device.RemoteGenerator().manual_seed(0)
        with second_device.SecondDevice():
            inputs = tests.Inputs(second_device.DEVICE, generator)
            faults[module] = {
                name: fault(check, inputs, second_device) for name, check in (tests.CHECKS | PLANTED).items()
            }
    print(json.dumps(faults))


def fault(check, inputs, second_device):
    """What is wrong with one check, in words, or nothing."""
    try:
        result = check(inputs)
    except RuntimeError as error:
        return str(error)
    tensors = [*second_device.tensors_of(result)]
    return "" if tensors and all(isinstance(one, second_device.Remote) for one in tensors) else "a result on the CPU"
