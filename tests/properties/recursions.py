"""Recursion whose calls depend on computed numbers, as users write it: limits come as JAX arrays, so that only the
device knows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

import autobatch as ab


@ab.batched(in_axes=(None, 0))
def fib(p, n):
    if n < p["two"]:
        return n
    return fib(p, n - 1) + fib(p, n - 2)


@ab.batched(in_axes=(None, 0, 0, 0))
def takeuchi(p, x, y, z):
    if y + p["zero"] >= x:
        return z
    return takeuchi(p, takeuchi(p, x - 1, y, z), takeuchi(p, y - 1, z, x), takeuchi(p, z - 1, x, y))


@ab.batched(in_axes=(None, 0))
def mccarthy(p, n):
    if n > 100 * p["one"]:
        return n - 10
    return mccarthy(p, mccarthy(p, n + 11))


@ab.batched(in_axes=(None, 0, 0))
def ackermann(p, m, n):
    if m == p["zero"]:
        return n + 1
    if n == 0:
        return ackermann(p, m - 1, 1)
    return ackermann(p, m - 1, ackermann(p, m, n - 1))


@ab.batched(in_axes=(None, 0, 0))
def gcd(p, a, b):
    """The last call is a jump: no stack, whatever the depth."""
    if b == p["zero"]:
        return a
    return gcd(p, b, a % b)


@ab.batched(in_axes=(None, 0))
def is_even(p, n):
    return True if n == p["zero"] else is_odd(p, n - 1)


@ab.batched(in_axes=(None, 0))
def is_odd(p, n):
    return False if n == p["zero"] else is_even(p, n - 1)


@ab.batched(in_axes=(None, 0))
def female(p, n):
    """Hofstadter's sequences: two functions that wait for each other."""
    return 1 if n == p["zero"] else n - male(p, female(p, n - 1))


@ab.batched(in_axes=(None, 0))
def male(p, n):
    return 0 if n == p["zero"] else n - female(p, male(p, n - 1))


@ab.batched(in_axes=(None, 0))
def partitions(p, n):
    """A loop around a call, as long as computed numbers say."""
    total = 1
    k = 1
    while k * p["two"] <= n:
        total = total + partitions(p, n - k * k)
        k = k + 1
    return total


@ab.batched(in_axes=(None, 0))
def collatz_sum(p, n):
    """A counted loop with a recursion in it, and an early return."""
    total = 0
    for i in range(4):
        if n <= p["one"]:
            return total
        total = total + i * collatz_sum(p, n - i - 1)
    return total + n


@ab.batched(in_axes=(None, 0))
def halved(p, x):
    """Arrays: the last axis is folded until it is small."""
    if jnp.sum(x * x) < p["limit"]:
        return x
    left, right = halved(p, x * 0.4), halved(p, x * 0.3 + p["shift"])
    return left - 0.5 * right


@ab.batched(in_axes=(None, 0, 0))
def select(p, values, k):
    """Quickselect on a fixed array: the k-th smallest between two limits."""
    return _select(values, k + p["zero"], -1e6, 1e6)


def _select(values, k, low, high):
    middle = (low + high) / 2
    below = jnp.sum(values < middle)
    if high - low < 1e-3:
        return middle
    if k < below:
        return _select(values, k, low, middle)
    return _select(values, k, middle, high)


@ab.batched(in_axes=(None, 0))
def minimax(p, board):
    """A game of numbers, with a cut-off: moves that the score forbids are not tried."""
    return _value(p, board, 0, -1e3)


def _value(p, board, depth, best):
    score = jnp.tanh(board @ p["w"])
    if depth == 3 or abs(score) > 0.9:
        return score
    for move in range(2):
        if best < 0.6:
            value = -_value(p, jnp.roll(board, move + 1) + 0.3 * p["w"], depth + 1, -1e3)
            best = jnp.maximum(best, value)
    return best


@ab.batched(in_axes=(None, 0))
def best(p, n):
    """Comprehensions whose elements are results of calls, reduced at once."""
    if n <= p["zero"]:
        return n * 0.5
    counts = sum([best(p, n - k) for k in (1, 2)]) + max(best(p, n - 2 - k) for k in range(n))
    some = any(best(p, n - 3) > 1.0 for k in range(2)) or all(k > n for k in range(n))
    return counts * 0.25 + some + min([best(p, n - 4) for k in range(3) if k != 1])


@ab.batched(in_axes=(None, 0))
def stacked(p, n):
    """The results of calls as an array."""
    if n <= p["zero"]:
        return p["w"] * n
    return jnp.stack([stacked(p, n - 1 - k) for k in range(3)]).sum(axis=0)


@ab.batched(in_axes=(None, 0, 0))
def called_in_a_loop(p, a, b):
    """No recursion itself: a loop that computed numbers end, around a recursion; and a branch around one."""
    turns = 0
    while a * p["one"] > 1:
        a = a - gcd(p, a, b)
        turns += 1
    return turns if a == 1 else fib(p, turns + p["two"])


