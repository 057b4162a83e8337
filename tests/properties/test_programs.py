"""Random programs: batched equals the plain loop, and together they reach every instruction and every placement."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, reject, seed, settings
from hypothesis import strategies as st

import autobatch as ab
from autobatch.testing import NotEquivalent, Program, check_equivalence, programs
from autobatch.testing.programs import batches, typical_tree
from tests import executables
from tests.properties import functions as f
from tests.properties import masked, recursions
from tests.properties.coverage import CONTROL, EVERYTHING, reached
from tests.properties.strategies import Item, Many, perfect
from tests.properties.test_poisoned_padding import attended


@ab.batched(in_axes=(None, 0))
def powers(p, t: Many):
    return sum([powers(p, kid) for kid in t.kids], t.x**2)


PARTS, PART = 2, 4
"""Of the small programs that XLA compiles in `make test`, of each of two kinds, and how many programs each part has."""
MANY = int(os.environ.get("RANDOM_PROGRAMS", "2000"))
"""Programs of `make test-long`."""
REGRESSIONS = sorted((Path(__file__).parent / "regressions").glob("*.py"))
FAMILY = Many(0.5, [Many(1.0), Many(2.0, [Many(3.0)])])
SELDOM = [
    *((g, perfect(2)) for g in (f.chained_thrice, f.with_loss)),
    *((g, FAMILY) for g in (f.child_fold, f.child_reduction, attended, powers)),
    (f.table_keys, [Item("go", 1, 0.5), Item("stop", 2, 0.25)]),
]


def halved(p, x):
    """A branch in a counted loop."""
    for k in range(3):
        if x > p["a"] * k:
            x = x * 0.5
    return x


NUMERIC = [
    (masked.batched(halved), (masked.shared(), [0.5])),
    (recursions.fib, (recursions.parameters(), [3])),
    (masked.batched(masked.nested), (masked.shared(), [0.5])),
    (masked.batched(masked.checked), (masked.shared(), [0.5])),
]
NO_SHRINKING = (Phase.explicit, Phase.generate)
"""Where every attempt compiles with XLA. The reference back end finds small programs."""


def check(program: Program, batch: list[Any], backend: str, grads: bool = False) -> set[str]:
    """The batched call of a drawn program equals the loop; returns what the program reached."""
    executables.let_go()
    shared = (program.parameters(),)
    try:
        check_equivalence(program.function, batch, shared, backends=[backend], grads=grads, jit=False)
    except NotEquivalent as error:
        if error.at_a_jump:
            reject()  # of two right results, which one is chosen by the last place of a number
        raise
    with ab.options(backend=backend):
        return reached(program.function.lower(*shared, batch)._program.compiled)


def test_row_by_row():
    """Values and gradients of many programs on the reference back end: everything before fission, and the adjoint. With
    some functions of `functions.py`, for what is drawn too seldom to be there in each run, they reach everything
    together."""
    counts: Counter[str] = Counter()
    for function, batch in SELDOM:
        counts.update(reached(function.lower(f.params(), [batch])._program.compiled))

    @settings(max_examples=16)
    @given(program=programs(), batch=batches())
    def run(program, batch):
        counts.update(check(program, batch, "interpret", grads=True))

    run()
    missing = EVERYTHING - counts.keys()
    assert not missing, f"no program reached {sorted(missing)}; reached: {dict(counts)}"


def test_control_on_computed_numbers():
    """What compiles agrees, and a third of what is drawn compiles at least (three quarters mostly do: room for other
    draws); the rest is refused with a place and a cure. With some data-dependent functions, for what is
    drawn too seldom, they reach masks and stacks in all their forms."""
    counts: Counter[str] = Counter()
    for function, args in NUMERIC:
        counts.update(reached(function.lower(*args)._program.compiled))
    compiled: list[str] = []
    refused: list[ab.UnsupportedError] = []

    @settings(max_examples=14)
    @given(program=programs(numeric=True), batch=batches())
    def run(program, batch):
        try:
            counts.update(check(program, batch, "interpret"))
            compiled.append(program.source)
        except ab.UnsupportedError as error:
            refused.append(error)

    run()
    assert 3 * len(compiled) >= len(compiled) + len(refused), [str(e).splitlines()[0] for e in refused]
    assert all(e.span.line and e.cure for e in refused)
    missing = CONTROL - counts.keys()
    assert not missing, f"no program reached {sorted(missing)}; reached: {dict(counts)}"


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("numeric", [False, True], ids=["structure", "numbers"])
def test_compiled(numeric, part, pytestconfig):
    """Small programs: values of all of them, gradients of every third; in parts, which run beside each other."""
    drawn = 0

    @seed(1000 * int(pytestconfig.getoption("hypothesis_seed") or 0) + part)
    @settings(max_examples=PART, phases=NO_SHRINKING, database=None)
    @given(program=programs(recursion=numeric, small=True), batch=batches())
    def run(program, batch):
        nonlocal drawn
        drawn += 1
        try:
            check(program, batch, "xla", grads=drawn % 3 == 0)
        except ab.UnsupportedError:
            drawn -= 1
            reject()

    run()
    assert drawn >= PART


@pytest.mark.long
@settings(max_examples=MANY)
@given(program=programs(), batch=batches())
def test_many_row_by_row(program, batch):
    check(program, batch, "interpret", grads=True)


@pytest.mark.long
@settings(max_examples=MANY, phases=NO_SHRINKING)
@given(program=programs(), batch=batches(), grads=st.booleans())
def test_many_compiled(program, batch, grads):
    check(program, batch, "xla", grads=grads)


@pytest.mark.long
@settings(max_examples=MANY, phases=NO_SHRINKING)
@given(program=programs(recursion=True), batch=batches())
def test_many_with_control_on_computed_numbers(program, batch):
    try:
        check(program, batch, "xla", grads=True)
    except ab.UnsupportedError as error:
        assert error.span.line and error.cure


@pytest.mark.parametrize("path", REGRESSIONS, ids=lambda p: p.stem)
@pytest.mark.parametrize("backend", ["interpret", "xla"])
def test_programs_that_once_went_wrong(path, backend):
    """Each file is a program as Hypothesis has shrunk it, and begins with what was wrong."""
    check(Program(path.read_text()), [typical_tree(), typical_tree().kids[0]], backend, grads=True)


@settings(max_examples=22)
@given(program=programs(recursion=True), batch=batches())
def test_programs_with_control_on_computed_numbers_are_python(program, batch):
    """They end, and compute numbers that are bounded."""
    for result in program.function.loop(program.parameters(), batch):
        state = result["state"] if isinstance(result, dict) else result
        assert all(abs(x) <= 13 for x in [*state[0], *state[1:]])


def test_a_program_reads_as_python():
    """The generator's output is ordinary code, the same for the same draw."""
    found = []

    @settings(max_examples=1)
    @given(programs())
    def run(program):
        found.append(program.source)

    run()
    compile(found[0], "drawn", "exec")
    assert "@ab.batched" in found[0] and "def f0(p, t, a, x, k):" in found[0]
