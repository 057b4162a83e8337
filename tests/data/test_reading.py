"""Examples that machine code has read are those that Python has walked, column for column, and errors are the same."""

from __future__ import annotations

import collections
import enum
import gc
import sys
import threading
import weakref
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import autobatch as ab
from autobatch.backends.llvm.reading import reading_machine
from autobatch.data.columns import Columns, Schema, columns_of
from autobatch.data.pack import pack
from autobatch.data.reading import ObjectReader, read_like
from autobatch.data.walk import learned
from autobatch.errors import BatchError
from autobatch.ir.core import Tag


class Color(enum.Enum):
    RED = 1
    BLUE = 2


@dataclass
class Node:
    x: float
    left: Any = None
    right: Any = None


@dataclass
class Leaf:
    words: list[Any]


@dataclass(slots=True)
class Slotted:
    a: Any
    b: int = 3


@dataclass
class Empty:
    pass


class Pair(NamedTuple):
    first: Any
    second: Any


class Plain:
    def __init__(self, value: Any, more: bool) -> None:
        self.value = value
        if more:
            self.also = value


@pytest.fixture
def machine() -> ObjectReader:
    found = reading_machine()
    if found is None:
        pytest.skip("no machine code")
    return found


LEAVES = st.sampled_from(
    [
        None,
        True,
        False,
        1,
        -2,
        2**40,
        0.5,
        float("nan"),
        -0.0,
        1j,
        "a",
        "bc",
        Color.RED,
        np.float32(1.0),
        np.arange(2.0),
    ]
)


KEYS = st.one_of(st.integers(0, 5), st.sampled_from(["a", "b", Color.RED, True, 1.5]), st.tuples(st.integers(0, 2)))


def deeper(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.builds(Node, st.just(0.5), inner, inner),
        st.builds(Leaf, st.lists(inner, max_size=2)),
        st.builds(Slotted, inner),
        st.builds(Pair, inner, inner),
        st.builds(Plain, inner, st.booleans()),
        st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=3),
        st.dictionaries(KEYS, inner, max_size=3),
        st.sets(KEYS, max_size=3),
        st.frozensets(KEYS, max_size=3),
        inner.map(lambda x: [x, x]),
        inner.map(lambda x: Node(1.0, x, Node(2.0, x))),
    )


VALUES = st.recursive(LEAVES, deeper, max_leaves=12)


def described(found: Columns) -> Any:
    """What columns hold; words in the place of their tags, whose order says nothing."""
    arrays = {n: (a.dtype, a.shape, a.tobytes()) for n, a in sorted(found.arrays.items())}
    absent = {
        f.column: ~np.isin(found.arrays[f"{s.name}.#tag"], f.classes) for s in found.schema.stores for f in s.fields
    }
    for c in columns_of(found.schema):
        if isinstance(c.type, Tag) and (words := found.vocabularies.get(c.type.vocabulary)):
            nowhere = np.zeros(len(found.arrays[c.name]), np.bool_)
            missing = (found.arrays.get(f"{c.name}?", nowhere) | absent.get(c.name, nowhere)).tolist()
            arrays[c.name] = [
                None if m else words[k] for k, m in zip(found.arrays[c.name].tolist(), missing, strict=True)
            ]
    words = {k: sorted(map(str, v)) for k, v in sorted(found.vocabularies.items())}
    return found.schema, arrays, {n: a.tolist() for n, a in sorted(found.starts.items())}, words


def by_machine(examples: list[Any], machine: ObjectReader) -> Any:
    """The columns as the machine reads them; None where it declines."""
    try:
        schema = pack(examples).schema
    except BatchError:
        schema = pack([1.0]).schema
    found = read_like(examples, schema, machine, learned, inferred=False)
    if isinstance(found, Columns):
        assert described(found) == described(pack(examples))
        return found
    return None


def tried(
    examples: list[Any], reader: ObjectReader | None, like: Schema | None = None, keys_are_data: bool = False
) -> Any:
    try:
        return described(pack(examples, like, reader, keys_are_data))
    except BatchError as error:
        return type(error), str(error)


@settings(max_examples=200, deadline=None)
@given(st.lists(VALUES, min_size=1, max_size=4), st.booleans())
def test_the_same_columns_or_the_same_error(examples: list[Any], keys_are_data: bool) -> None:
    wanted = tried(examples, None, None, keys_are_data)
    assert repr(tried(examples, reading_machine(), None, keys_are_data)) == repr(wanted)


