"""What runs return: as graphs, by what all of them have in common, and as blueprints where they have nothing.

(h, {"cat": 1})  and  (g, {"dog": 2, "ant": 3})   ->   Parts(tuple, number, FREE)
                                                       (h, Free('... "cat" ...', [[]])),  (g, Free(...))

Numbers, strings and None at a place, tuples of one length, dicts with the same keys and lists of one kind are results
as those of any batched function: arrays, containers, `Ragged`. All else is free: `ObjectNodes` (`results.py`).
"""

from __future__ import annotations

import ast
import builtins
import copyreg
import dis
import enum
import itertools
import linecache
import re
import sys
import threading
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from types import CodeType, FrameType
from typing import Any, Final, Literal

import jax
import numpy as np

from autobatch.call import packed
from autobatch.call.results import Blueprint, NamedConstants, TextPieces, Value
from autobatch.call.tracing.filled import Filled, rebuilt, whole
from autobatch.call.tracing.log import ItemsMarker, LeafMarker, TracedRun
from autobatch.errors import NOWHERE, UnsupportedError

# ---- graphs
#
# What a run returns, as a graph: its numbers are leaves, what can change keeps its identity, and an instance of any
# class is what `copy.copy` takes it apart into.
#
# [Cell(h, None)]   ->   Listed([Object(Cell, state=Table({"value": Leaf(0), "next": None}))])


@dataclass(eq=False)
class ListNode:
    """A list. What can change keeps its identity in a graph."""

    parts: list[Node]


@dataclass(eq=False)
class DictNode:
    """A dict: its keys, as they are and as nodes, and its values."""

    keys: list[Any]
    names: list[Node]
    parts: list[Node]


@dataclass(eq=False)
class Tuple:
    """A tuple or NamedTuple like `of`."""

    of: tuple[Any, ...]
    parts: list[Node]


@dataclass(eq=False)
class ObjectNode:
    """An instance of any class, as `copy.copy` takes it apart."""

    make: Any
    args: list[Node]
    state: Node = None
    items: Sequence[Node] = ()
    pairs: Sequence[tuple[Node, Node]] = ()


@dataclass(frozen=True)
class ConstantNode:
    """A class, a function or a member of an enum."""

    value: Any


Node = LeafMarker | ListNode | DictNode | Tuple | ObjectNode | ConstantNode | str | bytes | None

CONSTANTS = (
    type,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.ModuleType,
    enum.Enum,
    types.MethodDescriptorType,
)


class ResultGraph:
    """The graph of a result. `leaves` receives its numbers, of which symbols are instances of `symbol`."""

    def __init__(self, leaves: list[Any], symbol: type) -> None:
        self.leaves = leaves
        self.numbers = (symbol, bool, int, float, complex, np.ndarray, np.generic, jax.Array)
        self._made: dict[int, Node] = {}
        self._alive: list[Any] = []
        self._waiting: deque[Callable[[], None]] = deque()

    def whole(self, value: Any) -> Node:
        """The graph of a value. Objects that are linked in long chains need no deep recursion."""
        made = self.of(value)
        while self._waiting:
            self._waiting.popleft()()
        return made

    def of(self, value: Any) -> Node:
        """The node of a value, whose parts may still be missing."""
        if value is None or type(value) in (str, bytes):
            return value  # type: ignore[no-any-return]
        if isinstance(value, CONSTANTS):
            if isinstance(value, types.FunctionType) and value.__closure__:
                raise _refused(value)
            return ConstantNode(value)
        value = whole(value) if type(value) is Filled else value
        if type(value) in self.numbers or (isinstance(value, self.numbers) and not isinstance(value, PYTHON)):
            self.leaves.append(value)
            return LeafMarker(len(self.leaves) - 1)
        if id(value) not in self._made:
            self._alive.append(value)
            self._container(value)
        return self._made[id(value)]

    def all(self, values: Iterable[Any]) -> list[Node]:
        return [self.of(x) for x in values]

    def _container(self, value: Any) -> None:
        later = self._waiting.append
        if isinstance(value, tuple) and (type(value) is tuple or hasattr(value, "_fields")):
            self._made[id(value)] = Tuple(value, self.all(value))
        elif type(value) is list:
            listed = self._made[id(value)] = ListNode([])
            later(lambda: listed.parts.extend(self.all(value)))
        elif type(value) is dict:
            table = self._made[id(value)] = DictNode(list(value), [], [])
            later(lambda: table.names.extend(self.all(value)))
            later(lambda: table.parts.extend(self.all(value.values())))
        else:
            self._object(value)

    def _object(self, value: Any) -> None:
        reduce = copyreg.dispatch_table.get(type(value))
        try:
            found = reduce(value) if reduce is not None else value.__reduce_ex__(4)
        except TypeError:
            raise _refused(value) from None
        if isinstance(found, str):
            self._made[id(value)] = ConstantNode(value)
            return
        make, args, state, items, pairs = (*found, None, None, None)[:5]
        made = self._made[id(value)] = ObjectNode(make, self.all(args))

        def fill() -> None:
            made.state, made.items = self.of(state), self.all(items or ())
            made.pairs = [(self.of(k), self.of(x)) for k, x in pairs or ()]

        self._waiting.append(fill)


