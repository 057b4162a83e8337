"""A recursion for a gang of rows: its functions under masks; rows that they give up run alone, block by block.

    failed, results = call @first(mask, ...)            `activations.py`
    for lane in failed: results[lane] = call @row(...)   `blocks.py`, with a stack in memory that grows

A gang is given up where the native stack, or the one that its rows may have, is full, and where its lanes together run
as many blocks as a row may; a lane that fails a check is done. What such a row gives, or fails with and where, the
blocks say: the gang has only to find out that it might be something else. So nothing of that can be told from outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from autobatch.backends.llvm.lanes.activations import RecursionFunctions
from autobatch.backends.llvm.lanes.blocks import run_program
from autobatch.backends.llvm.lanes.control import melded
from autobatch.backends.llvm.lanes.handing import AddressTable, is_large, is_shared, of_lane
from autobatch.backends.llvm.lanes.likely import uniform_values
from autobatch.backends.llvm.lanes.masked_regions import FAILED, LEFT, LIMIT, bits
from autobatch.backends.llvm.lanes.ops import shape_of
from autobatch.backends.llvm.lanes.program import Gang
from autobatch.backends.llvm.lanes.reverse import inner_gradient
from autobatch.backends.llvm.lanes.tensors import (
    Tensor,
    TensorVariable,
    copied,
    fresh,
    kept,
    set_all,
    zeros,
)
from autobatch.backends.llvm.lanes.writer import LaneValue, LaneWriter
from autobatch.backends.llvm.machine_code import RefusedError
from autobatch.backends.llvm.text import LlvmFunction
from autobatch.ir.blocks import BlockProgram
from autobatch.ir.core import Value
from autobatch.ir.ops import Op

STACK = 1 << 19
"""Bytes of the native stack that a gang may use: threads have some megabytes."""


def run_recursion(gang: Gang, op: Op, xs: Sequence[Tensor], mask: LaneValue | None) -> list[Tensor]:
    """The results of an operation `blocks` for the lanes of a mask, then their statuses."""
    large = any(is_large(x.type) for f in op["program"].structured for x in f.region.results)
    if gang.w.width == 1 and (gang.warp is not None or large):
        return run_program(gang, op, xs, partial(inner_gradient, gang))
    return _Recursion(gang, op, xs, mask).run()


class _Recursion:
    def __init__(self, gang: Gang, op: Op, xs: Sequence[Tensor], mask: LaneValue | None) -> None:
        self.gang, self.op, self.w, self.f = gang, op, gang.w, gang.w.f
        self.program: BlockProgram = op["program"]
        self.xs = [kept(self.w, x) for x in xs]
        self.mask = self.w.spread(self.w.constant(True, "bool")) if mask is None else mask
        functions = self.program.structured if gang.w.width == 1 else melded(self.program.structured)
        if any(is_large(x.type) for f in functions for x in f.region.results):
            raise RefusedError("a recursion of a gang that returns large arrays")
        inputs: tuple[Value, ...] = (*self.program.parameters, *self.program.captured)
        self.given = dict(zip(inputs, self.xs, strict=True))
        shared = frozenset(v for v, x in self.given.items() if is_shared(x))
        uniform = uniform_values(functions, shared)
        self.table = AddressTable(gang, self.given)
        self.all = RecursionFunctions(gang, functions, uniform, self.table)

    def run(self) -> list[Tensor]:
        f, w = self.f, self.w
        self.all.write()
        row = self.row()
        types = self.program.types
        found = [TensorVariable(w, *shape_of(t)) for t in types]
        table = self.table.filled(w)
        state = f.array_slot("i64", 3)
        f.do(f"store i64 {self.op['steps']}, ptr {f.at(state, LEFT)}")
        here = f.let(f"ptrtoint ptr {state} to i64")
        f.do(f"store i64 {f.sub(here, STACK)}, ptr {f.at(state, LIMIT)}")
        f.do(f"store i64 0, ptr {f.at(state, FAILED)}")
        first = self.program.structured[0]
        xs = [self.given[v] for v in self.program.parameters]
        around = f"ptr {state}, ptr {table}"
        mask = self.w.spread(self.mask)
        fine, results = self.all.call(w, first.name, mask, str(self.op["depth"]), xs, around)
        set_all(w, found, [*results, zeros(w, *shape_of(types[-1]))])
        failed = f.load(f"i{w.width}", state, FAILED)
        again = f.let(f"select i1 {fine}, i{w.width} {failed}, i{w.width} {bits(w, mask)}")
        with f.when(f.let(f"icmp ne i{w.width} {again}, 0")):
            self.run_again(row, table, again, found)
        return [copied(w, v.get()) for v in found]

    def run_again(self, row: str, table: str, again: str, found: Sequence[TensorVariable]) -> None:
        """Row after row for the lanes of a mask."""
        f, w = self.f, self.w
        places = []
        for v in found:
            memory = fresh(w, v.dtype, v.shape)
            memory.fill(v.get())
            places.append(memory)
        pointers = ", ".join(f"ptr {m.pointer}" for m in places)
        if w.width == 1:
            f.do(f"call void {row}(ptr {table}, i64 0, {pointers})")
        else:
            with f.loop(0, w.width, 1) as lane:
                shifted = f.let(f"lshr i{w.width} {again}, {f.let(f'trunc i64 {lane} to i{w.width}')}")
                with f.when(f.let(f"trunc i{w.width} {shifted} to i1")):
                    f.do(f"call void {row}(ptr {table}, i64 {lane}, {pointers})")
        set_all(w, found, [m.tensor for m in places])

    def row(self) -> str:
        """A function that runs one row by blocks."""
        name = f"@row{len(self.gang.functions)}"
        f = LlvmFunction("")
        f.declarations, f.metadata = self.f.declarations, self.f.metadata
        w = LaneWriter(f, 1)
        inner = self.gang.inside(w, self.table.frame(f))
        xs = [self.table.captured(w, v, "%lane") for v in self.given]
        found = run_program(inner, self.op, xs, partial(inner_gradient, inner))
        for k, (x, t) in enumerate(zip(found, self.program.types, strict=True)):
            of_lane(w, f"%r{k}", *shape_of(t), self.w.width, "%lane").fill(x)
        for write in inner.behind:
            write()
        f.do("ret void")
        pointers = ", ".join(f"ptr %r{k}" for k in range(len(found)))
        f.head = f"internal void {name}(ptr %table, i64 %lane, {pointers}) nounwind noinline cold"
        self.gang.functions.append(str(f))
        self.gang.scratch = max(self.gang.scratch, inner.scratch)
        return name
