"""LaTeX of a rule; a line below or above a name stands for the end of its interval."""

import ast
import math

_OPERATORS = {
    ast.Add: "{} + {}",
    ast.Sub: "{} - {}",
    ast.Mult: r"{} \cdot {}",
    ast.Div: "{} / {}",
    ast.Pow: "{}^{{{}}}",
}
_SIGNS = {ast.Lt: "<", ast.LtE: r"\le", ast.Gt: ">", ast.GtE: r"\ge", ast.Eq: "="}
_JOINS = {ast.And: "and", ast.Or: "or"}
_ENDS = {"low": r"\underline{{{}}}", "high": r"\overline{{{}}}", "of": r"\#{}"}


def latex(node: ast.expr, binds: float = 0) -> str:
    """An expression, in parentheses where its own operator binds no tighter than `binds`."""
    own = _tightness(node)
    match node:
        case ast.BoolOp(op=op, values=parts):
            text = rf" \text{{ {_JOINS[type(op)]} }} ".join(latex(part, own) for part in parts)
        case ast.UnaryOp(op=op, operand=part):
            text = (r"\text{not } " if isinstance(op, ast.Not) else "-") + latex(part, own)
        case ast.Compare(left=first, ops=ops, comparators=others):
            rest = (f" {_SIGNS[type(op)]} {latex(part, own)}" for op, part in zip(ops, others, strict=True))
            text = latex(first, own) + "".join(rest)
        case ast.BinOp(left=first, op=op, right=second):
            # The second of two like operators is parted, the base of a power always, its exponent never.
            least, most = (own, 0) if isinstance(op, ast.Pow) else (own - 1, own)
            text = _OPERATORS[type(op)].format(latex(first, least), latex(second, most))
        case ast.Call(func=ast.Name(id="abs"), args=[part]):
            text = rf"\lvert {latex(part)} \rvert"
        case ast.Call(func=ast.Name(id=name), args=parts):
            text = rf"\operatorname{{{name}}}({', '.join(map(latex, parts))})"
        case ast.Attribute(value=ast.Name(id=name), attr=end):
            text = _ENDS[end].format(_words(name))
        case ast.Name(id=name):
            text = _words(name)
        case _:
            text = _number(node.value)  # pyright: ignore[reportAttributeAccessIssue]
    return rf"\left({text}\right)" if own <= binds else text


def sentence(node: ast.expr, binds: float = 0) -> str:
    """An expression as `latex` has it, between dollars; a text outside of parentheses says `and` and `or`.

    No browser breaks the line within a formula, and a rule is often longer than a line.
    """
    own = _tightness(node)
    if not isinstance(node, ast.BoolOp) or own <= binds:
        return f"${latex(node, binds)}$"
    return f" {_JOINS[type(node.op)]} ".join(sentence(part, own) for part in node.values)


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
