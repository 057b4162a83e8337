"""Minibatches that are bound by machine code are those that NumPy binds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autobatch as ab
from autobatch.backends.llvm import machine_code
from autobatch.backends.llvm.binding import binding_machine, module
from autobatch.planning import bind
from autobatch.planning.bind import bind_plan
from autobatch.planning.plan import SizeClasses
from tests.passes.frames.programs import prepared
from tests.passes.frames.test_plan import CASES as PLANS
from tests.properties import functions as f
from tests.properties import strategies as draws
from tests.properties.test_poisoned_padding import TREES, WORDS, attended

machine = binding_machine()
pytestmark = pytest.mark.skipif(machine is None, reason="no machine code for this processor, or no llvmlite")

FULL = draws.Many(0.5, [draws.Many(0.25, [draws.Many(0.5)], "b")], "c")
CASES = {
    **PLANS,
    "attended": (attended, draws.many_trees(), FULL, f.params),
    "joined": (f.joined, st.sampled_from(WORDS), [3, 0], f.params),
    "loops of numbers": (f.inner_numeric_loop, st.sampled_from(TREES), draws.perfect(1), f.params),
    "reduced": (f.child_reduction, draws.many_trees(), FULL, f.params),
    "top down": (f.top_down, draws.trees(), draws.perfect(1), f.params),
}


def assert_same(plan, by):
    """All arrays, also where they hold nothing. Capacities are those that the rows need."""

    def sizes():
        return SizeClasses(least=16).capacities

    expected, like = bind_plan(plan, sizes(), None)
    found, signature = bind_plan(plan, sizes(), by)
    assert signature == like
    assert found.keys() == expected.keys()
    for name in expected:
        assert found[name].dtype == expected[name].dtype
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
@settings(max_examples=10)
@given(data=st.data())
def test_the_machine_binds_what_numpy_binds(case, data):
    function, examples, full, shared = case
    batch = [full, *data.draw(draws.batches(examples, 4))]
    chosen = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=6))
    arguments = () if shared is None else (shared(),)
    plan = prepared(function, *arguments, ab.pack(batch)).ready.plan.take(np.array(chosen))
    for share in ("batch", "example"):
        assert_same(plan.sharing(share), machine)


def test_levels_of_many_rows_are_cut_into_many_of_the_widest_windows():
    rng = np.random.default_rng(0)
    trees = [draws.perfect(int(depth), 0.5) for depth in rng.integers(0, 9, 40)]
    plan = prepared(f.bottom_up, f.params(), ab.pack(trees)).ready.plan
    assert_same(plan.take(rng.permutation(40)).sharing("example"), machine)


def test_an_arena_that_is_full_grows(monkeypatch):
    """Anywhere in the steps: each time it doubles, all begins anew."""
    plan = prepared(f.child_sum, f.params(), ab.pack([FULL, draws.Many(1.0)])).ready.plan
    grown = []
    grow = bind.StepState.grow
    monkeypatch.setattr(bind.StepState, "grow", lambda self: (grown.append(len(self.arena)), grow(self)))
    for room in range(16, 512, 32):
        monkeypatch.setattr(bind, "_arenas", [np.empty(room, np.int32)])
        assert_same(plan.take(np.array([1, 0, 0])), machine)
    assert len(grown) > 12, grown


def test_a_table_that_is_longer_than_its_room_is_found():
    """Nothing is written past an end: what the size class has no room for is an error of whoever chose it."""
    plan = prepared(f.bottom_up, f.params(), ab.pack([draws.ladder(60), *TREES])).ready.plan
    with pytest.raises(AssertionError):
        bind_plan(plan.take(np.array([0, 1])), lambda counts, usual: tuple(16 for _ in counts), machine)


def test_the_steps_are_compiled_once(monkeypatch):
    """And kept on disk: a later process links them."""
    monkeypatch.setattr(machine_code, "compile_object", lambda *_: pytest.fail("compiled again"))
    text = module()
    assert machine_code.load(machine_code.target_name("binding", text), text, ("run",), vectorize=True).functions["run"]
