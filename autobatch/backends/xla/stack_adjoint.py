"""The derivative of a program of blocks: its trace of blocks, replayed backward.

    forward again, T blocks at a time       tape[i] = block, the rows that ran it, registers, what was popped
    for i from the last one back:
      cotangents = pullback of block i      of the registers before it, and of what it popped
      cotangents of stacks                  a push reads them, a pop writes them

An entry of a stack has its cotangent where the entry lay. The tape holds so many blocks as fit into a fixed amount of
memory; before those the program runs again from its start, so memory does not grow with the number of blocks: n blocks
on a tape of T cost n * n / (2 * T) blocks more. Rows that do not run a block compute with the numbers of one that does,
so that zero times infinity does not arise. (Radul et al., MLSys 2020, for the forward pass.)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from autobatch.backends.xla.cut import over_rows_that_may_fail
from autobatch.backends.xla.lanes import is_float, over_rows, select_rows
from autobatch.backends.xla.stack import (
    SIZES,
    BlockRun,
    Machine,
    State,
    packed,
    size_of,
    stored_dtype,
    unpacked,
)
from autobatch.backends.xla.sweeps import run
from autobatch.ir.blocks import Block
from autobatch.ir.core import Value
from autobatch.ir.masked import may_have_failed
from autobatch.ir.ops import Op

TAPE_BYTES = 1 << 28
"""What a tape may hold."""

SHORTEST, LONGEST = 256, 1 << 14
"""Blocks of a tape at least and at most."""


class Tape(NamedTuple):
    """Of each block that ran: its number, which rows ran it, entries on their stacks before, registers by dtype, and
    the entries on top."""

    count: Any
    number: Any
    here: Any
    depth: Any
    registers: tuple[Any, ...]
    top: tuple[Any, ...]


class Moving(NamedTuple):
    """Cotangents: of registers, of stacks, of captured operands."""

    registers: tuple[Any, ...]
    stacks: tuple[Any, ...]
    captured: tuple[Any, ...]


def differentiable(op: Op, xs: Sequence[Any], varying: Sequence[bool], rows: int, live: Any) -> list[Any]:
    """The results of `stack.run`, which have a derivative in reverse."""
    moves = [is_float(x) for x in xs]

    def whole(moving: Sequence[Any], still: Sequence[Any]) -> list[Any]:
        floats, others = iter(moving), iter(still)
        return [next(floats) if m else next(others) for m in moves]

    @jax.custom_vjp
    def apply(moving: list[Any], still: list[Any], live: Any) -> list[Any]:
        return run(op, whole(moving, still), varying, rows, live)[0]

    def forward(moving: list[Any], still: list[Any], live: Any) -> Any:
        return apply(moving, still, live), (moving, still, live)

    def backward(held: Any, cotangents: list[Any]) -> Any:
        moving, still, live = held
        found = _Reverse(op, whole(moving, still), varying, rows).run(live, cotangents)
        return [f for f, m in zip(found, moves, strict=True) if m], None, None

    apply.defvjp(forward, backward)
    alive = jnp.ones(rows, bool) if live is None else live
    moving = [jnp.asarray(x) for x, m in zip(xs, moves, strict=True) if m]
    found: list[Any] = apply(moving, [x for x, m in zip(xs, moves, strict=True) if not m], alive)
    return found


class _Reverse:
    """`kept`: the registers that have cotangents; `stacks`: the positions of the stacks that do; `captured` operands
    that do."""

    def __init__(self, op: Op, xs: Sequence[Any], varying: Sequence[bool], rows: int) -> None:
        self.machine = Machine(op, xs, varying, rows)
        self.over_rows = over_rows_that_may_fail if may_have_failed(op) else over_rows
        self.xs, self.varying, self.rows = xs, varying, rows
        m = self.machine
        zeros = [jnp.zeros((), d) for d in m.dtypes]
        self.kept = [k for k, v in enumerate(m.kept) if jnp.issubdtype(stored_dtype(v), jnp.inexact)]
        self.stacks = [k for k, z in enumerate(zeros) if is_float(z)]
        self.captured = [v for v in m.program.captured if is_float(m.captured[v][0])]
        self.groups: dict[Any, list[Value]] = defaultdict(list)
        for v in m.kept:
            self.groups[stored_dtype(v)].append(v)
        numbers = sum(map(size_of, m.kept)) + sum(m.widths) + 2
        fitting = TAPE_BYTES // max(1, 8 * rows * numbers)
        self.length = min(max(1 << max(fitting.bit_length() - 1, 0), SHORTEST), LONGEST)

    # ---- the whole

    def run(self, live: Any, cotangents: Sequence[Any]) -> list[Any]:
        """The cotangents of all operands that are floats; None for the others."""
        m = self.machine
        if self.rows == 0:
            return [jnp.zeros_like(x) if is_float(x) else None for x in self.xs]
        sizes = [s for s in SIZES[1:] if s < m.depth] if m.widths else []
        if not sizes:
            moved = self.within(live, cotangents, m.depth if m.widths else 0)
        else:
            small = m.loop(m.start(live, sizes[0]), last=False)
            moved = jax.lax.cond(
                small.full,
                lambda: self.within(live, cotangents, m.depth),
                lambda: self.within(live, cotangents, sizes[0]),
            )
        return self.of_operands(moved)

    def within(self, live: Any, cotangents: Sequence[Any], entries: int) -> Moving:
        """With so many entries of each stack, which suffice; the cotangents before the first block."""
        m = self.machine
        start = m.start(live, entries)
        final = m.loop(start, last=True)
        ended = live & (final.status == 0)
        total = final.ran.sum()
        segments = (total + self.length - 1) // self.length

        def segment(carry: tuple[Any, Moving]) -> tuple[Any, Moving]:
            number, moving = carry
            state = self.advanced(start, number * self.length)
            return number - 1, self.backward(self.recorded(state), ended, moving)

        first = self.seeds(cotangents, ended, entries)
        moved: tuple[Any, Moving] = jax.lax.while_loop(lambda c: c[0] >= 0, segment, (segments - 1, first))
        return moved[1]._replace(stacks=())

    def seeds(self, cotangents: Sequence[Any], ended: Any, entries: int) -> Moving:
        m = self.machine
        registers = {v: jnp.zeros((self.rows, *v.type.shape), stored_dtype(v)) for v in m.kept}  # type: ignore[union-attr]
        for v, ct in zip(m.program.results, cotangents, strict=False):
            if jnp.issubdtype(stored_dtype(v), jnp.inexact):
                registers[v] = select_rows(ended, ct, jnp.zeros_like(ct)).astype(stored_dtype(v))
        stacks = (jnp.zeros((entries, self.rows, m.widths[k]), m.dtypes[k]) for k in self.stacks)
        captured = (jnp.zeros_like(jnp.asarray(m.captured[v][0])) for v in self.captured)
        return Moving(tuple(registers[m.kept[k]] for k in self.kept), tuple(stacks), tuple(captured))

    def of_operands(self, moved: Moving) -> list[Any]:
        m = self.machine
        by_register = {m.kept[k]: ct for k, ct in zip(self.kept, moved.registers, strict=True)}
        by_capture = dict(zip(self.captured, moved.captured, strict=True))
        found: list[Any] = []
        inputs = (*m.program.parameters, *m.program.captured)
        for v, x, of_rows in zip(inputs, self.xs, self.varying, strict=True):
            if not is_float(x):
                found.append(None)
            elif v in by_capture:
                found.append(by_capture[v].astype(jnp.result_type(x)))
            else:
                ct = by_register[v]
                found.append((ct if of_rows else ct.sum(0)).reshape(jnp.shape(x)).astype(jnp.result_type(x)))
        return found

    # ---- forward again

    def advanced(self, state: State, blocks: Any) -> State:
        """After so many blocks."""
        found: State = jax.lax.while_loop(
            lambda s: s.ran.sum() < blocks, lambda s: self.machine.step(s, last=True), state
        )
        return found

    def recorded(self, state: State) -> Tape:
        """The tape of the next blocks, as many as it holds."""
        m, length = self.machine, self.length
        blank = Tape(
            jnp.int32(0),
            jnp.zeros(length, jnp.int32),
            jnp.zeros((length, self.rows), bool),
            jnp.zeros((length, self.rows), jnp.int32),
            tuple(jnp.zeros((length, self.rows, sum(map(size_of, vs))), d) for d, vs in self.groups.items()),
            tuple(jnp.zeros((length, self.rows, w), d) for d, w in zip(m.dtypes, m.widths, strict=True)),
        )

        def turn(carry: tuple[State, Tape]) -> tuple[State, Tape]:
            state, tape = carry
            number = m.choose(state)
            here = m.running(state, number).here
            values = dict(zip(m.kept, state.registers, strict=True))
            by_dtype = [jnp.concatenate([packed(values[v], v) for v in vs], axis=1) for vs in self.groups.values()]
            now = Tape(tape.count, number, here, state.depth, tuple(by_dtype), m.top(state))
            written = jax.tree.map(
                lambda t, x: jax.lax.dynamic_update_index_in_dim(t, x, tape.count, 0), tape[1:], now[1:]
            )
            return m.step(state, last=True), Tape(tape.count + 1, *written)

        def more(carry: tuple[State, Tape]) -> Any:
            state, tape = carry
            return (state.block < m.done).any() & (tape.count < length)

        found: tuple[State, Tape] = jax.lax.while_loop(more, turn, (state, blank))
        return found[1]

    # ---- backward

    def backward(self, tape: Tape, ended: Any, moving: Moving) -> Moving:
        """The cotangents before the blocks of a tape, from those behind them. Only rows that `ended` well count."""
        m = self.machine
        pushes, pops = m.stack_use()
        branches = [self.branch(b) for b in m.program.blocks]
        lanes = jnp.arange(self.rows)

        def turn(carry: tuple[Any, Moving]) -> tuple[Any, Moving]:
            i, moving = carry
            number = tape.number[i]
            here = tape.here[i] & ended
            does = jnp.asarray(pushes)[number] + jnp.asarray(pops)[number] > 0
            slot = tape.depth[i] - jnp.asarray(pops)[number]
            pushed = tuple(
                jnp.where((here & (jnp.asarray(pushes)[number] > 0))[:, None], s.at[slot, lanes].get(mode="clip"), 0)
                for s in moving.stacks
            )
            held = tuple(t[i] for t in tape.registers)
            top = tuple(t[i] for t in tape.top)
            registers, popped, captured = jax.lax.switch(number, branches, here, held, top, moving.registers, pushed)
            free = moving.stacks[0].shape[0] if moving.stacks else 0
            at = jnp.where(here & does, slot, free)
            stacks = tuple(
                s.at[at, lanes].set(ct, mode="drop", unique_indices=True)
                for s, ct in zip(moving.stacks, popped, strict=True)
            )
            added = tuple(a + b for a, b in zip(moving.captured, captured, strict=True))
            return i - 1, Moving(registers, stacks, added)

        found: tuple[Any, Moving] = jax.lax.while_loop(lambda c: c[0] >= 0, turn, (tape.count - 1, moving))
        return found[1]

    def branch(self, block: Block) -> Callable[..., Any]:
        """The pullback of one block: cotangents of registers, of what was popped, of captured operands."""
        m = self.machine

        def body(here: Any, held: Any, top: Any, of_registers: Any, of_pushed: Any) -> Any:
            first = jnp.argmax(here)
            values = self.registers(held)

            def apply(registers: Any, tops: Any, captured: Any) -> Any:
                whole = list(values)
                for k, x in zip(self.kept, registers, strict=True):
                    whole[k] = x
                entries = list(top)
                for k, x in zip(self.stacks, tops, strict=True):
                    entries[k] = x
                given = {v: (x, m.captured[v][1]) for v, x in zip(self.captured, captured, strict=True)}
                safe = [_in_place(here, x, first) for x in whole]
                run = BlockRun(m, here, dict(zip(m.kept, safe, strict=True)), {**m.captured, **given}, self.over_rows)
                run.restore(block.restores or (), [_in_place(here, x, first) for x in entries])
                run.move(block.takes)
                run.compute(block)
                pushed = run.pushed(block.end)
                run.move(block.moves)
                after = run.kept(whole)
                return [after[k] for k in self.kept], [pushed[k] for k in self.stacks]

            floats = [values[k] for k in self.kept], [top[k] for k in self.stacks]
            _, pull = jax.vjp(apply, *floats, [jnp.asarray(m.captured[v][0]) for v in self.captured])
            registers, popped, captured = pull((list(of_registers), list(of_pushed)))
            return tuple(registers), tuple(popped), tuple(captured)

        return body

    def registers(self, held: Sequence[Any]) -> list[Any]:
        """The registers of a place of the tape."""
        values: dict[Value, Any] = {}
        for rows, vs in zip(held, self.groups.values(), strict=True):
            begin = 0
            for v in vs:
                values[v] = unpacked(rows[:, begin : begin + size_of(v)], v)
                begin += size_of(v)
        return [values[v] for v in self.machine.kept]


def _in_place(here: Any, x: Any, first: Any) -> Any:
    """Rows, with those of a row that is here in place of the others."""
    other = x[first]
    return select_rows(here, x, jax.lax.stop_gradient(other) if is_float(x) else other)
