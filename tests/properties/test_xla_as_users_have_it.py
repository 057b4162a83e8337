"""Batched equals plain Python with all of XLA's optimisations and the code that it makes for users: one function for
each kind of structure, values and gradients. The others of this folder run so in `make test-long`."""

from __future__ import annotations

import pytest

from tests.properties import functions as f
from tests.properties import recursions
from tests.properties import test_equivalence as values
from tests.properties import test_gradients as gradients
from tests.properties.test_poisoned_padding import CASES

pytestmark = pytest.mark.xla


@pytest.mark.parametrize("case", ["down_then_up", "largest_child", "attended", "joined", "evaluate", "scanned"])
def test_values(case):
    function, shared, batch = CASES[case]
    values.check(function, shared(), batch)


@pytest.mark.parametrize("function", [f.down_then_up, f.child_reduction, f.forward], ids=lambda g: g.__name__)
def test_gradients(function):
    batch = {f.forward: [[1, 2, 0], [3], []], f.child_reduction: gradients.MANY}.get(function, gradients.TREES)
    gradients.check(function, f.params(), batch)


def test_recursion_on_computed_numbers():
    function, batch = recursions.cases()["minimax"]
    values.check(function, recursions.parameters(), *batch)
