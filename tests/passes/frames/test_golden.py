"""Golden equations and schedules of typical programs, and what must hold in each of them.

Numbers of values are given anew in the order of their appearance, so that the files change with the equations only.
"""

import re

import numpy as np
import pytest

from autobatch.ir.system import Compute, Gather, PathSum
from autobatch.passes.fission import Recurrence, ScheduleStage
from tests.passes.frames.programs import child_sum, parameters, prepared, rnn, schedule_of, tree_lstm
from tests.properties import functions as f
from tests.properties import strategies as draws

FULL = draws.Many(0.5, [draws.Many(0.25, [draws.Many(0.5)], "b")], "c")
TREE = draws.perfect(2)
UNARY = draws.Node(0.5, 1, draws.Node(0.25, 2, draws.perfect(1)), draws.Node(0.5))
SUM = draws.Add(draws.Neg(draws.Num(0.5)), draws.Mul(draws.Var(1), draws.Num(2.0)))
ITEMS = [draws.Item("go", 1, 0.5), draws.Item("skip", 2, 0.25), draws.Item("stop", 3, 0.5)]
VERTICES = [draws.Vertex(0.5, [1]), draws.Vertex(0.25, [0, 1])]
BLOCK = draws.Block([draws.Assign(SUM), draws.Block([draws.Assign(draws.Var(0))])])

CASES = {
    "bottom_up": (f.bottom_up, f.params, [TREE]),
    "tree_lstm": (tree_lstm, parameters, [TREE]),
    "child_sum_lstm": (child_sum, parameters, [FULL]),
    "rnn": (rnn, parameters, [[0.5, 0.25]]),
    "unary_chains": (f.unary_chains, f.params, [UNARY]),
    "child_reduction": (f.child_reduction, f.params, [FULL]),
    "child_fold": (f.child_fold, f.params, [FULL]),
    "down_then_up": (f.down_then_up, f.params, [TREE]),
    "top_down": (f.top_down, f.params, [TREE]),
    "chained": (f.chained, f.params, [TREE]),
    "chained_thrice": (f.chained_thrice, f.params, [TREE]),
    "tail_recursion": (f.tail_recursion, f.params, [[1, 2]]),
    "nested_loops": (f.nested_loops, f.params, [[[[1, 2]]]]),
    "several_classes": (f.evaluate, lambda: np.arange(3.0), [SUM]),
    "mutual": (f.mutual, f.params, [BLOCK]),
    "fib": (f.float_fib, f.params, [4]),
    "messages": (f.messages, f.params, [VERTICES]),
    "called_from_elsewhere": (f.called_from_elsewhere, f.params, [TREE]),
    "interrupted": (f.interrupted, f.params, [ITEMS]),
    "larger_first": (f.larger_first, f.params, [TREE]),
}


def fresh(function):
    """The same function, that knows no types from earlier calls."""
    return type(function)(function.__wrapped__, function.settings)


def renumbered(text: str) -> str:
    """Values and tables numbered in the order in which they appear."""
    numbers: dict[str, str] = {}

    def number(match: re.Match[str]) -> str:
        return match.group(1) + numbers.setdefault(match.group(2), str(len(numbers)))

    text = re.sub(r"(%)(\d+)\b", number, text)
    numbers = {}
    return re.sub(r"(?<=\w)(:)(\d+)\b(?=[\]\.])", number, text)


@pytest.mark.parametrize("name", CASES)
def test_equations_and_schedule(name, golden):
    function, shared, batch = CASES[name]
    program = prepared(fresh(function), shared(), batch).program.compiled
    golden("frames", name, renumbered(program.as_text("spmd") + "\n" + program.as_text("fissioned")))


def test_numbering_is_by_appearance():
    text = "a.%7 = gather[a.else:31](b.%12)\n%12: float32[] = fold sum[x:9](%7)\n"
    assert renumbered(text) == "a.%0 = gather[a.else:0](b.%1)\n%1: float32[] = fold sum[x:1](%0)\n"


# ---- what the schedules must say


def steps(schedule):
    """Each step as (kind, names of the operations by space)."""
    found = []
    for step in schedule.steps:
        equations = step.equations if isinstance(step, ScheduleStage) else [e for t in step.tasks for e in t.equations]
        ops = [e.op.name for e in equations if isinstance(e, Compute)]
        found.append((type(step).__name__, ops))
    return found


