"""Variables that the functions inside a function share with it, each under a name that no other variable has.

    def main(w):                              def main(w):
        n = w                                     `n of main` = w
        def add(v):                               def add(v):
            nonlocal n                    ->          nonlocal `n of main`
            n = n + v                                 `n of main` = `n of main` + v
        add(1.0)                                  add(1.0)

A variable that an inner function assigns, or whose list, dict or object it changes, is a *cell*: calls pass it on and
give it back (`cells.py`), through whatever functions are between. One that inner functions only read gets a name of
its own where another function has a variable of the same name, which hides it.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeVar

FunctionNode = ast.FunctionDef | ast.Lambda
_CELL, _READ = " of ", " in "
KEPT = "<kept "
"""How the names of variables begin whose object holds what outlives a function (`scopes.py`)."""


def is_cell(name: str) -> bool:
    """Is this the name of a variable that an inner function changes?"""
    return _CELL in name and not name.startswith("<")


def cell(name: str, owner: str) -> str:
    """The name of a variable that an inner function changes."""
    return f"{name}{_CELL}{owner}"


def owner_of(name: str) -> str:
    """The function whose variable it is that an inner function changes."""
    return name.partition(_CELL)[2]


def shown(name: str) -> str:
    """The name as the user wrote it."""
    return name.partition(_CELL)[0].partition(_READ)[0]


def mutated_by(node: ast.AST) -> list[str]:
    """The variable whose container a call changes: `xs.append(x)`, `heappush(xs, x)`."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=attr)) if attr in MUTATORS:
            return [name]
        case ast.Call(func=ast.Attribute(attr=attr) | ast.Name(id=attr), args=[ast.Name(id=name), *_]):
            return [name] if attr in ORDERED else []
    return []


MUTATORS = frozenset(
    {"append", "extend", "insert", "pop", "remove", "clear", "sort", "reverse", "update", "setdefault", "popitem"}
    | {"move_to_end"}
    | {"add", "discard", "intersection_update", "difference_update", "symmetric_difference_update", "subtract"}
    | {"appendleft", "extendleft", "popleft", "rotate"}
)
"""Methods of lists, dicts and sets that change them."""
ORDERED = frozenset({"heappush", "heappop", "heapify", "heapreplace", "heappushpop"}) | frozenset(
    {"insort", "insort_left", "insort_right"}
)
"""Functions of `heapq` and `bisect` that change the list that they are given."""


@dataclass(eq=False)
class Scope:
    """One function: the variables that are its own, and those that it reads, assigns or changes in place."""

    node: FunctionNode
    outer: Scope | None
    own: set[str] = field(default_factory=set)
    declared: set[str] = field(default_factory=set)
    read: set[str] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)

    def owner(self, name: str) -> Scope | None:
        """The function that a variable belongs to; None for a global one."""
        scope: Scope | None = self
        while scope is not None and name not in scope.own:
            scope = scope.outer
        return scope


def with_names_of_their_own(node: FunctionNode) -> FunctionNode:
    """The function with cells, and variables that others hide, renamed; itself where there are none."""
    if not isinstance(node, ast.FunctionDef) or not any(isinstance(n, FunctionNode) for n in _inside(node)):
        return node
    return _renamed(node)


@lru_cache(maxsize=256)
def _renamed(node: ast.FunctionDef) -> ast.FunctionDef:
    scopes = list(scopes_of(node, None))
    names = _new_names(scopes)
    if not names:
        return node
    made = copy.deepcopy(node)
    copies = [s.node for s in scopes_of(made, None)]
    Renaming(dict(zip(copies, scopes, strict=True)), names).function(made)
    return made


def _new_names(scopes: list[Scope]) -> dict[tuple[Scope, str], str]:
    """The variables that get another name, by their owner."""
    cells, read, count = dict[tuple[Scope, str], None](), dict[tuple[Scope, str], None](), dict[str, int]()
    for scope in scopes:
        for name in scope.own:
            count[name] = count.get(name, 0) + 1
        for name in sorted(scope.read | scope.changed):
            owner = scope.owner(name)
            if owner is None or owner is scope or isinstance(owner.node, ast.Lambda):
                continue
            (cells if name in scope.changed else read)[owner, name] = None
    made = {(owner, name): cell(name, _name(owner, scopes)) for owner, name in cells}
    hidden = [pair for pair in read if pair not in cells and count[pair[1]] > 1]
    return made | {(owner, name): f"{name}{_READ}{_name(owner, scopes)}" for owner, name in hidden}


