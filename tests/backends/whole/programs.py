"""Functions of numbers, small arrays and recursion on numbers, with batches for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np


def mandel(re, im):
    x = y = 0.0
    turns = 0
    while turns < 40 and x * x + y * y < 4.0:
        x, y = x * x - y * y + re, 2 * x * y + im
        turns += 1
    return turns


def horner(x, w):
    total = 0.0
    for k in range(4):
        total = total * x + w[k]
    return total if total > 0 else -total, jnp.dot(w, w)


def fib(n):
    if n < 2:
        return n
    return fib(n - 1) + fib(n - 2)


def collatz(n):
    steps = 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return {"steps": steps, "even": steps % 2 == 0}


def counted(n, x):
    for k in range(n):
        x = x * 0.5 + k
    return x


def shared_branch(n, x):
    return x * n if n > 3 else x


def chase(table, i, x):
    while x > 0:
        i = table[i]
        x = x - 1
    return i


def sort3(v):
    a, b, c = v[0], v[1], v[2]
    if a > b:
        a, b = b, a
    if b > c:
        b, c = c, b
    if a > b:
        a, b = b, a
    return jnp.stack([a, b, c])


def newton(p, x):
    y = x + p["a"]
    while abs(y * y - p["a"] - x) > 1e-3:
        y = y - (y * y - p["a"] - x) / (2 * y)
    return y * p["s"][1]


def rooted(p, x):
    return jnp.sqrt(x) * p["a"] if x > 0 else x * p["s"][0]


TABLE = np.arange(7, dtype=np.float32)


def looked_up(p, i, x):
    return TABLE[i] * x * p["a"] + jnp.dot(p["s"], p["s"])


def parameters():
    return {"a": np.float32(1.3), "s": np.array([0.5, 1.5, 2.5], np.float32)}


class Case(NamedTuple):
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    in_axes: Any = 0


def cases() -> dict[str, Case]:
    """By name. Batches are no multiple of any number of lanes."""
    rng = np.random.default_rng(0)
    count = 37
    x = rng.normal(size=count).astype(np.float32)
    table = np.array([3, 0, 4, 1, 2], np.int32)
    return {
        "mandel": Case(mandel, (x, rng.normal(size=count).astype(np.float32))),
        "horner": Case(horner, (x, rng.normal(size=(count, 4)).astype(np.float32))),
        "fib": Case(fib, (rng.integers(0, 12, count).astype(np.int32),)),
        "collatz": Case(collatz, (rng.integers(1, 60, count).astype(np.int32),)),
        "counted": Case(counted, (5, x), (None, 0)),
        "shared_branch": Case(shared_branch, (5, x), (None, 0)),
        "chase": Case(chase, (table, rng.integers(0, 5, count).astype(np.int32), 4 * x), (None, 0, 0)),
        "sort3": Case(sort3, (rng.normal(size=(count, 3)).astype(np.float32),)),
    }
