"""Bad input: what is wrong, where, and what to write instead; and never an internal traceback."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from tests.api.nodes import Node, chain, close, params, total, trees
from tests.frontend import refused

HERE = __file__


def line_of(function: Any, offset: int) -> str:
    """`file:line:` of a line of a function."""
    return f"{HERE}:{function.__code__.co_firstlineno + offset}:"


# ---- source


def made_by_exec() -> Any:
    space: dict[str, Any] = {}
    exec("def f(t):\n    return 1 if t.left is None else 2", space)
    return space["f"]


def test_a_function_without_source():
    """Made by `exec`: its name, why, and where to write it."""
    with pytest.raises(ab.UnsupportedError, match=r"source of f is not available.*\n.*write it in a file"):
        ab.batched(made_by_exec())(trees())


def test_a_helper_without_source():
    """The place is that of the call, where the text ends."""
    helper = made_by_exec()

    def f(t):
        return helper(t) * 2

    with pytest.raises(ab.UnsupportedError, match="source of f is not available") as caught:
        ab.batched(f)(trees())
    assert line_of(f, 1) in str(caught.value)


@pytest.mark.parametrize("function, words", [(len, "has no Python source"), (max, "does not tell its parameters")])
def test_a_function_of_c(function, words):
    """A builtin cannot be compiled by itself: call it in a function."""
    with pytest.raises(ab.UnsupportedError, match=rf"{words}\n.*`lambda x: ...`"):
        ab.batched(function)([[1]])


@pytest.mark.parametrize("value", [3, "f", None, [1]])
def test_what_is_no_function(value):
    with pytest.raises(ab.BatchError, match="takes a function"):
        ab.batched(value)([1]) if value is not None else ab.batched(in_axes=0)(value)


# ---- unsupported Python


CONSTRUCTS = {
    "uses_with": "open() cannot be compiled",
    "uses_global": "`global`",
    "uses_yield": "a generator",
    "uses_async": "coroutine",
    "uses_class": "reads the variable 'word' of the function",
    "uses_input": "input()",
    "uses_random": "random numbers",
    "uses_set": "the result is a frozenset",
}


@pytest.mark.parametrize("name", CONSTRUCTS)
def test_each_construct_has_a_message_of_its_own(name):
    """With `file:line:col`, a caret, and a cure. (All of them: tests/golden/errors.)"""

    @dataclass
    class Named:
        word: int

    examples = [Named(1)] if "t" in getattr(refused, name).__code__.co_varnames[:1] else [1, 2]
    with pytest.raises(ab.UnsupportedError) as caught:
        ab.batched(getattr(refused, name))(examples)
    first, *rest = str(caught.value).splitlines()
    span = caught.value.span
    assert first.startswith(f"{refused.__file__}:{span.line}:{span.column}: ") and CONSTRUCTS[name] in first
    assert any(set(line) <= {" ", "^"} and "^" in line for line in rest)
    assert caught.value.cure


# ---- types


def test_branches_of_different_types():
    """Both places, and what to make equal."""

    def f(t):
        if t.left is None:
            y = jnp.zeros(2)
        else:
            y = jnp.zeros((3, 2))
        return y

    with pytest.raises(ab.TypeConflictError, match=r"'y' has different types.*float32\[") as caught:
        ab.batched(f)(trees())
    assert line_of(f, 2) in str(caught.value) and line_of(f, 4) in str(caught.value)
    assert "make both paths give the same type" in caught.value.cure


def test_ragged_shapes_where_one_is_needed():
    """A shape that differs by example: in an array that is made, and between two examples that are added."""

    def f(t):
        return jnp.zeros((depth_of(t), 2))

    def depth_of(t):
        return 1 if t.left is None else 1 + depth_of(t.left)

    with pytest.raises(ab.UnsupportedError, match=r"zeros\(\) cannot be traced: a shape") as caught:
        ab.batched(f)(trees())
    assert line_of(f, 1) in str(caught.value) and "static" in caught.value.cure


def test_rows_of_different_lengths_are_no_array():
    """`np.array` of a ragged list."""
    f = ab.batched(lambda rows: jnp.array(rows).sum())
    with pytest.raises(ab.ExampleError, match="inhomogeneous shape") as raised:
        f([[[1.0, 2.0], [3.0]], [[1.0]]])
    assert [failure.index for failure in raised.value.failures] == [0]


# ---- structure


@dataclass
class Ring:
    x: float
    kids: list[Ring] = field(default_factory=list)


@ab.batched
def ring_total(t):
    s = t.x
    for k in t.kids:
        s = s + ring_total(k)
    return s


def test_a_cycle_where_the_recursion_needs_a_tree():
    """Named with the example and the call; the other examples are unharmed."""
    ring = Ring(1.0)
    ring.kids.append(Ring(2.0, [ring]))
    fine = Ring(3.0, [Ring(4.0)])
    with pytest.raises(ab.ExampleError, match=r"example 1 at .*RecursionError.*cycle.*break the cycle") as caught:
        ring_total([fine, ring])
    assert line_of(ring_total.__wrapped__, 4) in str(caught.value)
    assert ring_total(ab.pack([fine, ring])[[0]]).tolist() == [7]


def test_none_where_a_node_must_be():
    """The example, the line, and what Python says."""

    def f(t):
        return t.left.x + 1

    with pytest.raises(ab.ExampleError, match="example 0 at .*AttributeError: 'NoneType' object has no") as caught:
        ab.batched(f)(trees())
    assert line_of(f, 1) in str(caught.value)
    with pytest.raises(ab.ExampleError, match="example 1 at .*'NoneType' object has no attribute 'left'"):
        total(params(), [Node(1.0), None])


def test_the_failure_is_the_first_that_python_raises():
    """Two things are wrong with the example; Python meets this one first."""

    @ab.batched
    def f(t):
        kids = [k.x for k in t.kids]
        y = kids[3] if len(kids) > 1 else t.x
        assert len(kids) != 2, "two"
        return y / 2

    two = Ring(1.0, [Ring(1.0), Ring(2.0)])
    with pytest.raises(ab.ExampleError) as caught:
        f([Ring(0.0), two])
    with pytest.raises(IndexError):
        f.example(two)
    assert [x.kind for x in caught.value.failures] == ["IndexError"]


# ---- the call


@pytest.mark.parametrize(
    "axes, cure",
    [
        ((0, 0, 0), "3 entries for 2"),
        ({"p": None, "q": 0}, "'q'"),
        ((None, None), "batches nothing"),
        ("0", "takes an int"),
        ((None, 0.5), "holds 0.5"),
    ],
)
def test_wrong_in_axes(axes, cure):
    """Refused where the function is made, with the entry that is wrong."""
    with pytest.raises(ab.BatchError, match=cure):
        ab.batched(lambda p, t: t.x * p, in_axes=axes)


def test_wrong_in_axes_for_an_array():
    """Found at the call: the argument, the axis and the shape."""
    with pytest.raises(ab.BatchError, match=r"x the axis 2.*\(3, 4\)"):
        ab.batched(lambda x: x, in_axes=2)(np.ones((3, 4)))


def test_an_empty_batch_of_unknown_types():
    """How to tell the types."""
    with pytest.raises(ab.BatchError, match=r"empty.*unknown.*annotate.*like="):
        ab.batched(lambda t: t.x)([])
    with pytest.raises(ab.BatchError, match=r"like="):
        ab.pack([])


class Bag:
    def __init__(self, x: float, items: list[Any]) -> None:
        self.x, self.items = x, items


def test_lists_that_are_empty_in_all_examples():
    """What they would hold is not known, and does not matter."""
    f = ab.batched(lambda b: b.x * 2)
    close(f([Bag(1.0, []), Bag(2.0, [])]), [2, 4])
    close(f([Bag(1.0, [3])]), [2])

    def g(b):
        return b.x + sum(b.items)

    close(ab.batched(g)([Bag(1.0, [])]), [1])
    close(ab.batched(g)([Bag(1.0, []), Bag(2.0, [1])]), [1, 3])


@pytest.mark.parametrize("args, kwargs", [((1.0,), {}), ((1.0, [1], 2), {}), ((1.0, [1]), {"z": 1})])
def test_a_call_that_does_not_fit_the_parameters(args, kwargs):
    """A TypeError as of any call, with the function's name."""
    f = ab.batched(lambda p, x: p * x, in_axes=(None, 0))
    with pytest.raises(TypeError, match=r"<lambda>\(\): .*its parameters are \(p, x\)"):
        f(*args, **kwargs)


