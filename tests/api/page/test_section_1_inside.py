"""Inside per-example code: batched functions are called with the arguments of one example."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from tests.api.nodes import Node, close, trees
from tests.api.page.oracle import agrees

X = np.arange(6.0, dtype=np.float32).reshape(3, 2)
KEYS = list(jax.random.split(jax.random.key(3), 3))


@ab.batched
def area(t):
    if t.left is None:
        return t.x
    return t.x + area(t.left) * area(t.right)


@ab.batched(in_axes=(None, 0))
def scaled(p, t):
    return p * area(t)


@ab.batched(in_axes=1, out_axes=1)
def shifted(x):
    return x + 1


@ab.batched
def ping(n: int, h):
    return h if n == 0 else jnp.tanh(pong(n - 1, h * 2))


@ab.batched
def pong(n: int, h):
    return h + 1 if n == 0 else ping(n - 1, h - 0.5)


def test_a_call_of_itself_is_one_activation():
    """Recursion, with the arguments of one example."""
    agrees(area, trees())
    assert len(area(trees())) == 3


def test_a_call_of_another_is_one_activation():
    """With these very arguments: nothing is mapped."""
    agrees(scaled, 2.0, trees())


def test_mutual_calls_are_activations():
    """Two functions that call each other."""
    agrees(ping, [0, 1, 4], X)
    agrees(pong, [3, 0, 2], X)


def test_the_axes_of_what_is_called_are_ignored():
    """`in_axes` and `out_axes` are about batches; here is one example."""
    agrees(ab.batched(lambda x: shifted(x).sum() + shifted(x)[0]), X)
    f = ab.batched(lambda t: scaled(t.x, t))
    agrees(f, trees())


def test_a_call_takes_one_example_not_a_list_of_them():
    """A list is one argument: the callee sees all of it."""
    total = ab.batched(lambda words: sum(words))
    agrees(ab.batched(lambda words: total(words) * 2), [[1, 2], [], [3]])


def test_mapping_is_a_comprehension():
    """Over children, tokens, pairs."""
    f = ab.batched(lambda t: sum([area(c) for c in (t.left, t.right) if c is not None]))
    agrees(f, trees())


def test_methods_are_activations_too():
    """A batched method called inside one, with `self`."""

    class Model:
        w = 2.0

        @ab.batched
        def leaf(self, t):
            return self.w * t.x

        @ab.batched
        def tree(self, t):
            return self.leaf(t) if t.left is None else self.tree(t.left) + self.tree(t.right) * self.leaf(t)

    agrees(Model().tree, trees())


def test_settings_of_what_is_called_do_not_matter():
    """`on_error="mask"` returns failures of a batch; a call inside returns the result of the example alone."""
    second = ab.batched(lambda words: words[1], on_error="mask")
    f = ab.batched(lambda words: second(words) * 2)
    close(f([[1, 2], [3, 4]]), [4, 8])
    with pytest.raises(ab.ExampleError, match="example 1"):
        f([[1, 2], [3]])


def test_vmap_of_an_array_function_is_an_operation():
    """Over the rows of an array of the example, with a closure over another."""
    f = ab.batched(lambda w, x: jax.vmap(lambda row: jnp.dot(row, x))(w), in_axes=(None, 0))
    agrees(f, np.arange(6.0, dtype=np.float32).reshape(3, 2), X)


def test_vmap_in_a_recursion():
    """At every node."""

    def f(w, t):
        here = jax.vmap(lambda row: jnp.sin(row * t.x))(w)
        return here if t.left is None else here + f(w, t.left) * f(w, t.right)

    agrees(ab.batched(f, in_axes=(None, 0)), np.ones(3, np.float32), trees())


def test_jax_grad_of_an_array_function_is_an_operation():
    """The derivative of a lambda, and of a named function, by one of its arguments."""

    def energy(q, x):
        return jnp.sum(jnp.sin(q * x))

    agrees(ab.batched(lambda x: jax.grad(lambda q: jnp.sum(q**3))(x)), X)
    agrees(ab.batched(lambda p, x: jax.grad(energy)(p, x) + jax.grad(energy, argnums=1)(p, x)), X, X + 1)
    agrees(ab.batched(lambda x: jax.value_and_grad(energy)(x, 2.0)), X)


def test_other_transformations_of_array_functions():
    """jit, checkpoint, hessian, scan, cond, while_loop: what JAX can trace is traced."""

    def mixed(x):
        y = jax.jit(jnp.tanh)(x) + jax.checkpoint(jnp.sin)(x)
        z, _ = jax.lax.scan(lambda c, a: (c * 0.5 + a, c), jnp.zeros(()), y)
        w = jax.lax.cond(z > 1, lambda a: a * 2, lambda a: a - 1, z)
        n = jax.lax.while_loop(lambda a: a < 10, lambda a: a * 2 + 1, jnp.abs(w))
        return n + jax.hessian(lambda a: jnp.sum(a**3))(x).sum()

    agrees(ab.batched(mixed), X)


def test_random_keys_are_data():
    """A key for each example; split and folded as always, and every example gets what it would get alone."""

    def noisy(key, t):
        if t.left is None:
            return t.x + jax.random.normal(key, (2,))
        a, b = jax.random.split(key)
        return noisy(a, t.left) * 0.5 + noisy(jax.random.fold_in(b, 7), t.right)

    agrees(ab.batched(noisy), KEYS, trees())
    agrees(ab.batched(noisy), jnp.stack(KEYS), trees())


def test_a_shared_key_is_folded_with_the_data():
    """The usual way to give every node its own randomness."""

    def dropped(key, t, n):
        keep = jax.random.bernoulli(jax.random.fold_in(key, n))
        here = jnp.where(keep, t.x, 0.0)
        return here if t.left is None else here + dropped(key, t.left, 2 * n) + dropped(key, t.right, 2 * n + 1)

    agrees(ab.batched(dropped, in_axes=(None, 0, 0)), KEYS[0], trees(), [1, 2, 3])


def test_a_batched_function_inside_a_library_call_is_one_activation():
    """`lax.scan` over a batched cell: traced like the plain function."""
    f = ab.batched(lambda x: jax.lax.scan(lambda c, a: (shifted(c) * a, c), jnp.float32(1), x)[0])
    agrees(f, X)
    agrees(ab.batched(lambda t: jnp.stack([area(Node(1.0)), area(t)]).sum()), trees())
