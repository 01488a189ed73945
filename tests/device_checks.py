"""Results live where the inputs live: checks are run on a second device that refuses to meet the CPU.

The device is a pretence (`second_device`), so that a tensor made in the wrong place fails on machines without a GPU. A
test module of a chapter has `CHECKS`, functions of its `Inputs` by name, and `faults = faults_of(__name__)`.
"""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from leakage.data import synthetic
from leakage.runtime import DTYPE


class Inputs:
    """Arguments on the device under test; chapters add theirs."""

    def __init__(self, device, generator):
        self.device, self.generator = device, generator
        self.single = self.of(12.0)[0]
        self.pool = synthetic.gaussian((30, 6), generator=generator)
        self.asked = synthetic.gaussian((2, 5, 3), generator=generator)

    def of(self, *values):
        return torch.tensor([float(value) for value in values], dtype=DTYPE, device=self.device)


# Mistakes that must be noticed, or a check without a fault means nothing.
PLANTED = {
    "a constant of the CPU": lambda x: x.single + torch.ones(2, dtype=DTYPE),
    "a result on the CPU": lambda x: x.single.cpu(),
    "an index of the CPU": lambda x: torch.where(torch.tensor([True, False]), x.of(1, 2), 0.0),
}


def faults_of(module):
    """A fixture: what is wrong with each check of the test module called `module`, or nothing, by name."""

    @pytest.fixture(scope="module")
    def faults():
        program = [sys.executable, "-c", f"import device_checks; device_checks.report({module!r})"]
        run = subprocess.run(program, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=120)
        assert run.returncode == 0, run.stderr
        return json.loads(run.stdout)

    return faults


def report(module):
    """Run the checks of `module` and the planted mistakes on the second device, and print their faults."""
    import second_device  # in a process of its own: see there

    tests = importlib.import_module(module)
    generator = second_device.RemoteGenerator().manual_seed(0)
    with second_device.SecondDevice():
        inputs = tests.Inputs(second_device.DEVICE, generator)
        faults = {name: fault(check, inputs, second_device) for name, check in (tests.CHECKS | PLANTED).items()}
    print(json.dumps(faults))


def fault(check, inputs, second_device):
    """What is wrong with one check, in words, or nothing."""
    try:
        result = check(inputs)
    except RuntimeError as error:
        return str(error)
    leaves = [leaf for leaf in second_device.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
    return "" if leaves and all(isinstance(leaf, second_device.Remote) for leaf in leaves) else "a result on the CPU"
