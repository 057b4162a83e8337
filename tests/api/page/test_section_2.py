"""Results: what one example returns, and what the batched call makes of it."""

from __future__ import annotations

import enum
from collections import namedtuple
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from tests.api.nodes import Node, close, params, total, trees
from tests.api.page.oracle import agrees

X = np.arange(6, dtype=np.float32).reshape(3, 2)
WORDS = [[3, 1], [2], []]
Pair = namedtuple("Pair", "a b")


class Sort(enum.Enum):
    LEAF = 0
    INNER = 1


@jax.tree_util.register_dataclass
@dataclass
class State:
    h: object
    c: object


@dataclass
class Report:
    name: str
    value: float
    node: Node | None = None


@dataclass
class Other:
    z: float


def sort_of(t):
    return Sort.LEAF if t.left is None else Sort.INNER


def left_of(t):
    return t.left


# ---- numbers


def test_an_array_gets_one_row_an_example_on_the_axis_of_out_axes():
    """Row k of axis `out_axes` is what example k returned."""
    assert ab.batched(lambda x: x * 2)(X).shape == (3, 2)
    last = ab.batched(lambda x: x * 2, out_axes=1)(X)
    assert last.shape == (2, 3)
    close(last, X.T * 2)


@pytest.mark.parametrize("value, narrow, wide", [(2, "int32", "int64"), (0.5, "float32", "float64")])
def test_python_numbers_get_the_default_dtypes(value, narrow, wide):
    """A Python int becomes int32, a float float32; under x64 int64 and float64."""
    f = ab.batched(lambda t: value if t.left is None else value * 2)
    assert f(trees()).dtype == narrow
    with jax.enable_x64(True):
        assert f(trees()).dtype == wide


def test_a_number_of_an_example_gets_the_default_dtype():
    """So do fields of examples, which are Python numbers too."""
    f = ab.batched(lambda q: (q[0], q[1], q[0] + q[1]))
    assert [x.dtype for x in f([(1, 2.0)])] == [jnp.int32, jnp.float32, jnp.float32]
    with jax.enable_x64(True):
        assert [x.dtype for x in f([(1, 2.0)])] == [jnp.int64, jnp.float64, jnp.float64]


def test_a_bool_stays_a_bool():
    """A Python bool is a row of a bool array, not an integer."""
    found = ab.batched(lambda t: t.left is None)(trees())
    assert found.dtype == jnp.bool_ and found.tolist() == [True, False, False]


# ---- containers


@pytest.mark.parametrize(
    "make", [lambda a, b: (a, b), lambda a, b: {"a": a, "b": b}, lambda a, b: Pair(a, b), lambda a, b: State(a, b)]
)
def test_a_container_comes_back_as_the_same_container_of_results(make):
    """Tuples, dicts, NamedTuples and registered pytrees: the same class with batched leaves."""
    f = ab.batched(lambda x: make(x, x.sum()))
    found = f(X)
    assert jax.tree.structure(found) == jax.tree.structure(make(0, 0))
    for got, want in zip(jax.tree.leaves(found), (X, X.sum(1)), strict=True):
        close(got, want)


def test_containers_nest():
    """A container may hold any other result, lists and structure too."""
    f = ab.batched(lambda words: {"pair": Pair(len(words), [w + 1 for w in words]), "name": ("a", None)})
    found = f(WORDS)
    assert isinstance(found["pair"].b, ab.Ragged) and isinstance(found["name"][0], ab.Batch)
    assert ab.unbatch(found) == f.loop(WORDS)


# ---- lists


@pytest.mark.parametrize(
    "function",
    [
        lambda words: words,
        lambda words: [w * 2 for w in words],
        lambda words: [w for w in words if w > 1],
        lambda words: range(len(words)),
        lambda words: [len(words), 7],
        lambda words: words + [5],
        lambda words: words[::-1],
    ],
    ids=["list", "comprehension", "filter", "range", "written out", "joined", "reversed"],
)
def test_a_list_becomes_ragged(function):
    """Lists, comprehensions and ranges: all values behind one another, and B + 1 offsets."""
    f = ab.batched(function)
    found = f(WORDS)
    assert isinstance(found, ab.Ragged)
    assert ab.unbatch(found) == [list(row) for row in f.loop(WORDS)]
    assert found.offsets.shape == (4,)


def test_lists_of_one_length_are_ragged_too():
    """The form of the result follows types, never lengths."""
    f = ab.batched(lambda words: [w * 2 for w in words])
    assert isinstance(f([[1, 2], [3, 4]]), ab.Ragged)
    assert ab.unbatch(f([[1, 2], [3, 4]])) == [[2, 4], [6, 8]]


