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
import sys
import types
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

from autobatch.frontend.syntax.scopes import MUTATORS

# ---- syntax trees
#
# What the passes over syntax trees have in common, those that write Python anew before anything is lowered.


def bound_names(node: ast.AST) -> list[str]:
    """The names that a node by itself, without what is in it, gives a meaning, deletes or declares."""
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
            return [name]
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
            return [name]
        case ast.ExceptHandler(name=str(name)):
            return [name]
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return [(a.asname or a.name).split(".")[0] for a in names]
        case ast.Nonlocal(names=found) | ast.Global(names=found):
            return found
        case _:
            return []


def become(node: ast.AST, other: ast.AST) -> None:
    """Let a node of a tree be another, at its place."""
    for part in ast.walk(other):
        if isinstance(part, ast.stmt | ast.expr | ast.arg) and not hasattr(part, "lineno"):
            ast.copy_location(part, node)
    node.__class__ = other.__class__
    vars(node).clear()
    vars(node).update(vars(other))


def place_of(node: ast.AST) -> tuple[int, int]:
    """The line and column of a node: which of two stands behind the other."""
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def contains(node: ast.AST, inner: ast.AST) -> bool:
    """Does the text of a node hold that of another one of the same file?"""
    return place_of(node) <= place_of(inner) and end_of(inner) <= end_of(node)


def end_of(node: ast.AST) -> tuple[int, int]:
    """Where the text of a node ends."""
    return getattr(node, "end_lineno", None) or 0, getattr(node, "end_col_offset", None) or 0


# ---- parametrised
#
# Calls of classes with type parameters are calls of the classes: what a list may hold is known from what it holds.
#
# xs = list[float]()     ->     xs = list()
# s = Stack[int](3)      ->     s = Stack(3)


def without_parameters(node: ast.AST, function: types.FunctionType) -> None:
    """Rewrite such calls in the text of a function, where its names are those of its module or of Python."""
    calls = [n for n in ast.walk(node) if isinstance(n, ast.Call) and isinstance(n.func, ast.Subscript)]
    if not calls:
        return
    own = {name for n in ast.walk(node) for name in bound_names(n)} | {*function.__code__.co_freevars}
    for call in calls:
        assert isinstance(call.func, ast.Subscript)
        if isinstance(_value(call.func.value, function.__globals__, own), type):
            call.func = call.func.value


def _value(node: ast.expr, globals: dict[str, Any], own: set[str]) -> Any:
    """What a name of the module, or of a module that it has, stands for; None for anything else."""
    match node:
        case ast.Name(id=name) if name not in own:
            return globals.get(name, getattr(builtins, name, None))
        case ast.Attribute(value=value, attr=name):
            held = _value(value, globals, own)
            return getattr(held, name, None) if isinstance(held, types.ModuleType) else None
        case _:
            return None


# ---- bound methods
#
# Methods of a list, dict or set that are called by another name, where the text shows which variable they change.
#
#     out = []                              out = []
#     push = out.append                     out.append
#     for x in xs:                  ->      for x in xs:
#         push(x)                               out.append(x)
#     visit(out.append)                     visit(lambda *given: out.append(*given))
#
# A name stands for the method as long as the variable holds one object: it is assigned once, and in a loop in front of
# the name, in the same block. An argument is such a method where the variable was made as a list, dict or set. So it is
# with methods that read (`get = known.get`): they see what the variable holds when they are called.


