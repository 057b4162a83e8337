"""Classes of every kind that packs, strategies that draw batches of them, and the comparison of two examples."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st


class Color(enum.Enum):
    RED = "red"
    GREEN = "green"
    BLUE = "blue"


@dataclass
class Node:
    label: int
    word: int = -1
    left: Node | None = None
    right: Node | None = None
    parent: Node | None = None


@dataclass
class Leaf:
    value: float


@dataclass
class Add:
    left: Any
    right: Any


@dataclass
class Scale:
    by: float
    body: Any
    color: Color | None = None


@dataclass
class Tree:
    name: str
    kids: list[Tree] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Frozen:
    x: float
    next: Frozen | None = None


class Pair(NamedTuple):
    first: Any
    second: Any


class Plain:
    def __init__(self, **held: Any) -> None:
        raise AssertionError("unpacking calls no __init__")

    @classmethod
    def of(cls, **held: Any) -> Plain:
        made = cls.__new__(cls)
        made.__dict__.update(held)
        return made


class Slotted:
    __slots__ = ("a", "b")

    @classmethod
    def of(cls, **held: Any) -> Slotted:
        made = cls.__new__(cls)
        for name, value in held.items():
            setattr(made, name, value)
        return made


def same(a: Any, b: Any) -> bool:
    """Are two examples equal in values, classes and sharing? No recursion."""
    partner: dict[int, int] = {}
    back: dict[int, int] = {}
    stack = [(a, b)]
    while stack:
        x, y = stack.pop()
        if isinstance(x, (np.ndarray, np.generic)):
            if np.asarray(x).dtype != np.asarray(y).dtype or not np.array_equal(x, y, equal_nan=x.dtype.kind == "f"):
                return False
            continue
        if type(x) is not type(y):
            return False
        if type(x) is not tuple and not isinstance(x, (int, float, complex, str, type(None), enum.Enum)):
            if partner.setdefault(id(x), id(y)) != id(y) or back.setdefault(id(y), id(x)) != id(x):
                return False
            if stack_seen(partner, x):
                continue
        children = parts(x), parts(y)
        if children[0] is None:
            if x != y and not (x != x and y != y):
                return False
            continue
        if list(children[0]) != list(children[1]):
            return False
        stack.extend((children[0][k], children[1][k]) for k in children[0])
    return True


_EXPANDED = "expanded"


def stack_seen(partner: dict[Any, Any], x: Any) -> bool:
    """Was this object expanded before? Marks it."""
    key = (_EXPANDED, id(x))
    if key in partner:
        return True
    partner[key] = 1
    return False


def parts(x: Any) -> dict[Any, Any] | None:
    """What an object holds, by name; None for a leaf."""
    if isinstance(x, dict):
        return dict(sorted(x.items()))
    if isinstance(x, (list, tuple)):
        return dict(enumerate(x))
    if isinstance(x, (int, float, complex, str, type(None), enum.Enum)):
        return None
    names = [n for base in type(x).__mro__ for n in vars(base).get("__slots__", ()) if hasattr(x, n)]
    return {n: getattr(x, n) for n in sorted({*names, *getattr(x, "__dict__", {})})}


ints = st.integers(-(2**63), 2**63 - 1)
floats = st.floats(allow_nan=True)


@st.composite
def dags(draw: st.DrawFn, cycles: bool = True) -> Node:
    """Binary trees, DAGs, and graphs with parent pointers."""
    nodes = [Node(draw(ints), draw(ints)) for _ in range(draw(st.integers(1, 8)))]
    for i, node in enumerate(nodes):
        later = st.sampled_from([None, *(nodes if cycles and draw(st.booleans()) else nodes[i + 1 :])])
        node.left, node.right, node.parent = draw(later), draw(later), draw(later)
    return nodes[0]


expressions = st.recursive(
    st.builds(Leaf, floats),
    lambda inner: (
        st.builds(Add, inner, inner)
        | st.builds(Scale, floats, inner, st.none() | st.sampled_from(Color))
        | inner.map(lambda x: Add(x, x))
    ),
    max_leaves=8,
)
trees = st.recursive(
    st.builds(Tree, st.text(max_size=3)),
    lambda inner: st.builds(Tree, st.text(max_size=3), st.lists(inner, max_size=4)),
    max_leaves=10,
)
chains = st.lists(floats, min_size=1, max_size=6).map(lambda xs: _chain(xs))
tuples = st.recursive(
    st.tuples(st.just("lit"), floats),
    lambda inner: st.tuples(st.just("add"), inner, inner) | st.tuples(st.just("neg"), inner),
    max_leaves=6,
)
records = st.fixed_dictionaries(
    {"tokens": st.lists(ints, max_size=5), "tag": st.text(max_size=2), "pair": st.builds(Pair, floats, ints)}
)
nested = st.lists(st.lists(st.lists(floats, max_size=3), max_size=3), max_size=3)
optional = st.none() | floats
plain = st.builds(lambda x, y: Plain.of(x=x, y=y), optional, st.lists(st.none() | st.booleans(), max_size=3))
slotted = st.builds(lambda a: Slotted.of(a=a), ints) | st.builds(lambda a, b: Slotted.of(a=a, b=b), ints, floats)
vectors = st.builds(
    lambda n, x: Pair(np.full(n, x, np.float32), np.full((2, 2), 7, np.int32)), st.integers(0, 4), st.floats(width=32)
)
numbers = st.lists(floats, max_size=3)
sharing = st.builds(
    lambda x, y, z, same: {"a": x, "b": x if same[0] else y, "c": [z, x if same[1] else y, [*z]]},
    *[numbers] * 3,
    st.tuples(st.booleans(), st.booleans()),
)
"""One list in two places, in some of them."""
several = st.recursive(
    st.none() | st.booleans() | ints | floats | st.text(max_size=2) | st.sampled_from(Color),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.builds(Pair, inner, inner),
    max_leaves=8,
)
"""Values of several types in one place."""
kinds = [
    several,
    dags(),
    expressions,
    trees,
    chains,
    tuples,
    records,
    nested,
    optional,
    plain,
    slotted,
    vectors,
    sharing,
]
batches = st.one_of([st.lists(kind, min_size=1, max_size=5) for kind in kinds])


def _chain(xs: list[float]) -> Frozen:
    made = None
    for x in xs:
        made = Frozen(x, made)
    assert made is not None
    return made
