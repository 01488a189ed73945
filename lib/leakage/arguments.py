"""Check a caller's arguments at the public entry points, with error messages of one form.

A function takes the argument's name and value and gives the value back. It raises `TypeError` if the value should be a
tensor and is not, and `ValueError` otherwise; the message names the argument, the rule, the value and, if there is
one, the cure. Shapes are written as in jaxtyping, `"*b n d"`; the length of an axis can be given by keyword. PyTorch is
imported only where there are tensors, since it takes a second.
"""

import math
import numbers
import operator
import re
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_LONGEST_VALUE = 80  # characters of a value that a message repeats
_LONGEST_MESSAGE = 800  # characters of a message in one line


class UserError(Exception):
    """A request to the command line that cannot be carried out; the message is one line."""

    status = 2  # of the command


def check_tensor(name: str, values: Any, shape: str = "", **lengths: int) -> "torch.Tensor":
    """`values`, a tensor of this shape: axes separated by blanks, `"*b"` first for any number; `""` for any shape."""
    if not _is_tensor(values):
        raise TypeError(f"`{name}` must be a tensor, got {type(values).__name__}; try torch.as_tensor.")
    if shape and not _fits(tuple(values.shape), shape.split(), lengths):
        known = ", ".join(f"{axis} = {length}" for axis, length in lengths.items())
        where = f" with {known}" * bool(known)
        raise ValueError(f"`{name}` must have shape ({', '.join(shape.split())}){where}, got {tuple(values.shape)}.")
    return values


def _fits(sizes: tuple[int, ...], axes: list[str], lengths: dict[str, int]) -> bool:
    if axes[0].startswith("*"):
        axes = axes[1:]
        sizes = sizes[len(sizes) - len(axes) :] if len(sizes) >= len(axes) else ()
    if len(sizes) != len(axes):
        return False
    known_lengths = dict(lengths)
    return all(
        int(a) == size if a.isdigit() else known_lengths.setdefault(a, size) == size
        for a, size in zip(axes, sizes, strict=True)
    )


def check_real(
    name: str,
    values: Any,
    shape: str = "",
    *,
    least: float = -math.inf,
    like: "torch.Tensor | None" = None,
    **lengths: int,
) -> "torch.Tensor":
    """A finite floating-point tensor of this shape (`check_tensor`), at least `least`; dtype and device of `like`."""
    check_tensor(name, values, shape, **lengths)
    if not values.is_floating_point():
        raise ValueError(f"`{name}` must be floating-point, got {values.dtype}; try `.double()`.")
    if like is not None and (values.dtype, values.device) != (like.dtype, like.device):
        raise ValueError(
            f"`{name}` must be {like.dtype} on {like.device}, got {values.dtype} on {values.device}; use `.to(…)`."
        )
    if not values.numel():
        return values
    low, high = (float(end) for end in values.detach().aminmax())  # both are NaN if any value is
    if not (math.isfinite(low) and math.isfinite(high) and low >= least):
        wrong = values[~(values.isfinite() & (values >= least))]
        raise ValueError(f"`{name}` must be {_range(least=least)}, got {wrong.flatten()[0].item()!r} among them.")
    return values


def check_whole(name: str, values: Any, shape: str = "", *, most: float = math.inf, **lengths: int) -> "torch.Tensor":
    """A tensor of whole numbers from 0 to `most` (an integer dtype) of this shape (`check_tensor`)."""
    import torch

    check_tensor(name, values, shape, **lengths)
    if values.is_floating_point() or values.is_complex() or values.dtype == torch.bool:
        raise ValueError(f"`{name}` must be whole numbers, got {values.dtype}; try `.long()`.")
    ends = [int(end) for end in values.aminmax()] if values.numel() else []
    if wrong := [end for end in ends if not 0 <= end <= most]:
        rule = _range(least=0, most=most, finite=False)
        raise ValueError(f"`{name}` must be {rule}, got {wrong[0]!r} among them.")
    return values