FunctionNode = ast.FunctionDef | ast.Lambda
_LOOPS = (ast.For, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_MADE = (ast.List, ast.ListComp, ast.Dict, ast.DictComp, ast.Set, ast.SetComp)
_MAKERS = frozenset({"list", "dict", "set", "deque", "defaultdict", "Counter", "OrderedDict"})


READERS = frozenset({"copy", "count", "get", "index", "items", "keys", "values"})
"""Methods that read a list, dict or set."""
_METHODS = MUTATORS | READERS


def with_methods_written_out(node: FunctionNode) -> FunctionNode:
    """The function with such names replaced; itself where there are none."""
    if not isinstance(node, ast.FunctionDef) or not any(True for _ in _kept(node)):
        return node
    return _rewritten(node)


@lru_cache(maxsize=256)
def _rewritten(node: ast.FunctionDef) -> ast.FunctionDef:
    made = copy.deepcopy(node)
    text = _AssignedNames(made)
    for statement, pairs in list(text.aliases()):
        known = {name: method for name, method in pairs if text.stands_for(name, method, statement)}
        if len(known) == len(pairs):
            _write_out(made, statement, known)
    text = _AssignedNames(made)
    for method in list(_kept(made)):
        if method.attr in READERS and text.is_read_at_once(method):
            continue
        if text.is_container(method.value) and not text.is_in_loop(text.stored[_name(method.value)]):
            become(method, _function(method))
    return made


def _kept(node: ast.AST) -> Iterator[ast.Attribute]:
    """The methods of variables that change them, and are not called where they stand."""
    called = {id(n.func) for n in ast.walk(node) if isinstance(n, ast.Call)}
    for n in ast.walk(node):
        match n:
            case ast.Attribute(value=ast.Name(), attr=attr, ctx=ast.Load()) if attr in _METHODS and id(n) not in called:
                yield n


class _AssignedNames:
    """Where a function assigns its variables, and those of functions inside it; `times`: how often."""

    def __init__(self, function: ast.FunctionDef) -> None:
        self.function = function
        self.parents = {child: n for n in ast.walk(function) for child in ast.iter_child_nodes(n)}
        self.stored: dict[str, ast.AST] = {}
        self.times = Counter[str]()
        for n in ast.walk(function):
            for name in bound_names(n):
                self.times[name] += 1
                self.stored[name] = n

    def aliases(self) -> Iterator[tuple[ast.Assign, Sequence[tuple[str, ast.Attribute]]]]:
        """`push = out.append` and `push, pop = out.append, out.pop`."""
        kept = set(_kept(self.function))
        for n in ast.walk(self.function):
            match n:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Attribute() as method) if method in kept:
                    yield n, [(name, method)]
                case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=methods)):
                    pairs = [
                        (x.id, m)
                        for x, m in zip(names, methods, strict=False)
                        if isinstance(x, ast.Name) and isinstance(m, ast.Attribute) and m in kept
                    ]
                    if len(pairs) == len(names) == len(methods):
                        yield n, pairs

    def stands_for(self, name: str, method: ast.Attribute, statement: ast.Assign) -> bool:
        """Is a name that method wherever it is read, and does it only call it?"""
        held = _name(method.value)
        if self.times[name] != 1 or self.times[held] != 1:
            return False
        reads = [n for n in ast.walk(self.function) if isinstance(n, ast.Name) and n.id == name]
        for n in reads:
            if isinstance(n.ctx, ast.Store):
                continue
            call = self.parents[n]
            if not isinstance(call, ast.Call) or call.func is not n or not self._is_behind(n, statement):
                return False
        return not self.is_in_loop(self.stored[held]) or self._is_behind(statement, self.stored[held])

    def is_read_at_once(self, method: ast.Attribute) -> bool:
        """Is it given to a function of Python, which returns before anything changes?"""
        call = self.parents[method]
        call = self.parents[call] if isinstance(call, ast.keyword) else call
        match call:
            case ast.Call(func=ast.Name(id=name)):
                return name not in self.times and hasattr(builtins, name)
            case _:
                return False

    def is_in_loop(self, node: ast.AST) -> bool:
        """Is a node run more than once in an activation of its function?"""
        while node in self.parents:
            node = self.parents[node]
            if isinstance(node, _LOOPS):
                return True
            if isinstance(node, ast.FunctionDef | ast.Lambda):
                return False
        return False

    def _is_behind(self, node: ast.AST, stored: ast.AST) -> bool:
        """Does a node stand behind an assignment, in the same block or inside of what stands there?"""
        while not isinstance(stored, ast.stmt):
            stored = self.parents[stored]
        blocks = (getattr(self.parents[stored], x, []) for x in ("body", "orelse", "finalbody"))
        behind = next(b[b.index(stored) + 1 :] for b in blocks if isinstance(b, list) and stored in b)
        while node in self.parents:
            if node in behind:
                return True
            node = self.parents[node]
        return False

    def is_container(self, node: ast.expr) -> bool:
        """Is it a variable that was made as a list, dict or set, once?"""
        name = _name(node)
        if self.times[name] != 1 or name not in self.stored:
            return False
        match self.parents.get(self.stored[name]):
            case ast.Assign(targets=[ast.Name()], value=value) | ast.AnnAssign(value=value):
                pass
            case _:
                return False
        match value:
            case ast.Call(func=ast.Name(id=maker) | ast.Attribute(attr=maker)):
                return maker in _MAKERS
            case _:
                return isinstance(value, _MADE)


