"""Which leaf operations are one pass over their operands: computing them again costs little."""

from __future__ import annotations

import math
from collections.abc import Iterable

from autobatch.ir.core import Literal
from autobatch.ir.ops import Op

# fmt: off
BY_NUMBER = frozenset((
    "abs", "add", "add_any", "and", "ceil", "convert_element_type", "copy", "cos", "cosh", "div", "eq", "erf", "exp",
    "exp2", "expm1", "floor", "ge", "gt", "integer_pow", "is_finite", "le", "log", "log1p", "logistic", "lt", "max",
    "log2", "min", "mul", "ne", "neg", "not", "one_minus_square", "or", "pow", "rsqrt", "select_n", "sign", "sin",
    "sinh", "sqrt", "square", "sub", "tan", "tanh", "truediv", "xor",
))
"""Operations that work number by number on operands of one shape."""

MOVING = ("broadcast_in_dim", "concatenate", "convert", "reshape", "slice", "split", "squeeze")
ELEMENTWISE = BY_NUMBER | frozenset(MOVING)
"""With those that only move the numbers of one row."""

CHEAP = ELEMENTWISE | frozenset((
    "atan2", "clamp", "dynamic_slice", "expand_dims", "floordiv", "gather", "imag", "int", "iota", "mod", "pad",
    "real", "reduce_and", "reduce_max", "reduce_min", "reduce_or", "reduce_sum", "rem", "rev", "round",
    "select_and_scatter_add", "stop_gradient", "transpose", "undefined", "unknown",
))
"""With reductions within a row, and reads of a few numbers."""

INFINITE = frozenset((
    "acos", "acosh", "asin", "atan2", "atanh", "cosh", "digamma", "div", "erf_inv", "exp", "exp2", "expm1",
    "integer_pow", "lgamma", "log", "log1p", "log2", "mod", "pow", "rem", "rsqrt", "sinh", "sqrt", "tan", "truediv",
))
"""Operations number by number whose value or derivative is infinite somewhere."""

LINEAR = frozenset((
    "add", "add_any", "broadcast_in_dim", "concatenate", "conv_general_dilated", "convert", "convert_element_type",
    "copy", "dot_general", "dynamic_slice", "dynamic_update_slice", "gather", "mul", "neg", "pad", "reduce_sum",
    "reshape", "rev", "scatter-add", "select_n", "slice", "split", "squeeze", "sub", "transpose",
))
"""Linear in each operand: the derivative by one is finite where the others are zero."""

FINITE_DERIVATIVE = frozenset((
    "add", "add_any", "broadcast_in_dim", "concatenate", "convert", "convert_element_type", "copy", "cumsum",
    "dynamic_slice", "dynamic_update_slice", "expand_dims", "gather", "max", "min", "neg", "pad", "reduce_sum",
    "reshape", "rev", "scatter-add", "select_n", "slice", "split", "squeeze", "stack", "stop_gradient", "sub",
    "transpose",
))
"""The derivative is finite whatever the operands are."""

CONSTANT = frozenset(("stop_gradient", "floor", "ceil", "round", "sign", "floordiv"))
"""The derivative is zero wherever there is one."""

SIDE_BY_SIDE = ("concatenate", "stack")
"""What makes an array of values, as of the elements of a list of which one is read."""
# fmt: on


def stays_finite(op: Op, operands: Iterable[object]) -> bool:
    """Has an operation a finite value and a finite derivative wherever its operands are finite? Those that are literals
    are what they are."""
    if op.name in INFINITE or not any(op.name in known for known in (CHEAP, LINEAR, FINITE_DERIVATIVE)):
        return False
    return not any(map(is_infinite, operands))


def is_infinite(x: object) -> bool:
    """Is it a literal that is no finite number?"""
    return isinstance(x, Literal) and isinstance(x.value, float) and x.constant < 0 and not math.isfinite(x.value)