def check_truth(name: str, values: Any, shape: str = "", **lengths: int) -> "torch.Tensor":
    """A tensor of truth values (`torch.bool`) of this shape (`check_tensor`), not empty."""
    import torch

    check_tensor(name, values, shape, **lengths)
    if values.dtype != torch.bool:
        raise ValueError(f"`{name}` must hold truth values (torch.bool), got {values.dtype}; try `.bool()`.")
    if not values.numel():
        raise ValueError(f"`{name}` must not be empty, got shape {tuple(values.shape)}.")
    return values


def check_count(name: str, value: Any, *, least: int = 0, most: float = math.inf) -> int:
    """An `int` in this range, from a whole number of Python, NumPy or PyTorch; booleans and 2.0 are refused."""
    try:
        number, wrong = operator.index(value), _is_truth(value)
    except TypeError:
        number, wrong = 0, True
    if wrong or not least <= number <= most:
        rule = _range(least=least, most=most, finite=False)
        raise ValueError(f"`{name}` must be a whole number {rule}".rstrip() + f", got {shown(value)}.")
    return number


def check_number(
    name: str,
    value: Any,
    *,
    least: float = -math.inf,
    above: float = -math.inf,
    most: float = math.inf,
    below: float = math.inf,
    finite: bool = True,
) -> float:
    """A `float` in this range, without NaN, from a real number of Python, NumPy or PyTorch."""
    number = float(value) if _is_real(value) else math.nan
    inside = (
        least <= number <= most and (number > above or above == -math.inf) and (number < below or below == math.inf)
    )
    if not inside or (finite and math.isinf(number)):
        rule = _range(least=least, above=above, most=most, below=below, finite=finite)
        raise ValueError(f"`{name}` must be a number {rule}, got {shown(value)}.")
    return number


def check_choice(name: str, value: Any, known: Iterable[str]) -> str:
    """One of the names `known`."""
    names = tuple(known)
    if not isinstance(value, str) or value not in names:
        raise ValueError(f"`{name}` must be one of {', '.join(names)}; got {shown(value)}.")
    return value


def check_device(name: str, device: Any) -> "torch.device":
    """A device that this machine can compute on."""
    import torch

    try:
        found = torch.empty(0, dtype=torch.float64, device=device).device  # losses need it
    except (RuntimeError, AssertionError, TypeError) as error:
        found = str(error).partition("\n")[0].rstrip(".")
    if isinstance(found, str) or found.type == "meta":
        reason = f": {found}" * isinstance(found, str)
        raise ValueError(f"`{name}` must be one that this machine has, got {shown(device)}{reason}; 'cpu' always is.")
    return found


def shown(value: Any) -> str:
    """`value` as a message repeats it: its `repr`, with the middle left out where it is long."""
    return shorten(repr(value), _LONGEST_VALUE)


def shorten(text: str, most: int) -> str:
    """`text`, with the middle left out where it has more than `most` characters."""
    half = most // 2
    return text if len(text) <= most else f"{text[:half]} … {text[-half:]} ({len(text):,} characters)"


def one_line(text: object) -> str:
    """`text` as a terminal can show it: without colours and line breaks, of bounded length."""
    words = " ".join(re.sub(r"\x1b\[[0-9;]*m", "", str(text)).split())
    return shorten("".join(one if one.isprintable() else "�" for one in words), _LONGEST_MESSAGE)


def _is_real(value: Any) -> bool:
    if _is_tensor(value):
        return value.ndim == 0 and not _is_truth(value) and not value.is_complex()
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _is_truth(value: Any) -> bool:
    return isinstance(value, bool) or (_is_tensor(value) and str(value.dtype) == "torch.bool")


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")  # where it was never imported, there is no tensor
    return torch is not None and isinstance(value, torch.Tensor)


def _range(*, finite: bool = True, **bounds: float) -> str:
    """A range in words: `finite and at least 0 and below 1`, of `least=0, below=1`."""
    words = {"least": "at least", "above": "above", "most": "at most", "below": "below"}
    parts = [f"{words[end]} {bound:g}" for end, bound in bounds.items() if math.isfinite(bound)]
    return " and ".join([*(["finite"] if finite else []), *parts]) or "not NaN"
