"""Iterators in variables: what they run over, and a number of how far they are.

    it = iter(xs)                         items, place = xs, 0             (under names of their own)
    x = next(it, None)            ->      x = _next_or(items, None, (place := place + 1))     (never behind the end)
    for y in it:                          while place < len(items):
        ...                                   y = items[(place := place + 1) - 1]; ...

So are `enumerate`, `zip` and `reversed` that are read by `next`, and `itertools.count` and `cycle`. An iterator is
left as it is where it is handed around, read in an inner function, or runs over what is changed behind it, and is no
list: of lists it sees the changes.
"""

from __future__ import annotations

import ast
import builtins
import copy
import itertools
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

from autobatch.frontend.syntax.bound_methods import READERS
from autobatch.frontend.syntax.syntax_trees import become, bound_names, place_of

FunctionNode = ast.FunctionDef | ast.Lambda
_SCOPES = (ast.FunctionDef, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_LAZY = ("enumerate", "zip", "reversed")

_WHOLE = frozenset({"list", "tuple", "sum", "max", "min", "sorted", "set", "dict"})
_COUNT, _CYCLE = "count", "cycle"
_ENDED = 1 << 30
"""The place of an iterator that has come to its end: it stays there when its list grows."""


def _next(items: Any, place: Any) -> Any:
    """Lowered like a function of the user, as those below. `place`: behind the item."""
    if place > len(items):
        raise StopIteration
    return items[place - 1]


def _next_or(items: Any, default: Any, place: Any) -> Any:
    return default if place > len(items) else items[place - 1]


def _rest(items: Any, place: Any, behind: Any) -> Any:
    return items[place:]


def _again(items: Any, place: Any) -> Any:
    if len(items) == 0:
        raise StopIteration
    return items[(place - 1) % len(items)]


def _before(place: Any, behind: Any) -> Any:
    return place


def _indexed(items: Any) -> Any:
    """What an iterator runs over, by index: a list as it is, whose changes it sees."""
    return items if isinstance(items, list) else listed(items)


def _indexed_changed(items: Any) -> Any:
    return items if isinstance(items, list) else listed(items, True)


def listed(items: Any, changed: bool = False) -> Any:
    """A list of anything else; known to the front end (`prelude.py`). `changed`: behind it."""
    return list(items)


def with_iterators_as_places(
    node: FunctionNode, globals: Mapping[str, Any], changed: Callable[[ast.AST], tuple[str, ...]]
) -> FunctionNode:
    """The function with its iterators written out; itself where it keeps none. `changed`: the variables whose lists a
    statement changes."""
    if not isinstance(node, ast.FunctionDef):
        return node
    if not any(isinstance(n, ast.Assign) and any(map(_made, _values(n))) for n in ast.walk(node)):
        return node
    meanings = tuple(name for name in ("iter", "next", "len", *_LAZY) if name in globals)
    endless = tuple(n for n, x in globals.items() if x is itertools.count or x is itertools.cycle)
    modules = tuple(n for n, x in globals.items() if isinstance(x, types.ModuleType))
    of_itertools = tuple(n for n in modules if globals[n] is itertools)
    return _rewritten(node, _ModuleNames(meanings, endless, of_itertools, modules), changed)


@dataclass(frozen=True)
class _ModuleNames:
    """Names of the module: those that hide Python's, those of `itertools.count` and `cycle`, those of `itertools`
    itself, and those of all modules."""

    hidden: tuple[str, ...]
    endless: tuple[str, ...]
    itertools: tuple[str, ...]
    modules: tuple[str, ...]


def _values(node: ast.Assign) -> Sequence[ast.expr]:
    """What an assignment assigns; of `a, b = x, y` both."""
    return node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]


def _made(value: ast.expr) -> tuple[str, list[ast.expr]] | None:
    """What kind of iterator an expression makes, by its text, and of what."""
    match value:
        case ast.Call(func=ast.Name(id="iter"), args=[items], keywords=[]):
            return "iter", [items]
        case ast.Call(func=ast.Name(id="enumerate" | "zip" | "reversed" as kind)):
            return kind, [value]
        case ast.Call(func=ast.Name(id="count") | ast.Attribute(attr="count"), args=args, keywords=[]) if len(args) < 3:
            return _COUNT, args
        case ast.Call(func=ast.Name(id="cycle") | ast.Attribute(attr="cycle"), args=[items], keywords=[]):
            return _CYCLE, [items]
        case _:
            return None


@lru_cache(maxsize=256)
def _rewritten(
    node: ast.FunctionDef, names: _ModuleNames, changed: Callable[[ast.AST], tuple[str, ...]]
) -> ast.FunctionDef:
    made = copy.deepcopy(node)
    _take_apart(made)
    text = _IteratorText(made, names, changed)
    for name, stores in list(text.iterators()):
        if all(text.is_known(read) for read in text.reads(name)):
            text.write_out(name, stores)
    return made


def _take_apart(function: ast.FunctionDef) -> None:
    """`it, s = iter(xs), 0.0` as two assignments, where none reads what another assigns."""
    for node in ast.walk(function):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                block[:] = [part for statement in block for part in _apart(statement)]


