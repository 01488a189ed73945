"""Rules over named measurements: read once, checked, executed, and shown as they are written.

A rule is a text such as `ridge.low > 0.7 and over_null.low > 0.1`. It compares numbers, and knows the names of the
measurements, the ends `.low` and `.high` of their intervals, `.of` of a count, `+ - * /`, `**`, `and`, `or`, `not` and
the calls `abs`, `min`, `max`, `all` and `any`. Only a count may stand with its bare name: a number with an interval
enters a rule by an end of it, so that no rule rests on a point. Where a measurement is a sequence, an end is
one too: it is compared within `all` or `any`, or reduced by `min` or `max`.
"""

import ast
import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from reproduced.claims import measurements
from reproduced.claims.measurements import Measurement

_ARITHMETIC = ast.Add | ast.Sub | ast.Mult | ast.Div | ast.Pow
_COMPARISONS = ast.Lt | ast.LtE | ast.Gt | ast.GtE | ast.Eq
_CALLS: dict[str, Callable[..., Any]] = {
    "abs": np.abs,
    "min": lambda *values: np.min(np.concatenate([np.ravel(value) for value in values])),
    "max": lambda *values: np.max(np.concatenate([np.ravel(value) for value in values])),
    "all": np.all,
    "any": np.any,
}
_FAR = 1e12  # larger than every number that a rule compares


@dataclass(frozen=True)
class Rule:
    """A condition on measurements, written as above; a `ValueError` if it is none, or compares with no number."""

    text: str

    def __post_init__(self) -> None:
        if _check(self._tree) is not bool:
            raise ValueError(f"a rule must be a comparison; got {self.text!r}.")
        if not _thresholds(self._tree):
            raise ValueError(f"a rule must compare with a number; got {self.text!r}.")

    @functools.cached_property
    def _tree(self) -> ast.expr:
        return _parse(self.text)

    @functools.cached_property
    def _number_names(self) -> set[str]:
        return {node.id for node in ast.walk(self._tree) if isinstance(node, ast.Name)} - _CALLS.keys()

    @property
    def names(self) -> set[str]:
        """The measurements that the rule looks at."""
        return {name.partition(".")[0] for name in self._number_names}

    def __call__(self, values: Mapping[str, Measurement]) -> bool:
        """Whether the measurements satisfy the rule; a `ValueError` if it cannot be applied to what they are."""
        return self._holds(self._tree, self._numbers(values))

    def thresholds(self, values: Mapping[str, Measurement]) -> list[tuple[float, bool]]:
        """Each number that the rule compares with, in the order of the text, and whether the outcome depends on it.

        It does if the rule says something else where this number alone is moved far down or far up.
        """
        tree, numbers, found = _parse(self.text), self._numbers(values), []
        outcome = self._holds(tree, numbers)
        for node in _thresholds(tree):
            number, outcomes = node.value, set()
            for far in (-_FAR, _FAR):
                node.value = far
                outcomes.add(self._holds(tree, numbers))
            node.value = number
            found.append((float(number), outcomes != {outcome}))  # pyright: ignore[reportArgumentType]
        return found

    def margins(self, values: Mapping[str, Measurement]) -> list[float]:
        """How far each comparison of the rule is from its threshold, in the order of the text; positive if it is true.

        `all`: the smallest margin of the elements; `any`: the largest. `==`: 0.5 − |difference|, since counts that
        are not equal differ by 1 at least.
        """
        numbers, found = self._numbers(values), []

        def measure(comparison: ast.expr) -> float:
            found.append(float(_margin(comparison, lambda part: self._value(part, numbers))))
            return found[-1]

        _combine(self._tree, measure)
        return found

    def distance(self, margins: Sequence[float]) -> float:
        """The margin of the whole rule: the least of what `and` joins, the largest of what `or` does."""
        left = iter(margins)
        return _combine(self._tree, lambda _: next(left))

    def _numbers(self, values: Mapping[str, Measurement]) -> dict[str, Any]:
        """The numbers that the rule looks at, by name: `ridge.low`, `ridge.high`, `wrong`, `wrong.of`, …"""
        ends = [(name, *end) for name, measured in values.items() for end in measurements.ends(measured).items()]
        numbers = {f"{name}{suffix}": number for name, suffix, number in ends}
        if missing := sorted(self._number_names - numbers.keys()):
            name = missing[0].partition(".")[0]
            raise ValueError(f"the rule {self.text!r} needs {name}.low or {name}.high: it is no count.")
        return numbers

    def _holds(self, tree: ast.expr, numbers: dict[str, Any]) -> bool:
        found = self._value(tree, numbers)
        if np.ndim(found):
            cure = "it compares several measurements, within `all` or `any`"
            raise ValueError(f"the rule {self.text!r} cannot be applied to what was measured, unless {cure}.")
        return bool(found)

    def _value(self, part: ast.expr, numbers: dict[str, Any]) -> Any:
        """The value of a part of the rule, as Python has it; `_check` lets only arithmetic and comparisons get here."""
        try:
            return eval(compile(ast.Expression(part), "a rule", "eval"), {"__builtins__": {}} | _CALLS, numbers)
        except (TypeError, ValueError, ArithmeticError) as error:
            raise ValueError(f"the rule {self.text!r} cannot be applied to what was measured: {error}") from error


