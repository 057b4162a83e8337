"""Several batched arguments: packed apart or together, lists and arrays beside them, cut, saved, under jit."""

import gc
import weakref
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autobatch as ab
from tests.api.nodes import Node, chain, close, params, total, trees


def _similarity():
    """A function of its own for each test: what one has compiled and planned is none of another's."""

    @ab.batched(in_axes=(None, 0, 0))
    def similarity(p, a, b):
        return total(p, a) - total(p, b), a.x * b.x

    return similarity


LEFT, RIGHT = trees(), [chain(3), Node(2.0), chain(5)]


def same(found, expected):
    jax.tree.map(close, found, tuple(np.array(column) for column in zip(*expected, strict=True)))


# ---- packed apart


def test_batches_packed_apart_are_planned_together_once():
    sim = _similarity()
    left, right = ab.pack(LEFT), ab.pack(RIGHT)
    expected = sim.loop(params(), LEFT, RIGHT)
    same(sim(params(), left, right), expected)
    plans = sim.cache_info().plans
    for _ in range(3):
        same(sim(params(), left, right), expected)
    assert sim.cache_info().plans == plans
    same(sim(params(), right, left), sim.loop(params(), RIGHT, LEFT))
    assert sim.cache_info().specialisations == 1, "the types of both orders are the same"


def test_packed_apart_or_together_is_one_program():
    sim = _similarity().with_settings(backend="xla")
    same(sim(params(), LEFT, RIGHT), sim.loop(params(), LEFT, RIGHT))
    sim(params(), ab.pack(LEFT), ab.pack(RIGHT))
    sim(params(), *sim.pack(ab.pack(LEFT), ab.pack(RIGHT)).args)
    sim(params(), *sim.pack(LEFT, ab.pack(RIGHT)).args)
    assert sim.cache_info().specialisations == 1


def test_minibatches_with_equal_indices_are_cut_from_the_whole():
    sim = _similarity().with_settings(backend="xla")
    left, right = ab.pack(LEFT), ab.pack(RIGHT)
    sim(params(), left, right)
    plans = sim.cache_info().plans
    for index in ([0], [2, 1], [1, 1, 0]):
        expected = sim.loop(params(), [LEFT[k] for k in index], [RIGHT[k] for k in index])
        same(sim(params(), left[index], right[index]), expected)
    assert sim.cache_info().plans == plans
    same(sim(params(), left[[0, 1]], right[[2, 0]]), sim.loop(params(), LEFT[:2], [RIGHT[2], RIGHT[0]]))
    assert sim.cache_info().plans == plans + 1, "other pairs than those that are planned"


def test_data_sets_that_are_planned_for_a_function_are_planned_as_a_whole():
    sim = _similarity().with_settings(backend="xla")
    left, right = ab.pack(LEFT).plan(sim), ab.pack(RIGHT).plan(sim)
    for index in ([0], [1, 2], [2]):
        expected = sim.loop(params(), [LEFT[k] for k in index], [RIGHT[k] for k in index])
        same(sim(params(), left[index], right[index]), expected)
    assert sim.cache_info().plans == 1


def test_the_plan_of_two_batches_lives_as_long_as_both():
    sim = _similarity()
    left, right = ab.pack(LEFT), ab.pack(RIGHT)
    sim(params(), left, right)
    kept = weakref.ref(next(iter(left.on_host.joined.items()))[1][0])
    held = left.nbytes
    assert kept() is not None
    del right
    gc.collect()
    assert kept() is None and left.nbytes < held
    gone = weakref.ref(left.on_host)
    del left
    gc.collect()
    assert gone() is None


def test_what_a_batch_keeps_is_bounded():
    sim = _similarity()
    left, others = ab.pack(LEFT), [ab.pack(RIGHT) for _ in range(20)]
    for right in others:
        sim(params(), left, right)
    assert len(left.on_host.joined) <= 8


