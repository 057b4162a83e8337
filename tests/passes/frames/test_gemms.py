"""Matrix products in the optimised HLO: one for all leaves, one in the loop for each width, one for all heads."""

import numpy as np
import pytest

import autobatch as ab
from tests.passes.frames.programs import (
    child_sum,
    computations,
    is_product,
    loop_bodies,
    parameters,
    random_many,
    random_tree,
    rnn,
    tree_lstm,
)

pytestmark = pytest.mark.xla


def products(function, batch, widths):
    """How many matrix products run once, and how many are in loops."""
    with ab.options(widths=widths):
        hlo = computations(function.lower(parameters(), batch).as_text("backend"))
    inside = loop_bodies(hlo)
    count = {False: 0, True: 0}
    for name, lines in hlo.items():
        count[name in inside] += sum(is_product(line) for line in lines)
    return count[False], count[True]


@pytest.mark.parametrize("size", [16, 256])
def test_tree_lstm(size):
    """Leaves and heads are one product each; the loop has one for each width."""
    rng = np.random.default_rng(1)
    trees = [random_tree(rng, int(rng.integers(2, 20))) for _ in range(size)]
    assert products(tree_lstm, trees, (64, 8)) == (2, 2)


@pytest.mark.parametrize("widths", [(16,), (32, 16, 8)])
def test_the_loop_has_one_product_for_each_width(widths):
    rng = np.random.default_rng(2)
    trees = [random_tree(rng, 9) for _ in range(16)]
    assert products(tree_lstm, trees, widths) == (2, len(widths))


@pytest.mark.parametrize("size", [16, 256])
def test_child_sum(size):
    """One projection of inputs, over all nodes. In the loop: gates of nodes, and forget gates of edges."""
    rng = np.random.default_rng(3)
    trees = [random_many(rng, int(rng.integers(2, 30))) for _ in range(size)]
    assert products(child_sum, trees, (64, 8)) == (1, 4)


def test_rnn():
    """The projection of all tokens before the loop, the head after it; one product inside."""
    rng = np.random.default_rng(4)
    sentences = [rng.normal(size=int(n)).tolist() for n in rng.integers(1, 12, 16)]
    assert products(rnn, sentences, (16,)) == (2, 1)
