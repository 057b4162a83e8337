"""The one module that touches JAX beyond its everyday API: jaxprs in, leaf operations out.

Supported: JAX 0.10 to 0.12. Semi-public names come from `jax.extend.core`; nothing is taken from `jax._src`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jex

from autobatch.ir.core import Apply, Literal, Operand, Value
from autobatch.ir.ops import Op
from autobatch.ir.types import Array
from autobatch.source import Span

_INLINED = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "remat": "jaxpr",
    "remat2": "jaxpr",
    "checkpoint": "jaxpr",
}
_KEY_IMPLEMENTATIONS = {"key<fry>": "threefry2x32", "key<rbg>": "rbg", "key<urbg>": "unsafe_rbg"}


def type_of(aval: Any) -> Array:
    """The type of a JAX value, abstract or concrete, of a NumPy value or of a Python scalar."""
    aval = aval if hasattr(aval, "dtype") and hasattr(aval, "shape") else jax.typeof(aval)
    return Array(str(aval.dtype), tuple(aval.shape), bool(getattr(aval, "weak_type", False)))


@cache
def dtype_of(name: str) -> Any:
    """The dtype with that name; `key<...>` names are JAX's typed random keys."""
    if name in _KEY_IMPLEMENTATIONS:
        return jax.eval_shape(lambda: jax.random.key(0, impl=_KEY_IMPLEMENTATIONS[name])).dtype
    return jnp.dtype(name)


def aval_of(type: Array, rows: int | None = None) -> jax.ShapeDtypeStruct:
    """The abstract JAX value of a type, with a leading axis of `rows` unless that is None."""
    shape = type.shape if rows is None else (rows, *type.shape)
    return jax.ShapeDtypeStruct(shape, dtype_of(type.dtype), weak_type=type.weak)


def literal(value: Any, type: Array) -> Any:
    """The concrete value of a scalar literal: what a primitive must be bound with."""
    if type.weak and isinstance(value, (bool, int, float, complex)):
        return value
    return np.asarray(value, dtype_of(type.dtype))


class TraceEffectError(Exception):
    """A traced function has side effects (a callback, a print), which would run once and not for each example."""


def trace(fun: Callable[..., Any], *types: Array) -> tuple[jex.ClosedJaxpr, Any]:
    """Trace `fun` on abstract values: its jaxpr, and the pytree of its results' abstract values."""
    closed, shapes = jax.make_jaxpr(fun, return_shape=True)(*(aval_of(t) for t in types))
    return closed, shapes


def inline(
    closed: jex.ClosedJaxpr,
    operands: Sequence[Operand],
    fresh: Callable[[Array], Value],
    constant: Callable[[Any], Literal],
    emit: Callable[[Apply], None],
    span: Span,
) -> list[Operand]:
    """Emit the equations of a jaxpr as `Apply` instructions; returns the operands that hold its results.

    `fresh` makes a value, `constant` puts an array into the module. Calls that only group (`jit`, `remat`) are
    dissolved; control flow and custom derivatives stay whole, as leaf operations.
    """
    env: dict[Any, Operand] = {}

    def scalar_or_constant(value: Any) -> Literal:
        if np.ndim(value) == 0 and not jnp.issubdtype(getattr(value, "dtype", np.float32), jax.dtypes.extended):
            return Literal(np.asarray(value).item(), type_of(value))
        return constant(value)

    def read(atom: Any) -> Operand:
        if isinstance(atom, jex.Literal):
            held = scalar_or_constant(atom.val)
            return Literal(held.value, type_of(atom.aval), held.constant)
        return env[atom]

    jaxpr = closed.jaxpr
    env.update(zip(jaxpr.constvars, map(scalar_or_constant, closed.consts), strict=True))
    env.update(zip(jaxpr.invars, operands, strict=True))
    for equation in jaxpr.eqns:
        inputs = [read(a) for a in equation.invars]
        name = equation.primitive.name
        if name in _INLINED:
            inner = equation.params[_INLINED[name]]
            if not isinstance(inner, jex.ClosedJaxpr):
                inner = jex.ClosedJaxpr(inner, ())
            outputs = inline(inner, inputs, fresh, constant, emit, span)
        else:
            if equation.effects:
                raise TraceEffectError(f"{name} has the side effects {equation.effects}")
            values = [fresh(type_of(v.aval)) for v in equation.outvars]
            op = Op(name, tuple(sorted(equation.params.items())), equation.primitive)
            emit(Apply(tuple(values), op, tuple(inputs), span))
            outputs = list(values)
        env.update(zip(equation.outvars, outputs, strict=True))
    return [read(a) for a in jaxpr.outvars]


def bind(op: Op, results: Sequence[Array], *xs: Any) -> Sequence[Any]:
    """The results of a JAX primitive on concrete values or tracers, as evaluating a jaxpr would give them.

    Primitives that hold jaxprs are evaluated as a jaxpr of one equation: only that knows how to bind them."""
    params = dict(op.params)
    if not any(True for _ in jex.jaxprs_in_params(params)):
        out = op.primitive.bind(*xs, **params)
        return out if op.primitive.multiple_results else [out]
    inputs = [jex.Var(jax.typeof(x)) for x in xs]
    outputs = [jex.Var(jax.typeof(aval_of(t))) for t in results]
    equation = jex.new_jaxpr_eqn(inputs, outputs, op.primitive, params, jex.no_effects)
    empty = _empty_jaxpr()
    jaxpr = empty.replace(
        invars=inputs, outvars=outputs, eqns=[equation], debug_info=empty.debug_info.with_unknown_names()
    )
    return jax.core.eval_jaxpr(jaxpr, (), *xs)


@cache
def _empty_jaxpr() -> jex.Jaxpr:
    return jax.make_jaxpr(lambda: ())().jaxpr
