"""Callees: helpers, closures, lambdas, defaults, library functions, transforms, free variables."""

from __future__ import annotations

import functools
import math
import operator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from autobatch.testing import check_equivalence
from tests.frontend.harness import Lowering, check
from tests.frontend.programs import Node

SCALE = 3.0
WEIGHTS = {"W": jnp.arange(6.0).reshape(2, 3), "k": 2}
TABLE = np.array([1.0, 2.0, 4.0], np.float32)


def helper(x, y=2, *rest, z=3, **more):
    return x + y * 10 + sum(rest) + z * 100 + more.get("w", 0)


def test_arguments():
    def f(n):
        return (
            helper(n),
            helper(n, n),
            helper(n, 1, n, 4, z=n),
            helper(y=n, x=1, w=5),
            helper(*(n, 1), **{"z": 0}),
        )

    check(f, [1, 2])


def test_closures_and_lambdas():
    k = 4

    def f(n):
        add = lambda x, by=n: x + by + k  # noqa: E731

        def twice(g, x):
            return g(g(x))

        n = n + 1
        return twice(add, n), (lambda: n)()

    check(f, [1, 2])


def test_recursive_local_functions_capture():
    def f(n):
        def even(k):
            return True if k == 0 else odd(k - 1)

        def odd(k):
            return False if k == 0 else even(k - n)

        return even(4 * n)

    check(f, [1])


def test_globals_arrays_are_hidden_inputs():
    def f(n):
        return WEIGHTS["W"] * n + SCALE + WEIGHTS["k"] + TABLE[n]

    made = check(f, [1, 2])
    assert len(made.module.shared) == 2
    assert {f.name for f in made.lowered.free if f.shared is None} >= {"SCALE", "WEIGHTS"}


def test_closure_arrays():
    w = jnp.arange(3.0)
    made = check(lambda n: w * n, [1, 2])
    assert len(made.module.shared) == 1


def test_numpy_and_math():
    def f(x):
        return math.sqrt(x) + np.tanh(x) + math.floor(x) + np.maximum(x, 1.0) + math.pi

    check(f, [1.5, 2.0])


def test_transforms():
    def f(w, x):
        g = jax.grad(lambda y: jnp.sum(jnp.sin(w * y)))(x)
        rows = jax.vmap(lambda r: r @ w)(jnp.outer(w, w) * x)
        total = jax.lax.scan(lambda c, r: (c + r * x, c), 0.0, w)
        h = jax.lax.cond(x > 1, lambda: w, lambda: -w)
        return g, rows, total, h, jax.lax.fori_loop(0, 3, lambda i, a: a * x, 1.0)

    check(f, [1.5, 0.5], jnp.arange(3.0))


def test_jitted_and_custom_functions():
    @jax.jit
    def g(x):
        return x * 2

    @jax.custom_vjp
    def h(x):
        return x + 1

    h.defvjp(lambda x: (h(x), None), lambda _, ct: (ct,))
    check(lambda x: g(x) + h(x), [1.5, 0.5])


def test_equinox_modules():
    layer = eqx.nn.MLP(3, 2, 4, 2, key=jax.random.key(0))
    arrays = eqx.filter(layer, eqx.is_array)
    assert arrays is not None

    def f(m, x):
        return m(jnp.full(3, x)), m.layers[0].weight.shape[0]

    check(f, [1.0, 2.0], layer)


class Cell(eqx.Module):
    w: jax.Array
    n: int = eqx.field(static=True, default=2)

    def __call__(self, x):
        for _ in range(self.n):
            x = self.step(x)
        return x

    def step(self, x):
        return jnp.tanh(self.w * x)


def test_modules_of_the_user():
    check(lambda m, x: m(x), [1.0, 2.0], Cell(jnp.arange(3.0)))


def test_partial_and_operator():
    add = functools.partial(operator.add, 3)

    def f(x):
        double = functools.partial(lambda a, b: a * b, x)
        return add(x) + double(4) + operator.mul(x, 2)

    check(f, [1, 2])


def test_map_filter_reduce():
    def f(xs):
        return list(map(lambda x: x + 1, xs)), [x for x in filter(lambda x: x > 1, xs)], dict(a=len(xs))

    check(f, [[1, 2, 3], []])


def test_python_that_is_traced_as_a_whole():
    def g(x):
        out = []
        try:
            out.append(x * 2)
        finally:
            out.append(x)
        return sum(out)

    check(lambda x: g(x) + 1, [1.0, 2.0])


