"""What a caller's arguments must be: one place that looks, and one form of words for what is wrong.

A function takes the argument's name and value and gives the value back, or raises `TypeError` for what is no tensor and
`ValueError` for everything else; the message names the argument, the rule, what came instead and, where there is one,
the cure. Shapes are written as in jaxtyping, `"*b n d"`; an axis whose length is known is given by keyword. Nothing
here converts, moves or copies a value. PyTorch, slow to import, is so where there are tensors only.
"""

import math
import numbers
import operator
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_ANY = (-math.inf, -math.inf, math.inf)  # the bounds of values that may be any number
_LONGEST_VALUE = 80  # characters of a value that a message repeats


def tensor(name: str, values: Any, shape: str = "", **lengths: int) -> "torch.Tensor":
    """`values` if it is a tensor of this shape.

    Args:
        name: of the argument.
        values: what the caller gave.
        shape: axes separated by blanks, such as `"*b n d"`: a first one with a star stands for any number of axes, a
            number for itself, one name twice for equal lengths; "" leaves the shape open.
        lengths: what a named axis must measure.

    Raises:
        TypeError: if it is no tensor.
        ValueError: if the shape is another.
    """
    if not _is_tensor(values):
        raise TypeError(f"`{name}` must be a tensor, got {type(values).__name__}; try torch.as_tensor.")
    if shape and not _fits(tuple(values.shape), shape.split(), lengths):
        known = ", ".join(f"{axis} = {length}" for axis, length in lengths.items())
        where = f" with {known}" * bool(known)
        raise ValueError(f"`{name}` must have shape ({', '.join(shape.split())}){where}, got {tuple(values.shape)}.")
    return values


def _fits(found: tuple[int, ...], axes: list[str], lengths: dict[str, int]) -> bool:
    if axes[0].startswith("*"):
        axes = axes[1:]
        found = found[len(found) - len(axes) :] if len(found) >= len(axes) else ()
    if len(found) != len(axes):
        return False
    bound = dict(lengths)
    return all(
        int(a) == size if a.isdigit() else bound.setdefault(a, size) == size
        for a, size in zip(axes, found, strict=True)
    )


def real(
    name: str,
    values: Any,
    shape: str = "",
    *,
    least: float = -math.inf,
    above: float = -math.inf,
    most: float = math.inf,
    finite: bool = True,
    like: "torch.Tensor | None" = None,
    **lengths: int,
) -> "torch.Tensor":
    """`values` if it is a floating-point tensor of this shape (see `tensor`) and range, without NaN.

    Args:
        name: of the argument.
        values: what the caller gave.
        shape: see `tensor`.
        least: the smallest value allowed.
        above: every value must be larger.
        most: the largest value allowed.
        finite: whether infinite values are refused, too; NaN always is.
        like: a tensor with which it is computed, so that dtype and device must agree.
        lengths: see `tensor`.

    Raises:
        TypeError: if it is no tensor.
        ValueError: if dtype, device, shape or a value is another.
    """
    import torch

    tensor(name, values, shape, **lengths)
    if not values.is_floating_point():
        raise ValueError(f"`{name}` must be floating-point, got {values.dtype}; try `.double()`.")
    if like is not None and (values.dtype, values.device) != (like.dtype, like.device):
        raise ValueError(
            f"`{name}` must be {like.dtype} on {like.device}, as what it is computed with, "
            f"got {values.dtype} on {values.device}; use `.to(…)`."
        )

    # A finite sum has finite summands only, and takes a fraction of the time that the ends take.
    if finite and (least, above, most) == _ANY and math.isfinite(values.detach().sum()):
        return values
    # One pass finds the smallest and the largest value, NaN if any is; both come off the device at once.
    ends = torch.stack(values.detach().aminmax()).tolist() if values.numel() else ()
    if not all(least <= end <= most and (end > above or above == -math.inf) for end in ends) or (
        finite and not all(map(math.isfinite, ends))
    ):
        _refuse(name, values, least=least, above=above, most=most, finite=finite)
    return values


def whole(
    name: str, values: Any, shape: str = "", *, least: int = 0, most: float = math.inf, **lengths: int
) -> "torch.Tensor":
    """`values` if it is a tensor of whole numbers (an integer dtype) of this shape (see `tensor`) and range.

    Raises:
        TypeError: if it is no tensor.
        ValueError: if dtype, shape or a value is another.
    """
    import torch

    tensor(name, values, shape, **lengths)
    if values.is_floating_point() or values.is_complex() or values.dtype == torch.bool:
        raise ValueError(f"`{name}` must be whole numbers, got {values.dtype}; try `.long()`.")
    if values.dtype != torch.uint8 and not values.dtype.is_signed:
        raise ValueError(f"`{name}` must be whole numbers that can be compared, got {values.dtype}; try `.long()`.")
    ends = [int(end) for end in values.aminmax()] if values.numel() else []  # compared as numbers: a dtype wraps bounds
    if wrong := [end for end in ends if not least <= end <= most]:
        rule = _range(least=least, above=-math.inf, most=most, finite=False)
        raise ValueError(f"`{name}` must be {rule}, got {wrong[0]!r} among them.")
    return values


