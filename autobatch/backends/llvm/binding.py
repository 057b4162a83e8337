"""The machine that binds minibatches, as machine code: all steps one after another.

run(steps, count, machine)      machine: registers, arena, its room, what is used of it, chosen, examples, out
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autobatch.backends.llvm import machine_code
from autobatch.backends.llvm.machine_code import UnavailableError
from autobatch.backends.llvm.text import LlvmFunction
from autobatch.planning.bind import FIRST, FULL, LENGTH, TOO_LONG, WORDS, StepMachine, StepOperation, Steps, StepState

# ---- step
#
# How the function of a step is written: its operands, registers, what it takes of the arena, why it stops.
#
# Vectors are int32 in the arena, which is filled from the front; what a step needs for itself it takes behind that, and
# leaves. A step that finds no room returns `FULL`, one whose table is too long `TOO_LONG`, and nothing is written past
# an end.


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


# ---- functions
#
# The function of each step of `planning/bind.py`.


def lengths(s: Step) -> None:
    f, starts, spaces, stride = s.f, s.address(0), s.operand(1), s.f.add(s.operand(2), 1)
    length = s.make(str(LENGTH), f.mul(spaces, s.examples))
    first = s.make(str(FIRST), f.mul(spaces, f.add(s.examples, 1)))
    at, total = f.slot(0), f.slot(0)
    with f.loop(0, spaces, 1) as space:
        of_space = f.at(starts, f.mul(f.mul(space, stride), 8))
        f.set(total, 0)
        with f.loop(0, s.examples, 1) as e:
            chosen = s.chosen(e)
            rows = f.sub(s.wide_at(of_space, f.add(chosen, 1)), s.wide_at(of_space, chosen))
            s.put(length, f.get(at), rows)
            s.put(first, f.add(f.get(at), space), f.get(total))
            f.set(total, f.add(f.get(total), rows))
            f.set(at, f.add(f.get(at), 1))
        s.put(first, f.add(f.get(at), space), f.get(total))


def cut(s: Step) -> None:
    f, table, starts, space = s.f, s.address(1), s.address(2), s.operand(3)
    to, rows, shifts = s.make(s.operand(0), s.rows_of(space)), s.lengths(space), s.begins(s.operand(4))
    at = f.slot(0)
    with f.loop(0, s.examples, 1) as e:
        origin = f.at(table, f.mul(s.wide_at(starts, s.chosen(e)), 4))
        here, shift, length = f.at(to, f.mul(f.get(at), 4)), s.at(shifts, e), s.at(rows, e)
        with f.loop(0, length, 1) as r:
            s.put(here, r, f.add(s.at(origin, r), shift))
        f.set(at, f.add(f.get(at), length))


def distinct(s: Step) -> None:
    f, (numbers, count), space = s.f, s.vector(1), s.operand(3)
    to = s.operand(0)
    which_register = f.add(to, 1)
    which, first = s.make(which_register, count), s.make(to, count)
    apart = f.let(f"icmp sge i64 {space}, 0")
    held = f.let(f"select i1 {apart}, i64 {space}, i64 0")
    rows, parts = s.lengths(held), f.let(f"select i1 {apart}, i64 {s.examples}, i64 1")
    found, begin, length = f.slot(0), f.slot(0), f.slot(0)
    with s.scratch(s.operand(2)) as mark, f.loop(0, parts, 1) as part:
        f.set(length, count)
        with f.when(apart):
            f.set(length, s.at(rows, part))
        start, many = f.get(begin), f.get(length)
        with f.loop(0, many, 1) as back:  # of equal numbers, the first is written last
            i = f.add(start, f.sub(f.sub(many, back), 1))
            s.put(mark, s.at(numbers, i), i)
        with f.loop(0, many, 1) as r:
            i = f.add(start, r)
            earliest = s.at(mark, s.at(numbers, i))
            with f.when(f.let(f"icmp eq i64 {earliest}, {i}")) as otherwise:
                s.put(which, i, f.get(found))
                s.put(first, f.get(found), i)
                f.set(found, f.add(f.get(found), 1))
                otherwise()
                s.put(which, i, s.at(which, earliest))
        f.set(begin, f.add(start, many))
    s.resize(to, f.get(found))


def read(s: Step) -> None:
    f, (owner, count), (first, _), (which, _) = s.f, s.vector(1), s.vector(2), s.vector(3)
    to, found = s.make(s.operand(0), count), f.slot(0)
    with f.loop(0, count, 1) as i:
        row = s.at(owner, i)
        with f.when(f.let(f"icmp eq i64 {s.at(first, s.at(which, row))}, {row}")):
            s.put(to, f.get(found), i)
            f.set(found, f.add(f.get(found), 1))
    s.resize(s.operand(0), f.get(found))


def all_rows(s: Step) -> None:
    to = s.make(s.operand(0), count := s.rows_of(s.operand(1)))
    with s.f.loop(0, count, 1) as i:
        s.put(to, i, i)


def sort(s: Step) -> None:
    """By counting (D. E. Knuth, "The Art of Computer Programming", volume 3, section 5.2, algorithm D)."""
    f, keys, rows = s.f, s.vector(1), s.vector(2)
    count = s.count(rows, keys[1])
    to, most = s.make(s.operand(0), count), f.slot(0)
    with f.loop(0, count, 1) as i:
        s.raise_to(most, s.at(keys[0], s.row(rows[0], i)))
    many = f.add(f.get(most), 2)
    with s.scratch(many) as begin:
        s.clear(begin, many)
        with f.loop(0, count, 1) as i:
            behind = f.add(s.at(keys[0], s.row(rows[0], i)), 1)
            s.put(begin, behind, f.add(s.at(begin, behind), 1))
        with f.loop(1, many, 1) as key:
            s.put(begin, key, f.add(s.at(begin, key), s.at(begin, f.sub(key, 1))))
        with f.loop(0, count, 1) as i:
            row = s.row(rows[0], i)
            key = s.at(keys[0], row)
            place = s.at(begin, key)
            s.put(to, place, row)
            s.put(begin, key, f.add(place, 1))


def count(s: Step) -> None:
    f, (owner, elements) = s.f, s.vector(1)
    more = f.let(f"icmp ne i64 {s.operand(3)}, 0")
    with f.when(more) as otherwise:
        otherwise()
        rows = s.rows_of(s.operand(2))
        s.clear(s.make(s.operand(0), rows), rows)
    to, _ = s.vector(0)
    with f.loop(0, elements, 1) as i:
        row = s.at(owner, i)
        s.put(to, row, f.add(s.at(to, row), 1))


def place(s: Step) -> None:
    f, (order, ordered), (first, _), (which, _) = s.f, s.vector(1), s.vector(2), s.vector(3)
    rows = s.rows_of(s.operand(4))
    to = s.make(s.operand(0), rows)
    with f.when(s.is_there(which)) as otherwise:
        with s.scratch(rows) as held:
            with f.loop(0, ordered, 1) as i:
                s.put(held, s.at(order, i), i)
            with f.loop(0, rows, 1) as row:
                s.put(to, row, s.at(held, s.at(first, s.at(which, row))))
        otherwise()
        with f.loop(0, ordered, 1) as i:
            s.put(to, s.at(order, i), i)


def gather(s: Step) -> None:
    f, table, rows, (places, size) = s.f, s.vector(3), s.vector(4), s.vector(5)
    count, start, stride, offset = s.count(rows, table[1]), s.operand(0), s.operand(2), s.operand(6)
    s.fits(f.mul(count, stride), s.operand(1))
    last = f.sub(size, 1)

    def entry(i: str) -> str:
        """What the table holds for a row; the row itself where there is no table."""
        row, found = s.row(rows[0], i), f.slot(0)
        f.set(found, row)
        with f.when(s.is_there(table[0])):
            f.set(found, s.at(table[0], row))
        return f.get(found)

    def written(position: Callable[[str], str]) -> None:
        with f.loop(0, count, 1) as i:
            s.put(s.out, f.add(start, f.mul(i, stride)), f.add(position(entry(i)), offset))

    def clipped(row: str) -> str:
        """Pointers that mean nothing lie past all rows."""
        low = f.let(f"call i64 @llvm.smax.i64(i64 {row}, i64 0)")
        return s.at(places, f.let(f"call i64 @llvm.smin.i64(i64 {low}, i64 {last})"))

    with f.when(s.is_there(places)) as otherwise:
        with f.when(f.let(f"icmp sgt i64 {size}, 0")):
            written(clipped)
        otherwise()
        written(lambda row: row)


def fill(s: Step) -> None:
    f, (_, count), start = s.f, s.vector(2), s.operand(0)
    value = s.operand(3)
    s.fits(count, s.operand(1))
    with f.loop(0, count, 1) as i:
        s.put(s.out, f.add(start, i), value)


def join(s: Step) -> None:
    f, space = s.f, s.operand(1)
    size = f.add(s.rows_of(space), 1)
    s.clear(s.make(s.operand(0), size), size)
    to, begin = s.make(f.add(s.operand(0), 1), s.examples), s.begins(space)
    with f.loop(0, s.examples, 1) as e:
        s.put(to, e, s.at(begin, e))


def member(s: Step) -> None:
    f, (to, _), (places, _), offset = s.f, s.vector(0), s.vector(2), s.operand(3)
    (following, _), rows = s.held(f.add(s.operand(0), 1)), s.lengths(s.operand(1))
    one, row = f.let(f"icmp ne i64 {s.operand(4)}, 0"), f.slot(0)
    with f.loop(0, s.examples, 1) as e:
        start, length = s.at(following, e), s.at(rows, e)
        with f.loop(0, length, 1) as r:
            lies = f.add(s.row(places, f.get(row)), offset)
            s.put(to, f.add(start, r), f.let(f"select i1 {one}, i64 {offset}, i64 {lies}"))
            f.set(row, f.add(f.get(row), 1))
        s.put(following, e, f.add(start, length))


def mapped(s: Step) -> None:
    f, (table, _), (rows, count) = s.f, s.vector(1), s.vector(2)
    to = s.make(s.operand(0), count)
    with f.loop(0, count, 1) as i:
        s.put(to, i, s.at(table, s.at(rows, i)))


def starts(s: Step) -> None:
    f, owner, rows, room = s.f, s.vector(2), s.vector(3), s.operand(1)
    out = f.at(s.out, f.mul(s.operand(0), 4))
    s.clear(out, room)
    with f.loop(0, s.count(rows, owner[1]), 1) as i:
        behind = f.add(s.at(owner[0], s.row(rows[0], i)), 1)
        s.fits(behind, f.sub(room, 1))
        s.put(out, behind, f.add(s.at(out, behind), 1))
    with f.loop(1, room, 1) as i:
        s.put(out, i, f.add(s.at(out, i), s.at(out, f.sub(i, 1))))


def deepest(s: Step) -> None:
    f, level, rows = s.f, s.vector(1), s.vector(2)
    count, most = s.count(rows, level[1]), f.slot(0)
    with f.when(f.let(f"icmp ne i64 {s.operand(3)}, 0")):
        f.set(most, s.vector(0)[1])
    with f.when(f.let(f"icmp ne i64 {count}, 0")):
        s.raise_to(most, f.add(s.at(level[0], s.row(rows[0], f.sub(count, 1))), 1))
    s.resize(s.operand(0), f.get(most))


def levels(s: Step) -> None:
    f, level, rows, (_, deep) = s.f, s.vector(3), s.vector(4), s.vector(5)
    to, start, total = s.make(s.operand(0), deep), s.operand(1), f.slot(0)
    s.fits(deep, s.operand(2))
    s.clear(to, deep)
    with f.loop(0, s.count(rows, level[1]), 1) as i:
        at = s.at(level[0], s.row(rows[0], i))
        s.put(to, at, f.add(s.at(to, at), 1))
    with f.loop(0, deep, 1) as i:
        f.set(total, f.add(f.get(total), s.at(to, i)))
        s.put(s.out, f.add(start, i), f.get(total))


def windows(s: Step) -> None:
    """As `planning/plan.py` has it; of many rows, all but the last up to twice the widest are in widest
    windows."""
    f, (rows, count), table, widths, kinds = s.f, s.vector(0), s.address(1), s.address(2), s.operand(3)
    bits, words, room, firsts = s.operand(4), s.operand(5), s.operand(6), s.operand(7)
    widest = s.wide_at(widths, "0")
    written, end, begin, many = f.slot(0), f.slot(0), f.slot(0), f.slot(0)
    s.put(s.out, firsts, 0)
    with f.loop(0, count, 1) as k:
        here = s.at(rows, k)
        f.set(begin, f.get(end))
        f.set(end, f.add(f.get(end), here))
        large = f.let(f"icmp ugt i64 {here}, {f.mul(widest, 2)}")
        few = f.let(f"select i1 {large}, i64 {f.add(f.let(f'urem i64 {here}, {widest}'), widest)}, i64 {here}")
        number = f.at(table, f.mul(f.mul(few, kinds), 8))
        full = f.let(f"udiv i64 {f.sub(here, few)}, {widest}")
        with f.loop(0, kinds, 1) as kind:
            width = s.wide_at(widths, kind)
            first_kind = f.let(f"icmp eq i64 {kind}, 0")
            f.set(many, f.add(s.wide_at(number, kind), f.let(f"select i1 {first_kind}, i64 {full}, i64 0")))
            s.fits(f.add(f.get(written), f.get(many)), room)
            with f.loop(0, f.get(many), 1):
                latest = f.sub(f.get(end), width)
                start = f.let(f"call i64 @llvm.smin.i64(i64 {f.get(begin)}, i64 {latest})")
                start = f.let(f"call i64 @llvm.smax.i64(i64 {start}, i64 0)")
                s.put(s.out, f.add(words, f.get(written)), f.let(f"or i64 {f.let(f'shl i64 {start}, {bits}')}, {kind}"))
                f.set(begin, f.add(f.get(begin), width))
                f.set(written, f.add(f.get(written), 1))
        s.put(s.out, f.add(firsts, f.add(k, 1)), f.get(written))


def number(s: Step) -> None:
    s.put(s.out, s.operand(0), s.vector(1)[1])


WRITTEN: dict[StepOperation, Callable[[Step], None]] = {
    StepOperation.LENGTHS: lengths,
    StepOperation.CUT: cut,
    StepOperation.DISTINCT: distinct,
    StepOperation.READ: read,
    StepOperation.ALL: all_rows,
    StepOperation.SORT: sort,
    StepOperation.COUNT: count,
    StepOperation.PLACE: place,
    StepOperation.GATHER: gather,
    StepOperation.FILL: fill,
    StepOperation.JOIN: join,
    StepOperation.MEMBER: member,
    StepOperation.MAP: mapped,
    StepOperation.STARTS: starts,
    StepOperation.DEEPEST: deepest,
    StepOperation.LEVELS: levels,
    StepOperation.WINDOWS: windows,
    StepOperation.NUMBER: number,
}


def module() -> str:
    """All steps, and the loop that takes them."""
    parts = []
    for op in StepOperation:
        WRITTEN[op](written := Step(op))
        parts.append(written.text())
    f = LlvmFunction("i64 @run(ptr %steps, i64 %count, ptr %machine) nounwind")
    status = f.slot(0)
    with f.loop(0, "%count", 1) as n:
        step = f.at("%steps", f.mul(n, 8 * WORDS))
        calls = [
            (int(op), f"%{op.name} = call i64 @step_{op.name.lower()}(ptr {step}, ptr %machine)")
            for op in StepOperation
        ]
        done, never = f.name("done"), f.name("never")
        table = " ".join(f"i64 {key}, label %at_{key}" for key, _ in calls)
        f.do(f"switch i64 {f.load('i64', step)}, label %{never} [{table}]")
        for (key, call), op in zip(calls, StepOperation, strict=True):
            f.block(f"at_{key}", falls=False)
            f.do(call)
            f.set(status, f"%{op.name}")
            f.do(f"br label %{done}")
        f.block(never, falls=False)
        f.do("unreachable")
        f.block(done, falls=False)
        with f.when(f.let(f"icmp ne i64 {f.get(status)}, 0")):
            f.do(f"ret i64 {f.get(status)}")
            f.block(f.name("dead"), falls=False)
    f.do("ret i64 0")
    declared = [f"declare i64 @llvm.{name}.i64(i64, i64)" for name in ("smin", "smax")]
    return "\n".join([*declared, "", *parts, str(f)])


@cache
def binding_machine() -> StepMachine | None:
    """The machine; None where there is no machine code."""
    try:
        text = module()
        with machine_code.lock:
            code = machine_code.load(machine_code.target_name("binding", text), text, ("run",), vectorize=True)
    except UnavailableError:
        return None
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)(code.functions["run"])

    def run(steps: Steps, state: StepState, chosen: NDArray[np.int64], out: NDArray[Any]) -> int:
        arrays = (state.registers, state.arena, state.used, chosen, out)
        registers, arena, used, examples, numbers = (a.ctypes.data for a in arrays)
        given = np.array([registers, arena, len(state.arena), used, examples, len(chosen), numbers], np.int64)
        return int(function(steps.ctypes.data, len(steps), given.ctypes.data))

    return run
