"""The form of level loops in what XLA has made of them: golden files of the loops, their writes and their products.

One loop over levels; in it one over the windows of each width of each space, which writes its rows in place; nowhere a
choice between branches that hold buffers.
"""

import re

import numpy as np
import pytest

import autobatch as ab
from tests.passes.frames.programs import (
    called,
    child_sum,
    computations,
    is_product,
    parameters,
    random_many,
    random_tree,
    tree_lstm,
)
from tests.passes.frames.test_growth import expression, trees
from tests.properties import functions

pytestmark = pytest.mark.xla

CASES = {
    "tree_lstm": (tree_lstm, parameters, lambda: trees(60, random_tree)),
    "child_sum": (child_sum, parameters, lambda: trees(60, random_many)),
    "down_then_up": (functions.down_then_up, functions.params, lambda: trees(60, random_tree)),
    "three_paths": (functions.evaluate, lambda: np.arange(3.0), lambda: [expression(k, 6) for k in range(12)]),
}
COUNTED = {"in-place writes": " dynamic-update-slice(", "choices": " conditional("}


def form(hlo: str) -> str:
    """The loops of a module, one in the other, with what each of them does besides those in it."""
    found = computations(hlo)
    entry = re.search(r"^ENTRY %?([\w.\-]+)", hlo, re.MULTILINE)
    assert entry is not None
    return "\n".join(loops(found, entry.group(1), 0)) + "\n"


def loops(found: dict[str, list[str]], name: str, depth: int) -> list[str]:
    inner, own, todo = [], [], [name]
    while todo:
        for line in found[todo.pop(0)]:
            body = re.search(r" while\(.*body=%?([\w.\-]+)", line)
            if body:
                inner.append(body.group(1))
            else:
                own.append(line)
                todo += [c for c in called(line) if c in found]
    counts = {what: sum(words in line for line in own) for what, words in COUNTED.items()}
    counts["products"] = sum(map(is_product, own))
    shown = "".join(f"  {what}: {n}" for what, n in counts.items() if n)
    own_line = [f"{'  ' * (depth - 1)}loop{shown}"] if depth else []
    return [*own_line, *(line for body in inner for line in loops(found, body, depth + 1))]


@pytest.mark.parametrize("name", CASES)
def test_the_form_of_loops(name, golden):
    function, shared, make = CASES[name]
    with ab.options(widths=(16, 8), window_costs="typical", products="xla"):
        text = form(function.lower(shared(), make()).as_text("backend"))
    assert "choices" not in text
    golden("hlo", name, text)
