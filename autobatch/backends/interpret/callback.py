"""The reference back end inside a traced computation: the host is called when the computation runs.

Derivatives are computed on the host too, by a call of their own, so reverse mode works to any order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.errors import UnsupportedError
from autobatch.ir import jax_compat

Arrays = Sequence[Any]
Evaluate = Callable[[Arrays, Arrays], Arrays]
"""`evaluate(known, operands)`: `known` are the values of the operands, for decisions; results depend on `operands`,
which JAX may be tracing for a derivative."""


def on_host(evaluate: Evaluate, shapes: Sequence[jax.ShapeDtypeStruct], operands: Arrays) -> tuple[Any, ...]:
    """The results of `evaluate`, of these shapes. Raises UnsupportedError where a tangent is pushed through."""
    if any(map(jax_compat.is_pushed_forward, operands)):
        raise UnsupportedError(
            "the reference back end pushes no tangent through what the host decides while a program of jax.jit runs",
            cure="take this derivative outside of jax.jit, or take the back end xla",
        )

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


def decided_on_host(
    run: Callable[[Sequence[Any], Mapping[str, Any]], list[Any]],
    shapes: Sequence[jax.ShapeDtypeStruct],
    shared: Sequence[Any],
    data: Mapping[str, Any],
) -> list[Any]:
    """The results of `run`: at once where the numbers that decide something are known; where JAX compiles, on the host
    when they are."""
    if not any(isinstance(x, jax.core.Tracer) for x in (*shared, *data.values())):
        return run(shared, data)
    try:
        return run(shared, data)  # nothing is decided by a number, or JAX differentiates, and knows the numbers
    except jax.errors.ConcretizationTypeError:
        pass
    given = [jnp.asarray(x) for x in (*shared, *data.values())]
    keys = {k: jax.random.key_impl(x) for k, x in enumerate(given) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key)}

    def evaluate(_: Arrays, live: Arrays) -> Arrays:
        held = [jax.random.wrap_key_data(x, impl=keys[k]) if k in keys else x for k, x in enumerate(live)]
        return run(held[: len(shared)], dict(zip(data, held[len(shared) :], strict=True)))

    return list(on_host(evaluate, shapes, [jax.random.key_data(x) if k in keys else x for k, x in enumerate(given)]))


def _pulled_back(
    evaluate: Evaluate, shapes: Sequence[jax.ShapeDtypeStruct], values: Arrays, cotangents: Arrays
) -> tuple[Any, ...]:
    """The cotangents of all operands."""
    inputs = [k for k, x in enumerate(values) if has_derivative(x)]
    outputs = [k for k, s in enumerate(shapes) if has_derivative(s)]

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


def has_derivative(x: Any) -> bool:
    return bool(jnp.issubdtype(x.dtype, jnp.inexact))
