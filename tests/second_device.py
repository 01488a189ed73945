"""A second device for machines without one: its tensors compute on the CPU, and it refuses what a GPU refuses.

A tensor made with `device=DEVICE`, and all that is computed from it, is a `Remote`. What fails on a GPU raises here,
too: an operation on a remote tensor and one of the CPU, except where PyTorch lets them meet; a draw by a generator of
the other device; and NumPy, with all that reads arrays (SciPy, scikit-learn, matplotlib), on a remote tensor. Importing
this registers the device with torch for good, so that it belongs in a process of its own.

`install` makes the device the GPU of a process: a chapter with `device = "cuda"` then runs on it.

`pytest -p second_device` takes each call of the library by a test and makes it on this device: tensors, networks and
records that hold them are moved there, what comes back must be there too, and the test gets it on the CPU. No test has
to know. What a record does when it is made, and what takes gradients of its own inputs, is left alone.
"""

import functools
import inspect
from typing import Any

import jaxtyping
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from containers import map_tensors

_setup_privateuseone_for_python_backend("second")
DEVICE = torch.device("second", 0)
CPU = torch.device("cpu")
MAY_MIX = {"copy_", "_to_copy", "fill_"}  # what moves tensors, or numbers, between devices
MATRIX_PRODUCTS = {"matmul", "__matmul__"}
INDEXES = {"index", "index_put", "index_put_", "_index_put_impl_"}  # their places may lie on the CPU


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

    def __format__(self, form):
        return format(self.item(), form) if self.ndim == 0 else super().__format__(form)

    def numpy(self, *_, **__):
        raise TypeError("can't convert a tensor of the second device to numpy: copy it to the CPU first")

    __array__ = numpy

    @classmethod
    def __torch_dispatch__(cls, operation, types, args=(), kwargs=None):
        return perform(operation, args, kwargs or {})


class RemoteGenerator(torch.Generator):
    """A generator of the second device."""

    device = DEVICE

    def clone_state(self):
        twin = RemoteGenerator()
        twin.set_state(self.get_state())
        return twin


class SecondDevice(TorchDispatchMode):
    """Within this context `device=DEVICE` works wherever torch takes a device."""

    @classmethod
    def _should_skip_dynamo(cls):
        return False  # nothing is compiled here, and saying so to the compiler imports all of it

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if Remote not in types and kwargs.get("device") is None:
            return operation(*args, **kwargs)  # on the CPU alone
        return perform(operation, args, kwargs)

    def __enter__(self):
        torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor(..., device=...) then moves what it made on the CPU
        self.calls = PythonCalls()
        self.calls.__enter__()
        return super().__enter__()

    def __exit__(self, *error):
        super().__exit__(*error)
        self.calls.__exit__(*error)
        torch._C._set_only_lift_cpu_tensors(False)


class PythonCalls(TorchFunctionMode):
    """What can only be seen in calls from Python: whose a generator is, and a product that squeezes in place."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function.__name__ in MATRIX_PRODUCTS and isinstance(args[0], Remote) and args[0].ndim == 1 < args[1].ndim:
            return function(args[0].unsqueeze(0), args[1]).squeeze(-2)  # PyTorch would squeeze a wrapper in place
        if function is torch.tensor and isinstance(args[0], list | tuple):  # of numbers, read one by one from a GPU
            args = (map_tensors(args[0], lambda one: one.item()), *args[1:])
        generator, asked = kwargs.get("generator"), kwargs.get("device")
        if generator is not None:
            remote = (
                any(isinstance(one, Remote) for one in args)
                if asked is None
                else torch.device(asked).type == DEVICE.type
            )
            if remote != isinstance(generator, RemoteGenerator):
                raise RuntimeError(f"{function.__name__} draws on another device than that of its generator")
        return function(*args, **kwargs)


def perform(operation, args, kwargs):
    """Compute on the CPU, and say where a GPU's result would be."""
    name, remote = operation.overloadpacket.__name__, {}  # remote tensors by the numbers they hold
    local: list[torch.Tensor] = []

    def near(tensor):
        if isinstance(tensor, Remote):
            remote[id(tensor.near)] = tensor
            return tensor.near
        if isinstance(tensor, torch.Tensor):
            local.append(tensor)
        return tensor

    given, named = map_tensors(args, near), map_tensors(kwargs, near)
    asked = named.get("device")
    leaves = bool(remote) if asked is None else torch.device(asked).type == DEVICE.type
    if remote and name not in MAY_MIX:
        check_mixture(operation, args, local)
    result = operation(*given, **(named if asked is None else named | {"device": CPU}))
    if not leaves:
        return result
    # What was changed in place comes back as the tensor that was given.
    return map_tensors(result, lambda near: remote[id(near)] if id(near) in remote else Remote(near))


