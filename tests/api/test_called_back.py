"""Calls inside of what JAX traces whose machine code XLA calls: batches without a plan, what XLA has no form for."""

from dataclasses import dataclass
from heapq import heappop, heappush

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab

RNG = np.random.default_rng(5)


@ab.batched(in_axes=(None, 0))
def horner(p, xs):
    total = 0.0
    for x in xs:
        total = total * p + x
    return total


@ab.batched(in_axes=(None, 0))
def best_and_where(p, xs):
    best, at = -1e9, -1
    for k, x in enumerate(xs):
        if x * p > best:
            best, at = x * p, k
    return best, at


@dataclass
class Tree:
    value: float
    kids: list


@ab.batched(in_axes=(None, 0))
def folded(p, tree):
    total = tree.value
    for kid in tree.kids:
        total = total + p * folded(p, kid)
    return jnp.tanh(total)


@ab.batched(in_axes=(None, 0))
def shortest(p, graph):
    """Dijkstra's algorithm from node 0: the sum of all distances."""
    far = [1e9] * len(graph)
    far[0] = 0.0
    heap = [(0.0, 0)]
    while heap:
        d, node = heappop(heap)
        if d <= far[node]:
            for to, weight in graph[node]:
                new = d + weight * p
                if new < far[to]:
                    far[to] = new
                    heappush(heap, (new, to))
    total = 0.0
    for d in far:
        total = total + d
    return total


@ab.batched(in_axes=(None, 0))
def vectors(p, xs):
    """The result of an example is an array."""
    total = jnp.zeros(3)
    for x in xs:
        total = total * p + x
    return total


def numbers(count):
    return [RNG.normal(size=RNG.integers(1, 9)).tolist() for _ in range(count)]


def trees(count):
    def made(depth):
        kids = [made(depth - 1) for _ in range(RNG.integers(0, 3))] if depth else []
        return Tree(float(RNG.normal()), kids)

    return [made(4) for _ in range(count)]


def graphs(count):
    def made(n):
        ring = [[((k + 1) % n, float(RNG.uniform(0.5, 1.5)))] for k in range(n)]
        for edges in ring:
            edges.append((int(RNG.integers(0, n)), float(RNG.uniform(0.5, 3.0))))
        return ring

    return [made(int(RNG.integers(2, 7))) for _ in range(count)]


CASES = [(horner, numbers), (best_and_where, numbers), (folded, trees), (shortest, graphs)]
P = jnp.float32(0.9)


def close(x, y):
    for a, b in zip(jax.tree.leaves(x), jax.tree.leaves(y), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("f", "data"), CASES, ids=lambda x: x.__name__)
def test_batches_without_a_plan(f, data):
    examples = data(23)
    batch = ab.pack(examples)
    close(jax.jit(f)(P, batch), f(P, examples))


@pytest.mark.parametrize(("f", "data"), [c for c in CASES if c[0] is not folded], ids=lambda x: x.__name__)
def test_their_derivatives(f, data):
    examples = data(23)
    batch = ab.pack(examples)

    def value(p, batch):
        found = f(p, batch)
        return jnp.sum(found[0] if isinstance(found, tuple) else found)

    def one(p, x):
        found = f(p, x)
        return found[0] if isinstance(found, tuple) else found

    wanted = ab.grad(ab.batched(one, in_axes=(None, 0)))(P, examples)
    close(jax.jit(jax.grad(value))(P, batch), wanted)
    close(jax.jit(jax.value_and_grad(value))(P, batch)[1], wanted)
    close(jax.jit(lambda p, b: 2.0 * jax.grad(value)(p, b))(P, batch), 2.0 * wanted)


def test_derivatives_by_ours():
    examples = numbers(9)
    batch = ab.pack(examples)
    close(jax.jit(ab.value_and_grad(horner))(P, batch), ab.value_and_grad(horner)(P, examples))


def test_each_example_has_its_cotangent():
    examples = numbers(9)
    weights = jnp.arange(9.0)
    found = jax.jit(jax.grad(lambda p, b: weights @ horner(p, b)))(P, ab.pack(examples))
    each = [jax.grad(lambda p, x=x: horner.example(p, x))(P) for x in examples]
    close(found, sum(w * g for w, g in zip(weights, each, strict=True)))


def test_mapped():
    batch = ab.pack(numbers(5))
    ps = jnp.float32([0.5, 0.9, 1.1])
    wanted = jnp.stack([horner(p, batch) for p in ps])
    close(jax.vmap(lambda p: horner(p, batch))(ps), wanted)
    close(jax.jit(jax.vmap(horner, in_axes=(0, None)))(ps, ab.pack(batch.to_list())), wanted)


def test_examples_that_fail():
    @ab.batched(in_axes=(None, 0))
    def first(p, xs):
        if xs[0] > 2.0:
            raise ValueError(f"{xs[0]} is too much")
        return xs[0] * p

    with pytest.raises(Exception, match="example 1 .* ValueError"):
        jax.block_until_ready(jax.jit(first)(P, ab.pack([[1.0], [3.0], [2.0]])))


def test_batches_of_one_size_share_the_executable():
    traced = []

    @jax.jit
    def step(p, batch):
        traced.append(1)
        return horner(p, batch).sum()

    for _ in range(4):
        examples = [RNG.normal(size=n).tolist() for n in RNG.permutation([3, 5, 6, 7])]
        close(step(P, ab.pack(examples)), horner(P, examples).sum())
    assert len(traced) == 1


def test_results_whose_sizes_are_data_need_a_plan():
    @ab.batched
    def doubled(xs):
        return [2.0 * x for x in xs]

    with pytest.raises(ab.PlanError, match=r"batch.plan\(doubled\)"):
        jax.jit(doubled)(ab.pack(numbers(4)))


def test_derivatives_of_recursions_and_of_arrays():
    data = trees(7)
    value = jax.jit(jax.grad(lambda p, b: jnp.sin(folded(p, b)).sum()))
    close(value(P, ab.pack(data)), value(P, ab.pack(data).plan(folded)))
    lists = [[jnp.ones(3)], [jnp.ones(3), 2 * jnp.ones(3)]]
    total = lambda p, b: (vectors(p, b) ** 2).sum()
    close(jax.jit(jax.grad(total))(P, ab.pack(lists)), jax.grad(total)(P, ab.pack(lists).plan(vectors)))


def test_what_is_no_machine_code_names_the_cure():
    @ab.batched(in_axes=(None, 0))
    def spectrum(p, xs):
        total = jnp.zeros((12, 12))
        for x in xs:
            total = total * p + x
        return jnp.linalg.eigh(total + jnp.eye(12))[0][-1]

    batch = ab.pack([[1.0], [2.0, 3.0]])
    value = jax.jit(jax.grad(lambda p, b: spectrum(p, b).sum()))
    with pytest.raises(ab.PlanError, match=r"batch.plan\(spectrum\)"):
        value(P, batch)
    assert np.isfinite(value(P, batch.plan(spectrum)))


def test_many_large_calls_in_a_row():
    """The host and XLA wait for each other."""
    examples = [RNG.normal(size=n).tolist() for n in RNG.integers(1000, 4000, size=64)]
    batch, step = ab.pack(examples), jax.jit(lambda p, b: horner(p, b).sum())
    wanted = step(P, batch)
    for _ in range(200):
        found = step(P, batch)
    close(found, wanted)
