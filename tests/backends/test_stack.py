"""The loop over blocks: how often each block runs, what its stacks cost, and what `explain` says of it."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from autobatch.backends.xla import stack
from autobatch.common import runtime
from autobatch.ir.leaf import Enter, print_blocks, problems
from autobatch.ir.system import Compute, Variable
from autobatch.options import OptionError
from autobatch.passes.liveness import registers
from tests.passes.frames.programs import prepared
from tests.passes.frames.test_growth import rebuilt_buffers
from tests.properties import recursions


def operation(function, *batch):
    """The one operation of a program that runs by blocks."""
    system = prepared(function, recursions.parameters(), *batch).program.compiled.schedule.system
    (found,) = [e for e in system.equations if isinstance(e, Compute) and e.op.name == "blocks"]
    return found


def loop(equation, rows, schedule=stack.EARLIEST):
    """The emitted loop: its results, and how often each block ran."""
    varying = [isinstance(x, Variable) and x.space is not None for x in equation.operands]
    return jax.jit(lambda *xs: stack.run(equation.op, xs, varying, rows, None, schedule))


def test_rows_meet_at_additions():
    """Fibonacci of 6, 7, 8 and 7: alone they need 12 + 20 + 33 + 20 = 85 additions, one for a call that adds. Together
    they need those of the largest: its neighbours' are among them."""
    ns = np.array([6, 7, 8, 7])
    equation = operation(recursions.fib, ns)
    program = equation.op["program"]
    adding = [k for k, b in enumerate(program.blocks) if any(i.op.name == "add" for i in b.body)]
    for schedule, most in ((stack.EARLIEST, 33), (stack.MOST, 50)):
        (found, status), ran = loop(equation, 4, schedule)(jnp.asarray(ns), jnp.asarray(2))
        assert np.asarray(found).tolist() == [8, 13, 21, 13] and not np.asarray(status).any()
        assert sum(int(ran[k]) for k in adding) <= most, print_blocks(program)


def test_calls_and_levels_of_fibonacci():
    """The same numbers by a loop over examples, and by frames, which know them ahead: rows of equal calls are one."""
    added = []

    def one(n):
        if n < 2:
            return n
        added.append(n)
        return one(n - 1) + one(n - 2)

    assert [one(n) for n in (6, 7, 8, 7)] == [8, 13, 21, 13] and len(added) == 85

    @ab.batched(in_axes=(None, 0))
    def fib(p, n):
        if n < 2:
            return p * n
        return fib(p, n - 1) + jnp.tanh(fib(p, n - 2))

    ns = [6, 7, 8, 7]
    found = fib(0.5, ns)
    np.testing.assert_allclose(found, fib.loop(0.5, ns), rtol=1e-6)
    (levels,) = fib.explain(0.5, ns).facts.recurrences
    assert len(levels.levels) <= 8, levels


@ab.batched(in_axes=(None, 0))
def counted_down(p, n):
    """A stack of n entries, and a choice between values in each of them."""
    if n < p["two"]:
        return n
    below = counted_down(p, n - 1)
    added = n
    if below > 100:
        added = below
    return below // 2 + added


@pytest.mark.parametrize("schedule", [stack.EARLIEST, stack.FREE])
def test_schedules_agree(schedule):
    """Rows at different depths, one with more entries than the first stack has; one runs out of blocks, and says so."""
    ns = np.array([2, 40, 0, 7])
    equation = operation(counted_down, ns)
    expected = [int(x) for x in counted_down.loop(recursions.parameters(), ns)]
    (found, status), _ = loop(equation, 4, schedule)(jnp.asarray(ns), jnp.asarray(2))
    assert np.asarray(found).tolist() == expected and not np.asarray(status).any()
    few = replace(equation, op=replace(equation.op, params=(*dict(equation.op.params, steps=30).items(),)))
    (found, status), _ = loop(few, 4, schedule)(jnp.asarray(ns), jnp.asarray(2))
    assert (np.asarray(status) > 0).tolist() == [False, True, False, False]
    assert np.asarray(found)[[0, 2, 3]].tolist() == [expected[k] for k in (0, 2, 3)]


