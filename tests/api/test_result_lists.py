"""Lists as results: of strings, objects, None, containers; written out, and mixtures."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from tests.api.structures import Color, Found, Pair, Tree, agrees, same, trees, words


def ragged(result):
    assert isinstance(result, ab.Ragged)
    return result


def test_strings_and_enums():
    out = ragged(agrees(lambda w: ["odd" if x % 2 else "even" for x in w], words()))
    assert isinstance(out.values, ab.Batch)
    assert out[0].to_list() == ["odd", "odd"] and out.to_list()[2] == []
    ragged(agrees(lambda w: [Color.RED if x % 2 else Color.BLUE for x in w], words()))
    ragged(agrees(lambda w: ["same" for x in w], words()))
    ragged(agrees(lambda t: [k.name for k in t.kids], trees()))
    ragged(agrees(lambda t: [t.name, "q"], trees()))


def test_lists_of_lists():
    out = ragged(agrees(lambda w: [["o" if y % 2 else "e" for y in range(x)] for x in w], words()))
    assert isinstance(out.values, ab.Ragged)
    ragged(agrees(lambda w: [[Found(None, y * 0.5, "x") for y in range(x)] for x in w], words()))
    ragged(agrees(lambda w: [[x, x + 1] for x in w], words()))
    ragged(agrees(lambda w: [[[y] for y in range(x)] for x in w], words()))
    ragged(agrees(lambda t: [[k.name, "q"] for k in t.kids], trees()))


def test_objects_made_for_each_element():
    out = ragged(agrees(lambda w: [Found(None, x * 0.5, "x") for x in w], words()))
    assert isinstance(out.values, ab.Batch)
    ragged(agrees(lambda w: [(x, "a" if x > 2 else "b") for x in w], words()))
    ragged(agrees(lambda w: [{"a": x, "b": Pair(x, x * 0.5)} for x in w], words()))


def test_nodes_of_the_examples():
    ragged(agrees(lambda t: [k for k in t.kids], trees()))  # noqa: C416
    ragged(agrees(lambda t: t.kids, trees()))
    ragged(agrees(lambda t: [t, t.left], trees()))
    ragged(agrees(lambda t: [Found(k, k.x * 0.5, k.name) for k in t.kids], trees()))


def test_the_argument_itself():
    ragged(agrees(lambda w: w, words()))
    ragged(agrees(lambda w: w, [[np.ones(2), np.zeros(2)], [np.ones(2)]]))
    out = ab.batched(lambda w: (w, len(w)))([["a"], ["b", "c"]])
    assert ab.unbatch(out) == [(["a"], 1), (["b", "c"], 2)]


def test_elements_that_are_one_object_stay_so():
    first, second, third = ab.unbatch(ab.batched(lambda t: [t, t, t.left])(trees()))[1]
    assert first is second and first.left is third
    made = ab.unbatch(ab.batched(lambda t: [Found(t, 1.0), Found(t, 2.0)])(trees()))[1]
    assert made[0].node is made[1].node and made[0] is not made[1]


def test_none_among_the_elements():
    ragged(agrees(lambda w: [None if x > 2 else x for x in w], words()))
    ragged(agrees(lambda w: [None if x > 2 else "a" for x in w], words()))
    ragged(agrees(lambda w: [None if x > 2 else Found(None, x * 1.0) for x in w], words()))
    ragged(agrees(lambda w: [None if x > 2 else (x, [x]) for x in w], words()))
    ragged(agrees(lambda w: [None if x > 2 else jnp.ones(2) * x for x in w], words()))
    ragged(agrees(lambda w: [1, None, len(w)], words()))


def test_elements_of_several_types_stand_side_by_side():
    """A list that is written out and whose elements have no one type is a Batch of lists."""
    for f in (
        lambda t: [t.x, jnp.ones(3) * t.x],
        lambda t: [1, "a", None],
        lambda t: [t, 2, "q"],
        lambda t: [(1, 2), [t.x]],
    ):
        assert isinstance(agrees(f, trees()), ab.Batch)


def test_numbers_of_one_shape_take_one_type():
    out = agrees(lambda t: [1, 2.5, t.x], trees())
    assert isinstance(out, ab.Ragged) and out.values.dtype == jnp.float32
    assert isinstance(agrees(lambda t: [(1, t.x), (2.5, 1)], trees()), ab.Ragged)


def test_a_list_of_objects_goes_to_another_function():
    found = ab.batched(lambda t: [Found(k, k.x * 2, k.name) for k in t.kids])(trees())
    twice = ab.batched(lambda f: f.value + f.node.x)
    count = int(found.offsets[-1])
    assert twice(found.values)[:count].tolist() == [4.5, 7.5]
    assert twice(found.values[1:2]).tolist() == [7.5]
    names = ab.batched(lambda f: f.name == "z")(found.values)
    assert names[:count].tolist() == [False, True]


def test_mixtures_go_to_another_function():
    made = ab.batched(lambda t: [t.x, "a" if t.left is None else "b", t])(trees())
    out = ab.batched(lambda m: (m[0] + m[2].x, m[1] == "a"))(made)
    assert out[0].tolist() == [2, 4, 10] and out[1].tolist() == [True, False, False]


def test_ragged_is_a_batched_argument():
    doubled = ab.batched(lambda w: [x * 2 for x in w])
    total = ab.batched(lambda w: sum(w))
    assert total(doubled(words()[:2])).tolist() == [8, 4]
    named = ab.batched(lambda w: ["o" if x % 2 else "e" for x in w])(words())
    odd = ab.batched(lambda names: sum(1 for n in names if n == "o"))
    assert odd(named).tolist() == [2, 0, 0, 1]


def test_under_jit_a_list_of_strings_keeps_its_structure():
    f = ab.batched(lambda w: ["odd" if x % 2 else "even" for x in w], backend="xla")
    data = ab.pack(words()).plan(f)
    outside, inside = f(data), jax.jit(f)(data)
    assert jax.tree.structure(outside) == jax.tree.structure(inside)
    same(inside.to_list(), outside.to_list())


def test_padding_takes_numbers_only():
    with pytest.raises(ab.BatchError, match="only numbers are padded"):
        ab.batched(lambda t: [k.name for k in t.kids])(trees()).to_padded()


def test_empty_batch_of_lists_of_objects():
    f = ab.batched(lambda t: [Found(k, 1.0) for k in t.kids])
    f(trees())
    assert ab.unbatch(f(ab.pack(trees())[[]])) == []


def test_objects_hold_lists():
    for f in (
        lambda t: Found([k.x for k in t.kids], t.x),
        lambda t: Found([k.name for k in t.kids], t.x),
        lambda t: Found([Found(k, k.x) for k in t.kids], t.x),
        lambda t: Found([[k.x, k.x] for k in t.kids], t.x),
        lambda t: Found([[Tree(k.x)] for k in t.kids], t.x),
        lambda t: Found([(k.x, k) for k in t.kids], t.x),
        lambda t: Found([(1, t.x), (2, 2.5)], t.x),
        lambda t: Found([None if k.x > 2 else k.x for k in t.kids], t.x),
        lambda t: Found([1, "a", None], t.x),
        lambda t: Found(t.kids, t.x),
        lambda t: Found([], t.x),
    ):
        assert isinstance(agrees(f, trees()), ab.Batch)