# ---- NaN


@pytest.mark.parametrize("backend", ["xla", "interpret"])
def test_nan_in_data_passes_through(backend):
    """It stays in its example."""
    f = ab.batched(total.__wrapped__, in_axes=(None, 0), backend=backend)
    found = f(params(), [Node(1.0), Node(2.0, Node(float("nan")), Node(1.0)), Node(3.0)])
    assert np.isnan(found).tolist() == [False, True, False]
    assert found[0] == 2 and found[2] == 6


def test_nan_in_a_shared_array_passes_through():
    """An entry that is not read does no harm, one that is read shows."""
    f = ab.batched(lambda p, t: p[t.n] * 2, in_axes=(None, 0))

    @dataclass
    class Index:
        n: int

    found = f(jnp.array([1.0, jnp.nan]), [Index(0), Index(1)])
    assert found[0] == 2 and np.isnan(found[1])


@pytest.mark.parametrize(
    "function",
    [
        lambda p, t: 1.0 / t.x if t.left is None else nodes_mean(p, t),
        lambda p, t: jnp.log(t.x * p["w"]),
        lambda p, t: jnp.sqrt(t.x) / (t.x * p["w"]),
    ],
)
def test_padding_makes_no_nan_that_jax_debug_nans_would_see(function):
    """Rows past the count hold zeros: 1 / 0 and log(0) of them must not raise."""
    f = ab.batched(function, in_axes=(None, 0))
    with jax.debug_nans(True):
        found = f(params(), trees())
        close(found, f.loop(params(), trees()))


