"""Calls whose program is known, as functions that have derivatives.

    f(p, batch)       Leaf: one program         ->  what it computes, and the cotangents of its shared values and tables
    f(p, [3x4, 5x6])  Groups: one for each shape    results put together, cotangents of shared values added up

What comes out is put into the structure of the arguments by `selection.Selection`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.call.arguments import PLAIN, BoundArguments, PackedArgument, Sharing, fill, is_array
from autobatch.call.batch import Batch, GroupedBatch, pack_fresh
from autobatch.call.examples import Examples
from autobatch.call.gradients import (
    Numbered,
    Selection,
    SharedStructure,
    derivative_of,
    derivatives_like,
    fit,
    fit_examples,
    float_columns,
    has_derivative,
    is_float,
    is_integer,
    paired,
    same_rows,
    tangents_of_objects,
)
from autobatch.call.native import ARRAYS, Moved, in_same_places
from autobatch.call.packed import data_tables, with_rows
from autobatch.call.prepared import Prepared
from autobatch.call.results import printing_results as printed
from autobatch.call.results import returned
from autobatch.call.shapes import ByShape, JoinedResults
from autobatch.common.sparse_rows import SparseRows
from autobatch.compiler import executables
from autobatch.compiler.executables import Moving, Wrt, floats, moves, with_floats
from autobatch.data.columns import Ints, columns_of
from autobatch.errors import BatchError, UnsupportedError
from autobatch.ir.core import (
    Array,
    ChoiceTemplate,
    Container,
    Fixed,
    ListTemplate,
    OptionalTemplate,
    Output,
    Pointer,
    Template,
)

# ---- shared numbers
#
# Which shared input holds each number that a call's shared arguments hold, so that derivatives find their places.
#
#     scale = 2.0                               number 0: input 0
#     scene = [Sphere(0.5), Sphere(0.75)]       numbers 1, 2: input 1, as columns rows 0 and 1 of input 3
#
# Numbers are counted as `gradients.Structure` counts them. Most are inputs of their own; those in objects that are
# columns are rows of these.


class SharedNumbers:
    """The numbers of a call whose shared arguments are `inputs`, among them the columns of those that are `packed`."""

    def __init__(self, bound: BoundArguments, inputs: Sequence[Any], packed: Sequence[PackedArgument]) -> None:
        columns = {p.columns.first + k for p in packed for k in range(len(p.columns.names))}
        own = [k for k, x in enumerate(inputs) if k not in columns and not is_integer(x)]
        self.whole: dict[int, int] = dict(enumerate(own))
        """The inputs that are numbers as they are, by number."""
        self.places: dict[int, tuple[int, Ints]] = {}
        """The column that a number lies in, and where, counted through the column."""
        self.values: list[Any] = []
        if packed:
            self._number(bound, {p.name: p for p in packed}, iter(own))

    def _number(self, bound: BoundArguments, of: Mapping[str, PackedArgument], own: Iterator[int]) -> None:
        self.whole = {}
        structure = SharedStructure("", lambda number, value: None)
        for raw in bound.shared:
            begin = len(structure.leaves)
            structure.raw(raw)
            if raw.name in of:
                self._find(of[raw.name], raw.value, begin, len(structure.leaves) - begin)
            else:
                self.whole.update((n, next(own)) for n in range(begin, len(structure.leaves)))
        self.values = structure.leaves

    def _find(self, packed: PackedArgument, value: Any, begin: int, count: int) -> None:
        """Find the numbers of an argument by packing it with each number's own in its place."""
        numbering = _Numbered(begin)
        numbered = pack_fresh([numbering.share(value, packed.name)[0]]).arrays
        if len(numbering.leaves) != count:
            raise UnsupportedError(
                f"{packed.name} holds objects that another shared argument holds too, and computed numbers choose "
                "among them: there is no derivative by what both hold",
                cure="give each argument objects of its own: copy.deepcopy",
            )
        for k, name in enumerate(packed.columns.names):
            held = numbered.get(name)
            if held is None or held.dtype.kind != "f":
                continue
            flat = np.nan_to_num(held.reshape(-1)).astype(np.int64)
            order = np.argsort(flat, kind="stable")
            numbers, first = np.unique(flat[order], return_index=True)
            for number, at in zip(numbers.tolist(), np.split(order, first[1:]), strict=True):
                if number > 0:
                    self.places[number - 1] = packed.columns.first + k, at

    def inputs(self, numbers: Sequence[int]) -> list[int]:
        """The inputs that hold numbers, each once."""
        return list(dict.fromkeys(self.whole[n] if n in self.whole else self.places[n][0] for n in numbers))

    def derivatives(self, numbers: Sequence[int], by_input: Mapping[int, Any]) -> dict[int, Any]:
        """The derivative by each number, from those by inputs."""
        columns: dict[int, Any] = {}
        made: dict[int, Any] = {}
        for n in numbers:
            if n in self.whole:
                made[n] = by_input[self.whole[n]]
                continue
            column, at = self.places[n]
            if column not in columns:
                found = by_input[column]
                dense = found.to_dense() if isinstance(found, SparseRows) else found
                traced = isinstance(dense, jax.core.Tracer)
                columns[column] = dense.reshape(-1) if traced else np.asarray(dense).reshape(-1)  # read once
            made[n] = jnp.asarray(columns[column][at].reshape(np.shape(self.values[n])))
        return made

    def tangents(self, given: Mapping[int, Any], inputs: Sequence[Any]) -> dict[int, Any]:
        """The tangents of inputs, from those of numbers."""
        made: dict[int, Any] = {}
        for n, x in given.items():
            if n in self.whole:
                made[self.whole[n]] = x
                continue
            column, at = self.places[n]
            held = made.get(column, jnp.zeros(inputs[column].shape, inputs[column].dtype))
            made[column] = held.reshape(-1).at[at].set(jnp.reshape(x, -1)).reshape(held.shape)
        return made