PYTHON = (bool, int, float, complex)
"""What has subclasses that are objects."""


def _refused(value: Any) -> UnsupportedError:
    return UnsupportedError(
        f"a result of type {type(value).__name__} of a function whose structure is traced", NOWHERE,
        "return numbers, arrays, strings, containers, and objects that `copy.copy` can copy",
    )  # fmt: skip


# ---- what results have in common


@dataclass(frozen=True)
class NumberResult:
    shape: tuple[int, ...]
    is_bool: bool


@dataclass(frozen=True)
class StringResult:
    """A string."""


@dataclass(frozen=True)
class Nothing:
    """None."""


@dataclass(frozen=True)
class OptionalResult:
    """None, or a number or string."""

    of: NumberResult | StringResult


@dataclass(frozen=True)
class Member:
    """A member of an enum."""

    cls: type


@dataclass(frozen=True)
class ContainerResult:
    """A tuple, NamedTuple or dict; `keys` of a dict."""

    kind: type
    keys: tuple[Any, ...]
    parts: tuple[Shape, ...]


@dataclass(frozen=True)
class ListResult:
    """A list; `of` is None where all of them are empty."""

    of: Shape | None


FREE: Final = "free"
CHECK: Final = "check"
Shape = NumberResult | StringResult | Nothing | OptionalResult | Member | ContainerResult | ListResult | Literal["free"]


def joined(a: Shape, b: Shape) -> Shape:
    """What two shapes have in common."""
    if a == b:
        return a
    match a, b:
        case NumberResult(), NumberResult():
            return _of_numbers(a, b)
        case (Nothing(), (NumberResult() | StringResult()) as x) | ((NumberResult() | StringResult()) as x, Nothing()):
            return OptionalResult(x)
        case (OptionalResult(x), Nothing()) | (Nothing(), OptionalResult(x)):
            return OptionalResult(x)
        case (
            (OptionalResult(x), (NumberResult() | StringResult()) as y)
            | ((NumberResult() | StringResult()) as x, OptionalResult(y))
            | (OptionalResult(x), OptionalResult(y))
        ):
            both = joined(x, y)
            return OptionalResult(both) if isinstance(both, (NumberResult, StringResult)) else FREE
        case ContainerResult(), ContainerResult() if (a.kind, a.keys, len(a.parts)) == (b.kind, b.keys, len(b.parts)):
            return ContainerResult(a.kind, a.keys, tuple(map(joined, a.parts, b.parts)))
        case ListResult(x), ListResult(y):
            return _list_of(x if y is None else y if x is None else joined(x, y))
        case _:
            return FREE


