"""What runs return: as graphs, by what all of them have in common, and as blueprints where they have nothing.

(h, {"cat": 1})  and  (g, {"dog": 2, "ant": 3})   ->   Parts(tuple, number, FREE)
                                                       (h, Free('... "cat" ...', [[]])),  (g, Free(...))

Numbers, strings and None at a place, tuples of one length, dicts with the same keys and lists of one kind are results
as those of any batched function: arrays, containers, `Ragged`. All else is free: `Objects` (`blueprints.py`).
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import jax
import numpy as np

from autobatch.call import transfer
from autobatch.call.blueprints import Blueprint, Constants, Value
from autobatch.call.tracing.copying import rebuilt
from autobatch.call.tracing.graphs import Constant, Listed, Node, Object, Table, Tuple
from autobatch.call.tracing.log import Items, Leaf, Run

# ---- what results have in common


@dataclass(frozen=True)
class Number:
    shape: tuple[int, ...]
    is_bool: bool


@dataclass(frozen=True)
class Word:
    """A string."""


@dataclass(frozen=True)
class Nothing:
    """None."""


@dataclass(frozen=True)
class Maybe:
    """None, or a number or string."""

    of: Number | Word


@dataclass(frozen=True)
class Member:
    """A member of an enum."""

    cls: type


@dataclass(frozen=True)
class Parts:
    """A tuple, NamedTuple or dict; `keys` of a dict."""

    kind: type
    keys: tuple[Any, ...]
    parts: tuple[Shape, ...]


@dataclass(frozen=True)
class Many:
    """A list; `of` is None where all of them are empty."""

    of: Shape | None


FREE: Final = "free"
CHECK: Final = "check"
Shape = Number | Word | Nothing | Maybe | Member | Parts | Many | Literal["free"]


def joined(a: Shape, b: Shape) -> Shape:
    """What two shapes have in common."""
    if a == b:
        return a
    match a, b:
        case Number(), Number():
            return _of_numbers(a, b)
        case (Nothing(), (Number() | Word()) as x) | ((Number() | Word()) as x, Nothing()):
            return Maybe(x)
        case (Maybe(x), Nothing()) | (Nothing(), Maybe(x)):
            return Maybe(x)
        case (Maybe(x), (Number() | Word()) as y) | ((Number() | Word()) as x, Maybe(y)) | (Maybe(x), Maybe(y)):
            both = joined(x, y)
            return Maybe(both) if isinstance(both, (Number, Word)) else FREE
        case Parts(), Parts() if (a.kind, a.keys, len(a.parts)) == (b.kind, b.keys, len(b.parts)):
            return Parts(a.kind, a.keys, tuple(map(joined, a.parts, b.parts)))
        case Many(x), Many(y):
            return _list_of(x if y is None else y if x is None else joined(x, y))
        case _:
            return FREE


def _of_numbers(a: Number, b: Number) -> Shape:
    """A number beside an array is an array full of it."""
    if a.is_bool != b.is_bool or (a.shape != b.shape and a.shape and b.shape):
        return FREE
    return Number(a.shape or b.shape, a.is_bool)


def _list_of(element: Shape | None) -> Shape:
    return FREE if element == FREE else Many(element)


class Looking:
    """Shapes of the nodes of one run."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._active: set[int] = set()
        self._cyclic: set[int] = set()
        self._objects: dict[int, frozenset[int]] = {}

    def shape(self, node: Node) -> Shape:
        match node:
            case Leaf(number=k):
                shape, dtype = self.run.leaves[k][1]
                return FREE if _is_large(known(self.run, k)) else Number(tuple(shape), dtype == np.bool_)
            case str():
                return Word()
            case None:
                return Nothing()
            case Constant(value=enum.Enum() as member):
                return Member(type(member))
            case Tuple() | Table() | Listed() if id(node) in self._active:
                self._cyclic.add(id(node))
                return FREE
            case Tuple() | Table() | Listed():
                self._active.add(id(node))
                made = self._container(node)
                self._active.discard(id(node))
                return FREE if id(node) in self._cyclic else made  # what holds itself is one object
            case _:
                return FREE

    def _container(self, node: Tuple | Table | Listed) -> Shape:
        parts = [self.shape(x) for x in node.parts]
        if isinstance(node, Listed):
            found: Shape | None = None
            for x in parts:
                found = x if found is None else joined(found, x)
            return _list_of(found)
        free = [x for x, shape in zip(node.parts, parts, strict=True) if _holds_free(shape)]
        if len(free) > 1 and _share(free):
            return FREE
        if isinstance(node, Tuple):
            return Parts(type(node.of), (), tuple(parts))
        kinds = {type(k) for k in node.keys}
        return Parts(dict, tuple(node.keys), tuple(parts)) if kinds in ({str}, {int}, set()) else FREE


def known(run: Run, leaf: int) -> Any:
    """The number that Python knows, of a result; None of others."""
    word, _ = run.leaves[leaf]
    return run.log.value(word) if isinstance(word, int) and run.log.is_known(word) else None


def _is_large(held: Any) -> bool:
    """Is it an integer that no array of JAX can hold?"""
    return isinstance(held, int) and held.bit_length() >= (64 if transfer.x64() else 32)


def _holds_free(shape: Shape) -> bool:
    return shape == FREE or (isinstance(shape, Parts) and any(map(_holds_free, shape.parts)))


def _share(nodes: Sequence[Node]) -> bool:
    """Is an object in two of them?"""
    seen: set[int] = set()
    for node in nodes:
        mine = {id(x) for x in _reached(node) if isinstance(x, Object)}
        if not seen.isdisjoint(mine):
            return True
        seen |= mine
    return False


