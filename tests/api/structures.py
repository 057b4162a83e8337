"""Classes, examples and comparison for the tests of results that are structure."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import numpy as np

import autobatch as ab


@dataclass
class Tree:
    x: float
    left: Tree | None = None
    right: Tree | None = None
    name: str = "n"
    kids: list[Tree] = field(default_factory=list)


@dataclass
class Found:
    node: Any
    value: float
    name: str = ""


@dataclass
class Leaf:
    value: float


@dataclass
class Add:
    a: Any
    b: Any


class Pair(NamedTuple):
    a: Any
    b: Any


class Color(enum.Enum):
    RED = 0
    BLUE = 1


def trees() -> list[Tree]:
    return [
        Tree(1.0, name="a"),
        Tree(2.0, Tree(3.0, name="c"), Tree(4.0, name="d"), name="b"),
        Tree(5.0, Tree(6.0, Tree(7.0), Tree(8.0)), Tree(9.0), kids=[Tree(1.5), Tree(2.5, name="z")]),
    ]


def words() -> list[list[int]]:
    return [[3, 1], [2], [], [4, 5, 6]]


def same(found: Any, expected: Any) -> None:
    """Equal in class and structure; numbers nearly."""
    if isinstance(expected, (bool, int, float, np.ndarray, np.generic, jax.Array)):
        assert isinstance(found, (bool, int, float, np.ndarray, np.generic, jax.Array)), (found, expected)
        assert np.shape(found) == np.shape(expected), (found, expected)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
        return
    if isinstance(expected, enum.Enum) or expected is None or isinstance(expected, str):
        assert found == expected, (found, expected)
        return
    assert type(found) is type(expected), (found, expected)
    if isinstance(expected, dict):
        assert list(found) == list(expected)
    elif not isinstance(expected, (list, tuple)):
        found, expected = vars(found), vars(expected)
        assert found.keys() == expected.keys()
    keys = list(expected) if isinstance(expected, dict) else range(len(expected))
    assert len(found) == len(keys), (found, expected)
    for k in keys:
        same(found[k], expected[k])


def agrees(function: Any, examples: list[Any], *shared: Any) -> Any:
    """The batched function gives what plain Python gives: at once, from a packed batch under `jax.jit`, from
    a minibatch, and by the reference back end. Returns the result."""
    f = function if isinstance(function, ab.Batched) else ab.batched(function)
    expected = f.loop(*shared, examples)
    result = f(*shared, examples)
    same(ab.unbatch(result), expected)
    same(ab.unbatch(f(*shared, examples[:1])), expected[:1])
    data = ab.pack(examples).plan(f)
    f(*shared, data)
    same(ab.unbatch(jax.jit(f)(*shared, data)), expected)
    chosen = [len(examples) - 1, 0, len(examples) - 1]
    same(ab.unbatch(f(*shared, data[chosen])), [expected[k] for k in chosen])
    slow = ab.batched(f.__wrapped__, in_axes=f.settings.in_axes, backend="interpret")
    same(ab.unbatch(slow(*shared, examples)), expected)
    return result