def test_one_batch_twice():
    sim = _similarity()
    data = ab.pack(LEFT)
    same(sim(params(), data, data), sim.loop(params(), LEFT, LEFT))
    same(sim(params(), data[::-1], data), sim.loop(params(), LEFT[::-1], LEFT))
    pairs = sim.pack(LEFT, RIGHT)
    same(sim(params(), *pairs.args[::-1]), sim.loop(params(), RIGHT, LEFT))
    same(sim(params(), pairs.args[0], pairs.args[0]), sim.loop(params(), LEFT, LEFT))
    same(sim(params(), pairs[:2].args[0], pairs[1:].args[1]), sim.loop(params(), LEFT[:2], RIGHT[1:]))


def test_a_batch_beside_a_list():
    sim = _similarity()
    left = ab.pack(LEFT)
    for _ in range(2):
        same(sim(params(), left, RIGHT), sim.loop(params(), LEFT, RIGHT))
        same(sim(params(), RIGHT, left), sim.loop(params(), RIGHT, LEFT))
    changed = [Node(1.0), Node(1.0), Node(1.0)]
    sim(params(), left, changed)
    changed[0].x = 7.0
    same(sim(params(), left, changed), sim.loop(params(), LEFT, changed))
    same(sim(params(), left[1:], RIGHT[1:]), sim.loop(params(), LEFT[1:], RIGHT[1:]))


def test_batches_and_lists_of_no_examples():
    sim = _similarity()
    left, right = ab.pack(LEFT), ab.pack(RIGHT)
    sim(params(), left, right)
    for a, b in ((left[[]], right[[]]), (left[[]], []), ([], [])):
        assert [x.shape for x in sim(params(), a, b)] == [(0,), (0,)]


def test_batches_of_one():
    sim = _similarity()
    same(sim(params(), ab.pack(LEFT[:1]), ab.pack(RIGHT[:1])), sim.loop(params(), LEFT[:1], RIGHT[:1]))


def test_arguments_of_other_types():
    @ab.batched
    def f(words, t, label, pair):
        return sum(words) + t.x, label, pair[0] * len(words)

    words, nodes, labels, pairs = [[1, 2], [3], []], trees(), ["a", None, "b"], [(1, "x"), (2, "y"), (3, "z")]
    expected = f.loop(words, nodes, labels, pairs)
    packed = [ab.pack(words), ab.pack(nodes), ab.pack(labels), ab.pack(pairs)]
    assert ab.unbatch(f(*packed)) == ab.unbatch(f(words, nodes, labels, pairs)) == expected
    together = f.pack(*packed)
    assert list(together) == list(zip(words, nodes, labels, pairs, strict=True))
    assert together[1] == ([3], nodes[1], None, (2, "y")) and type(together[1]) is tuple
    assert ab.unbatch(f(*together[[2, 0]].args)) == [expected[2], expected[0]]


def test_tuples_in_the_arguments_are_no_arguments():
    f = ab.batched(lambda a, b: (a[0] + b[0], a[1] * len(b[1])))
    left, right = [(1, 2), (3, 4)], [(5.0, [1, 2]), (6.0, [3])]
    assert ab.unbatch(f(left, right)) == ab.unbatch(f(ab.pack(left), ab.pack(right))) == f.loop(left, right)


def test_words_of_two_batches_are_counted_together():
    f = ab.batched(lambda p, a, b: (p[a] + p[b], a == b), in_axes=(None, 0, 0))
    p = {"cat": 1.0, "dog": 2.0, "emu": 3.0}
    left, right = ["cat", "dog"], ["emu", "dog"]
    assert ab.unbatch(f(p, ab.pack(left), ab.pack(right))) == f.loop(p, left, right) == [(4.0, False), (4.0, True)]


def test_a_container_of_batches():
    f = ab.batched(lambda pair: pair[0].x - pair[1].x)
    assert f((ab.pack(LEFT), ab.pack(RIGHT))).tolist() == [a.x - b.x for a, b in zip(LEFT, RIGHT, strict=True)]


