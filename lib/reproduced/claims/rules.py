r"""Rules over named measurements: read once, checked, executed, and shown as the mathematics they are.

A rule is a text such as `ridge.low > 0.7 and over_null.low > 0.1`. It compares numbers, and knows the names of the
measurements, the ends `.low` and `.high` of their intervals, `.of` of a count, `+ - * /`, `**`, `and`, `or`, `not` and
the calls `abs`, `min`, `max`, `all` and `any`. The bare name of a measurement stands for a count: a number with an
interval enters a rule by an end of it, so that no rule rests on a point. Where a measurement is a sequence, an end is
one too: it is compared within `all` or `any`, or reduced by `min` or `max`.
"""

import ast
import copy
import functools
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import simpleeval

from reproduced.claims import formulas
from reproduced.claims.measurements import Measured, named

ENDS = ("low", "high", "of")
_ARITHMETIC = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
_COMPARISONS = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
}
_SIGNS = {ast.USub: operator.neg, ast.Not: operator.not_}
_CALLS: dict[str, Callable[..., Any]] = {
    "abs": np.abs,
    "min": lambda *values: np.min(np.concatenate([np.ravel(value) for value in values])),
    "max": lambda *values: np.max(np.concatenate([np.ravel(value) for value in values])),
    "all": np.all,
    "any": np.any,
}
_FAR = 1e12  # beyond every number that a rule compares
_LONGEST = 600  # characters of a rule


@dataclass(frozen=True)
class Rule:
    """A condition on measurements.

    Args:
        text: as above.
        names: the measurements that the claim declares.

    Raises:
        ValueError: if the text is no such condition, names what is not declared, or compares with no number.
    """

    text: str
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.text) > _LONGEST:
            raise ValueError(f"a rule has at most {_LONGEST} characters; this has {len(self.text)}.")
        if _kind(self._tree, self.names) is not bool:
            raise ValueError(f"a rule must be a comparison; got {self.text!r}.")
        if not any(True for _ in _numbers(self._tree)):
            raise ValueError(f"a rule must compare with a number; got {self.text!r}.")

    @functools.cached_property
    def _tree(self) -> ast.expr:
        return _parsed(self.text)

    @property
    def used(self) -> frozenset[str]:
        """The measurements that the rule looks at."""
        found = {node.id for node in ast.walk(self._tree) if isinstance(node, ast.Name)}
        return frozenset(found - _CALLS.keys())

    def __call__(self, values: Mapping[str, Measured]) -> bool:
        """Whether the measurements satisfy the rule.

        Raises:
            ValueError: if the bare name of a measurement that is no count is compared, or a sequence outside of
                `all`, `any`, `min` and `max`.
        """
        return self._holds(self._tree, values)

    def numbers(self) -> tuple[float, ...]:
        """The numbers that the rule compares with, in the order of the text."""
        return tuple(float(ast.literal_eval(node)) for node in _numbers(self._tree))

    def moved(self, position: int, values: Mapping[str, Measured]) -> tuple[bool, bool]:
        """What the rule says where its number at `position` is moved far down, and far up."""
        found = []
        for far in (-_FAR, _FAR):
            tree = _parsed(self.text)
            list(_numbers(tree))[position].value = far
            found.append(self._holds(tree, values))
        return found[0], found[1]

    def margins(self, values: Mapping[str, Measured]) -> list[float]:
        """How far each comparison of the rule is from its threshold, in the order of the text; positive if it is true.

        Of `all` it is that of the nearest element, of `any` that of the farthest. Of an equation it is a half less the
        difference of its sides, for counts are equal or differ by one.
        """
        evaluate = self._evaluator(values)
        return [float(_margin(leaf, evaluate)) for leaf in _leaves(self._tree)]

    def distance(self, margins: Sequence[float]) -> float:
        """The margin of the whole rule: the least of what `and` joins, the largest of what `or` does."""
        return _distance(self._tree, iter(margins))

    def sentence(self) -> str:
        r"""The rule as formulas in dollars with words between: `$\underline{\text{ridge}} > 0.7$ and $…$`."""
        return formulas.sentence(self._tree)

    def _holds(self, tree: ast.expr, values: Mapping[str, Measured]) -> bool:
        found = self._evaluator(values)(tree)
        if np.ndim(found):
            cure = "it compares several measurements, within `all` or `any`"
            raise ValueError(f"the rule {self.text!r} cannot be applied to what was measured, unless {cure}.")
        return bool(found)

    def _evaluator(self, values: Mapping[str, Measured]) -> Callable[[ast.expr], Any]:
        """What gives the value of a part of the rule."""
        evaluator = simpleeval.SimpleEval(
            operators=_ARITHMETIC | _COMPARISONS | _SIGNS,
            functions=_CALLS,
            names=named({name: values[name] for name in self.used}),
        )

        def evaluate(part: ast.expr) -> Any:
            try:
                return evaluator.eval("", previously_parsed=_Flat().visit(copy.deepcopy(part)))
            except simpleeval.NameNotDefined as error:
                cure = f"needs {error.name}.low or {error.name}.high: it is no count"
                raise ValueError(f"the rule {self.text!r} {cure}.") from error
            except (simpleeval.InvalidExpression, TypeError, ValueError, ArithmeticError) as error:
                raise ValueError(f"the rule {self.text!r} cannot be applied to what was measured: {error}") from error

        return evaluate