def _of_numbers(a: NumberResult, b: NumberResult) -> Shape:
    """A number beside an array is an array full of it."""
    if a.is_bool != b.is_bool or (a.shape != b.shape and a.shape and b.shape):
        return FREE
    return NumberResult(a.shape or b.shape, a.is_bool)


def _list_of(element: Shape | None) -> Shape:
    return FREE if element == FREE else ListResult(element)


class Looking:
    """Shapes of the nodes of one run."""

    def __init__(self, run: TracedRun) -> None:
        self.run = run
        self._active: set[int] = set()
        self._cyclic: set[int] = set()
        self._objects: dict[int, frozenset[int]] = {}

    def shape(self, node: Node) -> Shape:
        match node:
            case LeafMarker(number=k):
                shape, dtype = self.run.leaves[k][1]
                return FREE if _is_large(known(self.run, k)) else NumberResult(tuple(shape), dtype == np.bool_)
            case str():
                return StringResult()
            case None:
                return Nothing()
            case ConstantNode(value=enum.Enum() as member):
                return Member(type(member))
            case Tuple() | DictNode() | ListNode() if id(node) in self._active:
                self._cyclic.add(id(node))
                return FREE
            case Tuple() | DictNode() | ListNode():
                self._active.add(id(node))
                made = self._container(node)
                self._active.discard(id(node))
                return FREE if id(node) in self._cyclic else made  # what holds itself is one object
            case _:
                return FREE

    def _container(self, node: Tuple | DictNode | ListNode) -> Shape:
        parts = [self.shape(x) for x in node.parts]
        if isinstance(node, ListNode):
            found: Shape | None = None
            for x in parts:
                found = x if found is None else joined(found, x)
            return _list_of(found)
        free = [x for x, shape in zip(node.parts, parts, strict=True) if _holds_free(shape)]
        if len(free) > 1 and _share(free):
            return FREE
        if isinstance(node, Tuple):
            return ContainerResult(type(node.of), (), tuple(parts))
        kinds = {type(k) for k in node.keys}
        return ContainerResult(dict, tuple(node.keys), tuple(parts)) if kinds in ({str}, {int}, set()) else FREE


def known(run: TracedRun, leaf: int) -> Any:
    """The number that Python knows, of a result; None of others."""
    word, _ = run.leaves[leaf]
    return run.log.value(word) if isinstance(word, int) and run.log.is_known(word) else None


def _is_large(held: Any) -> bool:
    """Is it an integer that no array of JAX can hold?"""
    return isinstance(held, int) and held.bit_length() >= (64 if packed.x64() else 32)


def _holds_free(shape: Shape) -> bool:
    return shape == FREE or (isinstance(shape, ContainerResult) and any(map(_holds_free, shape.parts)))


def _share(nodes: Sequence[Node]) -> bool:
    """Is an object in two of them?"""
    seen: set[int] = set()
    for node in nodes:
        mine = {id(x) for x in _reached(node) if isinstance(x, ObjectNode)}
        if not seen.isdisjoint(mine):
            return True
        seen |= mine
    return False


def _reached(node: Node) -> Iterable[Node]:
    found: dict[int, Node] = {}
    waiting = [node]
    while waiting:
        x = waiting.pop()
        if isinstance(x, (Tuple, DictNode, ListNode, ObjectNode)) and id(x) not in found:
            found[id(x)] = x
            waiting += _parts(x)
    return found.values()


def _parts(node: Tuple | DictNode | ListNode | ObjectNode) -> list[Node]:
    if isinstance(node, DictNode):
        return [*node.names, *node.parts]
    if isinstance(node, ObjectNode):
        return [*node.args, node.state, *node.items, *(x for pair in node.pairs for x in pair)]
    return node.parts


# ---- blueprints