def test_examples_that_show_less_run_on_the_program_that_is_there():
    sim = _similarity()
    sim(params(), LEFT, RIGHT)
    leaves = [Node(1.0), Node(2.0)]
    same(sim(params(), ab.pack(leaves), ab.pack(leaves)), sim.loop(params(), leaves, leaves))
    assert sim.cache_info().specialisations == 1


def test_types_that_disagree_are_an_error():
    @ab.batched
    def f(a, b):
        return a.x + b.x

    with pytest.raises(ab.BatchError, match="disagree on a type"):
        f(ab.pack([Node(np.zeros(2))]), ab.pack([Node("a")]))


def test_sizes_must_agree():
    sim = _similarity()
    with pytest.raises(ab.BatchError, match="differ in their number of examples"):
        sim(params(), ab.pack(LEFT), ab.pack(RIGHT[:2]))


def test_results_of_one_function_are_arguments_of_another():
    lower = ab.batched(lambda t: t.left)
    f = ab.batched(lambda a, b: a.x * b.x)
    inner, right = lower(trees()[1:]), ab.pack(RIGHT[1:])
    for _ in range(2):
        close(f(inner, right), [3 * 2, 6 * 5])


SIM, POOL = _similarity(), [chain(n) for n in (1, 2, 4, 5)] + trees()
WHOLE = [ab.pack(POOL), ab.pack(POOL[::-1]), ab.pack(POOL).plan(SIM)]


@settings(max_examples=12, deadline=None)
@given(st.data(), st.lists(st.integers(0, 6), min_size=1, max_size=3))
def test_however_two_arguments_are_given(data, index):
    """Lists, batches, and cuts of batches by the same or other indices, in every combination."""

    def argument():
        kind = data.draw(st.sampled_from(["list", "packed", "cut", "reversed", "planned", "through jit"]))
        chosen = data.draw(st.sampled_from([index, index[::-1]]))
        nodes = [(POOL[::-1] if kind == "reversed" else POOL)[k] for k in chosen]
        match kind:
            case "list":
                return nodes, nodes
            case "packed":
                return nodes, ab.pack(nodes)
            case "through jit":
                return nodes, jax.tree.map(lambda x: x, WHOLE[0][chosen])
            case _:
                return nodes, WHOLE[["cut", "reversed", "planned"].index(kind)][chosen]

    (left, a), (right, b) = argument(), argument()
    same(SIM(params(), a, b), SIM.loop(params(), left, right))


# ---- packed together


def test_components_alone_are_examples_of_other_functions():
    sim = _similarity()
    pairs = sim.pack(LEFT, RIGHT)
    close(total(params(), pairs.args[1]), total.loop(params(), RIGHT))
    close(total(params(), pairs.args[0][[2, 0]]), total.loop(params(), [LEFT[2], LEFT[0]]))
    cut = pairs[[2, 1]]
    close(total(params(), cut.args[0]), total.loop(params(), [LEFT[2], LEFT[1]]))
    assert list(cut.args[1]) == [RIGHT[2], RIGHT[1]] and cut.args[1][0] == RIGHT[2]


def test_pairs_as_one_argument_are_tuples():
    sim = _similarity()
    pairs = sim.pack(LEFT, RIGHT)
    first = ab.batched(lambda pair: pair[0].x - pair[1].x, backend="xla")
    difference = ab.batched(lambda pair: (lambda a, b: a.x - b.x)(*pair))
    expected = [a.x - b.x for a, b in zip(LEFT, RIGHT, strict=True)]
    assert first(pairs).tolist() == difference(pairs).tolist() == expected
    assert first(pairs[1:]).tolist() == expected[1:]
    ab.pack([(a, b) for a, b in zip(LEFT, RIGHT, strict=True)])
    assert first([(a, b) for a, b in zip(LEFT, RIGHT, strict=True)]).tolist() == expected
    assert first.cache_info().specialisations == 1


