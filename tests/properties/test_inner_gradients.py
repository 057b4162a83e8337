"""`jax.grad` inside of a function for one example, of functions that branch and loop on computed numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from tests.properties.inner import (
    LOOPING,
    STRAIGHT,
    in_a_loop_of_loops,
    newton,
    of_a_loop,
    of_branches,
    of_recursion,
    of_two,
    of_vectors,
    pieces,
    twice,
)

NUMBERS = np.float32([-3.0, -0.5, 0.3, 1.2, 2.0, 4.0, 7.5, 20.0])


def together(functions: Any) -> Any:
    """One program of several functions."""

    def all_of_them(x: Any) -> Any:
        return jnp.stack([jnp.asarray(f(x), jnp.float32) for f in functions])

    return all_of_them


def loop(f: Any, xs: Any) -> Any:
    return np.array([f(jnp.float32(x)) for x in xs])


@pytest.fixture(scope="module")
def expected() -> Any:
    return {f.__name__: loop(f, NUMBERS) for f in (*STRAIGHT, *LOOPING)}


@pytest.mark.parametrize("function", (*STRAIGHT, *LOOPING), ids=lambda f: f.__name__)
def test_interpreted(function, expected):
    found = ab.batched(function, backend="interpret")(jnp.asarray(NUMBERS))
    np.testing.assert_allclose(found, expected[function.__name__], rtol=2e-4, atol=1e-5)


FEWER = [newton, of_vectors, in_a_loop_of_loops, of_recursion]


@pytest.mark.parametrize(("loops", "functions"), [("auto", [*STRAIGHT, *LOOPING]), ("xla", FEWER)])
def test_by_machine_code_and_by_xla(loops, functions, expected):
    with ab.options(loops=loops):
        found = jax.jit(ab.batched(together(functions)))(jnp.asarray(NUMBERS))
    for k, f in enumerate(functions):
        np.testing.assert_allclose(found[:, k], expected[f.__name__], rtol=2e-4, atol=1e-5, err_msg=f.__name__)


def test_derivatives_of_derivatives():
    functions = [of_branches, of_two, twice, newton]
    weights = np.float32(np.linspace(-1.0, 1.0, len(functions)))
    f = ab.batched(together(functions))
    found = jax.jit(jax.grad(lambda xs: jnp.sum(f(xs) @ weights)))(jnp.asarray(NUMBERS))
    wanted = sum(w * np.array([jax.grad(each)(jnp.float32(x)) for x in NUMBERS]) for w, each in zip(weights, functions))
    np.testing.assert_allclose(found, wanted, rtol=5e-4, atol=1e-4)


def test_loops_have_no_second_derivative():
    with pytest.raises(ab.UnsupportedError, match="no second derivative in reverse"):
        jax.grad(lambda xs: jnp.sum(ab.batched(of_a_loop)(xs)))(jnp.asarray(NUMBERS))


@dataclass
class Node:
    value: float
    children: list["Node"]


TREES = [
    Node(1.0, [Node(-2.0, []), Node(0.5, [Node(3.0, [])])]),
    Node(-1.0, []),
    Node(2.5, [Node(0.1, [])]),
]


@pytest.mark.parametrize("backend", ["interpret", "xla"])
def test_in_a_recursion_over_trees(backend):
    def energy(w: Any, n: Any) -> Any:
        below = [energy(w, c) for c in n.children]
        return jax.grad(pieces)(w * n.value + sum(below) * 0.1)

    f = ab.batched(energy, in_axes=(None, 0), backend=backend)
    np.testing.assert_allclose(f(0.7, TREES), [energy(0.7, t) for t in TREES], rtol=1e-4)
    slope = ab.grad(f)(0.7, TREES)
    np.testing.assert_allclose(slope, sum(jax.grad(energy)(0.7, t) for t in TREES), rtol=1e-4)


@pytest.mark.parametrize("backend", ["interpret", "xla"])
def test_by_what_all_examples_share(backend):
    def slopes(w: Any, n: Any) -> Any:
        def f(v: Any) -> Any:
            return v * v * n.value if v * n.value > 0 else v

        def g(v: Any) -> Any:
            return v * v if v > 0 else v

        return jax.grad(f)(w), jax.grad(g)(w) * n.value

    found = ab.batched(slopes, in_axes=(None, 0), backend=backend)(0.7, TREES)
    np.testing.assert_allclose(np.stack(found, 1), [slopes(0.7, t) for t in TREES], rtol=1e-5)


def test_a_loop_inside_is_machine_code():
    report = str(ab.batched(of_a_loop, backend="xla").explain(jnp.asarray(NUMBERS)))
    assert "machine code: gangs" in report and "derivative, line" in report


def test_an_endless_loop_fails_its_example():
    def f(y: Any) -> Any:
        while y > 0.0:
            y = y + 1.0
        return y

    with ab.options(max_iterations=1000), pytest.raises(ab.ExampleError, match="1 of") as raised:
        ab.batched(lambda x: jax.grad(f)(x))(jnp.float32([-1.0, 2.0, -3.0]))
    assert [f.index for f in raised.value.failures] == [1]


def test_a_check_inside_fails_its_example():
    def f(y: Any) -> Any:
        if y > 1.0:
            raise ValueError(f"{y} is too large")
        return y * y

    with pytest.raises(ab.ExampleError, match="is too large") as raised:
        ab.batched(lambda x: jax.grad(f)(x))(jnp.float32([-1.0, 2.0, -3.0]))
    assert [f.index for f in raised.value.failures] == [1]


def of_lists(w: Any, n: Any) -> Any:
    def loss(v: Any) -> Any:
        s = 0.0
        for c in n.children:
            s = s + (v - c.value) ** 2
        return s

    return jax.grad(loss)(w)


def test_of_lists_of_each_example():
    """What does not compile is traced, example by example."""
    found = ab.batched(of_lists, in_axes=(None, 0))(0.7, TREES)
    np.testing.assert_allclose(found, [of_lists(0.7, t) for t in TREES], rtol=1e-5)


def of_trees(w: Any, n: Any) -> Any:
    def energy(v: Any, m: Any) -> Any:
        return v * m.value + sum([energy(v * 0.5, c) for c in m.children])

    return jax.grad(energy)(w, n)


def test_of_a_recursion() -> None:
    found = ab.batched(of_trees, in_axes=(None, 0))(0.7, TREES)
    np.testing.assert_allclose(found, [of_trees(0.7, t) for t in TREES], rtol=1e-5)


def to_vectors(w: Any, n: Any) -> Any:
    return jax.grad(lambda v: jnp.stack([v, v]) if v > 0 else jnp.stack([v, -v]))(w)


def to_words(w: Any, n: Any) -> Any:
    return jax.grad(lambda v: "a" if v > 0 else "b")(w)


def without_pair(w: Any, n: Any) -> Any:
    return jax.grad(lambda v: v if v > 0 else -v, has_aux=True)(w)


def by_whole_numbers(w: Any, n: Any) -> Any:
    return jax.grad(lambda v, k: v * k if v > 0 else v, argnums=1)(w, jnp.int32(w))


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (to_vectors, r"returns float32\*?\[2\]"),
        (to_words, "returns tag<str>"),
        (without_pair, "returns no pair"),
        (by_whole_numbers, "grad requires real- or complex-valued inputs"),
    ],
)
def test_refused(function, words):
    with pytest.raises(ab.UnsupportedError, match=words) as raised:
        ab.batched(function, in_axes=(None, 0))(0.7, TREES)
    assert "test_inner_gradients.py" in str(raised.value)


def test_what_jax_can_trace_it_traces():
    text = ab.batched(lambda x: jax.grad(lambda y: y * jnp.sin(y))(x)).lower(jnp.asarray(NUMBERS)).as_text("spmd")
    assert "gradient" not in text
    assert "gradient_of" in ab.batched(of_branches).lower(jnp.asarray(NUMBERS)).as_text("spmd")