class Writing:
    """The blueprint of one node of a run. `groups`: the types of its numbers, which grow; `lists[g]`: the leaves of
    group g."""

    def __init__(self, run: TracedRun, constants: NamedConstants, groups: dict[Any, int]) -> None:
        self.run, self.groups = run, groups
        self.blueprint = Blueprint(constants)
        self.lists: list[list[LeafMarker]] = [[] for _ in groups]
        self._made: dict[int, Value] = {}
        self._waiting: deque[Callable[[], None]] = deque()

    def text(self, node: Node) -> str:
        value = self.value(node)
        self._finish()
        return self.blueprint.text(value)

    def _finish(self) -> None:
        while self._waiting:
            self._waiting.popleft()()

    def value(self, node: Node) -> Value:
        """A node as a value; what it can change to hold may still be missing."""
        match node:
            case LeafMarker():
                return self.number(node)
            case ConstantNode(value=held):
                return self.blueprint.constant(held)
            case Tuple() | DictNode() | ListNode() | ObjectNode():
                if id(node) not in self._made:
                    self._make(node)
                return self._made[id(node)]
            case _:
                return self.blueprint.scalar(node)

    def values(self, nodes: Sequence[Node]) -> list[Value]:
        return [self.value(x) for x in nodes]

    def number(self, leaf: LeafMarker) -> Value:
        held = known(self.run, leaf.number)
        if held is not None and np.ndim(held) == 0 and not _is_key(held):
            return self.blueprint.scalar(held.item() if hasattr(held, "item") else held)
        shape, dtype = self.run.leaves[leaf.number][1]
        group = self.groups.setdefault((tuple(shape), dtype), len(self.groups))
        while len(self.lists) < len(self.groups):
            self.lists.append([])
        self.lists[group].append(leaf)
        return self.blueprint.number(group, len(self.lists[group]) - 1)

    def _make(self, node: Tuple | DictNode | ListNode | ObjectNode) -> None:
        made, fill, later = self._made, self.blueprint.fill, self._waiting.append
        match node:
            case Tuple(of=of):
                values = self.values(node.parts)
                cls = None if type(of) is tuple else self.blueprint.constant(type(of))
                made[id(node)] = self.blueprint.make("tuple", cls, values)
            case ListNode():
                listed = made[id(node)] = self.blueprint.make("list")
                later(lambda: fill("extend", listed, self.values(node.parts)))
            case DictNode():
                table = made[id(node)] = self.blueprint.make("dict")
                later(lambda: fill("update", table, self._pairs(zip(node.names, node.parts, strict=True))))
            case ObjectNode():
                self._object(node)

    def _pairs(self, pairs: Iterable[tuple[Node, Node]]) -> list[tuple[Value, Value]]:
        return [(self.value(k), self.value(x)) for k, x in pairs]

    def _object(self, node: ObjectNode) -> None:
        fill, blueprint = self.blueprint.fill, self.blueprint
        others, self._waiting = self._waiting, deque()
        args = self.values(node.args)
        self._finish()  # what a constructor looks at is complete
        self._waiting = others
        made = self._made[id(node)] = blueprint.make("call", blueprint.constant(node.make), args)

        def filled() -> None:
            if node.items:
                fill("append", made, self.values(node.items))
            if node.pairs:
                fill("update", made, self._pairs(node.pairs))
            if node.state is not None:
                state = self.value(node.state)
                self._waiting.append(lambda: fill("state", made, state))

        self._waiting.append(filled)


def _is_key(x: Any) -> bool:
    return isinstance(x, jax.Array) and jax.numpy.issubdtype(x.dtype, jax.dtypes.prng_key)


# ---- results as the program over traces returns them


@dataclass(eq=False)
class FreePlace:
    """A place that is free: the text, a string or its leaf, and the numbers of each group."""

    text: Any
    lists: tuple[ItemsMarker, ...]


@dataclass(eq=False)
class Prints:
    """A result beside what a run has printed."""

    result: Any
    lines: FreePlace


@dataclass(eq=False)
class Checked:
    """A result beside the checks of its run."""

    result: Any
    checks: ItemsMarker