def nodes_mean(p, t):
    return (1.0 / t.left.x + 1.0 / t.right.x) / p["w"]


def test_a_level_loop_under_jax_debug_nans():
    """Windows compute rows that are not ready yet: what comes of them is nobody's NaN."""

    @ab.batched(in_axes=(None, 0))
    def f(p, t):
        if t.left is None:
            return t.x
        a, b = f(p, t.left), f(p, t.right)
        return (a * b) / (a + b) + jnp.log(a * b) * p["w"] + 9

    with jax.debug_nans(True):
        examples = [chain(n) for n in (1, 5, 3)]
        close(f(params(), examples), f.loop(params(), examples))


# ---- limits


def test_more_rows_than_the_option_allows():
    """How many, of which function, and both cures."""
    f = ab.batched(total.__wrapped__, in_axes=(None, 0), backend="xla", options={"max_rows": 3})
    with pytest.raises(ab.PlanError, match=r"total has more than 3 activations.*max_rows.*never ends"):
        f(params(), trees())


def test_a_recursion_that_never_ends():
    """It follows no cycle of objects, so the depth of the stack finds it, or the limit on rows."""

    def f(n):
        return 1 if n < 0 else 1 + f(n + 1)

    with ab.options(max_rows=1000):
        with pytest.raises(ab.ExampleError, match="RecursionError: maximum recursion depth exceeded"):
            ab.batched(f)([1, 2])
        with pytest.raises(ab.PlanError, match="never ends"):
            ab.batched(f, backend="xla")([1, 2])


def test_a_stale_plan():
    """The column that decided structure has changed: its name, and what to call."""
    f = ab.batched(lambda t: t.x * 2 if t.x > 4 else -t.x)
    data = f.pack(trees())
    f(data)
    with pytest.raises(Exception, match=r"stale plan: column Node\.x.*\.plan\(f\)"):
        moved = jax.jit(lambda floats, b: f(b.with_floats(jax.tree.map(lambda x: 10 - x, floats))))
        jax.block_until_ready(moved(data.floats(), data))
        jax.effects_barrier()


# ---- data


@pytest.mark.parametrize(
    "examples, cause",
    [
        ([b"ab"], r"examples\[0\].*bytes cannot be packed.*frombuffer"),
        ([len], r"examples\[0\].*code is not data"),
        ([1, 2**70], r"examples\[1\].*64 bits"),
        ([np.float32(1), np.int32(1)], r"examples\[0\] and examples\[1\].*one type"),
        ([[np.ones(2, np.float32)], [np.ones(2, np.int32)]], r"examples\[0\]\[0\] and examples\[1\]\[0\]"),
    ],
)
def test_data_that_cannot_be_packed(examples, cause):
    """The place in the examples, the cause, the cure."""
    with pytest.raises(ab.BatchError, match=cause):
        ab.pack(examples)


@pytest.mark.parametrize(
    "function",
    [
        functools.partial(lambda a, x: a * x, 2.0),
        jnp.sin,
        jax.jit(lambda x: x * 2),
        jax.vmap(lambda x: x * 2, in_axes=None, axis_size=2),
        staticmethod(lambda x: x + 1),
    ],
    ids=["partial", "jnp", "jit", "vmap", "staticmethod"],
)
def test_callables_that_are_no_plain_functions_work(function):
    """They are not bad input."""
    f = ab.batched(function)
    close(f(np.arange(3.0, dtype=np.float32)), np.stack(f.loop(np.arange(3.0, dtype=np.float32))))


def test_a_derivative_inside_of_a_function_with_control_is_no_bad_input() -> None:
    """It spoke of a shape, and of `_run_deferred`; then it was refused."""

    def energy(x):
        return x * x if x > 0 else -x

    @ab.batched
    def slope(x):
        return jax.grad(energy)(x)

    close(jax.jit(slope)(jnp.asarray([1.0, -2.0])), [2.0, -1.0])
