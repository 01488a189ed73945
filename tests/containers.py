"""The tensors within a value."""

import copy
import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

PLAIN = {int, float, bool, str, type(None), torch.dtype, torch.device}  # most arguments of operations hold no tensor


def map_tensors(value: Any, change: Callable[[Any], Any]) -> Any:
    """The value with each tensor and generator changed: in containers, calls with arguments, networks and records."""
    if type(value) in PLAIN:
        return value
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, (tuple, list)):
        own = [map_tensors(part, change) for part in value]
        return type(value)(*own) if hasattr(value, "_fields") else type(value)(own)
    if isinstance(value, dict):
        return type(value)((name, map_tensors(part, change)) for name, part in value.items())
    if isinstance(value, torch.Generator):
        return change(value)
    if not hasattr(value, "__dict__") or inspect.isclass(value):
        return value
    if isinstance(value, functools.partial):
        called = map_tensors((value.args, value.keywords), change)
        return functools.partial(value.func, *called[0], **called[1])
    if isinstance(value, nn.Module) or hasattr(value, "__dataclass_fields__"):
        twin = copy.copy(value)
        twin.__dict__.update(map_tensors(vars(value), change))
        return twin
    return value
