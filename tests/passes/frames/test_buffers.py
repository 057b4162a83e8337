"""What level loops carry and read: one buffer an array, no copies of rows beside them, no scalars made for loops."""

import re

import numpy as np
import pytest

import autobatch as ab
from tests.passes.frames.programs import (
    called,
    computations,
    lstm,
    parameters,
    prepared,
    random_tree,
    schedule_of,
    tree_lstm,
)

pytestmark = pytest.mark.xla

WIDTHS = (16, 8)


def sentences(count, seed=0):
    """Words from few, so that most stand more than once."""
    rng = np.random.default_rng(seed)
    return [rng.integers(5, size=int(n)).tolist() for n in rng.integers(1, 12, count)]


def test_states_that_begin_with_the_same_zeros_have_buffers_of_their_own():
    (loop,) = schedule_of(lstm, parameters(), sentences(9)).recurrences()
    zeros = {v for group in loop.buffers for v in group if v.space is None}
    assert len(zeros) == 1
    assert [len(group) for group in loop.buffers] == [2, 2] and all(zeros < set(group) for group in loop.buffers)


def test_nodes_of_both_kinds_share_a_buffer():
    """Leaves and inner nodes are read by one gather; h and c are not read together."""
    trees = [random_tree(np.random.default_rng(0), 9)]
    (loop,) = schedule_of(tree_lstm, parameters(), trees).recurrences()
    assert [len(group) for group in loop.buffers] == [2, 2]
    assert not set(loop.buffers[0]) & set(loop.buffers[1])


def shapes(hlo):
    """The shapes of the arrays that instructions write: not those inside of fused loops."""
    found = computations(hlo)
    fused = {c for lines in found.values() for line in lines for c in re.findall(r"calls=%?([\w.\-]+)", line)}
    made = (re.match(r"(?:ROOT )?%?[\w.\-]+ = (\w+\[[\d,]*\])", x) for c in found.keys() - fused for x in found[c])
    return {m.group(1) for m in made if m}


@pytest.mark.parametrize(("size", "whole"), [(8, True), (64, False)])
def test_wide_rows_of_words_are_copied_window_by_window(size, whole):
    """The product of a word and its matrix is computed once a word. A loop reads wide rows of it through the table of
    words; narrow ones are put in the order of the loop before."""
    p, batch = parameters(size), sentences(40)
    with ab.options(widths=WIDTHS):
        made = prepared(lstm, p, batch)
        hlo = lstm.lower(p, batch).as_text("backend")
        found = lstm(p, batch)
    (loop,) = made.program.compiled.schedule.recurrences()
    tokens = made.ready.signature.capacity[loop.tasks[0].order.space.index]
    assert (f"f32[{tokens},{3 * size}]" in shapes(hlo)) == whole
    np.testing.assert_allclose(found, lstm.loop(p, batch), rtol=1e-5)


def test_levels_make_no_scalars_for_their_loops():
    """Where the windows of a level end is read where a loop compares it: a level only counts itself."""
    trees = [random_tree(np.random.default_rng(k), 9) for k in range(16)]
    with ab.options(widths=WIDTHS):
        found = computations(tree_lstm.lower(parameters(), trees).as_text("backend"))
    bodies = {c for lines in found.values() for line in lines if " while(" in line for c in called(line)}
    (level,) = (found[c] for c in bodies if any(" while(" in line for line in found[c]))
    assert sum(" while(" in line for line in level) == len(WIDTHS)
    assert sum(" fusion(" in line for line in level) <= 1
