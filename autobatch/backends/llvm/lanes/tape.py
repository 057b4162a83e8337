"""What a derivative in reverse keeps: sums of cotangents, and the states of a loop before its turns.

A tape keeps `states` states for each of a few units of turns, so that it has a fixed size however long the loop is
(`backends/xla/masked_loops.py` has the scheme, and where it comes from).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from autobatch.backends.llvm.lanes.by_number import convert
from autobatch.backends.llvm.lanes.chains import Chain
from autobatch.backends.llvm.lanes.indexing import PLACES_READ, add_all, add_read
from autobatch.backends.llvm.lanes.ops import shape_of
from autobatch.backends.llvm.lanes.tensors import Element, Indices, MemoryTensor, Tensor, TensorVariable, kept, zeros
from autobatch.backends.llvm.lanes.uniform import Carried
from autobatch.backends.llvm.lanes.writer import HALVES, LaneValue, LaneWriter
from autobatch.backends.llvm.machine_code import RefusedError
from autobatch.backends.llvm.text import LlvmFunction
from autobatch.ir.core import Apply, Operand, Value
from autobatch.ir.masked import Allowed
from autobatch.ir.types import ROWS


@dataclass
class Totals:
    """Where the cotangents of large arrays that all rows share are added up over all rows, number by number as they
    come, of one row after another: of a table of which a row reads little, that is all that its derivative costs.
    `mask`: has the row a part?"""

    w: LaneWriter
    memory: dict[Value, MemoryTensor]
    mask: LaneValue | None = None

    def alias(self, x: Operand, inside: Value) -> None:
        """A value is another one in a region of its own."""
        if isinstance(x, Value) and x in self.memory:
            self.memory[inside] = self.memory[x]

    def add(self, x: Value, ct: Tensor) -> None:
        if ct.shape[:1] == (ROWS,):
            raise RefusedError("the derivative by a column of which more than rows is read")
        add_all(self.w, self.memory[x], ct, self.mask)

    def reads(self, i: Apply) -> bool:
        """Does an instruction read some of such an array?"""
        return i.op.name in PLACES_READ and i.operands[0] in self.memory

    def add_read(self, i: Apply, others: Sequence[Tensor], ct: Tensor) -> None:
        x = i.operands[0]
        assert isinstance(x, Value)
        add_read(self.w, i.op, self.memory[x], others, ct, self.mask)


@dataclass
class Cotangents:
    """Sums of cotangents, by value, but for those that are added up elsewhere."""

    w: LaneWriter
    totals: Totals
    held: dict[Value, Tensor] = field(default_factory=dict)

    def add(self, x: Operand, ct: Tensor) -> None:
        if not isinstance(x, Value):
            return
        if x in self.totals.memory:
            self.totals.add(x, ct)
            return
        before = self.held.get(x)
        self.held[x] = ct if before is None else summed(self.w, before, ct)

    def take(self, x: Value) -> Tensor | None:
        found = self.held.pop(x, None)
        return None if found is None else kept(self.w, found)

    def of(self, x: Value) -> Tensor:
        found = self.held.get(x)
        return zeros(self.w, *shape_of(x.type)) if found is None else found


def summed(w: LaneWriter, a: Tensor, b: Tensor) -> Tensor:
    def at(index: Indices) -> Element:
        return tuple(_added(w, x, y) for x, y in zip(a.at(index), b.at(index), strict=True))

    return Tensor(a.dtype, a.shape, at)


def accumulate(variable: TensorVariable, x: Tensor) -> None:
    """Add to a variable, where it lies: `x` reads nothing of it."""
    variable.set(summed(variable.w, variable.get(), x))


def _added(w: LaneWriter, x: LaneValue, y: LaneValue) -> LaneValue:
    if x.dtype in HALVES:
        single = w.instruction("fadd", convert(w, x, "float32"), convert(w, y, "float32"))
        return convert(w, single, x.dtype)
    return w.sum(x, y)


@dataclass
class LoopTape:
    """The states of a loop before its turns. `turns`: a variable, how many there were; `alike`: what lanes share."""

    w: LaneWriter
    turns: str
    allowed: Allowed
    threads: int
    alike: Carried
    memory: list[tuple[str, str, tuple[int, ...], int] | MemoryTensor] = field(default_factory=list)
    """Of each that the loop carries: where its states begin, dtype, shape, and the bytes of a state; or the memory of
    all versions of an array."""
    marks: list[tuple[Chain, str]] = field(default_factory=list)
    """Of each such array that is read in the loop, where it is kept how much was written before a turn."""

    def slot(self, turn: str) -> str:
        """Where the state before a turn lies: at the level of its last digit that is not zero."""
        states, levels = self.allowed.states, self.allowed.levels
        if levels == 1:
            return turn
        if self.threads > 1:
            return self._slot(self.w.f, turn)
        inside, name = LlvmFunction(""), f"autobatch_slot_{states}_{levels}"
        inside.do(f"ret i64 {self._slot(inside, '%turn')}")
        inside.head = f"internal i64 @{name}(i64 %turn) noinline nounwind memory(none)"
        self.w.f.declare(str(inside))
        return self.w.f.let(f"call i64 @{name}(i64 {turn})")

    def _slot(self, f: LlvmFunction, turn: str) -> str:
        states, levels = self.allowed.states, self.allowed.levels

        def digit(level: int) -> str:
            unit = states ** (levels - 1 - level)
            return f.let(f"urem i64 {f.let(f'udiv i64 {turn}, {unit}')}, {states}")

        found = digit(0)
        for level in range(1, levels):
            own = digit(level)
            some = f.let(f"icmp ne i64 {own}, 0")
            found = f.let(f"select i1 {some}, i64 {f.add(own, level * states)}, i64 {found}")
        return found

    def at(self, turn: str) -> list[MemoryTensor]:
        """The memory of the state before a turn."""
        f, slot = self.w.f, self.slot(turn)

        def memory(of: tuple[str, str, tuple[int, ...], int] | MemoryTensor) -> MemoryTensor:
            if isinstance(of, MemoryTensor):
                return of
            base, dtype, shape, size = of
            return MemoryTensor(self.w, f.at(base, f.mul(slot, size)), dtype, shape, threads=self.threads)

        return list(map(memory, self.memory))

    def put(self, turn: str, state: Sequence[Tensor]) -> None:
        for memory, x in zip(self.at(turn), state, strict=True):
            if x.memory != memory:
                memory.fill(x)
        for (chain, _), memory in zip(self.marks, self.marked(turn), strict=True):
            memory.write((), (LaneValue(chain.mark(), "int64"),))

    def get(self, turn: str) -> list[Tensor]:
        return [
            memory.tensor if isinstance(of, MemoryTensor) else memory.final
            for of, memory in zip(self.memory, self.at(turn), strict=True)
        ]

    def marked(self, turn: str) -> list[MemoryTensor]:
        f, slot = self.w.f, self.slot(turn) if self.marks else "0"
        return [MemoryTensor(self.w, f.at(base, f.mul(slot, 8)), "int64", ()) for _, base in self.marks]

    def undo(self, turn: str) -> None:
        """Arrays that the loop changes are again what they were before a turn."""
        for (chain, _), memory in zip(self.marks, self.marked(turn), strict=True):
            chain.undo(memory.read(())[0].text)