def test_an_object_in_two_arguments_is_one():
    sim = _similarity()
    pairs = sim.pack(LEFT, LEFT)
    a, b = pairs[1]
    assert a is b


class Pair(NamedTuple):
    a: object
    b: object


def test_an_argument_that_is_a_container_of_batches():
    sim = ab.batched(lambda p, pair: total(p, pair.a) - pair.b.x, in_axes=(None, 0))
    pairs = sim.pack(Pair(ab.pack(LEFT), RIGHT))
    expected = sim.loop(params(), Pair(LEFT, RIGHT))
    close(sim(params(), Pair(*pairs.args)), expected)
    close(sim(params(), Pair(ab.pack(LEFT), ab.pack(RIGHT))), expected)


# ---- under jit


def test_arguments_packed_together_work_under_jit():
    sim = _similarity()
    pairs = sim.pack(ab.pack(LEFT), RIGHT)
    step = jax.jit(lambda p, a, b: sim(p, a, b))
    whole = jax.jit(lambda p, pairs: sim(p, *pairs.args))
    for index in ([0, 1], [2, 1], [1, 1]):
        expected = sim.loop(params(), [LEFT[k] for k in index], [RIGHT[k] for k in index])
        same(step(params(), *pairs[index].args), expected)
        same(whole(params(), pairs[index]), expected)


def test_packed_apart_under_jit_is_refused():
    sim = _similarity()
    left, right = ab.pack(LEFT), ab.pack(RIGHT)
    with pytest.raises(ab.PlanError, match=r"packed apart.*pairs = similarity\.pack\(a, b\)"):
        jax.jit(sim)(params(), left, right)
    with pytest.raises(ab.PlanError, match=r"pairs = similarity\.pack\(a, b\)"):
        jax.jit(lambda p, a: sim(p, a, RIGHT))(params(), left)
    pairs = sim.pack(LEFT, RIGHT)
    with pytest.raises(ab.PlanError, match="packed apart"):
        jax.jit(sim)(params(), *pairs.args[::-1])
    with pytest.raises(ab.PlanError, match="packed apart"):
        jax.jit(sim)(params(), pairs.args[0][[0, 1, 2]], pairs.args[1])


def test_arguments_of_other_pairs_under_jit_fail():
    sim = _similarity()
    pairs, others = sim.pack(LEFT, LEFT), sim.pack(LEFT, LEFT[::-1])
    sim(params(), *pairs.args), sim(params(), *others.args)
    same(sim(params(), pairs.args[0], others.args[1]), sim.loop(params(), LEFT, LEFT[::-1]))
    step = jax.jit(lambda p, a, b: sim(p, a, b))
    step(params(), *pairs.args)
    with pytest.raises(Exception, match="not packed together"):
        jax.block_until_ready(step(params(), pairs.args[0], others.args[1]))
        jax.effects_barrier()


def test_floats_of_one_argument_changed_under_jit_fail():
    sim = _similarity()
    pairs = sim.pack(LEFT, RIGHT)
    sim(params(), *pairs.args)
    floats = jax.tree.map(lambda x: 2 * x, pairs.floats())
    with pytest.raises(ab.PlanError, match=r"pairs\.with_floats"):
        jax.jit(lambda f, a, b: sim(params(), a.with_floats(f), b))(floats, *pairs.args)
    whole = jax.jit(lambda f, pairs: sim(params(), *pairs.with_floats(f).args))(floats, pairs)
    expected = sim(params(), *pairs.with_floats(floats).args)
    jax.tree.map(close, whole, expected)
    assert float(expected[1][0]) == 4 * LEFT[0].x * RIGHT[0].x


