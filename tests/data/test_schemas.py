"""merge, conform, pack like, annotations: schemas only grow."""

from __future__ import annotations

import typing
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Optional

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autobatch.data.infer import merge, schema_of_annotation
from autobatch.data.pack import pack
from autobatch.data.together import conform
from autobatch.data.unpack import unpack
from autobatch.errors import BatchError
from autobatch.ir.core import Ref
from tests.data.objects import Add, Color, Leaf, Node, Plain, Scale, kinds, same, several
from tests.data.test_pack import rows_are_contiguous

two_batches = st.one_of([st.tuples(*[st.lists(kind, min_size=1, max_size=3)] * 2) for kind in kinds])
of_one_sort = st.one_of([
    st.tuples(*[st.lists(kind, min_size=1, max_size=3)] * 2) for kind in kinds if kind is not several
])  # fmt: skip
"""Without values of several sorts in one place: which of them meet there, one batch does not show."""


@given(of_one_sort)
def test_merge_is_the_schema_of_both(batches: tuple[list[Any], list[Any]]) -> None:
    a, b = (pack(x).schema for x in batches)
    both = merge(a, b)
    assert merge(b, a) == both
    assert merge(a, a) == a and merge(both, a) == both and merge(both, b) == both
    assert pack(batches[0], like=b).schema == both
    assert pack(batches[0] + batches[1]).schema == both


@given(two_batches)
def test_conform_keeps_the_examples(batches: tuple[list[Any], list[Any]]) -> None:
    columns = pack(batches[0])
    wider = merge(columns.schema, pack(batches[1]).schema)
    moved = conform(columns, wider)
    assert moved.schema == wider and rows_are_contiguous(moved)
    assert all(map(same, unpack(moved), unpack(pack(batches[0], like=wider))))
    assert moved.arrays.keys() == pack(batches[0], like=wider).arrays.keys()
    some = [0, len(batches[0]) - 1]
    assert all(map(same, unpack(moved.take(some)), unpack(columns.take(some))))


@pytest.mark.parametrize(
    ("narrow", "other"),
    [
        ([Leaf(1.0)], [Add(Leaf(2.0), Leaf(3.0))]),
        ([1, 2], [2.5]),
        ([1, 2], [None]),
        ([None], ["a"]),
        ([[], []], [[1]]),
        ([[[1], []], []], [[[None], None]]),
        ([np.ones(3), np.zeros(3)], [np.ones(4)]),
        ([np.ones((2, 2)), None], [np.ones((4, 2))]),
        ([[np.ones(3)], []], [[np.ones(4), np.ones(1)]]),
        ([Leaf(np.ones(3)), Leaf(np.zeros(1))], [Leaf(np.ones(2)), Leaf(None)]),
        ([("lit", 1.0)], [("neg", ("lit", 2.0))]),
        ([("x", None)], [("x", 1)]),
        ([{"a": None, "b": [None]}], [{"a": Leaf(1.0), "b": ["x"]}]),
        ([Plain.of(x=1)], [Plain.of(x=2, y=3)]),
        ([Leaf(1), Leaf(2)], [Leaf(2.5)]),
    ],
)
def test_conform_to_a_wider_schema(narrow: list[Any], other: list[Any]) -> None:
    columns = pack(narrow)
    wider = merge(columns.schema, pack(other).schema)
    assert wider != columns.schema
    moved, packed = conform(columns, wider), pack(narrow, like=wider)
    assert packed.schema == wider
    for name, array in packed.arrays.items():
        assert np.array_equal(array, moved.arrays[name]), name
    for name, starts in packed.starts.items():
        assert np.array_equal(starts, moved.starts[name]), name
    assert all(map(same, unpack(packed), unpack(moved)))


def test_conform_unites_stores() -> None:
    examples = [Add(Leaf(1.0), Scale(2.0, Leaf(3.0))), Add(Leaf(4.0), Scale(5.0, Leaf(6.0)))]
    columns = pack(examples)
    assert [s.name for s in columns.schema.stores] == ["Add", "Leaf", "Scale"]
    wider = merge(columns.schema, pack([Add(Scale(1.0, Scale(0.0, Add(None, None))), None)]).schema)
    assert [s.name for s in wider.stores] == ["Add|Leaf|Scale"]
    moved = conform(columns, wider)
    assert rows_are_contiguous(moved) and all(map(same, examples, unpack(moved)))
    assert all(map(same, examples[1:], unpack(moved.take([1]))))


def test_conform_refuses_a_narrower_schema() -> None:
    with pytest.raises(BatchError, match="does not hold these columns"):
        conform(pack([Add(Leaf(1.0), None)]), pack([Leaf(1.0)]).schema)