def products(schedule):
    """How many contractions stand before, in and behind the recurrences."""
    found, seen = [0, 0, 0], False
    for kind, ops in steps(schedule):
        seen = seen or kind == "Recurrence"
        found[1 if kind == "Recurrence" else 2 if seen else 0] += ops.count("dot_general")
    return tuple(found)


def recurrences(schedule):
    return [s for s in schedule.steps if isinstance(s, Recurrence)]


def test_projections_before_heads_behind():
    assert products(schedule_of(tree_lstm, parameters(), [TREE])) == (2, 1, 1), "heads of leaves and of inner nodes"
    assert products(schedule_of(rnn, parameters(), [[0.5, 0.25]])) == (1, 1, 1)
    assert products(schedule_of(child_sum, parameters(), [FULL])) == (1, 2, 0)


def test_a_sum_over_the_tree_is_no_recurrence():
    """The loss of each node is computed behind the recurrence of the states; adding them up takes no levels."""
    schedule = schedule_of(tree_lstm, parameters(), [TREE])
    (state,) = recurrences(schedule)
    assert isinstance(schedule.system.equations[-1], PathSum)
    assert len(state.buffers) == 2, "h and c have a buffer each"


def test_only_up_is_one_task():
    (up,) = recurrences(schedule_of(f.bottom_up, f.params(), [TREE]))
    assert len(up.tasks) == 1


def test_down_then_up_are_two_recurrences():
    """Contexts go down, with the product in the loop; sums and states come up in loops of their own."""
    contexts, sums = recurrences(schedule_of(f.top_down, f.params(), [TREE]))
    ops = [[e.op.name for t in r.tasks for e in t.equations if isinstance(e, Compute)] for r in (contexts, sums)]
    assert "dot_general" in ops[0] and ops[1] == ["add"]
    assert len(recurrences(schedule_of(f.down_then_up, f.params(), [TREE]))) == 3, "context, state, largest depth"


def test_chained_calls_have_segments():
    """What a call returns goes to the next call of the same frame: rows of one space in several orders."""
    (loop,) = recurrences(schedule_of(f.chained_thrice, f.params(), [TREE]))
    assert [t.order.segment for t in loop.tasks if t.order.space.name.endswith("else")] == [0, 1, 2]


def test_a_result_handed_on_is_no_row():
    """The right call's result is the caller's: only leaves and what stands between the calls have rows in the loop."""
    (loop,) = recurrences(schedule_of(f.chained, f.params(), [TREE]))
    ops = {t.order.space.name: [e.op.name for e in t.equations if isinstance(e, Compute)] for t in loop.tasks}
    assert all(names[-1] in ("tanh", "cos") and names.count("dot_general") == 1 for names in ops.values())


def test_mutual_recursion_is_one_loop_over_several_spaces():
    loops = recurrences(schedule_of(f.mutual, f.params(), [BLOCK]))
    assert max(len({t.order.space for t in r.tasks}) for r in loops) >= 3


def test_loops_over_tokens_leave_nothing_else_inside():
    """In the loop: a gather of the state, the product, the sum, tanh."""
    (loop,) = recurrences(schedule_of(rnn, parameters(), [[0.5, 0.25]]))
    (task,) = loop.tasks
    kinds = [e.op.name if isinstance(e, Compute) else type(e).__name__ for e in task.equations]
    assert kinds == ["Gather", "dot_general", "add", "tanh"]


def test_unary_chains_cost_nothing():
    """Nodes that hand their child's result on have no rows in the recurrence."""
    (loop,) = recurrences(schedule_of(f.unary_chains, f.params(), [UNARY]))
    ready = prepared(f.unary_chains, f.params(), [UNARY]).ready
    (task,) = loop.tasks
    gathers = [e for e in task.equations if isinstance(e, Gather)]
    assert len(gathers) == 2 and ready.plan.rows(task.order.space.index) == 2


def test_structure_alone_has_no_numbers():
    """A function of structure is computed on the host; the device gets its column."""
    assert steps(schedule_of(f.fib, [5]))[-1][0] == "ScheduleStage"
    assert not recurrences(schedule_of(f.kept_nodes, [TREE]))


def test_compiling_again_gives_the_same_schedule():
    one, again = (prepared(fresh(f.child_sum), f.params(), [FULL]).program.compiled for _ in range(2))
    assert one.as_text("fissioned") == again.as_text("fissioned")