TREES = st.recursive(st.builds(Node, st.floats(-1, 1)), lambda t: st.builds(Node, st.floats(-1, 1), t, t), max_leaves=9)
ITEMS = st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats() | st.text(max_size=2)
DATA = [
    st.lists(ITEMS, max_size=4),
    st.lists(st.floats()),
    st.lists(st.integers(-(2**63), 2**63 - 1)),
    st.lists(st.tuples(st.integers(0, 9), st.lists(st.floats(-1, 1)))),
    st.lists(st.lists(st.lists(st.booleans()))),
    st.lists(st.sampled_from(["a", "b", "c"])),
    st.fixed_dictionaries({"b": st.integers(0, 3), "a": st.lists(st.floats(-1, 1))}),
    TREES,
    st.builds(Pair, TREES, st.lists(TREES, max_size=2)),
    st.builds(Slotted, st.lists(st.none() | st.floats(-1, 1))),
    st.lists(st.none() | st.builds(Slotted, st.just(1.0))),
    st.lists(st.builds(lambda n: np.ones(n), st.integers(0, 3))),
    st.lists(st.builds(Plain, st.floats(-1, 1), st.booleans())),
    st.recursive(st.builds(Plain, st.just(None), st.just(False)), lambda x: st.builds(Plain, x, st.booleans())),
    st.just(Empty()),
    st.tuples(st.builds(lambda n: np.ones(n, np.float32), st.just(2)), st.integers(0, 2)),
    st.builds(lambda n: {"x": np.ones(n), "y": [n]}, st.integers(0, 3)),
    st.dictionaries(st.integers(0, 9), st.floats(-1, 1)),
    st.dictionaries(st.tuples(st.integers(0, 2), st.integers(0, 2)), st.lists(st.integers(0, 3), max_size=2)),
    st.dictionaries(st.integers(0, 3), st.dictionaries(st.integers(0, 3), st.floats(-1, 1), max_size=2), max_size=3),
    st.builds(Pair, st.sets(st.sampled_from(["a", "b", "c"])), st.dictionaries(st.integers(0, 3), st.text(max_size=2))),
    st.recursive(st.floats(-1, 1) | st.text(max_size=2), lambda x: st.lists(x, max_size=3), max_leaves=8),
    st.recursive(st.integers(0, 3) | st.floats(-1, 1), lambda x: st.builds(Node, st.just(0.5), x, x), max_leaves=8),
    st.lists(st.tuples(st.sampled_from(["push", "load"]), st.floats(-1, 1) | st.sampled_from(["x", "y"]))),
    st.lists(st.none() | st.integers(0, 3) | st.sampled_from(Color)),
]


@settings(max_examples=200, deadline=None)
@given(st.one_of(*[st.lists(each, min_size=1, max_size=6) for each in DATA]))
def test_what_the_machine_reads(examples: list[Any]) -> None:
    """Data as they mostly are: the machine declines none of them."""
    machine = reading_machine()
    if machine is not None and type(tried(examples, None)[0]) is not type:
        assert by_machine(examples, machine) is not None
    assert repr(tried(examples, machine)) == repr(tried(examples, None))


@settings(max_examples=200, deadline=None)
@given(st.one_of(*[st.tuples(*[st.lists(each, min_size=1, max_size=6)] * 2) for each in (*DATA, VALUES)]))
def test_under_the_schema_of_others(examples: tuple[list[Any], list[Any]]) -> None:
    """Data of the types that were seen before, and of others."""
    before, after = examples
    try:
        like = pack(before).schema
    except BatchError:
        return
    assert repr(tried(after, reading_machine(), like)) == repr(tried(after, None, like))


def looped() -> list[Any]:
    circle: list[Any] = []
    circle.append(circle)
    pair = ([],)
    pair[0].append(pair)
    knot = Node(1.0)
    knot.left = Node(2.0, knot, knot)
    return [[circle], [pair], [knot, knot]]


def test_shared_objects_and_circles(machine: ObjectReader) -> None:
    shared, tree = [1.0, 2.0], Node(1.0, Node(2.0))
    for examples in ([[shared, shared], [shared]], [[tree, tree.left]], [Node(1.0, tree, tree), tree], *looped()):
        assert repr(tried(examples, machine)) == repr(tried(examples, None))


def chain(length: int) -> Node:
    found = Node(0.0)
    for k in range(length):
        found = Node(float(k), found)
    return found


def test_depth_and_size(machine: ObjectReader) -> None:
    """Memory grows as it is needed, and no stack of the machine does."""
    for examples in ([chain(100_000)], [[float(k) for k in range(200_000)]], [[[1]] * 50_000], [Node(1.0)] * 40_000):
        assert described(pack(examples, None, machine)) == described(pack(examples))


@dataclass
class Property:
    x: float


Property.x = property(lambda self: 1.0, lambda self, x: None)  # type: ignore[assignment, misc]


class Slots:
    __slots__ = ("x",)

    def __init__(self) -> None:
        self.x = 1.0


