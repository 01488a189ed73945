"""Annotations that run: every function, dataclass and named tuple of the library is held to its types while tests run.

`install` changes how `leakage` is imported, here and, by `sitecustomize`, in the processes that tests start. Shapes are
jaxtyping's, and an axis has one size throughout a call; beartype compares, and of a container it looks at one item, the
next one at each call. What is called with wrong arguments runs with types off: if it refuses them by its own error,
that error is seen, as by a user, and `FalseType` otherwise. Functions within functions are not held to their types, and
what a generator yields is not.
"""

import ast
import dataclasses
import functools
import inspect
import itertools
import sys
from collections.abc import Callable
from contextvars import ContextVar
from importlib.abc import MetaPathFinder
from importlib.machinery import SourceFileLoader
from typing import Any

from beartype import BeartypeConf, beartype
from beartype.roar import BeartypeCallHintParamViolation, BeartypeCallHintReturnViolation
from jaxtyping import jaxtyped

PACKAGE = "leakage"
_DRAW = "__beartype_getrandbits"  # it chooses the item of a container: in turn, not by Python's random numbers
_off = ContextVar("types are off", default=False)


class FalseType(AssertionError):
    """An annotation says what is not so; no `except ValueError` or `TypeError` takes it for a refusal."""


def install() -> None:
    """Hold to their types what is imported from the package from now on."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        """What the other finders find, with a loader of ours."""
        if fullname.partition(".")[0] != PACKAGE:
            return None
        found = (finder.find_spec(fullname, path, target) for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, found), None)
        if spec and type(spec.loader) is SourceFileLoader:
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> Any:
        """Compiled anew: what lies in `__pycache__` has no decorators, and is to have none."""
        tree = ast.parse(self.get_data(self.path), self.path)
        _decorate(tree.body)
        return compile(ast.fix_missing_locations(tree), self.path, "exec", dont_inherit=True)


def _decorate(body: list[ast.stmt]) -> None:
    """Hold functions first, since what else decorates them wants functions; classes last, when they are dataclasses."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            node.decorator_list.insert(0, _decorator(node))
            _decorate(node.body)
        elif isinstance(node, ast.FunctionDef):
            node.decorator_list.append(_decorator(node))


def _decorator(node: ast.stmt) -> ast.expr:
    """`held`, in a module that has not imported it."""
    decorator = ast.parse(f"__import__('{__name__}').held", mode="eval").body
    return ast.copy_location(decorator, node)


def held(thing: Any) -> Any:
    """A function that is held to its annotations, or a class whose fields are."""
    if not inspect.isclass(thing):
        return _held(thing)
    if dataclasses.is_dataclass(thing) and "__init__" in vars(thing):
        thing.__init__ = _held(thing.__init__)
    elif issubclass(thing, tuple) and "_fields" in vars(thing):
        thing.__new__ = staticmethod(_held(thing.__new__))
    return thing


def _held(function: Callable[..., Any]) -> Callable[..., Any]:
    checked: Callable[..., Any] | None = None  # made by the first call: most functions are never called

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        nonlocal checked
        if _off.get():
            return function(*arguments, **options)
        if checked is None:
            checked = _checked(function)
        try:
            with jaxtyped("context"):  # an axis has one size within it
                return checked(*arguments, **options)
        except BeartypeCallHintParamViolation as violation:
            refused = str(violation)
        except BeartypeCallHintReturnViolation as violation:
            raise FalseType(str(violation)) from None
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


def _checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its arguments and result compared at each call."""

    @functools.wraps(function)
    def opened(*arguments: Any, **options: Any) -> Any:  # compared when it is called, not when the first item is wanted
        return function(*arguments, **options)

    whole = opened if inspect.isgeneratorfunction(function) else function
    checked: Any = beartype(conf=BeartypeConf(is_pep484_tower=True))(whole)
    if _DRAW in (checked.__kwdefaults__ or {}):
        turns = itertools.count()
        checked.__kwdefaults__[_DRAW] = lambda bits: next(turns)
    return checked
