"""Objects that all examples share, walked by computed choices in loops: derivatives by what examples hold, and by
numbers that all share, by machine code."""

from dataclasses import dataclass

import numpy as np
import pytest

import autobatch as ab


@dataclass
class Split:
    feature: int
    at: float
    low: "Split | None"
    high: "Split | None"
    value: float


def leaf(value):
    return Split(0, 0.0, None, None, value)


FOREST = [
    Split(0, 0.5, leaf(1.0), Split(1, -0.5, leaf(2.0), leaf(3.0), 0.0), 0.0),
    Split(1, 0.0, leaf(-1.0), Split(0, 0.0, leaf(0.5), leaf(-2.0), 0.0), 0.0),
]


def votes(forest, x, scale):
    total = 0.0
    for tree in forest:
        node = tree
        while node.low is not None:
            node = node.low if x[node.feature] <= node.at else node.high
        total += node.value * x[0] * scale
    return total * total


def first_below(scale, forest, x):
    """Numbers before and behind the objects among the arguments."""
    for tree in forest:
        if tree.at * scale < x[0] + x[1]:
            return tree.at * x[0] * scale
    return x[1] * scale


def deepest(forest, x, scale):
    stack, best = [forest[0], forest[1]], 0.0
    while stack:
        node = stack.pop()
        if node.low is None:
            best = max(best, node.value * x[1] * scale)
            continue
        if x[node.feature] < node.at + 1.0:
            stack.append(node.low)
        if x[node.feature] > node.at - 1.0:
            stack.append(node.high)
    return best


def held(forest, x, scale):
    """None until something was found."""
    hit, near = None, 1e9
    for tree in forest:
        if abs(tree.at - x[0]) < near:
            hit, near = tree, abs(tree.at - x[0])
    return 0.0 if hit is None else near * scale * x[1]


X = np.random.default_rng(5).normal(size=(6, 2))
CASES = {
    "votes": (votes, (None, 0, None), (FOREST, X, 1.5), 1),
    "first below": (first_below, (None, None, 0), (1.5, FOREST, X), 2),
    "a stack": (deepest, (None, 0, None), (FOREST, X, 1.5), 1),
    "None until found": (held, (None, 0, None), (FOREST, X, 1.5), 1),
}


def quotient(f, args, by, h=1e-5):
    """The derivative of the sum of plain Python's results, in 64 bits."""
    args = [a.astype(float) if hasattr(a, "dtype") and a.dtype.kind == "f" else a for a in args]
    given = np.asarray(args[by], float)
    found = np.zeros(given.shape)
    for at in np.ndindex(*given.shape):
        ends = []
        for step in (h, -h):
            moved = given.copy()
            moved[at] += step
            ends.append(sum(f.loop(*(moved if k == by else a for k, a in enumerate(args)))))
        found[at] = (ends[0] - ends[1]) / (2 * h)
    return found


@pytest.mark.parametrize("name", list(CASES))
def test_derivatives_by_examples_and_by_shared_numbers(name):
    function, axes, args, by = CASES[name]
    scale = 0 if by == 2 else 2
    given = tuple(a.astype(np.float32) if a is X else a for a in args)
    f = ab.batched(function, in_axes=axes, backend="llvm")
    np.testing.assert_allclose(f(*given), f.loop(*given), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ab.grad(f, by)(*given), quotient(f, args, by), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(ab.grad(f, scale)(*given), quotient(f, args, scale), rtol=1e-3, atol=1e-3)
    both = ab.grad(f, (scale, by))(*given)
    np.testing.assert_allclose(both[1], quotient(f, args, by), rtol=1e-3, atol=1e-3)


def picked(places, a, scene, b, x):
    """Shared integers, floats and objects beside one another: each has its own number."""
    y = a[places[0]] * x
    while y < 1.0:
        y = y * 2.0 + b[places[1]] * 3.0
    for tree in scene:
        if tree.at > y:
            y = y + a[0]
    return y


@pytest.mark.parametrize("backend", ["llvm", "xla"])
def test_numbers_beside_integers_and_objects_are_told_apart(backend):
    places, a, b = np.array([1, 0], np.int32), np.float32([0.3, 0.7]), np.float32([0.2, 0.5])
    x = np.float32([0.5, 1.0, 2.0])

    def without(places, a, b, x):
        return picked(places, a, [], b, x)

    f = ab.batched(without, in_axes=(None, None, None, 0), backend=backend)
    of_a, of_b = quotient(f, (places, a, b, x), 1), quotient(f, (places, a, b, x), 2)
    assert not np.allclose(of_a, of_b)
    np.testing.assert_allclose(ab.grad(f, 1)(places, a, b, x), of_a, rtol=1e-2)
    np.testing.assert_allclose(ab.grad(f, 2)(places, a, b, x), of_b, rtol=1e-2)
    for found, wanted in zip(ab.grad(f, (2, 1, 3))(places, a, b, x), (of_b, of_a)):
        np.testing.assert_allclose(found, wanted, rtol=1e-2)
    if backend == "llvm":
        g = ab.batched(picked, in_axes=(None, None, None, None, 0), backend=backend)
        args = (places, a, FOREST, b, x)
        np.testing.assert_allclose(ab.grad(g, 3)(*args), quotient(g, args, 3), rtol=1e-2)
        np.testing.assert_allclose(ab.grad(g, 1)(*args), quotient(g, args, 1), rtol=1e-2)
