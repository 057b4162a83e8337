"""Programs whose structure is traced, against plain Python: values, and gradients by shared arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autobatch as ab
from tests.call.tracing.programs import PROGRAMS, Floats, chart, embedded, queue

SHARED = {
    "w": np.float32(0.7),
    "b": np.float32(-0.4),
    "E": np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3),
    "M": np.linspace(0.5, -0.7, 9, dtype=np.float32).reshape(3, 3),
}
BATCH: list[Floats] = [[0.3, -1.0, 2.0], [0.5], [1.0, 0.25, -0.5, 0.75, 0.1], [2.0, 1.0]]


def shared() -> dict[str, Any]:
    return {k: jnp.asarray(x) for k, x in SHARED.items()}


def agree(found: Any, wanted: Any) -> None:
    """Are two results the same, number by number?"""
    if isinstance(wanted, (list, tuple)):
        assert len(found) == len(wanted)
        for x, y in zip(found, wanted, strict=True):
            agree(x, y)
    elif isinstance(wanted, str):
        assert found == wanted
    else:
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_values(program: Callable[..., Any]) -> None:
    f, p = ab.batched(program, in_axes=(None, 0)), shared()
    agree(ab.unbatch(f(p, BATCH)), f.loop(p, BATCH))


def total(result: Any) -> Any:
    """The sum of all floats of a result."""
    leaves = [x for x in jax.tree.leaves(result) if not isinstance(x, str) and jnp.result_type(x) == jnp.float32]
    return sum(jnp.sum(x) for x in leaves)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_gradients(program: Callable[..., Any]) -> None:
    def one(p: Any, xs: Floats) -> Any:
        return total(program(p, xs)) * p["w"] / p["w"]  # a number that depends on what is shared

    f, p = ab.batched(one, in_axes=(None, 0)), shared()
    values, found = ab.value_and_grad(f)(p, BATCH)
    wanted = jax.grad(lambda p: sum(one(p, xs) for xs in BATCH))(p)
    for name in SHARED:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-4, atol=1e-5)
    agree(list(values), [one(p, xs) for xs in BATCH])


floats = st.floats(-2, 2, width=32)
batches = st.lists(st.lists(floats, min_size=1, max_size=6), min_size=1, max_size=5)


@settings(max_examples=3)
@given(st.lists(batches, min_size=1, max_size=3))
def test_structure_of_later_batches_is_learned(drawn: list[list[Floats]]) -> None:
    for program in (chart, queue, embedded):
        f, p = ab.batched(program, in_axes=(None, 0)), shared()
        for batch in drawn:
            agree(ab.unbatch(f(p, batch)), f.loop(p, batch))


Code = list[int]


def machine(p: Any, example: tuple[Code, Floats]) -> Any:
    """A small machine: what its code says decides which operations are done on which numbers."""
    code, numbers = example
    stack, named = list(numbers), {}
    for at, op in enumerate(code):
        if op == 0:
            stack.append(stack[at % len(stack)] * p["w"])
        elif op == 1 and len(stack) > 1:
            a, b = stack.pop(), stack.pop()
            stack.append(jnp.tanh(a - b))
        elif op == 2:
            named[at % 3] = stack[-1]
        elif op == 3:
            stack.append(named.get(at % 3, p["b"]))
        elif op == 4:
            stack.insert(0, jnp.sin(stack.pop(len(stack) // 2)))
        elif op == 5:
            stack[-1] = stack[-1] + at
        elif op == 6:
            stack = [x + p["b"] for x in stack]
    return sum(stack), len(stack), sorted(named)


codes = st.lists(st.integers(0, 6), max_size=12)
machines = st.tuples(codes, st.lists(floats, min_size=1, max_size=4))


@settings(max_examples=3)
@given(st.lists(machines, min_size=1, max_size=4), st.lists(machines, min_size=1, max_size=4))
def test_a_machine_that_its_code_drives(first: list[Any], second: list[Any]) -> None:
    f, p = ab.batched(machine, in_axes=(None, 0)), shared()
    for batch in (first, second):
        agree(ab.unbatch(f(p, batch)), f.loop(p, batch))
    g = ab.batched(lambda p, x: machine(p, x)[0] + 0 * p["w"], in_axes=(None, 0))
    found = ab.grad(g)(p, second)
    wanted = jax.grad(lambda p: sum(machine(p, x)[0] + 0 * p["w"] for x in second))(p)
    for name in ("w", "b"):
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-4, atol=1e-5)
