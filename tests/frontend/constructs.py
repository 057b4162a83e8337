"""One small function for each construct, whose IR is a golden file."""

from __future__ import annotations

import jax.numpy as jnp

from tests.frontend.programs import Node, Tree, child_sum, parameters, tree_lstm


def half(n):
    return n // 2


def branch(n):
    if n > 0:
        x = n * 2
    elif n < -5:
        x = -n
    else:
        x = 0
    return x


def early_return(t):
    if t.left is None:
        return t.word
    y = t.left.word + 1
    return y * 2


def partial_return(n):
    if n > 0:
        if n > 5:
            return 100
        x = 1
    else:
        x = 2
    return x + n


def for_loop(w, xs):
    s = 0
    for x in xs:
        s = s + x * w
    return s


def loop_with_break(xs):
    last = -1
    for k, x in enumerate(xs):
        if x < 0:
            break
        last = k
    return last


def while_loop(t):
    depth = 0
    while t.left is not None:
        t = t.left
        depth += 1
    return depth


def comprehension(xs):
    return [half(x) for x in xs if x > 1]


def reductions(xs):
    return sum(x * x for x in xs), any(x > 2 for x in xs), max(xs, default=0), len(xs)


def recursion_down(t, depth=0):
    if t is None:
        return 0
    return depth + recursion_down(t.left, depth + 1) + recursion_down(t.right, depth + 1)


def failure(n):
    assert n < 10, f"{n} is too large"
    if n == 3:
        raise ValueError(f"not {n}")
    return n


def arithmetic(n):
    return n // 3, n % 3, n / 3, n**2, round(n / 3), int(n * 1.5), -n, abs(n)


def traced(w, n):
    return jnp.tanh(w * n).sum()


def table(p, pair):
    name, n = pair
    return p[name] * n


TREES = [Node(0, 1), Node(1, 2, left=Node(2, 3), right=Node(3, 4))]
LISTS = [[3, 1], [], [5, -2, 7]]
ENTRIES = {
    "branch": (branch, [1, -1, -9], ()),
    "early_return": (early_return, TREES, ()),
    "partial_return": (partial_return, [-1, 3, 9], ()),
    "for_loop": (for_loop, LISTS[:1], (jnp.arange(3.0),)),
    "loop_with_break": (loop_with_break, LISTS, ()),
    "while_loop": (while_loop, TREES, ()),
    "comprehension": (comprehension, LISTS, ()),
    "reductions": (reductions, LISTS, ()),
    "recursion_down": (recursion_down, TREES, ()),
    "failure": (failure, [1, 3, 20], ()),
    "arithmetic": (arithmetic, [-7, 0, 5], ()),
    "traced": (traced, [1, 2], (jnp.arange(3.0),)),
    "table": (table, [("a", 1), ("b", 2)], ({"a": jnp.ones(2), "b": jnp.zeros(2)},)),
    "tree_lstm": (tree_lstm, TREES, (parameters(),)),
    "child_sum": (child_sum, [Tree(1), Tree(2, [Tree(3), Tree(4)])], (parameters(),)),
}
