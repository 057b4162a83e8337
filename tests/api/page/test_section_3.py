"""Data: packing, planning, cutting; which objects keep their identity."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from tests.api.nodes import Node, chain, close, depth, params, total, trees


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@dataclass
class Everything:
    number: int
    real: float
    flag: bool
    word: str
    colour: Colour
    array: np.ndarray
    pair: tuple[int, float]
    table: dict[str, float]
    words: list[str]
    maybe: Node | None = None


def everything(n: int) -> Everything:
    pair, table, words = (n, n / 2), {"a": 1.0, "b": float(n)}, ["x"] * n
    return Everything(
        n, n / 4, n % 2 == 0, "abc"[:n], Colour(1 + n % 2), np.arange(3.0) + n, pair, table, words, chain(n)
    )


@ab.batched(in_axes=(None, 0))
def scaled(p, t):
    return p["w"] * t.x


@ab.batched(in_axes=(None, 0, 0))
def similarity(p, a, b):
    return total(p, a) - total(p, b), a.x * b.x


# ---- pack


def test_packing_takes_a_snapshot():
    """What happens to the objects afterwards, and to arrays inside them, does not reach the batch."""
    t, e = Node(1.0), everything(2)
    data, more = ab.pack([t]), ab.pack([e])
    t.x = 5.0
    e.array[:] = 0
    e.words.append("late")
    close(total(params(), data), [2])
    assert more[0].array.tolist() == [2, 3, 4] and more[0].words == ["x", "x"]


def test_a_packed_batch_is_for_any_function():
    """Nothing about a function enters `ab.pack`."""
    data = ab.pack(trees())
    close(total(params(), data), total.loop(params(), trees()))
    assert depth(data).tolist() == depth.loop(trees())


def test_packing_keeps_all_that_the_examples_hold():
    """Numbers, strings, enums, arrays, tuples, dicts, lists, None and objects come back as they were."""
    again = ab.pack([everything(1), everything(2)])
    for got, want in zip(again, [everything(1), everything(2)], strict=True):
        assert got.array.tolist() == want.array.tolist()
        got.array = want.array = np.zeros(0)
        assert repr(got) == repr(want)


def test_like_is_an_annotation():
    """`like=list[int]` fixes types which the examples do not show."""
    data = ab.pack([[], []], like=list[int])
    assert ab.unbatch(ab.batched(lambda words: [w + 1 for w in words])(data)) == [[], []]
    assert len(ab.pack([], like=Node)) == 0


def test_like_is_a_batch():
    """`like=data` gives the new examples the types of the old."""
    data = ab.pack(trees())
    leaves = ab.pack([Node(7.0)], like=data)
    assert leaves.schema == data.schema
    total(params(), data)
    before = total.cache_info().specialisations
    close(total(params(), leaves), [14])
    assert total.cache_info().specialisations == before


# ---- plan


def test_plan_keeps_the_columns():
    """The same examples; the batch that was asked is as it was."""
    data = ab.pack(trees())
    planned = data.plan(total)
    assert list(planned) == list(data) == trees() and planned.schema == data.schema


def test_plans_of_several_functions_live_side_by_side():
    """One data set serves two functions; each plans it once, also for minibatches and under jit."""
    f, g = (ab.batched(h.__wrapped__, in_axes=(None, 0), backend="xla") for h in (total, scaled))
    data = ab.pack(trees()).plan(f, g)
    f(params(), data), g(params(), data)
    made = f.cache_info().plans, g.cache_info().plans
    for index in ([0], [2, 1], [1, 1]):
        mini = data[index]
        close(f(params(), mini), [total.example(params(), trees()[k]) for k in index])
        close(jax.jit(lambda p, b: g(p, b))(params(), mini), [2 * trees()[k].x for k in index])
    assert (f.cache_info().plans, g.cache_info().plans) == made


def test_packing_with_a_function_is_packing_and_planning():
    """`f.pack(x)` is `ab.pack(x).plan(f)`: it runs under jit."""
    f = ab.batched(scaled.__wrapped__, in_axes=(None, 0))
    for data in (f.pack(trees()), ab.pack(trees()).plan(f)):
        close(jax.jit(lambda p, b: f(p, b))(params(), data), [2, 4, 10])


# ---- several batched arguments


def test_arguments_packed_together_are_planned_together():
    """`pairs.args` are handed to the function, which plans once, also under jit and for what is cut from them."""
    similarity = ab.batched(globals()["similarity"].__wrapped__, in_axes=(None, 0, 0), backend="xla")
    left, right = trees(), trees()[::-1]
    pairs = similarity.pack(left, right)
    expected = similarity(params(), left, right)
    jax.tree.map(close, similarity(params(), *pairs.args), expected)
    plans = similarity.cache_info().plans
    jax.tree.map(close, jax.jit(lambda p, a, b: similarity(p, a, b))(params(), *pairs.args), expected)
    similarity(params(), *pairs[[2, 0]].args)
    assert similarity.cache_info().plans == plans


def test_cutting_arguments_packed_together_cuts_all():
    """`pairs[index]` holds the same examples of each."""
    pairs = similarity.pack(trees(), trees()[::-1])
    left, right = pairs[[2, 1]].args
    assert list(left) == [trees()[2], trees()[1]] and list(right) == [trees()[0], trees()[1]]


def test_one_argument_cut_alone_loses_the_joint_plan():
    """It is a batch of its own: it runs outside jit; under jit beside the other it has no plan."""
    pairs = similarity.pack(trees(), trees()[::-1])
    similarity(params(), *pairs.args)
    left, right = pairs.args[0][[0, 1]], pairs.args[1][[0, 1]]
    jax.tree.map(close, similarity(params(), left, right), similarity(params(), trees()[:2], trees()[::-1][:2]))
    with pytest.raises(ab.PlanError, match=r"similarity\.pack"):
        jax.jit(lambda p, a, b: similarity(p, a, b))(params(), left, right)


# ---- a batch without a plan


def test_a_batch_without_a_plan_is_planned_once_by_the_call():
    """Outside jit the function plans it, and the plan stays on that object."""
    f = ab.batched(scaled.__wrapped__, in_axes=(None, 0), backend="xla")
    data = ab.pack(trees())
    f(params(), data)
    f(params(), data)
    assert f.cache_info().plans == 1
    close(jax.jit(lambda p, b: f(p, b))(params(), data), [2, 4, 10])


def test_a_batch_without_a_plan_under_jit():
    """XLA calls machine code; a back end that was asked for is refused, with the cure: `batch.plan(f)` first."""
    f = ab.batched(scaled.__wrapped__, in_axes=(None, 0))
    close(jax.jit(lambda p, b: f(p, b))(params(), ab.pack(trees())), f(params(), trees()))
    f = ab.batched(scaled.__wrapped__, in_axes=(None, 0), backend="xla")
    with pytest.raises(ab.PlanError, match=r"batch\.plan\(scaled\) first"):
        jax.jit(lambda p, b: f(p, b))(params(), ab.pack(trees()))


def test_a_plan_of_another_function_is_no_reason_to_refuse():
    """A batch planned for one function is a batch like any other for the next."""
    data = total.pack(trees())
    total(params(), data)
    assert depth(data).tolist() == depth.loop(trees())


# ---- indexing and the like


def test_an_int_gives_the_example():
    """Also from the end; past it IndexError."""
    data = ab.pack(trees())
    assert data[1] == trees()[1] and data[-1] == trees()[2] and data[np.int64(0)] == trees()[0]
    with pytest.raises(IndexError):
        data[3]


@pytest.mark.parametrize(
    "index", [[2, 0, 0], (1, 2), np.array([1, -1]), np.array([True, False, True]), slice(None, None, 2), [], range(2)]
)
def test_indices_give_a_batch(index):
    """Integers on the host with repeats, a mask, a slice."""
    cut = ab.pack(trees())[index]
    rows = np.arange(3)[index if isinstance(index, slice) else np.array(index, dtype=None if len(index) else int)]
    assert isinstance(cut, ab.Batch) and list(cut) == [trees()[k] for k in rows]


def test_a_traced_index_is_refused():
    """Which examples a batch holds is known on the host."""
    data = ab.pack(trees())
    for index in (jnp.array([1]), jnp.array(1)):
        with pytest.raises(ab.BatchError, match="traced"):
            jax.jit(lambda i: data[i])(index)


def test_a_batch_has_a_length_and_can_be_iterated():
    """Over its examples, as objects."""
    data = ab.pack(trees())
    assert len(data) == 3 and [t.x for t in data] == [1, 2, 5]


def test_a_batch_tells_its_types_and_size():
    """`schema` names the classes and fields, `nbytes` counts columns and plans."""
    data = ab.pack(trees())
    assert [f.name for f in data.schema.stores[0].fields] == ["x", "left", "right"]
    columns = data.nbytes
    ab.batched(total.__wrapped__, in_axes=(None, 0), backend="xla")(params(), data)
    assert data.nbytes > columns > 0


def test_save_and_load_without_pickle(tmp_path, monkeypatch):
    """What is written holds columns and names of classes, and loading runs no pickle."""
    data = ab.pack([everything(1), everything(2)])
    data.save(tmp_path / "data.npz")
    again = ab.load(tmp_path / "data.npz")
    assert again.schema == data.schema
    assert [e.words for e in again] == [["x"], ["x", "x"]] and again[1].colour is Colour.RED
    assert b"cpickle" not in (raw := (tmp_path / "data.npz").read_bytes()) and b"copyreg" not in raw
    with np.load(tmp_path / "data.npz", allow_pickle=False) as held:
        for name in held.files:
            assert held[name].dtype != object


# ---- as a pytree


def test_the_static_part_is_equal_for_batches_of_one_size_class():
    """Equal treedefs, whatever the examples hold."""
    f = ab.batched(total.__wrapped__, in_axes=(None, 0))
    data = f.pack([chain(n) for n in (5, 4, 3, 5, 4, 3)])
    f(params(), data)
    one, other = data[:3], data[3:]
    assert jax.tree.structure(one) == jax.tree.structure(other)
    assert hash(jax.tree.structure(one)) == hash(jax.tree.structure(other))


def test_the_leaves_are_arrays():
    """Columns, tables and counts: nothing else travels as data."""
    data = total.pack(trees())
    total(params(), data)
    assert all(isinstance(x, (np.ndarray, jax.Array, np.generic)) for x in jax.tree.leaves(data))


def test_the_static_part_does_not_hold_the_examples():
    """Two batches of one size class through one jitted function: each keeps its own examples."""
    data = total.pack([Node(float(k)) for k in range(6)])
    total(params(), data)
    identity = jax.jit(lambda b: b)
    for index in ([0, 1], [4, 5]):
        through = identity(data[index])
        assert [t.x for t in through] == [float(k) for k in index]
        close(total(params(), through), [2.0 * k for k in index])


@pytest.mark.parametrize("through", [jax.jit(lambda b: b), lambda b: jax.tree.map(lambda x: x, b)], ids=["jit", "map"])
def test_a_batch_that_went_through_jax_still_runs(through):
    """It runs with its plan; cutting or planning it fetches the columns first."""
    f = ab.batched(scaled.__wrapped__, in_axes=(None, 0))
    data = total.pack(trees())
    total(params(), data)
    again = through(data)
    plans = total.cache_info().plans
    close(total(params(), again), total.loop(params(), trees()))
    assert total.cache_info().plans == plans
    close(total(params(), again[[2, 0]]), total.loop(params(), [trees()[2], trees()[0]]))
    close(jax.jit(lambda p, b: f(p, b))(params(), again.plan(f)), [2, 4, 10])


# ---- epoch


def test_an_epoch_stacks_minibatches_for_scan():
    """`order[steps, n]`: the steps lead every leaf, and the function takes one slice."""
    examples = [chain(n % 5 + 1) for n in range(12)]
    data = total.pack(examples)
    total(params(), data[:1])
    order = np.random.default_rng(1).permutation(12).reshape(3, 4)
    epoch = data.epoch(order)
    assert {x.shape[0] for x in jax.tree.leaves(epoch)} == {3}
    _, sums = jax.lax.scan(lambda c, b: (c, total(params(), b).sum()), 0, epoch)
    close(sums, [sum(total.loop(params(), [examples[k] for k in row])) for row in order])


# ---- floats


def test_floats_are_a_pytree_for_optimisers():
    """Integers, strings and structure are not in it; `with_floats` puts new numbers in their place."""
    data = ab.pack([everything(1), everything(2)])
    floats = data.floats()
    assert floats and all(jnp.issubdtype(x.dtype, jnp.floating) for x in jax.tree.leaves(floats))
    new = data.with_floats(jax.tree.map(lambda x: x + 1, floats))
    assert [e.real for e in new] == [1.25, 1.5] and [e.number for e in new] == [1, 2]
    assert [e.real for e in data] == [0.25, 0.5], "the batch itself is as it was"


def test_with_floats_works_under_jit():
    """An optimiser's step inside jit: the function sees the new numbers."""
    data = total.pack(trees())
    total(params(), data)
    step = jax.jit(lambda floats, b: total(params(), b.with_floats(jax.tree.map(lambda x: 3 * x, floats))))
    close(step(data.floats(), data), 3 * total(params(), trees()))


