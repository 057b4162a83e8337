"""What a derivative in reverse keeps: sums of cotangents, and the states of a loop before its turns.

A tape keeps `states` states for each of a few units of turns, so that it has a fixed size however long the loop is
(`backends/xla/masks.py` has the scheme, and where it comes from).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from autobatch.backends.llvm.lanes.analysis import Carried, is_undefined, values_of, values_read
from autobatch.backends.llvm.lanes.blocks import Growing
from autobatch.backends.llvm.lanes.elementwise import convert
from autobatch.backends.llvm.lanes.gathers import PLACES_READ, PLACES_WRITTEN, add_all, add_read
from autobatch.backends.llvm.lanes.ops import shape_of
from autobatch.backends.llvm.lanes.program import Gang
from autobatch.backends.llvm.lanes.tensors import (
    Element,
    Indices,
    MemoryTensor,
    Tensor,
    TensorVariable,
    copied,
    flat,
    fresh,
    in_registers,
    kept,
    over,
    words,
    zeros,
)
from autobatch.backends.llvm.lanes.writer import HALVES, LaneValue, LaneWriter, stored
from autobatch.backends.llvm.machine_code import RefusedError
from autobatch.backends.llvm.text import LlvmFunction
from autobatch.ir.core import ROWS, Apply, Array, For, If, Instruction, Operand, Region, Value, While, regions
from autobatch.ir.regions import Allowed

# ---- chains
#
# Arrays that the turns of a loop change here and there, in derivatives of one lane: one memory for all versions of
# such an array, a log of what was written over, and one memory for the cotangents of all versions.
#
#     for %k do (%a):                                    forward                       backward
#       %b = dynamic_update_slice(%a, %x, %k)            log <- %k, M[%k]; M[%k] = %x    x̄ = C[%k]; C[%k] = 0
#       %y = dynamic_slice(%b, %j)                       %y = M[%j]                      C[%j] += ȳ
#       yield %b                                                                       M as before the turn, by the log
#
# So a turn costs what it reads and writes, not the size of the array. The versions follow one another: each is changed
# once, and read before that. (Operations in place under reverse differentiation: Griewank and Walther, Evaluating
# Derivatives, second edition, section 4.2.)


ENTRY = 16
"""Bytes of an entry of a log: a place, and what was there."""

_UNDO = """
define internal void @autobatch_undo_{of}(ptr %log, i64 %top, i64 %mark, ptr %memory) noinline nounwind {{
entry:
  br label %next
next:
  %height = phi i64 [ %top, %entry ], [ %below, %pop ]
  %some = icmp ugt i64 %height, %mark
  br i1 %some, label %pop, label %done
pop:
  %below = sub i64 %height, 1
  %at = mul i64 %below, {entry}
  %here = getelementptr i8, ptr %log, i64 %at
  %place = load i64, ptr %here
  %value = getelementptr i8, ptr %here, i64 8
  %old = load {of}, ptr %value
  %target = getelementptr {of}, ptr %memory, i64 %place
  store {of} %old, ptr %target
  br label %next
done:
  ret void
}}
"""


@dataclass
class Versions:
    """The versions of an array that a loop carries, and what changes it or reads of it."""

    values: set[Value] = field(default_factory=set)
    writes: list[Apply] = field(default_factory=list)
    reads: list[Apply] = field(default_factory=list)

    def through(self, region: Region, now: Value) -> Value | None:
        """The last version in a region that begins with one; None where something else becomes of the array."""
        last: Value | None = now
        for i in region.body:
            if last is not None:
                last = self.behind(i, last)
        return last

    def behind(self, i: Instruction, now: Value) -> Value | None:
        """The version behind an instruction."""
        read = self.values.intersection(values_read(i))
        if not read:
            return now
        if read != {now}:
            return None
        match i:
            case Apply(op=op) if op.name == "masked":
                return self.behind_masked(i, now)
            case Apply(op=op, operands=xs, results=results) if now not in xs[1:]:
                if op.name in PLACES_WRITTEN and PLACES_WRITTEN[op.name].once(i):
                    self.writes.append(i)
                    return self.add(results[0])
                self.reads.append(i)
                return now if op.name in PLACES_READ else None
            case If():
                return self.behind_branch(i, now)
            case While() | For():
                return self.behind_loop(i, now)
            case _:
                return None

    def add(self, version: Value) -> Value:
        self.values.add(version)
        return version

    def behind_masked(self, i: Apply, now: Value) -> Value | None:
        inner: Region = i.op["region"]
        args = [a for a, x in zip(inner.args, i.operands, strict=True) if x == now]
        if len(args) != 1:
            return None
        last = self.through(inner, self.add(args[0]))
        return self.yielded([inner], [last], i.results, now, args[0])

    def behind_branch(self, i: If, now: Value) -> Value | None:
        arms = (i.then, i.orelse)
        return self.yielded(arms, [self.through(arm, now) for arm in arms], i.results, now, now)

    def yielded(
        self, inside: Sequence[Region], last: Sequence[Value | None], results: Sequence[Value], now: Value, begin: Value
    ) -> Value | None:
        """The version behind regions that end with these, of which one runs."""
        which = {k for r in inside for k, x in enumerate(r.results) if x in self.values}
        if not which:
            return now if all(x == begin for x in last) else None
        if len(which) > 1:
            return None
        (k,) = which
        ends = zip(inside, last, strict=True)
        fits = all(x is not None and (r.results[k] == x or is_undefined(r.results[k], r)) for r, x in ends)
        return self.add(results[k]) if fits else None

    def behind_loop(self, i: While | For, now: Value) -> Value | None:
        begun = [k for k, x in enumerate(i.init) if x == now]
        if not begun:
            same = all(self.through(r, now) == now and self.values.isdisjoint(values_of(r.results)) for r in regions(i))
            return now if same else None
        alone = len(begun) == 1 and self.in_loop(i, begun[0])
        return self.add(i.results[begun[0]]) if alone else None

    def in_loop(self, loop: While | For, k: int) -> bool:
        """Are the values of what a loop carries versions of one array?"""
        if isinstance(loop, While):
            asked = self.add(loop.condition.args[k])
            if self.through(loop.condition, asked) != asked or asked in loop.condition.results:
                return False
        last = self.through(loop.body, self.add(args_of(loop)[k]))
        kept = [j for j, x in enumerate(loop.body.results) if x in self.values]
        return last is not None and kept == [k] and loop.body.results[k] == last


def args_of(loop: While | For) -> tuple[Value, ...]:
    """The arguments of a body that are what the loop carries."""
    return loop.body.args[1:] if isinstance(loop, For) else loop.body.args


def versions_of(loop: While | For, k: int) -> Versions | None:
    """Of an array that a loop carries, where it changes it here and there and does nothing else with it."""
    type = args_of(loop)[k].type
    if not isinstance(type, Array) or in_registers(math.prod(type.shape)) or words(shape_of(type)[0]) != 1:
        return None
    found = Versions()
    return found if found.in_loop(loop, k) and found.writes else None


class Chain:
    """The memory of such an array. `logs`: it is differentiated; `moves`: so that it has cotangents."""

    def __init__(self, gang: Gang, versions: Versions, type: Array, logs: bool, moves: bool) -> None:
        self.w, self.f, self.versions, self.logs = gang.w, gang.w.f, versions, logs
        self.memory = fresh(self.w, *shape_of(type))
        self.total = fresh(self.w, *shape_of(type)) if logs and moves else None
        if logs:
            self.log, self.height = Growing(gang, ENTRY), self.f.slot(0)

    def mark(self) -> str:
        """How much has been written so far."""
        return self.f.get(self.height)

    def note(self, index: Indices, old: Element) -> None:
        """What is written over."""
        f, height = self.f, self.mark()
        assert f.interrupts is not None
        self.log.ensure(height, f.interrupts.give_up)
        place = LaneValue(str(flat(self.w, index, self.memory.shape)), "int64")
        self.log.place(height, 0, "int64", ()).write((), (place,))
        self.log.place(height, 8, self.memory.dtype, ()).write((), old)
        f.set(self.height, f.add(height, 1))

    def undo(self, mark: str) -> None:
        """What was there when so much had been written."""
        f, of = self.f, stored(self.memory.dtype)
        f.declare(_UNDO.format(of=of, entry=ENTRY))
        where = f"ptr {self.log.held()}, i64 {self.mark()}, i64 {mark}, ptr {self.memory.pointer}"
        f.do(f"call void @autobatch_undo_{of}({where})")
        f.set(self.height, mark)

    def pull(self, i: Apply, others: Sequence[Tensor]) -> Tensor:
        """The cotangent of what an instruction has written; what was there before has none."""
        assert self.total is not None
        total, w, written = self.total, self.w, PLACES_WRITTEN[i.op.name]
        new = others[written.new - 1]
        places = written.places(w, i.op, total.shape, others)

        def where(index: Indices) -> tuple[Indices, LaneValue | None]:
            found, inside = places(index)
            return tuple(x for x in found if not isinstance(x, LaneValue)), inside

        def one(index: Indices) -> Element:
            at, inside = where(index)
            (found,) = total.read(at)
            return (found if inside is None else w.select(inside, found, w.constant(0, found.dtype)),)

        def clear(index: Indices) -> None:
            at, inside = where(index)
            none = w.constant(0, total.dtype)
            total.write(at, (none if inside is None else w.select(inside, none, total.read(at)[0]),))

        found = copied(w, Tensor(total.dtype, new.shape, one))
        over(w, new.shape, clear)
        return found


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
