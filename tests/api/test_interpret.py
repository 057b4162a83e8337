"""The reference back end gives what the others give: outside and under `jax.jit`, for batches, arrays and pairs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from tests.api.nodes import Node, close, params, trees


@ab.batched(in_axes=(None, 0), backend="interpret")
def total(p, t):
    if t.left is None:
        return p["w"] * t.x
    return total(p, t.left) + total(p, t.right) + p["w"] * t.x


def test_arrays():
    f = ab.batched(lambda p, x: p * x, in_axes=(None, 0), backend="interpret")
    for x in (np.arange(3.0), jnp.arange(3.0)):
        close(f(2.0, x), [0, 2, 4])
        close(jax.jit(f)(2.0, x), [0, 2, 4])
    beside = ab.batched(lambda t, x: t.x * x, backend="interpret")
    close(beside(trees(), jnp.arange(3.0)), [0, 2, 10])
    data = ab.pack(trees()).plan(beside)
    close(jax.jit(beside)(data, jnp.arange(3.0)), [0, 2, 10])


def test_a_batch_under_jit():
    data = total.pack(trees())
    expected = total.loop(params(), trees())
    step = jax.jit(total)
    close(step(params(), data), expected)
    for index in ([0, 1], [2, 1], [1, 1]):
        close(step(params(), data[index]), [expected[k] for k in index])
    close(total(params(), jax.jit(lambda b: b)(data)), expected)
    close(total(params(), jax.tree.map(lambda x: x, data)), expected)


def test_batches_of_several_sizes_under_one_jit():
    data = total.pack(trees() * 9)
    step = jax.jit(total)
    expected = np.array(total.loop(params(), trees() * 9))
    for size in (1, 4, 27):
        close(step(params(), data[:size]), expected[:size])


def test_lists_words_and_objects_under_jit():
    f = ab.batched(lambda words: [w * 2 for w in words], backend="interpret")
    data = f.pack([[1, 2], [], [3]])
    assert ab.unbatch(jax.jit(f)(data)) == ab.unbatch(f(data)) == [[2, 4], [], [6]]
    g = ab.batched(lambda t: ("leaf" if t.left is None else "inner", t.left), backend="interpret")
    nodes = g.pack(trees())
    assert ab.unbatch(jax.jit(g)(nodes)) == ab.unbatch(g(nodes)) == g.loop(trees())


def test_numbers_changed_under_jit():
    data = total.pack(trees())
    total(params(), data)
    doubled = jax.jit(lambda f, b: total(params(), b.with_floats(f)))
    close(doubled({k: 2 * x for k, x in data.floats().items()}, data), 2 * np.array(total.loop(params(), trees())))
    outside = jax.tree.map(lambda x: 2 * x if x.dtype == np.float32 else x, data)
    close(total(params(), outside), 2 * np.array(total.loop(params(), trees())))


def test_pairs_under_jit():
    sim = ab.batched(lambda p, a, b: total(p, a) * b.x, in_axes=(None, 0, 0), backend="interpret")
    pairs = sim.pack(trees(), trees()[::-1])
    expected = sim.loop(params(), trees(), trees()[::-1])
    close(jax.jit(sim)(params(), *pairs.args), expected)
    close(jax.jit(sim)(params(), *pairs[[2, 0]].args), [expected[2], expected[0]])


def test_an_epoch():
    data = total.pack(trees())
    expected = np.asarray(total(params(), data))
    epoch = data.epoch([[0, 1], [2, 2]])
    close(jax.lax.scan(lambda c, b: (c, total(params(), b)), 0, epoch)[1], expected[[[0, 1], [2, 2]]])


def test_reverse_mode_of_any_order_under_jit():
    f = ab.batched(lambda p, t: jnp.sin(p * t.x) + (0.0 if t.left is None else t.left.x * p), in_axes=(None, 0))
    g = ab.batched(f.__wrapped__, in_axes=(None, 0), backend="interpret")
    data = ab.pack(trees()).plan(f, g)
    one = jnp.float32(0.7)
    f(one, data), g(one, data)
    for wrap in (lambda h: h, jax.grad, lambda h: jax.grad(jax.grad(h))):
        close(jax.jit(wrap(lambda p, b: g(p, b).sum()))(one, data), wrap(lambda p: f(p, data).sum())(one))
    column = jax.jit(jax.grad(lambda x, b: g(one, b.with_floats({"Node.x": x})).sum()))
    other = jax.jit(jax.grad(lambda x, b: f(one, b.with_floats({"Node.x": x})).sum()))
    close(column(data.floats()["Node.x"], data), other(data.floats()["Node.x"], data))
    close(jax.vmap(lambda p: g(p, data))(jnp.arange(2.0)), jax.vmap(lambda p: f(p, data))(jnp.arange(2.0)))
    close(jax.jit(jax.vmap(g, in_axes=(0, None)))(jnp.arange(2.0), data), [g(0.0, data), g(1.0, data)])


def test_failures_and_stale_plans():
    f = ab.batched(lambda words: words[1], backend="interpret")
    with pytest.raises(ab.ExampleError, match="example 1"):
        jax.jit(f)(f.pack([[1, 2], [3]]))
    masked = ab.batched(lambda words: words[1] * 2, backend="interpret", on_error="mask")
    out, failures = jax.jit(masked)(masked.pack([[1, 2], [3]]))
    assert out.tolist() == [4, 0] and failures.failed.tolist() == [False, True]
    data = total.pack(trees())
    total(params(), data)
    with pytest.raises(ab.PlanError, match=r"stale plan: column"):
        total(params(), jax.tree.map(lambda x: x[::-1] if x.dtype == np.int32 and x.ndim else x, data))


def test_random_keys():
    f = ab.batched(lambda key, t: jax.random.uniform(key) + t.x, in_axes=(None, 0), backend="interpret")
    data = f.pack([Node(1.0), Node(2.0)])
    key = jax.random.key(3)
    close(jax.jit(f)(key, data), f.loop(key, [Node(1.0), Node(2.0)]))


def test_control_that_numbers_decide_under_jit():
    """The host decides when the computation runs; derivatives in reverse are the host's too."""

    def halved(p, x):
        y = p * x
        while y > 1.0:
            y = y * 0.5 * p
        return y if y > 0 else -2.0 * y

    def gcd(p, a, b):
        return a * p if b == 0 else gcd(p, b, a % b)

    xs = jnp.asarray([3.0, 0.5, -2.0])
    a, b = jnp.asarray([12, 7, 9]), jnp.asarray([18, 21, 6])
    for fun, args in ((halved, (xs,)), (gcd, (a, b))):
        f = ab.batched(fun, in_axes=(None, *(0 for _ in args)), backend="interpret")
        close(jax.jit(f)(0.9, *args), f.loop(0.9, *args))
        total = lambda p, f=f, args=args: f(p, *args).sum()  # noqa: E731
        close(jax.jit(jax.grad(total))(0.9), jax.grad(total)(0.9))
        close(jax.vmap(lambda p, f=f, args=args: f(p, *args))(jnp.asarray([0.9, 0.8])), [f(0.9, *args), f(0.8, *args)])
    f = ab.batched(halved, in_axes=(None, 0), backend="interpret")
    with pytest.raises(ab.UnsupportedError, match=r"outside of jax\.jit, or take the back end xla"):
        jax.jit(lambda p: ab.jvp(f, (p, xs), (1.0, None)))(0.9)
