"""Variables that the functions inside a function share with it, each under a name that no other variable has.

    def main(w):                              def main(w):
        n = w                                     `n of main` = w
        def add(v):                               def add(v):
            nonlocal n                    ->          nonlocal `n of main`
            n = n + v                                 `n of main` = `n of main` + v
        add(1.0)                                  add(1.0)

A variable that an inner function assigns, or whose list, dict or object it changes, is a *cell*: calls hand it on and
give it back (`cells.py`), through whatever functions are between. One that inner functions only read gets a name of
its own where another function has a variable of the same name, which hides it.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

FunctionNode = ast.FunctionDef | ast.Lambda
_CELL, _READ = " of ", " in "
KEPT = "<kept "
"""How the names of variables begin whose object holds what outlives a function (`outliving.py`)."""


def is_cell(name: str) -> bool:
    """Is this the name of a variable that an inner function changes?"""
    return _CELL in name and not name.startswith("<")


def cell(name: str, owner: str) -> str:
    """The name of a variable that an inner function changes."""
    return f"{name}{_CELL}{owner}"


def shown(name: str) -> str:
    """The name as the user wrote it."""
    return name.partition(_CELL)[0].partition(_READ)[0]


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


def with_names_of_their_own(node: FunctionNode, mutators: frozenset[str]) -> FunctionNode:
    """The function with cells, and variables that others hide, renamed; itself where there are none. `mutators`: the
    methods that change a list, dict or set."""
    if not isinstance(node, ast.FunctionDef) or not any(isinstance(n, FunctionNode) for n in _inside(node)):
        return node
    return _renamed(node, mutators)


@lru_cache(maxsize=256)
def _renamed(node: ast.FunctionDef, mutators: frozenset[str]) -> ast.FunctionDef:
    scopes = list(scopes_of(node, None, mutators))
    names = _new_names(scopes)
    if not names:
        return node
    made = copy.deepcopy(node)
    copies = [s.node for s in scopes_of(made, None, mutators)]
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


def scopes_of(node: FunctionNode, outer: Scope | None, mutators: frozenset[str]) -> Iterator[Scope]:
    """The function, and those inside it, outer ones first."""
    scope = Scope(node, outer)
    scope.own.update(_parameters(node))
    inner: list[FunctionNode] = []
    for part in _body(node):
        _look(part, scope, inner, mutators)
    scope.own -= scope.declared
    yield scope
    for function in inner:
        yield from scopes_of(function, scope, mutators)


def _look(node: ast.AST, scope: Scope, inner: list[FunctionNode], mutators: frozenset[str]) -> None:
    """Note what a part of a function does with variables."""
    match node:
        case ast.FunctionDef() | ast.Lambda():
            if isinstance(node, ast.FunctionDef):
                scope.own.add(node.name)
            for part in _outside(node):
                _look(part, scope, inner, mutators)
            inner.append(node)
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
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=attr)) if attr in mutators:
            scope.changed.add(name)
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
            scope.own.add(name)
        case ast.ExceptHandler(name=str(name)):
            scope.own.add(name)
        case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
            scope.own.update((a.asname or a.name).split(".")[0] for a in aliases)
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            found = Scope(scope.node, None)
            for part in ast.iter_child_nodes(node):
                _look(part, found, inner, mutators)
            targets = {n.id for g in node.generators for n in ast.walk(g.target) if isinstance(n, ast.Name)}
            scope.read |= found.read - targets
            scope.changed |= found.changed - targets
            scope.own |= found.own - targets
            return
    for part in ast.iter_child_nodes(node):
        _look(part, scope, inner, mutators)


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