def test_floats_of_one_argument_changed_outside_jit():
    sim = _similarity()
    pairs = sim.pack(LEFT, RIGHT)
    a, b = pairs.args
    doubled = a.with_floats(jax.tree.map(lambda x: 2 * x, a.floats()))
    close(sim(params(), doubled, b)[1], [2 * a.x * b.x for a, b in zip(LEFT, RIGHT, strict=True)])


# ---- arrays beside batches


def test_each_argument_has_its_gradient_under_jit():
    """A plain function of arguments that were packed together: copies of one array, each with its own rows."""
    sim = _similarity()
    pairs = sim.pack(LEFT, RIGHT)
    weights = jnp.arange(1.0, 4.0)

    def value(a, b):
        return (sim(params(), a, b)[1] * weights).sum()

    left, right = jax.jit(lambda a, b: ab.grad(value, argnums=(0, 1))(a, b))(*pairs.args)
    for found, other in ((left, RIGHT), (right, LEFT)):
        np.testing.assert_allclose([t.x for t in ab.unbatch(found)], weights * np.array([t.x for t in other]))


def test_an_array_beside_batches():
    f = ab.batched(lambda p, t, y: (p["w"] * t.x - y) ** 2, in_axes=(None, 0, 0))
    data, ys = ab.pack(LEFT), np.arange(3, dtype=np.float32)
    expected = f.loop(params(), LEFT, ys)
    close(f(params(), data, ys), expected)
    close(f(params(), data, jnp.asarray(ys)), expected)
    planned = data.plan(f)
    step = jax.jit(lambda p, b, y: f(p, b, y))
    close(step(params(), planned, ys), expected)
    for index in ([0, 2], [1, 1]):
        close(step(params(), planned[index], ys[index]), [expected[k] for k in index])


def test_an_array_beside_batches_of_other_sizes_under_jit():
    f = ab.batched(lambda p, t, y: total(p, t) - y, in_axes=(None, 0, 0))
    examples, ys = [chain(n) for n in (1, 2, 60, 61)], np.arange(4, dtype=np.float32)
    data, step = ab.pack(examples).plan(f), jax.jit(f)
    expected = np.array(f.loop(params(), examples, ys))
    for index in ([0, 1], [2, 3], [1, 2]):
        close(step(params(), data[index], ys[index]), expected[index])
    epoch, rows = data.epoch([[0, 1], [3, 2]]), jnp.array([[0.0, 1.0], [3.0, 2.0]])
    close(jax.lax.scan(lambda c, x: (c, f(params(), *x)), 0, (epoch, rows))[1], expected[[[0, 1], [3, 2]]])


def test_gradients_of_an_array_beside_a_batch():
    f = ab.batched(lambda p, t, y: (p["w"] * t.x - y) ** 2, in_axes=(None, 0, 0))
    data, ys = ab.pack(LEFT).plan(f), jnp.arange(3.0)
    f(params(), data, ys)
    found = jax.jit(jax.grad(lambda y, b: f(params(), b, y).sum()))(ys, data)
    close(found, [-2 * (2 * t.x - y) for t, y in zip(LEFT, ys, strict=True)])


def test_an_array_of_integers_beside_a_batch():
    f = ab.batched(lambda t, k: t.x * sum(range(k)))
    data, ks = ab.pack(LEFT).plan(f), np.array([3, 1, 2])
    close(f(data, ks), f.loop(LEFT, ks))
    close(f(data[1:], ks[1:]), f.loop(LEFT[1:], ks[1:]))
    close(f(data, ab.pack([3, 1, 2])), f.loop(LEFT, ks))
    close(jax.jit(f)(data, ks), f.loop(LEFT, ks))