def test_a_stale_plan_fails_the_call():
    """A column that decided structure has changed since planning: the error names it and the cure."""
    f = ab.batched(lambda t: t.x * 2 if t.x > 4 else -t.x)
    data = f.pack(trees())
    f(data)
    changed = jax.jit(lambda floats, b: f(b.with_floats(jax.tree.map(lambda x: 10 - x, floats))))
    with pytest.raises(Exception, match=r"stale plan: column Node\.x.*\.plan\(f\)"):
        jax.block_until_ready(changed(data.floats(), data))
        jax.effects_barrier()


def test_the_same_numbers_are_not_stale():
    """What is compared are values: unchanged numbers that went through JAX are fresh."""
    f = ab.batched(lambda t: t.x * 2 if t.x > 4 else -t.x)
    data = f.pack(trees())
    f(data)
    close(jax.jit(lambda floats, b: f(b.with_floats(floats)))(data.floats(), data), [-1, -2, 10])


def test_with_floats_outside_jit_plans_again():
    """There the host knows the new numbers."""
    f = ab.batched(lambda t: t.x * 2 if t.x > 4 else -t.x)
    data = f.pack(trees())
    f(data)
    close(f(data.with_floats(jax.tree.map(lambda x: 8 - x, data.floats()))), [14, 12, -3])


