"""Calls of both arms as one: what becomes of the text of a recursion."""

from dataclasses import dataclass

import numpy as np
import pytest

import autobatch as ab
from autobatch.backends.llvm import machine_code
from autobatch.backends.llvm.lanes.control import melded, parts
from autobatch.ir.core import Call, If, walk

try:
    machine_code.host()
except machine_code.UnavailableError as error:
    pytest.skip(f"no machine code here: {error}", allow_module_level=True)


@dataclass
class Node:
    kind: int
    value: float = 0.0
    left: "Node | None" = None
    right: "Node | None" = None


def evaluate(e, x):
    """Three kinds call for the left child, two for the right one."""
    if e.kind == 0:
        return e.value * x
    if e.kind == 1:
        return -evaluate(e.left, x)
    if e.kind == 2:
        return evaluate(e.left, x) + evaluate(e.right, x)
    return evaluate(e.left, x) * evaluate(e.right, x)


def of_other_children(e, x):
    """The arms call for children of their own, behind products that they go on with."""
    if e.kind == 0:
        return e.value
    if x > e.value:
        scale = e.value * x
        return scale * of_other_children(e.left, x - 0.5) + scale
    return of_other_children(e.right, x + 0.25) - e.value


def by_turns(e, x):
    """Lanes go on in turns of a loop: calls that are the last thing that it does."""
    if e.kind == 0:
        return e.value * x
    if x > e.value:
        return by_turns(e.left, x - 0.5)
    return by_turns(e.right, x + 0.25)


def drawn(rng, depth):
    kind = int(rng.integers(1, 4)) if depth and rng.random() < 0.8 else 0
    below = [drawn(rng, depth - 1) for _ in range(2)] if kind else [None, None]
    return Node(kind, float(np.float32(rng.uniform(-1, 1))), *below)


def functions(f):
    handle = f.lower([drawn(np.random.default_rng(0), 2)], np.zeros(1, np.float32)).compile()
    (program,) = (i.op["program"] for i in handle.executable.whole.region.body if i.op.name == "blocks")
    return program.structured


def count(kind, of):
    return sum(isinstance(i, kind) for f in of for i in walk(f.region))


@pytest.mark.parametrize(("fun", "before", "behind"), [(evaluate, 5, 2), (of_other_children, 2, 1), (by_turns, 2, 2)])
def test_calls_that_are_left(fun, before, behind):
    as_written = functions(ab.batched(fun, backend="llvm"))
    found = melded(as_written)
    assert (count(Call, as_written), count(Call, found)) == (before, behind)
    assert not parts(found)
    assert parts(as_written) == (before != behind)


def test_only_what_the_call_needs_stands_before_it():
    """Children are read in front of the branch where both arms read the same; else a branch chooses between them."""
    one, other = (functions(ab.batched(f, backend="llvm")) for f in (evaluate, of_other_children))
    assert count(If, melded(one)) == count(If, one)
    assert count(If, melded(other)) == count(If, other) + 1


@pytest.mark.parametrize("fun", [evaluate, of_other_children, by_turns])
def test_equals_plain_python(fun):
    rng = np.random.default_rng(1)
    trees, x = [drawn(rng, int(rng.integers(0, 6))) for _ in range(45)], np.linspace(-1, 1, 45).astype(np.float32)
    f = ab.batched(fun, backend="llvm")
    np.testing.assert_allclose(f(trees, x), f.loop(trees, x), rtol=1e-4, atol=1e-5)