def test_arrays_two_batches_and_stacked_lists():
    f = ab.batched(lambda a, y, b, z: a.x * y[0] + b.x * z[0] + z[1])
    left, right, ys = ab.pack(LEFT), ab.pack(RIGHT), np.arange(6.0).reshape(3, 2)
    zs = ab.stacked([np.arange(3.0), np.ones(3)])
    expected = f.loop(LEFT, ys, RIGHT, zs)
    close(f(left, ys, right, zs), expected)
    pairs = ab.batched(lambda a, b: 0.0).pack(left, right).plan(f)
    a, b = pairs.args
    close(f(a, ys, b, zs), expected)
    close(jax.jit(lambda a, y, b: f(a, y, b, zs))(a, ys, b), expected)
    cut = pairs[[2, 0]].args
    close(f(cut[0], ys[[2, 0]], cut[1], ab.stacked([np.array([2.0, 0.0]), np.ones(2)])), [expected[2], expected[0]])


# ---- files


def test_arguments_packed_together_in_a_file(tmp_path):
    sim = _similarity()
    pairs = sim.pack(LEFT, RIGHT)
    expected = sim.loop(params(), LEFT, RIGHT)
    through = jax.jit(lambda b: b)(pairs)
    for k, batch in enumerate((pairs, pairs[[2, 0]], through, pairs.args[1])):
        batch.save(tmp_path / f"{k}.npz")
    again = ab.load(tmp_path / "0.npz")
    assert list(again) == list(pairs)
    same(sim(params(), *again.args), expected)
    same(sim(params(), *again[1:].args), expected[1:])
    same(sim(params(), *ab.load(tmp_path / "1.npz").args), [expected[2], expected[0]])
    same(sim(params(), *ab.load(tmp_path / "2.npz").args), expected)
    assert list(ab.load(tmp_path / "3.npz")) == RIGHT
    assert sim.cache_info().specialisations == 1
    same(jax.jit(lambda b: sim(params(), *b.args))(again.plan(sim)), expected)


# ---- lists that are empty in all examples


def test_what_empty_lists_hold_is_known_from_annotations_and_earlier_calls():
    @ab.batched
    def declared(a: list[int], b: list[float]):
        return len(a) + sum(b)

    for a, b in (([[]], [[]]), (ab.pack([[]]), [[]]), (ab.pack([[]]), ab.pack([[]])), ([[]], ab.pack([[2.0]]))):
        assert declared(a, b).tolist() == [float(sum(b[0]))]
    assert declared(*declared.pack(ab.pack([[]]), [[]]).args).tolist() == [0]

    @ab.batched
    def one(words: list[int]):
        return sum(words)

    assert one(ab.pack([[], []])).tolist() == [0, 0]
    plain = ab.batched(lambda a, b: len(a) + len(b))
    with pytest.raises(ab.BatchError, match="the lists a are empty in all examples"):
        plain(ab.pack([[]]), ab.pack([[1]]))
    plain([[1]], [[1]])
    assert plain(ab.pack([[]]), ab.pack([[1]])).tolist() == [1]
    assert plain(ab.pack([[]]).plan(plain), [[]]).tolist() == [0]


def test_an_annotation_of_one_of_several_arguments_says_what_its_empty_lists_hold():
    @ab.batched(in_axes=(0, 0, 0, None))
    def one_declared(a, b: list[list[float]], c: Any, w):
        return a + len(b) * w + sum(c)

    for examples in (([1.5, 2.0], [[], []], [[1], [2]]), ([1.5, 2.0], [[], [[1.0]]], [[1], []])):
        assert one_declared(*examples, 3.0).tolist() == [float(x) for x in one_declared.loop(*examples, 3.0)]


def test_one_of_several_arguments_is_planned_alone():
    sim = _similarity()
    pairs = sim.pack(LEFT, RIGHT)
    total(params(), RIGHT)
    with pytest.raises(ab.PlanError, match=r"pairs\.args\[k\]\.plan\(total\)"):
        jax.jit(total)(params(), pairs.args[1])
    alone = pairs.args[1].plan(total)
    expected = total.loop(params(), RIGHT)
    close(jax.jit(total)(params(), alone), expected)
    close(jax.jit(total)(params(), alone[[2, 0]]), [expected[2], expected[0]])