def test_nested_lists_nest():
    """A list of lists is a Ragged whose values are a Ragged."""
    f = ab.batched(lambda rows: [[x + 1 for x in row] for row in rows])
    examples = [[[1, 2], []], [], [[3]]]
    found = f(examples)
    assert isinstance(found.values, ab.Ragged)
    assert ab.unbatch(found) == f.loop(examples)


# ---- structure


@pytest.mark.parametrize(
    "function",
    [
        lambda t: "leaf" if t.left is None else "inner",
        sort_of,
        lambda t: None if t.left is None else t.x,
        lambda t: Report("r", t.x * 2, t),
        left_of,
        lambda t: t if t.left is None else t.left,
    ],
    ids=["str", "enum", "None on some path", "instance", "None or node", "node"],
)
def test_structure_becomes_a_batch(function):
    """Strings, enum members, None on some path, instances and nodes of the input are rows of a Batch."""
    f = ab.batched(function)
    found = f(trees())
    assert isinstance(found, ab.Batch) and len(found) == 3
    assert ab.unbatch(found) == f.loop(trees())


def test_a_mixture_of_classes_is_a_batch():
    """One path may return one class, another path another."""
    f = ab.batched(lambda t: Other(t.x) if t.left is None else Report("inner", t.x))
    found = f(trees())
    assert isinstance(found, ab.Batch)
    assert ab.unbatch(found) == f.loop(trees())


def test_a_batch_that_is_a_result_is_a_pytree():
    """Its columns are leaves: it goes through `jax.tree.map` and jit."""
    out = ab.batched(lambda t: Report("r", t.x * 2))(trees())
    assert jax.tree.leaves(out)
    assert [r.value for r in ab.unbatch(jax.tree.map(lambda x: x, out))] == [2, 4, 10]
    assert [r.value for r in ab.unbatch(jax.jit(lambda b: b)(out))] == [2, 4, 10]


def test_a_batch_that_is_a_result_may_be_passed_on():
    """The result of one function is the batched argument of another."""
    children = ab.batched(lambda t: t if t.left is None else t.left)(trees())
    close(total(params(), children), total.loop(params(), [t if t.left is None else t.left for t in trees()]))
    made = ab.batched(lambda t: Report("r", t.x * 2))(trees())
    close(ab.batched(lambda r: r.value + 1)(made), [3, 5, 11])


# ---- out_axes


def test_out_axes_is_a_prefix_as_in_vmap():
    """One entry serves a whole container; `jax.vmap` gives the same."""

    def f(x):
        return {"a": (x, x.sum()), "b": jnp.outer(x, x)}

    axes = {"a": 0, "b": 2}
    ours, theirs = ab.batched(f, out_axes=axes)(X), jax.vmap(f, out_axes=axes)(X)
    jax.tree.map(close, ours, theirs)


@pytest.mark.parametrize("result", [lambda t: [t.x], lambda t: t, sort_of], ids=["list", "node", "enum"])
def test_out_axes_of_ragged_and_batch_is_zero(result):
    """There is no other axis that the examples could lie on."""
    for axis in (1, -1, None):
        with pytest.raises(ab.BatchError, match="can be 0 only"):
            ab.batched(result, out_axes=axis)(trees())


def test_out_axes_none_gives_what_no_example_reaches_once():
    """Computed from shared arguments alone: returned without an axis of examples."""
    f = ab.batched(lambda p, x: {"once": p * 2, "rows": x + p}, in_axes=(None, 0), out_axes={"once": None, "rows": 0})
    found = f(jnp.ones(4), np.arange(3.0))
    assert found["once"].shape == (4,) and found["rows"].shape == (3, 4)


def test_out_axes_none_for_what_an_example_reaches_names_the_line():
    """The line that an example reaches it by."""

    def f(x):
        y = x * 2
        return y

    with pytest.raises(ab.BatchError, match="depends on a batched argument") as caught:
        ab.batched(f, out_axes=None)(X)
    assert f"test_section_2.py:{f.__code__.co_firstlineno + 1}:" in str(caught.value)
    with pytest.raises(ab.BatchError, match=r"test_section_2\.py:\d+"):
        ab.batched(lambda x: x, out_axes=None)(X)


# ---- joins


@pytest.mark.parametrize("backend", ["xla", "interpret"])
def test_an_int_meets_a_float_as_a_float(backend):
    """`1` on one path and `0.5` on the other: a float on both."""
    f = ab.batched(lambda t: 1 if t.left is None else t.x * 0.5, backend=backend)
    assert f(trees()).dtype == jnp.float32
    close(f(trees()), [1, 1, 2.5])


