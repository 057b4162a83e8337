"""An interpreter of arithmetic, written for ONE expression: `match` over classes of nodes, strings as operators.

The expressions are those in the code of the standard library. Run it: `python -m examples.trees.expressions`.
"""

from __future__ import annotations

import ast
import sys
import zlib
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

import autobatch as ab
from examples.trees.check import check
from examples.trees.data import stdlib_modules

VARIABLES = 32
SIGNS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}


@dataclass
class Number:
    value: float


@dataclass
class Variable:
    index: int


@dataclass
class Negative:
    of: Expression


@dataclass
class Operation:
    sign: str
    left: Expression
    right: Expression


Expression = Number | Variable | Negative | Operation


@ab.batched(in_axes=(None, 0))
def evaluate(values: jax.Array, e: Expression) -> Any:
    """The value of an expression whose variables have these values."""
    match e:
        case Number(value=value):
            return value
        case Variable(index=index):
            return values[index]
        case Negative(of=inner):
            return -evaluate(values, inner)
        case Operation(sign=sign, left=left, right=right):
            a = evaluate(values, left)
            b = evaluate(values, right)
            if sign == "+":
                return a + b
            if sign == "-":
                return a - b
            if sign == "*":
                return a * b
            return a / b


def expression_of(syntax: ast.expr) -> Expression | None:
    """The expression that a piece of syntax is, or None where it is not arithmetic.

    A name, attribute, call or subscript is a variable; which of the `VARIABLES` it is depends on its text.
    """
    match syntax:
        case ast.Constant(value=float() | int() as value) if not isinstance(value, bool) and abs(value) < 1e6:
            return Number(float(value))
        case ast.Name() | ast.Attribute() | ast.Call() | ast.Subscript():
            return Variable(zlib.crc32(ast.unparse(syntax).encode()) % VARIABLES)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inner = expression_of(operand)
            return None if inner is None else Negative(inner)
        case ast.BinOp(op=op, left=left, right=right) if type(op) in SIGNS:
            a, b = expression_of(left), expression_of(right)
            return None if a is None or b is None else Operation(SIGNS[type(op)], a, b)
        case _:
            return None


def variables(e: Expression) -> int:
    match e:
        case Number():
            return 0
        case Variable():
            return 1
        case Negative(of=inner):
            return variables(inner)
        case Operation(left=left, right=right):
            return variables(left) + variables(right)


def stdlib_expressions(limit: int) -> list[Expression]:
    """The first arithmetic expressions of the standard library that are operations and name a variable."""
    found: list[Expression] = []
    for module in stdlib_modules():
        for syntax in ast.walk(module):
            if isinstance(syntax, ast.BinOp):
                expression = expression_of(syntax)
                if expression is not None and variables(expression):
                    found.append(expression)
                if len(found) == limit:
                    return found
    return found


if __name__ == "__main__":
    values = np.random.default_rng(0).uniform(0.5, 1.5, VARIABLES).astype(np.float32)
    sys.exit(check("arithmetic of the standard library", evaluate, jax.numpy.asarray(values), stdlib_expressions(1000)))