def _apart(statement: ast.stmt) -> list[ast.stmt]:
    match statement:
        case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)) if any(map(_made, values)):
            names = {t.id for t in targets if isinstance(t, ast.Name)}
            read = {n.id for x in values for n in ast.walk(x) if isinstance(n, ast.Name)}
            if len(names) == len(targets) == len(values) and names.isdisjoint(read):
                pairs = zip(targets, values, strict=True)
                return [ast.copy_location(ast.Assign([t], x), statement) for t, x in pairs]
        case _:
            pass
    return [statement]


@dataclass
class _IteratorText:
    function: ast.FunctionDef
    names: _ModuleNames
    changed_by: Callable[[ast.AST], tuple[str, ...]]
    parents: dict[ast.AST, ast.AST] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.parents = {child: n for n in ast.walk(self.function) for child in ast.iter_child_nodes(n)}
        stored = {n.id for n in ast.walk(self.function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        self.hidden = stored.union(
            self.names.hidden, (a.arg for a in ast.walk(self.function) if isinstance(a, ast.arg))
        )

    def iterators(self) -> Iterator[tuple[str, list[ast.Assign]]]:
        """The variables that hold iterators whenever they are assigned, and nothing else."""
        if not self.hidden.isdisjoint(("iter", "next", "len")):
            return
        found: dict[str, list[ast.Assign]] = {}
        for n in ast.walk(self.function):
            match n:
                case ast.Assign(targets=[ast.Name(id=name)]) if self._is_iterator(n):
                    found.setdefault(name, []).append(n)
                case _:
                    pass
        for name, stores in found.items():
            every = [n for n in ast.walk(self.function) if name in bound_names(n)]
            kinds = {kind[0] for n in stores if (kind := _made(n.value)) is not None}
            scopes = {self.scope(n) for n in every}
            endless = kinds & {_COUNT, _CYCLE}
            stepped = any(self._is_next(n) for n in self.reads(name))
            plain = kinds.isdisjoint((*_LAZY, *endless)) or stepped
            if len(every) == len(stores) and len(scopes) == 1 and plain and (not endless or len(kinds) == 1):
                yield name, stores

    def _is_iterator(self, store: ast.Assign) -> bool:
        value, made = store.value, _made(store.value)
        if made is None:
            return False
        kind, items = made
        if kind in (_COUNT, _CYCLE):
            assert isinstance(value, ast.Call)
            match value.func:
                case ast.Name(id=name):
                    known = name in self.names.endless
                case ast.Attribute(value=ast.Name(id=name)):
                    known = name in self.names.itertools
                case _:
                    known = False
            return known and name not in self.hidden
        if kind in self.hidden:
            return False
        return (kind == "iter" and isinstance(items[0], ast.Name)) or not self._is_changed(store, items[0])

    def _is_changed(self, store: ast.Assign, items: ast.expr) -> bool:
        """May what an iterator runs over be changed behind its assignment?"""
        read = {n.id for n in ast.walk(items) if isinstance(n, ast.Name)}
        around = {n for n in self._around(store) if isinstance(n, ast.For | ast.While)}
        return any(
            name in read
            and (
                place_of(n) > place_of(store)
                or not around.isdisjoint(self._around(n))
                or self.scope(n) is not self.scope(store)
            )
            for n, name in self.changes
        )

    def _around(self, node: ast.AST) -> Iterator[ast.AST]:
        while node in self.parents:
            node = self.parents[node]
            yield node

    @cached_property
    def changes(self) -> list[tuple[ast.expr, str]]:
        """Where the list or object of a variable is changed, or may be: a function of the user is given it."""
        found = list[tuple[ast.expr, str]]()
        for n in ast.walk(self.function):
            if isinstance(n, ast.Call | ast.Subscript | ast.Attribute):
                found += [(n, name) for name in (*self.changed_by(n), *self._lent(n))]
        return found

    def _lent(self, node: ast.expr) -> Iterator[str]:
        match node:
            case ast.Call(func=ast.Name(id=name)) if name not in self.hidden and hasattr(builtins, name):
                return
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name))) if name in self.names.modules:
                return
            case ast.Call(func=function, args=args, keywords=keywords):
                given = [*args, *(k.value for k in keywords)]
                if isinstance(function, ast.Attribute) and function.attr not in READERS:
                    given.append(function.value)
                yield from (held for x in given if (held := _held_by(x)) is not None)
            case _:
                pass

    def reads(self, name: str) -> list[ast.Name]:
        names = [n for n in ast.walk(self.function) if isinstance(n, ast.Name) and n.id == name]
        return [n for n in names if isinstance(n.ctx, ast.Load)]

    def scope(self, node: ast.AST) -> ast.AST:
        while node is not self.function:
            node = self.parents[node]
            if isinstance(node, _SCOPES):
                return node
        return node

    def is_known(self, read: ast.Name) -> bool:
        """Is this a read that can be written with a place, in the function that the iterator belongs to?"""
        stores = [n for n in ast.walk(self.function) if read.id in bound_names(n)]
        if self.scope(read) is not self.scope(stores[0]):
            return self._is_first(read) and self.scope(self.scope(read)) is self.scope(stores[0])
        return self._is_next(read) or self._is_looped(read) or self._is_whole(read)

    def kind(self, name: str) -> str:
        for n in ast.walk(self.function):
            if isinstance(n, ast.Assign) and name in bound_names(n.targets[0]) and (made := _made(n.value)) is not None:
                return made[0]
        return ""

    def _is_next(self, read: ast.AST) -> bool:
        match self.parents[read]:
            case ast.Call(func=ast.Name(id="next"), args=[first], keywords=[]):
                return first is read
            case ast.Call(func=ast.Name(id="next"), args=[first, _], keywords=[]):
                assert isinstance(read, ast.Name)
                return first is read and self.kind(read.id) not in (_COUNT, _CYCLE)
            case _:
                return False

    def _is_looped(self, read: ast.Name) -> bool:
        loop = self.parents[read]
        return isinstance(loop, ast.For) and loop.iter is read and self.kind(read.id) not in (_COUNT, _CYCLE)

    def _is_whole(self, read: ast.Name) -> bool:
        """Is all that is left read at once?"""
        if self.kind(read.id) in (_COUNT, _CYCLE):
            return False
        match self.parents[read]:
            case ast.Call(func=ast.Name(id=name), args=[first, *_]) as call if first is read:
                again = [n for n in ast.walk(call) if isinstance(n, ast.Name) and n.id == read.id and n is not read]
                return name in _WHOLE and name not in self.hidden and not again  # `sum(it, next(it))`
            case _:
                return False

    def _is_first(self, read: ast.Name) -> bool:
        """Does a comprehension that runs to its end run over it, first of all?"""
        part = self.parents[read]
        around = self.parents[part]
        match self.parents.get(around):
            case ast.Call(func=ast.Name(id=name), args=[first, *_]) if first is around:
                whole = name in _WHOLE and name not in self.hidden
            case _:
                whole = False
        return (
            isinstance(part, ast.comprehension)
            and (isinstance(around, ast.ListComp) or (isinstance(around, ast.GeneratorExp) and whole))
            and around.generators[0] is part
            and part.iter is read
            and self.kind(read.id) not in (_COUNT, _CYCLE)
        )

    def write_out(self, name: str, stores: list[ast.Assign]) -> None:
        kind, reads = self.kind(name), self.reads(name)
        items, place = f"items under {name}", f"place under {name}"
        step, ended = ast.Constant(1), ast.Constant(_ENDED)

        def load(other: str) -> ast.Name:
            return ast.Name(other, ast.Load())

        def to(end: ast.expr) -> ast.expr:
            return ast.NamedExpr(ast.Name(place, ast.Store()), end)

        def is_before_end() -> ast.expr:
            return ast.Compare(load(place), [ast.Lt()], [ast.Call(load("len"), [load(items)], [])])

        def moved(by: ast.expr) -> ast.expr:
            return to(ast.BinOp(load(place), ast.Add(), by))

        for read in reads:
            call = self.parents[read]
            if self._is_next(read):
                assert isinstance(call, ast.Call)
                function = {_COUNT: _before, _CYCLE: _again}.get(kind, _next if len(call.args) == 1 else _next_or)
                if kind == _COUNT:
                    given = [load(place), moved(load(items))]
                elif kind == _CYCLE:
                    given = [load(items), moved(step)]
                else:
                    behind = ast.BinOp(load(place), ast.Add(), step)
                    given = [load(items), *call.args[1:], to(ast.IfExp(is_before_end(), behind, ended))]
                become(call, ast.Call(_function(function), given, []))
            elif self._is_looped(read):
                assert isinstance(call, ast.For)
                at = ast.BinOp(moved(step), ast.Sub(), ast.Constant(1))
                item = ast.Assign([call.target], ast.Subscript(load(items), at, ast.Load()))
                end = ast.Assign([ast.Name(place, ast.Store())], ended)
                become(call, ast.While(is_before_end(), [item, *call.body], [end, *call.orelse]))
            else:
                become(read, ast.Call(_function(_rest), [load(items), load(place), to(ended)], []))
        values: list[ast.expr]
        for store in stores:
            made = _made(store.value)
            assert made is not None
            targets = ast.Tuple([ast.Name(items, ast.Store()), ast.Name(place, ast.Store())], ast.Store())
            if kind == _COUNT:
                values = [*made[1][1:], *([ast.Constant(1)] if len(made[1]) < 2 else []), *made[1][:1]]
                values += [ast.Constant(0)] if not made[1] else []
            else:
                of = _indexed_changed if self._is_changed(store, made[1][0]) else _indexed
                values = [ast.Call(_function(of), made[1], []), ast.Constant(0)]
            become(store, ast.Assign([targets], ast.Tuple(values, ast.Load())))


def _function(known: Any) -> ast.Constant:
    """A function of this module, as the front end reads it."""
    return ast.Constant(known)


def _held_by(node: ast.expr) -> str | None:
    """The variable whose list or object, or a part of that, an expression is."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Starred):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None
