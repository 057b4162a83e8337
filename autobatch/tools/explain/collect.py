"""The facts of one call, put together from its program, its plan and its tables."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from autobatch.backends.xla.native.eligible import all_by_kernel
from autobatch.call.specialise import SpecialisedProgram
from autobatch.data.tables import Signature, TableRequest
from autobatch.errors import Failure, SourceError
from autobatch.ir import jax_compat
from autobatch.ir.core import walk
from autobatch.ir.system import Space, space_of
from autobatch.ir.types import Array
from autobatch.planning.plan import DataPlan
from autobatch.source import NOWHERE, Span
from autobatch.tools.explain.facts import (
    BackendFacts,
    Bytes,
    CallFactsShown,
    FailedExample,
    LinePlace,
    RecurrenceFacts,
    Refusal,
    RowFacts,
    SourceLine,
    SourceText,
)
from autobatch.tools.explain.levels import BoundTables, products, recurrences
from autobatch.tools.explain.places import Lines, Placed, placed
from autobatch.tools.explain.strategies import ahead, masked, strategies
from autobatch.tools.explain.written import Where, WrittenLines, around, outermost, written

INTEGERS = "integers"
"""The table that holds all integers of a call."""


def of_call(
    name: str,
    backend: BackendFacts,
    program: SpecialisedProgram,
    plan: DataPlan,
    tables: Mapping[str, Any],
    signature: Signature,
) -> CallFactsShown:
    """The facts of a call that is ready to run."""
    compiled = program.compiled
    schedule, spec, lowered = compiled.schedule, compiled.spec, compiled.lowered
    bound = BoundTables(plan.request, signature, tables[INTEGERS])
    counts = bound.counts()
    found = placed(schedule, spec, counts)
    lines = Lines(found, spec, lowered.module)
    options = compiled.options
    native = options.backend != "interpret" and all_by_kernel(schedule, options.loops, options.products, options.widths)
    loops = recurrences(schedule, bound, native)
    used = {space.index for p in found if (space := space_of(p.equation)) is not None}
    texts = outermost([*map(written, lowered.sources), *(around(span) for span, _ in lowered.traced)])

    def rows_of(p: Placed) -> int:
        space = space_of(p.equation)
        assert space is not None
        return plan.request.widths[0] if p.place.recurrence is not None and p.task else signature.capacity[space.index]

    by = options.loops if backend.taken == "xla" else "xla"
    packs = masked(found, rows_of, by) if backend.taken == "xla" else ()
    return CallFactsShown(
        function=name,
        examples=plan.count,
        backend=backend,
        refusal=None,
        texts=tuple(_text(w, lines, lowered.reached, lowered.traced) for w in texts),
        failed=tuple(_failed(f) for f in plan.failures),
        strategies=(*strategies(compiled, [p.equation for p in found], by), *packs, *ahead(compiled.in_front)),
        rows=_rows(program, plan, counts, signature, used),
        recurrences=loops,
        products=products(found, "xla" if native else options.products, plan.request.widths),
        widths=plan.request.widths,
        bytes=_bytes(program, plan.request, tables, loops),
    )


def of_machine_code(name: str, examples: int, backend: BackendFacts, program: SpecialisedProgram) -> CallFactsShown:
    """The facts of machine code for which there is no program of XLA: the text alone, since nothing has rows."""
    lowered = program.compiled.lowered
    texts = outermost([*map(written, lowered.sources), *(around(span) for span, _ in lowered.traced)])
    return CallFactsShown(name, examples, backend, None, tuple(SourceText(t.name, t.file, _unmarked(t)) for t in texts))


def _unmarked(text: WrittenLines) -> tuple[SourceLine, ...]:
    return tuple(SourceLine(number, line) for number, line in text.lines())


def of_refusal(
    name: str, function: Callable[..., Any], examples: int, backend: BackendFacts, error: SourceError
) -> CallFactsShown:
    """The facts of a function that is not compiled: its text, with the line that is refused."""
    places = [(error.message, error.span), *error.also]
    known = [(note, span) for note, span in places if span != NOWHERE]
    notes: dict[Where, tuple[list[str], Span]] = {}
    for note, span in known:
        notes.setdefault((span.file, span.line), ([], span))[0].append(note)
    if error.cure and known:
        notes[error.span.file, error.span.line][0].append(error.cure)
    texts = outermost([written(function), *(around(span) for _, span in known)])
    span = error.span
    refusal = Refusal(type(error).__name__, error.message, error.cure, span.file, span.line, span.column)
    return CallFactsShown(name, examples, backend, refusal, tuple(_refused(w, notes) for w in texts))


def _refused(text: WrittenLines, notes: Mapping[Where, tuple[list[str], Span]]) -> SourceText:
    made = []
    for number, line in text.lines():
        words, span = notes.get((text.file, number), ((), None))
        if span is None:
            made.append(SourceLine(number, line))
            continue
        place = LinePlace("refused")
        last = span.end_column if span.end_line == number else text.indent + len(line) + 1
        first = max(1, span.column - text.indent)
        columns = (first, max(first + 1, last - text.indent))
        made.append(SourceLine(number, line, place, (place,), tuple(words), columns))
    return SourceText(text.name, text.file, tuple(made))


def _text(
    text: WrittenLines, lines: Lines, reached: frozenset[Where], traced: Sequence[tuple[Span, Span]]
) -> SourceText:
    """The margin: the places of each line; of a statement, on its first line, those of its other lines too."""
    found = {number: lines.at((text.file, number)) for number, _ in text.lines()}
    for first, last in text.statements:
        here = (text.file, first)
        if not found.get(first):
            found[first] = next((found[n] for n in range(first + 1, last + 1) if found.get(n)), ())
        if not found[first] and here not in reached:
            handed = [at for span, at in traced if span.file == text.file and span.line <= first <= span.end_line]
            found[first] = next((at for s in handed if (at := lines.at((s.file, s.line)))), ())
        if not found[first]:
            found[first] = (LinePlace("nothing" if here in reached else "not reached"),)
    made = [SourceLine(n, line, found[n][0] if found[n] else None, found[n]) for n, line in text.lines()]
    return SourceText(text.name, text.file, tuple(made))


def _failed(failure: Failure) -> FailedExample:
    return FailedExample(failure.index, failure.kind, failure.message, failure.span.file, failure.span.line)


def _rows(
    program: SpecialisedProgram, plan: DataPlan, counts: Mapping[int, int], signature: Signature, used: set[int]
) -> tuple[RowFacts, ...]:
    """The kinds of rows that some equation runs over."""
    made = []
    for space in program.compiled.schedule.system.spaces:
        if space.index in used:
            base = space.base if space.kind == "distinct" else space.index
            found = plan.rows(base) if base in plan.starts else counts[space.index]
            room = signature.capacity[space.index]
            name = space.name if space.kind != "distinct" else _distinct(space, program)
            made.append(RowFacts(name, space.kind, found, counts[space.index], room))
    return tuple(made)


def _distinct(space: Space, program: SpecialisedProgram) -> str:
    """The name of rows that are distinct in some columns: by what is written there."""
    compiled = program.compiled
    base = next(s for s in compiled.schedule.system.spaces if s.index == space.base)
    places = {
        str(r.id): instruction.span
        for function in compiled.spec.module.functions
        for instruction in walk(function.region)
        for r in instruction.results
    }
    keys = [key.rpartition(":")[2] for key in space.keys]
    return f"{base.name} by {', '.join(_excerpt(places[k]) if k in places else k for k in keys)}"


def _excerpt(span: Span) -> str:
    """What is written at a place of one line."""
    text = linecache.getline(span.file, span.line).rstrip()
    last = span.end_column if span.end_line == span.line else len(text) + 1
    return text[span.column - 1 : last - 1] or f"line {span.line}"


def _bytes(
    program: SpecialisedProgram, request: TableRequest, tables: Mapping[str, Any], loops: Sequence[RecurrenceFacts]
) -> Bytes:
    columns = {name for name, _ in request.data}
    held = {name: _item_size(t.dtype) * int(np.prod(t.shape)) for name, t in tables.items()}
    shared = sum(_size(v.type) for v in program.compiled.lowered.module.shared if isinstance(v.type, Array))
    return Bytes(
        tables=held[INTEGERS],
        columns=sum(n for name, n in held.items() if name in columns),
        shared=shared,
        results=sum(n for name, n in held.items() if name not in columns and name != INTEGERS),
        buffers=sum(r.buffer_bytes for r in loops),
    )


def _item_size(dtype: Any) -> int:
    """The bytes of a number on the device: the host holds floats of Python in 64 bits."""
    return int(jax.dtypes.canonicalize_dtype(dtype).itemsize)


def _size(type: Array) -> int:
    return int(jax_compat.device_dtype(type).itemsize) * int(np.prod(type.shape))
