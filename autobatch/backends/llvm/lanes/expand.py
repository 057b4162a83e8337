"""Operations written with others: what JAX makes of an operation of our own, of a derivative, of a function with rules.

floordiv(%0, %1)          ->  div, sign, ne, rem, ... : the jaxpr of `jnp.floor_divide`
pullback[mul](%0, %1, %2) ->  mul(%2, %1)
custom_jvp_call[f](%0)    ->  the equations of f
cholesky(%0)              ->  what `matrices.py`, `special.py`, `special.py` write with others
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import count
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from autobatch.backends.llvm.lanes.matrices import MATRICES, REFUSED
from autobatch.backends.llvm.lanes.special import SPECIAL, random_gamma
from autobatch.backends.llvm.machine_code import RefusedError
from autobatch.ir import jax_compat, leaf
from autobatch.ir.core import Apply, Literal, Operand, Value
from autobatch.ir.ops import Op
from autobatch.ir.types import Array
from autobatch.source import NOWHERE

_HOLDERS = ("custom_jvp_call", "custom_vjp_call", "call_hi_primitive")


def _log2(op: Op, x: jax.Array) -> jax.Array:
    return jax.lax.log(x) * jnp.asarray(1.4426950408889634, x.dtype)


def _one_minus_square(op: Op, x: jax.Array) -> jax.Array:
    """A difference of numbers near 1 is exact, one of their squares is not."""
    return (1 + x) * (1 - x)


def _polynomial(op: Op, x: jax.Array, *coefficients: jax.Array) -> jax.Array:
    """By Horner's rule, the constant term first."""
    found = jnp.broadcast_to(coefficients[-1], jnp.broadcast_shapes(x.shape, *(c.shape for c in coefficients)))
    for c in coefficients[-2::-1]:
        found = found * x + c
    return found


WRITTEN: Mapping[str, Callable[..., Any]] = {
    **MATRICES,
    **SPECIAL,
    "log2": _log2,
    "one_minus_square": _one_minus_square,
    "polynomial": _polynomial,
    "random_gamma": random_gamma,
}
"""By the name of JAX's primitive: `written(op, *operands)`, to be traced."""


class Equations(NamedTuple):
    """Straight-line code: `results` of `inputs`, and the arrays that its literals name."""

    inputs: tuple[Value, ...]
    body: tuple[Apply, ...]
    results: tuple[Operand, ...]
    constants: tuple[Any, ...]


def expanded(op: Op, operands: Sequence[Array], results: Sequence[Array]) -> Equations:
    """What an operation consists of. RefusedError where it is one that consists of nothing else."""
    try:
        return _expanded(op, tuple(operands), tuple(results), bool(jax.config.read("jax_enable_x64")))
    except TypeError as error:
        if "unhashable" not in str(error):
            raise
        return _expand(op, operands, results)


@lru_cache(maxsize=4096)
def _expanded(op: Op, operands: tuple[Array, ...], results: tuple[Array, ...], x64: bool) -> Equations:
    """`x64`: the width of Python's numbers, which types do not tell."""
    return _expand(op, operands, results)


def _expand(op: Op, operands: Sequence[Array], results: Sequence[Array]) -> Equations:
    if op.is_jax and op.name not in (*_HOLDERS, *WRITTEN):
        raise RefusedError(f"it has no {REFUSED[op.name]}" if op.name in REFUSED else f"{op.name} is not known to it")
    if op.name in WRITTEN:
        closed, _ = jax_compat.trace(lambda *xs: WRITTEN[op.name](op, *xs), *operands)
    elif op.is_jax:
        closed = jax_compat.held_program(op, operands)
    else:
        closed, _ = jax_compat.trace(lambda *xs: leaf.evaluate(op, results, *xs), *operands)
    return of_jaxpr(closed, operands)


def of_jaxpr(closed: Any, operands: Sequence[Array]) -> Equations:
    """A jaxpr as equations."""
    ids = count()
    constants: list[Any] = []
    body: list[Apply] = []

    def fresh(type: Array) -> Value:
        return Value(next(ids), type)

    def constant(value: Any) -> Literal:
        constants.append(value)
        return Literal(None, jax_compat.type_of(value), len(constants) - 1)

    inputs = tuple(fresh(t) for t in operands)
    found = jax_compat.inline(closed, inputs, fresh, constant, body.append, NOWHERE)
    return _needed(Equations(inputs, tuple(body), tuple(found), tuple(constants)))


def _needed(whole: Equations) -> Equations:
    """Without what no result depends on."""
    live = {x for x in whole.results if isinstance(x, Value)}
    body = []
    for i in reversed(whole.body):
        if not live.isdisjoint(i.results):
            body.append(i)
            live.update(x for x in i.operands if isinstance(x, Value))
    return whole._replace(body=tuple(reversed(body)))