@dataclass
class Computed:
    x: float

    def __getattr__(self, name: str) -> float:
        return 1.0


@dataclass
class Watched:
    x: float

    def __getattribute__(self, name: str) -> Any:
        return object.__getattribute__(self, name)


@dataclass
class Unset:
    x: float
    y: float = field(init=False)


def test_what_is_left_to_python(machine: ObjectReader) -> None:
    """Attributes that code of the user gives or that are not there, integers of more than 64 bits, subclasses."""
    ordered = collections.OrderedDict(a=1, b=2)
    nested: Any = ()
    for _ in range(40):
        nested = (nested, nested)
    for x in (
        Property(1.0),
        Slots(),
        Computed(1.0),
        Watched(1.0),
        Unset(1.0),
        2**63,
        [1, 2**64],
        collections.defaultdict(None, {1: 2}),
        ordered,
        Node,
    ):
        assert by_machine([x], machine) is None
        assert repr(tried([x], machine)) == repr(tried([x], None))
    assert by_machine([nested], machine) is None


def test_forms_without_end(machine: ObjectReader) -> None:
    """Where each object has a form of its own, Python walks."""
    given = [[(1, 2.0, "a", None, True)[k] for k in np.random.default_rng(n).integers(5, size=4)] for n in range(400)]
    examples = [[tuple(x)] for x in given]
    assert by_machine(examples, machine) is None
    assert repr(tried(examples, machine)) == repr(tried(examples, None))


def test_dicts_have_their_order(machine: ObjectReader) -> None:
    keys = ["first", "second"]
    given = [
        {k: 1.0 for k in keys},
        {"".join(k): 2.0 for k in map(list, reversed(keys))},
        collections.defaultdict(int, first=0.0, second=1.0),
    ]
    assert described(pack(given, None, machine)) == described(pack(given))
    assert by_machine(given, machine) is not None


def test_nothing_is_kept_or_lost(machine: ObjectReader) -> None:
    """Who reads what the examples hold owns it no longer than they do."""
    texts, arrays = [f"text {k}" for k in range(50)], [np.full(2, float(k)) for k in range(50)]
    tree = Node(1.0)
    pack([[t] for t in texts], None, machine)
    before = [sys.getrefcount(x) for x in (*texts, *arrays, tree, Node)]
    for _ in range(5):
        pack([[t] for t in texts], None, machine)
        pack([[a] for a in arrays], None, machine)
        pack([tree], None, machine)
        tried([[texts[0], 1.0], [arrays[0]]], machine)
    gc.collect()
    after = [sys.getrefcount(x) for x in (*texts, *arrays, tree, Node)]
    assert [b - a for a, b in zip(before, after, strict=True)][:-1] == [0] * (len(before) - 1)
    held = weakref.ref(tree)
    del tree
    assert held() is None


def test_classes_of_one_place_one_after_another(machine: ObjectReader) -> None:
    """A class that is gone is not taken for the one that lies where it lay."""

    def made(k: int) -> Any:
        @dataclass
        class Local:
            a: float
            b: int

        @dataclass
        class Other:
            b: int
            c: list[float]

        return Local(1.0, k) if k % 2 else Other(k, [1.0] * k)

    for k in range(1200):
        x = made(k)
        found = pack([x], None, machine)
        assert found.arrays[f"{type(x).__name__}.b"].tolist() == [k]


def test_threads(machine: ObjectReader) -> None:
    rng = np.random.default_rng(0)
    data = [
        [[rng.normal(size=n).tolist() for n in rng.integers(0, 9, 50)], [chain(int(n)) for n in rng.integers(0, 9, 50)]]
        for _ in range(8)
    ]
    wanted = [[described(pack(x)) for x in pair] for pair in data]
    wrong: list[int] = []

    def work(k: int) -> None:
        for _ in range(20):
            if [described(pack(x, None, machine)) for x in data[k]] != wanted[k]:
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(len(data))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_a_walk_within_a_walk(machine: ObjectReader) -> None:
    """As a finalizer may begin one, which a collection in between runs."""
    data, other = [[1.0, 2.0], [3.0]], [[9.0] * 5, [8.0], [7.0, 6.0]]
    wanted = described(pack(data)), described(pack(other))
    found = []

    def read(state: int) -> int:
        status = machine.read(state)
        found.append(described(pack(other, None, machine)))
        return status

    for _ in range(3):
        assert described(pack(data, None, ObjectReader(read, machine.fill))) == wanted[0]
    assert found == [wanted[1]] * 3


def test_without_machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autobatch.call.batch.reading_machine", lambda: None)
    assert ab.batched(lambda xs: sum(xs))([[1.0, 2.0], [3.0]]).tolist() == [3.0, 3.0]