class TracedResults:
    """What is known of the results of a function: it only grows. `version` says when it has."""

    def __init__(self) -> None:
        self.shape: Shape | None = None
        self.prints = self.checks = False
        self.groups: dict[Any, int] = {}
        self.constants = NamedConstants()

    @property
    def version(self) -> Any:
        return self.shape, len(self.groups), self.prints, self.checks

    def add(self, runs: Sequence[TracedRun]) -> bool:
        """Meet the results of some runs; do earlier ones have another form now?"""
        before, first = self.version, self.shape is None
        for run in runs:
            shape = Looking(run).shape(run.result)
            self.shape = shape if self.shape is None else joined(self.shape, shape)
            self.prints |= bool(run.printed)
            self.checks |= bool(run.checks)
        for run in runs:
            self.formed(run)
        return not first and self.version != before

    def formed(self, run: TracedRun) -> TracedRun:
        """A run whose result has the form that all of them have."""
        assert self.shape is not None
        result = self._form(run, run.result, self.shape)
        if self.prints:
            result = Prints(result, self._form(run, ListNode(run.printed), FREE))
        if self.checks:
            result = Checked(result, ItemsMarker(tuple(map(LeafMarker, run.checks)), of=CHECK))
        return TracedRun(run.log, run.leaves, result, [])

    def _form(self, run: TracedRun, node: Any, shape: Shape) -> Any:
        match node, shape:
            case _, "free":
                writing = Writing(run, self.constants, self.groups)
                text = writing.text(node)
                lists = (*writing.lists, *([],) * (len(self.groups) - len(writing.lists)))
                return FreePlace(
                    text, tuple(ItemsMarker(tuple(x), of=g) for x, g in zip(lists, self.groups, strict=True))
                )
            case Tuple(of=of, parts=parts), ContainerResult(parts=shapes):
                return rebuilt(of, [self._form(run, x, s) for x, s in zip(parts, shapes, strict=True)])
            case DictNode(keys=keys, parts=parts), ContainerResult(parts=shapes):
                return {k: self._form(run, x, s) for k, x, s in zip(keys, parts, shapes, strict=True)}
            case ListNode(parts=parts), ListResult(of=element):
                assert element is not None or not parts
                return ItemsMarker(tuple(self._form(run, x, element) for x in parts if element is not None), of=element)
            case _:
                return node

    def same(self, a: TracedRun, b: TracedRun) -> bool:
        """Have two runs returned the same, but for their numbers?"""
        return bool(self._words(a) == self._words(b))

    def _words(self, run: TracedRun) -> Any:
        groups: dict[Any, int] = {}
        writing = Writing(run, self.constants, groups)
        text = writing.text(run.result)
        return text, list(groups), [[x.number for x in group] for group in writing.lists]


# ---- printing
#
# What a function prints while it is traced: noted, with the numbers that are computed, and printed example by example
# when these are known.
#
#     print("loss", h)        ->   ["loss", Leaf(0)]
#     print(f"loss {h:.3f}")  ->   [["loss ", (Leaf(0), ".3f")]]
#
# The text of a number is not known where an f-string is made. In its place stands a mark, where the source shows that
# the string goes to `print` and nowhere else.


FORMATTING = ("FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC")
"""The instructions that an f-string formats a value with."""

MARK = re.compile("\ue000(\\d+)\ue001")


