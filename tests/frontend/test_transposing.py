"""`zip(*rows)` where the number of rows is data; lists of constants that a loop appends to."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import jax.numpy as jnp
import pytest

import autobatch as ab
from autobatch.testing import check_equivalence
from tests.frontend.batches import Programs, agree, fails
from tests.frontend.examples import LISTS, MANY

V = jnp.array([0.3, -0.2])


@dataclass
class Pairs:
    items: list[tuple[int, float]] = field(default_factory=list)


PAIRS = [Pairs([(1, 0.5), (2, 0.25)]), Pairs([(3, 1.0)]), Pairs([(0, 2.0), (4, 1.0), (5, 3.0)])]

programs = Programs()


@programs.over(MANY, V)
def states_and_counts(p, t):
    def go(t):
        if not t.kids:
            return p * t.x, 1.0
        states, counts = zip(*[go(k) for k in t.kids])
        return sum(states) / len(states), sum(counts)

    h, n = go(t)
    return h * n


@programs.over(PAIRS)
def tuples_of_the_examples(d):
    xs, ys = zip(*d.items)
    return list(xs), sum(ys)


@programs.over(LISTS)
def lists_of_lists(xs):
    rows = [[i * j for j in range(3)] for i in range(len(xs))]
    ragged = [xs[i:] for i in range(len(xs))]
    return [list(column) for column in zip(*rows)], [sum(column) for column in zip(*ragged)], len(list(zip(*ragged)))


@programs.over(LISTS)
def constants_appended(xs):
    numbers, constants = [], []
    for x in xs:
        numbers.append(x)
        constants.append("x")
    return numbers, len(constants)


@pytest.mark.parametrize("program", programs, ids=str)
def test_batch_equals_loop(program):
    agree(program, jit=False)


def test_unpacking_the_columns_of_nothing_fails():
    def f(d):
        xs, ys = zip(*d.items)
        return len(xs) + len(ys)

    fails(f, [*PAIRS, Pairs()])


@pytest.mark.parametrize("backend", ["interpret", "llvm"])
def test_lists_that_computed_numbers_change(backend):
    def f(w, xs):
        rows, groups = [[0.0] * 2 for _ in range(2)], [[], []]
        for k, x in enumerate(xs):
            groups[0 if x * w > 0.3 else 1].append(x)
            if x * w > 0.3:
                rows[k % 2][(k + 1) % 2] += x
        large = tuple(x for x in xs if x * w > 0.1)
        rest = list(large[1:])
        rest.append(w)
        s = sum(rest) + sum(k * x for k, x in enumerate(itertools.chain.from_iterable(groups)))
        return s + sum((k + 1) * sum(column) for k, column in enumerate(zip(*rows)))

    f = ab.batched(f, in_axes=(None, 0))
    xs = [[0.9, 0.41, -0.7, 1.3], [0.5], []]
    check_equivalence(f, xs, (jnp.float32(1.1),), grads=False, backends=(backend,), jit=False, tolerance=2e-5)