def _reached(node: Node) -> Iterable[Node]:
    found: dict[int, Node] = {}
    waiting = [node]
    while waiting:
        x = waiting.pop()
        if isinstance(x, (Tuple, Table, Listed, Object)) and id(x) not in found:
            found[id(x)] = x
            waiting += _parts(x)
    return found.values()


def _parts(node: Tuple | Table | Listed | Object) -> list[Node]:
    if isinstance(node, Table):
        return [*node.names, *node.parts]
    if isinstance(node, Object):
        return [*node.args, node.state, *node.items, *(x for pair in node.pairs for x in pair)]
    return node.parts


# ---- blueprints


class Writing:
    """The blueprint of one node of a run. `groups`: the types of its numbers, which grow; `lists[g]`: the leaves of
    group g."""

    def __init__(self, run: Run, constants: Constants, groups: dict[Any, int]) -> None:
        self.run, self.groups = run, groups
        self.blueprint = Blueprint(constants)
        self.lists: list[list[Leaf]] = [[] for _ in groups]
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
            case Leaf():
                return self.number(node)
            case Constant(value=held):
                return self.blueprint.constant(held)
            case Tuple() | Table() | Listed() | Object():
                if id(node) not in self._made:
                    self._make(node)
                return self._made[id(node)]
            case _:
                return self.blueprint.scalar(node)

    def values(self, nodes: Sequence[Node]) -> list[Value]:
        return [self.value(x) for x in nodes]

    def number(self, leaf: Leaf) -> Value:
        held = known(self.run, leaf.number)
        if held is not None and np.ndim(held) == 0 and not _is_key(held):
            return self.blueprint.scalar(held.item() if hasattr(held, "item") else held)
        shape, dtype = self.run.leaves[leaf.number][1]
        group = self.groups.setdefault((tuple(shape), dtype), len(self.groups))
        while len(self.lists) < len(self.groups):
            self.lists.append([])
        self.lists[group].append(leaf)
        return self.blueprint.number(group, len(self.lists[group]) - 1)

    def _make(self, node: Tuple | Table | Listed | Object) -> None:
        made, fill, later = self._made, self.blueprint.fill, self._waiting.append
        match node:
            case Tuple(of=of):
                values = self.values(node.parts)
                cls = None if type(of) is tuple else self.blueprint.constant(type(of))
                made[id(node)] = self.blueprint.make("tuple", cls, values)
            case Listed():
                listed = made[id(node)] = self.blueprint.make("list")
                later(lambda: fill("extend", listed, self.values(node.parts)))
            case Table():
                table = made[id(node)] = self.blueprint.make("dict")
                later(lambda: fill("update", table, self._pairs(zip(node.names, node.parts, strict=True))))
            case Object():
                self._object(node)

    def _pairs(self, pairs: Iterable[tuple[Node, Node]]) -> list[tuple[Value, Value]]:
        return [(self.value(k), self.value(x)) for k, x in pairs]

    def _object(self, node: Object) -> None:
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
class Free:
    """A place that is free: the text, a string or its leaf, and the numbers of each group."""

    text: Any
    lists: tuple[Items, ...]


@dataclass(eq=False)
class Prints:
    """A result beside what a run has printed."""

    result: Any
    lines: Free


@dataclass(eq=False)
class Checked:
    """A result beside the checks of its run."""

    result: Any
    checks: Items


class Returned:
    """What is known of the results of a function: it only grows. `version` says when it has."""

    def __init__(self) -> None:
        self.shape: Shape | None = None
        self.prints = self.checks = False
        self.groups: dict[Any, int] = {}
        self.constants = Constants()

    @property
    def version(self) -> Any:
        return self.shape, len(self.groups), self.prints, self.checks

    def add(self, runs: Sequence[Run]) -> bool:
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

    def formed(self, run: Run) -> Run:
        """A run whose result has the form that all of them have."""
        assert self.shape is not None
        result = self._form(run, run.result, self.shape)
        if self.prints:
            result = Prints(result, self._form(run, Listed(run.printed), FREE))
        if self.checks:
            result = Checked(result, Items(tuple(map(Leaf, run.checks)), of=CHECK))
        return Run(run.log, run.leaves, result, [])

    def _form(self, run: Run, node: Any, shape: Shape) -> Any:
        match node, shape:
            case _, "free":
                writing = Writing(run, self.constants, self.groups)
                text = writing.text(node)
                lists = (*writing.lists, *([],) * (len(self.groups) - len(writing.lists)))
                return Free(text, tuple(Items(tuple(x), of=g) for x, g in zip(lists, self.groups, strict=True)))
            case Tuple(of=of, parts=parts), Parts(parts=shapes):
                return rebuilt(of, [self._form(run, x, s) for x, s in zip(parts, shapes, strict=True)])
            case Table(keys=keys, parts=parts), Parts(parts=shapes):
                return {k: self._form(run, x, s) for k, x, s in zip(keys, parts, shapes, strict=True)}
            case Listed(parts=parts), Many(of=element):
                assert element is not None or not parts
                return Items(tuple(self._form(run, x, element) for x in parts if element is not None), of=element)
            case _:
                return node

    def same(self, a: Run, b: Run) -> bool:
        """Have two runs returned the same, but for their numbers?"""
        return bool(self._words(a) == self._words(b))

    def _words(self, run: Run) -> Any:
        groups: dict[Any, int] = {}
        writing = Writing(run, self.constants, groups)
        text = writing.text(run.result)
        return text, list(groups), [[x.number for x in group] for group in writing.lists]
