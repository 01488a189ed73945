"""A second device for machines without one: its tensors compute on the CPU, but do not mix with the CPU's.

Code that makes a tensor on the wrong device runs on a CPU and fails on a GPU. Under `SecondDevice` it fails here too:
a tensor made with `device=DEVICE`, and all that is computed from it, is a `Remote`, and an operation that a GPU would
refuse, one on a remote tensor and on a tensor of the CPU that is no single number, raises. Importing this registers
the device with torch for good, so that it belongs in a process of its own.

`pytest -p second_device` takes each call of the library by a test and makes it on this device: tensors, generators,
networks and records that hold them are moved there, what comes back must be there too, and the test gets it on the
CPU. No test has to know. What a record does when it is made, and what takes gradients of its own inputs, is left alone.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import jaxtyping
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from containers import map_tensors

_setup_privateuseone_for_python_backend("second")
DEVICE = torch.device("second", 0)
CPU = torch.device("cpu")
MAY_MIX = ("copy_", "_to_copy")  # what moves tensors between devices


class Remote(torch.Tensor):
    """A tensor that says it is on the second device; `near` holds its numbers."""

    @staticmethod
    def __new__(cls, near):
        return torch.Tensor._make_wrapper_subclass(
            cls,
            near.shape,
            strides=near.stride(),
            storage_offset=near.storage_offset(),
            dtype=near.dtype,
            device=DEVICE,
        )

    def __init__(self, near):
        self.near = near

    def tolist(self):
        return self.near.tolist()

    def __repr__(self):
        return f"Remote({self.near!r})"

    @classmethod
    def __torch_dispatch__(cls, operation, types, args=(), kwargs=None):
        return perform(operation, args, kwargs or {})


class RemoteGenerator(torch.Generator):
    """A generator of the second device, which draws what one of the CPU draws."""

    device = DEVICE


class SecondDevice(TorchDispatchMode):
    """Within this context `device=DEVICE` works wherever torch takes a device."""

    @classmethod
    def _should_skip_dynamo(cls):
        return False  # nothing is compiled here, and saying so to the compiler imports all of it

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        return perform(operation, args, kwargs or {})

    def __enter__(self):
        torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor(..., device=...) then moves what it made on the CPU
        return super().__enter__()

    def __exit__(self, *error):
        torch._C._set_only_lift_cpu_tensors(False)
        return super().__exit__(*error)


def perform(operation, args, kwargs):
    """Compute on the CPU, and say where a GPU's result would be."""
    remote, mixes = {}, False  # by the numbers they hold

    def near(tensor):
        nonlocal mixes
        if isinstance(tensor, Remote):
            remote[id(tensor.near)] = tensor
            return tensor.near
        mixes = mixes or (isinstance(tensor, torch.Tensor) and tensor.ndim > 0)
        return tensor

    args, kwargs = map_tensors(args, near), map_tensors(kwargs, near)
    if remote and mixes and operation.overloadpacket.__name__ not in MAY_MIX:
        raise RuntimeError(f"{operation} mixes tensors of the second device with tensors of the CPU")
    asked = kwargs.get("device")
    leaves = bool(remote) if asked is None else torch.device(asked).type == DEVICE.type
    result = operation(*args, **(kwargs if asked is None else kwargs | {"device": CPU}))
    if not leaves:
        return result
    # What was changed in place comes back as the tensor that was given.
    return map_tensors(result, lambda near: remote[id(near)] if id(near) in remote else Remote(near))


def near_of(tensor):
    return tensor.near if isinstance(tensor, Remote) else tensor


def parts(value: Any) -> list[Any]:
    """All tensors and generators in a value."""
    found: list[Any] = []
    map_tensors(value, lambda one: found.append(one) or one)
    return found


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
        given = map_tensors((arguments, options), functools.partial(_leave, generators))
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
        back = map_tensors(found, near_of)
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