def _name(scope: Scope, scopes: list[Scope]) -> str:
    """A name for a function, unlike those of the others."""
    assert isinstance(scope.node, ast.FunctionDef)
    alike = [x for x in scopes if isinstance(x.node, ast.FunctionDef) and x.node.name == scope.node.name]
    return scope.node.name if scope is alike[0] else f"{scope.node.name} {alike.index(scope) + 1}"


def scopes_of(node: FunctionNode, outer: Scope | None) -> Iterator[Scope]:
    """The function, and those inside it, outer ones first."""
    scope = Scope(node, outer)
    scope.own.update(_parameters(node))
    inner: list[FunctionNode] = []
    for part in _body(node):
        _look(part, scope, inner)
    scope.own -= scope.declared
    yield scope
    for function in inner:
        yield from scopes_of(function, scope)


def _look(node: ast.AST, scope: Scope, inner: list[FunctionNode]) -> None:
    """Note what a part of a function does with variables."""
    match node:
        case ast.FunctionDef() | ast.Lambda():
            if isinstance(node, ast.FunctionDef):
                scope.own.add(node.name)
            for part in _outside(node):
                _look(part, scope, inner)
            inner.append(node)
            return
        case ast.ClassDef(name=name):
            scope.own.add(name)
            return
        case ast.Name(id=name, ctx=ast.Load()):
            scope.read.add(name)
        case ast.Name(id=name):
            scope.own.add(name)
            scope.changed.add(name)
        case ast.Nonlocal(names=names) | ast.Global(names=names):
            scope.declared.update(names)
        case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store() | ast.Del()):
            scope.changed.add(name)
        case ast.Attribute(value=ast.Name(id=name), ctx=ast.Store()) if not name.startswith(KEPT):
            scope.changed.add(name)
        case ast.Call():
            scope.changed.update(mutated_by(node))
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
            scope.own.add(name)
        case ast.ExceptHandler(name=str(name)):
            scope.own.add(name)
        case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
            scope.own.update((a.asname or a.name).split(".")[0] for a in aliases)
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            found = Scope(scope.node, None)
            for part in ast.iter_child_nodes(node):
                _look(part, found, inner)
            targets = {n.id for g in node.generators for n in ast.walk(g.target) if isinstance(n, ast.Name)}
            scope.read |= found.read - targets
            scope.changed |= found.changed - targets
            scope.own |= found.own - targets
            return
    for part in ast.iter_child_nodes(node):
        _look(part, scope, inner)


@dataclass
class Renaming:
    """Changes names in a copy of the syntax tree. `scopes`: of each function of the copy."""

    scopes: dict[FunctionNode, Scope]
    names: dict[tuple[Scope, str], str]

    def function(self, node: FunctionNode) -> None:
        scope = self.scopes[node]
        for part in _body(node):
            self.part(part, scope, frozenset())
        if isinstance(node, ast.FunctionDef):
            given = [(p, new) for p in _parameters(node) if (new := self.names.get((scope, p))) is not None]
            node.body[:0] = [_assigned(node, new, name) for name, new in given]

    def name(self, name: str, scope: Scope, hidden: frozenset[str]) -> str:
        owner = None if name in hidden else scope.owner(name)
        return name if owner is None else self.names.get((owner, name), name)

    def part(self, node: ast.AST, scope: Scope, hidden: frozenset[str]) -> None:
        """`hidden`: the variables of comprehensions around it."""
        match node:
            case ast.FunctionDef() | ast.Lambda():
                for part in _outside(node):
                    self.part(part, scope, hidden)
                if isinstance(node, ast.FunctionDef):
                    node.name = self.name(node.name, scope, hidden)
                self.function(node)
                return
            case ast.ClassDef():
                return
            case ast.Name():
                node.id = self.name(node.id, scope, hidden)
            case ast.Nonlocal():
                node.names = [self.name(n, scope, hidden) for n in node.names]
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.ExceptHandler(name=str(name)):
                node.name = self.name(name, scope, hidden)
            case ast.MatchMapping(rest=str(name)):
                node.rest = self.name(name, scope, hidden)
            case ast.alias(asname=str(name)):
                node.asname = self.name(name, scope, hidden)
            case ast.alias(name=name) if "." not in name and (new := self.name(name, scope, hidden)) != name:
                node.asname = new
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                first = node.generators[0].iter
                self.part(first, scope, hidden)
                targets = {n.id for g in node.generators for n in ast.walk(g.target) if isinstance(n, ast.Name)}
                for part in _but(node, first):
                    self.part(part, scope, hidden | targets)
                return
        for part in ast.iter_child_nodes(node):
            self.part(part, scope, hidden)


