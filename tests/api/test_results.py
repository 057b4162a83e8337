"""What a batched call returns, and `unbatch`."""

import enum
from collections import namedtuple
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from tests.api.nodes import Node, close, depth, doubled, params, total, trees

Pair = namedtuple("Pair", "a b")


@jax.tree_util.register_dataclass
@dataclass
class State:
    h: object
    c: object


class Sort(enum.Enum):
    LEAF = 0
    INNER = 1


@dataclass
class Found:
    node: Node
    value: float
    name: str = ""


def test_numbers_are_arrays_with_jax_dtypes():
    ints, floats, bools = ab.batched(lambda x: (2, 0.5 * x, x > 1))([1, 2, 3])
    assert (ints.dtype, floats.dtype, bools.dtype) == (jnp.int32, jnp.float32, jnp.bool_)
    assert ints.tolist() == [2, 2, 2] and bools.tolist() == [False, True, True]
    assert depth(trees()).dtype == jnp.int32
    with jax.enable_x64(True):
        assert depth(trees()).dtype == jnp.int64


def test_containers_are_kept():
    f = ab.batched(lambda x: {"t": (x, Pair(x + 1, x + 2)), "s": State(x, x * 2)})
    out = f(np.arange(3.0, dtype=np.float32))
    assert isinstance(out["t"][1], Pair) and isinstance(out["s"], State)
    close(out["t"][1].b, [2, 3, 4])
    close(out["s"].c, [0, 2, 4])


def test_lists_are_ragged_also_when_lengths_agree():
    r = doubled([[3, 1], [2]])
    assert isinstance(r, ab.Ragged)
    assert r.values[:3].tolist() == [6, 2, 4] and r.offsets.tolist() == [0, 2, 3]
    assert len(r) == 2 and r.lengths.tolist() == [2, 1]
    assert ab.unbatch(r) == [[6, 2], [4]] == r.to_list()
    same = doubled([[1, 2], [3, 4]])
    assert isinstance(same, ab.Ragged) and ab.unbatch(same) == [[2, 4], [6, 8]]
    array, mask = r.to_padded(-1)
    assert array.tolist() == [[6, 2], [4, -1]] and mask.tolist() == [[True, True], [True, False]]


def test_nested_lists_nest():
    f = ab.batched(lambda rows: [[x + 1 for x in row] for row in rows])
    examples = [[[1, 2], [3]], [[4]], []]
    r = f(examples)
    assert isinstance(r, ab.Ragged) and isinstance(r.values, ab.Ragged)
    assert ab.unbatch(r) == [[[2, 3], [4]], [[5]], []]


def test_a_list_written_out_and_a_range():
    assert ab.unbatch(ab.batched(lambda x: [x, x + 1])(np.arange(2))) == [[0, 1], [1, 2]]
    assert ab.unbatch(ab.batched(lambda n: list(range(n)))([2, 0, 1])) == [[0, 1], [], [0]]


def test_lists_of_containers():
    f = ab.batched(lambda words: [(w, w * 0.5) for w in words])
    assert ab.unbatch(f([[2, 4], [6]])) == [[(2, 1.0), (4, 2.0)], [(6, 3.0)]]


def test_nodes_of_the_input_are_a_batch():
    @ab.batched
    def deepest(t):
        return t if t.left is None else deepest(t.left)

    out = deepest(trees())
    assert isinstance(out, ab.Batch)
    assert [n.x for n in ab.unbatch(out)] == [1.0, 3.0, 7.0]
    close(total(params(), out), [2, 6, 14])


def test_class_instances_are_a_batch():
    f = ab.batched(lambda t: Found(t.left if t.left is not None else t, t.x * 2, "x"))
    out = ab.unbatch(f(trees()))
    assert [type(o) for o in out] == [Found] * 3
    assert [o.value for o in out] == [2, 4, 10] and [o.name for o in out] == ["x"] * 3
    assert [o.node.x for o in out] == [1, 3, 6]


def test_strings_and_enums_are_a_batch():
    @ab.batched
    def name(t):
        return "leaf" if t.left is None else "inner"

    assert ab.unbatch(name(trees())) == ["leaf", "inner", "inner"]

    @ab.batched
    def sort(t):
        return Sort.LEAF if t.left is None else Sort.INNER

    assert ab.unbatch(sort(trees())) == [Sort.LEAF, Sort.INNER, Sort.INNER]
    assert ab.unbatch(ab.batched(lambda x: "same")(np.arange(2))) == ["same", "same"]


def test_none_on_some_path_is_a_batch():
    @ab.batched
    def value(t):
        return None if t.left is None else t.x

    assert ab.unbatch(value(trees())) == [None, 2.0, 5.0]


def test_none_on_every_path_is_none():
    assert ab.batched(lambda x: None)(np.arange(3)) is None
    assert ab.batched(lambda x: (x, None))(np.arange(3))[1] is None


def test_joins_of_numbers():
    f = ab.batched(lambda t: 1 if t.left is None else t.x)
    assert f(trees()).dtype == jnp.float32
    close(f(trees()), [1, 2, 5])

    @ab.batched
    def summed(kids):
        s = 0
        for k in kids:
            s = s + jnp.ones(2) * k
        return s

    close(summed([[1.0, 2.0], [], [3.0]]), [[3, 3], [0, 0], [3, 3]])


def test_types_that_do_not_join_name_both_places():
    @ab.batched
    def wrong(t):
        if t.left is None:
            return jnp.zeros(2)
        return jnp.zeros((3, 2))

    with pytest.raises(ab.TypeConflictError, match="test_results.py"):
        wrong(trees())


def test_unbatch_gives_python_numbers_and_numpy_arrays():
    out = ab.unbatch((jnp.arange(2), jnp.ones((2, 3)), jnp.array([True, False])))
    assert [type(x) for x in out[0]] == [int, np.ndarray, bool]
    with pytest.raises(ab.BatchError, match="no axis"):
        ab.unbatch(jnp.float32(1))
    with pytest.raises(ab.BatchError, match="unknown"):
        ab.unbatch(None)
    with pytest.raises(ab.BatchError, match="different numbers"):
        ab.unbatch((jnp.ones(2), jnp.ones(3)))


def test_results_are_the_same_under_jit():
    p, data = params(), ab.pack(trees()).plan(total)
    total(p, data)
    inside = jax.jit(lambda p, b: total(p, b))(p, data)
    close(inside, total(p, trees()))
    words = ab.pack([[1, 2], [3]]).plan(doubled)
    doubled(words)
    assert ab.unbatch(jax.jit(doubled)(words)) == [[2, 4], [6]]

    @ab.batched
    def child(t):
        return t if t.left is None else t.left

    child(trees())
    out = jax.jit(child)(ab.pack(trees()).plan(child))
    assert [n.x for n in ab.unbatch(out)] == [1, 3, 6]
