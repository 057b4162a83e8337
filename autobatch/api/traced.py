"""Derivatives of any function that JAX can trace: floats among its arguments move, everything else stays.

What is no float (integers, strings, columns of structure in a Batch) is handed on as it is, and its derivative is None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from autobatch.call.gradients import derivative_of, fit, fit_examples, has_derivative
from autobatch.compiler.differentials import forward_mode, forward_over_reverse, moves
from autobatch.errors import BatchError

Function = Callable[..., Any]


class FloatSplit:
    """Some arguments of a call, as floats and the rest."""

    def __init__(self, args: Sequence[Any], chosen: Sequence[int]) -> None:
        self.args, self.chosen = tuple(args), tuple(chosen)
        self.leaves, self.structure = jax.tree.flatten([args[k] for k in self.chosen])
        self.floats = [jnp.asarray(x) for x in self.leaves if has_derivative(x)]

    def call(self, function: Function, kwargs: Mapping[str, Any], floats: Sequence[Any]) -> Any:
        given = iter(floats)
        parts = jax.tree.unflatten(self.structure, [next(given) if has_derivative(x) else x for x in self.leaves])
        args = list(self.args)
        for k, part in zip(self.chosen, parts, strict=True):
            args[k] = part
        return function(*args, **kwargs)

    def entries(self, derivatives: Sequence[Any]) -> list[Any]:
        """Derivatives in the structure of the arguments."""
        given = iter(derivatives)
        return [derivative_of(self.args[k], given, has_derivative) for k in self.chosen]

    def tangents(self, given: Sequence[Any], what: str) -> list[Any]:
        """One tangent for each float; None stands for zeros."""
        arrays = [jax.tree.map(lambda x: jnp.asarray(x) if has_derivative(x) else x, self.args[k]) for k in self.chosen]
        made: list[Any] = []
        for k, (argument, tangent) in enumerate(zip(arrays, given, strict=True)):
            made += fit(argument, tangent, f"{what} of argument {k}", missing=True)
        return made


def vjp(function: Function, args: Sequence[Any], what: str) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    """The result, and its pullback."""
    split = FloatSplit(args, range(len(args)))

    def run(floats: Sequence[Any]) -> tuple[list[Any], Any]:
        result = split.call(function, {}, floats)
        return [x for x in jax.tree.leaves(result) if moves(x)], result

    _, back, result = jax.vjp(run, split.floats, has_aux=True)

    def pullback(given: Any) -> tuple[Any, ...]:
        by_example = isinstance(given, list) and not isinstance(result, list)
        fitted = fit_examples(result, given, len(given), what) if by_example else fit(result, given, what)
        return tuple(split.entries(back(fitted)[0]))

    return result, pullback


def with_gradient(
    function: Function, args: Sequence[Any], kwargs: Mapping[str, Any], chosen: Sequence[int], has_aux: bool, what: str
) -> tuple[Any, list[Any]]:
    """The result, and the derivative of the sum of its numbers."""
    split = FloatSplit(args, chosen)
    gradient, result = jax.grad(lambda xs: _summed(split.call(function, kwargs, xs), has_aux, what), has_aux=True)(
        split.floats
    )
    return result, split.entries(gradient)


def pushed(function: Function, args: Sequence[Any], tangents: Sequence[Any], what: str) -> tuple[Any, Any]:
    """The result and its tangent."""
    split = FloatSplit(args, range(len(args)))
    given = split.tangents(tangents, what)

    def run(floats: Sequence[Any]) -> tuple[list[Any], Any]:
        result = split.call(function, {}, floats)
        return [x for x in jax.tree.leaves(result) if moves(x)], result

    with forward_mode():
        _, dots, result = jax.jvp(run, (split.floats,), (given,), has_aux=True)
    return result, derivative_of(result, iter(dots))


def curvature(
    function: Function, args: Sequence[Any], tangents: Sequence[Any], chosen: Sequence[int], what: str
) -> list[Any]:
    """How the gradient changes along tangents."""
    split = FloatSplit(args, range(len(args)))
    given = split.tangents(tangents, what)
    gradient = jax.grad(lambda xs: _summed(split.call(function, {}, xs), False, what)[0])
    with forward_over_reverse():
        _, dots = jax.jvp(gradient, (split.floats,), (given,))
    entries = split.entries(dots)
    return [entries[k] for k in chosen]


def _summed(result: Any, has_aux: bool, what: str) -> tuple[Any, Any]:
    if has_aux and not (isinstance(result, tuple) and len(result) == 2):
        raise BatchError(f"{what}: with has_aux=True the function returns a pair (number, anything)")
    values = result[0] if has_aux else result
    known = getattr(values, "dtype", None)
    if known not in (jnp.float32, jnp.float64) or values.ndim > 1:
        words = f"{known}[{','.join(map(str, values.shape))}]" if known is not None else type(values).__name__
        raise BatchError(
            f"{what}: the function returns {words}, and the derivative is that of a number, a float32[], or of the "
            "numbers of a batch, float32[B]"
        )
    return values.sum(), result