class RunPrinting:
    """What one run prints. `leaves` receives the numbers; `is_symbol`: is a value not known?"""

    def __init__(self, leaves: list[Any], symbol: type, is_symbol: Callable[[Any], bool]) -> None:
        self.leaves, self.symbol, self.is_symbol = leaves, symbol, is_symbol
        self.lines: list[Node] = []
        self._formatted: list[tuple[Any, str]] = []

    def format(self, value: Any, spec: str, frame: FrameType) -> str | None:
        """A mark for the text of a number; None where the text may be looked at."""
        code, at = frame.f_code, frame.f_lasti
        if dis.opname[code.co_code[at]] not in FORMATTING:
            return None
        line, end, column, stop = next(itertools.islice(code.co_positions(), at // 2, None), (None,) * 4)
        if line is None or end is None or column is None or stop is None:
            return None
        if not any(a <= (line, column) and (end, stop) <= b for a, b in _printed(code)):
            return None
        self._formatted.append((value, spec))
        return f"\ue000{len(self._formatted) - 1}\ue001"

    def print(self, args: tuple[Any, ...], sep: Any, end: Any, file: Any) -> None:
        """Note a call of `print`."""
        stream = "stderr" if file is sys.stderr else "stdout"
        texts = [" " if sep is None else sep, "\n" if end is None else end, stream]
        self.lines.append(ListNode([ListNode(list(map(self._argument, args))), *texts]))

    def _argument(self, value: Any) -> Node:
        if isinstance(value, str) and MARK.search(value):
            pieces = MARK.split(value)
            return Tuple(TextPieces(), [self._formatted_node(x) if k % 2 else x for k, x in enumerate(pieces)])
        known = len(self.leaves)
        try:
            node = ResultGraph(self.leaves, self.symbol).whole(value)
        except Exception:  # it is no object that can be copied: `str` says whether a number is in it
            del self.leaves[known:]
            return str(value)
        if any(map(self.is_symbol, self.leaves[known:])):
            return node
        del self.leaves[known:]
        return str(value)

    def _formatted_node(self, number: str) -> Node:
        value, spec = self._formatted[int(number)]
        return Tuple((), [ResultGraph(self.leaves, self.symbol).of(value), spec])


@cache
def _printed(code: CodeType) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Where f-strings begin and end that go to `print` and nowhere else: lines and columns in bytes."""
    try:
        tree = ast.parse("".join(linecache.getlines(code.co_filename)))
    except SyntaxError:
        return []
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            for text in itertools.chain.from_iterable(map(_texts, node.args)):
                nested = any(isinstance(x, ast.JoinedStr) for v in text.values for x in ast.walk(_value(v)))
                if not nested and text.end_lineno is not None and text.end_col_offset is not None:
                    found.append(((text.lineno, text.col_offset), (text.end_lineno, text.end_col_offset)))
    return found


def _value(part: ast.expr) -> ast.AST:
    return part.value if isinstance(part, ast.FormattedValue) else part


def _texts(node: ast.expr) -> list[ast.JoinedStr]:
    """The f-strings that an argument is put together of."""
    match node:
        case ast.JoinedStr():
            return [node]
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return [*_texts(left), *_texts(right)]
        case _:
            return []


# ---- print itself


class _PrintingLocal(threading.local):
    printing: RunPrinting | None = None


_local = _PrintingLocal()
_lock = threading.Lock()
_depth = 0
_print = builtins.print


def _noting(*args: Any, sep: Any = None, end: Any = None, file: Any = None, flush: bool = False) -> None:
    printing = _local.printing
    if printing is None or not (file is None or file is sys.stdout or file is sys.stderr):
        _print(*args, sep=sep, end=end, file=file, flush=flush)
    else:
        printing.print(args, sep, end, file)


def formatted(value: Any, spec: str, frame: FrameType) -> str | None:
    """A mark for the text of a number that a traced function of this thread formats."""
    return None if _local.printing is None else _local.printing.format(value, spec, frame)


def is_noted() -> bool:
    """Is a function of this thread traced?"""
    return _local.printing is not None


@contextmanager
def noted_in(printing: RunPrinting) -> Iterator[None]:
    """Let `print` of this thread be noted."""
    global _depth, _print
    before, _local.printing = _local.printing, printing
    with _lock:
        _depth += 1
        if _depth == 1:
            _print, builtins.print = builtins.print, _noting
    try:
        yield
    finally:
        _local.printing = before
        with _lock:
            _depth -= 1
            if _depth == 0 and builtins.print is _noting:
                builtins.print = _print