class _EndsAsNames(ast.NodeTransformer):
    """Makes `ridge.low` one name, so that nothing is looked up in an object."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.Name:
        return ast.copy_location(ast.Name(ast.unparse(node), ast.Load()), node)


def _parse(text: str) -> ast.expr:
    try:
        return _EndsAsNames().visit(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"not an expression: {text!r}.") from error


def _parts(node: ast.AST) -> list[ast.expr]:
    """The expressions that an expression is made of."""
    children = node.args if isinstance(node, ast.Call) else ast.iter_child_nodes(node)
    return [child for child in children if isinstance(child, ast.expr)]


def _check(node: ast.expr) -> type:
    """`bool` or `float`, which the expression is; a `ValueError` says what a rule cannot have."""
    match node:
        case ast.Name(id=name) if name not in _CALLS and re.fullmatch(r"\w+(\.(low|high|of))?", name):
            return float
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool) and math.isfinite(number):
            return float
        case ast.UnaryOp(op=ast.USub()):
            wanted, found = float, float
        case ast.BinOp(op=op) if isinstance(op, _ARITHMETIC):
            wanted, found = float, float
        case ast.Compare(ops=ops) if all(isinstance(op, _COMPARISONS) for op in ops):
            wanted, found = float, bool
        case ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
            wanted, found = bool, bool
        case ast.Call(func=ast.Name(id="all" | "any"), args=[_], keywords=[]):
            wanted, found = bool, bool
        case ast.Call(func=ast.Name(id="abs"), args=[_], keywords=[]):
            wanted, found = float, float
        case ast.Call(func=ast.Name(id="min" | "max"), args=[_, *_], keywords=[]):
            wanted, found = float, float
        case _:
            raise ValueError(f"a rule cannot have {ast.unparse(node)!r}.")
    if wrong := [part for part in _parts(node) if _check(part) is not wanted]:
        expected = "a comparison" if wanted is bool else "a number"
        raise ValueError(f"{ast.unparse(wrong[0])!r} must be {expected} in {ast.unparse(node)!r}.")
    return found


def _thresholds(tree: ast.expr) -> list[ast.Constant]:
    """The numbers of a rule, in the order of the text; the exponent of a power is none to compare with."""
    if isinstance(tree, ast.Constant):
        return [tree]
    parts = _parts(tree)[:1] if isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.Pow) else _parts(tree)
    return [number for part in parts for number in _thresholds(part)]


def _combine(tree: ast.expr, margin: Callable[[ast.expr], float]) -> float:
    """The margin of a rule, of those of the comparisons that `and`, `or` and `not` join, in the order of the text."""
    match tree:
        case ast.BoolOp(op=op, values=parts):
            return (min if isinstance(op, ast.And) else max)([_combine(part, margin) for part in parts])
        case ast.UnaryOp(op=ast.Not(), operand=part):
            return -_combine(part, margin)
    return margin(tree)


def _margin(comparison: ast.expr, evaluate: Callable[[ast.expr], Any]) -> Any:
    match comparison:
        case ast.Call(func=ast.Name(id=name), args=[part]):
            return float((np.min if name == "all" else np.max)(_margin(part, evaluate)))
        case ast.UnaryOp(operand=part):
            return -_margin(part, evaluate)
        case ast.Compare(left=first, ops=ops, comparators=others):
            sides = [np.asarray(evaluate(side), dtype=float) for side in (first, *others)]
            found = []
            for op, left, right in zip(ops, sides, sides[1:], strict=False):
                more = right - left if isinstance(op, ast.Lt | ast.LtE) else left - right
                found.append(0.5 - np.abs(more) if isinstance(op, ast.Eq) else more)
            return np.min(np.broadcast_arrays(*found), axis=0)
    raise AssertionError(f"no comparison: {ast.unparse(comparison)}")
