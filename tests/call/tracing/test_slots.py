"""Machine code notes what the methods in Python note."""

import gc
import sys
import threading
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autobatch.call.tracing import slots
from autobatch.call.tracing.log import ExampleNumber, Kinds, SharedMarker, TooLongError
from autobatch.call.tracing.structure import user_code
from autobatch.call.tracing.symbols import Recording, Symbol
from autobatch.call.tracing.templates import noted, type_of

pytestmark = pytest.mark.skipif(slots.machine() is None, reason="there is no machine code here")

FLOAT = np.dtype(np.float32)
OPERATIONS: tuple[Callable[[Any, Any, Any], Any], ...] = (
    lambda x, y, k: x + y,
    lambda x, y, k: x - 0.5 * y,
    lambda x, y, k: x * (k - 2),
    lambda x, y, k: x / (k + 0.25),
    lambda x, y, k: k - x,
    lambda x, y, k: -x,
    lambda x, y, k: abs(x) ** k,
    lambda x, y, k: abs(x) ** 0.5,
    lambda x, y, k: 2**x,
    lambda x, y, k: x * True,
    lambda x, y, k: x + 1j.real,
    lambda x, y, k: x + np.float32(k),
    lambda x, y, k: x * 10**30,
    lambda x, y, k: x * -0.0,
    lambda x, y, k: x + float("nan"),
    lambda x, y, k: jnp.tanh(x),
    lambda x, y, k: jax.nn.relu(x),
    lambda x, y, k: jnp.where(x < y, x, 0.0),
    lambda x, y, k: jnp.maximum(x, y),
    lambda x, y, k: jnp.dot(x, y) * x,
    lambda x, y, k: jnp.sum(x, axis=0) + x,
    lambda x, y, k: x[k % 4] * y,
    lambda x, y, k: x[-1 - k % 4] * y,
    lambda x, y, k: jnp.concatenate([x[k % 3 :], y[: k % 3 + 1]])[:4],
    lambda x, y, k: x[::-1],
    lambda x, y, k: x[None:4:None] + x[k % 4, None],
    lambda x, y, k: x @ y + y,
    lambda x, y, k: x.sum() + y.T,
)


def run(program: list[tuple[int, int, int]], kinds: Kinds, by_machine: bool, most: int = 10**9) -> Recording:
    """Operations, of an operation's number, an operand's, and an integer."""
    recording = Recording(user_code(), kinds, most)
    if not by_machine:
        recording.close()
    held = [
        recording.symbol(ExampleNumber((4,), FLOAT, False, 0, 0)),
        recording.shared(type_of((4,), FLOAT, False), SharedMarker(0)),
        recording.symbol(ExampleNumber((4,), FLOAT, False, 0, 1)),
    ]
    with noted(recording):
        for operation, operand, k in program:
            held.append(OPERATIONS[operation](held[operand % len(held)], held[-1], k))
    recording.close()
    return recording


def operand(recording: Recording) -> Any:
    return recording.symbol(ExampleNumber((4,), FLOAT, False, 0, 0))


def same(first: Recording, second: Recording) -> bool:
    return first.sites == second.sites and first.words == second.words


steps = st.tuples(st.integers(0, len(OPERATIONS) - 1), st.integers(0, 50), st.integers(-1, 4))


@settings(max_examples=40, deadline=None)
@given(st.lists(steps, max_size=30))
def test_notes_are_those_of_python(program: list[tuple[int, int, int]]) -> None:
    kinds = Kinds()
    first = run(program, kinds, True)  # it meets everything
    again, python = run(program, kinds, True), run(program, kinds, False)
    assert same(first, python)
    assert same(again, python)


def test_what_was_met_is_noted_by_machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """No method in Python runs for what was met before."""
    kinds = Kinds()
    program = [(k, 0, 1) for k in (0, 1, 2, 3, 4, 5, 6, 7, 8, 15, 19, 21, 22)]
    before = run(program, kinds, True)
    monkeypatch.setattr(Recording, "again", None)
    assert same(run(program, kinds, True), before)


def test_long_runs() -> None:
    """More steps than the buffer of machine code holds."""
    kinds, program = Kinds(), [(k % 3, k, k % 2) for k in range(slots.ROOM)] * 3
    python = run(program, kinds, False)
    assert len(python.sites) > 3 * slots.ROOM
    assert same(run(program, kinds, True), python)
    assert same(run(program, kinds, True), python)


def test_a_run_ends_where_it_may_not_be_longer() -> None:
    kinds, program = Kinds(), [(0, 0, 0)] * 100
    run(program, kinds, True)
    with pytest.raises(TooLongError) as caught:
        run(program, kinds, True, most=50)
    assert caught.value.place.code is not None
    assert caught.value.place.code.co_filename == __file__


def test_objects_are_kept_and_let_go() -> None:
    kinds, of = Kinds(), type_of((4,), FLOAT, False)
    program = [(k % len(OPERATIONS), k, k % 3) for k in range(100)]

    def counts() -> list[int]:
        gc.collect()
        return [sys.getrefcount(Symbol), sys.getrefcount(of), sum(type(x) is Symbol for x in gc.get_objects())]

    run(program, kinds, True)
    before = counts()
    for _ in range(20):
        run(program, kinds, True)
    more = [b - a for a, b in zip(before, counts(), strict=True)]
    assert max(more) < 20, more  # what each run keeps; caches that other tests have filled give and take a few
    assert more[0] == more[2] == 0


def test_symbols_of_two_runs_and_half_made_ones() -> None:
    kinds = Kinds()
    first, second = (Recording(user_code(), kinds, 10**6) for _ in range(2))
    x, y = (operand(r) for r in (first, second))
    for _ in range(3):
        made = x + y  # noted in the run of the first operand, as Python does
    first.close()
    second.close()
    assert made._run is first
    assert len(first.sites) == 3 and not second.sites
    half: Any = object.__new__(Symbol)
    with pytest.raises(SystemError):
        -half
    with pytest.raises(TypeError):
        x + "text"
    with pytest.raises(TypeError):
        type(x).__add__(1, 2)


def test_threads() -> None:
    """Runs of several threads at once, which meet things for each other."""
    kinds = Kinds()
    programs = [[((j * k) % len(OPERATIONS), k, j % 3) for k in range(200)] for j in range(1, 7)]
    python = [run(p, Kinds(), False) for p in programs]
    for p in programs:
        run(p, kinds, False)
    found: dict[int, Recording] = {}

    def work(number: int) -> None:
        for _ in range(3):
            found[number] = run(programs[number], kinds, True)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(len(programs))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for number, expected in enumerate(python):
        assert len(found[number].sites) == len(expected.sites)
        assert same(found[number], run(programs[number], kinds, False))


def test_tables_grow() -> None:
    table = slots.WordTable(3, 1000)
    for k in range(2000):
        table.put((2, k), (-2 - k,))
    assert len(table.held) == 1000
    assert 2 * len(table.held) <= table.mask
