"""pack, take and unpack: what goes in comes out, with its sharing."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autobatch.data.columns import UNKNOWN, Columns
from autobatch.data.pack import pack
from autobatch.data.unpack import unpack
from autobatch.errors import BatchError
from autobatch.ir.core import BOOL, FLOAT, INT, Array, List, Ref, Tag
from tests.data.objects import Add, Color, Frozen, Leaf, Node, Pair, Plain, Scale, Slotted, Tree, batches, same


def rows_are_contiguous(columns: Columns) -> bool:
    """Every reference stays inside its example, and counts add up."""
    for store in columns.schema.stores:
        starts = columns.starts[store.name]
        owner = np.repeat(np.arange(columns.count), np.diff(starts))
        for field in store.fields:
            if not isinstance(field.type, (Ref, List)):
                continue
            target = field.type.store
            begins = columns.starts[target]
            values = columns.arrays[field.column]
            inside = (values >= begins[owner]) & (values < begins[owner + 1])
            if not np.all(inside | (values < 0)):
                return False
    return all(columns.starts[s.name][-1] == len(columns.arrays[f"{s.name}.#tag"]) for s in columns.schema.stores)


@given(batches)
def test_what_is_packed_comes_back(examples: list[Any]) -> None:
    columns = pack(examples)
    assert rows_are_contiguous(columns)
    back = unpack(columns)
    assert len(back) == len(examples)
    assert all(map(same, examples, back))


@given(batches, st.data())
def test_take_is_packing_the_selected(examples: list[Any], data: st.DataObject) -> None:
    columns = pack(examples)
    indices = data.draw(st.lists(st.integers(-len(examples), len(examples) - 1), max_size=6))
    taken = columns.take(indices)
    assert rows_are_contiguous(taken)
    assert all(map(same, [examples[i] for i in indices], unpack(taken)))
    if indices:
        again = pack([examples[i] for i in indices], like=columns.schema)
        assert again.schema == columns.schema
        assert all(map(same, unpack(again), unpack(taken)))
        assert all(np.array_equal(again.starts[k], taken.starts[k]) for k in taken.starts)
        for name, array in taken.arrays.items():
            if not name.endswith("?") and not _is_tag(columns, name):
                assert np.array_equal(array, again.arrays[name], equal_nan=array.dtype.kind == "f"), name


def _is_tag(columns: Columns, name: str) -> bool:
    """Tags of strings depend on the vocabulary."""
    types = {f.column: f.type for s in columns.schema.stores for f in s.fields}
    types |= {f"{s.name}.#values": s.elem for s in columns.schema.lists} | {"#root": columns.schema.root}
    return isinstance(types.get(name), Tag)


@given(batches)
def test_order_of_examples_does_not_change_the_schema(examples: list[Any]) -> None:
    assert pack(examples).schema == pack(examples[::-1]).schema


def test_layout_of_two_trees() -> None:
    columns = pack([Node(5, left=Node(6), right=Node(7, word=3)), Node(8)])
    assert columns.schema.root == Ref("Node")
    assert columns.arrays["Node.left"].tolist() == [1, -1, -1, -1]
    assert columns.arrays["Node.right"].tolist() == [2, -1, -1, -1]
    assert columns.arrays["Node.label"].tolist() == [5, 6, 7, 8]
    assert columns.arrays["Node.label"].dtype == np.int64
    assert columns.arrays["#root"].tolist() == [0, 3]
    assert columns.starts["Node"].tolist() == [0, 3, 4]
    assert columns.nbytes == sum(a.nbytes for a in columns.arrays.values()) + 24


def test_classes_seen_at_one_place_share_a_store() -> None:
    columns = pack([Add(Leaf(1.0), Scale(2.0, Leaf(3.0))), Leaf(4.0), Scale(5.0, Leaf(6.0))])
    (store,) = columns.schema.stores
    assert store.name == "Add|Leaf|Scale"
    assert [c.name for c in store.classes] == ["Add", "Leaf", "Scale"]
    assert columns.arrays["Add|Leaf|Scale.#tag"].tolist() == [0, 1, 2, 1, 1, 2, 1]
    by_name = {f.name: f for f in store.fields}
    assert by_name["value"].classes == (1,)
    assert by_name["left"].type == by_name["body"].type == Ref(store.name)
    assert by_name["color"].always_none


def test_fields_of_one_name_and_two_types() -> None:
    @dataclasses.dataclass
    class Number:
        value: int

    @dataclasses.dataclass
    class Word:
        value: str

    columns = pack([[Number(1), Word("a"), Number(2)]])
    (store,) = columns.schema.stores
    assert [(f.column, f.type) for f in store.fields] == [
        ("Number|Word.Number.value", INT),
        ("Number|Word.Word.value", Tag("str")),
    ]
    assert same(unpack(columns)[0], [Number(1), Word("a"), Number(2)])


def test_sharing_stays_in_one_example() -> None:
    shared = Leaf(1.0)
    columns = pack([Add(shared, shared), shared, Add(shared, Leaf(1.0))])
    assert columns.starts["Add|Leaf"].tolist() == [0, 2, 3, 6]
    first, second, third = unpack(columns)
    assert first.left is first.right and first.left is not second and third.left is not third.right


def test_tuples_are_values_and_named_tuples_are_not() -> None:
    point, pair = (0.0, 1.0), Pair(0.0, 1.0)
    columns = pack([{"t": [point, point], "p": [pair, pair]}])
    assert columns.starts["tuple2"].tolist() == [0, 2]
    assert columns.starts["Pair"].tolist() == [0, 1]


def test_shared_tuples_without_end_are_refused() -> None:
    x: tuple[Any, ...] = ("leaf",)
    for _ in range(60):
        x = ("add", x, x)
    with pytest.raises(BatchError, match=r"a tuple is a value.*NamedTuple"):
        pack([x])


def test_cycles() -> None:
    root = Node(1)
    root.left = Node(2, parent=root)
    root.parent = root
    back = unpack(pack([root]))[0]
    assert back.parent is back and back.left.parent is back
    looped: list[Any] = []
    looped.append(looped)
    with pytest.raises(BatchError, match="nested more than 64 deep"):
        pack([looped])


@pytest.mark.parametrize("depth", [30_000])
def test_depth_costs_no_stack(depth: int) -> None:
    tree, frozen = Tree("end"), Frozen(0.0)
    pairs = Pair(0.0, None)
    for i in range(depth):
        tree, frozen, pairs = Tree("n", [tree]), Frozen(float(i), frozen), Pair(1.0, pairs)
    for example in (tree, frozen, pairs):
        columns = pack([example])
        assert columns.starts[columns.schema.root.store].tolist() == [0, depth + 1]
        back = unpack(columns)[0]
        count = 0
        while back is not None:
            kids = getattr(back, "kids", None)
            back = (
                (kids[0] if kids else None)
                if kids is not None
                else getattr(back, "next", getattr(back, "second", None))
            )
            count += 1
        assert count == depth + 1
    del back
    while frozen is not None:  # the interpreter frees a chain by recursion: unlink it
        frozen = frozen.next
    while pairs is not None:
        pairs = pairs.second


@pytest.mark.parametrize(
    ("examples", "type"),
    [
        ([1, 2], INT),
        ([1, 2.5], FLOAT),
        ([True, False], BOOL),
        ([True, 2], INT),
        ([1j, 2], Array("complex64", weak=True)),
        (["a", "b"], Tag("str")),
        ([Color.RED, Color.BLUE], Tag(f"{Color.__module__}.Color")),
        ([np.float32(1), 2], Array("float32")),
        ([np.float16(1), 2.0], Array("float16")),
        ([np.int8(1), np.int8(2)], Array("int8")),
        ([np.float64(1), jnp.float32(2)], Array("float32")),
        ([jnp.ones(3, jnp.bfloat16)], Array("bfloat16", (3,))),
        ([np.ones((2, 3)), jnp.ones((2, 3))], Array("float32", (2, 3))),
        ([np.bool_(True), False], BOOL),
        ([None, None], UNKNOWN),
    ],
)
def test_types_of_leaves(examples: list[Any], type: Any) -> None:
    assert pack(examples).schema.root == type
    assert pack([{"x": x} for x in examples]).schema.stores[0].fields[0].type == type
    assert pack([examples]).schema.lists[0].elem == type


def test_x64_keeps_wide_arrays() -> None:
    with jax.enable_x64(True):
        columns = pack([np.ones(2), np.zeros(2)])
    assert columns.schema.root == Array("float64", (2,)) and columns.arrays["#root"].dtype == np.float64


def test_none_in_leaves_is_a_mask() -> None:
    columns = pack([1, None, 3])
    assert columns.schema.root_optional
    assert columns.arrays["#root?"].tolist() == [False, True, False]
    assert unpack(columns) == [1, None, 3]
    assert unpack(pack([["a", None], []])) == [["a", None], []]
    assert unpack(pack([np.ones(2), None]))[1] is None


def test_ragged_arrays() -> None:
    examples = [{"x": np.arange(n, dtype=np.float32), "y": Color.RED} for n in (3, 0, 2)]
    columns = pack([*examples, {"x": None, "y": Color.BLUE}])
    (items,) = columns.schema.lists
    assert items.from_array and items.elem == Array("float32")
    assert columns.arrays["dict.x"].tolist() == [0, 1, 2, -1]
    assert columns.arrays["dict.x.#offsets"].tolist() == [0, 3, 3, 5]
    assert columns.arrays["dict.x.#values"].tolist() == [0, 1, 2, 0, 1]
    assert all(map(same, examples, unpack(columns)))
    taken = columns.take([2, 0])
    assert taken.arrays["dict.x.#values"].tolist() == [0, 1, 0, 1, 2]
    assert [len(x) for x in unpack(pack([np.ones((n, 2)) for n in (1, 4)]))] == [1, 4]
    nested = [[np.ones(1, np.float32), np.ones(2, np.float32)], [np.zeros(1, np.float32)]]
    assert all(map(same, nested, unpack(pack(nested))))


def test_random_keys() -> None:
    keys = jax.random.split(jax.random.key(3), 4)
    columns = pack([Pair(k, i) for i, k in enumerate(keys)])
    assert columns.schema.stores[0].fields[0].type == Array("key<fry>")
    assert columns.arrays["Pair.first"].dtype == np.uint32 and columns.arrays["Pair.first"].shape == (4, 2)
    back = unpack(columns.take([2]))[0]
    assert jax.random.key_data(back.first).tolist() == jax.random.key_data(keys[2]).tolist()


def test_instances_with_other_attributes_are_forms_of_one_class() -> None:
    examples = [Plain.of(x=1), Plain.of(x=2, y="b"), Slotted.of(a=1), Slotted.of(b=2)]
    columns = pack(examples[:2])
    assert [c.name for c in columns.schema.stores[0].classes] == ["Plain", "Plain_2"]
    assert all(map(same, examples[:2], unpack(columns)))
    assert all(map(same, examples[2:], unpack(pack(examples[2:]))))


def test_graphs_and_sparse_matrices() -> None:
    sparse = pytest.importorskip("scipy.sparse")
    graph = nx.DiGraph()
    graph.add_edge("a", "b", weight=2.0)
    graph.add_edge("b", "c")
    graph.add_node("d", color=1)
    multi = nx.MultiGraph([(0, 1), (0, 1), (1, 2)])
    for example in (graph, multi, nx.path_graph(4)):
        columns = pack([example, example])
        back = unpack(columns)[1]
        assert type(back) is type(example)
        assert nx.utils.graphs_equal(back, example)
    columns = pack([graph])
    fields = {f.name for f in columns.schema.stores[0].fields}
    assert fields >= {"labels", "adjacency", "sources", "edge_weight", "without_edge_weight", "node_color"}
    matrices = [sparse.csr_array(np.eye(3, dtype=np.float32)), sparse.csr_array(np.ones((2, 2), np.float32))]
    for a, b in zip(matrices, unpack(pack(matrices))):
        assert type(a) is type(b) and (a.toarray() == b.toarray()).all()


@pytest.mark.parametrize(
    ("examples", "words"),
    [
        ([Leaf(np.float32(1)), Leaf("x"), Leaf(np.int32(1))], r"examples\[0\]\.value and examples\[2\]\.value"),
        ([np.ones(3), np.ones((3, 2))], r"one example differs in shape .*: \(3,\) in examples\[0\], \(3, 2\) in"),
        ([[np.ones((3, 2)), np.ones((3, 4))]], r"the shapes \(3, 2\) and \(3, 4\) in one example"),
        ([np.float32(1), np.int32(1)], "a float32 and a int32"),
        ([5, 2**63], r"examples\[1\]: the integer does not fit into 64 bits"),
        ([[1, 2**70]], r"examples\[0\]\[1\]: the integer does not fit"),
        ([1.0, 10**400], r"examples\[1\]: the integer does not fit"),
        ([np.int64(1), np.int64(2**40)], "do not fit into int32"),
        ([Add(type("Names", (set,), {})(), None)], r"examples\[0\]\.left: .*a subclass of set would lose"),
        ([Leaf(len)], r"examples\[0\]\.value: .*code is not data"),
        ([Leaf(iter([1]))], "use a list"),
        ([Leaf(KeyError("a"))], "use a list, a dataclass"),
        ([Leaf(datetime.date(2000, 1, 1))], r"use a number: .*total_seconds"),
        ([type("Words", (list,), {})()], r"a subclass of list would lose"),
        ([type("Number", (int,), {})()], "a subclass of a number"),
        ([b"x"], "use `numpy.frombuffer"),
        ([np.array(["a"])], "no numbers"),
        ([], "pass `like=`"),
    ],
)
def test_bad_data(examples: list[Any], words: str) -> None:
    with pytest.raises(BatchError, match=words):
        pack(examples)


def test_classes_without_fields() -> None:
    @dataclasses.dataclass
    class Nil:
        pass

    @dataclasses.dataclass
    class One:
        x: Any

    class Nothing(NamedTuple):
        pass

    examples: list[Any] = [Nil(), One(Nil()), One(Nothing()), One(None), Plain.of()]
    assert all(map(same, examples, unpack(pack(examples))))
    assert unpack(pack([(), {}, ()])) == [(), {}, ()]


def test_a_field_without_a_value() -> None:
    node = Leaf.__new__(Leaf)
    with pytest.raises(BatchError, match=r"examples\[1\]: .*every field of a dataclass needs a value"):
        pack([Leaf(1.0), node])
    with pytest.raises(BatchError, match=r"examples\[0\]\.left: .*every field of a dataclass needs a value"):
        pack([Add(node, None)])


def test_one_list_at_two_places() -> None:
    shared: list[Any] = []
    back = unpack(pack([Add(shared, shared), Add([1], [2])]))
    assert back[0].left is back[0].right and back[1].left == [1]
    back = unpack(pack([Add(shared, shared), Add([1], ["a"])]))
    assert back[0].left is back[0].right and back[1].left == [1] and back[1].right == ["a"]
    kinds = [Add(np.ones(2, np.float32), 0), Add(np.ones(2, np.int32), 0)]
    with pytest.raises(BatchError, match=r"examples\[0\]\.left and examples\[1\]\.left"):
        pack(kinds)


def test_tracers_are_refused() -> None:
    with pytest.raises(BatchError, match="traced"):
        jax.jit(lambda x: pack([Leaf(x)]) and 0)(1.0)


def test_bad_indices() -> None:
    columns = pack([1, 2, 3])
    assert columns.take(np.array([True, False, True])).arrays["#root"].tolist() == [1, 3]
    assert columns.take(slice(None, None, -1)).arrays["#root"].tolist() == [3, 2, 1]
    assert columns.take([]).count == 0
    for bad in ([3], [-4], [True], [1.5], np.array(1), "a"):
        with pytest.raises(BatchError):
            columns.take(bad)


def test_arrays_are_snapshots() -> None:
    array = np.ones(2, np.float32)
    columns = pack([Leaf(array)])
    array[:] = 7
    back = unpack(columns)[0]
    back.value[:] = 8
    assert columns.arrays["Leaf.value"].tolist() == [[1, 1]]


def test_nan_passes_through() -> None:
    assert np.isnan(pack([Leaf(float("nan"))]).arrays["Leaf.value"]).all()
