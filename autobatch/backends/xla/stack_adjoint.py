"""The derivative of a program of blocks: its trace of blocks, replayed backward.

    until all blocks have been undone:
      forward again from the start          tape[i % T] = block, the rows that ran it, registers, what was popped
      for i from the last one back, while the tape has it:
        cotangents = pullback of block i    of the registers before it, and of what it popped
        cotangents of stacks                a push reads them, a pop writes them

An entry of a stack has its cotangent where the entry lay. The tape is a ring and holds so many blocks as fit into a
fixed amount of memory, T: the last ones that ran. For those before, the program runs again up to there, so memory does
not grow with the number of blocks: n blocks cost n * n / (2 * T) blocks more. One loop does all this, so the program of
XLA has each block once forward and once backward: a recursion whose blocks hold recursions grows by that at each step.
Rows that do not run a block compute with the numbers of one that does, so that zero times infinity does not arise.
(Radul et al., MLSys 2020, for the forward pass.)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.backends.xla.row_operations import is_float, over_rows_in_part, select_rows
from autobatch.backends.xla.stack import (
    BlockRun,
    StackEmitter,
    StackState,
    packed,
    run,
    size_of,
    stored_dtype,
    unpacked,
)
from autobatch.ir.core import Value
from autobatch.ir.leaf import Block, Enter
from autobatch.ir.ops import Op
from autobatch.passes.liveness import read_by, set_by

TAPE_BYTES = 1 << 28
"""What a tape may hold."""

SHORTEST, LONGEST = 256, 1 << 14
"""Blocks of a tape at least and at most."""


class BlockTape(NamedTuple):
    """How many blocks have run. Of each of the last ones: its number, which rows ran it, entries on their stacks
    before, registers by dtype, and the entries on top."""

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
        found = apply(moving, still, live)
        return found, (moving, still, live & (found[-1] == 0))

    def backward(held: Any, cotangents: list[Any]) -> Any:
        moving, still, ended = held
        found = _StackReverse(op, whole(moving, still), varying, rows).run(ended, cotangents)
        return [f for f, m in zip(found, moves, strict=True) if m], None, None

    apply.defvjp(forward, backward)
    alive = jnp.ones(rows, bool) if live is None else live
    moving = [jnp.asarray(x) for x, m in zip(xs, moves, strict=True) if m]
    found: list[Any] = apply(moving, [x for x, m in zip(xs, moves, strict=True) if not m], alive)
    return found


class _StackReverse:
    """`kept`: the registers that have cotangents; `stacks`: the positions of the stacks that do; `captured` operands
    that do."""

    def __init__(self, op: Op, xs: Sequence[Any], varying: Sequence[bool], rows: int) -> None:
        self.machine = StackEmitter(op, xs, varying, rows)
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

    def run(self, ended: Any, cotangents: Sequence[Any]) -> list[Any]:
        """The cotangents of all operands that are floats; None for the others. Only rows that `ended` well count, so no
        others run again."""
        m = self.machine
        if self.rows == 0:
            return [jnp.zeros_like(x) if is_float(x) else None for x in self.xs]
        return self.of_operands(self.within(ended, cotangents, m.sizes()))

    def within(self, ended: Any, cotangents: Sequence[Any], sizes: Sequence[int]) -> Moving:
        """The cotangents before the first block, with as many entries of each stack as are enough."""
        m = self.machine
        entries, *larger = sizes
        start = m.start(ended, entries)

        def segment(carry: tuple[Any, Any, Moving]) -> tuple[Any, Any, Moving]:
            end, _, moving = carry
            tape, full = self.recorded(start, end, last=not larger)
            begin = jnp.where(full, tape.count, jnp.maximum(tape.count - self.length, 0))
            return begin, full, self.backward(tape, begin, moving)

        first = jnp.int32(np.iinfo(np.int32).max), jnp.asarray(False), self.seeds(cotangents, ended, entries)
        _, full, moving = jax.lax.while_loop(lambda c: (c[0] > 0) & ~c[1], segment, first)
        moved: Moving = moving._replace(stacks=())
        if not larger:
            return moved
        found: Moving = jax.lax.cond(full, lambda: self.within(ended, cotangents, larger), lambda: moved)
        return found

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

    def recorded(self, state: StackState, end: Any, *, last: bool) -> tuple[BlockTape, Any]:
        """The program up to block `end`, and does it want larger stacks?"""
        m, length = self.machine, self.length
        blank = BlockTape(
            jnp.int32(0),
            jnp.zeros(length, jnp.int32),
            jnp.zeros((length, self.rows), bool),
            jnp.zeros((length, self.rows), jnp.int32),
            tuple(jnp.zeros((length, self.rows, sum(map(size_of, vs))), d) for d, vs in self.groups.items()),
            tuple(jnp.zeros((length, self.rows, w), d) for d, w in zip(m.dtypes, m.widths, strict=True)),
        )

        def turn(carry: tuple[StackState, BlockTape]) -> tuple[StackState, BlockTape]:
            state, tape = carry
            number = m.choose(state)
            here = m.running(state, number).here
            values = dict(zip(m.kept, state.registers, strict=True))
            by_dtype = [jnp.concatenate([packed(values[v], v) for v in vs], axis=1) for vs in self.groups.values()]
            now = BlockTape(tape.count, number, here, state.depth, tuple(by_dtype), m.top(state))
            at = tape.count % length
            written = jax.tree.map(lambda t, x: jax.lax.dynamic_update_index_in_dim(t, x, at, 0), tape[1:], now[1:])
            return m.step(state, last), BlockTape(tape.count + 1, *written)

        def more(carry: tuple[StackState, BlockTape]) -> Any:
            state, tape = carry
            return (state.block < m.done).any() & (tape.count < end) & ~state.full

        state, tape = jax.lax.while_loop(more, turn, (state, blank))
        return tape, state.full

    # ---- backward

    def backward(self, tape: BlockTape, begin: Any, moving: Moving) -> Moving:
        """The cotangents before block `begin`, which the tape has, from those behind the last one."""
        m = self.machine
        pushes, pops = m.stack_use()
        branches = [self.branch(b) for b in m.program.blocks]
        lanes = jnp.arange(self.rows)

        def turn(carry: tuple[Any, Moving]) -> tuple[Any, Moving]:
            left, moving = carry
            i = (left - 1) % self.length
            number, here = tape.number[i], tape.here[i]
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
            return left - 1, Moving(registers, stacks, added)

        found: tuple[Any, Moving] = jax.lax.while_loop(lambda c: c[0] > begin, turn, (tape.count, moving))
        return found[1]

    def branch(self, block: Block) -> Callable[..., Any]:
        """The pullback of one block: cotangents of registers, of what was popped, of captured operands.

        Cotangents of registers that the block leaves alone are passed on as they are: it may be one of a hundred
        blocks, and have one operation, where there are a hundred registers."""
        m = self.machine
        pops, pushes = block.restores is not None, isinstance(block.end, Enter)
        read, changed = read_by(block), set_by(block)
        touched = [v for v in m.kept if v in read or v in changed]
        floats = [v for v in touched if m.home[v] in self.kept]
        made = [v for v in touched if v in changed]
        captured = [v for v in self.captured if v in read]

        def body(here: Any, held: Any, top: Any, of_registers: Any, of_pushed: Any) -> Any:
            first = jnp.argmax(here)
            values = self.registers(held, touched)

            def apply(moved: Any, tops: Any, shared: Any) -> Any:
                whole = {**values, **dict(zip(floats, moved, strict=True))}
                entries = list(top)
                for k, x in zip(self.stacks, tops, strict=False):
                    entries[k] = x
                given = {v: (x, m.captured[v][1]) for v, x in zip(captured, shared, strict=True)}
                safe = {v: _in_place(here, x, first) for v, x in whole.items() if v in read}
                run = BlockRun(m, here, safe, {**m.captured, **given}, over_rows_in_part)
                if block.restores:
                    run.restore(block.restores, [_in_place(here, x, first) for x in entries])
                run.move(block.takes)
                run.compute(block)
                pushed = run.pushed(block.end) if pushes else ()
                run.move(block.moves)
                after = (select_rows(here, m.rows_of(*run.values[v], v), whole[v]) for v in made)
                return [x for v, x in zip(made, after, strict=True) if v in floats], [
                    pushed[k] for k in self.stacks if pushes
                ]

            of = dict(zip((m.kept[k] for k in self.kept), of_registers, strict=True))
            tops = [top[k] for k in self.stacks if pops]
            _, pull = jax.vjp(
                apply, [values[v] for v in floats], tops, [jnp.asarray(m.captured[v][0]) for v in captured]
            )
            found, popped, shared = pull(([of[v] for v in made if v in floats], list(of_pushed) if pushes else []))
            of.update((v, x if v in changed else of[v] + x) for v, x in zip(floats, found, strict=True))
            by_capture = dict(zip(captured, shared, strict=True))
            return (
                tuple(of.values()),
                tuple(popped) if pops else tuple(jnp.zeros_like(top[k]) for k in self.stacks),
                tuple(by_capture.get(v, jnp.zeros_like(m.captured[v][0])) for v in self.captured),
            )

        return body

    def registers(self, held: Sequence[Any], wanted: Sequence[Value]) -> dict[Value, Any]:
        """Some registers of a place of the tape."""
        values: dict[Value, Any] = {}
        for rows, vs in zip(held, self.groups.values(), strict=True):
            begin = 0
            for v in vs:
                if v in wanted:
                    values[v] = unpacked(rows[:, begin : begin + size_of(v)], v)
                begin += size_of(v)
        return values


def _in_place(here: Any, x: Any, first: Any) -> Any:
    """Rows, with those of a row that is here in place of the others."""
    other = x[first]
    return select_rows(here, x, jax.lax.stop_gradient(other) if is_float(x) else other)