class _Numbered(Sharing):
    """A shared value with the number of each float, from 1, in its place."""

    def __init__(self, begin: int) -> None:
        super().__init__("")
        self.begin = begin

    def share(self, value: Any, name: str) -> tuple[Any, Any]:
        if isinstance(value, PLAIN) or is_integer(value):
            return value, None
        if is_array(value) or isinstance(value, (float, complex)):
            self.leaves.append(value)
            number = float(self.begin + len(self.leaves))
            return (np.full(np.shape(value), number) if is_array(value) else number), None
        return super().share(value, name)


Gradient = tuple[Any, list[Any]]
"""The result of a call, and the derivatives by its arguments."""

# ---- one program


@dataclass
class LinearCall:
    """A call that is one program."""

    given: Prepared
    asked: BoundArguments
    again: tuple[Prepared, Callable[[Prepared], Gradient]] | None = None
    """The program that has computed a gradient, and how to have that of another call of it."""

    @cached_property
    def prepared(self) -> Prepared:
        """The call with the tables of its program."""
        return self.given if self.given.operands is None else self.given.with_tables()

    @property
    def bound(self) -> BoundArguments:
        """The arguments of the program that is prepared: of one over traces they are others."""
        return self.prepared.bound or self.asked

    @cached_property
    def numbers(self) -> SharedNumbers:
        """The shared input that each numbered value is, or lies in."""
        return self._numbers_of(self.prepared)

    def _numbers_of(self, prepared: Prepared) -> SharedNumbers:
        given = prepared.shared[: len(prepared.shared) - prepared.program.hidden]
        return SharedNumbers(prepared.bound or self.asked, given, prepared.packed)

    @cached_property
    def stale(self) -> Any:
        return self.prepared.stale()

    @cached_property
    def batch(self) -> Batch | None:
        """The packed arguments as one batch."""
        return _batch_of(self.prepared.examples)

    @cached_property
    def of_column(self) -> dict[str, str]:
        """The table that each column of floats is."""
        if self.batch is None:
            return {}
        schema, tables = self.batch.schema, self.prepared.tables
        names = {c.name: True for c in columns_of(schema)}
        found = data_tables(self.prepared.program, tables, names, schema)
        return {column: table for table, column, _ in found if moves(tables[table])}

    def argument(self, whole: Batch, slot: int) -> Batch:
        """The part of a batch that a slot is, where several arguments were packed together: behind those of the call
        may be the objects that the function changes."""
        packed = [s.index for s in (self.given.bound or self.asked).slots if s.kind != "array"]
        together = sum(not c.array for c in self.given.program.components)
        return whole.args[packed.index(slot)] if max(len(packed), together) > 1 else whole

    def wrt(self, selection: Selection) -> Wrt:
        """The inputs that the chosen arguments are."""
        if self.prepared.bound is not None and selection.slots:
            raise UnsupportedError(
                f"{self.given.function}: its structure is traced, and derivatives by batched arguments are those of "
                "packed examples, which these cannot be",
                cure="ab.pack(examples) says why; differentiate by shared arguments, or change what it names",
            )
        shared = tuple(self.numbers.inputs(selection.shared))
        slots = [s for s in self.bound.slots if s.index in selection.slots]
        tables = [self.prepared.program.array_table(s.index) for s in slots if s.kind == "array" and moves(s.values)]
        if any(s.kind != "array" for s in slots):
            tables += self.of_column.values()
        return Wrt(shared, tuple(sorted(t for t in tables if t in self.prepared.tables)))

    def linearise(self, wrt: Wrt, by_rows: bool = False) -> tuple[Any, Callable[[Any], Any]]:
        p = self.prepared
        if p.is_interpreted:
            found, pull = executables.linearised(p.compute, p.shared, p.tables, wrt)
            return found, (lambda cts: (rows_alone(p, pull(cts)[0], wrt),)) if by_rows else pull
        with p.program.in_memory(p.ready.signature):
            found, pull = p.program.derivatives.linearised(p.shared, p.tables, p.ready.signature, wrt, by_rows)
        return found, pull

    def refuse_failed(self) -> None:
        """Raise what examples fail with on the device, for what computes no result that would say so."""
        p = self.prepared
        if p.program.compiled.sites:
            p.failed_on_device(p.compute(p.shared, p.tables))

    def natively(self, selection: Selection, output: int, alone: bool) -> tuple[Any, list[Any]] | None:
        """The result, and the entries of `selection` of the derivative of the sum of one of its numbers over all
        examples that have not failed, by machine code that is the whole function. None where there is none. `alone`:
        nobody asks for the result."""
        p = self.given
        if p.operands is None:
            return None
        numbers, slots = self._numbers_of(p), [s for s in (p.bound or self.asked).slots if s.index in selection.slots]
        wrt: list[Moved] = [("shared", k) for k in sorted(numbers.inputs(selection.shared))]
        wrt += [("batched", s.index) for s in slots if s.kind == "array" and moves(s.values)]
        packed = _batch_of(p.examples) if any(s.kind != "array" for s in slots) else None
        if packed is not None:
            wrt += [("column", c.name) for c in columns_of(packed.schema) if is_float(c.type)]
        made = p.gradient(output, wrt, alone)
        if made is None:
            return None
        result, found = made
        by_slot: dict[int, Any] = {k: x for (kind, k), x in found.items() if kind == "batched"}
        if packed is not None:
            whole = derivatives_like(packed, {name: x for (kind, name), x in found.items() if kind == "column"})
            by_slot |= {s.index: self.argument(whole, s.index) for s in slots if s.kind != "array"}
        shared = {k: x for (kind, k), x in found.items() if kind == "shared"}
        entries = selection.entries(numbers.derivatives(selection.shared, shared), by_slot)
        placed = in_same_places(entries, found, ARRAYS)

        def again(p: Prepared) -> Gradient:
            made = p.gradient(output, wrt, alone)
            assert made is not None and placed is not None
            return made[0], placed(made[1])

        self.again = None if placed is None or p.called_back is not None else (p, again)
        return result, entries

    def pushed(self, tangents: Moving, wrt: Wrt) -> tuple[Any, list[Any]]:
        p = self.prepared
        if p.is_interpreted:
            return executables.pushed(p.compute, p.shared, p.tables, tangents, wrt)
        made: tuple[Any, list[Any]] = p.program.derivatives.pushed(p.shared, p.tables, tangents, p.ready.signature, wrt)
        return made

    def curvature(self, tangents: Moving, wrt: Wrt, moved: Wrt, output: int) -> tuple[Any, Moving]:
        p = self.prepared
        weight = weight_of(p)
        if p.is_interpreted:
            return executables.curvature(p.compute, p.shared, p.tables, tangents, weight, wrt, moved, output)
        made: tuple[Any, Moving] = p.program.derivatives.curvature(
            p.shared, p.tables, tangents, weight, p.ready.signature, wrt, moved, output
        )
        return made

    def derivatives(
        self, moving: Moving, wrt: Wrt, columns: Mapping[str, Any], selection: Selection
    ) -> FoundDerivatives:
        """Derivatives by inputs as those by arguments. `columns`: what the result, which holds examples, adds."""
        if self.stale is not None:
            moving = with_floats(moving, [jnp.where(self.stale, jnp.nan, x).astype(x.dtype) for x in floats(moving)])
        shared = self.numbers.derivatives(selection.shared, dict(zip(wrt.shared, moving[0], strict=True)))
        slots: dict[int, Any] = {}
        for slot in (s for s in self.bound.slots if s.index in selection.slots):
            if slot.kind == "array":
                table = moving[1].get(self.prepared.program.array_table(slot.index))
                if moves(slot.values):
                    zeros = jnp.zeros_like(slot.leading())
                    slots[slot.index] = zeros if table is None else with_rows(table, len(slot)).astype(zeros.dtype)
            else:
                slots[slot.index] = self.batch_of(moving[1], columns, slot.index)
        return FoundDerivatives(shared, slots)

    @property
    def live_columns(self) -> dict[str, Any]:
        """The columns of floats of the examples, as results that hold examples refer to them."""
        if self.batch is None:
            return {}
        live = self.prepared.examples.host_or_leaves()
        return {n: jnp.asarray(live[n]) for n in float_columns(self.batch)}

    def column_tangents(self, given: Mapping[int, Any], what: str) -> dict[str, Any]:
        """Tangents of the columns of floats, from those of packed arguments by slot: Batches, or lists of objects. Of a
        row that several arguments reach, the first counts."""
        made: dict[str, Any] = {}
        known: dict[str, Any] = {}
        for slot in self.bound.slots:
            if slot.kind == "array" or slot.index not in given:
                continue
            assert self.batch is not None
            own, x = self.argument(self.batch, slot.index), given[slot.index]
            names, words = sorted(float_columns(own)), f"{what} of {slot.name}"
            if type(x) is Batch and not x.is_traced and not own.is_traced and not same_rows(own, x):
                x = x.to_list()  # packed apart from the other arguments, so its rows lie elsewhere
            if isinstance(x, list) and not isinstance(own, GroupedBatch):
                new, rows = tangents_of_objects(own, x, words)
            else:
                new = dict(zip(names, fit(own, x, words, missing=True), strict=True))
                rows = {n: np.ones(c.shape[0], np.bool_) for n, c in new.items()}
            for name, column in new.items():
                held = known.get(name, np.zeros(column.shape[0], np.bool_))
                before = made.get(name, jnp.zeros_like(column))
                made[name] = jnp.where(held.reshape(-1, *(1,) * (column.ndim - 1)), before, column)
                known[name] = held | rows[name]
        return made

    def batch_of(self, tables: Mapping[str, Any], columns: Mapping[str, Any], slot: int) -> Batch:
        """A Batch of derivatives of one packed argument."""
        assert self.batch is not None
        found = {c: tables[t] for c, t in self.of_column.items() if t in tables}
        for name, x in columns.items():
            found[name] = with_rows(found[name], x.shape[0]) + x if name in found else x
        return self.argument(derivatives_like(self.batch, found), slot)