def test_a_choice_between_values_is_no_block():
    """What runs behind the call is one block, with the choice in it."""
    program = operation(counted_down, np.array([3])).op["program"]
    assert "select_n" in [i.op.name for b in program.blocks for i in b.body], print_blocks(program)
    assert len(program.blocks) == 4, print_blocks(program)


def test_programs_on_arrays_run_freely():
    fib = operation(recursions.fib, np.array([3])).op["program"]
    halved = operation(recursions.halved, np.ones((1, 3))).op["program"]
    assert (stack.suited(fib), stack.suited(halved)) == (stack.EARLIEST, stack.FREE)


def test_each_block_runs_for_all_that_wait():
    """Takeuchi: rows at different depths and from four call sites share blocks."""
    batch = (np.array([6, 5, 8, 4]), np.array([4, 3, 4, 2]), np.array([2, 0, 1, 1]))
    equation = operation(recursions.takeuchi, *batch)

    def blocks(rows):
        xs = [jnp.asarray(x[rows]) for x in batch]
        return int(loop(equation, len(rows))(*xs, jnp.asarray(0))[1].sum())

    alone = sum(blocks([k]) for k in range(4))
    assert blocks([0, 1, 2, 3]) < 0.8 * alone


@pytest.mark.xla
def test_stacks_are_written_in_place():
    """No instruction of a loop makes a whole stack anew but the one write; what is larger costs no more."""
    batch = (np.array([6, 5, 8, 4]), np.array([4, 3, 4, 2]), np.array([2, 0, 1, 1]))
    equation = operation(recursions.takeuchi, *batch)
    run = loop(equation, 4)
    hlo = run.lower(*map(jnp.asarray, batch), jnp.asarray(0)).compile().as_text()
    sizes = {stack.LONGEST, equation.op["depth"]}
    assert hlo.count(" while(") >= len(sizes)
    made = rebuilt_buffers(hlo, sizes)
    assert made and all("scatter" in line for line in made), made
    assert len(made) == len(sizes)


def test_what_is_not_read_behind_a_call_is_not_saved():
    """The first call of Fibonacci saves the number, the second one what the first has returned; a last call nothing."""
    saved = [
        [len(b.end.saved) for b in operation(f, *batch).op["program"].blocks if isinstance(b.end, Enter)]
        for f, batch in (
            (recursions.fib, (np.array([3]),)),
            (recursions.gcd, (np.array([4]), np.array([6]))),
            (recursions.ackermann, (np.array([1]), np.array([1]))),
        )
    ]
    assert saved[:2] == [[1, 1], []]
    assert all(n == 1 for n in saved[2][1:]), "the first argument less one"


def test_what_all_calls_hand_on_is_captured():
    """The array of quickselect is no register: it lies on no stack."""
    program = operation(recursions.select, np.ones((2, 5)), np.array([0, 1])).op["program"]
    assert (5,) in [v.type.shape for v in program.captured]
    assert (5,) not in [v.type.shape for v in registers(program)]


@pytest.mark.parametrize("name", ["fib", "ackermann", "minimax", "partitions", "female"])
def test_programs_are_sound(name):
    function, batch = recursions.cases()[name]
    assert list(problems(operation(function, *batch).op["program"])) == []


def test_explain_says_which_line_asks_for_a_stack():
    rng = np.random.default_rng(0)
    text = str(recursions.of_nodes.explain(recursions.parameters(), recursions.trees(rng, 3)))
    assert "stack" in next(line for line in text.splitlines() if "return _steps(p, x * 0.5)" in line)
    assert "computed numbers which calls there are" in text
    assert "frames" in next(line for line in text.splitlines() if line.startswith("  of_nodes"))


def test_stacks_that_no_memory_holds_are_refused_by_name(monkeypatch):
    """Before anything is compiled, with the line that forced the stack; XLA asks for all stacks at once."""

    def deep(p, x):
        if x * p < 0:
            return x
        return x + deep(p, x * p - 1)

    f = ab.batched(deep, in_axes=(None, 0), options={"loops": "xla"})
    monkeypatch.setattr(runtime, "memory_limit", lambda: 10_000_000)
    with pytest.raises(OptionError) as raised:
        f(jnp.float32(1), jnp.ones(1000))
    words = str(raised.value)
    assert "10,000 calls deep (max_depth)" in words and "there are 10.0 MB" in words
    assert "if x * p < 0:" in words and f"{__file__}:" in words