def test_an_int_meets_a_float_in_a_loop_and_in_recursion():
    """The carried value of a loop, and the results of a recursion, join like branches."""

    @ab.batched
    def f(t):
        s = 0
        for k in [t.left, t.right]:
            if k is not None:
                s = s + f(k) * 0.5
        return s + 1

    found = f(trees())
    assert found.dtype == jnp.float32
    close(found, f.loop(trees()))


def test_a_python_number_takes_dtype_and_shape_of_an_array():
    """`0` beside an int16[2]: zeros of int16[2]."""
    f = ab.batched(lambda t: 0 if t.left is None else jnp.arange(2, dtype=jnp.int16))
    found = f(trees())
    assert found.dtype == jnp.int16 and found.tolist() == [[0, 0], [0, 1], [0, 1]]


def test_a_sum_over_no_children_is_zeros_of_the_shape():
    """`s = 0` before a loop over children that return arrays."""

    @ab.batched(in_axes=(None, 0))
    def states(w, t):
        s = 0
        for c in [] if t.left is None else [t.left, t.right]:
            s = s + states(w, c)
        return jnp.tanh(w * t.x + s)

    @ab.batched(in_axes=(None, 0))
    def below(w, kids):
        s = 0
        for c in kids:
            s = s + states(w, c)
        return s

    found = below(jnp.ones(2), [[], trees()])
    assert found.shape == (2, 2) and found[0].tolist() == [0, 0]
    close(found[1], sum(states.loop(jnp.ones(2), trees())))


@pytest.mark.cpu
@pytest.mark.parametrize(
    "one, other",
    [
        (lambda: jnp.zeros(2), lambda: jnp.zeros((2, 2))),
        (lambda: jnp.zeros(2, jnp.float32), lambda: jnp.zeros(2, jnp.int32)),
    ],
    ids=["shape", "dtype"],
)
def test_any_other_difference_is_a_conflict_with_both_places(one, other):
    """Dtype or shape: the error shows the two lines that disagree."""

    def f(t):
        if t.left is None:
            return one()
        return other()

    with pytest.raises(ab.TypeConflictError) as caught:
        ab.batched(f)(trees())
    first = f.__code__.co_firstlineno
    for line in (first + 2, first + 3):
        assert f"test_section_2.py:{line}:" in str(caught.value)


@pytest.mark.parametrize(
    "f",
    [
        lambda t: (1, 2) if t.left is None else (1, t.x, 3),
        lambda t: {"a": 1} if t.left is None else {"b": t.x},
        lambda t: [1, "a"] if t.left is None else [t.x],
    ],
    ids=["tuples", "dicts", "lists"],
)
def test_lengths_and_keys_may_differ(f):
    agrees(ab.batched(f), trees())


# ---- types grow


def test_types_grow_over_calls_and_never_shrink():
    """Once inner nodes were seen, a batch of leaves runs on the same program, inner branch included."""
    f = ab.batched(lambda p, t: p * t.x if t.left is None else p * t.left.x, in_axes=(None, 0), backend="xla")
    f(1.0, trees())
    close(f(2.0, [Node(1.0), Node(2.0)]), [2, 4])
    close(f(2.0, ab.pack([Node(3.0)])), [6])
    assert f.cache_info().specialisations == 1


def test_types_that_are_new_are_added_to_those_seen():
    """Leaves first, then inner nodes: a second program serves both from then on."""
    f = ab.batched(lambda t: t.x if t.left is None else t.left.x)
    f([Node(1.0)])
    f(trees())
    known = f.cache_info().specialisations
    assert f([Node(1.0)]).tolist() == [1]
    f(trees()[::-1])
    assert f.cache_info().specialisations == known


# ---- unbatch


def test_unbatch_gives_one_object_an_example():
    """A list of B, in order, whatever the result is."""
    f = ab.batched(lambda t: (t.x, [t.x, 1.0], "s", t))
    assert ab.unbatch(f(trees())) == f.loop(trees())


def test_unbatch_gives_python_numbers_and_numpy_arrays():
    """Entries of shape () are bool, int and float of Python; others NumPy arrays."""
    row = ab.unbatch((jnp.array([True]), jnp.array([1]), jnp.array([0.5]), jnp.ones((1, 2))))[0]
    assert [type(x) for x in row] == [bool, int, float, np.ndarray]


def test_unbatch_keeps_the_order_of_keys():
    """The dicts of the examples have the keys in the order written, as plain Python gives them."""
    f = ab.batched(lambda t: {"x": t.x, "a": ({"n": 1, "b": 2.0}, [t.x])})
    for got, want in zip(ab.unbatch(f(trees())), f.loop(trees()), strict=True):
        assert repr(got) == repr(want)


