"""Annotations that run: every function, dataclass and named tuple of the library is held to its types while tests run.

`held_imports` sees to it. Shapes are jaxtyping's, and an axis has one size throughout a call; beartype compares, and
of a container it looks at one item, the next one at each call. What is called with wrong arguments runs with types off:
if it refuses them by an error of its own, that error is seen, as by a user, and `FalseType` otherwise. Not held to
their types are functions within functions, what a generator yields, and most calls of what is called very often.
"""

import dataclasses
import functools
import inspect
import io
import itertools
import numbers
import sys
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, TextIO

# Where a number is wanted NumPy's are taken, too (see `leakage.arguments`), and a stream of text may have no buffer.
_MEANT = {int: int | numbers.Integral, float: float | numbers.Real, TextIO: io.TextIOBase}
_DRAW = "__beartype_getrandbits"  # it chooses the item of a container: in turn, not by Python's random numbers
_off = ContextVar("types are off", default=False)
_ALL, _OF = 10, 64  # calls of a function that are all compared; of those that follow one in so many


class FalseType(AssertionError):
    """An annotation says what is not so; no `except ValueError` or `TypeError` takes it for a refusal."""


def held(thing: Any) -> Any:
    """A function that is held to its annotations, or a class whose fields are."""
    if not inspect.isclass(thing):
        return _held(thing)
    if dataclasses.is_dataclass(thing) and "__init__" in vars(thing):
        thing.__init__ = _held(thing.__init__)
    elif issubclass(thing, tuple) and "_fields" in vars(thing):
        thing.__new__ = staticmethod(_held_unless_torch_calls(thing.__new__))
    return thing


def _held_unless_torch_calls(new: Callable[..., Any]) -> Callable[..., Any]:
    """PyTorch fills the fields of a tuple with whatever it counts or maps, such as the dimensions of `vmap`."""
    checked = _held(new)

    @functools.wraps(new)
    def call(*arguments: Any, **options: Any) -> Any:
        by_torch = sys._getframe(1).f_globals["__name__"].startswith("torch.")
        return (new if by_torch else checked)(*arguments, **options)

    return call


def _held(function: Callable[..., Any]) -> Callable[..., Any]:
    checked: Callable[..., Any] | None = None  # made by the first call: most functions are never called
    calls = itertools.count()

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        nonlocal checked
        call_number = next(calls)
        if _off.get() or (call_number >= _ALL and call_number % _OF):
            return function(*arguments, **options)
        if checked is None:
            checked = _checked(function)
        try:
            with jaxtyped("context"):  # an axis has one size within it
                return checked(*arguments, **options)
        except BeartypeCallHintReturnViolation as violation:
            raise FalseType(str(violation)) from None
        except BeartypeCallHintParamViolation as violation:
            refused = str(violation)
        except ValueError as error:
            if not _raised_by_beartype(error):
                raise
            refused = str(error)
        off = _off.set(True)
        try:
            function(*arguments, **options)
        except (ValueError, TypeError):
            raise
        except Exception as error:
            raise FalseType(refused) from error
        finally:
            _off.reset(off)
        raise FalseType(refused)

    return call


def _raised_by_beartype(error: Exception) -> bool:
    """Whether the arguments are refused, and so odd that the refusal cannot write them."""
    frame = error.__traceback__
    while frame and frame.tb_next:
        frame = frame.tb_next
    return bool(frame) and frame.tb_frame.f_globals.get("__name__", "").startswith("beartype.")


def _import_what_compares() -> None:
    """Wait with these imports for the first call: many a process imports much of the library and calls nothing."""
    global BeartypeConf, FrozenDict, beartype, jaxtyped, BeartypeCallHintParamViolation, BeartypeCallHintReturnViolation
    from beartype import BeartypeConf, FrozenDict, beartype
    from beartype.roar import BeartypeCallHintParamViolation, BeartypeCallHintReturnViolation
    from jaxtyping import jaxtyped


def _checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its arguments and result compared at each call."""
    _import_what_compares()

    @functools.wraps(function)
    def opened(*arguments: Any, **options: Any) -> Any:  # compared when it is called, not when the first item is wanted
        return function(*arguments, **options)

    whole = opened if inspect.isgeneratorfunction(function) else function
    checked: Any = beartype(conf=BeartypeConf(hint_overrides=FrozenDict(_MEANT)))(whole)
    if _DRAW in (checked.__kwdefaults__ or {}):
        turns = itertools.count()
        checked.__kwdefaults__[_DRAW] = lambda bits: next(turns)
    return checked
