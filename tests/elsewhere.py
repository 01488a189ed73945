"""Results live where the inputs live: tests run again with all that they give to the library on a second device.

`pytest -p elsewhere` takes each call of the library by a test and makes it on the device of `second_device`, which
refuses to meet the CPU: tensors, generators, networks and records that hold them are moved there, what comes back must
be there too, and the test gets it on the CPU. No test has to know. What a record does when it is made, and what takes
gradients of its own inputs, is left alone.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import jaxtyping
import pytest
import torch
from torch import nn

from second_device import DEVICE, Remote, RemoteGenerator, SecondDevice, exchanged, near_of, parts

SHORT = {
    "leakage.attacks.gradient_inversion.tensor_decomposition": dict(_MOST_SWEEPS=6),
    "reproduced.studies.gradient_inversion.step_errors": dict(_POWER_STEPS=3, _ALS_SWEEPS=3),
    "reproduced.studies.blessing.tradeoff": dict(_ROUNDS=1, _SECANTS=2),
    "leakage.theory.logistic.limit": dict(_FIXED_POINT_STEPS=1, _GOAL=0.1, TOLERANCE=0.1),
}
_inside = False


def held(thing: Any) -> Any:
    """In place of a function whose types are checked: one that computes elsewhere."""
    if inspect.isclass(thing) or (thing.__name__.startswith("__") and thing.__name__ != "__call__"):
        return thing  # it makes a record of what is given
    if (thing.__module__, thing.__name__) == ("reproduced.runtime", "stream"):
        return functools.partial(_stream, thing)

    @functools.wraps(thing)
    def call(*arguments: Any, **options: Any) -> Any:
        global _inside
        if _inside:
            return thing(*arguments, **options)
        generators: dict[torch.Generator, RemoteGenerator] = {}
        given = exchanged((arguments, options), functools.partial(_leave, generators))
        _inside = True
        try:
            with SecondDevice():
                found = thing(*given[0], **given[1])
                found = [*found] if inspect.isgenerator(found) else found
        finally:
            _inside = False
        for near, far in generators.items():
            near.set_state(far.get_state())
        if generators or any(isinstance(one, Remote) for one in parts(given)):
            near = [one for one in parts(found) if isinstance(one, torch.Tensor) and not isinstance(one, Remote)]
            if near:
                raise RuntimeError(f"{thing.__qualname__} gives a result on the CPU")
        back = exchanged(found, near_of)
        return iter(back) if inspect.isgeneratorfunction(thing) else back

    return call


def _stream(stream: Callable[..., torch.Generator], seed: int, name: str, device: Any = "cpu") -> torch.Generator:
    """A stream of the second device, too, which torch cannot make."""
    if torch.device(device).type != DEVICE.type:
        return stream(seed, name, device)
    return RemoteGenerator().manual_seed(stream(seed, name).initial_seed())


def _leave(generators: dict[torch.Generator, RemoteGenerator], value: Any) -> Any:
    """A tensor or generator on the second device; one that is given twice is one there."""
    if isinstance(value, torch.Generator):
        if value not in generators:
            generators[value] = RemoteGenerator()
            generators[value].set_state(value.get_state())
        return generators[value]
    far = Remote(value.detach())
    return nn.Parameter(far, value.requires_grad) if isinstance(value, nn.Parameter) else far


@pytest.fixture(autouse=True)
def searches_end_early(request, monkeypatch):
    """Of `elsewhere_checks`, which ask for no values: a result lives in one place from the first step of a search."""
    if not request.module.__name__.startswith("elsewhere"):
        return
    for module, limits in SHORT.items():
        for name, limit in limits.items():
            monkeypatch.setattr(f"{module}.{name}", limit)


jaxtyping.jaxtyped = lambda typechecker: held  # what the import hook of `--jaxtyping-packages` decorates with
