"""How often a program is lowered until what its memory holds is known, and the turns of its loops."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import autobatch as ab
from autobatch.frontend.lowering import carrying
from autobatch.frontend.types import unify

lowering = sys.modules["autobatch.frontend.lowering.lower"]


class Node:
    def __init__(self, key: float) -> None:
        self.key = key
        self.left: Node | None = None
        self.right: Node | None = None


def searched(keys: list[float]) -> float:
    """A search tree, made by a loop."""
    root = Node(keys[0])
    for key in keys[1:]:
        node = root
        while True:
            below = node.left if key < node.key else node.right
            if below is None:
                break
            node = below
        if key < node.key:
            node.left = Node(key)
        else:
            node.right = Node(key)
    depth, node = 0.0, root
    while node.left is not None:
        depth, node = depth + node.key, node.left
    return depth


def grouped(points: list[float]) -> float:
    """Lists in lists that loops change, five kinds of them."""
    sums, counts = [[0.0, 0.0] for _ in range(3)], [[0] for _ in range(3)]
    seen: list[list[float]] = [[] for _ in range(3)]
    for p in points:
        k = 0 if p < -0.5 else 1 if p < 0.5 else 2
        sums[k][0] += p
        sums[k][1] -= p
        counts[k][0] += 1
        seen[k].append(p)
    found = [[s[0] / c[0], s[1]] if c[0] > 0 else [0.0, 0.0] for s, c in zip(sums, counts)]
    return sum(f[0] * f[1] for f in found) + sum(max(s) for s in seen if s)


def eliminated(m: list[list[float]]) -> float:
    """The determinant, by elimination with pivots."""
    a, n, d = [list(row) for row in m], len(m), 1.0
    for i in range(n):
        p = i
        for r in range(i + 1, n):
            if abs(a[r][i]) > abs(a[p][i]):
                p = r
        if p != i:
            a[i], a[p] = a[p], a[i]
            d = -d
        d *= a[i][i]
        for r in range(i + 1, n):
            f = a[r][i] / a[i][i]
            for c in range(i, n):
                a[r][c] -= f * a[i][c]
    return d


RNG = np.random.default_rng(0)
PROGRAMS = {
    "a search tree": (searched, [RNG.normal(size=9).tolist() for _ in range(5)], 5),
    "lists in lists": (grouped, [RNG.normal(size=9).tolist() for _ in range(5)], 6),
    "elimination": (eliminated, [RNG.normal(size=(4, 4)).tolist() for _ in range(5)], 4),
}


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """Rounds, and turns of loops in all of them."""
    found = {"rounds": 0, "turns": 0}

    def counted(module: Any, name: str, key: str) -> None:
        function = getattr(module, name)

        def count(*args: Any) -> Any:
            found[key] += 1
            return function(*args)

        monkeypatch.setattr(module, name, count)

    counted(lowering, "_round", "rounds")
    counted(carrying, "_turned", "turns")
    yield found


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_round_finds_all_that_it_comes_to(name: str, counts: dict[str, int]) -> None:
    function, examples, most = PROGRAMS[name]
    f = ab.batched(function)
    np.testing.assert_allclose(f(examples), [function(x) for x in examples], rtol=1e-5)
    assert counts["rounds"] <= most


def test_loops_begin_with_the_types_that_they_had(counts: dict[str, int]) -> None:
    def nested(n: int, x: float) -> float:
        total = 0
        for i in range(n):
            inner = 0
            for j in range(i):
                least = 0
                for k in range(j):
                    least = least + k * x
                inner = inner + least
            total = total + inner
        return total

    f = ab.batched(nested, backend="llvm")
    xs = np.array([0.5, 1.5, 2.5], np.float32)
    ns = np.array([3, 5, 6])
    np.testing.assert_allclose(f(ns, xs), [nested(int(n), float(x)) for n, x in zip(ns, xs, strict=True)], rtol=1e-5)
    assert counts["turns"] <= 9  # 2 + 3 + 4 where 2 + 4 + 8 would be lowered


def test_what_holds_two_of_its_kind_has_memory_before_it_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Types that double with each turn are given up while they are small: 12 turns of them took 20 seconds."""
    sizes: list[int] = []
    wider = carrying._wider

    def count(*args: Any) -> Any:
        made = wider(*args)
        sizes.append(sum(unify._count(x) for x in made.values()))
        return made

    monkeypatch.setattr(carrying, "_wider", count)

    def shared(n: int) -> float:
        tree = Node(0.0)
        for k in range(n):
            above = Node(k + 1.0)
            above.left, above.right = tree, tree
            tree = above
        total = 0.0
        while tree.left is not None:
            total, tree = total + tree.key, tree.left
        return total

    assert ab.batched(shared)(np.array([0, 3, 5])).tolist() == [shared(n) for n in (0, 3, 5)]
    assert max(sizes) < 200