def truth(name: str, values: Any, shape: str = "", **lengths: int) -> "torch.Tensor":
    """`values` if it is a tensor of truth values (`torch.bool`) of this shape (see `tensor`).

    Raises:
        TypeError: if it is no tensor.
        ValueError: if the dtype or the shape is another.
    """
    import torch

    tensor(name, values, shape, **lengths)
    if values.dtype != torch.bool:
        raise ValueError(f"`{name}` must hold truth values (torch.bool), got {values.dtype}; try `.bool()`.")
    return values


def filled(name: str, values: Any) -> "torch.Tensor":
    """`values` if it is a tensor with an entry at least.

    Raises:
        TypeError: if it is no tensor.
        ValueError: if it is empty.
    """
    if not tensor(name, values).numel():
        raise ValueError(f"`{name}` must not be empty, got shape {tuple(values.shape)}.")
    return values


def signs(name: str, values: Any, shape: str = "", **lengths: int) -> "torch.Tensor":
    """`values` if it is a tensor of labels -1 and 1, of any dtype that has them, of this shape (see `tensor`).

    Raises:
        TypeError: if it is no tensor.
        ValueError: if the shape or a value is another.
    """
    tensor(name, values, shape, **lengths)
    good = (values == 1) | (values == -1) if values.dtype.is_signed else values == 1  # 255 is no -1
    if not bool(good.all()):
        raise ValueError(f"`{name}` must be -1 or 1, got {values[~good].flatten()[0].item()!r} among them.")
    return values


def count(name: str, value: Any, *, least: int = 0, most: float = math.inf) -> int:
    """`value` as an `int` if it is a whole number in this range; NumPy's are, truth values and 2.0 are not.

    Raises:
        ValueError: otherwise.
    """
    try:  # every tensor has `__index__`, and some refuse to be asked
        number, wrong = operator.index(value), _is_truth(value)
    except TypeError:
        number, wrong = 0, True
    if wrong or not least <= number <= most:
        rule = _range(least=least, above=-math.inf, most=most, finite=False)
        raise ValueError(f"`{name}` must be a whole number {rule}".rstrip() + f", got {shown(value)}.")
    return number


def number(
    name: str,
    value: Any,
    *,
    least: float = -math.inf,
    above: float = -math.inf,
    most: float = math.inf,
    below: float = math.inf,
    finite: bool = True,
) -> float:
    """`value` as a `float` if it is a real number in this range, without NaN.

    Raises:
        ValueError: otherwise.
    """
    try:
        found = float(value) if _is_real(value) else math.nan
    except OverflowError:
        found = math.nan
    good = least <= found <= most and (found > above or above == -math.inf) and (found < below or below == math.inf)
    if not good or (finite and math.isinf(found)):
        rule = _range(least=least, above=above, most=most, below=below, finite=finite)
        raise ValueError(f"`{name}` must be a number {rule}, got {shown(value)}.")
    return found


def _is_real(value: Any) -> bool:
    if _is_tensor(value):
        return value.ndim == 0 and not _is_truth(value) and not value.is_complex()
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _is_truth(value: Any) -> bool:
    return isinstance(value, bool) or (_is_tensor(value) and str(value.dtype) == "torch.bool")


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")  # where it was never imported, there is no tensor
    return torch is not None and isinstance(value, torch.Tensor)


def precision(name: str, value: Any) -> "torch.dtype":
    """`value` if it is a floating-point dtype.

    Raises:
        ValueError: otherwise.
    """
    import torch

    if not isinstance(value, torch.dtype) or not value.is_floating_point:
        raise ValueError(f"`{name}` must be floating-point, got {value}.")
    return value


def choice(name: str, value: Any, known: Iterable[str]) -> str:
    """`value` if it is one of the names `known`.

    Raises:
        ValueError: otherwise, with the names.
    """
    names = tuple(known)
    if not isinstance(value, str) or value not in names:
        raise ValueError(f"`{name}` must be one of {', '.join(names)}; got {shown(value)}.")
    return value


def shown(value: Any) -> str:
    """`value` as a message repeats it: its `repr`, of which the middle is left out where it is long."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no integer of more than 4,300 digits
        text = f"a {type(value).__name__} that is too long to write"
    return shorten(text, _LONGEST_VALUE)


def shorten(text: str, most: int) -> str:
    """`text`, with the middle left out where it has more than `most` characters: its ends say what it is."""
    half = most // 2
    return text if len(text) <= most else f"{text[:half]} … {text[-half:]} ({len(text):,} characters)"


def _range(*, least: float, above: float, most: float, below: float = math.inf, finite: bool) -> str:
    """A range in words: `finite, at least 0 and below 1`."""
    bounds = {"at least": least, "above": above, "at most": most, "below": below}
    parts = [f"{word} {bound:g}" for word, bound in bounds.items() if math.isfinite(bound)]
    return " and ".join([*(["finite"] if finite else []), *parts]) or "not NaN"


def _refuse(name: str, values: "torch.Tensor", *, least: float, above: float, most: float, finite: bool) -> None:
    """Raise the error of `real`, unless bounds rounded as the values are let them pass: 0.7 is above float32's 0.7."""
    good = (values >= least) & (values <= most)
    if above > -math.inf:
        good &= values > above
    if finite:
        good &= values.isfinite()
    if not bool(good.all()):
        rule = _range(least=least, above=above, most=most, finite=finite)
        raise ValueError(f"`{name}` must be {rule}, got {values[~good].flatten()[0].item()!r} among them.")
