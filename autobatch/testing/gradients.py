"""Derivatives of plain Python, which those of a batch are held against.

Two oracles. `traced`: JAX differentiates the plain function, with tracers in the place of floats; exact, but what is no
operation of JAX (`math.sin(x)`, `float(x)`) has no derivative there, or fails. `slope`: a central difference along one
direction of all floats; takes any Python, needs 64 bits, and wants functions that are smooth where they are called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.testing.numbers import Place, floats, mapped, moved

STEP = 1e-6

Run = Callable[[Any, Any], Any]
"""`run(shared, example)`: the plain function for one example."""
Cotangents = dict[Place, Any]
"""A cotangent for each float of one result, by its place."""


@dataclass(frozen=True)
class Derivatives:
    """By the floats of the shared arguments, summed over the examples, and by those of each example; by place."""

    shared: dict[Place, Any]
    examples: list[dict[Place, Any]]


def traced(run: Run, shared: Any, examples: Sequence[Any], cotangents: Sequence[Cotangents | None]) -> Derivatives:
    """The derivatives of the sum of all results, each float of which weighs its cotangent. None: the example failed."""
    parameters = _arrays(floats(shared))
    total = {place: jnp.zeros_like(x) for place, x in parameters.items()}
    found: list[dict[Place, Any]] = []
    for example, weights in zip(examples, cotangents, strict=True):
        own = _arrays(floats(example))
        if weights is None:
            found.append({place: jnp.zeros_like(x) for place, x in own.items()})
            continue

        def weighed(given: Any, values: Any, example: Any = example, weights: Any = weights) -> Any:
            result = floats(run(_with(shared, given), _with(example, values)), weights)
            return sum((_product(x, weights[p]) for p, x in result.items() if p in weights), jnp.zeros(()))

        of_shared, of_own = jax.grad(weighed, (0, 1))(parameters, own)
        total = {place: x + of_shared[place] for place, x in total.items()}
        found.append(of_own)
    return Derivatives(total, found)


def slope(
    run: Run,
    shared: Any,
    examples: Sequence[Any],
    cotangents: Sequence[Cotangents | None],
    directions: Sequence[dict[Place, Any]],
) -> float:
    """How the weighed sum of the results changes along directions: of the shared arguments, then of each example."""

    def total(step: float) -> float:
        (given,) = moved([shared], directions[:1], step)
        summed = 0.0
        for example, direction, weights in zip(examples, directions[1:], cotangents, strict=True):
            if weights is None:
                continue
            (x,) = moved([example], [direction], step)
            result = floats(run(given, x), weights)
            summed += sum(float(_product(v, weights[p])) for p, v in result.items() if p in weights)
        return summed

    return (total(STEP) - total(-STEP)) / (2 * STEP)


def along(derivatives: Derivatives, directions: Sequence[dict[Place, Any]]) -> float:
    """The same slope, by derivatives."""
    parts = zip([derivatives.shared, *derivatives.examples], directions, strict=True)
    return sum(
        float(np.sum(np.asarray(d) * direction[place])) for held, direction in parts for place, d in held.items()
    )


def random_directions(shared: Any, examples: Sequence[Any]) -> list[dict[Place, Any]]:
    """A direction for each float of the shared arguments and of each example, the same for the same structure."""
    rng = np.random.default_rng(0)
    return [{place: rng.normal(size=np.shape(v)) for place, v in floats(x).items()} for x in (shared, *examples)]


def _product(x: Any, cotangent: Any) -> Any:
    """The sum of a float times its cotangent. A number that the batch holds as an array weighs what that array does."""
    shape = jnp.shape(x)
    given = jnp.asarray(cotangent)
    if given.shape != shape:
        given = given.reshape(-1, *shape).sum(0)
    return jnp.sum(jnp.asarray(x) * given)


def _arrays(values: dict[Place, Any]) -> dict[Place, Any]:
    """Floats as JAX differentiates by them: those of Python stay Python's, in type and in how they promote."""
    return {place: x if isinstance(x, float) else jnp.asarray(x) for place, x in values.items()}


def _with(value: Any, new: dict[Place, Any]) -> Any:
    return mapped(value, lambda place, _: new[place])