def _batch_of(examples: Examples) -> Batch | None:
    if examples.group is not None:
        return Batch(examples.group)
    return None if examples.leaves is None else Batch.from_leaves(*examples.leaves)


def weight_of(p: Prepared) -> Any:
    """bool[rows of a result]: the examples that have not failed, also on the device; None where all rows are."""
    rows = p.examples.count if p.is_interpreted else p.ready.signature.batch  # type: ignore[attr-defined]
    if not p.program.masks:
        return None if rows == p.examples.count else np.arange(rows) < p.examples.count
    failed = p.failed_on_device(p.compute(p.shared, p.tables))[0] if p.program.compiled.sites else p.failed
    alive = ~failed
    return with_rows(alive if isinstance(alive, jax.core.Tracer) else np.asarray(alive), rows)


def gradient_by_xla(p: Prepared, wrt: Wrt, output: int, by_rows: bool) -> tuple[Any, Moving]:
    """What a program computes, and the derivative of the sum of one result over all examples that have not failed."""
    weight = weight_of(p)
    if p.is_interpreted:
        found, moving = executables.with_gradient(p.compute, p.shared, p.tables, weight, wrt, output)
        return found, rows_alone(p, moving, wrt) if by_rows else moving
    with p.program.in_memory(p.ready.signature):
        made: tuple[Any, Moving] = p.program.derivatives.with_gradient(
            p.shared, p.tables, weight, p.ready.signature, wrt, output, by_rows, p.concrete
        )
    return made


