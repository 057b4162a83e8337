"""Recursion whose calls depend on computed numbers equals plain Python, on every back end."""

from __future__ import annotations

from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autobatch as ab
from autobatch.backends.xla import stack, stack_adjoint
from autobatch.testing import assert_same
from tests.memory.linked import search_tree
from tests.properties import recursions

CASES = recursions.cases()
SHALLOW = 32
"""Entries of a stack with which XLA compiles one loop, not two; enough for most tests."""


@pytest.mark.parametrize("backend", ["xla", "interpret"])
@pytest.mark.parametrize("name", CASES)
def test_equals_plain_python(name, backend):
    function, batch = CASES[name]
    p = recursions.parameters()
    with ab.options(backend=backend, max_depth=SHALLOW):
        found = ab.unbatch(function(p, *batch))
    assert_same(found, function.loop(p, *batch), name)


@settings(max_examples=5, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=4, max_size=4))
def test_drawn_numbers(ns):
    p = recursions.parameters()
    assert_same(ab.unbatch(recursions.fib(p, np.array(ns))), recursions.fib.loop(p, np.array(ns)))


def test_arguments_that_jax_traces():
    """Outside `jax.jit` the host knows these integers, and lays out rows for them; inside it does not."""

    @ab.batched
    def pell(n):
        return n if n < 2 else 2 * pell(n - 1) + pell(n - 2)

    ns = np.array([0, 1, 5, 7])
    assert_same(np.asarray(jax.jit(lambda n: pell(n))(ns)).tolist(), [0, 1, 29, 169])
    assert_same(np.asarray(pell(ns)).tolist(), [0, 1, 29, 169])


def test_random_keys_are_handed_on():
    @ab.batched(in_axes=(None, 0))
    def walk(limit, key, x, n):
        if abs(x) > limit or n <= 0:
            return x
        here, there = jax.random.split(key)
        y = x + jax.random.normal(here, dtype=x.dtype)
        return walk(limit, there, y, n - 1) + 0.1 * walk(limit, here, -y, n - 2)

    function = ab.batched(lambda limit, key, x: walk(limit, key, x, 4), in_axes=(None, 0, 0))
    keys = jax.random.split(jax.random.key(3), 4)
    xs = np.array([0.1, -0.2, 3.0, 0.5])
    assert_same(ab.unbatch(function(1.5, keys, xs)), function.loop(1.5, keys, xs))


# ---- stacks


@ab.batched(in_axes=(None, 0))
def depth(zero, n):
    return 1 + depth(zero, n - 1) if n > zero else 0


@pytest.mark.parametrize("shortest", [32, 1024])
def test_stacks_grow(shortest, monkeypatch):
    """So many entries, then `max_depth`: rows go on where they stood."""
    monkeypatch.setattr(stack, "FIRST_BYTES", 1)
    monkeypatch.setattr(stack, "SHORTEST", shortest)
    for ns in ([3, 0, shortest - 1], [2, shortest, shortest + 1], [1, 1500, 5]):
        assert np.asarray(depth(jnp.asarray(0), np.array(ns))).tolist() == ns


@pytest.mark.parametrize("backend", ["xla", "interpret"])
def test_a_stack_has_a_limit(backend):
    """The example that needs more fails at the call, its neighbours do not."""
    with ab.options(max_depth=40, backend=backend):
        assert np.asarray(depth(jnp.asarray(0), np.array([40, 2]))).tolist() == [40, 2]
        with pytest.raises(ab.ExampleError) as raised:
            depth(jnp.asarray(0), np.array([3, 41, 40, 50]))
    assert [(f.index, f.kind) for f in raised.value.failures] == [(1, "RecursionError"), (3, "RecursionError")]
    assert "max_depth=40" in str(raised.value) and "depth(zero, n - 1)" in raised.value.failures[0].span.excerpt()