class _Flat(ast.NodeTransformer):
    """Ends of measurements as names of their own: nothing is looked up in an object."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.Name:
        return ast.copy_location(ast.Name(ast.unparse(node), ast.Load()), node)


def _leaves(tree: ast.expr) -> Iterator[ast.expr]:
    """The comparisons that `and`, `or` and `not` join, in the order of the text."""
    match tree:
        case ast.BoolOp(values=parts):
            for part in parts:
                yield from _leaves(part)
        case ast.UnaryOp(op=ast.Not(), operand=part):
            yield from _leaves(part)
        case _:
            yield tree


def _distance(tree: ast.expr, margins: Iterator[float]) -> float:
    match tree:
        case ast.BoolOp(op=op, values=parts):
            return (min if isinstance(op, ast.And) else max)([_distance(part, margins) for part in parts])
        case ast.UnaryOp(op=ast.Not(), operand=part):
            return -_distance(part, margins)
    return next(margins)


def _margin(leaf: ast.expr, evaluate: Callable[[ast.expr], Any]) -> Any:
    match leaf:
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
    raise AssertionError(f"no comparison: {ast.unparse(leaf)}")


def _numbers(tree: ast.expr) -> Iterator[ast.Constant]:
    """The numbers of a rule, in the order of the text; the exponent of a power is none to compare with."""
    if isinstance(tree, ast.Constant):
        yield tree
    for name, child in ast.iter_fields(tree):
        if not (isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.Pow) and name == "right"):
            for node in child if isinstance(child, list) else [child]:
                if isinstance(node, ast.expr):
                    yield from _numbers(node)


def _parsed(text: str) -> ast.expr:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"not an expression: {text!r}.") from error


def _kind(node: ast.expr, names: tuple[str, ...]) -> type:
    """`bool` or `float`, which the expression is; a `ValueError` says what a rule cannot have."""
    match node:
        case ast.BoolOp(values=parts):
            wanted, found = bool, bool
        case ast.UnaryOp(op=ast.Not(), operand=part):
            parts, wanted, found = [part], bool, bool
        case ast.UnaryOp(op=ast.USub(), operand=part):
            parts, wanted, found = [part], float, float
        case ast.Compare(left=first, ops=ops, comparators=others) if all(type(op) in _COMPARISONS for op in ops):
            parts, wanted, found = [first, *others], float, bool
        case ast.BinOp(left=first, op=op, right=second) if type(op) in _ARITHMETIC:
            parts, wanted, found = [first, second], float, float
        case ast.Call(func=ast.Name(id=name), args=parts, keywords=[]) if name in _CALLS and parts:
            if name in ("abs", "all", "any") and len(parts) > 1:
                raise ValueError(f"`{name}` takes one argument; got {ast.unparse(node)!r}.")
            wanted = found = bool if name in ("all", "any") else float
        case ast.Attribute(value=ast.Name(id=name), attr=end) if end in ENDS:
            return _declared(name, names)
        case ast.Name(id=name):
            return _declared(name, names)
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool) and math.isfinite(number):
            return float
        case _:
            raise ValueError(f"a rule cannot have {ast.unparse(node)!r}.")
    if wrong := [part for part in parts if _kind(part, names) is not wanted]:
        expected = "a comparison" if wanted is bool else "a number"
        raise ValueError(f"{ast.unparse(wrong[0])!r} must be {expected} in {ast.unparse(node)!r}.")
    return found


def _declared(name: str, names: tuple[str, ...]) -> type:
    if name not in names:
        raise ValueError(f"a rule names {name!r}, which `values` does not declare; declared are {', '.join(names)}.")
    return float
