"""Functions that differ between paths: what is called is one of them, by what the path was."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from tests.frontend.batches import Programs, agree, refused
from tests.frontend.examples import LISTS, TREES, S

programs = Programs()


def activated(p, t):
    if t.x > 4:
        f = jnp.tanh
    elif t.x > 2:
        f = jax.nn.relu
    elif t.x > 1:
        f = jnp.tanh
    else:
        f = lambda x: x * p
    h = f(t.x * p)
    return h if t.left is None else h + f(activated(p, t.left))


programs.over(TREES, S)(activated)


@programs.over(TREES, S)
def in_an_expression(p, t):
    return (jnp.sin if t.x % 2 else jnp.cos)(t.x * p)


@programs.over(TREES)
def lists_of_functions(t):
    def plus(x):
        return x + 1

    def times(x):
        return x * t.x

    result = 1
    for f in [plus, times] if t.x > 1 else [times, plus]:
        result = f(result)
    return result


@programs.over(LISTS)
def carried_by_a_loop(xs):
    def plus(x):
        return x + 1

    f, result = plus, 0
    for i in range(len(xs)):
        result = f(result)
        f = (lambda x: x * 2) if i % 2 else plus
    return result


@programs.over(LISTS)
def returned(xs):
    def pick(n):
        if n == 1:
            return math.sin
        return math.cos if n == 0 else abs

    return pick(len(xs))(-0.5), pick(len(xs) - 1)(-2.0)


@programs.over(LISTS)
def what_they_capture(xs):
    by = 2
    if len(xs) > 1:
        f = lambda x: x + by
        by = 3
    else:
        f = lambda x: x - by
    g = f if len(xs) > 3 else (lambda x: x * by)
    return f(1), g(1)


@pytest.mark.parametrize("program", programs, ids=str)
def test_batch_equals_loop(program):
    agree(program, jit=False)


def test_gradients():
    expected = jax.grad(lambda p: sum(activated(p, t) for t in TREES))(S)
    np.testing.assert_allclose(ab.grad(ab.batched(activated, in_axes=(None, 0)))(S, TREES), expected, rtol=1e-5)


def test_a_function_is_no_result():
    refused(lambda xs: math.sin if xs else math.cos, LISTS, saying="the result is")