@pytest.mark.parametrize("backend", ["xla", "interpret"])
def test_a_recursion_without_end_is_stopped(backend):
    """The last call of a function needs no stack: only the number of steps tells. The others run to their end."""

    @ab.batched(in_axes=(None, 0), on_error="mask")
    def down(zero, n):
        return n if n == zero else down(zero, n - 1)

    with ab.options(max_steps=200, backend=backend):
        found, failures = down(jnp.asarray(0), np.array([5, -1, 50]))
    assert np.asarray(found).tolist() == [0, 0, 0]
    assert np.asarray(failures.failed).tolist() == [False, True, False]
    assert [(f.index, f.kind) for f in failures] == [(1, "RuntimeError")] and "max_steps=200" in failures.details[
        0
    ].message


# ---- failures of examples


@ab.batched(in_axes=(None, 0))
def guarded(p, n):
    assert n != p["seven"], "no sevens"
    if n < p["zero"]:
        raise ValueError(f"negative: {n}")
    return 0 if n == 0 else n + guarded(p, n - 1 - p["step"])


@pytest.mark.parametrize("backend", ["xla", "interpret"])
def test_an_example_that_fails_is_named(backend):
    p = {"seven": jnp.asarray(7), "zero": jnp.asarray(0), "step": jnp.asarray(1)}
    with ab.options(backend=backend), pytest.raises(ab.ExampleError) as raised:
        guarded(p, np.array([4, 3, 9, 6]))
    found = [(f.index, f.kind, f.message) for f in raised.value.failures]
    assert found == [(1, "ValueError", "negative: -1"), (2, "AssertionError", "no sevens")]
    assert "raise ValueError" in raised.value.failures[0].span.excerpt()


def test_failures_are_masked():
    masked = ab.batched(guarded.__wrapped__, in_axes=(None, 0), on_error="mask")
    p = {"seven": jnp.asarray(7), "zero": jnp.asarray(0), "step": jnp.asarray(1)}
    found, failures = jax.jit(lambda n: masked(p, n))(np.array([4, 3, 9, 6]))
    assert np.asarray(found).tolist() == [6, 0, 0, 12]
    assert np.asarray(failures.failed).tolist() == [False, True, True, False]


def test_failures_inside_jit_raise_when_the_computation_ends():
    p = {"seven": jnp.asarray(7), "zero": jnp.asarray(0), "step": jnp.asarray(1)}
    call = jax.jit(lambda n: guarded(p, n))
    assert np.asarray(call(np.array([4, 6]))).tolist() == [6, 12]
    with pytest.raises(Exception, match="ValueError: negative"):
        jax.block_until_ready(call(np.array([4, 3])))
        jax.effects_barrier()


def test_indices_of_numpy_fail_and_those_of_jax_clamp():
    def body(xs, i, n):
        return xs[i] if n == 0 else body(xs, i, n - 1) + body(xs, i + 1, n - 1)

    function = ab.batched(body, in_axes=(None, 0, 0))
    xs, at, n = np.arange(5.0), np.array([0, 3, -5]), np.array([1, 2, 0])
    traced = lambda f, held: jax.jit(lambda at, n: f(held, at, n))(at, n)
    assert np.asarray(traced(function, jnp.asarray(xs))).tolist() == [1.0, 15.0, 0.0]
    masked = ab.batched(body, in_axes=(None, 0, 0), on_error="mask")
    found, failures = jax.jit(lambda at, n: masked(xs, at, n))(at, n)
    assert np.asarray(failures.failed).tolist() == [False, True, False]
    assert np.asarray(found).tolist() == [1.0, 0.0, 0.0]


