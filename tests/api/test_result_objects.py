"""Objects as results: recursion that builds, several classes, nodes of the examples beside them, None."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from tests.api.nodes import close
from tests.api.structures import Add, Found, Leaf, Pair, Tree, agrees, same, trees


@ab.batched
def doubled(t):
    return Tree(t.x * 2, doubled(t.left) if t.left else None, doubled(t.right) if t.right else None, t.name)


@ab.batched
def relabelled(t):
    if t.left is None:
        return t
    return Tree(t.x + 100, relabelled(t.left), relabelled(t.right))


@ab.batched
def total(t):
    s = t.x
    if t.left:
        s = s + total(t.left)
    if t.right:
        s = s + total(t.right)
    return s


def batch(result):
    assert isinstance(result, ab.Batch)
    return result


def test_recursion_builds_a_tree():
    batch(agrees(doubled, trees()))

    @ab.batched
    def kids(t):
        return Tree(t.x * 2, kids=[kids(k) for k in t.kids])

    batch(agrees(kids, trees()))

    @ab.batched
    def as_tuple(t):
        return (t.x, as_tuple(t.left) if t.left else None, as_tuple(t.right) if t.right else None)

    batch(agrees(as_tuple, trees()))

    @ab.batched
    def as_dict(t):
        return {"x": t.x, "kids": [as_dict(k) for k in t.kids]}

    batch(agrees(as_dict, trees()))

    @ab.batched
    def as_list(t):
        return [t.x, [as_list(k) for k in t.kids]]

    agrees(as_list, trees())


def test_numbers_of_a_tree_that_is_built_may_depend_on_each_other():
    @ab.batched(in_axes=(None, 0))
    def states(w, t):
        """Each node with the sum below it, and a vector."""
        if t.left is None:
            return Tree(t.x * w), t.x
        left, a = states(w, t.left)
        right, b = states(w, t.right)
        return Tree((a + b) * w, left, right), a + b + t.x

    out = agrees(states, trees(), jnp.float32(2.0))
    assert isinstance(out, tuple) and isinstance(out[0], ab.Batch)

    @ab.batched
    def vectors(t):
        h = jnp.ones(3) * t.x
        return Pair(h, [vectors(k) for k in t.kids])

    batch(agrees(vectors, trees()))


def test_nodes_of_the_examples_beside_made_ones():
    out = batch(agrees(relabelled, trees()))
    batch(agrees(lambda t: t if t.left else Tree(t.x + 1), trees()))
    batch(agrees(lambda t: (t.x, t if t.left else Found(t, t.x))[1], trees()))
    close(total(out), [1, 109, 235])


def test_objects_of_several_classes():
    batch(agrees(lambda t: Found(t, t.x) if t.left else Leaf(t.x), trees()))
    batch(agrees(lambda t: Found(t, t.x) if t.left else Pair(t.x, 2), trees()))
    batch(agrees(lambda t: Leaf(t.x) if t.left else None, trees()))

    @ab.batched
    def derived(t):
        if t.left is None:
            return Leaf(t.x)
        return Add(derived(t.left), Add(derived(t.right), Leaf(0.0)))

    out = batch(agrees(derived, trees()))

    @ab.batched
    def value(e):
        if isinstance(e, Leaf):
            return e.value
        return value(e.a) + value(e.b)

    close(value(out), [1, 7, 24])
    batch(agrees(lambda t: [Found(t, 1.0) if k.x > 2 else Leaf(k.x) for k in t.kids], trees()).values)


def test_fields_of_every_kind():
    @dataclass
    class Holder:
        items: object
        pair: object
        table: object
        array: object
        maybe: object
        same: object = None

    for f in (
        lambda t: Holder([k.x * 2 for k in t.kids], (t.x, t.name), {"k": t.x}, jnp.ones(3), t.x if t.left else None),
        lambda t: Holder([], (), {}, None, Found(t.left, t.x) if t.left else None, t),
        lambda t: Holder(t.kids, (t, None), {"a": [t.x]}, np.float32(1), None if t.left else (t.x, "q")),
    ):
        batch(agrees(f, trees()))


def test_what_is_one_object_stays_one():
    def twice(t):
        f = Found(t, t.x)
        return Found((f, f), 1.0, t.name), f

    out = ab.unbatch(ab.batched(lambda t: twice(t)[0])(trees()))
    assert all(o.node[0] is o.node[1] for o in out)
    leaf = Tree(3.0)
    by_xla = ab.batched(doubled.__wrapped__, backend="xla")  # equal calls are one
    (made,) = ab.unbatch(by_xla([Tree(1.0, leaf, leaf)]))
    same(made, doubled.example(Tree(1.0, leaf, leaf)))
    assert made.left is made.right
    (kept,) = ab.unbatch(ab.batched(relabelled.__wrapped__, backend="xla")([Tree(1.0, leaf, leaf)]))
    assert kept.left is kept.right
    (pair,) = ab.unbatch(ab.batched(lambda t: Found((Leaf(1.0), Leaf(1.0)), t.x))([leaf]))
    assert pair.node[0] is not pair.node[1]


def test_none_beside_a_container():
    for f in (
        lambda t: None if t.left is None else (t.x, t.left.x),
        lambda t: None if t.left is None else {"a": t.x, "b": (t.name, None)},
        lambda t: None if t.left is None else [k.x for k in t.kids],
        lambda t: None if t.left is None else [k.name for k in t.kids],
        lambda t: None if t.left is None else jnp.ones(2) * t.x,
        lambda t: None if t.left is None else Found(t.left, t.x),
        lambda t: None if t.left is None else ((t.x, 1), [t.name]),
    ):
        batch(agrees(f, trees()))
    out = agrees(lambda t: (None, 3) if t.left is None else ((t.x, t.name), 3), trees())
    assert isinstance(out, tuple) and isinstance(out[0], ab.Batch) and out[1].tolist() == [3, 3, 3]


def test_none_by_falling_off_the_end():
    def only(t):
        if isinstance(t, Leaf):
            return 1.0

    assert ab.batched(only)([Add(1, 2)]) is None
    batch(agrees(only, [Leaf(1.0), Add(1, 2)]))

    def matched(t):
        match t:
            case Leaf(value=v):
                return v

    batch(agrees(matched, [Leaf(1.0), Add(1, 2)]))


def test_a_made_tree_goes_to_another_function():
    for f in (doubled, relabelled):
        made = f(trees())
        expected = [total.example(t) for t in f.loop(trees())]
        close(total(made), expected)
        close(total(made[[2, 0]]), [expected[2], expected[0]])
        close(total(f(made)), [total.example(t) for t in f.loop(f.loop(trees()))])
        data = ab.pack(trees()).plan(f)
        close(total(jax.jit(f)(data)), expected)
        planned = made.plan(total)
        total(planned)
        close(jax.jit(total)(planned), expected)


def test_a_chain_of_many_objects():
    node = Tree(0.0)
    for k in range(3000):
        node = Tree(float(k), node)

    @ab.batched
    def copied(t):
        return Tree(t.x, copied(t.left) if t.left else None)

    (made,) = ab.unbatch(copied([node]))
    count = 0
    while made is not None:
        made, count = made.left, count + 1
    assert count == 3001


def test_masked_failures_leave_the_others():
    @ab.batched(on_error="mask")
    def checked(t):
        assert t.x < 4, "too large"
        return Tree(t.x, checked(t.left) if t.left else None)

    out, failures = checked(trees())
    assert failures.failed.tolist() == [False, False, True]
    assert [o and o.x for o in ab.unbatch(out)] == [1.0, 2.0, None]


def test_empty_batch():
    doubled(trees())
    assert ab.unbatch(doubled(ab.pack(trees())[[]])) == []


def test_fields_that_conflict_name_the_place():
    @ab.batched
    def wrong(t):
        if t.left is None:
            return Tree(jnp.ones(2), t)
        return Tree(jnp.ones((2, 2)) * t.x, wrong(t.left))

    with pytest.raises(ab.TypeConflictError, match="test_result_objects"):
        wrong(trees())


def reads_a_field(t):
    return (t if t.left else Tree(1.0)).x


def asks_for_none(t):
    made = Leaf(t.x) if t.left else Tree(1.0) if t.name == "a" else None
    return made is None


def asks_for_a_class(t):
    return isinstance(Found(t, 1.0) if t.left else Leaf(1.0), Leaf)


def asks_for_truth(t):
    return 1 if (Found(t, 1.0) if t.left else Leaf(1.0)) else 2


def compares(t):
    return (Found(t, 1.0) if t.left else Leaf(1.0)) == t


@pytest.mark.parametrize("read", [asks_for_a_class, asks_for_truth, compares])
def test_a_made_object_that_holds_a_node_is_read(read):
    f = ab.batched(read)
    assert ab.unbatch(f(trees())) == f.loop(trees())


@pytest.mark.parametrize("backend", ["auto", "xla"])
def test_fields_of_made_objects_of_several_classes_are_read(backend):
    wanted = [reads_a_field(t) for t in trees()]
    np.testing.assert_allclose(ab.batched(reads_a_field, backend=backend)(trees()), wanted)


def test_a_constant_string_beside_strings_of_the_examples():
    agrees(lambda t: [Found(t, t.x, "made"), Found(t.left, 1.0)], [Tree(1.0, name="a"), Tree(2.0, Tree(1.0), name="b")])


@pytest.mark.parametrize("backend", ["interpret", "xla"])
def test_whether_there_is_an_object_is_known_of_several_classes(backend):
    few = [*trees(), Tree(3.0, name="b")]
    found = ab.unbatch(ab.batched(asks_for_none, backend=backend)(few))
    assert found == [asks_for_none(t) for t in few]
    assert len(set(found)) == 2


@ab.batched(in_axes=(None, 0))
def scaled(p, t):
    if t.left is None:
        return Tree(t.x * p, None, None, t.name)
    return Tree(t.x * p * p, scaled(p, t.left), scaled(p, t.right), t.name)


@ab.batched(in_axes=(None, 0))
def mixed(p, t):
    if t.left is None:
        return jnp.sin(t.x * p)
    return jnp.tanh(mixed(p, t.left) + t.x) * mixed(p, t.right)


def test_the_gradient_of_a_function_of_a_result():
    """Under `jax.grad`, outside jit, structure is known, and floats that nobody on the host reads need not be: machine
    code has the derivative by those that decide."""
    p, batch = jnp.float32(0.7), trees()
    expected = jax.grad(lambda p: sum(mixed.example(p, t) for t in scaled.loop(p, batch)))(p)
    close(jax.grad(lambda p: mixed(p, scaled(p, batch)).sum())(p), expected)
    close(ab.grad(lambda p: mixed(p, scaled(p, batch)))(p), expected)
    by_sign = ab.batched(lambda p, t: p * t.x if t.x > 0 else p, in_axes=(None, 0))
    expected = jax.grad(lambda p: sum(by_sign.example(p, t) for t in scaled.loop(p, batch)))(p)
    close(jax.grad(lambda p: by_sign(p, scaled(p, batch)).sum())(p), expected)
    by_xla = by_sign.with_settings(backend="xla")
    with pytest.raises(ab.PlanError, match="by_sign|lambda"):
        jax.grad(lambda p: by_xla(p, scaled(p, batch)).sum())(p)