@ab.batched(in_axes=(None, 0))
def called_in_a_loop_of_nodes(p, t):
    """The same in the frames of a tree."""
    if t.left is None:
        return t.x
    x = t.x
    while x > p["limit"]:
        x = x - abs(_steps(p, x)) - 0.1
    return x + called_in_a_loop_of_nodes(p, t.left) - called_in_a_loop_of_nodes(p, t.right)


@dataclass
class Node:
    x: float
    left: "Node | None" = None
    right: "Node | None" = None


@ab.batched(in_axes=(None, 0))
def of_nodes(p, t: Node):
    """A tree whose nodes call a recursion on numbers: frames around a stack."""
    if t.left is None:
        return _steps(p, t.x)
    return _steps(p, 0.5 * t.x) - of_nodes(p, t.left) * 0.5 + of_nodes(p, t.right)


def _steps(p, x):
    if abs(x) < p["limit"]:
        return x
    return _steps(p, x * 0.5) + _steps(p, -x * 0.25)


@ab.batched(in_axes=(None, 0))
def of_lists(p, xs: list[float]):
    """Turns of loops and of comprehensions that call a recursion on numbers."""
    total = 0.0
    for x in xs:
        total = _steps(p, x + total * 0.1)
    return total + sum([_steps(p, x) for x in xs])


def parameters() -> dict[str, Any]:
    return {
        "zero": jnp.asarray(0),
        "one": jnp.asarray(1),
        "two": jnp.asarray(2),
        "limit": jnp.asarray(0.7),
        "shift": jnp.asarray(0.01),
        "w": jnp.asarray([0.5, -0.2, 0.3]),
    }


def trees(rng: np.random.Generator, count: int) -> list[Node]:
    def tree(depth: int) -> Node:
        x = float(rng.normal() * 2)
        return Node(x) if depth == 0 or rng.random() < 0.3 else Node(x, tree(depth - 1), tree(depth - 1))

    return [tree(3) for _ in range(count)]


@ab.batched(in_axes=(None, 0))
def of_tuples(p, x):
    """Two numbers of four are the same in all calls, whose arms make others."""

    def down(xs, k):
        if xs[0] < p["limit"] * 0.1 or k < 0:
            return xs[0]
        if k > 4:
            return down((jnp.tanh(xs[0]), *xs[1:-1], xs[-1] * 0.5), k - 1) * 0.5
        if k > 2:
            return down((jnp.sin(xs[0] + xs[1]), *xs[1:-1], xs[-1] + x), k - 1) + 1
        first = down((xs[0] * x, *xs[1:]), k - 1)
        return first * down((first, *xs[1:-1], x), k - 2) if first > 0 else first + sum(xs)

    return down((x, x + 1, x + 2, x + 3), 6)


def cases() -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """Functions with their batched arguments."""
    rng = np.random.default_rng(7)
    lists = [[float(x) for x in rng.normal(size=n) * 2] for n in (0, 1, 3, 2)]
    return {
        "fib": (fib, (np.array([6, 7, 8, 7, 0, 1]),)),
        "takeuchi": (takeuchi, (np.array([5, 4, 1]), np.array([3, 2, 4]), np.array([1, 0, 2]))),
        "mccarthy": (mccarthy, (np.array([99, 87, 101, 150]),)),
        "ackermann": (ackermann, (np.array([2, 1, 0, 2]), np.array([2, 5, 3, 0]))),
        "gcd": (gcd, (np.array([12, 35, 7, 0]), np.array([18, 21, 0, 5]))),
        "is_even": (is_even, (np.array([3, 8, 0, 61]),)),
        "female": (female, (np.array([0, 5, 9, 3]),)),
        "partitions": (partitions, (np.array([0, 4, 9, 6]),)),
        "collatz_sum": (collatz_sum, (np.array([1, 5, 3, 7]),)),
        "halved": (halved, (rng.normal(size=(4, 3)),)),
        "select": (select, (rng.normal(size=(3, 5)), np.array([0, 4, 2]))),
        "minimax": (minimax, (rng.normal(size=(4, 3)),)),
        "best": (best, (np.array([0, 3, 2, 4]),)),
        "stacked": (stacked, (np.array([0, 3, 2, 4]),)),
        "called_in_a_loop": (called_in_a_loop, (np.array([12, 35, 1, 9]), np.array([18, 21, 4, 3]))),
        "called_in_a_loop_of_nodes": (called_in_a_loop_of_nodes, (trees(rng, 4),)),
        "of_nodes": (of_nodes, (trees(rng, 4),)),
        "of_lists": (of_lists, (lists,)),
        "of_tuples": (of_tuples, (np.array([1.0, 2.0, 0.5, -0.3]),)),
    }
