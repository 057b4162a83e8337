"""Examples that several topics of the front end run on."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

import jax.numpy as jnp


@dataclass
class Doc:
    words: list[int]
    fs: list[float]


@dataclass
class Tree:
    x: int
    left: Tree | None = None
    right: Tree | None = None


@dataclass
class Many:
    x: int
    kids: list[Many] = field(default_factory=list)


class Kind(enum.Enum):
    A = 1
    B = 2
    C = 3


@dataclass
class Item:
    kind: Kind
    name: str
    xs: list[int]
    tag: str | None = None
    pt: tuple[int, int] = (0, 0)
    opt: dict = field(default_factory=dict)


DOCS = [
    Doc([3, 1, 2], [0.5, 0.25, -1.0]),
    Doc([], []),
    Doc([5], [2.0]),
    Doc([1, 1, 4, 2, 9], [1.0, 2.0, 3.0, 4.0, 5.0]),
]
LISTS = [[3, 1, 2], [], [5], [1, 1, 4, 2, 9]]
TREES = [Tree(1), Tree(2, Tree(3), Tree(4)), Tree(5, None, Tree(9))]
MANY = [Many(1), Many(2, [Many(3), Many(4), Many(5)]), Many(3, [Many(1, [Many(2), Many(7)]), Many(0)])]
ITEMS = [
    Item(Kind.A, "start", [1, 2], None, (0, 0), {"a": 1, "b": 2.0}),
    Item(Kind.B, "stop", [], "q", (0, 3), {"a": 2, "b": 3.0}),
    Item(Kind.C, "a", [4], "w", (2, 0), {"a": 0, "b": 1.0}),
    Item(Kind.A, "Other word", [5, 6, 7], None, (1, 1), {"a": 5, "b": 0.0}),
]
S = jnp.float32(0.7)