def _but(node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp, first: ast.expr) -> Iterator[ast.AST]:
    """The parts of a comprehension, without what its first `for` runs over."""
    for part in ast.iter_child_nodes(node):
        if isinstance(part, ast.comprehension):
            yield from (x for x in ast.iter_child_nodes(part) if x is not first)
        else:
            yield part


def _assigned(node: ast.FunctionDef, new: str, name: str) -> ast.stmt:
    made = ast.Assign([ast.Name(new, ast.Store())], ast.Name(name, ast.Load()))
    for part in ast.walk(made):
        ast.copy_location(part, node)
    return made


def _parameters(node: FunctionNode) -> list[str]:
    a = node.args
    stars = [x for x in (a.vararg, a.kwarg) if x is not None]
    return [x.arg for x in (*a.posonlyargs, *a.args, *a.kwonlyargs, *stars)]


def _body(node: FunctionNode) -> list[ast.AST]:
    return [node.body] if isinstance(node, ast.Lambda) else [*node.body]


def _outside(node: FunctionNode) -> Iterable[ast.AST]:
    """What is evaluated where an inner function is defined."""
    decorators = node.decorator_list if isinstance(node, ast.FunctionDef) else []
    return [*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None), *decorators]


def _inside(node: FunctionNode) -> Iterator[ast.AST]:
    return (n for part in _body(node) for n in ast.walk(part))


# ---- outliving
#
# Variables that outlive their function, as functions change them that it returns, or that are kept (`outlive` in
# `cells.py`): fields of an object.
#
#     def counter():                            def counter():
#         n = 0                                     kept = <variables of counter>();  kept.n = 0
#         def step(v):                              def step(v):
#             nonlocal n                    ->          kept.n = kept.n + v
#             n = n + v                                 return kept.n
#             return n                              return step
#         return step
#
# The object has memory where it is changed (`heap.py`): each call of the function makes another one. Variables that are
# bound otherwise than by an assignment stay cells (`scopes.py`).


MARK = "\0"
"""Stands before and behind the number of a function, before the name of a variable that becomes a field."""


def with_outliving_variables(node: FunctionNode, known: frozenset[tuple[int, str]]) -> FunctionNode:
    """The function with such variables written out; itself where there are none. `known`: variables that outlive their
    function, each with the line of a function that names it, beside those that functions change which are returned."""
    if not isinstance(node, ast.FunctionDef):
        return node
    if not known and not any(True for f in ast.walk(node) for _ in _returned(f)):
        return node
    return _rewritten(node, known)


@lru_cache(maxsize=256)
def _rewritten(node: ast.FunctionDef, known: frozenset[tuple[int, str]]) -> ast.FunctionDef:
    scopes = list(scopes_of(node, None))
    names: dict[tuple[Scope, str], str] = {}
    for owner in scopes:
        leaving = set(_returned(owner.node))
        for inner in scopes:
            leaves = _is_inside(inner, owner, leaving)
            changed = inner.changed if leaves else {name for line, name in known if line == inner.node.lineno}
            for name in changed:
                if inner is not owner and inner.owner(name) is owner:
                    names[owner, name] = f"{MARK}{scopes.index(owner)}{MARK}{name}"
        lines = {n.lineno for n in _inside(owner.node) if isinstance(n, ast.GeneratorExp)}
        for name in {name for line, name in known if line in lines and name in owner.own}:
            names[owner, name] = f"{MARK}{scopes.index(owner)}{MARK}{name}"
    if not names:
        return node
    made = copy.deepcopy(node)
    copies = [s.node for s in scopes_of(made, None)]
    Renaming(dict(zip(copies, scopes, strict=True)), names).function(made)
    for owner in dict.fromkeys(owner for owner, _ in names):
        function = copies[scopes.index(owner)]
        assert isinstance(function, ast.FunctionDef)
        kind = type(f"variables of {function.name}", (), {})
        value = ast.Call(ast.Constant(kind), [], [])  # type: ignore[arg-type]
        first = ast.Assign([ast.Name(_object(str(scopes.index(owner))), ast.Store())], value)
        function.body.insert(0, _placed(first, function))
    if any(map(_is_bound_otherwise, ast.walk(made))):
        return node
    written = AsFields(_object).visit(made)
    assert isinstance(written, ast.FunctionDef)
    return written


