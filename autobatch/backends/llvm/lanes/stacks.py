"""Where a program of blocks has its stack: in memory that grows, or in what each thread of a GPU has of it.

entry k    the number of the block behind the call, then the registers that it reads
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from autobatch.backends.llvm.lanes.program import Gang, Warp
from autobatch.backends.llvm.lanes.tensors import MemoryTensor
from autobatch.backends.llvm.lanes.writer import LaneWriter

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
