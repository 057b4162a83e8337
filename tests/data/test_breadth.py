"""Every sort of value that programs hold: what is packed comes back; what cannot be packed says what to use instead."""

import array
import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import types
from typing import Any, NamedTuple

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given

import autobatch as ab


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Word(enum.StrEnum):
    YES = "yes"
    NO = "no"


class Access(enum.Flag):
    READ = 1
    WRITE = 2


class Point(NamedTuple):
    x: float
    y: float | None = None
    tag: Any = "p"


class Slots:
    __slots__ = ("__hidden", "shown", "unset")

    def __init__(self, shown: Any, hidden: Any) -> None:
        self.shown = shown
        self.__hidden = hidden

    @property
    def doubled(self) -> Any:
        return (self.shown, self.__hidden)


class Base:
    kind = "base"

    def __init__(self, a: Any) -> None:
        self.a = a


class Derived(Base):
    def __init__(self, a: Any, b: Any) -> None:
        super().__init__(a)
        self.b = b


@dataclasses.dataclass
class Bag:
    items: list = dataclasses.field(default_factory=list)
    named: dict = dataclasses.field(default_factory=dict)
    parent: "Bag | None" = None


@dataclasses.dataclass
class One:
    x: Any


def same(a: Any, b: Any) -> None:
    """Equal in class and value; arrays in the dtype that JAX gives them."""
    if isinstance(b, (np.ndarray, np.generic, jax.Array)):
        assert np.shape(a) == np.shape(b)
        assert np.asarray(a).dtype == jax.dtypes.canonicalize_dtype(b.dtype)
        assert np.array_equal(np.asarray(a, np.float64), np.asarray(b, np.float64))
    elif isinstance(b, (list, tuple)):
        assert type(a) is type(b)
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            same(x, y)
    elif isinstance(b, dict):
        assert list(a) == list(b)
        same(list(a.values()), list(b.values()))
    elif isinstance(b, (Slots, Base, Bag, One)):
        assert type(a) is type(b)
        for name in (*getattr(b, "__dict__", ()), *("shown", "doubled") * isinstance(b, Slots)):
            same(getattr(a, name), getattr(b, name))
        assert not hasattr(a, "unset")
    else:
        assert type(a) is type(b)
        assert a == b or a != a


@pytest.mark.parametrize(
    "examples",
    [
        [Point(1.0), Point(2.0, 3.0, "q"), Point(4.0, None, None)],
        [One(Level.LOW), One(Level.HIGH)],
        [One(Word.YES), One(None), One(Word.NO)],
        [One(Access.READ), One(Access.WRITE)],
        [Slots(1, 2.0), Slots(3, 4.0)],
        [Derived(1, 2.0), Base(3), Derived(4, 5.0)],
        [Bag(), Bag([1.0], {"a": 2}), Bag([], {"a": 3})],
        [1 + 2j, 3j],
        [True, False, None],
        [2**63 - 1, -(2**63)],
        [float("nan"), float("inf"), -0.0],
        [np.float32(1), np.float32(2)],
        [np.int8(-3), np.int8(4)],
        [np.ones((0, 3), np.float32)],
        [np.ones((0, 3), np.float32), np.ones((2, 3), np.float32)],
        [jnp.arange(3), jnp.arange(3)],
        [jnp.ones(3, jnp.bfloat16), jnp.ones(2, jnp.bfloat16)],
        [np.ones(3, ml_dtypes.bfloat16)],
        [np.ones(3, np.float16), np.zeros(3, np.float16)],
        [np.arange(3, dtype=">i4")],
        [[[1], [2, 3]], [], [[]]],
        [(1, 2.0), (3, 4.0)],
        ["", "a", "ä\ud800"],
        [None, None],
        [fractions.Fraction(1, 3)],
    ],
)
def test_what_is_packed_comes_back(examples: list[Any], tmp_path: Any) -> None:
    batch = ab.pack(examples)
    same(list(batch), examples)
    same(list(batch[::-1]), examples[::-1])
    if not any("<locals>" in type(x).__qualname__ for x in examples):
        batch.save(tmp_path / "batch")
        same(list(ab.load(tmp_path / "batch")), examples)


