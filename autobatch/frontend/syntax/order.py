"""Where the order of a set does not matter, which is not kept: what runs over it comes to the same in any order.

    sorted(f(x) for x in s)      any(...), all(...), sum(...), min(...), max(...), {f(x) for x in s}
    for x in s: total += f(x)    for x in s: found.add(x)

All else that runs over a set is refused. Read from the text alone; `sets.iterated` looks at what the variables hold.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from autobatch.frontend.syntax.scopes import MUTATORS

CONSUMERS = frozenset({"sorted", "min", "max", "any", "all", "sum", "set", "frozenset"})
"""Functions that take what a comprehension gives in any order."""
_PURE = frozenset(
    {"abs", "min", "max", "len", "int", "float", "bool", "round", "sum", "sorted", "tuple", "range", "divmod"}
)
_MODULES = frozenset({"math", "np", "numpy", "jnp"})
_READERS = frozenset({"get"})
_KINDS = {ast.Add: "+", ast.Sub: "+", ast.Mult: "*", ast.BitOr: "|", ast.BitAnd: "&", ast.BitXor: "^"}
_OF_SETS = {"add": "|", "update": "|", "discard": "-"}


class Walk(NamedTuple):
    """What runs over a set: the variables that it adds to, where these are numbers or sets, and those that it reads,
    where reading them changes nothing."""

    added: frozenset[str] = frozenset()
    read: frozenset[str] = frozenset()


@lru_cache(maxsize=4096)
def order_free(function: ast.AST) -> Mapping[ast.expr, Walk]:
    """The iterables of a function whose items may come in any order."""
    found: dict[ast.expr, Walk] = {}
    inner = [n for n in ast.walk(function) if isinstance(n, ast.FunctionDef) and n is not function]
    changing = frozenset(f.name for f in inner if _changes_outside(f))
    for node in ast.walk(function):
        match node:
            case ast.Call(
                func=ast.Name(id=name),
                args=[ast.GeneratorExp() | ast.ListComp() | ast.SetComp() as made, *more],
                keywords=named,
            ) if name in CONSUMERS and not more and all(k.arg != "key" for k in named):
                # (of equal keys the first comes first; sum() with a start may put lists together)
                found |= _iterated(made, changing)
            case ast.SetComp():
                found |= _iterated(node, changing)
            case ast.For(orelse=[]) if (walk := _turns(node, function)) is not None:
                found[node.iter] = walk
    return found


def _iterated(made: ast.GeneratorExp | ast.ListComp | ast.SetComp, changing: frozenset[str]) -> Mapping[ast.expr, Walk]:
    """What a comprehension runs over; nothing where it changes something on the way, or calls a function that does."""
    nodes = list(ast.walk(made))
    calls = {n.func.id for n in nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    if calls & changing or any(isinstance(n, ast.NamedExpr) or _changed(n) is not None for n in nodes):
        return {}
    return dict.fromkeys((g.iter for g in made.generators), Walk())


def _changes_outside(function: ast.FunctionDef) -> bool:
    """Does a function change a variable, or what one holds, that is not its own?"""
    nodes = list(ast.walk(function))
    own = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    if any(isinstance(n, ast.Nonlocal | ast.Global) for n in nodes):
        return True
    return any(not isinstance(x, ast.Name) or x.id not in own for x in map(_changed, nodes) if x is not None)


def _changed(node: ast.AST) -> ast.expr | None:
    """What a node changes in place, without attributes and items on the way there; None where it changes nothing."""
    match node:
        case ast.Call(func=ast.Attribute(value=held, attr=attr)) if attr in MUTATORS:
            pass
        case (
            ast.Attribute(value=held, ctx=ast.Store() | ast.Del())
            | ast.Subscript(value=held, ctx=ast.Store() | ast.Del())
        ):
            pass
        case _:
            return None
    while isinstance(held, ast.Attribute | ast.Subscript):
        held = held.value
    return held


def _turns(loop: ast.For, function: ast.AST) -> Walk | None:
    """What the turns of a loop read and add to; None where their order may matter."""
    body = _Turns()
    body.read |= set(_names(loop.iter))
    if not body.bind(loop.target) or not body.run(loop.body, set(body.own)):
        return None
    outside = set(_loads(function, frozenset(), loop))
    kept = body.read & body.added.keys() or body.own & (outside | body.added.keys())
    several = any(len(kinds) > 1 for kinds in body.added.values()) or len(body.returned) > 1
    if kept or several or (body.returned and body.added):
        return None
    return Walk(frozenset(body.added), frozenset(body.read))


def _loads(node: ast.AST, bound: frozenset[str], without: ast.For) -> Iterator[str]:
    """The variables that are read outside of a loop, and not in another one that sets them."""
    if node is without:
        return
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in bound:
        yield node.id
    targets = [node.target] if isinstance(node, ast.For) else [g.target for g in getattr(node, "generators", ())]
    within = bound | {name for target in targets for name in _names(target)}
    for child in ast.iter_child_nodes(node):
        yield from _loads(child, bound if child is getattr(node, "iter", None) else within, without)


class _Turns:
    """What the turns of a loop do. `added`: the variables that they add to, and how; `own`: those that each turn sets
    before it reads them; `read`: those that it reads; `returned`: the constants that it returns."""

    def __init__(self) -> None:
        self.added: dict[str, set[str]] = {}
        self.own: set[str] = set()
        self.read: set[str] = set()
        self.returned: set[str] = set()
        self.early: set[str] = set()

    def bind(self, target: ast.expr) -> bool:
        names = target.elts if isinstance(target, ast.Tuple) else [target]
        self.own |= {n.id for n in names if isinstance(n, ast.Name)}
        return all(isinstance(n, ast.Name) for n in names)

    def run(self, statements: Sequence[ast.stmt], known: set[str]) -> bool:
        """May these come in any order, in which `known` are set in the turn?"""
        return all(self.one(x, known) for x in statements) and not self.early & self.own

    def one(self, statement: ast.stmt, known: set[str]) -> bool:
        match statement:
            case ast.AugAssign(target=ast.Name(id=name), op=op, value=value) if type(op) in _KINDS:
                self.added.setdefault(name, set()).add(_KINDS[type(op)])
                return self.reads(value, known)
            case ast.Expr(
                value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=attr), args=args, keywords=[])
            ):
                self.added.setdefault(name, set()).add(_OF_SETS.get(attr, "?"))
                return attr in _OF_SETS and all(self.reads(x, known) for x in args)
            case ast.Assign(targets=[target], value=value):
                fits = self.reads(value, known) and self.bind(target)
                known |= set(_names(target))
                return fits
            case ast.If(test=test, body=body, orelse=orelse):
                first, second = set(known), set(known)
                fits = self.reads(test, known) and self.run(body, first) and self.run(orelse, second)
                known |= first & second
                return fits
            case ast.For(target=target, iter=iterated, body=body, orelse=[]):
                inner = known | set(_names(target))
                return self.reads(iterated, known) and self.bind(target) and self.run(body, inner)
            case ast.Return(value=ast.Constant() as constant):
                self.returned.add(ast.dump(constant))
                return True
            case ast.Continue() | ast.Pass():
                return True
        return False

    def reads(self, expression: ast.expr, known: set[str]) -> bool:
        """Note what an expression reads; does it call nothing that may change something?"""
        names = set(_names(expression))
        self.read |= names
        self.early |= names - known
        return all(map(_is_pure, ast.walk(expression)))


def _names(expression: ast.AST) -> Iterator[str]:
    return (n.id for n in ast.walk(expression) if isinstance(n, ast.Name))


def _is_pure(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name(id=name)):
            return name in _PURE
        case ast.Call(func=ast.Attribute(value=ast.Name(id=module), attr=attr)):
            return module in _MODULES or attr in _READERS
        case ast.Call() | ast.NamedExpr() | ast.Lambda() | ast.Await() | ast.Yield() | ast.YieldFrom():
            return False
        case _:
            return True
