"""Functions whose control depends on numbers that only the device knows: what they hold is computed from `p`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

import autobatch as ab


@dataclass
class Node:
    value: float
    left: Node | None = None
    right: Node | None = None


def root(p: Any, x: Any) -> Any:
    """Newton's method: as many turns as it takes; `else` of a loop that ended by itself."""
    turns, y = 0, x + 0.5 * p["a"]
    while abs(y * y - p["a"] - x) > 1e-9:
        y = y - (y * y - p["a"] - x) / (2 * y)
        turns += 1
        if turns > 30:
            break
    else:
        turns = -turns
    return y, turns


def collatz(p: Any, n: Any) -> Any:
    """Uneven loops with a branch in each turn."""
    n, steps, highest = n + 0 * p["a"], 0, 0.0
    while n > 1:
        if n % 2 == 0:
            n = n / 2
        else:
            n = 3 * n + 1
        steps += 1
        highest = max(highest, n)
    return steps, highest


def mandelbrot(p: Any, x: Any) -> Any:
    """`for` with an early return."""
    z, c = 0j, (x - 1.5) * p["a"] + 0.3j
    for k in range(40):
        if abs(z) > 2:
            return k
        z = z * z + c
    return 40


def guarded(p: Any, x: Any) -> Any:
    """The derivative of the arm that is not taken is infinite, or not a number; a ternary and `and` that guards."""
    y = x * p["a"] - p["a"]
    root = jnp.sqrt(y) if y > 0 else 0.0
    inverse = 1 / y if y != 0 and 1 / y > 0.5 else jnp.zeros(())
    return root + inverse


def early_exit(p: Any, x: Any) -> Any:
    """A classifier that stops at the first layer that is sure; arms of matrix products."""
    h, logits = jnp.tanh(x * p["b"]), p["b"]
    for k in range(3):
        logits = h @ p["W"]
        if jnp.max(logits) - jnp.min(logits) > 0.8:
            return logits, k
        h = jnp.tanh(h @ p["W"] + p["b"]) if logits[0] > 0 else jnp.sin(h)
    return logits, 3


def nested(p: Any, x: Any) -> Any:
    """Loops in loops, `continue`, `break`, return from inside, a count that is computed."""
    total, y, n = 0.0, x + p["a"], 0
    for i in range(4):
        y = x + i + p["a"]
        while y > 0.4:
            y, n = y * 0.7, n + 1
            if n % 3 == 0:
                continue
            total = total + jnp.sin(y)
            if total > 7.0:
                return total, n
        for _ in range(n % 4):
            total = total * 0.9 + p["a"] * 0.1
    return total + y, n


def of_arrays(p: Any, x: Any) -> Any:
    """A loop over vectors with a matrix that all share."""
    h, norm = p["b"] * x, 0.0
    while norm < 4.0:
        h = h + jnp.tanh(p["W"] @ h) + 0.3
        norm = jnp.sum(h * h)
    return h


def unlike(p: Any, x: Any) -> Any:
    """Variables that are born in an arm, swapped, and changed in type from an int to a float."""
    a, b, k = x, p["a"], 0
    if a * p["a"] < b:
        a, b = b, a
        k = 0.5
    scale = 2 * p["a"] if k > 0 else p["a"]
    return a - b * scale, k


def by_key(p: Any, x: Any) -> Any:
    """Random numbers until one is small enough."""
    key, y = jax.random.key(3), x + p["a"]
    while y > 0.5:
        key, again = jax.random.split(key)
        y = y * jax.random.uniform(again)
    return y


def recursion(p: Any, t: Node) -> Any:
    """A branch and a loop in each activation, on what calls below have computed."""
    if t.left is None or t.right is None:
        return t.value * p["a"]
    score = recursion(p, t.left) + recursion(p, t.right)
    while score > 1.0:
        score = score * p["a"] / 3
    if score > 0.3:
        return score + jnp.sin(t.value * p["a"])
    return -score


def of_turns(p: Any, xs: list[float]) -> Any:
    """A branch in each turn of a loop over a list."""
    h = p["a"]
    for x in xs:
        if h * x > 0.2:
            h = h * x - p["a"]
        elif h < -3:
            h = jnp.zeros_like(h)
        else:
            h = h + x
    return h


def checked(p: Any, x: Any) -> Any:
    """`assert` on a computed number, `raise` in an arm and in a loop."""
    y = x * p["a"]
    assert y < 11, f"{y} is too large"
    if y > 3:
        if y > 8:
            raise ValueError("large")
        y = jnp.sqrt(y)
    for _ in range(3):
        if y == 0:
            raise ZeroDivisionError
        y = y / 2 + 1 / y
    return y


def unset(p: Any, x: Any) -> Any:
    """`found` is set in some turn, or never."""
    for k in range(5):
        if k * p["a"] > x:
            found = k
            break
    return found


def _halvings(y: Any) -> Any:
    turns = 0
    while y > 1.0:
        y = y * 0.5
        turns += 1
    return turns


def _small(y: Any) -> Any:
    assert y < 24.0, "too large"
    return y < 16.0


def checked_test(p: Any, x: Any) -> Any:
    """Tests of loops that can fail, and that have loops of their own."""
    y = x * p["a"]
    while _small(y) and _halvings(y) < 4:
        y = (y + 1.0) * 2.0
    return y


def until(p: Any, xs: list[float]) -> Any:
    """`break` and `else` of a loop over a list, by what it has computed; the turn is read behind it."""
    h, k = p["a"], 0
    for k, x in enumerate(xs):
        if x > 8:
            continue
        h = jnp.sin(h * x) + p["a"]
        if h < 1.0:
            break
    else:
        h = h * 2
    return h, k


def walk_down(p: Any, t: Node) -> Any:
    """`return` out of a loop over a list of lists of numbers that a tree holds."""
    for x in [t.value, t.value + 1, t.value + 2]:
        y = x * p["a"]
        if y > 3:
            return y
    return -p["a"]


NUMBERS = [root, collatz, mandelbrot, guarded, early_exit, nested, of_arrays, unlike, by_key]
STRUCTURES = [recursion, of_turns, until, walk_down]
DIFFERENTIABLE = [root, guarded, early_exit, nested, of_arrays, unlike, recursion, of_turns, until]


def shared() -> Any:
    w = jnp.sin(jnp.arange(9.0)).reshape(3, 3)
    return {"a": jnp.asarray(1.3), "b": jnp.cos(jnp.arange(3.0)), "W": w}


def batched(function: Any, **options: Any) -> Any:
    return ab.batched(function, in_axes=(None, 0), **options)
