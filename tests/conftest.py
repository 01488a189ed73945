"""Tests are alike on every machine: one thread, the same examples, no clock, and the longest files first.

The tensors of tests are small, and threads that wait for each other are slow. `--last-bits SEED` runs every test within
`last_bits.LastBits(SEED)`, another machine's arithmetic.
"""

import gc
import importlib
import os
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"  # before torch is imported, and for the processes that tests start

# The library's annotations run, in this process and in those that it starts.
TYPES = str(Path(__file__).parent / "types_that_run")
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (TYPES, os.environ.get("PYTHONPATH"))))
sys.path.insert(0, TYPES)
importlib.import_module("held_imports").install()
importlib.import_module("leakage.pipeline")  # before anything else imports jsonschema


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the command line name a machine."""
    parser.addoption("--last-bits", type=int, metavar="SEED", help="compute as another machine may, to the last bit")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Fixtures and test within the machine's arithmetic."""
    seed = item.config.getoption("last_bits")
    if seed is None:
        return (yield)
    from last_bits import LastBits  # it imports torch

    with LastBits(seed):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Import all tests without a search for garbage: nothing of it goes before the end, nor is it looked at again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


# A property that is slow to check is no false one.
settings.register_profile(
    "same everywhere",
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("same everywhere")

# A file is one piece of work where several processes share the tests; one that begins last must not be long.
LONGEST = ("test_smoke.py", "test_pipeline_build.py", "test_devices.py", "test_pipeline_kills.py", "test_coverage.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest files."""
    rank = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path.name, len(rank)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what tests measured; no verdict depends on it."""
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            terminalreporter.write_line(f"{name}: {value}")