def rows_alone(p: Prepared, moving: Moving, wrt: Wrt) -> Moving:
    """Dense derivatives as compiled programs give them: all rows of the tables that are read by rows alone."""
    tables = p.program.compiled.code.tables_of_rows
    shared = [
        SparseRows(jnp.arange(x.shape[0]), x, x.shape) if k in tables else x
        for k, x in zip(wrt.shared, moving[0], strict=True)
    ]
    return shared, moving[1]


@dataclass(frozen=True)
class FoundDerivatives:
    """Derivatives by numbered shared value and by batched leaf; those of arrays have their examples on axis 0."""

    shared: Mapping[int, Any]
    slots: Mapping[int, Any]


# ---- groups by shape


@dataclass
class Groups:
    """A call whose examples are in groups by shape."""

    parts: list[Tree]
    together: JoinedResults
    whole: Collected

    def found(self, parts: Sequence[FoundDerivatives]) -> FoundDerivatives:
        """Derivatives of the whole from those of the groups."""
        shared = {k: sum(p.shared[k] for p in parts) for k in parts[0].shared}  # of tables: rows behind rows
        slots = {k: self.joined([p.slots[k] for p in parts]) for k in parts[0].slots}
        return FoundDerivatives(shared, slots)

    def joined(self, parts: list[Any]) -> Any:
        if all(isinstance(p, Batch) for p in parts):
            return GroupedBatch(parts, self.together.order)
        return jnp.concatenate(parts)[self.together.order]


