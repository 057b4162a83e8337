"""How the function of a step is written: its operands, registers, what it takes of the arena, why it stops.

Vectors are int32 in the arena, which is filled from the front; what a step needs for itself it takes behind that, and
leaves. A step that finds no room returns `FULL`, one whose table is too long `TOO_LONG`, and nothing is written past
an end.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from autobatch.backends.llvm.text import LlvmFunction
from autobatch.planning.stepped import FIRST, FULL, LENGTH, TOO_LONG, StepOperation

REGISTERS, ARENA, ROOM, USED, CHOSEN, EXAMPLES, OUT = range(7)


class Step:
    """Writes the function of one step. Numbers are i64, vectors pairs of an address and a length."""

    def __init__(self, op: StepOperation) -> None:
        self.op = op
        # no builtins: LLVM would make calls of memset and memcpy of the loops, and there is nobody to call
        head = f"internal i64 @step_{op.name.lower()}(ptr %step, ptr %machine)"
        self.f = LlvmFunction(f'{head} noinline nounwind "no-builtins"')
        self.examples = self._field(EXAMPLES)
        self.out = self._pointer(OUT)

    def text(self) -> str:
        self.f.do("ret i64 0")
        return str(self.f)

    def operand(self, k: int) -> str:
        return self.f.load("i64", "%step", 8 * (k + 1))

    def address(self, k: int) -> str:
        return self.f.load("ptr", "%step", 8 * (k + 1))

    def _field(self, k: int) -> str:
        return self.f.load("i64", "%machine", 8 * k)

    def _pointer(self, k: int) -> str:
        return self.f.load("ptr", "%machine", 8 * k)

    # ---- registers

    def register(self, number: str | int) -> str:
        return self.f.at(self._pointer(REGISTERS), self.f.mul(str(number), 16))

    def vector(self, k: int) -> tuple[str, str]:
        """The register that an operand names."""
        return self.held(self.operand(k))

    def held(self, number: str | int) -> tuple[str, str]:
        place = self.register(number)
        return self.f.load("ptr", place), self.f.load("i64", place, 8)

    def make(self, number: str, length: str) -> str:
        """A vector in a register; its address."""
        address = self.taken(length)
        place = self.register(number)
        self.f.do(f"store ptr {address}, ptr {place}")
        self.resize(number, length)
        return address

    def resize(self, number: str, length: str) -> None:
        self.f.do(f"store i64 {length}, ptr {self.f.at(self.register(number), 8)}")

    def taken(self, length: str) -> str:
        """So many numbers of the arena."""
        f, used = self.f, self._pointer(USED)
        start = f.load("i64", used)
        whole = f.let(f"and i64 {f.add(length, 15)}, -16")  # vectors are whole
        end = f.add(start, whole)
        self.stop(f.let(f"icmp ugt i64 {end}, {self._field(ROOM)}"), FULL)
        f.do(f"store i64 {end}, ptr {used}")
        return f.at(self._pointer(ARENA), f.mul(start, 4))

    @contextmanager
    def scratch(self, length: str) -> Iterator[str]:
        """So many numbers of the arena, for a time."""
        used = self._pointer(USED)
        before = self.f.load("i64", used)
        yield self.taken(length)
        self.f.do(f"store i64 {before}, ptr {used}")

    def stop(self, condition: str, why: int) -> None:
        f = self.f
        stops, goes = f.name("stops"), f.name("goes")
        f.branch(condition, stops, goes)
        f.block(stops, falls=False)
        f.do(f"ret i64 {why}")
        f.block(goes, falls=False)

    # ---- numbers in memory

    def at(self, vector: str, index: str) -> str:
        return self.wide(self.f.load("i32", self.f.at(vector, self.f.mul(index, 4)), align=4))

    def wide(self, number: str) -> str:
        return self.f.let(f"sext i32 {number} to i64")

    def put(self, vector: str, index: str, number: str | int) -> None:
        narrow = self.f.let(f"trunc i64 {number} to i32")
        self.f.do(f"store i32 {narrow}, ptr {self.f.at(vector, self.f.mul(index, 4))}, align 4")

    def wide_at(self, address: str, index: str) -> str:
        return self.f.load("i64", self.f.at(address, self.f.mul(index, 8)))

    def clear(self, vector: str, length: str) -> None:
        with self.f.loop(0, length, 1) as i:
            self.put(vector, i, 0)

    def raise_to(self, slot: str, number: str) -> None:
        """The larger one."""
        f, held = self.f, self.f.get(slot)
        f.set(slot, f.let(f"call i64 @llvm.smax.i64(i64 {held}, i64 {number})"))

    def is_there(self, vector: str) -> str:
        return self.f.let(f"icmp ne ptr {vector}, null")

    def row(self, rows: str, i: str) -> str:
        """rows[i], or i where there are no rows."""
        found = self.f.slot(0)
        self.f.set(found, i)
        with self.f.when(self.is_there(rows)):
            self.f.set(found, self.at(rows, i))
        return self.f.get(found)

    def count(self, rows: tuple[str, str], others: str) -> str:
        """How many rows there are; if none are given, as many as others."""
        return self.f.let(f"select i1 {self.is_there(rows[0])}, i64 {rows[1]}, i64 {others}")

    # ---- spaces

    def space(self, vector: int, space: str, more: int) -> str:
        """The row of LENGTH or FIRST that belongs to a space."""
        f = self.f
        return f.at(self.held(vector)[0], f.mul(f.mul(space, f.add(self.examples, more)), 4))

    def lengths(self, space: str) -> str:
        return self.space(LENGTH, space, 0)

    def begins(self, space: str) -> str:
        return self.space(FIRST, space, 1)

    def rows_of(self, space: str) -> str:
        """How many rows the chosen examples have in a space."""
        return self.at(self.begins(space), self.examples)

    def chosen(self, e: str) -> str:
        return self.wide_at(self._pointer(CHOSEN), e)

    def fits(self, length: str, room: str) -> None:
        self.stop(self.f.let(f"icmp ugt i64 {length}, {room}"), TOO_LONG)
