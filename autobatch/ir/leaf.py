"""What leaf operations compute, on the values of one lane: the meaning that every back end batches.

JAX primitives are bound; our own numeric operations are rows of `NUMERIC`, written in `jax.numpy`. Structure
(`OWN` operations with `host=True`) has no value on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from autobatch.ir import jax_compat
from autobatch.ir.ops import Op
from autobatch.ir.types import Array


@dataclass(frozen=True)
class Rule:
    """What the derivative of an operation depends on: types, the Python numbers among the operands, which results have
    cotangents, and the operands `wrt` whose cotangents are wanted."""

    op: Op
    operands: tuple[Array, ...]
    numbers: tuple[Any, ...]
    results: tuple[Array, ...]
    cotangents: tuple[bool, ...]
    wrt: tuple[int, ...]


def pull_back(rule: Rule, given: Sequence[Any], cotangents: Sequence[Any]) -> Sequence[Any]:
    """The cotangents of the operands `rule.wrt`. `given`: the operands that are no numbers."""
    rest = iter(given)
    xs = [
        next(rest) if number is None else jax_compat.literal(number, type)
        for type, number in zip(rule.operands, rule.numbers, strict=True)
    ]

    moving = moved_together(rule.op, xs, rule.wrt)

    def primal(*moved: Any) -> list[Any]:
        held = list(xs)
        for k, x in zip(moving, moved, strict=True):
            held[k] = x
        outputs = evaluate(rule.op, rule.results, *held)
        return [y for y, has in zip(outputs, rule.cotangents, strict=True) if has]

    _, pull = jax.vjp(primal, *(jnp.asarray(xs[k]) for k in moving))
    found: Sequence[Any] = pull(list(cotangents))
    return found[: len(rule.wrt)]


def moved_together(op: Op, xs: Sequence[Any], wrt: Sequence[int]) -> list[int]:
    """The operands to differentiate by for the cotangents of `wrt`, which come first. JAX's rule of a linear solve
    fails where only some of the operands move that hold the one matrix: there all do."""
    while op.name == "pullback":
        op = op["rule"].op
    if op.name != "custom_linear_solve":
        return list(wrt)
    others = [k for k, x in enumerate(xs) if k not in wrt and jnp.issubdtype(jnp.result_type(x), jnp.inexact)]
    return [*wrt, *others]


def _pullback(op: Op, *xs: Any) -> Any:
    rule: Rule = op["rule"]
    given = sum(number is None for number in rule.numbers)
    (found,) = pull_back(rule, xs[:given], xs[given:])
    return found


def _round(x: Any, ndigits: int | None) -> Any:
    if ndigits is not None and ndigits < 0 and jnp.issubdtype(jnp.result_type(x), jnp.integer):
        return _round_to(x, 10**-ndigits)
    rounded = jnp.round(x, ndigits or 0)
    return rounded.astype(int) if ndigits is None else rounded


def _round_to(x: Any, unit: int) -> Any:
    """The multiple of `unit` that is nearest, the even one of two."""
    below = jnp.floor_divide(x, unit)
    over = 2 * (x - below * unit)
    return (below + ((over > unit) | ((over == unit) & (below % 2 == 1)))) * unit


def _int(x: Any) -> Any:
    x = jnp.asarray(x)
    return jnp.trunc(x).astype(int) if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(int)


NUMERIC: dict[str, Callable[..., Any]] = {
    "floordiv": lambda op, x, y: jnp.floor_divide(x, y),
    "mod": lambda op, x, y: jnp.remainder(x, y),
    "truediv": lambda op, x, y: jnp.true_divide(x, y),
    "pow": lambda op, x, y: jnp.power(x, y),
    "round": lambda op, x: _round(x, op["ndigits"]),
    "int": lambda op, x: _int(x),
    "convert": lambda op, x: jnp.asarray(x).astype(op["dtype"]),
    "pullback": _pullback,
    "undefined": lambda op: jnp.zeros(op["type"].shape, jax_compat.device_dtype(op["type"])),
}
"""One row for each operation of our own with `host=False` that works on arrays (not on lists)."""


def evaluate(op: Op, results: Sequence[Array], *xs: Any) -> Sequence[Any]:
    """The results of a leaf operation on arrays or tracers. `results` are its result types."""
    if op.is_jax:
        return jax_compat.bind(op, results, *xs)
    return [NUMERIC[op.name](op, *xs)]


def result_type(op: Op, operands: Sequence[Array], literals: Sequence[Any]) -> Array:
    """The type of the result of one of our own numeric operations. `literals[k]` is the Python scalar that operand k
    is, or None where it is a value. Of Python numbers alone it is a Python number."""
    held = list(literals)

    def apply(*values: Any) -> Any:
        rest = iter(values)
        return NUMERIC[op.name](op, *(next(rest) if c is None else c for c in held))

    avals = [jax_compat.aval_of(t) for t, c in zip(operands, held, strict=True) if c is None]
    result = jax.eval_shape(apply, *avals)
    python = result.dtype != bool and all(t.is_scalar and (t.weak or t.is_bool) for t in operands)
    return jax_compat.type_of(jax.ShapeDtypeStruct(result.shape, result.dtype, weak_type=python or result.weak_type))