Tree = LinearCall | Groups


@dataclass
class Collected(ByShape):
    """The programs of a call, not yet run."""

    def combine(self, parts: Sequence[Any], together: JoinedResults) -> Any:
        return Groups(list(parts), together, self)


def leaves(tree: Tree) -> list[LinearCall]:
    return [tree] if isinstance(tree, LinearCall) else [leaf for part in tree.parts for leaf in leaves(part)]


def found(tree: Tree, parts: Iterator[FoundDerivatives]) -> FoundDerivatives:
    return next(parts) if isinstance(tree, LinearCall) else tree.found([found(part, parts) for part in tree.parts])


def assemble(
    tree: Tree, computed: Iterator[Any], columns: Iterator[Mapping[str, Any]] | None = None, out_axes: Any = ...
) -> Any:
    """The result of a call, of what its programs compute. `columns` of floats replace those of the examples."""
    if isinstance(tree, LinearCall):
        if columns is None:
            return tree.prepared.assemble(next(computed), tree.stale, out_axes=out_axes)
        live = {**tree.prepared.examples.host_or_leaves(), **next(columns)}
        return tree.prepared.assemble(next(computed), tree.stale, lambda: live, out_axes)
    axes = tree.whole.out_axes if out_axes is ... else out_axes
    return tree.whole.results([assemble(p, computed, columns, out_axes) for p in tree.parts], tree.together, axes)


