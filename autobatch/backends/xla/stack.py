"""A program of blocks over the rows of a space: one loop, which runs one block for all rows that wait for it.

So the derivative goes through the blocks (`stack_adjoint.py`), which wants them one by one; a value is computed by many
blocks at once.

    while some row is not done:
      block = the first one, in the order of the program, that a row waits for
      registers, counters = switch(block, ...)        only the rows that wait for it change
      stacks[depth] = what the block pushes           one write a stack, outside of the switch

Rows at different depths, and from different calls, meet wherever they wait for the same block. A branch of a `switch`
that updates a buffer copies it, so branches return rows. A write goes to the first free entry of a row's stack where
the row pushes nothing: nobody reads it. When a stack is full the loop ends, the stacks are copied into larger ones, and
another loop goes on from there.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, assert_never

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.backends.xla.row_operations import RowOperation, over_rows, select_rows
from autobatch.common import runtime
from autobatch.ir import jax_compat
from autobatch.ir.core import Array, Operand, Value
from autobatch.ir.leaf import Block, BlockProgram, Branch, End, Enter, Fail, Jump, Move, Return
from autobatch.ir.ops import Op
from autobatch.options import OptionError
from autobatch.passes.costs import in_words
from autobatch.passes.liveness import registers, set_by

FIRST_BYTES = 1 << 18
"""What the stacks of the first loop take. They are filled with zeros, each time; in the last loop they have all that
they may have."""
SHORTEST, LONGEST = 32, 1024
"""Entries of a row's stack in the first loop, at least and at most."""

EARLIEST, MOST, FREE = "earliest", "most", "free"
"""Which block runs: the first one in the order of the program, the one that most rows wait for, or whatever a row waits
for."""


class StackState(NamedTuple):
    """Of each row: the block that it waits for, `status`, entries on its stack, blocks it has run, registers. `stacks`:
    for each dtype `[entries, rows, numbers]`; the first one starts with the block to go on with. `full`: does a row
    wait for a larger stack? `ran`: how often each block has run."""

    block: Any
    status: Any
    depth: Any
    taken: Any
    registers: tuple[Any, ...]
    stacks: tuple[Any, ...]
    full: Any
    ran: Any


class Running(NamedTuple):
    """A block that is about to run. Of each row: does it run it `here`, does it wait for it, does its stack have room,
    has it steps left, how many entries will be on its stack; and how many entries the block pushes and pops."""

    here: Any
    waiting: Any
    fits: Any
    early: Any
    pushes: Any
    pops: Any
    deeper: Any


class BlockResult(NamedTuple):
    """What a block does to rows: everything in a `StackState` that is small, and what is pushed, by dtype."""

    block: Any
    status: Any
    registers: tuple[Any, ...]
    pushed: tuple[Any, ...]


@dataclass(frozen=True)
class StackPlace:
    """Where numbers of a register lie in the entries of a stack."""

    stack: int
    begin: int
    end: int