def _write_out(function: ast.AST, statement: ast.Assign, known: dict[str, ast.Attribute]) -> None:
    """Let the calls of names call the methods, and their assignment read these alone."""
    for n in ast.walk(function):
        match n:
            case ast.Call(func=ast.Name(id=name) as called) if name in known:
                held = copy.copy(known[name].value)
                become(called, ast.Attribute(ast.copy_location(held, called), known[name].attr, ast.Load()))
    become(statement, ast.Expr(statement.value))


def _function(method: ast.Attribute) -> ast.Lambda:
    """`lambda *given: out.append(*given)`"""
    given = ast.Starred(ast.Name("<given>", ast.Load()), ast.Load())
    call = ast.Call(ast.Attribute(copy.copy(method.value), method.attr, ast.Load()), [given], [])
    rest = ast.arg("<given>")
    return ast.Lambda(ast.arguments([], [], rest, [], [], None, []), call)


def _name(node: ast.expr) -> str:
    assert isinstance(node, ast.Name)
    return node.id


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


def stepped_through(iterator: Any) -> list[Any]:
    """What an iterator of a class of the user gives, to its end; known to the front end (`prelude.py`)."""
    return list(iterator)


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
    modules = tuple(n for n, x in globals.items() if isinstance(x, types.ModuleType) and _is_of_a_library(x))
    of_itertools = tuple(n for n in modules if globals[n] is itertools)
    return _with_counted_iterators(node, _ModuleNames(meanings, endless, of_itertools, modules), changed)


def _is_of_a_library(module: types.ModuleType) -> bool:
    """Is it a module whose functions change no list that they are given, but those that are known to?"""
    package = module.__name__.split(".")[0]
    return package in sys.stdlib_module_names or package in ("jax", "numpy", "scipy")


@dataclass(frozen=True)
class _ModuleNames:
    """Names of the module: those that hide Python's, those of `itertools.count` and `cycle`, those of `itertools`
    itself, and those of modules of libraries."""

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
def _with_counted_iterators(
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
                become(call, ast.Call(_constant(function), given, []))
            elif self._is_looped(read):
                assert isinstance(call, ast.For)
                at = ast.BinOp(moved(step), ast.Sub(), ast.Constant(1))
                item = ast.Assign([call.target], ast.Subscript(load(items), at, ast.Load()))
                end = ast.Assign([ast.Name(place, ast.Store())], ended)
                become(call, ast.While(is_before_end(), [item, *call.body], [end, *call.orelse]))
            else:
                become(read, ast.Call(_constant(_rest), [load(items), load(place), to(ended)], []))
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
                values = [ast.Call(_constant(of), made[1], []), ast.Constant(0)]
            become(store, ast.Assign([targets], ast.Tuple(values, ast.Load())))


def _constant(known: Any) -> ast.Constant:
    """A function of this module, as the front end reads it."""
    return ast.Constant(known)


def _held_by(node: ast.expr) -> str | None:
    """The variable whose list or object, or a part of that, an expression is."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Starred):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None
