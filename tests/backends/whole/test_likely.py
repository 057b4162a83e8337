"""Reads as if all indices were in range, and again where one was not: the same as Python's, and as one row alone."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autobatch as ab
from autobatch.backends.llvm import code, machine_code
from autobatch.backends.llvm.lanes.analysis import LikelyReads, reads_of
from autobatch.backends.llvm.lanes.refill import dissolved
from autobatch.ir.core import For, While, walk

try:
    machine_code.host()
except machine_code.UnavailableError as error:
    pytest.skip(f"no machine code here: {error}", allow_module_level=True)

TABLE = np.random.default_rng(0).normal(size=50).astype(np.float32)
NEXT = np.random.default_rng(1).permutation(50).astype(np.int32)
GRID = np.random.default_rng(2).normal(size=(10, 12)).astype(np.float32)


def between(table, i, x):
    """Neighbours, in one order and in the other."""
    return table[i] + x * (table[i + 1] - table[i]), table[i - 1] * 2.0 - table[i - 2]


def on_two_axes(grid, i, x):
    return grid[i, 3] * x + grid[2, i] * grid[i, i + 1]


def behind_a_test(table, i, x):
    """Lanes that do not read have any index."""
    if i >= 0:
        if i < 49:
            return table[i] + table[i + 1] * x
        return x
    return table[0] - x


def in_a_loop(following, i, x):
    """A walk with a read of neighbours, whose lanes end apart."""
    seen = 0
    while x > 0.0:
        seen += following[i] * 3 + following[i - 1]
        i = following[i]
        x -= 0.25
    return i, seen


def in_counted_turns(table, i, x):
    for k in range(3):
        x = x * 0.5 + table[i + k] * table[i + k + 1]
    return x


def one_line_each(table, i, x):
    """Which line fails first is for the row to say."""
    a = table[i + 20]
    b = table[i]
    c = table[i + 21]
    return a + b * c * x


PROGRAMS: dict[str, tuple[Callable[..., Any], np.ndarray]] = {
    "neighbours": (between, TABLE),
    "two axes": (on_two_axes, GRID),
    "behind a test": (behind_a_test, TABLE),
    "a loop": (in_a_loop, NEXT),
    "counted turns": (in_counted_turns, TABLE),
    "lines": (one_line_each, TABLE),
}
HANDLES: dict[tuple[str, int], Any] = {}


def handle(name: str, width: int | None):
    """A program in gangs, or (`width` 1) row by row; failures are masked."""
    if (name, width) not in HANDLES:
        fun, table = PROGRAMS[name]
        f = ab.batched(fun, in_axes=(None, 0, 0), backend="llvm", on_error="mask")
        with pytest.MonkeyPatch.context() as patch:
            if width == 1:
                patch.setattr(code, "widths", lambda whole: iter([1]))
            made = f.lower(table, np.zeros(3, np.int32), np.zeros(3, np.float32)).compile()
        assert (made.executable.width == 1) == (width == 1)
        HANDLES[name, width] = made
    return HANDLES[name, width]


def plainly(name: str, i: int, x: float):
    """What Python makes of an example; the line that it fails on."""
    fun, table = PROGRAMS[name]
    try:
        return fun(table, i, np.float32(x)), None
    except IndexError as error:
        trace = error.__traceback__
        assert trace is not None and trace.tb_next is not None
        return None, trace.tb_next.tb_lineno


@pytest.mark.parametrize("name", PROGRAMS)
@settings(max_examples=12)
@given(st.data())
def test_equals_python_and_one_row_alone(name, data):
    """Most rows are in range; a few are not, or count from the end."""
    likely = st.integers(2, 6)
    indices = data.draw(st.lists(likely | likely | likely | st.integers(-60, 60), min_size=1, max_size=70))
    i = np.array(indices, np.int32)
    x = np.linspace(0.0, 2.0, len(i)).astype(np.float32)
    table = PROGRAMS[name][1]
    found, failures = handle(name, None)(table, i, x)
    alone, _ = handle(name, 1)(table, i, x)
    jax.tree.map(np.testing.assert_array_equal, found, alone)
    lines = {f.index: f.span.line for f in failures}
    for k, (a, b, of) in enumerate(zip(i.tolist(), x.tolist(), ab.unbatch(found), strict=True)):
        wanted, line = plainly(name, a, b)
        assert lines.get(k) == line
        if line is None:
            np.testing.assert_allclose(of, wanted, rtol=1e-5, atol=1e-5)


def reads(name: str) -> LikelyReads | None:
    """Of what a program computes; of the turns of its loop, where it has one."""
    region = dissolved(handle(name, None).executable.whole.region)
    return reads_of(next((i.body for i in walk(region) if isinstance(i, While | For)), region))


def test_reads_of_neighbours_are_one():
    """Both of them know it; there are three reads of `following`, of which two are neighbours."""
    for name, pairs in {"neighbours": 4, "a loop": 2, "behind a test": 2, "counted turns": 2, "two axes": 0}.items():
        found = reads(name)
        assert found is not None
        assert len(found.pairs) == pairs, name
        assert found.checks


def test_what_holds_a_loop_is_written_once():
    assert reads_of(dissolved(handle("a loop", None).executable.whole.region)) is None


def test_arrays_of_indices_beside_numbers_of_them():
    def sorted_rows(x):
        order = np.argsort(x[:, 0])
        return x[order].sum() + x[order[0], 0] + x[order[1:3]].sum()

    given = [np.random.default_rng(k).normal(size=(n, 3)) for k, n in enumerate((3, 5, 4))]
    found = ab.batched(sorted_rows, backend="llvm")(given)
    np.testing.assert_allclose(found, [sorted_rows(x) for x in given], rtol=1e-5)
