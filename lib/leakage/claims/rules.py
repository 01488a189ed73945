r"""Rules over named measurements: read once, checked, executed, and shown as the mathematics they are.

A rule is a text such as `ridge.low > 0.7 and over_null.low > 0.1`. It compares numbers, and knows the names of the
measurements, the ends `.low` and `.high` of their intervals, `.of` of a count, `+ - * /`, `**`, `and`, `or`, `not` and
the calls `abs`, `min`, `max`, `all` and `any`. The bare name of a measurement stands for a count: a number with an
interval enters a rule by an end of it, so that no rule rests on a point. Where a measurement is a sequence, an end is
one too: it is compared within `all` or `any`, or reduced by `min` or `max`.
"""

import ast
import functools
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import simpleeval

from leakage.claims.measurements import Measured, named

ENDS = {"low": r"\underline{{{}}}", "high": r"\overline{{{}}}", "of": r"\#{}"}
_ARITHMETIC = {
    ast.Add: (operator.add, "{} + {}"),
    ast.Sub: (operator.sub, "{} - {}"),
    ast.Mult: (operator.mul, r"{} \cdot {}"),
    ast.Div: (operator.truediv, "{} / {}"),
    ast.Pow: (operator.pow, "{}^{{{}}}"),
}
_COMPARISONS = {
    ast.Lt: (operator.lt, "<"),
    ast.LtE: (operator.le, r"\le"),
    ast.Gt: (operator.gt, ">"),
    ast.GtE: (operator.ge, r"\ge"),
    ast.Eq: (operator.eq, "="),
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
        return self._holds(_parsed(self.text), values)

    def numbers(self) -> tuple[float, ...]:
        """The numbers that the rule compares with, in the order of the text."""
        return tuple(node.value for node in _numbers(self._tree))

    def moved(self, position: int, values: Mapping[str, Measured]) -> tuple[bool, bool]:
        """What the rule says where its number at `position` is moved far down, and far up."""
        found = []
        for far in (-_FAR, _FAR):
            tree = _parsed(self.text)
            list(_numbers(tree))[position].value = far
            found.append(self._holds(tree, values))
        return found[0], found[1]

    def latex(self) -> str:
        r"""The rule as mathematics, without dollars: `\underline{\text{ridge}} > 0.7 \text{ and } …`."""
        return _latex(self._tree)

    def _holds(self, tree: ast.expr, values: Mapping[str, Measured]) -> bool:
        evaluator = simpleeval.SimpleEval(
            operators={kind: do for kind, (do, _) in (_ARITHMETIC | _COMPARISONS).items()} | _SIGNS,
            functions=_CALLS,
            names=named({name: values[name] for name in self.used}),
        )
        try:
            return bool(evaluator.eval("", previously_parsed=_Flat().visit(tree)))
        except simpleeval.NameNotDefined as error:
            raise ValueError(
                f"the rule {self.text!r} needs {error.name}.low or {error.name}.high: it is no count."
            ) from error
        except (simpleeval.InvalidExpression, TypeError, ValueError, ArithmeticError) as error:
            raise ValueError(f"the rule {self.text!r} cannot be applied to what was measured: {error}") from error


class _Flat(ast.NodeTransformer):
    """Ends of measurements as names of their own: nothing is looked up in an object."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.Name:
        return ast.copy_location(ast.Name(ast.unparse(node), ast.Load()), node)


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


def _latex(node: ast.expr, binds: float = 0) -> str:
    """The expression, in parentheses where its own operator binds no tighter than `binds`."""
    own = _tightness(node)
    match node:
        case ast.BoolOp(op=op, values=parts):
            word = "and" if isinstance(op, ast.And) else "or"
            text = rf" \text{{ {word} }} ".join(_latex(part, own) for part in parts)
        case ast.UnaryOp(op=op, operand=part):
            text = (r"\text{not } " if isinstance(op, ast.Not) else "-") + _latex(part, own)
        case ast.Compare(left=first, ops=ops, comparators=others):
            rest = (f" {_COMPARISONS[type(op)][1]} {_latex(part, own)}" for op, part in zip(ops, others, strict=True))
            text = _latex(first, own) + "".join(rest)
        case ast.BinOp(left=first, op=op, right=second):
            exact = isinstance(
                op, ast.Pow
            )  # the second of two like operators is parted, a base always, an exponent never
            text = _ARITHMETIC[type(op)][1].format(
                _latex(first, own - (not exact)), _latex(second, 0 if exact else own)
            )
        case ast.Call(func=ast.Name(id="abs"), args=[part]):
            text = rf"\lvert {_latex(part)} \rvert"
        case ast.Call(func=ast.Name(id=name), args=parts):
            text = rf"\operatorname{{{name}}}({', '.join(map(_latex, parts))})"
        case ast.Attribute(value=ast.Name(id=name), attr=end):
            text = ENDS[end].format(_words(name))
        case ast.Name(id=name):
            text = _words(name)
        case _:
            text = _number(node.value)  # pyright: ignore[reportAttributeAccessIssue]
    return rf"\left({text}\right)" if own <= binds else text


def _tightness(node: ast.expr) -> float:
    match node:
        case ast.BoolOp(op=op):
            return 1 if isinstance(op, ast.Or) else 2
        case ast.UnaryOp(op=ast.Not()):
            return 3
        case ast.Compare():
            return 4
        case ast.BinOp(op=op):
            return 5 if isinstance(op, ast.Add | ast.Sub) else 6 if isinstance(op, ast.Mult | ast.Div) else 8
        case ast.UnaryOp():
            return 7
    return math.inf


def _words(name: str) -> str:
    return rf"\text{{{name.replace('_', ' ')}}}"


def _number(value: float) -> str:
    """`0.7`, and `10^{-12}` where a person would write a power."""
    text = f"{value:.12g}"
    if "e" not in text:
        return text
    digits, power = text.split("e")
    return rf"10^{{{int(power)}}}" if digits == "1" else rf"{digits} \cdot 10^{{{int(power)}}}"