def _object(number: str) -> str:
    return f"{KEPT}{number}>"


def _returned(node: ast.AST) -> Iterator[str | ast.Lambda]:
    """The names, and the lambdas, that a function returns, also in tuples, lists and dicts."""
    if not isinstance(node, ast.FunctionDef):
        return
    todo: list[ast.AST] = [*node.body]
    while todo:
        part = todo.pop()
        if isinstance(part, ast.Return) and part.value is not None:
            yield from _values(part.value)
        elif not isinstance(part, FunctionNode):
            todo += ast.iter_child_nodes(part)


def _values(node: ast.expr) -> Iterator[str | ast.Lambda]:
    match node:
        case ast.Name(id=name):
            yield name
        case ast.Lambda():
            yield node
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Dict(values=parts):
            for part in parts:
                yield from _values(part)
        case ast.IfExp(body=then, orelse=orelse):
            yield from _values(then)
            yield from _values(orelse)


def _is_inside(inner: Scope, owner: Scope, leaving: set[str | ast.Lambda]) -> bool:
    """Is this one of the functions that leave their owner, or inside of one?"""
    scope: Scope | None = inner
    while scope is not None and scope.outer is not owner:
        scope = scope.outer
    if scope is None:
        return False
    return (scope.node.name if isinstance(scope.node, ast.FunctionDef) else scope.node) in leaving


def _is_bound_otherwise(node: ast.AST) -> bool:
    """Does a part of the function bind such a variable, but by an assignment?"""
    match node:
        case ast.comprehension(target=target) | ast.NamedExpr(target=target):
            return any(isinstance(n, ast.Name) and n.id.startswith(MARK) for n in ast.walk(target))
        case ast.withitem(optional_vars=ast.expr() as target):
            return any(isinstance(n, ast.Name) and n.id.startswith(MARK) for n in ast.walk(target))
        case ast.Name(id=name, ctx=ast.Del()):
            return name.startswith(MARK)
        case ast.AnnAssign(target=ast.Name(id=name), value=None):
            return name.startswith(MARK)
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
            return name.startswith(MARK)
        case ast.ExceptHandler(name=str(name)) | ast.FunctionDef(name=name) | ast.alias(asname=str(name)):
            return name.startswith(MARK)
        case _:
            return False


class AsFields(ast.NodeTransformer):
    """Writes marked names as fields. `holder`: the variable of the object, by what stands between the marks."""

    def __init__(self, holder: Callable[[str], str]) -> None:
        self.holder = holder

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if not node.id.startswith(MARK):
            return node
        _, number, name = node.id.split(MARK)
        holder = ast.copy_location(ast.Name(self.holder(number), ast.Load()), node)
        return ast.copy_location(ast.Attribute(holder, name, node.ctx), node)

    def visit_For(self, node: ast.For) -> ast.AST:
        target = node.target
        if any(isinstance(n, ast.Name) and n.id.startswith(MARK) for n in ast.walk(target)):
            turn = f"<turn {node.lineno}>"
            node.target = _placed(ast.Name(turn, ast.Store()), target)
            node.body.insert(0, _placed(ast.Assign([target], ast.Name(turn, ast.Load())), target))
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        made = self.generic_visit(node)
        assert isinstance(made, ast.AnnAssign)
        if isinstance(made.target, ast.Attribute) and made.value is not None:
            return ast.copy_location(ast.Assign([made.target], made.value), node)
        return made

    def visit_Nonlocal(self, node: ast.Nonlocal) -> ast.stmt:
        left = [n for n in node.names if not n.startswith(MARK)]
        return ast.copy_location(ast.Nonlocal(left) if left else ast.Pass(), node)


Placed = TypeVar("Placed", bound=ast.AST)


def _placed(made: Placed, node: ast.AST) -> Placed:
    for part in ast.walk(made):
        ast.copy_location(part, node)
    return made
