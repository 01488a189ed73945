"""Results live where the inputs live: every chapter's checks on a second device (`device_checks`)."""

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch
from torch.utils import backend_registration

from device_checks import PLANTED
from patience import HANGS

# What `second_device` is made of came after the oldest PyTorch that the library takes; the locked one has it.
pytestmark = pytest.mark.skipif(
    torch.torch_version.TorchVersion(torch.__version__) < (2, 13)
    and not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"),
    reason="this PyTorch takes no device that is written in Python",
)
HERE = Path(__file__).parent
CHAPTERS = sorted(path.stem for path in (HERE.parent / "book" / "claims").glob("*.yml"))
CHECKS = [(chapter, name) for chapter in CHAPTERS for name in import_module(f"devices_{chapter}").CHECKS]


@pytest.fixture(scope="module")
def faults():
    """What is wrong with each check, or nothing, by chapter and name; one process runs the checks of all chapters."""
    modules = [f"devices_{chapter}" for chapter in CHAPTERS]
    program = [sys.executable, "-c", f"import device_checks; device_checks.report({modules!r})"]
    run = subprocess.run(program, cwd=HERE, capture_output=True, text=True, timeout=HANGS)
    assert run.returncode == 0, run.stderr
    return dict(zip(CHAPTERS, json.loads(run.stdout).values(), strict=True))


@pytest.mark.parametrize(("chapter", "name"), CHECKS)
def test_everything_stays_on_the_device_it_is_given(faults, chapter, name):
    assert not faults[chapter][name]


@pytest.mark.parametrize("name", PLANTED)
@pytest.mark.parametrize("chapter", CHAPTERS)
def test_what_a_gpu_would_refuse_is_noticed(faults, chapter, name):
    assert "CPU" in faults[chapter][name]
