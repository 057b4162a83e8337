"""The reference back end inside a traced computation: the host is called when the computation runs.

Derivatives are computed on the host too, by a call of their own, so reverse mode works to any order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Arrays = Sequence[Any]
Evaluate = Callable[[Arrays, Arrays], Arrays]
"""`evaluate(known, operands)`: `known` are the values of the operands, for decisions; results depend on `operands`,
which JAX may be tracing for a derivative."""


def on_host(evaluate: Evaluate, shapes: Sequence[jax.ShapeDtypeStruct], operands: Arrays) -> tuple[Any, ...]:
    """The results of `evaluate`, of these shapes."""

    def now(*values: Any) -> tuple[Any, ...]:
        made = evaluate(values, values)
        return tuple(np.asarray(x, s.dtype) for x, s in zip(made, shapes, strict=True))

    @jax.custom_vjp
    def call(*values: Any) -> tuple[Any, ...]:
        return tuple(jax.pure_callback(now, tuple(shapes), *values, vmap_method="sequential"))

    def forward(*values: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return call(*values), values

    def backward(values: tuple[Any, ...], cotangents: tuple[Any, ...]) -> tuple[Any, ...]:
        return _pulled_back(evaluate, shapes, values, cotangents)

    call.defvjp(forward, backward)
    made: tuple[Any, ...] = call(*operands)
    return made


def _pulled_back(
    evaluate: Evaluate, shapes: Sequence[jax.ShapeDtypeStruct], values: Arrays, cotangents: Arrays
) -> tuple[Any, ...]:
    """The cotangents of all operands."""
    inputs = [k for k, x in enumerate(values) if _has_derivative(x)]
    outputs = [k for k, s in enumerate(shapes) if _has_derivative(s)]

    def pull(known: Arrays, operands: Arrays) -> Arrays:
        at, given = operands[: len(values)], operands[len(values) :]

        def part(*floats: Any) -> list[Any]:
            whole = list(at)
            for k, x in zip(inputs, floats, strict=True):
                whole[k] = x
            made = evaluate(known[: len(values)], whole)
            return [jnp.asarray(made[k], shapes[k].dtype) for k in outputs]

        _, back = jax.vjp(part, *(jnp.asarray(at[k]) for k in inputs))
        found: Arrays = back([jnp.asarray(x) for x in given])
        return found

    wanted = [jax.ShapeDtypeStruct(np.shape(values[k]), values[k].dtype) for k in inputs]
    found = iter(on_host(pull, wanted, (*values, *(cotangents[k] for k in outputs))))
    return tuple(next(found) if k in inputs else np.zeros(np.shape(x), jax.dtypes.float0) for k, x in enumerate(values))


def _has_derivative(x: Any) -> bool:
    return bool(jnp.issubdtype(x.dtype, jnp.inexact))