def test_failures_of_frames_and_turns_reach_their_example():
    """Statuses come up through calls, branches, loops and comprehensions."""

    @ab.batched(in_axes=(None, 0), on_error="mask")
    def total(p, t: recursions.Node):
        if t.left is None:
            return _positive(p, t.x)
        return total(p, t.left) + total(p, t.right)

    @ab.batched(in_axes=(None, 0), on_error="mask")
    def over(p, xs: list[float]):
        s = 0.0
        for x in xs:
            s = s + _positive(p, x)
        return s + sum([_positive(p, x) for x in xs])

    def _positive(p, x):
        assert x > p["zero"]
        return x if x < 1.0 else _positive(p, x - p["one"]) + 1.0

    p, N = recursions.parameters(), recursions.Node
    batch = [N(0.5), N(0.0, N(1.5), N(-1.0)), N(0.0, N(2.5), N(3.5)), N(0.0, N(1.0), N(0.5))]
    found, failures = total(p, batch)
    assert np.asarray(failures.failed).tolist() == [False, True, False, True]
    assert np.asarray(found).tolist() == [0.5, 0.0, 6.0, 0.0]
    assert [f.index for f in failures] == [1, 3]
    found, failures = over(p, [[], [0.5, 1.5], [0.5, -1.0]])
    assert np.asarray(failures.failed).tolist() == [False, False, True]
    assert np.asarray(found).tolist() == [0.0, 4.0, 0.0]


# ---- derivatives


def by_hand(function, p, batch, weights):
    """The gradient of the weighted sum over the batch by `p` and by each example, from plain Python under `jax.vjp`."""
    total, of_examples = jax.tree.map(jnp.zeros_like, p), []
    for k, weight in enumerate(weights):
        found, pull = jax.vjp(lambda p, *x: function.example(p, *x), p, *(jnp.asarray(x[k]) for x in batch))
        of_p, *of_x = pull(jnp.full(jnp.shape(found), weight, jnp.result_type(found)))
        total = {n: total[n] + g if g.dtype != jax.dtypes.float0 else None for n, g in of_p.items()}
        of_examples.append(of_x)
    return {n: g for n, g in total.items() if g is not None}, of_examples


def floats_of(tree):
    return {n: np.asarray(g) for n, g in tree.items() if g is not None and jnp.issubdtype(g.dtype, jnp.floating)}


@ab.batched(in_axes=(None, 0, 0))
def refined(p, x, n):
    """Newton's steps until they are small: numbers decide how often, and the last call comes last."""
    step = (x * x - n - p["shift"]) / (2 * x)
    return x - step if abs(step) < 0.01 * p["limit"] else refined(p, x - step, n)


GRADIENTS = {
    "halved": (recursions.halved, CASES["halved"][1]),
    "minimax": (recursions.minimax, CASES["minimax"][1]),
    "refined": (refined, (np.array([1.0, 5.0, 0.3, 2.0]), np.array([2.0, 3.0, 9.0, 4.0]))),
    "stacked": (recursions.stacked, CASES["stacked"][1]),
    "of_tuples": (recursions.of_tuples, CASES["of_tuples"][1]),
}


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        *((name, "interpret") for name in GRADIENTS),
        *(
            pytest.param(name, "xla", marks=() if name in ("minimax", "refined", "stacked") else pytest.mark.long)
            for name in GRADIENTS
        ),
    ],
)
def test_gradients_equal_those_of_plain_python(name, backend):
    function, batch = GRADIENTS[name]
    p = recursions.parameters()
    weights = np.array([1.0, -2.0, 0.5, 3.0])
    with ab.options(backend=backend, max_depth=SHALLOW):
        found, pull = ab.vjp(function, p, *batch)
        of_p, *of_x = pull(jnp.broadcast_to(weights.reshape(4, *[1] * (found.ndim - 1)), found.shape))
    total, by_example = by_hand(function, p, batch, weights)
    assert_same(floats_of(of_p), floats_of(total), name)
    for k, x in enumerate(batch):
        if x.dtype.kind == "f":
            assert_same(np.asarray(of_x[k]), np.stack([g[k] for g in by_example]), f"{name}, argument {k}")


