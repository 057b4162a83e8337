"""The oracle of derivatives: JAX differentiates the plain loop, with tracers in the place of floats in objects."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import autobatch as ab

Place = tuple[Any, Any]


def places(example: Any) -> Iterator[Place]:
    """Where the floats of one example stand: an object or list and the name in it, each object once, depth first."""
    seen: set[int] = set()

    def visit(value: Any) -> Iterator[Place]:
        if id(value) in seen:
            return
        seen.add(id(value))
        named = list(enumerate(value)) if isinstance(value, list) else list(getattr(value, "__dict__", {}).items())
        for name, part in named:
            if is_float(part):
                yield value, name
            else:
                yield from visit(part)

    return visit(example)


def is_float(value: Any) -> bool:
    return isinstance(value, float) or (hasattr(value, "dtype") and jnp.issubdtype(value.dtype, jnp.floating))


def read(place: Place) -> Any:
    held, name = place
    return held[name] if isinstance(held, list) else getattr(held, name)


def write(place: Place, value: Any) -> None:
    held, name = place
    if isinstance(held, list):
        held[name] = value
    else:
        object.__setattr__(held, name, value)


def numbers(examples: list[Any]) -> list[list[Any]]:
    """The floats of each example."""
    return [[read(p) for p in places(x)] for x in examples]


def replaced(examples: list[Any], new: list[list[Any]]) -> list[Any]:
    """Copies of the examples with other floats. An object in two examples is two."""
    made = [copy.deepcopy(x) for x in examples]
    for x, values in zip(made, new, strict=True):
        for place, value in zip(list(places(x)), values, strict=True):
            write(place, value)
    return made


def of_loop(f: Any, shared: Any, examples: list[Any], weigh: Any = lambda result: result) -> tuple[Any, Any]:
    """The gradient of the sum of weighed results of the plain loop: by shared floats, and by those in the examples."""

    def total(shared: Any, values: Any) -> Any:
        return sum(weigh(r) for r in f.loop(shared, replaced(examples, values)))

    values = jax.tree.map(jnp.asarray, numbers(examples))
    return jax.grad(total, (0, 1))(jax.tree.map(jnp.asarray, shared), values)


def agree(batch: ab.Batch, expected: list[list[Any]], examples: list[Any], rtol: float = 1e-5) -> None:
    """A Batch of derivatives holds these numbers, in the places where the examples hold floats."""
    found = ab.unbatch(batch)
    assert len(found) == len(examples)
    for x, own, wanted in zip(found, examples, expected, strict=True):
        paths = [(type(h).__name__, n) for h, n in places(own)]
        assert [(type(h).__name__, n) for h, n in places(x)] == paths
        for path, a, b in zip(paths, (read(p) for p in places(x)), wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-6, err_msg=str(path))
