"""Indices of arrays: NumPy's fail out of range as in Python, JAX's clamp, wherever the array comes from.

The oracle is plain Python, example by example: a value, or the words of its IndexError.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autobatch as ab

ROWS, COLUMNS = 4, 3
FREE = np.arange(12.0, dtype=np.float32).reshape(ROWS, COLUMNS)
FREE_JAX = jnp.asarray(FREE)


@dataclass
class Item:
    """`own` is an array of NumPy or JAX, `several` a list of such, `where` integers of an array."""

    i: int
    j: int
    own: Any
    several: list[Any]
    where: np.ndarray
    kids: list[Item]


def shared(p, x):
    return p[x.i, x.j]


def one_axis(p, x):
    return p[x.i].sum()


def last_axis(p, x):
    return p[..., x.j].sum() + p[1:, None, x.j].sum()


def free(p, x):
    return FREE[x.i][x.j]


def free_of_jax(p, x):
    return FREE_JAX[x.i, x.j]


def field(p, x):
    return x.own[x.i, x.j] * p[0, 0]


def element(p, x):
    return x.several[0][x.j] + x.several[-1][x.i]


def arithmetic(p, x):
    return (x.own * 2 + 1)[x.i, 0] + (p @ p.T)[x.i, x.i]


def computed(p, x):
    return np.cumsum(p, 0)[x.i, x.j] + p.T[x.j].sum() + p.reshape(-1)[x.i * 3 + x.j]


def of_both(p, x):
    return (FREE * jnp.float32(2))[x.i, x.j] + jnp.asarray(x.own)[x.i, x.j]


def by_array(p, x):
    return p[x.where].sum() + p[x.where, x.j].sum()


def in_a_loop(p, x):
    total, own, where, i, j = jnp.float32(0), x.own, x.where, x.i, x.j
    for k in range(2):
        total = total * 2 + p[where[k], j] + own[k + i, 0]
    return total


def carried(p, x):
    k, total, where = 0, jnp.float32(0), x.where
    for n in range(2):
        total = total + p[k, 0]
        k = k + where[n]
    return total


def below(p, x):
    return handed(p, x.own, x)


def handed(p, rows, x):
    return rows[x.i, x.j] + sum(handed(p, p, kid) for kid in x.kids)


def on_a_path(p, x):
    return p[x.i, 0] if x.j > 0 else p[0, x.j] * 2


def at(rows, k):
    total = rows[k].sum()
    return total * total if k > 0 else total


def literal(p, x):
    return p[4, 0] if x.i > 1 else p[-4, -1]


PROGRAMS = [
    shared, one_axis, last_axis, free, free_of_jax, field, element, arithmetic, computed, of_both, by_array, in_a_loop,
    carried, below, on_a_path, literal,
]  # fmt: skip


@st.composite
def items(draw, of, depth=1):
    i, j = draw(st.integers(-ROWS - 2, ROWS + 1)), draw(st.integers(-COLUMNS - 2, COLUMNS + 1))
    where = np.array(draw(st.lists(st.integers(-ROWS - 1, ROWS), min_size=2, max_size=2)), np.int32)
    own = of(np.array(draw(st.integers(0, 9)) + np.arange(12), np.float32).reshape(ROWS, COLUMNS))
    kids = draw(st.lists(items(of, depth - 1), min_size=1, max_size=2)) if depth else []
    return Item(i, j, own, [own[0], own[1]], where, kids)


def outcome(f, p, example):
    """What plain Python makes of one example."""
    try:
        return float(f.example(p, example))
    except IndexError as error:
        return str(error)


def outcomes(f, p, examples, **options):
    """What the batched call makes of all of them."""
    with ab.options(**options):
        found, failures = f(p, examples)
    made = [float(x) for x in np.asarray(found)]
    lines, start = inspect.getsourcelines(f.__wrapped__)
    for failure in failures.details:
        assert failure.kind == "IndexError"
        made[failure.index] = failure.message
    assert np.flatnonzero(failures.failed).tolist() == [k for k, x in enumerate(made) if isinstance(x, str)]
    return made


BATCHED = {fun: ab.batched(fun, in_axes=(None, 0), on_error="mask") for fun in PROGRAMS}


@pytest.mark.parametrize("fun", PROGRAMS, ids=lambda f: f.__name__)
@settings(max_examples=settings().max_examples * 2 // 5)
@given(st.data())
def test_an_index_is_what_plain_python_says(fun, data):
    """Also which examples fail, and with which words; their neighbours are as they are alone."""
    f = BATCHED[fun]
    of, shared_of = (data.draw(st.sampled_from([np.asarray, jnp.asarray])) for _ in range(2))
    examples = data.draw(st.lists(items(of), min_size=1, max_size=4))
    p = (of if fun is below else shared_of)(np.arange(12.0, dtype=np.float32).reshape(ROWS, COLUMNS) / 2)
    backend = data.draw(st.sampled_from(["xla", "interpret"]))
    expected, found = [outcome(f, p, x) for x in examples], outcomes(f, p, examples, backend=backend)
    assert [type(x) for x in found] == [type(x) for x in expected], (found, expected)
    for a, b in zip(found, expected, strict=True):
        assert a == b if isinstance(a, str) else np.allclose(a, b), (found, expected)


def test_the_error_names_example_line_and_index():
    f = ab.batched(shared, in_axes=(None, 0))
    examples = [Item(n, 0, FREE, [], FREE, []) for n in (0, 7, 1)]
    with pytest.raises(ab.ExampleError, match="index 7 is out of bounds for axis 0 with size 4") as raised:
        f(FREE, examples)
    (failure,) = raised.value.failures
    _, line = inspect.getsourcelines(shared)
    assert (failure.index, failure.line) == (1, line + 1)


def test_what_is_numpy_is_found_out_at_every_call():
    """The same types of NumPy and of JAX, one after the other, in both orders."""
    for first, second in ((np.asarray, jnp.asarray), (jnp.asarray, np.asarray)):
        f = ab.batched(lambda p, k: p[k], in_axes=(None, 0), on_error="mask")
        for of in (first, second, first):
            _, failures = f(of(np.arange(3.0)), [0, 5])
            assert failures.failed.tolist() == [False, of is np.asarray]


def test_an_array_that_may_be_either_is_numpys():
    """Where paths or calls of a recursion meet, and in examples of which some hold the one, some the other."""
    rows, ks = jnp.arange(3, dtype=np.zeros(3).dtype), [0, 5]
    either = ab.batched(lambda p, k: (np.zeros(3) if k < 0 else p)[k], in_axes=(None, 0), on_error="mask")
    assert either(rows, ks)[1].failed.tolist() == [False, True]
    from_both = ab.batched(lambda x: at(x.own, x.i) + at(jnp.asarray(x.own), x.i), on_error="mask")
    assert from_both([Item(9, 0, FREE, [], FREE, [])])[1].failed.tolist() == [True]
    mixed = ab.batched(lambda x: x[5], on_error="mask")
    assert mixed([rows, np.arange(3, dtype=rows.dtype)])[1].failed.tolist() == [True, True]
    assert mixed([rows, rows])[1].failed.tolist() == [False, False]


def test_a_free_variable_that_becomes_another_array():
    held = [np.arange(3.0)]
    f = ab.batched(lambda k: held[0][k], on_error="mask")
    assert f([5])[1].failed.tolist() == [True]
    held[0] = jnp.arange(3.0)
    assert f([5])[1].failed.tolist() == [False]


def test_a_stacked_argument_is_what_was_given():
    f = ab.batched(lambda x, k: x[k], on_error="mask")
    rows = np.arange(6.0).reshape(2, 3)
    assert f(rows, [0, 3])[1].failed.tolist() == [False, True]
    assert f(jnp.asarray(rows), [0, 3])[1].failed.tolist() == [False, False]
    assert f(list(rows), [0, 3])[1].failed.tolist() == [False, True]


def test_another_kind_of_array_compiles_nothing_where_no_index_asks():
    """Parameters are NumPy's at the start of training and JAX's ever after."""
    f = ab.batched(lambda p, x: jnp.tanh(p @ x)[0] + p[0, 1] + p[1:].sum(), in_axes=(None, 0))
    p, xs = np.ones((3, 2), np.float32), np.ones((4, 2), np.float32)
    f(p, xs)
    f(jnp.asarray(p), jnp.asarray(xs))
    assert f.cache_info().specialisations == 1


def test_an_array_that_jax_traces_clamps():
    f = ab.batched(lambda p, k: p[k], in_axes=(None, 0))
    ks = ab.pack([0, 2]).plan(f)
    found = jax.jit(lambda p, k: f(p, k))(np.arange(2.0), ks)
    np.testing.assert_array_equal(found, [0, 1])


def looked_up(p, x):
    return FREE[jnp.argmax(p * x) + 2].sum()


def looked_up_in_a_loop(p, x):
    y = p[0] * x[0]
    while y < 3.0:
        y = y + FREE[int(y * 2), 1] / 4 + 0.5
    return y


def looked_up_in_an_arm(p, x):
    y = p[0] * x[0]
    return FREE[int(y), 0] if y > 1.5 else y


def looked_up_in_turns(p, x):
    y = 0.0
    for k in range(3):
        y = y + FREE[int(p[0] * x[0]) + k, 0]
    return y


@pytest.mark.parametrize("fun", [looked_up, looked_up_in_a_loop, looked_up_in_an_arm, looked_up_in_turns])
@pytest.mark.parametrize("backend", ["interpret", "xla"])
def test_an_index_that_only_the_device_computes_fails_where_plain_python_does(fun, backend):
    """Of the rows that come to it: others never leave the array."""
    p = np.array([1.0, 0.5, 0.25], np.float32)
    xs = [np.array(x, np.float32) for x in ([1, 0, 0], [0, 9, 0], [1.75, 0, 0], [6, 1, 99], [-7, 0, 0])]
    expected = []
    for x in xs:
        try:
            expected.append(float(fun(p, x)))
        except IndexError:
            expected.append(None)
    assert None in expected and len(set(expected)) > 2
    found, failures = ab.batched(fun, in_axes=(None, 0), backend=backend, on_error="mask")(p, xs)
    assert failures.failed.tolist() == [y is None for y in expected]
    np.testing.assert_allclose(found, [y or 0.0 for y in expected], rtol=1e-6)
    assert all(f.kind == "IndexError" and "out of bounds for axis 0 with size 4" in f.message for f in failures.details)


def test_arrays_that_differ_in_length():
    """Their length is data; it is part of the message."""
    for of, failed in ((np.arange, [False, True, True, True]), (jnp.arange, [False] * 4)):
        f = ab.batched(lambda q: (q[0] * 2)[q[1]] + q[0][q[1]], on_error="mask", backend="xla")
        examples = [(of(3.0), 2), (of(3.0), 3), (of(5.0), -6), (of(1.0), 1)]
        found, failures = f(examples)
        assert failures.failed.tolist() == failed
        wrong = [failures.details[k].message for k in range(len(failures.details))]
        assert wrong == (
            [f"index {k} is out of bounds for axis 0 with size {n}" for k, n in ((3, 3), (-6, 5), (1, 1))]
            if of is np.arange
            else []
        )
        fine = [k for k, bad in enumerate(failed) if not bad]
        expected = [float(f.example(examples[k])) for k in fine]
        np.testing.assert_allclose(np.asarray(found)[fine], expected)


def test_a_loop_over_an_array_is_still_one_scan():
    """Its indices are checked for all turns before it; those that cannot fail are not checked at all."""

    def last(p, x):
        total, own, where = p[0, 0], x.own, x.where
        for k in range(3):
            total = jnp.tanh(total) + own[k, 0] + p[where[k % 2], 0]
        return total

    f = ab.batched(last, in_axes=(None, 0))
    examples = [Item(0, 0, FREE, [], np.array([n, 1]), []) for n in range(3)]
    text = f.lower(FREE, examples).as_text(stage="fissioned")
    assert "recurrence" not in text
    np.testing.assert_allclose(f(FREE, examples), f.loop(FREE, examples), rtol=1e-6)


def test_a_shared_count_of_turns():
    """Turns past the count are not looked at."""

    def total(p, n, x):
        sum_, j = p[0, 0], x.j
        for k in range(n):
            sum_ = sum_ + p[k, j]
        return sum_

    f = ab.batched(total, in_axes=(None, None, 0), on_error="mask")
    examples = [Item(0, j, FREE, [], FREE, []) for j in (0, 1)]
    for n, fails in ((2, False), (4, False), (5, True), (0, False)):
        found, failures = f(FREE, n, examples)
        assert failures.failed.tolist() == [fails] * 2
        if not fails:
            np.testing.assert_allclose(found, f.loop(FREE, n, examples))


def test_saved_columns_know_what_they_held(tmp_path):
    f = ab.batched(lambda x: x[5], on_error="mask")
    for of, failed in ((np.arange, True), (jnp.arange, False)):
        ab.pack([of(3.0), of(3.0)]).save(tmp_path / "columns.npz")
        assert f(ab.load(tmp_path / "columns.npz"))[1].failed.tolist() == [failed, failed]


def test_arrays_of_both_kinds_call_one_function():
    """A recursion that begins with zeros of NumPy and goes on with what JAX computes has one set of rows."""

    @dataclass
    class Chain:
        x: float
        rest: Any

    def run(w, h, c):
        return h if c is None else run(w, jnp.tanh(h * c.x + w), c.rest)

    f = ab.batched(lambda w, c: run(w, np.zeros(2), c), in_axes=(None, 0))
    chains = [Chain(1.0, Chain(2.0, None)), Chain(3.0, None)]
    assert f.lower(jnp.ones(2), chains).as_text(stage="example").count("tanh") == 1
    np.testing.assert_allclose(f(jnp.ones(2), chains), f.loop(jnp.ones(2), chains), rtol=1e-6)
