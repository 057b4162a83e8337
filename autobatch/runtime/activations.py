"""Inspection: the structural slice of a program, run over all activations of a data set at once (FRAMES.md, 4.1).

Breadth first: every pending activation of one function is executed together, with NumPy arrays of one entry an
activation. A call interns its arguments, so that equal activations of an example are one; the frontier is deduplicated
before it is expanded. What comes out are the *tables* of `PlanSpec`, and for each row the example it belongs to.

Numbers are *pointers* here: `definition << 40 | row`. The result of a call is a pointer to a result slot of the callee's
activation until the end, when slots are followed to what they hold (pointer doubling).
A list that a `Map` made is a run in a pool of pointers: `start << 24 | length`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, assert_never

import numpy as np
from numpy.typing import NDArray

from autobatch.errors import PlanError
from autobatch.ir.core import Apply, Call, For, Function, If, Literal, Map, Operand, Region, Value, While
from autobatch.ir.types import List
from autobatch.runtime.columns import Columns
from autobatch.runtime.spec import PlanSpec, RegionSpec, TableSpec
from autobatch.runtime.structural_results import StructuralResults
from autobatch.runtime.structure_ops import StructureOps

SHIFT = 40
ROW = (1 << SHIFT) - 1
LENGTH = 24
Ints = NDArray[np.int64]


class Pool:
    """A growing array, appended to in bulk."""

    def __init__(self) -> None:
        self.chunks: list[NDArray[Any]] = []
        self.size = 0

    def append(self, chunk: NDArray[Any]) -> int:
        start = self.size
        self.chunks.append(chunk)
        self.size += len(chunk)
        return start

    def array(self, dtype: Any = np.int64) -> NDArray[Any]:
        if len(self.chunks) != 1:
            self.chunks = [np.concatenate(self.chunks)] if self.chunks else [np.zeros(0, dtype)]
        return self.chunks[0]


@dataclass
class Kind:
    """The activations of one function so far. `seen` interns the arguments of calls."""

    function: Function
    host_args: tuple[int, ...]
    pointer_args: tuple[int, ...]
    slots: dict[int, int]
    seen: dict[bytes, int] = field(default_factory=dict)
    count: int = 0
    pending: list[tuple[Ints, list[NDArray[Any]], list[Ints]]] = field(default_factory=list)
    results: dict[int, Pool] = field(default_factory=lambda: defaultdict(Pool))
    host_results: dict[int, Pool] = field(default_factory=lambda: defaultdict(Pool))


class Scope:
    """The rows of one region at hand: values by need, those of the enclosing region through `select`."""

    def __init__(self, rows: int, example: Ints, parent: Scope | None = None, select: Ints | None = None) -> None:
        self.rows, self.example, self.parent, self.select = rows, example, parent, select
        self.host: dict[Value, NDArray[Any]] = {}
        self.pointer: dict[Value, Ints] = {}

    def host_value(self, x: Operand) -> NDArray[Any]:
        if isinstance(x, Literal):
            return np.full(self.rows, -1 if x.value is None else x.value)
        if x not in self.host:
            assert self.parent is not None, f"{x} has not been computed on the host"
            self.host[x] = self.parent.host_value(x)[self.select]
        return self.host[x]

    def pointer_value(self, x: Value) -> Ints | None:
        if x not in self.pointer:
            outer = self.parent.pointer_value(x) if self.parent is not None else None
            if outer is None:
                return None
            self.pointer[x] = outer[self.select]
        return self.pointer[x]


@dataclass
class Activations:
    """What inspection found, row by row in order of discovery. `tables[name]` holds numbers, or resolved pointers; `elements[name]` of a fold, for each
    element: the row that reads it and the pointer. `example[space]` is the example of each row."""

    example: dict[int, Ints]
    tables: dict[str, NDArray[Any]]
    elements: dict[str, tuple[Ints, Ints]]
    outputs: dict[int, NDArray[Any]]


class Inspection:
    """One run over a data set (or over some of its examples: `examples`)."""

    def __init__(
        self,
        spec: PlanSpec,
        columns: Columns,
        roots: Sequence[NDArray[Any]],
        max_rows: int,
        examples: Ints | None = None,
    ) -> None:
        self.spec, self.columns, self.roots, self.max_rows = spec, columns, roots, max_rows
        self.examples = np.arange(columns.count) if examples is None else examples
        self.failed: set[int] = set()
        self.ops = StructureOps(columns, self.fail)
        self.tables: dict[str, Pool] = defaultdict(Pool)
        self.elements: dict[str, tuple[Pool, Pool]] = defaultdict(lambda: (Pool(), Pool()))
        self.example: dict[int, Pool] = defaultdict(Pool)
        self.pool = Pool()
        self.slot_owner: list[tuple[str, int]] = []
        self.base = len(spec.definitions)
        self.waiting_for = StructuralResults(spec, columns, self.ops, self.fail)
        self.kinds = {f.name: self.kind(f) for f in spec.module.functions}

    def kind(self, function: Function) -> Kind:
        args = function.region.args
        slots = {}
        for k in self.spec.slots[function.name]:
            slots[k] = self.base + len(self.slot_owner)
            self.slot_owner.append((function.name, k))
        return Kind(
            function,
            tuple(k for k, a in enumerate(args) if a in self.spec.on_host),
            tuple(k for k, a in enumerate(args) if a in self.spec.on_device and a not in self.spec.columns),
            slots,
        )

    # ---- the run

    def run(self) -> Activations | None:
        """None when some example failed: then `failed` names it, and the others are inspected anew without it."""
        entry = self.kinds[self.spec.module.functions[0].name]
        args = {k: self.roots[k][self.examples] for k in entry.host_args}
        pointers = []
        for k in entry.pointer_args:
            source = self.spec.data[f"#argument{k}"]
            pointers.append((source << SHIFT) | self.examples)
        self.intern(entry, self.examples, list(args.values()), pointers)
        while True:
            waiting = [k for k in self.kinds.values() if k.pending]
            if not waiting:
                break
            for kind in waiting:
                self.execute(kind)
        if self.failed:
            return None
        return self.finish(entry)

    def intern(self, kind: Kind, example: Ints, host: list[NDArray[Any]], pointers: list[Ints]) -> Ints:
        """The activations with these arguments, old or new; new ones wait to be executed."""
        rows = len(example)
        key = np.empty((rows, 1 + len(host) + len(pointers)), np.int64)
        key[:, 0] = example
        for k, column in enumerate([*host, *pointers], 1):
            key[:, k] = self.ops.key(column)
        seen, count = kind.seen, kind.count
        flat, width = key.tobytes(), key.shape[1] * 8
        ids = np.empty(rows, np.int64)
        new: list[int] = []
        for row in range(rows):
            cell = flat[row * width : (row + 1) * width]
            found = seen.get(cell)
            if found is None:
                found = seen[cell] = count
                count += 1
                new.append(row)
            ids[row] = found
        if new:
            self.add(kind, example, host, pointers, None if len(new) == rows else np.array(new))
        return ids

    def add(
        self, kind: Kind, example: Ints, host: list[NDArray[Any]], pointers: list[Ints], select: Ints | None
    ) -> Ints:
        if select is not None:
            example = example[select]
            host, pointers = [h[select] for h in host], [p[select] for p in pointers]
        ids = np.arange(kind.count, kind.count + len(example))
        kind.count += len(example)
        kind.pending.append((example, host, pointers))
        if kind.count > self.max_rows:
            raise PlanError(
                f"{kind.function.name} has more than {self.max_rows:,} activations in this batch; raise "
                "ab.options(max_rows=...) if it is meant to be so large, else look for a recursion that never ends"
            )
        return ids

    def execute(self, kind: Kind) -> None:
        pending, kind.pending = kind.pending, []
        example = np.concatenate([p[0] for p in pending])
        scope = Scope(len(example), example)
        args = kind.function.region.args
        for n, k in enumerate(kind.host_args):
            scope.host[args[k]] = _join([p[1][n] for p in pending])
        for n, k in enumerate(kind.pointer_args):
            scope.pointer[args[k]] = _join([p[2][n] for p in pending])
        region = kind.function.region
        self.region(region, self.spec.regions[kind.function.name], scope)
        for k, result in enumerate(region.results):
            if k in kind.slots:
                kind.results[k].append(self.pointer(result, scope))
            elif result in self.spec.on_host:
                kind.host_results[k].append(scope.host_value(result))
        if self.failed:
            self.drop_failed()

    def drop_failed(self) -> None:
        """Examples that failed are not expanded further: they are planned alone, to name the first failure."""
        failed = np.array(sorted(self.failed))
        for kind in self.kinds.values():
            kept = []
            for example, host, pointers in kind.pending:
                live = ~np.isin(example, failed)
                if live.all():
                    kept.append((example, host, pointers))
            kind.pending = kept

    def fail(self, example: Ints) -> None:
        self.failed.update(example.tolist())

    # ---- one region

    def region(self, region: Region, spec: RegionSpec, scope: Scope) -> None:
        first = self.example[spec.space.index].append(scope.example)
        rows = np.arange(first, first + scope.rows)
        for value, definition in spec.exports.items():
            scope.pointer[value] = (definition << SHIFT) | rows
        for n, instruction in enumerate(region.body):
            match instruction:
                case Apply():
                    self.apply(instruction, scope)
                case If():
                    self.branch(instruction, spec.arms[n], scope)
                case Call():
                    self.call(instruction, scope)
                case Map():
                    self.comprehension(instruction, scope)
                case For() | While():
                    raise AssertionError("loops are functions by now")
                case _:
                    assert_never(instruction)
        for table in spec.tables:
            self.record(table, scope, rows)

    def record(self, table: TableSpec, scope: Scope, rows: Ints) -> None:
        if table.kind == "column":
            self.tables[table.name].append(scope.host_value(table.value))
            return
        pointers = self.pointer(table.value, scope)
        if table.kind == "pointer":
            self.tables[table.name].append(pointers)
            return
        which, elements = self.expand(pointers)
        owners, pool = self.elements[table.name]
        owners.append(rows[which])
        pool.append(elements)

    def expand(self, handles: Ints) -> tuple[Ints, Ints]:
        """The elements of lists: for each one, which list it is in, and its pointer."""
        lengths = handles & ((1 << LENGTH) - 1)
        which = np.repeat(np.arange(len(handles)), lengths)
        within = np.arange(len(which)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return which, self.pool.array()[(handles >> LENGTH)[which] + within]

    def pointer(self, x: Operand, scope: Scope) -> Ints:
        """Where `x` is, for every row of the scope. A uniform value that no gather reads has no definition."""
        if x in self.spec.uniform:
            return np.full(scope.rows, self.spec.uniform[x] << SHIFT)
        found = scope.pointer_value(x) if isinstance(x, Value) else None
        return np.full(scope.rows, -1) if found is None else found

    def apply(self, instruction: Apply, scope: Scope) -> None:
        op, xs = instruction.op, instruction.operands
        result = instruction.results[0] if instruction.results else None
        effect = op.name == "check"
        on_host = effect or any(r in self.spec.on_host for r in instruction.results)
        device = result is not None and result in self.spec.on_device and result not in self.spec.columns
        if isinstance(xs[0].type if xs else None, List) and xs[0].type.store is None:  # type: ignore[union-attr]
            self.made_list(instruction, scope, on_host, device)
            return
        if op.name == "pack_list" and device:
            assert result is not None
            pointers = np.stack([self.pointer(x, scope) for x in xs], 1)
            start = self.pool.append(pointers.reshape(-1)) + np.arange(scope.rows) * len(xs)
            scope.pointer[result] = (start << LENGTH) | len(xs)
            return
        if on_host:
            values = self.ops.apply(instruction, [scope.host_value(x) for x in xs], scope.example)
            scope.host.update(zip(instruction.results, values, strict=True))
        if device and op.name in ("load", "item"):
            assert result is not None
            column, rows = self.ops.locate(instruction, [scope.host_value(x) for x in xs], scope.example)
            scope.pointer[result] = (np.int64(self.spec.data[column]) << SHIFT) | rows

    def made_list(self, instruction: Apply, scope: Scope, on_host: bool, device: bool) -> None:
        """`length` and `item` of a list whose elements are pointers (`reduce` reads it through a table)."""
        op, xs = instruction.op, instruction.operands
        if not (on_host or device):
            return
        if isinstance(xs[0], Value) and xs[0] in self.spec.on_host:
            operands = [scope.host_value(x) for x in xs]
            scope.host[instruction.results[0]] = self.waiting_for.list_operation(instruction, operands, scope.example)
            if not device or op.name == "reduce":
                return
        if op.name not in ("length", "item"):
            return
        handles = self.pointer(xs[0], scope)
        lengths = handles & ((1 << LENGTH) - 1)
        if op.name == "length":
            scope.host[instruction.results[0]] = lengths
            return
        index = self.ops.checked_index(scope.host_value(xs[1]), lengths, scope.example)
        pool = self.pool.array()
        padded = pool if len(pool) else np.zeros(1, np.int64)
        scope.pointer[instruction.results[0]] = padded[np.minimum((handles >> LENGTH) + index, len(padded) - 1)]

    def branch(self, instruction: If, arms: tuple[RegionSpec, RegionSpec], scope: Scope) -> None:
        condition = scope.host_value(instruction.condition).astype(bool)
        parts = []
        for chosen, region, spec in (
            (np.flatnonzero(condition), instruction.then, arms[0]),
            (np.flatnonzero(~condition), instruction.orelse, arms[1]),
        ):
            if len(chosen):
                inner = Scope(len(chosen), scope.example[chosen], scope, chosen)
                self.region(region, spec, inner)
                parts.append((chosen, inner, region))
        for k, result in enumerate(instruction.results):
            if result in self.spec.on_host:
                pieces = [(c, s.host_value(r.results[k])) for c, s, r in parts]
                scope.host[result] = _merge(scope.rows, pieces)
            if result in self.spec.on_device and result not in self.spec.columns:
                pieces = [(c, self.pointer(r.results[k], s)) for c, s, r in parts]
                scope.pointer[result] = _merge(scope.rows, pieces)

    def arguments(self, call: Call, scope: Scope) -> tuple[list[NDArray[Any]], list[Ints]]:
        kind = self.kinds[call.callee]
        host = [scope.host_value(call.operands[k]) for k in kind.host_args]
        return host, [self.pointer(call.operands[k], scope) for k in kind.pointer_args]

    def call(self, instruction: Call, scope: Scope) -> None:
        kind = self.kinds[instruction.callee]
        host, pointers = self.arguments(instruction, scope)
        ids = self.intern(kind, scope.example, host, pointers)
        for k, slot in kind.slots.items():
            scope.pointer[instruction.results[k]] = (slot << SHIFT) | ids
        wanted = [k for k, r in enumerate(instruction.results) if r in self.spec.on_host]
        if wanted:
            found = self.waiting_for.results(kind.function, kind.host_args, host, scope.example)
            columns = self.waiting_for.columns_of(instruction, wanted, found)
            scope.host.update((instruction.results[k], c) for k, c in zip(wanted, columns, strict=True))

    def comprehension(self, instruction: Map, scope: Scope) -> None:
        count = np.maximum(scope.host_value(instruction.count), 0)
        which = np.repeat(np.arange(scope.rows), count)
        inner = Scope(len(which), scope.example[which], scope, which)
        first = np.cumsum(count) - count
        inner.host[instruction.body.args[0]] = np.arange(len(which)) - np.repeat(first, count)
        call = instruction.body.body[0]
        assert isinstance(call, Call)
        kind = self.kinds[call.callee]
        host, pointers = self.arguments(call, inner)
        listed = [k for k, r in enumerate(instruction.results) if r in self.spec.on_host]
        if listed or instruction.filtered:
            found = self.waiting_for.results(kind.function, kind.host_args, host, inner.example)
            lists = self.waiting_for.lists_of(instruction, listed, found, which, scope.rows)
            scope.host.update((instruction.results[k], c) for k, c in zip(listed, lists, strict=True))
            if instruction.filtered:
                kept = np.flatnonzero(self.waiting_for.flags(call, found))
                count = np.bincount(which[kept], minlength=scope.rows)
                first = np.cumsum(count) - count
                inner = Scope(len(kept), inner.example[kept], inner, kept)
                host, pointers = self.arguments(call, inner)
        ids = self.add(kind, inner.example, host, pointers, None) if inner.rows else np.zeros(0, np.int64)
        for k, result in enumerate(instruction.results):
            slot = kind.slots.get(k + instruction.filtered, -1)
            start = self.pool.append((slot << SHIFT) | ids)
            scope.pointer[result] = ((start + first) << LENGTH) | count

    # ---- the end

    def finish(self, entry: Kind) -> Activations:
        resolve = self.resolver()
        tables = {name: pool.array() for name, pool in self.tables.items()}
        pointers = {t.name for t in _tables(self.spec) if t.kind == "pointer"}
        for name in pointers & tables.keys():
            tables[name] = resolve(tables[name])
        elements = {n: (a.array(), resolve(b.array())) for n, (a, b) in self.elements.items()}
        rows, count = len(self.examples), self.columns.count
        outputs: dict[int, NDArray[Any]] = {}
        for k, table in enumerate(self.spec.outputs):
            if table is None:
                held = entry.host_results[k].array()
                outputs[k] = np.full((count, *held.shape[1:]), -1, held.dtype)
                outputs[k][self.examples] = held[:rows]
                continue
            slot = resolve((np.int64(entry.slots[k]) << SHIFT) | np.arange(rows))
            if table.kind == "pointer":
                outputs[k] = np.full(count, -1)
                outputs[k][self.examples] = slot
            else:
                which, elements_found = self.expand(slot)
                owner = self.examples[which]
                outputs[k] = np.bincount(owner, minlength=count)
                elements[table.name] = (owner, resolve(elements_found))
        example = {space: pool.array() for space, pool in self.example.items()}
        return Activations(example, tables, elements, outputs)

    def resolver(self) -> Any:
        """A function that follows result slots to the number they hold."""
        offsets, size = {}, 0
        parts: list[Ints] = []
        for index, (name, k) in enumerate(self.slot_owner, self.base):
            offsets[index] = size
            kind = self.kinds[name]
            held = kind.results[k].array() if k in kind.results else np.zeros(0, np.int64)
            parts.append(held if len(held) == kind.count else np.full(kind.count, -1))
            size += kind.count
        slots = np.concatenate(parts) if parts else np.zeros(0, np.int64)
        start = np.array([offsets[self.base + n] for n in range(len(self.slot_owner))] or [0])

        def step(pointers: Ints) -> tuple[Ints, bool]:
            definition = pointers >> SHIFT
            open_ = np.flatnonzero(definition >= self.base)
            if not len(open_):
                return pointers, False
            pointers = pointers.copy()
            pointers[open_] = slots[start[definition[open_] - self.base] + (pointers[open_] & ROW)]
            return pointers, True

        for _ in range(SHIFT):
            slots, moved = step(slots)
            if not moved:
                break
        else:
            open_ = (slots >> SHIFT) >= self.base
            slots[open_] = -1

        def resolve(pointers: Ints) -> Ints:
            return step(pointers)[0]

        return resolve


def _tables(spec: PlanSpec) -> list[TableSpec]:
    found: list[TableSpec] = []

    def visit(region: RegionSpec) -> None:
        found.extend(region.tables)
        for pair in region.arms.values():
            for arm in pair:
                visit(arm)

    for region in spec.regions.values():
        visit(region)
    return found


def _join(parts: list[NDArray[Any]]) -> NDArray[Any]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _merge(rows: int, pieces: list[tuple[Ints, NDArray[Any]]]) -> NDArray[Any]:
    if not pieces:
        return np.zeros(rows, np.int64)
    if len(pieces[0][0]) == rows:
        return pieces[0][1]
    first = pieces[0][1]
    dtype = np.result_type(*(p[1] for p in pieces))
    out = np.zeros((rows, *first.shape[1:]), dtype)
    for chosen, values in pieces:
        out[chosen] = values
    return out
