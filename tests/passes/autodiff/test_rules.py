"""Derivatives of single operations, taken on all rows at once: padding, loops that end, what was not read."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab


def parameters():
    return {"w": jnp.float64(0.7), "b": jnp.array([0.3, -0.5, 1.2]), "W": jnp.eye(3) + 0.25}


def check(function, batch, total=lambda y: jnp.sum(jnp.sin(y)), shared=None):
    """The gradient of the batched call equals that of the plain loop."""
    p = parameters() if shared is None else shared
    expected = jax.grad(lambda p: sum(total(y) for y in function.loop(p, batch)))(p)
    found = jax.grad(lambda p: total(function(p, batch)))(p)
    for name in p:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-9, atol=1e-9, err_msg=name)


@ab.batched(in_axes=(None, 0))
def quotient(p, x: float):
    return p["w"] / x + jnp.arctan2(p["w"] * 0, x) + (5 * p["w"]) % x


@ab.batched(in_axes=(None, 0))
def scanned(p, x: float):
    return jax.lax.scan(lambda h, y: (jnp.tanh(p["W"] @ h / y), None), p["b"], jnp.arange(1.0, 3.0) * x)[0]


@ab.batched(in_axes=(None, 0))
def solved(p, x: float):
    return jnp.linalg.solve(p["W"] * p["w"], p["b"] * x) + jnp.linalg.solve(jnp.eye(3) * x + 0.1, p["b"])


@pytest.mark.parametrize("function", [quotient, scanned, solved])
def test_rows_that_do_not_count_have_no_derivative(function):
    """The derivative by an operand that all rows share need not be finite where the other operands are zero."""
    check(function, [0.5, 1.5, -2.0])


@ab.batched(in_axes=(None, 0))
def root_of_largest(p, words: list[int]):
    return jnp.sqrt(max([p["x"][w] for w in words]))


def test_what_was_not_chosen_has_no_derivative():
    """Zero, also where the cotangent of the largest element is infinite."""
    check(root_of_largest, [[0, 1, 2], [0, 1]], jnp.sum, {"x": jnp.array([0.0, -1.0, -2.0])})


def iterated(a):
    return jax.lax.while_loop(lambda c: jnp.abs(c * c - a) > 1e-13, lambda c: 0.5 * (c + a / c), jnp.maximum(a, 1.0))


root = jax.custom_vjp(iterated)
root.defvjp(lambda a: (root(a), root(a)), lambda r, g: (g / (2 * r),))


@ab.batched(in_axes=(None, 0))
def iterated_roots(p, xs: list[float]):
    h = p["w"]
    for x in xs:
        h = root(2 + jnp.sin(h) * p["w"] + x)
    return h


def test_a_loop_with_a_rule_of_its_own():
    check(iterated_roots, [[0.5, 0.25, 1.0], [], [1.5]])


@jax.custom_vjp
def counted(a):
    return a * a


def count_down(a, g):
    return (
        2 * g * a + jax.lax.while_loop(lambda c: c[0] < 4 * jnp.abs(g), lambda c: (c[0] + 1, c[1] + a), (0.0, 0.0))[1],
    )


counted.defvjp(lambda a: (a * a, a), count_down)


@ab.batched(in_axes=(None, 0))
def chain(p, xs: list[float]):
    h = p["w"]
    for x in xs:
        h = jnp.sin(counted(p["w"] * h + x) + p["b"][0] * x)
    return h


def test_a_rule_that_holds_a_loop():
    """In reverse the windows of a narrow first level cover levels that are finished: those keep their values."""
    check(chain, [[0.1 * k for k in range(17)], [0.2, 0.1], [0.3]])


def test_derivatives_of_such_operations_to_second_order():
    """Where a derivative is itself differentiated, rows that do not count have none either."""
    of = lambda f: jax.grad(lambda w: jax.grad(f)(w))(0.7)  # noqa: E731
    p = parameters()
    numbers = [0.5]
    for function, batch in ((iterated_roots, [[0.5, 0.25]]), (quotient, numbers), (solved, numbers)):
        expected = of(lambda w: sum(jnp.sum(jnp.sin(y)) for y in function.loop({**p, "w": w}, batch)))
        found = of(lambda w: jnp.sum(jnp.sin(function({**p, "w": w}, batch))))
        np.testing.assert_allclose(found, expected, rtol=1e-9)
