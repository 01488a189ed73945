"""Tests are alike on every machine: one thread, and the same examples of a property.

The tensors of tests are small, and threads that wait for each other are slow. `--last-bits SEED` runs every test within
`last_bits.LastBits(SEED)`, another machine's arithmetic.
"""

import os
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"  # before torch is imported, and for the processes that tests start

# A property that is slow to check is no false one.
settings.register_profile(
    "same everywhere",
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("same everywhere")


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