# ---- reverse mode


@dataclass
class Linear:
    """A call that has run, and can be pulled back."""

    function: str
    tree: Tree
    selection: Selection
    what: str
    by_rows: bool = False
    wrts: list[Wrt] = field(init=False)
    computed: list[Any] = field(init=False)
    pulls: list[Callable[[Any], Any]] = field(init=False)

    def __post_init__(self) -> None:
        parts = leaves(self.tree)
        self.wrts = [leaf.wrt(self.selection) for leaf in parts]
        ran = [leaf.linearise(wrt, self.by_rows) for leaf, wrt in zip(parts, self.wrts, strict=True)]
        self.computed, self.pulls = [x for x, _ in ran], [pull for _, pull in ran]

    @cached_property
    def result(self) -> Any:
        return assemble(self.tree, iter(self.computed))

    def pull(self, given: Any) -> tuple[Any, ...]:
        """Cotangents of the arguments, for a cotangent of the result or a list of one for each example."""
        if isinstance(given, list) and not isinstance(self.result, list):
            with printed():
                by_example = assemble(self.tree, iter(self.computed), out_axes=0)
            by_example = by_example[0] if leaves(self.tree)[0].prepared.program.masks else by_example
            return self.pull_floats(fit_examples(by_example, given, self.selection.bound.size, self.what), 0)
        return self.pull_floats(fit(self.result, given, self.what), ...)

    def pull_floats(self, cotangents: Sequence[Any], out_axes: Any) -> tuple[Any, ...]:
        """The same, for cotangents of the floats of the result."""
        parts = leaves(self.tree)
        held = any(isinstance(x, Batch) for x in jax.tree.leaves(self.result, is_leaf=lambda x: isinstance(x, Batch)))
        columns = [p.live_columns if held else {} for p in parts]

        def run(values: list[list[Any]], columns: list[Mapping[str, Any]]) -> list[Any]:
            computed = (with_floats(c, v) for c, v in zip(self.computed, values, strict=True))
            return floats(assemble(self.tree, computed, iter(columns) if held else None, out_axes))

        with printed():
            _, back = jax.vjp(run, [floats(c) for c in self.computed], columns)
        of_computed, of_columns = back(list(cotangents))
        made = (
            leaf.derivatives(pull(cts)[0], wrt, own, self.selection)
            for leaf, pull, cts, wrt, own in zip(parts, self.pulls, of_computed, self.wrts, of_columns, strict=True)
        )
        whole = found(self.tree, made)
        return tuple(self.selection.entries(whole.shared, whole.slots))


