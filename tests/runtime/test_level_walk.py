"""The walk level by level finds what the walk object by object does, or leaves it to that."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, NamedTuple

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from autobatch.errors import BatchError
from autobatch.runtime import level_walk
from autobatch.runtime.pack import _Packer
from autobatch.runtime.walk import Walk, Walker, walk


class Color(enum.Enum):
    RED = 1
    BLUE = 2


@dataclass
class Node:
    x: float
    left: Any
    right: Any


@dataclass
class Leaf:
    words: list[Any]


class Pair(NamedTuple):
    first: Any
    second: Any


class Plain:
    def __init__(self, value: Any, more: bool) -> None:
        self.value = value
        if more:
            self.also = value


LEAVES = st.sampled_from([None, True, 1, -2, 0.5, 2.5, "a", "bc", Color.RED, np.float32(1.0), np.arange(2.0)])


def deeper(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.builds(Node, st.just(0.5), inner, inner),
        st.builds(Leaf, st.lists(inner, max_size=2)),
        st.builds(Pair, inner, inner),
        st.builds(Plain, inner, st.booleans()),
        st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2),
    )


VALUES = st.recursive(LEAVES, deeper, max_leaves=12)


def described(found: Walk) -> list[Any]:
    """A walk without the order of its tables."""
    lines: list[Any] = [found.starts.tolist()]
    for v in found.visits.tolist():
        t = None if v < 0 else found.tables[v]
        lines.append(None if t is None else (t.kind, t.cls, t.names, t.signature, t.orders))
    for t in sorted(
        found.tables, key=lambda t: found.visits.tolist().index(t.index) if t.index in found.visits else -1
    ):
        lines.append(t.lengths)
        for chunks in t.chunks:
            lines.append([id(v) if not isinstance(v, tuple) else v for c in chunks for v in c.values])
            parts = [np.full(len(c.values), -1) if c.targets is None else c.targets for c in chunks]
            lines.append(np.concatenate([np.zeros(0, np.int64), *parts]).tolist())
    roots = found.roots.targets
    lines.append(None if roots is None else roots.tolist())
    return lines


@settings(max_examples=150, deadline=None)
@given(st.lists(VALUES, min_size=1, max_size=4))
def test_the_same_walk(examples):
    found = Walker(examples).by_levels()
    if found is None:  # something is there twice, or cannot be packed
        return
    assert repr(described(found)) == repr(described(Walker(examples).whole()))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.tuples(st.integers(0, 9), st.lists(st.floats(-1, 1))), max_size=4), min_size=1, max_size=5))
def test_the_same_columns(examples):
    levels = Walker(examples).by_levels()
    assert levels is not None
    ours, theirs = _Packer(levels, None).columns(), _Packer(Walker(examples).whole(), None).columns()
    assert ours.schema == theirs.schema and ours.arrays.keys() == theirs.arrays.keys()
    for name in ours.arrays:
        np.testing.assert_array_equal(ours.arrays[name], theirs.arrays[name])
    assert {n: a.tolist() for n, a in ours.starts.items()} == {n: a.tolist() for n, a in theirs.starts.items()}


def test_what_is_shared_or_deep_is_walked_object_by_object():
    shared, circle, deep = [1.0], [], None
    circle.append(circle)
    for _ in range(level_walk.LEVELS + 2):
        deep = Node(1.0, deep, None)
    for examples in ([[shared, shared]], [[shared], [shared]], [circle], [deep], [{1, 2}], [Node]):
        assert Walker(examples).by_levels() is None
    assert len(walk([[shared, shared]]).visits) == 3
    with pytest.raises(BatchError, match="sorted list"):
        walk([[{1, 2}]])


def test_a_tuple_is_written_out_for_each_appearance():
    pair = (1, [2.0][0])
    found = Walker([[pair, pair], [pair]]).by_levels()
    assert found is not None and len(found.visits) == 2 + 2 + 3
