"""A program of blocks for one row: jumps between its blocks, and a stack in memory that grows.

    block_3: save %374, %375 and the number 4 behind the stack; %152 := %387; br block_9
    block_9: ...
    return:  switch (number on top of the stack) to the blocks behind calls
    block_4: take %374, %375 from the stack; ...

Registers of few numbers are variables of LLVM, which its pass `sroa` keeps in machine registers where it can. One row
comes after another, so there is no mask, and an array of a hundred numbers is computed by vectors of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, assert_never

from autobatch.backends.llvm.lanes.control import RegionWriter, is_large
from autobatch.backends.llvm.lanes.elementwise import convert
from autobatch.backends.llvm.lanes.ops import Environment, shape_of
from autobatch.backends.llvm.lanes.program import Gang, Warp
from autobatch.backends.llvm.lanes.tensors import (
    MemoryTensor,
    Tensor,
    TensorVariable,
    copied,
    in_registers,
    kept,
    scalar,
    select,
    set_all,
    word,
    words,
    zeros,
)
from autobatch.backends.llvm.lanes.writer import BYTES, LaneValue, LaneWriter, stored
from autobatch.backends.llvm.machine_code import RefusedError
from autobatch.ir.core import Operand, Region, Value
from autobatch.ir.leaf import Block, BlockProgram, Branch, Enter, Fail, Jump, Move, Return
from autobatch.ir.ops import Op
from autobatch.passes.liveness import coalesced, registers

# ---- stacks
#
# Where a program of blocks has its stack: in memory that grows, or in what each thread of a GPU has of it.
#
# entry k    the number of the block behind the call, then the registers that it reads


FIRST = 32
"""Entries that a stack has room for at first; each time that it is full it becomes twice as large."""

Leave = Callable[[], None]
"""Writes the end of a row that fails: nothing behind it runs."""


class Stack(Protocol):
    """The stack of a row. Heights count entries."""

    def ensure(self, height: str, leave: Leave) -> None:
        """See to it that there is room for an entry above so many, some of which may be unused; `leave` where there is
        no memory for it."""
        ...

    def place(self, height: str, at: int, dtype: str, shape: tuple[int, ...]) -> MemoryTensor:
        """Numbers of the entry above so many, `at` bytes behind its beginning."""
        ...


def stack_of(gang: Gang, entry: int) -> Stack:
    """A stack with entries of so many bytes."""
    return Growing(gang, entry) if gang.warp is None else FixedStack(gang.w, gang.warp, entry)


class Growing:
    """Memory of the C library, which is kept for the rows that follow."""

    def __init__(self, gang: Gang, entry: int) -> None:
        self.w, self.f, self.entry = gang.w, gang.w.f, entry
        self.stack = self.f.cleared_slot("ptr", "null")
        self.room = self.f.cleared_slot("i64", "0")
        self.f.declare("declare ptr @realloc(ptr, i64)")
        self.f.declare("declare void @free(ptr)")
        gang.behind.append(lambda: self.f.do(f"call void @free(ptr {self.held()})"))

    def held(self) -> str:
        return self.f.let(f"load ptr, ptr {self.stack}")

    def ensure(self, height: str, leave: Leave) -> None:
        f = self.f
        with f.when(f.let(f"icmp uge i64 {height}, {f.get(self.room)}"), rarely=True):
            few = f.let(f"icmp ult i64 {height}, {FIRST}")
            room = f.let(f"select i1 {few}, i64 {FIRST}, i64 {f.mul(height, 2)}")
            larger = f.let(f"call ptr @realloc(ptr {self.held()}, i64 {f.mul(room, self.entry)})")
            with f.when(f.let(f"icmp eq ptr {larger}, null")):
                leave()
                f.block(f.name("never"), falls=False)
            f.do(f"store ptr {larger}, ptr {self.stack}")
            f.set(self.room, room)

    def place(self, height: str, at: int, dtype: str, shape: tuple[int, ...]) -> MemoryTensor:
        top = self.f.at(self.held(), self.f.mul(height, self.entry))
        return MemoryTensor(self.w, self.f.at(top, at), dtype, shape)


class FixedStack:
    """What a thread of a GPU has: nothing can be asked for there, so a row that needs more says so and ends, and is run
    again by a launch that has more."""

    def __init__(self, w: LaneWriter, warp: Warp, entry: int) -> None:
        self.w, self.f, self.warp, self.entry = w, w.f, warp, entry

    def ensure(self, height: str, leave: Leave) -> None:
        f = self.f
        needed = f.mul(f.add(height, 1), self.entry)
        with f.when(f.let(f"icmp ugt i64 {needed}, {self.warp.room}")):
            f.do(f"store i64 1, ptr {self.warp.short}")
            leave()
            f.block(f.name("never"), falls=False)

    def place(self, height: str, at: int, dtype: str, shape: tuple[int, ...]) -> MemoryTensor:
        begin = self.f.add(self.f.mul(height, self.entry), at)
        row = self.f.at(self.warp.stack, self.f.mul(begin, self.warp.threads))
        return self.warp.own(self.w, row, dtype, shape)


Derivatives = Callable[[Op, Sequence[Tensor], LaneValue | None], list[Tensor]]
"""The results of an operation `gradient_of` in the lanes of a mask."""


def run_program(gang: Gang, op: Op, xs: Sequence[Tensor], derivatives: Derivatives) -> list[Tensor]:
    """The results of an operation `blocks` for one row, then its status."""
    return BlockMachine(gang, op, derivatives).run(xs)


def laid_out(held: Mapping[int, Sequence[Value]]) -> tuple[int, dict[int, list[int]]]:
    """Bytes of an entry of a stack, and where in it the values lie that blocks keep there, behind a number."""
    largest = 8
    places: dict[int, list[int]] = {}
    for number, values in held.items():
        at, places[number] = 8, []
        for v in values:
            places[number].append(at)
            dtype, shape = shape_of(v.type)
            size = BYTES[stored(word(dtype))] * words(dtype) * math.prod(shape)
            at += -(-size // 8) * 8
        largest = max(largest, at)
    return largest, places


class BlockMachine:
    """Runs an operation `blocks` for one row."""

    def __init__(self, gang: Gang, op: Op, derivatives: Derivatives) -> None:
        if gang.w.width != 1:
            raise RefusedError("programs of blocks for several rows at once")
        self.gang, self.w, self.f = gang, gang.w, gang.w.f
        self.program: BlockProgram = coalesced(op["program"], is_large)
        self.depth, self.steps, self.base = op["depth"], op["steps"], op["base"]
        self.control = RegionWriter(self.w, gang.constant, derivatives)
        self.kept = {v: TensorVariable(self.w, *shape_of(v.type)) for v in registers(self.program)}
        self.captured: Environment = {}
        self.labels = [self.f.name("block") for _ in self.program.blocks]
        self.done, self.back = self.f.name("done"), self.f.name("return")
        self.status, self.taken = self.f.slot(0), self.f.slot(0)
        saved = {k: b.end.saved for k, b in enumerate(self.program.blocks) if isinstance(b.end, Enter)}
        self.entry, self.places = laid_out(saved)
        self.height = self.f.slot(0)
        self.stack = stack_of(gang, self.entry)

    def run(self, xs: Sequence[Tensor]) -> list[Tensor]:
        given = len(self.program.parameters)
        for v, x in zip(self.program.parameters, xs[:given], strict=True):
            if v in self.kept:
                self.kept[v].set(x)
        self.captured = dict(zip(self.program.captured, xs[given:], strict=True))
        if self.program.blocks:
            self.f.do(f"br label %{self.labels[0]}")
        for number, block in enumerate(self.program.blocks):
            self.block(number, block)
        self.returns()
        self.f.block(self.done, falls=False)
        return self.results()

    def results(self) -> list[Tensor]:
        w, types = self.w, self.program.types
        status = w.f.get(self.status)
        failed = LaneValue(w.f.let(f"icmp ne i64 {status}, 0"), "bool")
        found = []
        for v in self.program.results:
            x = self.kept[v].get() if v in self.kept else self.captured[v]
            found.append(select(w, failed, zeros(w, x.dtype, x.shape), x))
        dtype, _ = shape_of(types[-1])
        total = w.f.let(f"select i1 {failed.text}, i64 {w.f.add(status, self.base)}, i64 0")
        whole = LaneValue(total, "int64")
        return [*found, scalar(whole if dtype == "int64" else w.cast("trunc", whole, dtype))]

    # ---- blocks

    def block(self, number: int, block: Block) -> None:
        f, w = self.f, self.w
        f.block(self.labels[number], falls=False)
        taken = f.get(self.taken)
        with f.when(f.let(f"icmp uge i64 {taken}, {self.steps}")):
            self.leave(self.program.too_long(number))
            f.block(f.name("never"), falls=False)
        f.set(self.taken, f.add(taken, 1))
        popped = {} if block.restores is None else self.restore(number, block)
        env: Environment = {**self.captured, **popped, **{v: self.kept[v].get() for v in self.read(block)}}
        self.begun(number, env)
        self.move(block.takes, env)
        made = [r for i in block.body for r in i.results if r in self.kept]
        wanted = [*self.behind(block), *made]
        self.control.region(Region((), block.body, tuple(wanted)), (), env, None)
        changing = [self.kept[v].memory for v in made]
        for x in wanted:
            if isinstance(x, Value):
                found = kept(w, env[x])
                stays = in_registers(found.size) or (found.origin is not None and found.origin not in changing)
                env[x] = found if stays or not made else copied(w, found)
        set_all(w, [self.kept[v] for v in made], [env[v] for v in made])
        self.end(number, block, env)

    def begun(self, number: int, env: Environment) -> None:
        """A block runs, which has `env` from those before it."""

    def read(self, block: Block) -> list[Value]:
        """The registers that a block reads."""
        found: dict[Value, None] = {}
        for x in (
            *(m.source for m in block.takes),
            *(x for i in block.body for x in i.operands),
            *self.behind(block),
        ):
            if isinstance(x, Value) and x in self.kept:
                found[x] = None
        return list(found)

    def behind(self, block: Block) -> list[Operand]:
        """What is read when the body has run."""
        found: list[Operand] = [m.source for m in block.moves]
        if isinstance(block.end, Branch):
            found.append(block.end.condition)
        if isinstance(block.end, Enter):
            found += block.end.saved
        return found

    def move(self, moves: Sequence[Move], env: Environment) -> None:
        """Registers that other blocks read are set; what is of this block alone is another name."""
        found = [self.cast(self.control.read(m.source, env), m.register) for m in moves]
        own = [(m.register, x) for m, x in zip(moves, found, strict=True) if m.register in self.kept]
        set_all(self.w, [self.kept[v] for v, _ in own], [x for _, x in own])
        env.update((m.register, x) for m, x in zip(moves, found, strict=True) if m.register not in self.kept)
        env.update((v, self.kept[v].get()) for v, _ in own)

    def cast(self, x: Tensor, register: Value) -> Tensor:
        """A value in the type of a register."""
        dtype, shape = shape_of(register.type)
        if x.shape == shape and x.dtype == dtype:
            return x
        if x.shape not in ((), shape):
            raise RefusedError(f"a register of shape {shape} that gets an array of shape {x.shape}")
        read = (lambda index: x.at(())) if x.shape == () else x.at
        if x.dtype == dtype:
            return Tensor(dtype, shape, read, x.held, x.fixed)
        return Tensor(dtype, shape, lambda index: (convert(self.w, read(index)[0], dtype),))

    def end(self, number: int, block: Block, env: Environment) -> None:
        f = self.f
        match block.end:
            case Jump(target=target):
                self.move(block.moves, env)
                f.do(f"br label %{self.labels[target]}")
            case Branch(condition=condition, then=then, orelse=orelse):
                chosen = self.control.read(condition, env).one().text
                self.move(block.moves, env)
                f.branch(chosen, self.labels[then], self.labels[orelse])
            case Enter(target=target):
                self.push(number, block.end, env)
                self.move(block.moves, env)
                f.do(f"br label %{self.labels[target]}")
            case Return():
                self.move(block.moves, env)
                f.do(f"br label %{self.back}")
            case Fail(failure=failure):
                self.leave(1 + failure)
            case _:
                assert_never(block.end)

    def leave(self, status: int) -> None:
        """The row is done, and fails."""
        self.f.set(self.status, status)
        self.f.do(f"br label %{self.done}")

    def returns(self) -> None:
        """The end of a function: on to the block behind the call."""
        f = self.f
        f.block(self.back, falls=False)
        height, onward, never = f.get(self.height), f.name("onward"), f.name("never")
        f.branch(f.let(f"icmp eq i64 {height}, 0"), self.done, onward)
        f.block(onward, falls=False)
        (after,) = self.stack.place(f.sub(height, 1), 0, "int64", ()).read(())
        behind = [k for k, b in enumerate(self.program.blocks) if b.restores is not None]
        table = " ".join(f"i64 {k}, label %{self.labels[k]}" for k in behind)
        f.do(f"switch i64 {after.text}, label %{never} [{table}]")
        f.block(never, falls=False)
        f.do("unreachable")

    # ---- the stack

    def push(self, number: int, end: Enter, env: Environment) -> None:
        f = self.f
        height = f.get(self.height)

        def too_deep() -> None:
            self.leave(self.program.too_deep(number))

        with f.when(f.let(f"icmp uge i64 {height}, {self.depth}")):
            too_deep()
            f.block(f.name("never"), falls=False)
        self.stack.ensure(height, too_deep)
        self.stack.place(height, 0, "int64", ()).write((), (self.w.constant(end.after, "int64"),))
        for v, place in zip(end.saved, self.places[number], strict=True):
            x = self.cast(self.control.read(v, env), v)
            self.stack.place(height, place, x.dtype, x.shape).fill(x)
        f.set(self.height, f.add(height, 1))

    def restore(self, number: int, block: Block) -> Environment:
        """Registers get what was saved of them; what this block alone reads is no register."""
        f = self.f
        own: Environment = {}
        height = f.sub(f.get(self.height), 1)
        f.set(self.height, height)
        places = self.places[self.call_before(number)]
        for v, place in zip(block.restores or (), places, strict=True):
            x = self.stack.place(height, place, *shape_of(v.type)).tensor
            if v in self.kept:
                self.kept[v].set(x)
            else:
                own[v] = copied(self.w, x)  # the next call will use this place
        return own

    def call_before(self, number: int) -> int:
        """The block whose call leads to one that pops."""
        blocks = enumerate(self.program.blocks)
        return next(k for k, b in blocks if isinstance(b.end, Enter) and b.end.after == number)
