"""Inspection: the structural slice of a program, run over all activations of a data set at once.

Breadth first: every pending activation of one function is executed together, with NumPy arrays of one entry an
activation. A call interns its arguments, so that equal activations of an example are one; the frontier is deduplicated
before it is expanded. What comes out are the *tables* of `PlanSpec`, and for each row the example it belongs to.

Numbers are *pointers* here: `definition << 40 | row`. The result of a call is a pointer to a result slot of the
callee's activation until the end, when slots are followed to what they hold; `assemble.py` does that, for lists too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, assert_never

import numpy as np
from numpy.typing import NDArray

from autobatch.data.columns import Columns, Ints, Store
from autobatch.data.spec import CountedSpec, HostLimits, PlanSpec, RegionSpec, TableSpec
from autobatch.errors import NOWHERE, Failure, PlanError, Span
from autobatch.ir.core import (
    Apply,
    Array,
    Call,
    For,
    Function,
    If,
    List,
    Literal,
    Map,
    Module,
    Operand,
    Ref,
    Region,
    Tag,
    Value,
    While,
    walk,
)
from autobatch.ir.jax_compat import device_dtype
from autobatch.options import Options
from autobatch.planning.assemble import (
    DEPTH,
    SHIFT,
    TURN,
    Activations,
    FunctionActivations,
    GrowingArray,
    MadeLists,
    Outgoing,
    Resolver,
    RowsOfRegion,
    join,
    merge,
)
from autobatch.planning.scalar import FailedError, ScalarProgram, TooManyCallsError, as_column
from autobatch.planning.structure_ops import StructuralResults, StructureOps

# ---- endless
#
# Programs that never end on the host: found before memory is full, and named with their example and line.
#
# Inspection runs all examples together, turn by turn: that takes long for one of many turns, and much memory for a
# recursion that calls itself twice a time (`f(n + 1, m) + f(n, m + 1)`), which has many activations long before it is
# deep. So an example that has gone far is run alone, depth first, for so many calls that one which never ends is too
# deep by then (`HostLimits`); what it fails with is what it is reported with.


# ---- failures
#
# Which failure of an example comes first: the example alone, in program order.


MOST_CALLS = 2_000_000
"""So many calls are run to describe failures in program order: seconds. What examples that never end fail with behind
them is what inspection has found, at the place where it has found it."""


def first_failures(
    spec: PlanSpec,
    columns: Columns,
    roots: Sequence[Any],
    examples: Iterable[int],
    of_device: Mapping[int, Failure] = MappingProxyType({}),
) -> list[Failure]:
    """The first failure of each of the examples, as Python would raise it. `of_device`: what examples fail with that
    Python could run, because the device cannot hold their numbers, or that never end."""
    program = ScalarProgram(spec.failing, columns, spec.numbers, spec.limits)
    name = spec.failing.functions[0].name
    found = []
    for example in examples:
        if program.calls > MOST_CALLS and example in of_device:
            found.append(of_device[example])
            continue
        args = arguments_of(spec, columns, roots, example)
        found.append(program.first_failure(name, args, example, of_device.get(example)))
    return found


def arguments_of(spec: PlanSpec, columns: Columns, roots: Sequence[Any], example: int) -> tuple[Any, ...]:
    """What the entry of the slice with all that can fail takes, for one example."""
    entry, whole = spec.failing.functions[0], spec.module.functions[0].region.args
    args = []
    for k in (whole.index(a) for a in entry.region.args):
        value = roots[k][example]
        type = whole[k].type
        if isinstance(type, Tag):
            value = columns.vocabularies[type.vocabulary][value]
        args.append(value.item() if getattr(value, "ndim", None) == 0 else value)
    return tuple(args)


def place_of(module: Module, value: Operand) -> Span:
    """Where a value is computed."""
    for function in module.functions:
        if value in function.region.args:
            return function.span
        for instruction in walk(function.region):
            if value in instruction.results:
                return instruction.span
    return NOWHERE


HOPELESS = "examples that go as far were not run to their end, because each takes seconds"
"""What is said of the others where several examples never end."""

ROW_BYTES = 400
"""What an activation takes in inspection, and in the plan: its arguments, which are interned, and its tables."""

FEW = 10_000
"""Activations that any machine holds."""

LONG, WIDE = 4_096, 1_000_000
"""An example with more turns of a loop, or calls that wait, is run alone, and one with more activations; then with four
times as many, and so on."""

AT_ONCE = 4
"""So many examples at most are run alone each time."""


def host_limits(options: Options, max_rows: int | None, data: Columns, memory: int) -> HostLimits:
    """How far the host goes for these examples, with `memory` bytes for arrays, of which plans may take half."""
    entries = sum(len(column) for column in data.arrays.values())
    ahead = options.max_host_turns + entries
    rows = options.max_rows if max_rows is None else max_rows
    because = f"ab.options(max_rows=...) is {rows:,}"
    fitting = max(memory // 2 // ROW_BYTES, FEW)
    if fitting < rows:
        rows = fitting
        because = f"half of the memory of {memory / 1e9:.1f} GB would not hold them"
    return HostLimits(options.max_iterations, min(options.max_iterations, ahead), ahead, rows, because)


class EndlessWatch:
    """What is known of examples that may never end. `failures`: of those that do not, run alone. Unless `patient`,
    several of them are enough."""

    def __init__(self, spec: PlanSpec, columns: Columns, roots: Sequence[Any], patient: bool) -> None:
        self.spec, self.columns, self.roots, self.patient = spec, columns, roots, patient
        self.wide, self.long = WIDE, LONG
        self.ends: set[int] = set()
        self.failures: dict[int, Failure] = {}

    @property
    def hopeless(self) -> bool:
        """Do several examples never end, so that nobody wants to hear of the others?"""
        return not self.patient and len(self.failures) >= AT_ONCE

    def grown(self, kind: FunctionActivations, call: Span, fail: Callable[[Ints], None]) -> None:
        """More activations of `kind` wait, because of `call`. Raises PlanError where they are too many."""
        if kind.count > self.spec.limits.rows:
            raise self.too_many(kind, call)
        if kind.count > self.wide:
            self.wide *= 4
            self.look_into([most_of(kind)[0]], fail)

    def gone(self, steps: Ints, example: Ints, fail: Callable[[Ints], None]) -> None:
        """So many turns, or calls that wait, lie behind activations of these examples."""
        if int(steps.max(initial=0)) > self.long:
            far = example[steps > self.long]
            self.long *= 4
            self.look_into(np.unique(far).tolist(), fail)

    def look_into(self, examples: Sequence[int], fail: Callable[[Ints], None]) -> None:
        """Run examples alone, up to the first one that ends; not many, where all of them never end."""
        new = [e for e in examples if e not in self.ends and e not in self.failures]
        for example in new[:AT_ONCE]:
            failure = self.run(example)
            if failure is None:
                self.ends.add(example)
                return
            self.failures[example] = failure
            fail(np.array([example]))

    def run(self, example: int) -> Failure | None:
        """What the example fails with, within so many calls that a recursion that never ends is too deep."""
        limits = replace(self.spec.limits, rows=4 * self.spec.limits.depth)
        program = ScalarProgram(self.spec.failing, self.columns, self.spec.numbers, limits)
        args = arguments_of(self.spec, self.columns, self.roots, example)
        try:
            program.call(self.spec.failing.functions[0].name, args, example)
        except TooManyCallsError:
            return None
        except FailedError as error:
            return error.failure(example)
        return None

    def too_many(self, kind: FunctionActivations, call: Span) -> PlanError:
        """The error for a batch with more activations than the limit: whose they are, and where they are called."""
        limits = self.spec.limits
        example, count = most_of(kind)
        text = (
            f"{kind.function.name} has more than {limits.rows:,} activations in this batch, and {limits.because}; "
            f"example {example} has most of those that wait, {count:,}, called at {call}; raise "
            "ab.options(max_rows=...) if it is meant to be so large, else look for a recursion that never ends there"
        )
        return PlanError("\n".join(filter(None, (text, call.excerpt()))))


def most_of(kind: FunctionActivations) -> tuple[int, int]:
    """The example with most of the activations that wait, and how many these are."""
    counts = np.bincount(np.concatenate([example for example, *_ in kind.pending]))
    return int(counts.argmax()), int(counts.max())


# ---- foreseen
#
# Activations that the examples foretell: a class may say which functions are called on its objects.
#
#     class Compound1: __autobatch_calls__ = {"": ("compound1",), "a1_0": ("value1_0",)}
#
# `compound1` is called on every object of the class, `value1_0` on what their field `a1_0` holds. Inspection expands
# all of these at once: it takes as many rounds as functions call one another, in place of as many as the data is deep.
# And it checks what it was told: where a call leads to an activation that was not foreseen, or no call to one that was,
# all is inspected again without.


CALLS = "__autobatch_calls__"
"""The attribute of a class: the functions that are called on its objects (""), and on what a field of theirs holds."""


Pointers = Sequence[Ints | int]
"""The arguments of a call that are no structure; an integer is the pointer of all rows."""


class UnforeseenError(Exception):
    """What was foretold is not so."""


@dataclass
class ForeseenActivations:
    """The activations of one function: `number[row]` of a store is the activation, -1 where none was foreseen.
    `pointers`: what all of them have as their other arguments. `reached`: those that some call leads to."""

    number: Ints
    pointers: tuple[int, ...]
    reached: np.ndarray[tuple[int], np.dtype[np.bool_]]

    def of(self, rows: Ints, pointers: Pointers) -> Ints:
        """The activations that a call leads to."""
        found = self.number[rows]
        if found.min(initial=0) < 0 or not all(map(_is_always, pointers, self.pointers)):
            raise UnforeseenError
        self.reached[found] = True
        return found


def _is_always(pointer: Ints | int, wanted: int) -> bool:
    return pointer == wanted if isinstance(pointer, int) else not (pointer != wanted).any()


class Foreseen:
    """What the classes of some examples foretell. `examples`: those that are inspected."""

    def __init__(self, columns: Columns, examples: Ints) -> None:
        self.columns, self.examples = columns, examples
        self.told = _told(columns)
        self.rows: dict[str, ForeseenActivations] = {}

    def first(self, kind: FunctionActivations, given: Pointers) -> tuple[Ints, Ints, dict[Operand, int]] | None:
        """The rows that a function is called on, their examples, and its other arguments, at its first call; None where
        nothing is told."""
        args = kind.function.region.args
        if len(kind.host_args) != 1 or kind.function.waits:
            return None
        type = args[kind.host_args[0]].type
        if not isinstance(type, Ref):
            return None
        name = kind.function.name.partition(".")[0]
        parts = [p for store, p in self.told.get(name, ()) if store == type.store]
        pointers = [p if isinstance(p, int) else int(p[0]) for p in given]
        if not parts or not all(map(_is_always, given, pointers)):
            return None
        starts = self.columns.starts[type.store]
        number = np.full(int(starts[-1]), -1)
        for part in parts:
            number[part] = 0
        if len(self.examples) < self.columns.count:
            left_out = np.ones(self.columns.count, bool)
            left_out[self.examples] = False
            number[np.repeat(left_out, np.diff(starts))] = -1
        rows = np.flatnonzero(number == 0)
        number[rows] = np.arange(len(rows))
        self.rows[kind.function.name] = ForeseenActivations(number, tuple(pointers), np.zeros(len(rows), np.bool_))
        examples = np.searchsorted(starts, rows, side="right") - 1
        return rows, examples, {args[k]: p for k, p in zip(kind.pointer_args, pointers, strict=True)}

    def check(self) -> None:
        """Raise UnforeseenError unless calls lead to all that was foreseen."""
        if not all(r.reached.all() for r in self.rows.values()):
            raise UnforeseenError


def _told(columns: Columns) -> dict[str, list[tuple[str, Ints]]]:
    """By the name of a function: the stores whose rows it is called on, with these rows."""
    found: dict[str, list[tuple[str, Ints]]] = {}
    for store in columns.schema.stores:
        for k, calls in _classes(store):
            mine = np.flatnonzero(columns.arrays[f"{store.name}.#tag"] == k)
            for name in calls.get("", ()):
                found.setdefault(name, []).append((store.name, mine))
            for field in store.fields:
                if k in field.classes and isinstance(field.type, Ref) and field.name in calls:
                    held = columns.arrays[field.column][mine].astype(np.int64)
                    for name in calls[field.name]:
                        found.setdefault(name, []).append((field.type.store, held[held >= 0]))
    return found


def _classes(store: Store) -> Iterator[tuple[int, Mapping[str, tuple[str, ...]]]]:
    for k, c in enumerate(store.classes):
        calls = None if c.cls is None else vars(c.cls).get(CALLS)
        if calls is not None:
            yield k, calls


# ---- turns
#
# All turns of loops that count, at once: their arguments are computed before the first turn runs.
#
#     turn            0 1   0 1   0        turns of two loops, of two and one element; the last one of each ends it
#     loop            a b   a b   a
#     counter         0 0   1 1   2        its beginning and its steps
#     h               i j   r s   t        what it begins with; then the number that the row of the turn before computes
#
# Turns are in the order in which they would run, one after another for all loops, so rows have the same numbers. Those
# that do not end the loop have rows in its body, in this order; hence the numbers that they compute are known by name.
# Where a branch decides which number it is, its name is that of the activation which takes it, and is followed in the
# end as that of a call's result is.


Evaluate = Callable[[Apply, RowsOfRegion], None]


@dataclass(frozen=True)
class TurnCapacity:
    """So many turns may be begun at once, and one loop may have so many. The first of those that follow others is
    activation `activation`, the first row of the body is `body`."""

    rows: int
    turns: int
    activation: int
    body: int


def all_turns(
    kind: FunctionActivations, counted: CountedSpec, scope: RowsOfRegion, evaluate: Evaluate, room: TurnCapacity
) -> RowsOfRegion | None:
    """The scope of all turns of loops whose first turns are those of `scope`; None where there are too many of them, or
    no more than one."""
    args = kind.function.region.args
    ahead = _ahead(scope, np.arange(scope.rows), counted.bounding, evaluate)
    step = counted.steps[counted.counter]
    missing = ahead.host_value(counted.bound).astype(np.int64) - scope.host[args[counted.counter]]
    counts = np.maximum(missing // step + 1 if counted.inclusive else -(-missing // step), 0)
    most = int(counts.max(initial=0))
    if most < 2 or most > room.turns or int(counts.sum()) > room.rows:
        return None
    loop, turn = _by_turns(counts + 1)
    made = RowsOfRegion(len(loop), scope.example[loop], constants=scope.constants)
    for x, values in scope.host.items():
        made.host[x] = values[loop]
    for k, step in counted.steps.items():
        made.host[args[k]] = made.host[args[k]] + step * turn
    if TURN in made.host:
        made.host[TURN] = made.host[TURN] + turn
    for x, pointers in scope.pointer.items():
        made.pointer[x] = pointers[loop]
    number = np.arange(made.rows - scope.rows)
    for k, definition in counted.exports.items():
        made.pointer[args[k]][scope.rows :] = (definition << SHIFT) | (room.body + number)
    for k, slot in kind.handed_slots.items():
        made.pointer[args[k]][scope.rows :] = (slot << SHIFT) | (room.activation + number)
    if counted.delayed:
        running = np.flatnonzero(turn < counts[loop])
        body = _ahead(made, running, counted.delaying, evaluate)
        for k, value in counted.delayed.items():
            made.host[args[k]] = np.concatenate([scope.host[args[k]], body.host_value(value)])
    return made


def _ahead(scope: RowsOfRegion, rows: Ints, operations: tuple[Apply, ...], evaluate: Evaluate) -> RowsOfRegion:
    """What operations give for some rows of a scope, which learns nothing of it."""
    inner = RowsOfRegion(len(rows), scope.example[rows], scope, rows)
    for operation in operations:
        evaluate(operation, inner)
    return inner


def _by_turns(lengths: Ints) -> tuple[Ints, Ints]:
    """The loop and the turn of each entry: all first turns, all second ones, and so on."""
    loop = np.repeat(np.arange(len(lengths)), lengths)
    turn = np.arange(len(loop)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    order = np.argsort(turn, kind="stable")
    return loop[order], turn[order]


class Inspection:
    """One run over some examples of a data set, with what runs over more of them have told `watch`."""

    def __init__(
        self,
        spec: PlanSpec,
        columns: Columns,
        roots: Sequence[NDArray[Any]],
        examples: Ints,
        watch: EndlessWatch,
        foreseen: Foreseen | None = None,
        together: bool = True,
    ) -> None:
        self.spec, self.columns, self.roots = spec, columns, roots
        self.examples, self.foreseen = examples, foreseen
        self.together = together and foreseen is None
        self.ahead: Ints | None = None  # the turns that follow those which run, where they run with them
        self.failed: set[int] = set()
        self.of_device: dict[int, Failure] = {}
        self.ops = StructureOps(columns, self.fail)
        self.tables: dict[str, GrowingArray] = defaultdict(GrowingArray)
        self.folded: dict[str, tuple[GrowingArray, GrowingArray]] = defaultdict(
            lambda: (GrowingArray(), GrowingArray())
        )
        self.example: dict[int, GrowingArray] = defaultdict(GrowingArray)
        self.slot_owner: list[tuple[str, int]] = []
        self.base = len(spec.definitions)
        self.waiting_for = StructuralResults(spec, columns, self.ops, self.fail)
        self.kinds = {f.name: self.kind(f) for f in spec.module.functions}
        self.lists = MadeLists(self.base + len(self.slot_owner))
        self.running: FunctionActivations | None = None
        self.constant: dict[Operand, int] = {}
        self.calling = spec.module.functions[0].span
        self.watch = watch

    def kind(self, function: Function) -> FunctionActivations:
        args = function.region.args
        slots = {}
        for k in self.spec.slots[function.name]:
            slots[k] = self.base + len(self.slot_owner)
            self.slot_owner.append((function.name, k))
        made = FunctionActivations(
            function,
            tuple(k for k, a in enumerate(args) if a in self.spec.on_host),
            tuple(k for k, a in enumerate(args) if a in self.spec.on_device and a not in self.spec.columns),
            slots,
        )
        if self.together and (counted := self.spec.counted.get(function.name)) is not None:
            for k in sorted(counted.later):
                made.handed_slots[k] = self.base + len(self.slot_owner)
                self.slot_owner.append((function.name, ~k))
        return made

    # ---- the run

    def run(self) -> Activations | None:
        """None when some example failed: then `failed` names it, and the others are inspected anew without it."""
        entry = self.kinds[self.spec.module.functions[0].name]
        args = {k: self.roots[k][self.examples] for k in entry.host_args}
        pointers = []
        for k in entry.pointer_args:
            source = self.spec.data[f"#argument{k}"]
            pointers.append((source << SHIFT) | self.examples)
        self.intern(entry, self.examples, list(args.values()), pointers, np.zeros(len(self.examples), np.int64))
        while True:
            waiting = [k for k in self.kinds.values() if k.pending]
            if not waiting or self.watch.hopeless:
                break
            for kind in waiting:
                if kind.pending:  # a failure may have emptied it
                    self.execute(kind)
        if self.foreseen is not None:
            if self.failed:
                raise UnforeseenError  # perhaps in what no call leads to
            self.foreseen.check()
        if self.failed:
            return None
        found = self.finish(entry)
        return None if self.failed else found

    def called(
        self,
        kind: FunctionActivations,
        example: Ints,
        host: list[NDArray[Any]],
        given: Pointers,
        depth: Ints,
        turn: Ints | None,
    ) -> Ints:
        """The activations that a call leads to: those that are foreseen, or else interned."""
        if self.foreseen is not None:
            if kind.count == 0 and (first := self.foreseen.first(kind, given)) is not None:
                rows, examples, constant = first
                self.constant |= constant
                self.add(kind, examples, [rows], [], np.zeros(len(rows), np.int64), None)
            if (known := self.foreseen.rows.get(kind.function.name)) is not None:
                return known.of(host[0], given)
        pointers = [np.full(len(example), p) if isinstance(p, int) else p for p in given]
        return self.intern(kind, example, host, pointers, depth, turn)

    def intern(
        self,
        kind: FunctionActivations,
        example: Ints,
        host: list[NDArray[Any]],
        pointers: list[Ints],
        depth: Ints,
        turn: Ints | None = None,
    ) -> Ints:
        """The activations with these arguments, old or new; new ones wait to be executed. `depth`, `turn`: see
        `FunctionActivations`."""
        rows = len(example)
        key = np.empty((rows, 1 + len(host) + len(pointers)), np.int64)
        key[:, 0] = example
        for k, column in enumerate([*host, *pointers], 1):
            key[:, k] = self.ops.key(column)
        ids, new = kind.known(key)
        if new:
            chosen = None if len(new) == rows else np.array(new)
            self.add(kind, example, host, pointers, depth, chosen)
            if turn is not None:
                kind.turns.append(turn if chosen is None else turn[chosen])
        return ids

    def add(
        self,
        kind: FunctionActivations,
        example: Ints,
        host: list[NDArray[Any]],
        pointers: list[Ints],
        depth: Ints,
        select: Ints | None,
    ) -> Ints:
        if select is not None:
            example, depth = example[select], depth[select]
            host, pointers = [h[select] for h in host], [p[select] for p in pointers]
        ids = np.arange(kind.count, kind.count + len(example))
        kind.count += len(example)
        kind.pending.append((example, host, pointers))
        kind.depths.append(depth)
        self.watch.grown(kind, self.calling, self.fail)
        return ids

    def execute(self, kind: FunctionActivations) -> None:
        pending, kind.pending = kind.pending, []
        example = np.concatenate([p[0] for p in pending])
        scope = RowsOfRegion(len(example), example, constants=self.spec.module.constants)
        scope.host.update({x: np.full(scope.rows, number) for x, number in self.spec.numbers.items()})
        args = kind.function.region.args
        for n, k in enumerate(kind.host_args):
            scope.host[args[k]] = join([p[1][n] for p in pending])
        for n, k in enumerate(kind.pointer_args):
            if args[k] not in self.constant:
                scope.pointer[args[k]] = join([p[2][n] for p in pending])
        self.running = kind
        self.limit(kind, scope)
        failed, scope = len(self.failed), self.with_all_turns(kind, scope)
        region = kind.function.region
        self.region(region, self.spec.regions[kind.function.name], scope)
        for k, result in enumerate(region.results):
            if k in kind.slots:
                kind.results[k].append(self.pointer(result, scope))
            elif result in self.spec.on_host:
                kind.host_results[k].append(scope.host_value(result))
        if self.ahead is not None and len(self.failed) > failed:
            raise UnforeseenError  # another turn, or another line, may be the first to fail
        if self.failed:
            self.drop_failed()

    def with_all_turns(self, kind: FunctionActivations, scope: RowsOfRegion) -> RowsOfRegion:
        """Where a loop counts, all turns behind those at hand. They go no further than where `watch` would look."""
        self.ahead = None
        counted, waits = self.spec.counted.get(kind.function.name), kind.function.waits
        if counted is None or not self.together:
            return scope
        limits, watch = self.spec.limits, self.watch
        turns = min(limits.turns, watch.long) - int(scope.host[TURN].max(initial=0)) if waits else limits.rows
        for k in kind.handed_slots:
            kind.handed[k].append(scope.pointer[kind.function.region.args[k]])
        body = self.spec.regions[kind.function.name].arms[len(kind.function.region.body) - 1][0].space.index
        first = self.example[body].size if body in self.example else 0
        room = TurnCapacity(min(limits.rows, watch.wide) - kind.count, turns, kind.count, first)
        found = all_turns(kind, counted, scope, self.apply, room)
        if found is None:
            return scope
        self.ahead = np.arange(kind.count, kind.count + found.rows - scope.rows)
        kind.count += len(self.ahead)
        return found

    def limit(self, kind: FunctionActivations, scope: RowsOfRegion) -> None:
        """How many turns and calls have been before those at hand; an example that has had too many fails."""
        limits, span = self.spec.limits, kind.function.span
        scope.host[DEPTH], kind.depths = join(kind.depths), []
        self.watch.gone(scope.host[DEPTH], scope.example, self.fail)
        self.too_far(scope, scope.host[DEPTH] > limits.depth, "RecursionError", limits.deep, span)
        if kind.function.waits:
            scope.host[TURN], kind.turns = join(kind.turns), []
            self.watch.gone(scope.host[TURN], scope.example, self.fail)
            self.too_far(scope, scope.host[TURN] >= limits.turns, "RuntimeError", limits.late, span)

    def too_far(self, scope: RowsOfRegion, where: NDArray[np.bool_], kind: str, message: str, span: Span) -> None:
        if where.any():
            for e in scope.example[where].tolist():
                self.of_device.setdefault(e, Failure(e, kind, message, span))
            self.fail(scope.example[where])

    def drop_failed(self) -> None:
        """Examples that failed are not expanded further: they are planned alone, to name the first failure."""
        failed = np.array(sorted(self.failed))
        for kind in self.kinds.values():
            live = [n for n, (example, *_) in enumerate(kind.pending) if not np.isin(example, failed).any()]
            kind.pending = [kind.pending[n] for n in live]
            kind.depths = [kind.depths[n] for n in live]
            kind.turns = [kind.turns[n] for n in live] if kind.turns else []

    def fail(self, example: Ints) -> None:
        self.failed.update(example.tolist())

    # ---- one region

    def region(self, region: Region, spec: RegionSpec, scope: RowsOfRegion) -> None:
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

    def record(self, table: TableSpec, scope: RowsOfRegion, rows: Ints) -> None:
        if table.kind == "column":
            values = scope.host_value(table.value)
            self.check_width(table.value, values, scope.example)
            self.tables[table.name].append(values)
            return
        if table.kind == "kept":
            self.tables[table.name].append(scope.host_value(table.value))
            return
        pointers = self.pointer(table.value, scope)
        if table.kind in ("pointer", "field"):
            self.tables[table.name].append(pointers)
            return
        owners, lists = self.folded[table.name]
        owners.append(rows)
        lists.append(pointers)

    def check_width(self, value: Operand, column: NDArray[Any], example: Ints) -> None:
        """The ints of the host have 64 bits; an example whose int the device cannot hold fails."""
        if not isinstance(value.type, Array) or not value.type.is_integer:
            return
        wrong = np.flatnonzero(column != column.astype(device_dtype(value.type)))
        for e in example[wrong].tolist():
            kind = device_dtype(value.type)
            text = f"an int does not fit into the {kind} of the device; jax_enable_x64 makes it wider"
            self.of_device.setdefault(e, Failure(e, "OverflowError", text, place_of(self.spec.module, value)))
        self.fail(example[wrong])

    def pointer(self, x: Operand, scope: RowsOfRegion) -> Ints:
        """Where `x` is, for every row of the scope. A uniform value that no gather reads has no definition."""
        if x in self.spec.uniform:
            return np.full(scope.rows, self.spec.uniform[x] << SHIFT)
        if x in self.constant:
            return np.full(scope.rows, self.constant[x])
        found = scope.pointer_value(x) if isinstance(x, Value) else None
        return np.full(scope.rows, -1) if found is None else found

    def apply(self, instruction: Apply, scope: RowsOfRegion) -> None:
        op, xs = instruction.op, instruction.operands
        result = instruction.results[0] if instruction.results else None
        if result in self.spec.numbers:
            return  # told, not computed
        effect = op.name in ("check", "bounds")
        on_host = effect or any(r in self.spec.on_host for r in instruction.results)
        device = result is not None and result in self.spec.on_device and result not in self.spec.columns
        if op.name in ("make", "adopt"):
            if device and op.name == "adopt":
                self.adopt(instruction, scope)
            return  # the object that `make` makes is the row itself
        if op.name == "pack_list":
            self.packed_list(instruction, scope, on_host, device)
            return
        if isinstance(xs[0].type if xs else None, List) and xs[0].type.store is None:  # type: ignore[union-attr]
            self.made_list(instruction, scope, on_host, device)
            return
        if on_host:
            values = self.ops.apply(instruction, [scope.host_value(x) for x in xs], scope.example)
            scope.host.update(zip(instruction.results, values, strict=True))
        if device and op.name in ("load", "item"):
            assert result is not None
            column, rows = self.ops.locate(instruction, [scope.host_value(x) for x in xs], scope.example)
            scope.pointer[result] = (np.int64(self.spec.data[column]) << SHIFT) | rows

    def adopt(self, instruction: Apply, scope: RowsOfRegion) -> None:
        """An object of the examples, as a pointer to its row."""
        assert self.spec.made is not None
        (x,), (result,) = instruction.operands, instruction.results
        assert isinstance(x.type, Ref)
        definition = dict(self.spec.made.adopted)[x.type.store]
        rows = scope.host_value(x)
        scope.pointer[result] = np.where(rows >= 0, (np.int64(definition) << SHIFT) | rows, -1)

    def packed_list(self, instruction: Apply, scope: RowsOfRegion, on_host: bool, device: bool) -> None:
        """A list of a fixed number of values; on the host, those that are computed there."""
        xs, result = instruction.operands, instruction.results[0]
        if device:
            scope.pointer[result] = self.lists.pack([self.pointer(x, scope) for x in xs], scope.rows)
        if on_host:
            known = [isinstance(x, Literal) or x in self.spec.on_host for x in xs]
            columns = [scope.host_value(x) if k else np.zeros(scope.rows) for x, k in zip(xs, known, strict=True)]
            rows = [self.waiting_for.as_scalars(c, x.type) for c, x in zip(columns, xs, strict=True)]
            scope.host[result] = as_column(list(zip(*rows, strict=True)) if rows else [()] * scope.rows)

    def made_list(self, instruction: Apply, scope: RowsOfRegion, on_host: bool, device: bool) -> None:
        """`length`, `item` and `flatten` of a list that the program made (`reduce` reads it through a table)."""
        op, xs = instruction.op, instruction.operands
        if on_host:
            operands = [scope.host_value(x) for x in xs]
            scope.host[instruction.results[0]] = self.waiting_for.list_operation(instruction, operands, scope.example)
        if not device or op.name == "reduce":
            return
        lists = self.pointer(xs[0], scope)
        if op.name == "flatten":
            scope.pointer[instruction.results[0]] = self.lists.flatten(lists, scope.example)
        if op.name == "item":
            scope.pointer[instruction.results[0]] = self.lists.item(lists, scope.host_value(xs[1]), scope.example)

    def branch(self, instruction: If, arms: tuple[RegionSpec, RegionSpec], scope: RowsOfRegion) -> None:
        condition = scope.host_value(instruction.condition).astype(bool)
        parts = []
        for chosen, region, spec in (
            (np.flatnonzero(condition), instruction.then, arms[0]),
            (np.flatnonzero(~condition), instruction.orelse, arms[1]),
        ):
            if len(chosen):
                inner = RowsOfRegion(len(chosen), scope.example[chosen], scope, chosen)
                self.region(region, spec, inner)
                parts.append((chosen, inner, region))
        for k, result in enumerate(instruction.results):
            if result in self.spec.on_host:
                pieces = [(c, s.host_value(r.results[k])) for c, s, r in parts]
                scope.host[result] = merge(scope.rows, pieces)
            if result in self.spec.on_device and result not in self.spec.columns:
                pieces = [(c, self.pointer(r.results[k], s)) for c, s, r in parts]
                scope.pointer[result] = merge(scope.rows, pieces)

    def arguments(self, call: Call, scope: RowsOfRegion) -> tuple[list[NDArray[Any]], list[Ints]]:
        host = [scope.host_value(call.operands[k]) for k in self.kinds[call.callee].host_args]
        return host, [self.pointer(call.operands[k], scope) for k in self.kinds[call.callee].pointer_args]

    def call(self, instruction: Call, scope: RowsOfRegion) -> None:
        kind = self.kinds[instruction.callee]
        host = [scope.host_value(instruction.operands[k]) for k in kind.host_args]
        given = [instruction.operands[k] for k in kind.pointer_args]
        pointers = [self.constant[x] if x in self.constant else self.pointer(x, scope) for x in given]
        self.calling, turn = instruction.span, None
        if kind.function.waits:
            turn = scope.host_value(TURN) + 1 if kind is self.running else np.zeros(scope.rows, np.int64)
        depth = scope.host_value(DEPTH) + (not kind.function.is_loop)
        if kind is self.running and self.ahead is not None:
            ids = self.ahead
            for k, pool in kind.handed.items():
                pool.append(self.pointer(instruction.operands[k], scope))
        else:
            ids = self.called(kind, scope.example, host, pointers, depth, turn)
        for k, slot in kind.slots.items():
            scope.pointer[instruction.results[k]] = (slot << SHIFT) | ids
        wanted = [k for k, r in enumerate(instruction.results) if r in self.spec.on_host]
        if wanted:
            found = self.waiting_for.results(kind.function, kind.host_args, host, scope.example)
            columns = self.waiting_for.columns_of(instruction, wanted, found)
            scope.host.update((instruction.results[k], c) for k, c in zip(wanted, columns, strict=True))

    def comprehension(self, instruction: Map, scope: RowsOfRegion) -> None:
        count = np.maximum(scope.host_value(instruction.count), 0)
        which = np.repeat(np.arange(scope.rows), count)
        inner = RowsOfRegion(len(which), scope.example[which], scope, which)
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
                inner = RowsOfRegion(len(kept), inner.example[kept], inner, kept)
                host, pointers = self.arguments(call, inner)
        self.calling = instruction.span
        depth = inner.host_value(DEPTH)
        ids = self.add(kind, inner.example, host, pointers, depth, None) if inner.rows else np.zeros(0, np.int64)
        for k, result in enumerate(instruction.results):
            slot = kind.slots.get(k + instruction.filtered, -1)
            scope.pointer[result] = self.lists.runs((slot << SHIFT) | ids, first, count)

    # ---- the end

    def finish(self, entry: FunctionActivations) -> Activations:
        resolve = self.resolver()
        self.fail(np.concatenate([resolve.cyclic, *resolve.outside]))
        tables = {name: pool.array() for name, pool in self.tables.items()}
        pointers = {t.name for _, t in self.spec.region_tables() if t.kind == "pointer"}
        for name in pointers & tables.keys():
            tables[name] = resolve(tables[name])
        elements = {}
        for name, (owners, lists) in self.folded.items():
            which, found = resolve.expand(lists.array())
            elements[name] = owners.array()[which], found
        example = {space: pool.array() for space, pool in self.example.items()}
        outgoing = Outgoing(resolve, self.waiting_for.as_column)
        made = self.spec.made
        if made is not None:
            outgoing.number(made, example, self.columns)
            outgoing.fields(made, self.spec.outputs, tables)
        rows = len(self.examples)
        for k in range(len(entry.function.region.results)):
            table = self.spec.outputs[k]
            if table.is_pointed:
                held: NDArray[Any] = (np.int64(entry.slots[k]) << SHIFT) | np.arange(rows)
            else:
                held = entry.host_results[k].array()[:rows]
            outgoing.put(k, table, self.examples, held, self.columns.count)
        elements |= outgoing.elements
        return Activations(example, tables, elements, outgoing.values, outgoing.lengths, outgoing.starts)

    def resolver(self) -> Resolver:
        """Follows result slots, and what lies in lists, to what they hold."""
        slots, examples = [], []
        for name, k in self.slot_owner:
            kind = self.kinds[name]
            known = self.example[self.spec.regions[name].space.index].array()
            examples.append(known if len(known) == kind.count else np.full(kind.count, -1))
            pools = kind.results if k >= 0 else kind.handed
            held = pools[max(k, ~k)].array() if max(k, ~k) in pools else np.zeros(0, np.int64)
            slots.append(held if len(held) == kind.count else np.full(kind.count, -1))
        return Resolver(self.base, slots, examples, self.lists)


def inspect(
    spec: PlanSpec, columns: Columns, roots: Sequence[NDArray[Any]], examples: Ints, watch: EndlessWatch
) -> tuple[Inspection, Activations | None]:
    """Inspect some examples: by what they foretell where that is so, with all turns of a loop at once where none of
    them fails; see `Inspection.run`."""
    foreseen = Foreseen(columns, examples)
    if foreseen.told:
        with suppress(UnforeseenError):
            inspection = Inspection(spec, columns, roots, examples, watch, foreseen)
            return inspection, inspection.run()
    with suppress(UnforeseenError):
        inspection = Inspection(spec, columns, roots, examples, watch)
        return inspection, inspection.run()
    inspection = Inspection(spec, columns, roots, examples, watch, together=False)
    return inspection, inspection.run()
