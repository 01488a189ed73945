"""Random numbers come from the generator that is given, in the precision that is asked for, and from nowhere else."""

import ast
from pathlib import Path

import pytest
import torch

from leakage import draws

LIBRARY = Path(__file__).parents[2] / "lib" / "leakage"
LIKE = torch.zeros(1, dtype=torch.float32)
SAME = {
    "gaussian": (lambda **how: draws.gaussian((3, 2), **how), lambda **how: torch.randn(3, 2, **how)),
    "uniform": (lambda **how: draws.uniform((3, 2), **how), lambda **how: torch.rand(3, 2, **how)),
}


def seeded():
    return torch.Generator().manual_seed(7)


@pytest.mark.parametrize("name", SAME)
def test_numbers_are_torchs_own_in_the_precision_asked_for(name):
    ours, torchs = SAME[name]
    for how, dtype in (({}, torch.float64), ({"like": LIKE}, torch.float32), ({"dtype": torch.float32}, torch.float32)):
        torch.testing.assert_close(ours(generator=seeded(), **how), torchs(generator=seeded(), dtype=dtype))


def test_whole_numbers_do_not_depend_on_what_they_are_for():
    for like in (None, LIKE):
        torch.testing.assert_close(
            draws.integers(9, (4,), generator=seeded(), like=like), torch.randint(9, (4,), generator=seeded())
        )
        torch.testing.assert_close(
            draws.permutation(9, generator=seeded(), like=like), torch.randperm(9, generator=seeded())
        )


def test_a_generator_stays_where_it_draws():
    generator = seeded()
    assert draws.generator_on(torch.device("cpu"), generator) is generator


def test_no_other_module_of_the_library_draws():
    """So that no draw forgets the device, or takes PyTorch's global stream."""
    drawing = {f"torch.{name}" for name in ("rand", "randn", "randint", "randperm", "normal", "bernoulli")}
    found = [
        f"{path.relative_to(LIBRARY)}:{node.lineno}"
        for path in LIBRARY.rglob("*.py")
        if path.name != "draws.py"
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in drawing
    ]
    assert not found