def with_gradient(
    function: str, tree: Tree, selection: Selection, has_aux: bool, what: str, by_rows: bool, alone: bool
) -> tuple[Any, list[Any]]:
    """The result of a call, and the derivative of the sum over its examples of the scalar that each returns. `by_rows`:
    `SparseRows` of tables of which rows alone are read. `alone`: nobody asks for the result."""
    outputs = [scalar(returned(leaf.given.program.result), function, has_aux, what) for leaf in leaves(tree)]
    if isinstance(tree, LinearCall) and outputs[0] is not None:
        if not by_rows and (made := tree.natively(selection, outputs[0], alone)) is not None:
            return made
        output = scalar(returned(tree.prepared.program.result), function, has_aux, what)
        if output is not None:  # of a program over traces it may be one number
            wrt = tree.wrt(selection)
            computed, moving = gradient_by_xla(tree.prepared, wrt, output, by_rows)
            whole = tree.derivatives(moving, wrt, {}, selection)
            entries = selection.entries(whole.shared, whole.slots)
            placed = in_same_places(entries, _named(dict(zip(wrt.shared, moving[0], strict=True)), moving[1]), ARRAYS)

            def again(p: Prepared) -> Gradient:
                computed, moving = gradient_by_xla(p, wrt, output, by_rows)
                assert placed is not None
                return p.assemble(computed), placed(_named(dict(zip(wrt.shared, moving[0], strict=True)), moving[1]))

            tree.again = None if placed is None or tree.stale is not None else (tree.prepared, again)
            return assemble(tree, iter([computed])), entries
    linear = Linear(function, tree, selection, what, by_rows)
    result = linear.result[0] if leaves(tree)[0].prepared.program.masks else linear.result
    values = result[0] if has_aux else result
    zeros = [jnp.zeros_like(x) for x in floats(linear.result)]
    return linear.result, list(linear.pull_floats([jnp.ones_like(values), *zeros[1:]], ...))


def _named(shared: Mapping[int, Any], batched: Mapping[Any, Any]) -> dict[Any, Any]:
    """Derivatives by the names of what they are by."""
    return {**{("shared", k): x for k, x in shared.items()}, **{("batched", k): x for k, x in batched.items()}}


def scalar(template: Template, function: str, has_aux: bool, what: str) -> int | None:
    """Which result of a program is the number that is differentiated; None for one that is always the same."""
    if has_aux:
        if not isinstance(template, Container) or template.kind != "tuple" or len(template.children) != 2:
            raise BatchError(f"{what}: with has_aux=True, {function} returns a pair (number, anything) for one example")
        template = template.children[0]
    match template:
        case Output(index=index, type=Array(dtype="float32" | "float64", shape=())):
            return index
        case Fixed(value=float()):
            return None
        case Output(type=type):
            words = str(type).replace("*", "").replace("x", ",")
        case Container(kind=kind):
            words = f"a {kind}"
        case Fixed(value=value):
            words = repr(value)
        case OptionalTemplate():
            words = "None on some path"
        case ChoiceTemplate():
            words = "values of several types"
        case ListTemplate() | Pointer():
            words = "a list" if isinstance(template, ListTemplate) else "an object"
    raise BatchError(
        f"{what}: {function} returns {words} for one example, and the derivative is that of a number, a float32[]; "
        f"return one, or take ab.vjp({function}, ...), which has a cotangent for every float of the result"
    )


# ---- forward mode


@dataclass(frozen=True)
class Tangents:
    """Tangents by numbered shared value and by batched leaf; what is missing is zero."""

    shared: Mapping[int, Any]
    slots: Mapping[int, Any]
    what: str

    def of(self, leaf: LinearCall) -> tuple[Wrt, Moving]:
        """The inputs of a program that move, and their tangents."""
        p = leaf.prepared
        shared = leaf.numbers.tangents(self.shared, p.shared)
        columns = leaf.column_tangents(self.slots, self.what)
        tables = {leaf.of_column[name]: x for name, x in columns.items() if name in leaf.of_column}
        for slot in leaf.bound.slots:
            if slot.kind == "array" and slot.index in self.slots:
                name = p.program.array_table(slot.index)
                if name in p.tables:
                    tables[name] = jnp.moveaxis(self.slots[slot.index], slot.axis, 0)
        wrt = Wrt(tuple(shared), tuple(tables))
        primals = wrt.of(p.shared, p.tables)
        columns = {n: with_rows(x, primals[1][n].shape[0]) for n, x in tables.items()}
        return wrt, jax.tree.map(lambda x, t: jnp.asarray(t).astype(x.dtype), primals, (list(shared.values()), columns))