class StackEmitter:
    """The emission of one program. `home` are the positions of registers in a state."""

    def __init__(self, op: Op, xs: Sequence[Any], varying: Sequence[bool], rows: int, schedule: str = EARLIEST) -> None:
        self.program: BlockProgram = op["program"]
        self.depth, self.steps, self.base, self.rows, self.schedule = (
            op["depth"],
            op["steps"],
            op["base"],
            rows,
            schedule,
        )
        self.kept = registers(self.program)
        self.home = {v: k for k, v in enumerate(self.kept)}
        given = len(self.program.parameters)
        self.arguments = list(zip(self.program.parameters, xs[:given], varying[:given], strict=True))
        self.captured = {
            v: (x, of_rows) for v, x, of_rows in zip(self.program.captured, xs[given:], varying[given:], strict=True)
        }
        self.done = len(self.program.blocks)
        self.dtypes, self.widths = _layout(self.program)

    # ---- the loop

    def run(self, live: Any) -> StackState:
        if self.rows == 0 or not self.done:
            return self.start(live, 0)
        sizes = self.sizes()
        return self.onward(self.start(live, sizes[0]), sizes[1:])

    def sizes(self) -> list[int]:
        """How many entries the stacks have in one loop after another. Each is a copy of the program."""
        if not self.widths:
            return [0]
        self.check_memory(self.depth)
        first = min(max(FIRST_BYTES // max(self.rows * self.entry_bytes, 1), SHORTEST), LONGEST)
        return [first, self.depth] if first < self.depth else [self.depth]

    @property
    def entry_bytes(self) -> int:
        """What an entry of the stacks of one row takes."""
        return sum(w * jnp.dtype(d).itemsize for d, w in zip(self.dtypes, self.widths, strict=True))

    def onward(self, state: StackState, larger: Sequence[int]) -> StackState:
        """Until all rows are done, with `larger` and larger stacks where a row needs them. Nobody reads them then."""

        def dropped(state: StackState) -> StackState:
            return state._replace(stacks=tuple(s[:0] for s in state.stacks))

        def grown(state: StackState) -> StackState:
            stacks = (jnp.zeros((larger[0], *s.shape[1:]), s.dtype).at[: s.shape[0]].set(s) for s in state.stacks)
            return self.onward(state._replace(stacks=tuple(stacks), full=jnp.asarray(False)), larger[1:])

        state = self.loop(state, last=not larger)
        if not larger:
            return dropped(state)
        found: StackState = jax.lax.cond(state.full, grown, dropped, state)
        return found

    def check_memory(self, entries: int) -> None:
        """Refuse stacks that no memory holds, before the program is compiled: XLA asks for all of it at once."""
        needed, most = entries * self.rows * self.entry_bytes, runtime.memory_limit()
        if needed > most:
            where = self.program.forced
            raise OptionError(
                f"{where}: this recursion may go {self.depth:,} calls deep (max_depth), so that the stacks of "
                f"{self.rows:,} rows are {in_words(needed)}, and there are {in_words(most)}\n{where.excerpt()}\n  set "
                "ab.options(max_depth=...) to what the recursion needs, or call with fewer examples at a time"
            )

    def start(self, live: Any, entries: int) -> StackState:
        self.check_memory(entries)
        values = {v: jax_compat.zeros((self.rows, *_shape(v)), _dtype(v)) for v in self.kept}
        for v, x, of_rows in self.arguments:
            values[v] = self.rows_of(x, of_rows, v)
        zeros = jnp.zeros(self.rows, jnp.int32)
        return StackState(
            jnp.where(live, 0, self.done).astype(jnp.int32),
            zeros,
            zeros,
            zeros,
            tuple(values[v] for v in self.kept),
            tuple(jnp.zeros((entries, self.rows, w), d) for d, w in zip(self.dtypes, self.widths, strict=True)),
            jnp.asarray(False),
            jnp.zeros(self.done, jnp.int32),
        )

    def loop(self, state: StackState, *, last: bool) -> StackState:
        def more(state: StackState) -> Any:
            return (state.block < self.done).any() & ~state.full

        found: StackState = jax.lax.while_loop(more, lambda s: self.step(s, last), state)
        return found

    def step(self, state: StackState, last: bool) -> StackState:
        number = self.choose(state)
        run = self.running(state, number)
        here, pushes, pops = run.here, run.pushes, run.pops
        branches = [self.branch(k, b) for k, b in enumerate(self.program.blocks)]
        back = self.back(state, state.depth - pops)
        rows: BlockResult = jax.lax.switch(
            number, branches, here, state.block, back, state.status, state.registers, self.top(state)
        )
        at = jnp.where(here & (pushes > 0), run.deeper - 1, state.depth)
        lanes = jnp.arange(self.rows)
        stacks = tuple(
            s.at[at, lanes].set(p, mode="drop", unique_indices=True)
            for s, p in zip(state.stacks, rows.pushed, strict=True)
        )
        lacking = run.waiting & ~run.fits & run.early
        after = StackState(
            rows.block,
            rows.status,
            jnp.where(here, run.deeper, state.depth),
            state.taken + here,
            rows.registers,
            stacks,
            jnp.asarray(False) if last else lacking.any(),
            state.ran.at[number].add(1),
        )
        after = self.stopped(after, run.waiting & ~run.early, self.program.too_long(0) + number)
        return self.stopped(after, lacking, self.program.too_deep(0) + number) if last else after

    def running(self, state: StackState, number: Any) -> Running:
        """What a block means for each row."""
        waiting = state.block == number
        pushes, pops = (jnp.asarray(t)[number] for t in self.stack_use())
        room = state.stacks[0].shape[0] if state.stacks else self.depth
        deeper = state.depth - pops + pushes
        fits, early = deeper <= room, state.taken < self.steps
        return Running(waiting & fits & early, waiting, fits, early, pushes, pops, deeper)

    def top(self, state: StackState) -> tuple[Any, ...]:
        """The last entry of each stack."""
        return tuple(self.entry(s, state.depth - 1) for s in state.stacks)

    def stopped(self, state: StackState, where: Any, status: Any) -> StackState:
        return state._replace(
            block=jnp.where(where, self.done, state.block), status=jnp.where(where, status, state.status)
        )

    def choose(self, state: StackState) -> Any:
        """The block that runs next."""
        if self.schedule == EARLIEST:
            return state.block.min()
        waiting = (state.block[:, None] == jnp.arange(self.done)).sum(0)
        return jnp.argmax(waiting).astype(jnp.int32)

    def entry(self, stack: Any, index: Any) -> Any:
        """One entry of each row's stack."""
        return stack.at[index, jnp.arange(self.rows)].get(mode="clip", wrap_negative_indices=False)

    def back(self, state: StackState, depth: Any) -> Any:
        """The block that each row returns to, where so many entries are on its stack."""
        if not state.stacks:
            return jnp.full(self.rows, self.done, jnp.int32)
        found = state.stacks[0].at[depth - 1, jnp.arange(self.rows), 0].get(mode="clip", wrap_negative_indices=False)
        return jnp.where(depth > 0, found, self.done)

    def stack_use(self) -> tuple[Any, Any]:
        """Which blocks push, and which ones pop."""
        pushes = [int(isinstance(b.end, Enter)) for b in self.program.blocks]
        pops = [int(b.restores is not None) for b in self.program.blocks]
        return np.array(pushes, np.int32), np.array(pops, np.int32)

    # ---- blocks

    def branch(self, number: int, block: Block) -> Callable[..., BlockResult]:
        def body(
            here: Any, waits: Any, back: Any, status: Any, held: tuple[Any, ...], top: tuple[Any, ...]
        ) -> BlockResult:
            run = BlockRun(self, here, dict(zip(self.kept, held, strict=True)), self.captured)
            run.restore(block.restores or (), top)
            run.move(block.takes)
            run.compute(block)
            following = run.following(block.end, back)
            pushed = run.pushed(block.end)
            if isinstance(block.end, Fail):
                status = jnp.where(here, 1 + block.end.failure, status)
            run.move(block.moves)
            return BlockResult(jnp.where(here, following, waits), status, run.kept(held), pushed)

        return body

    def places_of(self, saved: Sequence[Value]) -> list[StackPlace]:
        """Where registers that are saved together lie: those of a dtype one behind the other."""
        found = []
        used = [1] + [0] * len(self.dtypes)
        for v in saved:
            stack = self.dtypes.index(stored_dtype(v))
            begin = used[stack]
            used[stack] += size_of(v)
            found.append(StackPlace(stack, begin, used[stack]))
        return found

    def rows_of(self, x: Any, of_rows: bool, v: Value) -> Any:
        """A value as rows of a register."""
        x = x if _is_key(v) else jnp.asarray(x, _dtype(v))
        if not of_rows:
            x = jnp.broadcast_to(x, _shape(v))[None]
        elif x.ndim < 1 + len(_shape(v)):
            x = x.reshape(x.shape[0], *(1,) * (1 + len(_shape(v)) - x.ndim), *x.shape[1:])
        return jnp.broadcast_to(x, (self.rows, *_shape(v)))

    def results(self, state: StackState) -> list[Any]:
        """Those of the operation: zeros for rows that failed, then what they failed with."""
        failed = state.status > 0
        found = []
        for v in self.program.results:
            value = state.registers[self.home[v]]
            blank = jax_compat.zeros(value.shape, value.dtype)
            found.append(select_rows(failed, blank, value))
        return [
            *found,
            jnp.where(failed, state.status + self.base, 0).astype(jax_compat.device_dtype(self.program.types[-1])),
        ]


class BlockRun:
    """A block while its operations are emitted: what each value is now, and whether it has an axis of rows."""

    def __init__(
        self,
        machine: StackEmitter,
        here: Any,
        values: dict[Value, Any],
        captured: dict[Value, tuple[Any, bool]],
        over_rows: RowOperation = over_rows,
    ) -> None:
        self.machine, self.here, self.over_rows = machine, here, over_rows
        self.values: dict[Value, tuple[Any, bool]] = {v: (x, True) for v, x in values.items()} | captured

    def restore(self, saved: Sequence[Value], top: Sequence[Any]) -> None:
        for v, place in zip(saved, self.machine.places_of(saved), strict=True):
            self.values[v] = unpacked(top[place.stack][:, place.begin : place.end], v), True

    def move(self, moves: Sequence[Move]) -> None:
        found = [(m.register, self.machine.rows_of(*self.read(m.source), m.register)) for m in moves]
        self.values.update((r, (x, True)) for r, x in found)

    def read(self, x: Operand) -> tuple[Any, bool]:
        if isinstance(x, Value):
            return self.values[x]
        assert isinstance(x.type, Array) and x.constant < 0
        return jax_compat.literal(x.value, x.type), False

    def compute(self, block: Block) -> None:
        for i in block.body:
            found = [self.read(x) for x in i.operands]
            varying = [of_rows for _, of_rows in found]
            types = [r.type for r in i.results if isinstance(r.type, Array)]
            made = self.over_rows(i.op, types, self.safe(i.op, found), varying)
            for r, x in zip(i.results, made, strict=True):
                self.values[r] = (x if _is_key(r) else jnp.asarray(x, _dtype(r))), any(varying)

    def safe(self, op: Op, found: Sequence[tuple[Any, bool]]) -> list[Any]:
        """Operands on which an operation ends: rows that do not run it might hold what never does."""
        if not (jax_compat.holds_loop(op) or op.name == "gradient_of"):
            return [x for x, _ in found]
        chosen = jnp.where(self.here, jnp.arange(self.machine.rows), jnp.argmax(self.here))
        return [x[chosen] if of_rows else x for x, of_rows in found]

    def following(self, end: End, back: Any) -> Any:
        """The block that each row waits for next; `back` is that which it returns to."""
        match end:
            case Jump(target=target) | Enter(target=target):
                return jnp.int32(target)
            case Branch(condition=condition, then=then, orelse=orelse):
                holds, _ = self.read(condition)
                return jnp.where(holds, jnp.int32(then), jnp.int32(orelse))
            case Return():
                return back
            case Fail():
                return jnp.int32(self.machine.done)
            case _:
                assert_never(end)

    def pushed(self, end: End) -> tuple[Any, ...]:
        """What a block pushes on each stack; zeros where it pushes nothing."""
        machine = self.machine
        parts: dict[int, list[Any]] = defaultdict(list)
        if isinstance(end, Enter):
            parts[0].append(jnp.full((machine.rows, 1), end.after, jnp.int32))
            for v, place in zip(end.saved, machine.places_of(end.saved), strict=True):
                parts[place.stack].append(packed(machine.rows_of(*self.read(v), v), v))
        made = []
        for k, (dtype, width) in enumerate(zip(machine.dtypes, machine.widths, strict=True)):
            rest = width - sum(p.shape[1] for p in parts[k])
            made.append(jnp.concatenate([*parts[k], jnp.zeros((machine.rows, rest), dtype)], axis=1))
        return tuple(made)

    def kept(self, held: Sequence[Any]) -> tuple[Any, ...]:
        """The registers: those of rows that did not run the block are as they were."""
        found = [self.values[v][0] for v in self.machine.kept]
        return tuple(
            old if new is old else select_rows(self.here, self.machine.rows_of(new, self.values[v][1], v), old)
            for v, new, old in zip(self.machine.kept, found, held, strict=True)
        )


# ---- registers as numbers of a stack


def _layout(program: BlockProgram) -> tuple[list[Any], list[int]]:
    """The dtypes of the stacks, and how many numbers an entry of each has: as many as the call that saves most."""
    widths: dict[Any, int] = {}
    for block in program.blocks:
        if isinstance(block.end, Enter):
            used: dict[Any, int] = defaultdict(int, {jnp.dtype(jnp.int32): 1})
            for v in block.end.saved:
                used[stored_dtype(v)] += size_of(v)
            widths.update((d, max(n, widths.get(d, 0))) for d, n in used.items())
    return list(widths), list(widths.values())


def _array(v: Value) -> Array:
    assert isinstance(v.type, Array)
    return v.type


def _shape(v: Value) -> tuple[int, ...]:
    return _array(v).shape


def _dtype(v: Value) -> Any:
    return jax_compat.device_dtype(_array(v))


def _is_key(v: Value) -> bool:
    return _array(v).dtype.startswith("key<")


def _stored(v: Value) -> jax.ShapeDtypeStruct:
    """A register of one row as the stack holds it: keys as their words."""
    if not _is_key(v):
        return jax.ShapeDtypeStruct(_shape(v), _dtype(v))
    words: jax.ShapeDtypeStruct = jax.eval_shape(jax.random.key_data, jax.ShapeDtypeStruct(_shape(v), _dtype(v)))
    return words


def stored_dtype(v: Value) -> Any:
    return jnp.dtype(_stored(v).dtype)


def size_of(v: Value) -> int:
    return math.prod(_stored(v).shape)


def packed(x: Any, v: Value) -> Any:
    """Rows of a register as rows of numbers."""
    return (jax.random.key_data(x) if _is_key(v) else x).reshape(x.shape[0], size_of(v))


def unpacked(rows: Any, v: Value) -> Any:
    found = rows.reshape(rows.shape[0], *_stored(v).shape)
    return jax.random.wrap_key_data(found, impl=jax_compat.key_implementation(_array(v).dtype)) if _is_key(v) else found


# ---- sweeps
#
# A program of blocks in sweeps: a turn of the loop runs every block once, in order, for the rows that wait for it.
#
#     while some row is not done:
#       top = last entry of each row's stack
#       block 0 for the rows that wait for it; then block 1 for those that wait for it now; ...
#       stacks[depth] = what the rows have pushed           one write a stack
#
# A row goes through as many blocks as lie one behind the other, so there are far fewer turns than blocks. A block
# stands behind `any` of its rows, and passes on what it sets: a `switch` over blocks copies every register at every
# turn. (That also keeps XLA from computing the counters of all blocks again in each of them.) A row may pop once in a
# sweep and push once behind that; else it waits for the next one: stacks are read before the blocks and written behind
# them, because XLA copies a stack that a branch reads and another operation writes.
#
# `EARLIEST` runs a block only when no row waits for an earlier one, which lets rows meet and runs the fewest blocks;
# `FREE` runs whatever a row waits for, which takes the fewest sweeps. `MOST` is no sweep.


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