def test_array_methods():
    def f(w, x):
        y = w.at[0].set(x).at[1:].add(2.0)
        return y.sum(), y.mean(axis=0), y.T, y.astype(int), y.reshape(-1, 1), y[::-1], y[..., None], -y, abs(y), y @ w

    check(f, [1.5], jnp.arange(3.0))


def test_calls_of_batched_functions():
    class Batched:
        def __init__(self, f):
            self.__autobatch_function__ = f

        def __call__(self, *args):
            return self.__autobatch_function__(*args)

    @Batched
    def g(n):
        return 1 if n <= 0 else 2 * g(n - 1)

    check(lambda n: g(n), [0, 3])


def test_stack_of_children():
    def f(xs):
        rows = [jnp.full(2, 1.0) * x for x in xs]
        return jnp.sum(jnp.stack(rows), axis=0), jnp.stack(rows).max(0), jnp.mean(jnp.array(rows), 0)

    check(f, [[1], [1, 2, 3]])


def test_unroll_by_static_shapes():
    check(lambda w, x: tuple([jnp.ones(n) * x for n in (1, 2)]), [1.0], [])


@pytest.mark.parametrize("x64", [False, True])
def test_types_follow_x64(x64):
    with jax.enable_x64(x64):
        check(lambda x: (x * 2, x + 1.5, len([x])), [1, 2])
        check(lambda x: x * 2, [1.5])


def test_local_names_shadow():
    def f(n):
        sum = n + 1
        return [sum for sum in range(sum)], sum

    check(f, [2])


def test_never_returns():
    from autobatch.errors import UnsupportedError

    def f(n):
        return f(n - 1)

    with pytest.raises(UnsupportedError, match="never returns"):
        Lowering(f, [1])


def test_arrays_whose_length_is_data():
    def f(w, xs):
        rows = jnp.stack([w * x for x in xs])
        scores = rows @ w
        weights = jax.nn.softmax(scores)
        return (
            weights @ rows,
            (rows * weights[0] + w).sum(0),
            rows.mean(),
            jnp.exp(-scores).max(),
            rows.shape[0],
            rows[-1],
            jax.nn.logsumexp(scores),
            jnp.array(xs).sum(),
            jnp.any(scores > 2),
            rows.sum(axis=1),
        )

    def g(w, xs):
        *rest, last = f(w, xs)
        return tuple(rest), list(last)

    check(g, [[1, 2, 3], [2]], jnp.arange(3.0))


def test_dtypes_convert():
    def halved(n):
        return jnp.float32(n) if n < 2 else halved(n - 1) * np.float32(0.5) + jnp.int32(n) // jnp.asarray(2)

    check(halved, [1, 3])
    check(lambda x: (jnp.float16(x).astype(jnp.int32), np.int8(x), jnp.bool_(x), jnp.float32(1)), [1.5, 0.0])


def test_equinox_modules_over_trees():
    class Encoder(eqx.Module):
        w: jax.Array
        act: object = eqx.field(static=True, default=jnp.tanh)

        def encode(self, t):
            if t.left is None or t.right is None:
                return self.act(self.w * t.word)
            return self.act(self.encode(t.left) + self.encode(t.right) * self.w)

    encoder, trees = Encoder(jnp.arange(2.0)), [Node(0, 1), Node(1, 2, Node(2, 3), Node(3, 4))]
    check(lambda m, t: m.encode(t), trees, encoder)
    check(lambda t: encoder.encode(t), trees)
    check(encoder.encode, trees)


class Scaled:
    def __init__(self, w):
        self.w = w

    @functools.cached_property
    def doubled(self):
        return self.w * 2


def test_cached_properties_of_parameters():
    check(lambda p, x: p.doubled * x, [1.0, 2.0], Scaled(3.0))


def reads_what_a_loop_sets(w: Any, xs: list[float]) -> Any:
    for x in xs:
        last = x * w

    def scaled(z: Any) -> Any:
        return z * last

    by_turns = []
    for k in range(3):
        by_turns.append(lambda z: z * k * w)
    return scaled(2.0), [f(1.0) for f in by_turns]


@pytest.mark.parametrize("backend", ["interpret", "xla"])
def test_an_inner_function_reads_what_a_loop_sets_or_does_not(backend: str) -> None:
    f = ab.batched(reads_what_a_loop_sets, in_axes=(None, 0))
    check_equivalence(f, [[0.5, 1.5], [], [2.0]], (jnp.float32(0.8),), backends=(backend,), jit=False)