def tangents_of(tree: Tree, selection: Selection, given: Sequence[Any], what: str) -> Tangents:
    """Tangents of arguments as users give them."""
    structure = SharedStructure("", lambda k, value: Numbered(k, value) if has_derivative(value) else None)
    made = {id(raw): structure.raw(raw) for raw in selection.bound.shared}
    shared: dict[int, Any] = {}
    slots: dict[int, Any] = {}
    for form, tangent in zip(selection.forms, given, strict=True):
        numbered = fill(form, lambda slot: Numbered(slot, slot.values), lambda raw: made[id(raw)])
        for place, x in paired(numbered, tangent, what):
            if isinstance(place, int):
                shared[place] = x
            else:
                slots[place.index] = x
    if slots and isinstance(tree, Groups):
        raise UnsupportedError(
            f"{what}: a tangent was given for a batched argument whose examples differ in shape; those of shared "
            "arguments are supported",
            cure="call it for the examples of each shape",
        )
    return Tangents(shared, slots, what)


def pushed(tree: Tree, tangents: Tangents) -> tuple[Any, Any]:
    """The result of a call and its tangent."""
    parts = leaves(tree)
    given = [tangents.of(leaf) for leaf in parts]
    ran = [leaf.pushed(dots, wrt) for leaf, (wrt, dots) in zip(parts, given, strict=True)]
    computed = [x for x, _ in ran]
    columns: list[Any] = [{} for _ in parts]
    moved: list[Any] = [{} for _ in parts]
    if any(s.kind != "array" and s.index in tangents.slots for s in parts[0].bound.slots):
        columns = [leaf.live_columns for leaf in parts]
        for k, leaf in enumerate(parts):
            found = leaf.column_tangents(tangents.slots, tangents.what)
            rows = {n: x.shape[0] for n, x in columns[k].items()}
            moved[k] = {
                n: with_rows(found[n], rows[n]) if n in found else jnp.zeros_like(x) for n, x in columns[k].items()
            }

    def run(values: list[list[Any]], columns: list[Mapping[str, Any]]) -> tuple[list[Any], Any]:
        replaced = (with_floats(c, v) for c, v in zip(computed, values, strict=True))
        result = assemble(tree, replaced, iter(columns) if any(columns) else None)
        return floats(result), result

    primals = [floats(c) for c in computed], columns
    _, dots, result = jax.jvp(run, primals, ([d for _, d in ran], moved), has_aux=True)
    return result, derivative_of(result, iter(dots))


def curvature(function: str, tree: Tree, selection: Selection, tangents: Tangents, what: str) -> list[Any]:
    """How the gradient of the sum over all examples changes along tangents."""
    parts = []
    for leaf in leaves(tree):
        output = scalar(returned(leaf.given.program.result), function, False, what)
        wrt, (moved, dots) = leaf.wrt(selection), tangents.of(leaf)
        if output is None:
            zeros = jax.tree.map(jnp.zeros_like, wrt.of(leaf.prepared.shared, leaf.prepared.tables))
            parts.append(leaf.derivatives(zeros, wrt, {}, selection))
            continue
        leaf.refuse_failed()
        _, changed = leaf.curvature(dots, wrt, moved, output)
        parts.append(leaf.derivatives(changed, wrt, {}, selection))
    whole = found(tree, iter(parts))
    return selection.entries(whole.shared, whole.slots)
