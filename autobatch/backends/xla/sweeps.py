"""A program of blocks in sweeps: a turn of the loop runs every block once, in order, for the rows that wait for it.

    while some row is not done:
      top = last entry of each row's stack
      block 0 for the rows that wait for it; then block 1 for those that wait for it now; ...
      stacks[depth] = what the rows have pushed           one write a stack

A row goes through as many blocks as lie one behind the other, so there are far fewer turns than blocks. A block stands
behind `any` of its rows, and hands on what it sets: a `switch` over blocks copies every register at every turn. (That
also keeps XLA from computing the counters of all blocks again in each of them.) A row may pop once in a sweep and push
once behind that; else it waits for the next one: stacks are read before the blocks and written behind them, because XLA
copies a stack that a branch reads and another operation writes.

`EARLIEST` runs a block only when no row waits for an earlier one, which lets rows meet and runs the fewest blocks;
`FREE` runs whatever a row waits for, which takes the fewest sweeps. `MOST` is no sweep (`stack.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from autobatch.backends.xla.lanes import select_rows
from autobatch.backends.xla.stack import EARLIEST, FREE, MOST, BlockRun, StackEmitter, StackPlace, StackState
from autobatch.ir.blocks import Block, BlockProgram, Enter, Fail, Return
from autobatch.ir.core import Value
from autobatch.ir.ops import Op
from autobatch.ir.types import Array
from autobatch.passes.analysis.liveness import registers, set_by


def run(
    op: Op,
    xs: Sequence[Any],
    varying: Sequence[bool],
    rows: int,
    live: Any = None,
    schedule: str | None = None,
) -> tuple[list[Any], Any]:
    """The results of an operation `blocks` on `rows` rows, and how often each block ran. `varying`: operands that have
    an axis of rows. Rows that are not `live` run nothing. `schedule`: `EARLIEST`, `FREE` or `MOST`; None: what suits
    the program."""
    schedule = schedule or suited(op["program"])
    if schedule == MOST:
        machine = StackEmitter(op, xs, varying, rows, schedule)
    else:
        machine = Sweeping(op, xs, varying, rows, schedule)
    state = machine.run(jnp.ones(rows, bool) if live is None else live)
    return machine.results(state), state.ran


def suited(program: BlockProgram) -> str:
    """The schedule of a program. Sweeps over arrays cost by their number: `FREE` takes half the time of `EARLIEST` for
    the No-U-Turn Sampler in 100 dimensions. On numbers a block is as cheap as the test whether it runs: fewer are
    better (Fibonacci on 4 rows: 0.50 against 0.62 ms)."""
    arrays = any(isinstance(v.type, Array) and v.type.shape for v in registers(program))
    return FREE if arrays else EARLIEST


class SweepRows(NamedTuple):
    """What has become of the rows in a sweep. Of each: the block that it waits for, its status, the blocks it has run,
    has it popped, has it pushed. `full`: does one wait for a larger stack?"""

    block: Any
    status: Any
    taken: Any
    popped: Any
    pushed: Any
    full: Any


class Sweep(NamedTuple):
    """A sweep under way. `pending`: what the rows that pushed will have on their stacks, by groups of columns."""

    rows: SweepRows
    registers: dict[Value, Any]
    pending: tuple[Any, ...]


class HeldEntries(NamedTuple):
    """What lies on the stacks when a sweep begins: how many entries, those on top, the block that each row returns to,
    and the one that it returns to when it has popped an entry. `room`: how many entries there may be."""

    depth: Any
    top: tuple[Any, ...]
    first: Any
    second: Any
    room: int


class Sweeping(StackEmitter):
    """The emission of one program, whose step is a sweep."""

    def __init__(self, op: Op, xs: Sequence[Any], varying: Sequence[bool], rows: int, schedule: str) -> None:
        super().__init__(op, xs, varying, rows, schedule)
        self.groups = tuple(self.cut())

    def cut(self) -> Iterator[StackPlace]:
        """The columns of the stacks, cut wherever what a call saves ends: a push changes whole groups of columns."""
        ends: dict[int, set[int]] = defaultdict(set)
        for block in self.program.blocks:
            for stack, end in self.used(block).items():
                ends[stack].add(end)
        for stack in sorted(ends):
            for begin, end in pairwise((0, *sorted(ends[stack]))):
                yield StackPlace(stack, begin, end)

    def used(self, block: Block) -> dict[int, int]:
        """How many columns of which stack a block writes when it pushes."""
        if not isinstance(block.end, Enter):
            return {}
        return {0: 1} | {p.stack: p.end for p in self.places_of(block.end.saved)}

    # ---- a sweep

    def step(self, state: StackState, last: bool) -> StackState:
        never = jnp.zeros(self.rows, bool)
        sweep = Sweep(
            SweepRows(state.block, state.status, state.taken, never, never, jnp.asarray(False)),
            dict(zip(self.kept, state.registers, strict=True)),
            tuple(jnp.zeros((self.rows, g.end - g.begin), self.dtypes[g.stack]) for g in self.groups),
        )
        room = state.stacks[0].shape[0] if state.stacks else self.depth
        returns = self.back(state, state.depth), self.back(state, state.depth - 1)
        held = HeldEntries(state.depth, self.top(state), returns[0], returns[1], room)
        ran = []
        for number in range(self.done):
            some = self.some(number, sweep.rows)
            sweep = self.block(number, some, sweep, held, last)
            ran.append(some.astype(jnp.int32))
        rows = sweep.rows
        depth = state.depth - rows.popped + rows.pushed
        return StackState(
            rows.block,
            rows.status,
            depth,
            rows.taken,
            tuple(sweep.registers[v] for v in self.kept),
            self.written(state, sweep, jnp.where(rows.pushed, depth - 1, depth)),
            rows.full,
            state.ran + jnp.stack(ran),
        )

    def written(self, state: StackState, sweep: Sweep, at: Any) -> tuple[Any, ...]:
        """The stacks with what was pushed; a row that pushed nothing writes where nobody reads."""
        lanes = jnp.arange(self.rows)
        made = []
        for k, stack in enumerate(state.stacks):
            parts = [p for p, g in zip(sweep.pending, self.groups, strict=True) if g.stack == k]
            entry = jnp.concatenate(parts, axis=1)
            made.append(stack.at[at, lanes].set(entry, mode="drop", unique_indices=True))
        return tuple(made)

    def some(self, number: int, rows: SweepRows) -> Any:
        """Does a block run now?"""
        waiting = rows.block == number
        ready = self.ready(number, rows)
        if self.schedule == FREE:
            return ready.any()
        held_up = (rows.block < number) | (waiting & ~ready)
        return ready.any() & ~held_up.any()

    def ready(self, number: int, rows: SweepRows) -> Any:
        """The rows that wait for a block and may run it in this sweep."""
        block = self.program.blocks[number]
        ready = rows.block == number
        if block.restores is not None:
            ready = ready & ~(rows.popped | rows.pushed)
        if isinstance(block.end, Enter | Return):
            ready = ready & ~rows.pushed
        return ready

    # ---- a block

    def block(self, number: int, some: Any, sweep: Sweep, held: HeldEntries, last: bool) -> Sweep:
        """The sweep behind a block, which runs where `some` row does."""
        block = self.program.blocks[number]
        changed = [v for v in self.kept if v in set_by(block)]
        used = self.used(block)
        filled = [k for k, g in enumerate(self.groups) if g.begin < used.get(g.stack, 0)]

        def body() -> tuple[SweepRows, list[Any], list[Any]]:
            here, rows = self.counted(number, sweep.rows, held, last)
            values = BlockRun(self, here, sweep.registers, self.captured)
            values.restore(block.restores or (), held.top)
            values.move(block.takes)
            values.compute(block)
            back = jnp.where(rows.popped, held.second, held.first)
            following = jnp.where(here, values.following(block.end, back), rows.block)
            pushed = values.pushed(block.end) if filled else ()
            parts = [
                select_rows(here, pushed[g.stack][:, g.begin : g.end], sweep.pending[k])
                for k, g in ((k, self.groups[k]) for k in filled)
            ]
            values.move(block.moves)
            made = [select_rows(here, self.rows_of(*values.values[v], v), sweep.registers[v]) for v in changed]
            return rows._replace(block=following), made, parts

        def skip() -> tuple[SweepRows, list[Any], list[Any]]:
            return sweep.rows, [sweep.registers[v] for v in changed], [sweep.pending[k] for k in filled]

        rows, made, parts = jax.lax.cond(some, body, skip)
        pending = list(sweep.pending)
        for k, part in zip(filled, parts, strict=True):
            pending[k] = part
        return Sweep(rows, {**sweep.registers, **dict(zip(changed, made, strict=True))}, tuple(pending))

    def counted(self, number: int, rows: SweepRows, held: HeldEntries, last: bool) -> tuple[Any, SweepRows]:
        """The rows that run a block, and all rows with that on their accounts: those that have no steps left end here,
        those whose stack is full end or wait for a larger one."""
        block, program = self.program.blocks[number], self.program
        ready = self.ready(number, rows)
        late = ready & (rows.taken >= self.steps)
        here, status = ready & ~late, jnp.where(late, program.too_long(0) + number, rows.status)
        ended, full = late, rows.full
        if block.restores is not None:
            rows = rows._replace(popped=rows.popped | here)
        if isinstance(block.end, Enter):
            lacking = here & (held.depth - rows.popped >= held.room)
            here = here & ~lacking
            rows = rows._replace(pushed=rows.pushed | here)
            if block.restores is not None:
                rows = rows._replace(popped=rows.popped & ~lacking)
            if last:
                ended, status = late | lacking, jnp.where(lacking, program.too_deep(0) + number, status)
            else:
                full = full | lacking.any()
        if isinstance(block.end, Fail):
            status = jnp.where(here, 1 + block.end.failure, status)
        where = jnp.where(ended, self.done, rows.block)
        return here, rows._replace(block=where, status=status, taken=rows.taken + here, full=full)
