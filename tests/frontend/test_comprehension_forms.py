"""Comprehensions with several `for` and filters in each position, and what reduces them."""

from __future__ import annotations

import math

import jax.numpy as jnp
import pytest

from tests.frontend.batches import Programs, agree, fails
from tests.frontend.examples import DOCS, MANY, TREES, S

programs = Programs()


@programs.over(DOCS)
def inner_tuple(d):
    return [x * k for x in d.words for k in (1, 2)]


@programs.over(DOCS)
def inner_range(d):
    return [x + k for x in d.words for k in range(3)]


@programs.over(DOCS)
def inner_list(d):
    return [y for x in d.words for y in [x, x * x]]


@programs.over(DOCS)
def outer_tuple(d):
    return [x * k for k in (1, 2) for x in d.words]


@programs.over(TREES)
def fields_that_are_there(t):
    return [c.x for c in (t.left, t.right) if c is not None]


@programs.over(MANY)
def kids_and_theirs(t):
    return [d.x for c in t.kids for d in (c, *c.kids)]


@programs.over(DOCS)
def filter_outside(d):
    return [x * k for x in d.words if x > 1 for k in (1, 2)]


@programs.over(DOCS)
def filter_inside(d):
    return [x * k for x in d.words for k in (1, 2) if x * k > 2]


@programs.over(DOCS)
def filters_everywhere(d):
    return [x * k for x in d.words if x != 2 for k in d.words if k < x if k > 0]


@programs.over(DOCS)
def named_in_a_filter(d):
    return [y for x in d.words if (y := x * 2) > 2 for k in range(2)]


@programs.over(DOCS)
def three_fors(d):
    return [x + j * k for x in d.words for j in range(2) for k in (3, 4)]


@programs.over(DOCS, S)
def numbers_of_the_device(p, d):
    return [p * x * k for x in d.fs for k in (1.0, 2.0)]


@programs.over(DOCS)
def pairs_of_a_triangle(d):
    return [(x, k) for x in d.words for k in range(x)]


@programs.over(DOCS)
def counted(d):
    return len([0 for x in d.words for k in range(x)])


# 4 bracket reductions


@programs.over(DOCS)
def sums(d):
    return sum([x * k for x in d.words for k in (1, 2)]), sum([x for x in d.words for k in range(x)])


@programs.over(DOCS)
def any_and_all(d):
    return any([x == k for x in d.words for k in d.words if k > 2]), all([x <= 5 for x in d.words for k in d.words])


@programs.over(DOCS)
def extremes(d):
    return min([x * k for x in d.words for k in (1, -1)], default=0), max(
        [x - k for x in d.words for k in d.words], default=-7
    )


@programs.over(DOCS)
def extremes_of_generators(d):
    return min((x * k for x in d.words for k in (1, -1)), default=0), max(
        (x for x in d.words for k in range(x)), default=3
    )


@programs.over(DOCS)
def lengths(d):
    return len([x for x in d.words for k in range(x) if k != 1])


@programs.over(DOCS)
def with_a_start(d):
    return sum(d.words, 10), sum([x for x in d.words], start=1.5), sum((x * 0.5 for x in d.fs), 2)


@programs.over(DOCS)
def fsum_and_prod(d):
    return math.fsum(d.fs), math.prod(d.words), math.prod(x * 0.5 for x in d.fs), math.prod(d.words, start=2)


@programs.over(DOCS, S)
def fsum_and_prod_of_the_device(p, d):
    return math.fsum(p * x for x in d.fs), math.prod([p * x for x in d.fs]), jnp.sum(jnp.array([1.0, 2.0]))


@programs.over(DOCS)
def by_key(d):
    return max(d.words, key=lambda x: -x, default=4), min(range(len(d.words)), key=lambda i: d.words[i], default=-1)


@programs.over(MANY)
def node_by_key(t):
    return max(t.kids, key=lambda c: c.x).x if t.kids else -1


@programs.over(MANY)
def node_by_tuple(t):
    best = min(t.kids, key=lambda c: (len(c.kids), c.x), default=None)
    return 0 if best is None else best.x


@programs.over(DOCS)
def pairs_compared(d):
    return max([(x, i) for i, x in enumerate(d.words)], default=(0, 0))


@programs.over(DOCS, S)
def floats(p, d):
    return max([p * x for x in d.fs], default=0.0), min((abs(x) for x in d.fs), default=9.0)


@programs.over(DOCS, S)
def float_by_key(p, d):
    return max(d.fs, key=lambda x: -abs(x - 1), default=p)


@programs.over(DOCS)
def mean(d):
    return sum(d.fs) / max(len(d.fs), 1)


@programs.over(DOCS)
def lists_summed(d):
    return sum([[x, x] for x in d.words], [])


@programs.over(DOCS)
def vectors_summed(d):
    return sum((jnp.array([1.0, 2.0]) * x for x in d.fs), jnp.zeros(2))


@programs.over(DOCS)
def truth_of_elements(d):
    return any(d.words), all(d.words), any(x > 4 for x in d.words), not any(x > 4 for x in d.words)


@programs.over(DOCS)
def nested(d):
    return sum(sum(x * y for y in d.words) for x in d.words), max(
        (max((x - y for y in d.words), default=0) for x in d.words), default=1
    )


# 7 generators


@programs.over(DOCS, S)
def by_a_computed_key(p, d):
    return max(d.fs, key=lambda x: jnp.tanh(p * x), default=0.0), min(d.words, key=lambda x: jnp.cos(p * x), default=0)


@pytest.mark.parametrize("program", programs, ids=str)
def test_batch_equals_loop(program):
    agree(program, jit=False)


def test_extremes_of_nothing_fail_like_python():
    fails(lambda d: max(x for x in d.words for k in range(2)), DOCS)
    fails(lambda d: min(d.words, key=lambda x: -x), DOCS)
