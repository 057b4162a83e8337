"""Functions of one number that take derivatives of what they compute, where that branches and loops on numbers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

import autobatch as ab


def pieces(y: Any) -> Any:
    if y > 1.0:
        return y**3
    if y > 0.0:
        return y * y * 0.5
    return jnp.sin(y)


def climbs(y: Any) -> Any:
    s = y
    while s < 20.0:
        if s > 3.0:
            s = s * 1.5 + y
        else:
            s = s * s + 1.1
    return s


def of_branches(x: Any) -> Any:
    return jax.grad(pieces)(x)


def by_autobatch(x: Any) -> Any:
    value, slope = ab.value_and_grad(pieces)(x)
    return value - slope


def of_two(x: Any) -> Any:
    def f(a: Any, b: Any) -> Any:
        if a * b > 0:
            return a * a * b
        return a - b * b

    da, db = jax.grad(f, argnums=(0, 1))(x, 2.0 * x + 1)
    return da * 3 + db


def with_aux(x: Any) -> Any:
    def f(y: Any, k: Any) -> Any:
        if y > k:
            return y * k * k, (y, k)
        return y - k, (k, y)

    slope, (a, b) = jax.grad(f, argnums=1, has_aux=True)(x, x * 0.5 + 1)
    return slope + a * b


def of_a_structure(x: Any) -> Any:
    def f(p: Any) -> Any:
        if p["a"] > 0:
            return p["a"] * p["b"][0]
        return jnp.sum(p["b"][1] ** 2)

    slope = jax.grad(f)({"a": x, "b": (x * 2, jnp.stack([x, x]))})
    return slope["a"] + slope["b"][0] * 2 + slope["b"][1][1]


def of_what_is_around(x: Any) -> Any:
    w = x * x

    def f(y: Any) -> Any:
        s = 0.0
        for _ in range(5):
            s = s + y * w if y * w > s else s - y
        return s

    return jax.grad(f)(0.5) + jax.grad(f)(x)


def twice(x: Any) -> Any:
    return jax.grad(jax.grad(pieces))(x)


def newton(x: Any) -> Any:
    for _ in range(4):
        value, slope = jax.value_and_grad(lambda y: pieces(y) + y)(x)
        x = x - 0.1 * value / (jnp.abs(slope) + 0.5)
    return x


def descends(x: Any) -> Any:
    turns = 0
    while abs(jax.grad(pieces)(x)) > 0.3 and turns < 30:
        x = x - 0.2 * jax.grad(pieces)(x)
        turns += 1
    return x


def of_what_fails(x: Any) -> Any:
    def f(y: Any) -> Any:
        assert y < 1000.0
        return y * y if y > 0 else -y

    return jax.grad(f)(x)


def of_nothing(x: Any) -> Any:
    def f(y: Any, z: Any) -> Any:
        return z * 2 if z > 0 else z * z

    return jax.grad(f)(x, x)


def in_recursion(x: Any) -> Any:
    def f(y: Any) -> Any:
        if y > 10.0:
            return y
        return f(y + 1.0 + abs(jax.grad(pieces)(y))) + f(y * 1.5 + 2.0)

    return f(abs(x))


STRAIGHT = [
    of_branches,
    by_autobatch,
    of_two,
    with_aux,
    of_a_structure,
    of_what_is_around,
    twice,
    newton,
    descends,
    of_what_fails,
    of_nothing,
    in_recursion,
]
"""What has a derivative in its turn."""


def of_a_loop(x: Any) -> Any:
    value, slope = jax.value_and_grad(climbs)(x)
    return value * 0.1 + slope


def of_vectors(x: Any) -> Any:
    def f(q: Any) -> Any:
        if q[0] > q[1] * 0.5:
            q = q.at[0].multiply(2.0)
        s = jnp.sum(q * q)
        while s > 10.0:
            s = s * 0.5
        return s

    return jnp.sum(jax.grad(f)(jnp.stack([x, x + 1, x * x])))


def of_what_returns_early(x: Any) -> Any:
    def f(y: Any) -> Any:
        for k in range(6):
            y = y * 1.3
            if y > 2:
                return y * k
        return y * y

    return jax.grad(f)(x)


def behind_a_test(x: Any) -> Any:
    return jax.grad(climbs)(x) if x > 0.5 else 0.0


def in_a_loop_of_loops(x: Any) -> Any:
    for _ in range(7):
        x = x - 0.01 * jax.grad(climbs)(x)
        if x < -3:
            break
    return x


def of_recursion(x: Any) -> Any:
    def f(y: Any) -> Any:
        if y > 10.0:
            return y
        return f(y * 1.5 + 1.0) * 1.1

    return jax.grad(f)(abs(x))


LOOPING = [of_a_loop, of_vectors, of_what_returns_early, behind_a_test, in_a_loop_of_loops, of_recursion]
"""What is a derivative of loops, and has none in reverse."""