def test_unbatch_gives_lists_for_rows_of_a_ragged():
    """Nested ones too."""
    ragged = ab.batched(lambda rows: [[x for x in row] for row in rows])([[[1], [2, 3]], []])
    assert ab.unbatch(ragged) == [[[1], [2, 3]], []]


def test_unbatch_makes_objects_without_calling_init():
    """Rows of a Batch are objects of their class, whose `__init__` is not asked."""
    calls = []

    class Counted:
        def __init__(self, x):
            calls.append(x)
            self.x = x

    f = ab.batched(lambda c: c)
    out = f([Counted(1.0), Counted(2.0)])
    calls.clear()
    made = ab.unbatch(out)
    assert [type(c) for c in made] == [Counted] * 2 and [c.x for c in made] == [1, 2]
    assert not calls


@dataclass
class Two:
    a: Node | None
    b: Node | None
    more: list[Node] = field(default_factory=list)


def test_unbatch_restores_sharing_inside_an_example():
    """One object of an example that was reached twice is one object again; of two examples it is two."""
    shared = Node(1.0)
    one, two = ab.unbatch(ab.batched(lambda q: q)(ab.pack([Two(shared, shared, [shared]), Two(shared, None)])))
    assert one.a is one.b is one.more[0] and two.a is not one.a
    made = ab.unbatch(ab.batched(lambda t: Two(t, t))(trees()))
    assert all(m.a is m.b for m in made)


# ---- Ragged


def test_ragged_has_values_offsets_lengths_and_items():
    """`offsets` has B + 1 entries, `len` counts examples, `[i]` is the row of one."""
    r = ab.batched(lambda words: [w * 2 for w in words])(WORDS)
    assert r.offsets.tolist() == [0, 2, 3, 3] and len(r) == 3 and r.lengths.tolist() == [2, 1, 0]
    assert r.values[:3].tolist() == [6, 2, 4]
    assert [np.asarray(r[i]).tolist() for i in (0, 1, 2, -1)] == [[6, 2], [4], [], []]
    assert r.to_list() == [[6, 2], [4], []]


def test_ragged_pads_with_a_fill_and_a_mask():
    """`to_padded(fill)` gives the array and where it is real."""
    array, mask = ab.batched(lambda words: [w * 2 for w in words])(WORDS).to_padded(-1)
    assert array.tolist() == [[6, 2], [4, -1], [-1, -1]]
    assert mask.tolist() == [[True, True], [True, False], [False, False]]


def test_ragged_is_a_pytree():
    """It goes through `jax.tree.map` and jit, and stays Ragged."""
    r = ab.batched(lambda words: [w * 2.0 for w in words])(WORDS)
    doubled = jax.jit(lambda r: jax.tree.map(lambda x: x * 2 if x.dtype == jnp.float32 else x, r))(r)
    assert isinstance(doubled, ab.Ragged) and doubled.to_list() == [[12, 4], [8], []]


def test_capacity_of_a_ragged_is_zero_and_never_read():
    """Rows past the last offset hold zeros, and what stands there changes nothing."""
    f = ab.batched(lambda words: [w * 2.0 for w in words])
    r = f(WORDS)
    end = int(r.offsets[-1])
    assert not np.asarray(r.values[end:]).any()
    spoiled = ab.Ragged(r.values.at[end:].set(jnp.nan), r.offsets)
    assert spoiled.to_list() == r.to_list() and ab.unbatch(spoiled) == ab.unbatch(r)
    close(spoiled.to_padded(0.0)[0], r.to_padded(0.0)[0])
    assert ab.unbatch(f(spoiled)) == [[12, 4], [8], []]


# ---- structure follows types


@pytest.mark.parametrize("batch", [[[1]], [[1, 2], []], [[], []], []], ids=["one", "two", "empty lists", "empty"])
def test_the_structure_of_a_result_follows_types_not_data(batch):
    """The same call has the same result structure for every batch, in and out of jit."""

    @ab.batched
    def f(words: list[int]):
        return {"n": len(words), "l": [w * 2 for w in words], "s": "many" if len(words) > 1 else "few"}

    f([[1, 2], [3]])
    found = f(batch)
    kinds = {k: type(v) for k, v in found.items()}
    assert issubclass(kinds["n"], jax.Array) and kinds["l"] is ab.Ragged and kinds["s"] is ab.Batch
    assert ab.unbatch(found) == f.loop(batch)
    data = f.pack(batch, like=list[int])
    f(data)
    inside = jax.jit(lambda b: f(b))(data)
    assert {k: type(v) for k, v in inside.items()} == kinds and ab.unbatch(inside) == f.loop(batch)
