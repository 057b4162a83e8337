"""Operations on shared values alone, in traced structure: done once for all examples, where there are few of them."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from autobatch.call.tracing.log import MOST_SMALL as MOST

pytestmark = pytest.mark.usefixtures("quiet")


def structure_of(f: Any) -> Any:
    ((_, structure),) = f._traces._structures.items()
    return structure


def machine(b: Any, code: list[int]) -> Any:
    """Which numbers meet, structure decides; all of them stem from one shared number. The dict, of computed keys, does
    not compile."""
    stack: list[Any] = [b, b * 2]
    named: dict[int, Any] = {}
    for op in code:
        named[op] = stack[-1]
        if op == 0:
            stack.append(stack[0] * stack[-1])
        elif op == 1:
            stack.append(jnp.tanh(stack.pop() - stack[0]))
        else:
            stack.insert(0, stack.pop())
    return stack[-1] + stack[0] + named[code[0]]


def test_programs_do_not_grow_with_what_shared_values_give() -> None:
    """Each small result was a kind of row of its own: the program of 256 such examples took minutes to compile."""
    b, rng = jnp.float32(0.3), np.random.default_rng(0)
    codes = [rng.integers(0, 3, size=n).tolist() for n in rng.integers(3, 16, size=48)]

    def lines(examples: list[list[int]]) -> int:
        f = ab.batched(machine, in_axes=(None, 0), backend="xla")
        np.testing.assert_allclose(f(b, examples), f.loop(b, examples), rtol=1e-5)
        return len(structure_of(f).source.text.splitlines())

    some, all_ = lines(codes[:12]), lines(codes)
    assert all_ < 1.5 * some, (some, all_)


def test_large_results_are_computed_once() -> None:
    """However many there are: rows of the examples would compute them again and again."""
    w = jnp.asarray(np.random.default_rng(0).normal(size=(6, 6)) / 3, jnp.float32)

    def f(w: Any, powers: list[int]) -> Any:
        total = jnp.zeros(6)
        made: dict[int, Any] = {}
        for n in powers:
            made[n] = w
            for _ in range(n):
                made[n] = made[n] @ w
            total = total + made[n][n % 6]
        return total

    g, examples = ab.batched(f, in_axes=(None, 0), backend="xla"), [[1, MOST + 4], [2]]
    np.testing.assert_allclose(np.stack(g(w, examples)), np.stack(g.loop(w, examples)), rtol=1e-5, atol=1e-6)
    text = structure_of(g).source.text
    assert sum("= make_u" in line for line in text.splitlines()) >= MOST + 4, text


def test_a_value_that_is_read_twice_in_each_step() -> None:
    """To hash what such a chain is took twice as long with each step."""

    def f(p: Any, xs: list[float]) -> Any:
        made = {len(xs): p}
        for _ in range(60):
            made[len(xs)] = jnp.tanh(made[len(xs)] + made[len(xs)])
        return sum(x * made[len(xs)] for x in xs)

    g, xs = ab.batched(f, in_axes=(None, 0)), [[1.0, 2.0], [3.0]]
    np.testing.assert_allclose(g(jnp.float32(0.3), xs), g.loop(jnp.float32(0.3), xs), rtol=1e-5)