def test_scalars_of_arrays_come_back_as_numbers_of_their_dtype() -> None:
    same(list(ab.pack([np.array(1.0), np.array(2.0)])), [np.float32(1), np.float32(2)])
    same(list(ab.pack([1, 2.5])), [1.0, 2.5])
    same(list(ab.pack([np.float32(1.5), 2])), [np.float32(1.5), np.float32(2)])


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (b"ab", "numpy.frombuffer"),
        (bytearray(b"ab"), "numpy.frombuffer"),
        (range(3), r"use `list\(x\)`"),
        (collections.deque([1]), r"use `list\(x\)`"),
        (array.array("d", [1.0]), r"use `list\(x\)`"),
        (collections.Counter("ab"), r"`dict\(x\)`"),
        (collections.defaultdict(list, {1: []}), r"use dict\(x\)"),
        (2**63, "does not fit into 64 bits"),
        (Access.READ | Access.WRITE, r"use its `\.value`"),
        (datetime.datetime(2020, 1, 1), "use a number"),
        (datetime.timedelta(1), "use a number"),
        (decimal.Decimal("1.5"), "hides its fields"),
        (types.SimpleNamespace(a=1), "hides its fields"),
        (np.array(["2020-01-01"], "M8[D]"), r"dtype datetime64\[D\] has no numbers"),
        (np.array([1, None], object), "dtype object has no numbers"),
        (np.array(["a"]), "has no numbers"),
        (np.zeros(2, [("a", "i4")]), "has no numbers"),
        (np.ma.array([1, 2], mask=[0, 1]), "its mask would be lost"),
        (np.matrix([[1, 2]]), r"numpy\.asarray"),
        (np.int64(2**40), "do not fit into int32"),
        ((i for i in range(3)), "read only once; use a list"),
        (lambda: 1, "code is not data"),
        (np, "code is not data"),
        (..., "use a list, a dataclass"),
    ],
)
def test_what_cannot_be_packed_says_what_to_use(value: Any, words: str) -> None:
    with pytest.raises(ab.BatchError, match=rf"examples\[1\]\.x.*{words}"):
        ab.pack([One(None), One(value)])


def test_dicts_with_other_keys_pack() -> None:
    examples = [{"a": 1}, {"b": 2.0, "a": 3}, {}]
    same(list(ab.pack(examples)), examples)


def test_parent_pointers_cycles_and_shared_lists() -> None:
    root = Bag([1.0])
    root.named = {"child": Bag([2.0], parent=root)}
    root.parent = root
    shared = [1, 2]
    both = Bag(shared, {"again": shared})
    first, second = ab.pack([root, both])
    assert first.parent is first
    assert first.named["child"].parent is first
    assert second.items is second.named["again"]


@pytest.mark.parametrize("deep", [True, False])
def test_deep_and_wide(deep: bool) -> None:
    bag = Bag([1.0])
    if deep:
        for k in range(100_000):
            bag = Bag([float(k)], parent=bag)
        total = ab.batched(lambda b: len(b.items) + b.items[0])
        assert total([bag])[0] == 100_000.0
        count, at = 0, ab.pack([bag])[0]
        while at is not None:
            count, at = count + 1, at.parent
        assert count == 100_001
    else:
        wide = [[Bag([float(k)]) for k in range(20_000)]]
        total = ab.batched(lambda bags: sum(b.items[0] for b in bags))
        assert total(wide)[0] == pytest.approx(sum(range(20_000)), rel=1e-4)


@st.composite
def shaped(draw: Any) -> Any:
    """Examples of one form, whose leaves are of one sort each."""
    sorts = [
        draw(st.sampled_from([st.booleans(), st.integers(-9, 9), st.floats(width=32), st.text(max_size=3)]))
        for _ in "ab"
    ]
    number, other = (st.one_of(st.none(), s) for s in sorts)
    forms = [
        st.builds(Point, number, other, st.none()),
        st.builds(Slots, number, other),
        st.builds(Derived, number, other),
        st.builds(Bag, st.lists(sorts[0], max_size=3), st.fixed_dictionaries({"k": other})),
        st.tuples(number, st.lists(sorts[1], max_size=2)),
    ]
    return draw(st.lists(draw(st.sampled_from(forms)), min_size=1, max_size=4))


@given(shaped())
def test_examples_of_any_form_come_back(examples: list[Any]) -> None:
    same(list(ab.pack(examples)), examples)
