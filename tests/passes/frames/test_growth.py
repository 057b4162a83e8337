"""Level loops write in place: no instruction of a loop makes a whole buffer anew. And depth has no limit."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from tests.passes.frames.programs import (
    SIZE,
    child_sum,
    computations,
    loop_bodies,
    lstm,
    parameters,
    prepared,
    random_many,
    random_tree,
    rnn,
    tree_lstm,
)
from tests.properties import functions
from tests.properties import strategies as draws

pytestmark = pytest.mark.xla

FREE = {"parameter", "get-tuple-element", "tuple", "while", "bitcast", "dynamic-update-slice", "call", "constant"}
"""Instructions that touch no more of a buffer than they write."""


def rebuilt_buffers(hlo: str, rows: set[int]) -> list[str]:
    """Instructions inside loops whose result is a whole buffer of so many rows, made anew."""
    found = computations(hlo)
    inside = loop_bodies(found)
    fused = {c for lines in found.values() for line in lines for c in re.findall(r"calls=%?([\w.\-]+)", line)}
    bad = []
    for name in inside - fused:
        for line in found[name]:
            made = re.match(r"(?:ROOT )?%?[\w.\-]+ = \w+\[(\d+)(?:,\d+)*\]\S* ([\w\-]+)\(", line)
            if made is None or int(made.group(1)) not in rows or made.group(2) in FREE:
                continue
            called = re.search(r"calls=%?([\w.\-]+)", line)
            roots = [x for x in found.get(called.group(1), []) if x.startswith("ROOT")] if called else []
            if not any(" dynamic-update-slice(" in x for x in roots):
                bad.append(f"{name}: {line}")
    return bad


def trees(count: int, make: object) -> list:
    rng = np.random.default_rng(0)
    return [make(rng, 30 + k % 7) for k in range(count)]  # type: ignore[operator]


CASES = {
    "tree_lstm": (tree_lstm, lambda: trees(60, random_tree)),
    "child_sum": (child_sum, lambda: trees(60, random_many)),
    "rnn": (rnn, lambda: [[0.5] * (5 + k % 9) for k in range(150)]),
    "lstm": (lstm, lambda: [[k % 5] * (5 + k % 9) for k in range(150)]),
    "chained": (functions.chained, lambda: trees(60, random_tree)),
    "down_then_up": (functions.down_then_up, lambda: trees(60, random_tree)),
    "three paths": (functions.evaluate, lambda: [expression(k, 6) for k in range(12)]),
}


def expression(k: int, depth: int) -> object:
    if depth == 0:
        return draws.Num(k / 8) if k % 2 else draws.Var(k % 3)
    if k % 5 == 0:
        return draws.Neg(expression(k + 1, depth - 1))
    kind = draws.Add if k % 3 else draws.Mul
    return kind(expression(2 * k + 1, depth - 1), expression(2 * k + 2, depth - 1))


@pytest.mark.parametrize("name", CASES)
def test_no_buffer_is_copied_in_a_loop(name):
    function, make = CASES[name]
    shared = {"tree_lstm": parameters, "child_sum": parameters, "rnn": parameters, "lstm": parameters}.get(
        name, functions.params
    )
    p = np.arange(3.0) if name == "three paths" else shared()
    batch = make()
    with ab.options(widths=(16, 8)):
        ready = prepared(function, p, batch).ready
        hlo = function.lower(p, batch).as_text("backend")
    rows = {c for c in ready.signature.capacity if c > 16}
    assert rows and " while(" in hlo
    assert rebuilt_buffers(hlo, rows) == []


COPYING = """
%body (p: (s32[], f32[64,4])) -> (s32[], f32[64,4]) {
  %p = (s32[], f32[64,4]{1,0}) parameter(0)
  %k = s32[] get-tuple-element(%p), index=0
  %b = f32[64,4]{1,0} get-tuple-element(%p), index=1
  %c = f32[64,4]{1,0} copy(%b)
  ROOT %t = (s32[], f32[64,4]{1,0}) tuple(%k, %c)
}

%more (p: (s32[], f32[64,4])) -> pred[] {
  %p = (s32[], f32[64,4]{1,0}) parameter(0)
  ROOT %m = pred[] constant(false)
}

ENTRY %main (i: (s32[], f32[64,4])) -> (s32[], f32[64,4]) {
  %i = (s32[], f32[64,4]{1,0}) parameter(0)
  ROOT %w = (s32[], f32[64,4]{1,0}) while(%i), condition=%more, body=%body
}
"""


def test_the_reader_of_hlo_finds_copies():
    """The test above is worth something: it sees a loop that copies, and one that computes a whole buffer."""
    assert ["copy(" in line for line in rebuilt_buffers(COPYING, {64})] == [True]
    assert rebuilt_buffers(COPYING, {32}) == []

    def step(k, buffer):
        return jnp.tanh(buffer.at[k].set(1.0))

    lowered = jax.jit(lambda b: jax.lax.fori_loop(0, 50, step, b)).lower(jnp.zeros((64, SIZE)))
    assert rebuilt_buffers(lowered.compile().as_text(), {64})


# ---- depth


@ab.batched
def decayed(t: draws.Node):
    """A recursion along a chain, whose value at depth n is known."""
    if t.left is None:
        return t.x
    return decayed(t.left) * 0.5 + t.x


def along(values: list[float]) -> float:
    total = values[-1]
    for x in reversed(values[:-1]):
        total = total * 0.5 + x
    return total


def test_deep_chains():
    """3,000 deep is past Python's own limit."""
    batch = [[0.25, 1.0, -0.5] * 1000, [1.0], [0.5] * 17]
    with ab.options(widths=(8,)):
        found = np.asarray(decayed([draws.chain(values) for values in batch]))
    np.testing.assert_allclose(found, [along(values) for values in batch], rtol=1e-6)


@pytest.mark.long
def test_a_chain_of_100_000_nodes():
    values = [0.25, 1.0, -0.5, 0.125] * 25_000
    with ab.options(widths=(8,)):
        found = np.asarray(decayed([draws.chain(values), draws.chain([1.0, 2.0])]))
    np.testing.assert_allclose(found, [along(values), 2.0], rtol=1e-6)


@pytest.mark.long
def test_a_loop_of_100_000_turns():
    values = ([0.25, 1.0, -0.5, 0.125] * 25_000)[::-1]

    @ab.batched
    def total(xs: list[float]):
        h = 0.0
        for x in xs:
            h = h * 0.5 + x
        return h

    with ab.options(widths=(8,)):
        found = np.asarray(total([values, [1.0, 2.0]]))
    np.testing.assert_allclose(found, [along([*values[::-1], 0.0]), 2.5], rtol=1e-6)