def test_tapes_of_any_length_give_the_same_gradient(monkeypatch):
    """A tape that is too short is filled again and again."""
    function, batch = GRADIENTS["halved"]
    p, fresh = recursions.parameters(), lambda: ab.batched(function.__wrapped__, in_axes=(None, 0))

    def gradient():
        with ab.options(max_depth=SHALLOW):
            return ab.vjp(fresh(), p, *batch)[1](np.ones((4, 3)))

    whole = gradient()
    monkeypatch.setattr(stack_adjoint, "SHORTEST", 8)
    monkeypatch.setattr(stack_adjoint, "LONGEST", 8)
    short = gradient()
    assert_same(np.asarray(short[1]), np.asarray(whole[1]))
    assert_same(float(short[0]["shift"]), float(whole[0]["shift"]))


@pytest.mark.parametrize("tape", [64, stack_adjoint.LONGEST])
def test_gradients_of_deep_stacks(tape, monkeypatch):
    monkeypatch.setattr(stack_adjoint, "SHORTEST", tape)
    monkeypatch.setattr(stack_adjoint, "LONGEST", tape)

    @ab.batched(in_axes=(None, 0))
    def power(x, n):
        return x * power(x, n - 1) if n > 0 else 1.0

    with jax.enable_x64(True):
        found = jax.jit(jax.grad(lambda x, n: power(x, n).sum()))(1.001, np.array([1500, 3, 0]))
    assert_same(float(found), 1500 * 1.001**1499 + 3 * 1.001**2)


def test_gradients_of_frames_around_a_stack():
    function, (trees,) = CASES["of_nodes"]
    p = recursions.parameters()
    with ab.options(max_depth=SHALLOW):
        found = ab.grad(function)(p, trees)
        of_trees = ab.unbatch(ab.grad(function, argnums=1)(p, trees))
    total = jax.grad(lambda p: sum(function.example(p, t) for t in trees))({"limit": p["limit"], "w": p["w"]})
    assert_same(float(found["limit"]), float(total["limit"]))
    step = 1e-6

    def moved(t, by):
        return recursions.Node(t.x + by, t.left, t.right)

    for tree, g in zip(trees, of_trees):
        slope = (function.example(p, moved(tree, step)) - function.example(p, moved(tree, -step))) / (2 * step)
        np.testing.assert_allclose(g.x, slope, rtol=1e-4, atol=1e-6)


def test_paths_not_taken_have_no_derivative():
    """The square root of zero is not finite on the path that the first example does not take, nor is what a failed
    example computed: neither reaches a neighbour, or the shared number."""

    @ab.batched(in_axes=(None, 0, 0), on_error="mask")
    def rooted(w, x, n):
        assert n < 10
        if n <= 0:
            return w * x if x <= 0 else w * jnp.sqrt(x)
        return rooted(w, x * x, n - 1) + 1.0

    x, n = jnp.array([0.0, 0.5, 4.0, 0.0]), jnp.array([0, 1, 2, 11])
    of_w, of_x = jax.jit(jax.grad(lambda w, x, n: rooted(w, x, n)[0].sum(), argnums=(0, 1)))(2.0, x, n)
    assert_same(np.asarray(of_x), np.array([2.0, 2.0, 2.0 * 2 * 4.0, 0.0]))
    assert_same(float(of_w), 0.5 + 16.0)


@pytest.mark.long
def test_forward_derivatives():
    """Tangents, and forward over reverse, against differences."""
    p, (x, n), step = recursions.parameters(), GRADIENTS["refined"][1], 1e-6
    ones = np.ones(4)

    def slope(f):
        return (np.asarray(f(n + step)) - np.asarray(f(n - step))) / (2 * step)

    _, dot = ab.jvp(refined, (p, x, n), (None, None, ones))
    np.testing.assert_allclose(dot, slope(lambda n: refined(p, x, n)), rtol=1e-6)
    changed = ab.hvp(refined, (p, x, n), (None, None, ones), argnums=2)
    np.testing.assert_allclose(changed, slope(lambda n: ab.grad(refined, argnums=2)(p, x, n)), rtol=1e-4, atol=1e-6)


