"""Calls of `print` under data-dependent control flow: notes of what is printed once it is known.

    print("turn", n, x)         <calls>.append(3); <ints>.append(n); <floats>.append(x)      ("turn" stands in line 3)

The notes are lists in memory (`list_heap.py`), one for each type of what is shown, in row 0 of a memory of their own;
the entry returns them beside its result. They are read in the order in which they were written (`ir/strings.py`).
"""

from __future__ import annotations

import ast
import enum
import sys
from collections.abc import Callable, Hashable, Sequence
from functools import partial

from autobatch.errors import UnsupportedError
from autobatch.frontend.library import tables
from autobatch.frontend.lowering.construct import named_arguments
from autobatch.frontend.lowering.numbers import operand_of
from autobatch.frontend.lowering.results import EntryOutputs
from autobatch.frontend.lowering.sequences import sequence
from autobatch.frontend.lowering.state import LoweringMemory, LoweringState, MemoryChanged, expand, take_apart
from autobatch.frontend.memory import container_heap, list_heap
from autobatch.frontend.memory.heap import Heap, add_heap
from autobatch.frontend.syntax.flattening import placed
from autobatch.frontend.syntax.invalidation import is_view, makes_iterator
from autobatch.frontend.types import values as v
from autobatch.frontend.types.statics import inputs
from autobatch.ir.core import BOOL, INT, Array, Container, Fixed, Literal, Tag, Template
from autobatch.ir.strings import (
    Part,
    Printed,
    PrintedContainer,
    PrintedLine,
    PrintedList,
    PrintedNumber,
    PrintedOptional,
    PrintedPieces,
    PrintedText,
    Spec,
    notes_class,
)

CURE = "use f.example(...) to run one example as plain Python"
AS_A_LIST = "print() is given a range, an iterator, or a view of a dict", "print a list of it: list(...)"
CALLS = "calls"
NEVER = Fixed(None)
"""Notes of a type that no path comes to."""
_CONTAINERS = ("tuple", "list", "dict", "namedtuple", "object")


Noting = Callable[[], Part]
"""Notes of what is evaluated, that are made when all of a call is: an argument may fail, or print by itself."""


class LoweredPrinting:
    """The lines that a function may print, and the memory of its notes, by what is in it: the type of the numbers.
    `error`: what to say where structure alone decides, and it is traced."""

    def __init__(self) -> None:
        self.error: UnsupportedError | None = None
        self.lines: dict[PrintedLine, int] = {}
        self.heaps: dict[Hashable, Heap] = {}


def call(s: LoweringState, node: ast.Call) -> v.Abstract:
    """`print(...)`"""
    _begin(s)
    evaluated = [note for n in node.args for note in _arguments(s, n)]
    return _line(s, evaluated, named_arguments(s, node.keywords))


def called(s: LoweringState, args: Sequence[v.Abstract], kwargs: dict[str, v.Abstract]) -> v.Abstract:
    """A call of `print` by another name, or by a function that is given it."""
    _begin(s)
    return _line(s, [partial(_part, s, x) for x in args], kwargs)


def _begin(s: LoweringState) -> None:
    words = "print() is compiled under data-dependent control flow"
    _of(s).error = _of(s).error or UnsupportedError(words, s.span, CURE)
    _notes(s, CALLS)  # which are the first


def _line(s: LoweringState, evaluated: Sequence[Noting], named: dict[str, v.Abstract]) -> v.Abstract:
    separator, end = (_text(s, named.get(k), k, default) for k, default in (("sep", " "), ("end", "\n")))
    stream = _stream(s, named.get("file"))
    line = PrintedLine(tuple(note() for note in evaluated), separator, end, stream)
    number = _of(s).lines.setdefault(line, len(_of(s).lines))
    _note(s, CALLS, v.Static(number))
    return v.Static(None)


def _of(s: LoweringState) -> LoweredPrinting:
    held = s.context.memory.printing
    if held is None:
        held = s.context.memory.printing = LoweredPrinting()
    assert isinstance(held, LoweredPrinting)
    return held


def error_of(memory: LoweringMemory) -> UnsupportedError | None:
    """What to say of a function that prints, where it may be traced."""
    return memory.printing.error if isinstance(memory.printing, LoweredPrinting) else None


def returned(s: LoweringState, outputs: EntryOutputs, result: Template) -> Template:
    """The result of the entry, with what it has noted beside it, where it prints."""
    held = s.context.memory.printing
    if held is None:
        return result
    assert isinstance(held, LoweredPrinting)
    rows = [v.MemoryRow(Literal(0, INT), heap.whole) if heap.layout else None for heap in held.heaps.values()]
    found = tuple(NEVER if row is None else outputs.template(row) for row in rows)
    notes = Container("object", found, tuple(f"list{k}" for k in range(len(rows))), notes_class(tuple(held.lines)))
    return Container("object", (result, notes), ("result", "lines"), Printed)


def _notes(s: LoweringState, key: Hashable) -> Heap:
    """The notes of a type. Where they are new, all is lowered again."""
    heaps = _of(s).heaps
    if key not in heaps:
        heaps[key] = add_heap(s.context.memory.heaps, ("notes", key), list)
        raise MemoryChanged
    return heaps[key]


def _note(s: LoweringState, key: Hashable, value: v.Abstract) -> int:
    """Put a value into the notes of its type; which list of notes that is."""
    heap = _notes(s, key)
    list_heap.append(s, v.MemoryRow(Literal(0, INT), heap.whole), value)
    return list(_of(s).heaps).index(key)


