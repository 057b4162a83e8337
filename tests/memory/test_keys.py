"""Objects as keys: by identity where Python's are, by their fields where they are frozen, else refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Optional

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from autobatch.testing import assert_same, check_equivalence

ONE = jnp.float32(1.1)
NUMBERS = np.array([0.1, 0.9, 2.2, 7.0], np.float32)


@dataclass(frozen=True)
class Point:
    x: int
    y: int


@dataclass(eq=False)
class Item:
    value: float
    next: Optional[Item] = None


@dataclass
class Pair:
    value: float
    out: list[Pair]


@dataclass(frozen=True)
class Named:
    value: float
    out: list[Named]


def check(f: Any, batch: Any, backend: str, grads: bool) -> None:
    f = ab.batched(f, in_axes=(None, 0))
    check_equivalence(f, batch, (ONE,), grads=grads, backends=(backend,), jit=False, tolerance=2e-5)


def points(w: Any, x: float) -> Any:
    p, y, again = Point(0, 0), w * x, 0
    seen, sums = {p}, {p: w}
    while y < 3.0:
        y = y * 1.5 + 0.3
        p = Point(p.x + (1 if y > 1.0 else 0), (p.y + 1) % 2)
        if p in seen:
            again = again + 1
        seen.add(p)
        sums[p] = sums.get(p, 0.0) + y
    return y * len(seen) + again + sums.get(Point(1, 0), 0.5) + sum(k.x * s for k, s in sums.items())


def items(w: Any, x: float) -> Any:
    a = Item(1.0)
    b, y, sums = Item(1.0, a), w * x, {}
    seen = {a}
    while y < 3.0:
        y = y * 1.5 + 0.3
        c = a if y < 1.5 else b
        c.value = c.value + y
        seen.add(c)
        sums[c] = sums.get(c, 0.0) + y
    return y * len(seen) + sums.get(b, 0.5) + a.value + sum(k.value for k in sums)


@pytest.mark.parametrize("f", [points, items])
@pytest.mark.parametrize("backend", ["interpret", "llvm", pytest.param("xla", marks=pytest.mark.long)])
def test_objects_that_are_made(f: Any, backend: str) -> None:
    check(f, NUMBERS, backend, grads=backend == "xla")


def visits(w: Any, node: Any) -> Any:
    s, seen = w, {}
    while s < 5.0:
        s = s + 0.3 + w * node.value**2
        seen[node] = seen.get(node, 0) + 1
        if len(node.out) > 0:
            node = node.out[0] if s < 2.0 else node.out[-1]
    return s * len(seen) + seen[node]


@pytest.mark.parametrize(
    ("cls", "words"),
    [(Pair, "unhashable type: 'Pair'"), (Named, "objects of Named, .* are equal by what they hold")],
)
def test_objects_of_examples_that_are_equal_by_fields_are_refused(cls: Any, words: str) -> None:
    """They were taken for keys by identity, which is another answer."""
    node = cls(0.5, [cls(0.5, [])])
    with pytest.raises(ab.UnsupportedError, match=words):
        ab.batched(visits, in_axes=(None, 0), backend="llvm")(ONE, [node])


def test_objects_of_examples_by_identity() -> None:
    @dataclass(eq=False)
    class Node:
        value: float
        out: list[Any]

    below = Node(0.5, [])
    below.out.append(Node(0.5, [below]))
    check(visits, [Node(0.5, [below, Node(0.5, [])]), below], "llvm", grads=False)


def last_set(w: Any, xs: list[Any]) -> Any:
    for x in xs:
        last = {int(x), 1}
    return len(last) * w + max(xs)


def set_after_its_loop(w: Any, xs: list[Any]) -> Any:
    total = 0.0
    for x in xs:
        seen = set()
        seen.add(int(x))
        if x * w > 1.5:
            seen.add(7)
        total += len(seen) * x * w
    return total + len(seen)


@pytest.mark.parametrize("backend", ["interpret", "xla", "llvm"])
@pytest.mark.parametrize("program", [last_set, set_after_its_loop])
def test_sets_that_a_loop_alone_assigns(program: Callable[..., Any], backend: str) -> None:
    """Nothing is read of what they were before the first turn."""
    xs, w = [[1.25, -2.5, 3.5], [0.5], [2.25, 2.5]], jnp.float32(1.1)
    batched = ab.batched(program, in_axes=(None, 0), backend=backend)
    assert_same(ab.unbatch(batched(w, xs)), [program(w, x) for x in xs])
    slope = jax.grad(lambda w: batched(w, xs).sum())(w)
    assert_same(slope, jax.grad(lambda w: sum(program(w, x) for x in xs))(w))