def check_mixture(operation, args, local):
    """Raise if remote tensors meet tensors of the CPU where a GPU refuses that.

    A single number of the CPU may meet them in elementwise operations, and a remote tensor may be indexed by places on
    the CPU.
    """
    numbers_mix = torch.Tag.pointwise in operation.tags
    if operation.overloadpacket.__name__ in INDEXES and isinstance(args[0], Remote):
        places = [id(place) for place in args[1]]
        local = [tensor for tensor in local if id(tensor) not in places]
        numbers_mix = True
    if any(tensor.ndim > 0 or not numbers_mix for tensor in local):
        raise RuntimeError(f"{operation} mixes tensors of the second device with tensors of the CPU")


# ── a process whose GPU this is ──────────────────────────────────────────────────────────────────────────────────────


def install() -> None:
    """From now on `device = "cuda"` and `"auto"` of `reproduced.runtime` mean this device."""
    from leakage import draws
    from reproduced import runtime

    runtime.pick_device = lambda device="auto": DEVICE
    draws.generator_on = generator_on
    SecondDevice().__enter__()


def generator_on(device, generator):
    """`leakage.draws.generator_on`, with a generator that torch cannot make."""
    if isinstance(generator, RemoteGenerator) or torch.device(device).type != DEVICE.type:
        return generator
    return RemoteGenerator().manual_seed(int(torch.randint(2**62, (), generator=generator)))


# ── calls of the library by tests ────────────────────────────────────────────────────────────────────────────────────

# Samplers draw where their generator is, closed forms are on the CPU, and experiments move their tensors by themselves.
ON_THE_CPU = ("leakage.data", "reproduced")
# Of the papers: trainers, networks, attacks and geometry, with the closed forms that these use.
ELSEWHERE = (
    "blessing.logistic_regression",
    "blessing.proximal_operator",
    "blessing.svm",
    "gradient_inversion.deep_networks",
    "gradient_inversion.gradient_matching",
    "gradient_inversion.server_weights",
    "kkt_margin.line_reconstruction",
    "kkt_margin.margin_flow",
    "kkt_margin.piecewise_linear",
    "kkt_margin.two_layer",
    "min_norm.nested_fits",
    "polytopes.decision_boundary",
    "polytopes.polygons",
    "polytopes.subdivision",
)
_inside = False


def near_of(tensor):
    return tensor.near if isinstance(tensor, Remote) else tensor


def parts(value: Any) -> list[Any]:
    """All tensors and generators in a value."""
    found: list[Any] = []
    map_tensors(value, lambda one: found.append(one) or one)
    return found


def held(thing: Any) -> Any:
    """In place of a function whose types are checked: one that computes elsewhere."""
    if inspect.isclass(thing) or (thing.__name__.startswith("__") and thing.__name__ != "__call__"):
        return thing  # it makes a record of what is given
    if thing.__module__ == "leakage.draws":
        return generator_on if thing.__name__ == "generator_on" else thing
    if thing.__module__.startswith(ON_THE_CPU) and not thing.__module__.endswith(ELSEWHERE):
        return thing

    @functools.wraps(thing)
    def call(*arguments: Any, **options: Any) -> Any:
        global _inside
        if _inside:
            return thing(*arguments, **options)
        given = map_tensors((arguments, options), _leave)
        _inside = True
        try:
            with SecondDevice():
                found = thing(*given[0], **given[1])
                found = [*found] if inspect.isgenerator(found) else found
        finally:
            _inside = False
        if any(isinstance(one, Remote) for one in parts(given)):
            near = [one for one in parts(found) if isinstance(one, torch.Tensor) and not isinstance(one, Remote)]
            if near:
                raise RuntimeError(f"{thing.__qualname__} gives a result on the CPU")
        back = map_tensors(found, near_of)
        return iter(back) if inspect.isgeneratorfunction(thing) else back

    return call


def _leave(value: Any) -> Any:
    """A tensor on the second device; generators stay on the CPU, and shapes without numbers nowhere."""
    if isinstance(value, torch.Generator) or value.is_meta:
        return value
    far = Remote(value.detach())
    return nn.Parameter(far, value.requires_grad) if isinstance(value, nn.Parameter) else far


jaxtyping.jaxtyped = lambda typechecker: held  # what the import hook of `--jaxtyping-packages` decorates with