def test_an_all_leaf_batch_keeps_the_inner_class() -> None:
    trees = pack([Add(Leaf(1.0), Add(Leaf(2.0), Leaf(3.0)))])
    leaves = pack([Leaf(4.0)], like=merge(trees.schema, pack([Leaf(0.0)]).schema))
    assert leaves.schema.root == Ref("Add|Leaf")
    assert leaves.arrays["Add|Leaf.#tag"].tolist() == [1]
    assert pack([Leaf(5.0)], like=leaves.schema).schema == leaves.schema


def test_types_that_do_not_join() -> None:
    wide, narrow = pack([Leaf(np.float32(1))]).schema, pack([Leaf(np.int32(1))]).schema
    with pytest.raises(BatchError, match="int32.* and float32|float32.* and int32"):
        merge(wide, narrow)
    with pytest.raises(BatchError, match=r"examples\[0\]\.value: Leaf\.value .*`like`.* float32"):
        pack([Leaf(np.int32(1))], like=wide)


def test_values_of_several_sorts() -> None:
    both = pack([Leaf("a"), Leaf(2)]).schema
    assert [c.kind for s in both.stores for c in s.classes] == ["object", "value", "value"]
    assert both == merge(both, pack([Leaf(1)]).schema) == merge(pack([Leaf("a")]).schema, both) == merge(both, both)
    assert unpack(pack([Leaf("b")], like=both)) == [Leaf("b")]
    assert unpack(conform(pack([Leaf(3), Leaf(4)]), both)) == [Leaf(3), Leaf(4)]
    with pytest.raises(BatchError, match="int and str"):  # of which neither has both
        merge(pack([Leaf(1)]).schema, pack([Leaf("a")]).schema)


def test_empty_batches_need_like() -> None:
    schema = pack([Node(1)]).schema
    columns = pack([], like=schema)
    assert columns.count == 0 and columns.schema == schema and unpack(columns) == []
    assert conform(columns, merge(schema, pack([Node(1, left=Node(2))]).schema)).count == 0
    assert columns.take([]).count == 0
    assert pack([Node(1)]).take([]).arrays.keys() == columns.arrays.keys()


# Annotations


class Expr:
    pass


@dataclass
class Const(Expr):
    value: float


@dataclass
class Neg(Expr):
    of: Expr


@dataclass
class Rose:
    name: str
    kids: list[Rose]
    color: Color | None = None


class Span(NamedTuple):
    begin: int
    end: Optional[int]


class Word(typing.TypedDict):
    text: str
    next: Word | None


@pytest.mark.parametrize(
    ("annotation", "examples"),
    [
        (int, [1]),
        (float, [1.0]),
        (bool, [True]),
        (complex, [1j]),
        (str, ["a"]),
        (Color, [Color.RED]),
        (int | None, [1, None]),
        (list[int], [[1]]),
        (list[list[str]], [[["a"]]]),
        (tuple[int, str], [(1, "a")]),
        (tuple[int, tuple[float, float]], [(1, (1.0, 2.0))]),
        (Literal["a", "b"], ["a"]),
        (Span, [Span(1, 2), Span(1, None)]),
        (Rose, [Rose("a", [Rose("b", [], Color.RED)])]),
        (Expr, [Neg(Const(1.0)), Neg(Neg(Const(1.0))), Const(1.0)]),
        (Const | Neg, [Neg(Const(1.0)), Neg(Neg(Const(1.0))), Const(1.0)]),
        (Word, [{"text": "a", "next": {"text": "b", "next": None}}]),
        (float | int, [1, 2.0]),
    ],
)
def test_annotations_say_what_packing_would(annotation: Any, examples: list[Any]) -> None:
    schema = schema_of_annotation(annotation)
    assert schema == pack(examples).schema
    assert pack([], like=schema).count == 0
    assert unpack(pack(examples, like=schema)) == unpack(pack(examples))


@pytest.mark.parametrize(
    "annotation",
    [np.ndarray, jax.Array, list, dict[str, int], tuple[int, ...], Any, object, "Unknown", Expr | np.ndarray],
)
def test_annotations_that_do_not_say_enough(annotation: Any) -> None:
    with pytest.raises(BatchError, match="pass `like="):
        schema_of_annotation(annotation)


def test_local_classes_refer_to_themselves() -> None:
    @dataclass
    class Local:
        x: int
        next: Local | None = None

    assert schema_of_annotation(Local).root == Ref("Local")
    assert schema_of_annotation(Local).stores[0].fields[1].type == Ref("Local")