def _text(s: LoweringState, value: v.Abstract | None, name: str, default: str) -> str:
    if value is None:
        return default
    if isinstance(value, v.Static) and (value.value is None or isinstance(value.value, str)):
        return default if value.value is None else value.value
    s.refuse(f"the argument {name} of print() is computed", "write it as a constant")


def _stream(s: LoweringState, value: v.Abstract | None) -> str:
    if value is None:
        return "stdout"
    streams = {None: "stdout", sys.stdout: "stdout", sys.stderr: "stderr"}
    if not isinstance(value, v.Static) or value.value not in streams:
        s.refuse("print() writes to a file", "print to sys.stdout or sys.stderr, or return what is to be written")
    return streams[value.value]


def _arguments(s: LoweringState, node: ast.expr) -> Sequence[Noting]:
    """An argument; of `*xs` all."""
    if not isinstance(node, ast.Starred):
        return [_argument(s, node)]
    known = s.context.memory.rewritten
    spread = s.evaluate(known.setdefault(node, placed(ast.Tuple([node], ast.Load()), node)))
    if not isinstance(spread, v.Record):
        s.refuse("print() is given as many arguments as a list has", "print the list itself")
    return [partial(_part, s, x) for x in spread.items]


def _argument(s: LoweringState, node: ast.expr) -> Noting:
    match node:
        case ast.JoinedStr(values=values):
            pieces = [_piece(s, x) for x in values]
            return lambda: PrintedPieces(tuple(note() for note in pieces))
        case ast.BinOp(left=left, op=ast.Add(), right=right) if _has_format(node):
            sides = [_argument(s, left), _argument(s, right)]
            return lambda: PrintedPieces(tuple(Spec(note()) for note in sides))
        case _:
            if is_view(node) or makes_iterator(s, node):
                s.refuse(*AS_A_LIST)
            return partial(_part, s, s.evaluate(node))


def _has_format(node: ast.expr) -> bool:
    """Is it an f-string, or one put together with other strings?"""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _has_format(node.left) or _has_format(node.right)
    return isinstance(node, ast.JoinedStr)


def _piece(s: LoweringState, node: ast.expr) -> Callable[[], PrintedText | Spec]:
    """A piece of an f-string, which is put together before what stands behind it is evaluated."""
    if isinstance(node, ast.Constant):
        return partial(PrintedText, str(node.value))
    assert isinstance(node, ast.FormattedValue)
    value = _now(s, s.evaluate(node.value))
    spec = s.evaluate(node.format_spec) if node.format_spec is not None else v.Static("")
    if not isinstance(spec, v.Static):
        s.refuse("the format of a value must be a constant", "write it in the string")
    conversion = chr(node.conversion) if node.conversion > 0 else ""
    return lambda: Spec(_part(s, value), conversion, spec.value)


def _now(s: LoweringState, value: v.Abstract) -> v.Abstract:
    """What a list or object holds now."""
    return list_heap.copied(s, expand(s, value))


def _part(s: LoweringState, value: v.Abstract) -> Part:
    """What is shown of a value, whose numbers are noted."""
    value = _now(s, value)
    match value:
        case v.Static(value=held) if inputs(held):
            return _part(s, take_apart(s.context, held))
        case v.Static(value=held):
            return PrintedText(held if _is_plain(held) else str(held))
        case v.Leaf() if isinstance(value.type, Array | Tag):
            return PrintedNumber(_note(s, _key(value.type), value))
        case v.Optional(value=inner, missing=missing):
            return PrintedOptional(_note(s, _key(BOOL), v.Leaf(missing)), _part(s, inner))
        case v.Record(kind="table", cls=cls) if tables.is_dict(value) and cls in (None, dict):
            pairs = s.context.rules.materialise(s, tables.pairs_of(s, value))
            return PrintedContainer("pairs", (), (_part(s, pairs),))
        case v.Record(kind=kind, keys=keys, items=items, cls=cls) if kind in _CONTAINERS:
            return PrintedContainer(kind, keys, tuple(_part(s, x) for x in items), cls)
        case v.Listing(is_tuple=is_tuple):
            return _many(s, value, is_tuple)
        case v.Lazy(is_list=is_list, is_tuple=is_tuple):
            if not (is_list or is_tuple):
                s.refuse(*AS_A_LIST)
            return _part(s, s.context.rules.materialise(s, value))
        case v.Generator():
            s.refuse(*AS_A_LIST)
    s.refuse("print() is given what no note can hold", "print numbers, strings, and lists, tuples and dicts of these")


def _many(s: LoweringState, value: v.Listing, is_tuple: bool) -> Part:
    found = sequence(s, value)
    assert isinstance(found, v.Lazy)
    length = _note(s, _key(INT), v.Leaf(operand_of(s, found.length)))
    shown: list[Part] = []
    container_heap.each(s, found, lambda t, _, x: shown.append(_part(t, x)))
    return PrintedList(length, shown[-1], is_tuple)


def _is_plain(held: object) -> bool:
    if isinstance(held, tuple):
        return type(held) is tuple and all(map(_is_plain, held))
    return held is None or (isinstance(held, str | bool | int | float) and not isinstance(held, enum.Enum))


def _key(type: Array | Tag) -> Hashable:
    """What tells the list of notes for values of a type from others."""
    return ("word", type.vocabulary) if isinstance(type, Tag) else (type.dtype, type.shape)
