"""Registers that are merged: a program gives what it gave, with fewer moves."""

from dataclasses import replace

import numpy as np
import pytest

from autobatch.ir import leaf
from autobatch.ir.leaf import problems, run_blocks
from autobatch.passes.liveness import coalesced
from tests.backends.test_stack import operation
from tests.properties import recursions


@pytest.mark.parametrize(
    "name",
    ["fib", "takeuchi", "ackermann", "select", "halved", "minimax", pytest.param("female", marks=pytest.mark.long)],
)
def test_equals_what_it_was(name):
    function, batch = recursions.cases()[name]
    op = operation(function, *batch).op
    whole = op["program"]
    merged = coalesced(whole, lambda v: True)
    assert not list(problems(merged))
    moves = [sum(len(b.takes) + len(b.moves) for b in p.blocks) for p in (merged, whole)]
    assert moves[0] < moves[1]
    values = list(operands(whole))
    other = replace(op, params=tuple((k, merged if k == "program" else v) for k, v in op.params))
    for a, b in zip(*(run_blocks(o, leaf.evaluate, values) for o in (other, op)), strict=True):
        np.testing.assert_array_equal(a, b)


def operands(program):
    """Some small numbers of the types that a program takes: for floats eighths, with which recursion ends soon."""
    rng = np.random.default_rng(0)
    for v in (*program.parameters, *program.captured):
        small = rng.integers(1, 4, v.type.shape)
        yield (small / 8 if str(v.type.dtype).startswith("float") else small).astype(v.type.dtype)
