"""Expressions as trees of objects, one for each example, as genetic programming makes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sin
from typing import Any

import numpy as np

import autobatch as ab

NUMBER, VARIABLE, ADD, MULTIPLY, SINE = range(5)


@dataclass
class Expression:
    kind: int
    value: float = 0.0
    left: Expression | None = None
    right: Expression | None = None


@ab.batched
def evaluate(e: Any, x: float) -> Any:
    """The value of an expression in x."""
    if e.kind == NUMBER:
        return e.value
    if e.kind == VARIABLE:
        return x
    if e.kind == SINE:
        return sin(evaluate(e.left, x))
    if e.kind == ADD:
        return evaluate(e.left, x) + evaluate(e.right, x)
    return evaluate(e.left, x) * evaluate(e.right, x)


def expressions(count: int, deepest: int = 6, seed: int = 0) -> list[Expression]:
    """Random ones; a node above the last level is a leaf once in six times."""
    rng = np.random.default_rng(seed)

    def make(depth: int) -> Expression:
        if depth == deepest or (depth > 1 and rng.random() < 1 / 6):
            if rng.random() < 0.5:
                return Expression(VARIABLE)
            return Expression(NUMBER, float(np.float32(rng.uniform(-1.0, 1.0))))
        kind = int(rng.choice([ADD, MULTIPLY, SINE], p=[0.4, 0.4, 0.2]))
        if kind == SINE:
            return Expression(kind, left=make(depth + 1))
        return Expression(kind, left=make(depth + 1), right=make(depth + 1))

    return [make(0) for _ in range(count)]


def columns(of: Sequence[Expression]) -> list[np.ndarray]:
    """Kind, value, left and right child of all nodes, children before parents, and the root of each expression."""
    kind: list[int] = []
    value: list[float] = []
    left: list[int] = []
    right: list[int] = []

    def add(e: Expression | None) -> int:
        if e is None:
            return 0
        below = add(e.left), add(e.right)
        kind.append(e.kind)
        value.append(e.value)
        left.append(below[0])
        right.append(below[1])
        return len(kind) - 1

    roots = [add(e) for e in of]
    return [np.array(x, np.float32 if x is value else np.int32) for x in (kind, value, left, right, roots)]