# ---- identity


class Box:
    def __init__(self, held: Any) -> None:
        self.held = held


@dataclass
class Two:
    a: Any
    b: Any


@pytest.mark.parametrize("make", [lambda: Box(1.0), lambda: [1.0], lambda: {"k": 1.0}], ids=["object", "list", "dict"])
def test_objects_lists_and_dicts_keep_identity_within_one_example(make):
    """The same object under two names is one again, and `is` says so inside the function."""
    shared = make()
    same, different = ab.pack([Two(shared, shared), Two(make(), make())])
    assert same.a is same.b and different.a is not different.b
    f = ab.batched(lambda q: q.a is q.b)
    assert f([Two(shared, shared), Two(make(), make())]).tolist() == [True, False]


def test_identity_is_never_kept_across_examples():
    """The same object in two examples is two objects."""
    shared = Node(1.0)
    one, two = ab.pack([Two(shared, shared), Two(shared, shared)])
    assert one.a is not two.a
    data = ab.pack([shared, shared])
    assert len(data.floats()["Node.x"]) == 2, "two rows, so two derivatives"


def test_numbers_strings_arrays_and_tuples_are_values():
    """They are compared and stored by what they hold: no row is shared because it was one object."""
    array = np.arange(2.0)
    data = ab.pack([Two(array, array), Two(array, np.arange(2.0))])
    close(ab.batched(lambda q: q.a + q.b)(data), [[0, 2], [0, 2]])
    pair = (1.0, 2.0)
    f = ab.batched(lambda q: q.a[0] + q.b[1])
    close(f([Two(pair, pair), Two((1.0, 2.0), pair)]), [3, 3])
    g = ab.batched(lambda q: q.a == q.b)
    assert g([Two("x", "x"), Two("x", "y")]).tolist() == [True, False]
    assert g([Two(1, 1), Two(1, 2)]).tolist() == [True, False]
