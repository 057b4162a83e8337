"""Conditions of which structure is one part and computed numbers another guard what is read behind them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import pytest

import autobatch as ab
from autobatch.testing import check_equivalence


@dataclass
class Leaf:
    value: float


@dataclass
class Node:
    value: float
    next: Node | None = None
    bonus: float | None = None
    side: Any = None
    items: list[float] = field(default_factory=list)


def class_and_number(w: Any, node: Any, x: Any) -> Any:
    side = node.side
    if isinstance(side, Node) and x * w > side.value:
        return side.value * w
    return 1.0 if isinstance(side, Leaf) else 2.0


def number_and_class(w: Any, node: Any, x: Any) -> Any:
    if x * w > 0.3 and isinstance(node.side, Node):
        node = node.side
    return node.value * x


def none_and_number(w: Any, node: Any, x: Any) -> Any:
    found = node.next.value if node.next is not None and x * w > 0.3 else node.value
    if node.bonus is not None and x > node.bonus:
        found += node.bonus * w
    return found


def two_steps(w: Any, node: Any, x: Any) -> Any:
    if node.next is not None and node.next.next is not None and x * w > node.next.next.value:
        return node.next.next.value * w
    known = not (node.next is None or x * w < 0.1)
    return node.next.value if known else -1.0


def while_there(w: Any, node: Any, x: Any) -> Any:
    total = 0.0
    while node.next is not None and total < 2:
        total += node.next.value * abs(x) * w + 0.3
    return total


def branch_in_loop(w: Any, node: Any, x: Any) -> Any:
    """The loop runs all its turns, whose reads are checked where they stand."""
    total, turn = 0.1, 0
    while total < 1.0 and turn < 3:
        turn += 1
        if x * w > 0.3 and isinstance(node.side, Leaf):
            total += node.side.value * 2 * w
    return total


def loop_behind_both(w: Any, node: Any, x: Any) -> Any:
    total = 0.0
    if node.next is not None and x * w > 0.3:
        behind = node.next
        while behind.next is not None and total < 2:
            total += behind.next.value * w + 0.5
    return total


def by_either_side(w: Any, node: Any, x: Any) -> Any:
    if node.next is not None if x * w > 0.3 else node.bonus is not None:
        return node.next.value if x * w > 0.3 else node.bonus
    return 0.5


def calls_behind_both(w: Any, node: Any, x: Any) -> Any:
    def total(node: Any) -> Any:
        return 0.0 if node is None or x * w < 0.1 else node.value * w + total(node.next) * 0.5

    if node.items and x * w > node.items[0] * 0.2 and node.next is not None:
        return total(node.next)
    return total(node)


def counted_calls(w: Any, node: Any, x: Any) -> Any:
    def down(xs: Any, k: Any) -> Any:
        if xs[0] * w < 0.3 or k < 1:
            return xs[-1]
        return down([xs[0] * 0.8, *xs[1:]], k - 1) * x + k

    return down([node.value + 0.5, *node.items], 2)


def calls_that_either_ends(w: Any, node: Any, x: Any) -> Any:
    """The host runs these calls ahead, of lists that numbers are in: what it knows ends them."""

    def structure_first(xs: Any, k: Any) -> Any:
        if k < 1 or xs[0] * w < 0.3:
            return xs[0] * x
        return structure_first([*xs, xs[0] * 0.5], k - 1) + sum(xs)

    def neither(xs: Any, k: Any) -> Any:
        if xs[0] > 0.1 and k > 0 and xs[-1] < 1.5:
            return neither([xs[0] * w, *xs], k - 1) * 0.5 + neither(xs[:1], k - 2)
        return xs[-1] * x

    start = [node.value + 0.5, *node.items]
    return structure_first(start, 3) * 0.1 + neither(start, 3)


def search_that_is_cut(w: Any, node: Any, x: Any) -> Any:
    """The function calls itself with the same objects: how many they are ends it, or a number does."""
    best, visited = [-9.0], []

    def search(at: Any, total: Any) -> Any:
        if total > best[0] or at == 0:
            best[0] = total
            visited.append(at)
        if at >= len(node.items) or total > 2 * w:
            return
        search(at + 1, total + node.items[at] * w)
        if node.items[at] > 0.7:
            search(at + 1, total)

    search(0, x * 0.1)
    return best[0] + len(visited)


PROGRAMS = [
    *(class_and_number, number_and_class, none_and_number, two_steps),
    *(while_there, branch_in_loop, loop_behind_both, by_either_side, calls_behind_both),
    counted_calls,
    search_that_is_cut,
    calls_that_either_ends,
]
FIRST = Node(1.0)
SECOND = Node(0.5, FIRST, 0.3, Leaf(0.2), [1.0, 2.0])
THIRD = Node(0.2, SECOND, None, SECOND, [0.5])
NODES = [FIRST, SECOND, THIRD, Node(0.7, THIRD, 0.6, Node(0.1), [])]
EXAMPLES = [(node, x) for node in NODES for x in (0.2, 1.4)]


def check(program: Callable[..., Any], backend: str, grads: bool) -> None:
    f = ab.batched(program, in_axes=(None, 0, 0))
    check_equivalence(f, EXAMPLES, (jnp.float32(0.8),), grads=grads, backends=(backend,), jit=False, tolerance=2e-5)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_reads_behind_both_are_made_where_both_hold(program: Callable[..., Any]) -> None:
    check(program, "interpret", grads=False)


@pytest.mark.parametrize(
    ("program", "backend"),
    [(p, b) for p in (class_and_number, none_and_number) for b in ("xla", "llvm")] + [(counted_calls, "xla")],
    ids=lambda p: getattr(p, "__name__", p),
)
def test_derivatives(program: Callable[..., Any], backend: str) -> None:
    check(program, backend, grads=True)
