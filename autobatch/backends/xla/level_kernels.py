"""Level loops as machine code of our own: one call runs all levels of a recurrence.

What fills the buffers of a level loop before it runs, as the states of leaves beside which it writes those of nodes, is
computed by its kernel where it belongs; made by itself it would be copied there.

    leaf.h = tanh(leaf.x @ W)                       a stage
    node.h = f(gather(leaf.h, node.h), ...)         a recurrence; both are in one buffer

The code is LLVM IR: levels, tasks, tiles of rows; in a tile products and phases, in a phase rows and vectors. The
products are those of `product_kernels.py`: its functions `gather` and `panels` are linked to the code of a loop when it
is loaded.

In a JAX program a level loop is the kernel where the program is lowered for a CPU, the loops of XLA everywhere else,
under `jax.vmap` and in derivatives. What is not lowered is not traced either.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from autobatch.backends.llvm.formulas import COSTLY, FUNCTIONS, REDUCTIONS, VectorWriter, declarations, integer_pow
from autobatch.backends.llvm.machine_code import RefusedError, UnavailableError, buffer, data, handler
from autobatch.backends.llvm.text import LlvmFunction, lanes_below
from autobatch.backends.xla.level_tasks import (
    DTYPE,
    ArgumentRows,
    EntryRun,
    IntegerTable,
    Memory,
    ProductStep,
    RecurrenceForm,
    RowsStep,
    TaskForm,
    Tile,
    ValueLoop,
    ValueNode,
)
from autobatch.backends.xla.product_kernels import ProductKernel, masked_load, registered, registered_code
from autobatch.backends.xla.rows import Matrix, ProductChoice
from autobatch.ir import jax_compat
from autobatch.ir.system import Compute, Equation, Variable, reads, results
from autobatch.options import OptionError
from autobatch.passes.equations import RowProduct, row_product
from autobatch.passes.fission import Recurrence, RowOrder, Schedule, ScheduleStage, Task

if TYPE_CHECKING:
    from autobatch.backends.xla.emit import LevelLoop


# ---- before a loop


@dataclass(frozen=True)
class Before:
    """`tasks` that a loop can run before its levels, and equations of stages before it that wait for what they make."""

    tasks: tuple[Task, ...]
    waiting: tuple[Equation, ...]


def before_loops(schedule: Schedule, lookups: Collection[Variable]) -> dict[int, Before]:
    """By the index of a recurrence: equations of stages before it that make what stands in its buffers. `lookups`: rows
    that are read where they come from; what reads them is no such equation."""
    order: dict[int, int] = {}
    step_of: dict[int, int] = {}
    makers: dict[Variable, tuple[int, Equation]] = {}
    readers: dict[Variable, list[Equation]] = {}
    for at, step in enumerate(schedule.steps):
        for equation in (e for t in ([step] if isinstance(step, ScheduleStage) else step.tasks) for e in t.equations):
            order[id(equation)], step_of[id(equation)] = len(order), at
            for x in reads(equation):
                readers.setdefault(x, []).append(equation)
            if isinstance(step, ScheduleStage):
                makers.update((r, (at, equation)) for r in results(equation))
    found: dict[int, Before] = {}
    taken: set[int] = set()
    for at, step in enumerate(schedule.steps):
        if not isinstance(step, Recurrence):
            continue
        made = step.made()
        roots = [v for group in step.buffers for v in group if v not in made and v.space is not None]
        tasks: list[Task] = []
        waiting: dict[int, Equation] = {}
        for home in dict.fromkeys(schedule.home[v] for v in roots):
            wanted = [v for v in roots if schedule.home[v] == home]
            chosen = _behind(wanted, home, schedule.home, makers, lookups, at)
            late = _that_wait(chosen, readers)
            late = {k: e for k, e in late.items() if step_of[k] < at}
            blocked = any(
                isinstance(schedule.steps[step_of[id(r)]], Recurrence) and step_of[id(r)] <= at
                for e in late.values()
                for x in results(e)
                for r in readers.get(x, ())
            )
            blocked = blocked or any(isinstance(schedule.steps[step_of[k]], Recurrence) for k in late)
            whole = all(v in makers and id(makers[v][1]) in chosen for v in wanted)
            if whole and not blocked and taken.isdisjoint(chosen) and taken.isdisjoint(late) and _worth(chosen):
                taken.update(chosen, late)
                waiting.update(late)
                tasks.append(Task(home, tuple(sorted(chosen.values(), key=lambda e: order[id(e)]))))
        if tasks:
            found[step.index] = Before(tuple(tasks), tuple(sorted(waiting.values(), key=lambda e: order[id(e)])))
    return found


def _that_wait(chosen: Mapping[int, Equation], readers: Mapping[Variable, list[Equation]]) -> dict[int, Equation]:
    """All others that depend on what some equations make."""
    found: dict[int, Equation] = {}
    stack = list(chosen.values())
    while stack:
        for x in results(stack.pop()):
            for reader in readers.get(x, ()):
                if id(reader) not in chosen and id(reader) not in found:
                    found[id(reader)] = reader
                    stack.append(reader)
    return found


def _behind(
    roots: list[Variable],
    home: RowOrder,
    homes: Mapping[Variable, RowOrder],
    makers: Mapping[Variable, tuple[int, Equation]],
    lookups: Collection[Variable],
    before: int,
) -> dict[int, Equation]:
    """The computations in one order of rows that some variables come from."""
    found: dict[int, Equation] = {}
    stack = list(roots)
    while stack:
        at, equation = makers.get(stack.pop(), (before, None))
        if at >= before or not isinstance(equation, Compute) or equation.space is None or id(equation) in found:
            continue
        if any(x in lookups for x in reads(equation)) or homes[equation.results[0]] != home:
            continue
        if equation.op.name in STAYS:
            continue
        found[id(equation)] = equation
        stack.extend(x for x in reads(equation) if x.space is not None)
    return found


STAYS = frozenset(("gather", "dynamic_slice", "iota", "undefined"))
"""Operations of which the rows are better made by XLA."""


def _worth(chosen: Mapping[int, Equation]) -> bool:
    """Is there more to them than moving numbers?"""
    return any(row_product(e) is not None or (isinstance(e, Compute) and e.op.name in COSTLY) for e in chosen.values())


# ---- code


OF_PRODUCTS = """declare void @gather(ptr, ptr, i64, i64, i64, i64, ptr)
declare void @panels(ptr, i64, i64, i64, ptr, i64, i64, ptr, i64)"""

COMBINE = {
    "sum": ("fadd", 0.0),
    "prod": ("fmul", 1.0),
    "max": ("maximum", float("-inf")),
    "min": ("minimum", float("inf")),
    "first max": ("ogt", float("-inf")),
    "first min": ("olt", float("inf")),
}
"""How a run is reduced, from what. The last two are those of Python's `max` and `min` (`leaf.extreme`): by comparisons,
from the first element on."""


def module(form: RecurrenceForm) -> str:
    """The text of a recurrence."""
    kernel = form.kernel
    parts = [kernel.intrinsics(), declarations(kernel.vector, kernel.suffix), OF_PRODUCTS]
    for t, task in enumerate((*form.before, *form.tasks)):
        for s, step in enumerate(task.steps):
            if isinstance(step, RowsStep):
                parts.append(str(_Rows(form, task, step, f"rows_{t}_{s}").function()))
        parts.append(str(_task(form, task, t)))
    if form.parts:
        parts.append(str(_copy(kernel)))
    parts.append(str(handler(partial(_levels, form))))
    return "\n".join(parts)


class _Scope:
    """Arguments, results and numbers of the call, read once in a function."""

    def __init__(self, form: RecurrenceForm, f: LlvmFunction) -> None:
        self.form, self.f = form, f
        self.held: dict[tuple[str, int], str] = {}

    def argument(self, number: int) -> str:
        return self._once("argument", number, lambda: data(self.f, buffer(self.f, "%arguments", number)))

    def result(self, number: int) -> str:
        return self._once("result", number, lambda: data(self.f, buffer(self.f, "%results", number)))

    def scratch(self, begin: int) -> str:
        return self.f.at(self.result(len(self.form.loop.buffers)), begin * self.form.kernel.bytes)

    def meta(self, number: int) -> str:
        meta = self.argument(self.form.meta_argument)
        return self._once("meta", number, lambda: integer(self.f, meta, number))

    def table(self, table: IntegerTable) -> str:
        """The address of its first integer."""
        if table.begin is None:
            return self.argument(table.argument)
        integers, begin = self.argument(self.form.integers), self.meta(table.begin)
        return self._once("table", table.begin, lambda: self.f.at(integers, self.f.mul(begin, 4)))

    def _once(self, kind: str, number: int, make: Callable[[], str]) -> str:
        if (kind, number) not in self.held:
            self.held[kind, number] = make()
        return self.held[kind, number]


def integer(f: LlvmFunction, array: str, index: str | int) -> str:
    """An entry of an array of int32, as i64."""
    at = f.at(array, index * 4) if isinstance(index, int) else f.at(array, f.mul(index, 4))
    return f.let(f"sext i32 {f.load('i32', at, align=4)} to i64")


# ---- levels and tiles


def _levels(form: RecurrenceForm, f: LlvmFunction, arguments: str, number: str, results: str) -> None:
    integers = data(f, buffer(f, arguments, form.integers))
    meta = data(f, buffer(f, arguments, form.meta_argument))
    for result, argument, place, length in form.parts:
        origin, whole = data(f, buffer(f, arguments, argument)), data(f, buffer(f, results, result))
        to = f.at(whole, f.mul(integer(f, meta, place), form.kernel.bytes))
        f.do(f"call void @copy(ptr {origin}, ptr {to}, i64 {integer(f, meta, length)})")
    for t, task in enumerate(form.before):
        rows = integer(f, integers, integer(f, meta, task.end))
        f.do(f"call void @task_{t}(ptr {arguments}, ptr {results}, i64 0, i64 {rows})")
    levels = integer(f, integers, integer(f, meta, form.levels))
    ends = [integer(f, meta, task.end) for task in form.tasks]
    with f.loop(0, levels, 1) as turn:
        level = f.sub(f.sub(levels, 1), turn) if form.reverse else turn
        for t, first in enumerate(ends, len(form.before)):
            at = f.add(first, level)
            begin = f.slot(0)
            with f.when(f.let(f"icmp ne i64 {level}, 0")):
                f.set(begin, integer(f, integers, f.sub(at, 1)))
            end = integer(f, integers, at)
            f.do(f"call void @task_{t}(ptr {arguments}, ptr {results}, i64 {f.get(begin)}, i64 {end})")


def _copy(kernel: ProductKernel) -> LlvmFunction:
    f = LlvmFunction("internal void @copy(ptr %from, ptr %to, i64 %length) noinline nounwind")
    with f.loop(0, "%length", kernel.lanes) as at:
        mask = lanes_below(f, kernel.lanes, f.sub("%length", at))
        place = f.mul(at, kernel.bytes)
        x, to = masked_load(f, kernel, f.at("%from", place), mask), f.at("%to", place)
        operands = f"{kernel.vector} {x}, ptr {to}, i32 {kernel.bytes}, {kernel.mask} {mask}"
        f.do(f"call void @llvm.masked.store.{kernel.suffix}.p0({operands})")
    f.do("ret void")
    return f


def _task(form: RecurrenceForm, task: TaskForm, number: int) -> LlvmFunction:
    """Rows begin:end of a task."""
    f = LlvmFunction(
        f"internal void @task_{number}(ptr %arguments, ptr %results, i64 %begin, i64 %end) noinline nounwind"
    )
    scope = _Scope(form, f)
    for step in task.steps:  # what a loop reads must be there before it
        if isinstance(step, ProductStep):
            _product_operands(form, scope, step)
    with f.loop("%begin", "%end", form.tile) as start:
        rows = f.least(f.sub("%end", start), form.tile)
        for s, step in enumerate(task.steps):
            if isinstance(step, RowsStep):
                f.do(f"call void @rows_{number}_{s}(ptr %arguments, ptr %results, i64 {start}, i64 {rows})")
            else:
                _product(form, scope, step, start, rows)
    f.do("ret void")
    return f


def _product_operands(form: RecurrenceForm, scope: _Scope, step: ProductStep) -> None:
    scope.scratch(0)
    scope.argument(step.panels)
    for memory in (*step.sources, step.out):
        if isinstance(memory, ArgumentRows):
            scope.result(memory.argument) if memory.made else scope.argument(memory.argument)
            if memory.base is not None:
                scope.meta(memory.base)
            if memory.index is not None:
                scope.table(memory.index)


def _product(form: RecurrenceForm, scope: _Scope, step: ProductStep, start: str, rows: str) -> None:
    """Gather the rows of a tile in blocks, then all of the matrix."""
    f, kernel = scope.f, form.kernel
    room = -(-step.contracted // kernel.chunk) * kernel.chunk
    blocks = scope.scratch(form.block)
    block = f.ceiling(rows, f.ceiling(rows, kernel.vectors.rows))
    with f.loop(0, rows, block) as first:
        here = f.least(f.sub(rows, first), block)
        to = f.at(blocks, f.mul(first, room * kernel.bytes))
        offset = 0
        for source in step.sources:
            x, index = _base_address(form, scope, source), "null"
            at = first if isinstance(source, Tile) else f.add(start, first)
            if isinstance(source, ArgumentRows) and source.index is not None:
                index = f.at(scope.table(source.index), f.mul(at, 4))
            f.do(
                f"call void @gather(ptr {x}, ptr {index}, i64 {at}, i64 {here}, i64 {source.size}, i64 {offset}, "
                f"ptr {to})"
            )
            offset += source.size
    out = _base_address(form, scope, step.out)
    if isinstance(step.out, ArgumentRows):
        out = f.at(out, f.mul(start, step.out.size * kernel.bytes))
    f.do(
        f"call void @panels(ptr {blocks}, i64 {rows}, i64 {block}, i64 {room}, ptr {scope.argument(step.panels)}, "
        f"i64 {step.contracted}, i64 {step.columns}, ptr {out}, i64 {step.columns * kernel.bytes})"
    )


def _base_address(form: RecurrenceForm, scope: _Scope, memory: Memory) -> str:
    """The address of row 0."""
    if isinstance(memory, Tile):
        return scope.scratch(memory.begin)
    x = scope.result(memory.argument) if memory.made else scope.argument(memory.argument)
    if memory.base is None:
        return x
    return scope.f.at(x, scope.f.mul(scope.meta(memory.base), memory.size * form.kernel.bytes))


# ---- rows


class _Rows:
    """A phase of a task: all loops of one row after another."""

    def __init__(self, form: RecurrenceForm, task: TaskForm, step: RowsStep, name: str) -> None:
        self.form, self.task, self.step, self.kernel = form, task, step, form.kernel
        self.f = LlvmFunction(
            f"internal void @{name}(ptr %arguments, ptr %results, i64 %start, i64 %rows) noinline nounwind"
        )
        self.v = VectorWriter(self.f, self.kernel.scalar, self.kernel.lanes)
        self.scope = _Scope(form, self.f)
        self.bases: dict[Memory, str] = {}
        self.read: dict[Variable | int, str] = {}
        self.shared: dict[Variable | int, str] = {}
        self.zero = ""

    def function(self) -> LlvmFunction:
        f, values = self.f, self.step.values
        nodes = values.reached(w.node for loop in values.loops for w in loop.writes)
        loaded = list(dict.fromkeys(n.source for k in nodes if (n := values.nodes[k]).name in ("load", "splat")))
        rowwise = [x for x in loaded if isinstance(x, Variable) and x not in self.task.uniform]
        self.shared = {x: self.scope.argument(self.task.uniform[x]) for x in loaded if x in self.task.uniform}
        written = list(dict.fromkeys(w.result for loop in values.loops for w in loop.writes))
        memories = [self.memory(x) for x in rowwise] + [self.task.written[x] for x in written]
        for memory in memories:
            self.prepare(memory)
        for run, tile in self.step.runs:
            self.prepare(run.rows)
            self.prepare(tile)
            self.scope.table(run.first)
            if run.count is not None:
                self.scope.table(run.count)
            if run.factors is not None:
                self.scope.argument(run.factors)
        if self.form.zero_row >= 0:
            self.zero = self.scope.argument(self.form.zero_row)
        with f.loop(0, "%rows", 1) as row:
            number = f.add("%start", row)
            for run, tile in self.step.runs:
                self.add_up(run, tile, row, number)
            self.read = {x: self.address(self.memory(x), row, number) for x in rowwise}
            self.write = {x: self.address(self.task.written[x], row, number) for x in written}
            for loop in values.loops:
                self.loop(loop)
        f.do("ret void")
        return f

    def memory(self, x: Variable) -> Memory:
        return self.task.memory[x] if x in self.task.memory else self.task.written[x]

    # ---- addresses

    def prepare(self, memory: Memory) -> None:
        if memory not in self.bases:
            self.bases[memory] = _base_address(self.form, self.scope, memory)
            if isinstance(memory, ArgumentRows) and memory.index is not None:
                self.scope.table(memory.index)

    def address(self, memory: Memory, row: str, number: str) -> str:
        """Of a row: `row` of the tile, `number` of all."""
        f, bytes = self.f, memory.size * self.kernel.bytes
        if isinstance(memory, Tile):
            return f.at(self.bases[memory], f.mul(row, bytes))
        if memory.index is None:
            return f.at(self.bases[memory], f.mul(number, bytes))
        return self.entry(memory, integer(f, self.scope.table(memory.index), number))

    def entry(self, memory: ArgumentRows, at: str) -> str:
        f = self.f
        found = f.at(self.bases[memory], f.mul(at, memory.size * self.kernel.bytes))
        if not memory.misses:
            return found
        return f.let(f"select i1 {f.let(f'icmp slt i64 {at}, 0')}, ptr {self.zero}, ptr {found}")

    def add_up(self, run: EntryRun, tile: Tile, row: str, number: str) -> None:
        """Combine the entries of a run in the memory of the tile."""
        f, kernel = self.f, self.kernel
        first = integer(f, self.scope.table(run.first), number)
        if run.count is None:
            end = integer(f, self.scope.table(run.first), f.add(number, 1))
        else:
            end = f.add(first, integer(f, self.scope.table(run.count), number))
        to = self.address(tile, row, number)
        instruction, neutral = COMBINE[run.kind]
        start = self.v.constant(neutral)
        assert run.rows.index is not None
        index = self.scope.table(run.rows.index)
        with f.loop(0, tile.size, kernel.lanes) as column:
            mask = lanes_below(f, kernel.lanes, f.sub(str(tile.size), column))
            self.store(start, f.at(to, f.mul(column, kernel.bytes)), mask)
        with f.loop(first, end, 1) as entry:
            origin = self.entry(run.rows, integer(f, index, entry))
            with f.loop(0, tile.size, kernel.lanes) as column:
                mask = lanes_below(f, kernel.lanes, f.sub(str(tile.size), column))
                at = f.mul(column, kernel.bytes)
                held, more = (masked_load(f, kernel, f.at(p, at), mask) for p in (to, origin))
                if run.factors is not None:
                    row_of_factors = f.at(self.scope.argument(run.factors), f.mul(entry, tile.size * kernel.bytes))
                    factor, zero = masked_load(f, kernel, f.at(row_of_factors, at), mask), self.v.constant(0.0)
                    none = self.v.compare("oeq", factor, zero)
                    more = self.v.select(none, zero, self.v.two("fmul", more, factor))
                whole = self.combine(instruction, held, more)
                if run.kind.startswith("first"):
                    begins = f.let(f"icmp eq i64 {entry}, {first}")
                    whole = f.let(f"select i1 {begins}, {self.v.type} {more}, {self.v.type} {whole}")
                self.store(whole, f.at(to, at), mask)

    def combine(self, instruction: str, a: str, b: str) -> str:
        if instruction.startswith("o"):
            return self.v.select(self.v.compare(instruction, b, a), b, a)
        return self.v.two(instruction, a, b) if instruction.startswith("f") else self.v.call(instruction, a, b)

    def store(self, x: str, to: str, mask: str | None) -> None:
        kernel = self.kernel
        if mask is None:
            self.f.do(f"store {kernel.vector} {x}, ptr {to}, align {kernel.bytes}")
            return
        operands = f"{kernel.vector} {x}, ptr {to}, i32 {kernel.bytes}, {kernel.mask} {mask}"
        self.f.do(f"call void @llvm.masked.store.{kernel.suffix}.p0({operands})")

    # ---- numbers

    def loop(self, loop: ValueLoop) -> None:
        """Whole vectors, then what is left of the row."""
        f, lanes = self.f, self.kernel.lanes
        whole = loop.length // lanes * lanes
        totals = {k: self.total(w.reduction) for k, w in enumerate(loop.writes) if w.reduction is not None}
        if whole:
            with f.loop(0, whole, lanes) as column:
                self.body(loop, f.mul(column, self.kernel.bytes), None, totals)
        if whole < loop.length:
            bits = ", ".join(f"i1 {str(lane < loop.length - whole).lower()}" for lane in range(lanes))
            self.body(loop, str(whole * self.kernel.bytes), f"<{bits}>", totals)
        for k, slot in totals.items():
            self.reduce(loop.writes[k].result, loop.writes[k].reduction or "", slot)

    def total(self, reduction: str) -> str:
        """A vector that a reduction goes on in."""
        slot = self.f.vector_slot(self.kernel.vector)
        self.f.do(f"store {self.kernel.vector} {self.v.constant(REDUCTIONS[reduction][1])}, ptr {slot}")
        return slot

    def body(self, loop: ValueLoop, at: str, mask: str | None, totals: dict[int, str]) -> None:
        """One vector of each write: all is computed before anything is stored, so that loads need not wait."""
        values, found = self.step.values, dict[int, str]()
        for number in values.reached(w.node for w in loop.writes):
            found[number] = self.node(values.nodes[number], found, at, mask)
        for k, write in enumerate(loop.writes):
            x = found[write.node]
            if write.reduction is None:
                self.store(x, self.f.at(self.f.at(self.write[write.result], write.at * self.kernel.bytes), at), mask)
                continue
            instruction, neutral = REDUCTIONS[write.reduction]
            if mask is not None:
                x = self.v.select(mask, x, self.v.constant(neutral))
            held = self.f.let(f"load {self.kernel.vector}, ptr {totals[k]}")
            self.f.do(f"store {self.kernel.vector} {self.combine(instruction, held, x)}, ptr {totals[k]}")

    def node(self, node: ValueNode, found: dict[int, str], at: str, mask: str | None) -> str:
        f, kernel, v = self.f, self.kernel, self.v
        args = [found[a] for a in node.args]
        match node.name:
            case "constant":
                return v.constant(node.number)
            case "load" | "splat":
                held = self.read if node.source in self.read else self.shared
                base = f.at(held[node.source], node.at * kernel.bytes)
                if node.name == "splat":
                    return v.broadcast(f.load(kernel.scalar, base, align=kernel.bytes))
                if mask is None:
                    return f.load(kernel.vector, f.at(base, at), align=kernel.bytes)
                return masked_load(f, kernel, f.at(base, at), mask)
            case "convert":
                return v.select(args[0], v.constant(1.0), v.constant(0.0))
            case "select_n":
                return v.select(args[0], args[2], args[1])
            case "not":
                return f.let(f"xor {kernel.mask} {args[0]}, <{', '.join(['i1 true'] * kernel.lanes)}>")
            case "clamp":
                return v.call("minimum", v.call("maximum", args[0], args[1]), args[2])
            case "integer_pow":
                return integer_pow(v, args[0], node.power)
            case name:
                return FUNCTIONS[name](v, args)

    def reduce(self, result: Variable, reduction: str, slot: str) -> None:
        """The lanes of a vector to one number."""
        f, kernel = self.f, self.kernel
        x = f.let(f"load {kernel.vector}, ptr {slot}")
        instruction, _ = REDUCTIONS[reduction]
        width = kernel.lanes
        while width > 1:
            width //= 2
            order = [lane + width if lane < width else lane for lane in range(kernel.lanes)]
            numbers = ", ".join(f"i32 {n}" for n in order)
            other = f.let(
                f"shufflevector {kernel.vector} {x}, {kernel.vector} poison, <{kernel.lanes} x i32> <{numbers}>"
            )
            x = self.combine(instruction, x, other)
        one = f.let(f"extractelement {kernel.vector} {x}, i64 0")
        f.do(f"store {kernel.scalar} {one}, ptr {self.write[result]}, align {kernel.bytes}")


# ---- the call


logger = logging.getLogger("autobatch")

_call = jax_compat.foreign_call("autobatch_level_loop")


def native(loop: LevelLoop) -> list[Any] | None:
    """The buffers of a loop after all levels, by the kernel; None where it cannot run it."""
    try:
        form, target = _prepared(loop)
    except (RefusedError, UnavailableError) as error:
        if loop.e.loops == "native" and not loop.before:
            raise OptionError(f"option 'loops' is 'native', but there is a level loop for XLA: {error}") from None
        logger.debug("level loop %s by XLA: %s", loop.recurrence.index, error)
        return None
    count, known = len(form.arguments), list(loop.e.env)
    tables = list(loop.e.tables)

    def plain(*operands: Any) -> list[Any]:
        given = operands[count:]
        return _by_xla(loop, dict(zip(known, given, strict=False)), dict(zip(tables, given[len(known) :], strict=True)))

    found: list[Any] = _call.bind(
        *form.arguments,
        *loop.e.env.values(),
        *loop.e.tables.values(),
        plain=plain,
        target=target,
        taken=count,
        shapes=tuple(b.whole for b in loop.buffers),
        scratch=(jax.ShapeDtypeStruct((max(form.scratch, 1),), np.dtype(form.kernel.dtype)),),
    )
    return found


def _by_xla(loop: LevelLoop, env: dict[Variable, Any], tables: dict[str, Any]) -> list[Any]:
    """The same buffers, computed by loops that XLA compiles, from other arrays."""
    e = loop.e.forgetful()
    e.env.update(env)
    e.tables = tables
    e.compute(q for t in loop.before for q in t.equations)
    made = e.level_loop(loop.recurrence)
    final = made.levels_by_xla()
    e.env.update(made.placed(final))
    found = {buffer: final[at] for (_, buffer), (_, at) in zip(loop.shared, made.shared, strict=True)}
    found.update((buffer, e.env[v]) for v, (buffer, _) in loop.place.items() if buffer not in found)
    return [found[k] for k in range(len(loop.buffers))]


def _prepared(loop: LevelLoop) -> tuple[RecurrenceForm, str]:
    if loop.e.loops == "xla" or (loop.e.loops == "auto" and loop.e.products == "xla"):
        raise RefusedError("asked for")
    if {str(b.dtype) for b in loop.buffers} != {DTYPE}:
        raise RefusedError(f"it is for {DTYPE} alone")
    kernel, packing = registered(DTYPE), registered(DTYPE, "pack")

    def matrix(product: RowProduct) -> Matrix:
        found = loop.products.matrices.pack(product, ProductChoice(kernel, "in a level loop", packing))
        assert found is not None
        return found

    form = RecurrenceForm(loop, kernel.kernel, matrix)
    return form, registered_code("levels", module(form), DTYPE)