def test_the_second_reverse_derivative_is_refused():
    p, x = recursions.parameters(), jnp.ones((2, 3))
    with pytest.raises(ab.UnsupportedError, match="no second derivative") as raised:
        jax.grad(lambda x: jax.grad(lambda x: recursions.halved(p, x).sum())(x).sum())(x)
    assert "halved" in str(raised.value)


def test_integers_have_no_derivative():
    """What only decides, or counts, does not move: the rest has its derivative."""

    @ab.batched(in_axes=(None, 0, 0))
    def scaled(w, n, x):
        return w * x * count(n)

    def count(n):
        return 1 if n < 2 else count(n - 1) + count(n - 2)

    n, x = jnp.array([3, 5]), jnp.array([2.0, 0.5])
    found = jax.jit(jax.grad(lambda w: scaled(w, n, x).sum()))(1.5)
    assert float(found) == 2.0 * 3 + 0.5 * 8


def test_objects_beside_a_loop_that_numbers_end():
    @ab.batched(in_axes=(None, 0))
    def searched(p, t: recursions.Node):
        y = t.x
        while y < p["limit"] and t.left is not None:
            y = y + 1.0 + searched(p, t.left)
        return y

    trees = [recursions.Node(1.0, recursions.Node(0.25), recursions.Node(0.5)), recursions.Node(-1.0)]
    p = recursions.parameters()
    np.testing.assert_allclose(searched(p, trees), searched.loop(p, trees), rtol=1e-6)


# ---- copies


def test_how_often_a_recursion_is_compiled(monkeypatch):
    """A level of the loop around it has windows of two widths, not of six. In each of them it is there once for each
    of two sizes of the stack; in reverse once forward and once backward, for each. (The derivative runs the values
    first. `total` adds up the tree, behind the loop.)"""
    made = Counter()

    def counted(kind, name):
        method = getattr(kind, name)

        def run(self, *args, **kwargs):
            made[kind] += 1
            return method(self, *args, **kwargs)

        monkeypatch.setattr(kind, name, run)

    counted(stack.Sweeping, "step")
    counted(stack.StackEmitter, "step")
    counted(stack_adjoint._StackReverse, "backward")
    xs = ab.pack([[0.5, 0.1, 0.3][: 1 + k % 3] for k in range(128)])
    program = ab.batched(search_tree, in_axes=(None, 0), backend="xla")
    jax.make_jaxpr(lambda w: program(w, xs)[0])(1.0)
    assert made == {stack.Sweeping: 4}
    made.clear()
    jax.make_jaxpr(jax.grad(lambda w: program(w, xs)[0].sum()))(1.0)
    assert made == {
        stack.Sweeping: 2 * (2 + 2 + 1),
        stack.StackEmitter: 2 * (2 + 1),
        stack_adjoint._StackReverse: 2 * (2 + 1),
    }


def test_a_block_leaves_cotangents_alone():
    """The pullback of a block has operations for the registers that it reads or sets, not for all that there are."""

    def operations(registers):
        """Those of a derivative."""

        @ab.batched(in_axes=(None, 0), backend="xla")
        def total(least, x):
            def down(xs, k):
                if xs[0] < least or k < 0:
                    return xs[0]
                if k > 6:
                    return down((*xs[1:], jnp.tanh(xs[0])), k - 1) * 0.5
                first = down((*xs[1:], xs[0] * x), k - 1)
                return first * down((*xs[1:], first), k - 2) if first > 0 else first

            if registers == 4:
                return down((x, x + 1, x + 2, x + 3), 9)
            return down((x, x + 1, x + 2, x + 3, x, x + 1, x + 2, x + 3, x, x + 1, x + 2, x + 3), 9)

        derivative = jax.jit(jax.grad(lambda n, x: total(n, x).sum(), argnums=1))
        return derivative.lower(0.1, jnp.ones(4)).as_text().count("stablehlo.")

    assert operations(12) - operations(4) < 8 * 150
