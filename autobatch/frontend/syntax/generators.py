"""Generators of the user: what runs over one runs inside it, at its `yield`s.

    for x in halves(y, 3):              n, v = 3, y                  (under names of their own)
        s = s + x                       for i in range(n):
                              ->            x = v / (i + 1)
    def halves(v, n):                       s = s + x
        for i in range(n):
            yield v / (i + 1)

A `break` of the consumer leaves the loops of the generator too, and so does its `return`; both say so by a flag. What
reads a generator to its end (`list`, `sum`, `max`) appends each element to a list first; `any`, `all` and `next` leave
it as soon as Python does.
"""

from __future__ import annotations

import ast
import collections
import copy
import functools
import inspect
import itertools
import math
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any

from autobatch.errors import Span
from autobatch.frontend.library.groups import groups, refuse_whole
from autobatch.frontend.lowering.attributes import written
from autobatch.frontend.lowering.calls import activate, bind_arguments, defaults_of, lookup
from autobatch.frontend.lowering.carrying import leaves_early
from autobatch.frontend.lowering.joins import captured
from autobatch.frontend.lowering.sequences import zipped
from autobatch.frontend.lowering.state import BROKE, FunctionFrame, LoweringState, Restart, variable, wrap
from autobatch.frontend.syntax import cells
from autobatch.frontend.syntax.invalidation import ITERATORS
from autobatch.frontend.syntax.scopes import MUTATORS, is_cell
from autobatch.frontend.syntax.sources import (
    FunctionSource,
    Inlined,
    Lent,
    changed,
    describe,
    is_user_function,
    source_of,
)
from autobatch.frontend.syntax.state_machines import continues, leaves, placed, yields
from autobatch.frontend.types import values as v

# ---- listed
#
# Generators that run over themselves: functions that give the list of what they yield.
#
# def walk(t):                            def walk(t):
#     yield t.x                     ->        found = [t.x]
#     for kid in t.kids:                      for kid in t.kids:
#         yield from walk(kid)                    for x in walk(kid): found.append(x)
#                                             return found
#
# A loop over one runs behind it, so this is not done where it could be told apart: where the generator changes
# something, where the loop may change what it reads, or may be left before what fails or never ends. There it is an
# object (`iterators.py`).


_FOUND, _ITEM, _MARK = "<yielded>", "<one of them>", "runs over itself"
_TOTAL = frozenset({"enumerate", "isinstance", "len", "range", "reversed", "zip"})


def is_recursive(s: LoweringState, source: FunctionSource) -> bool:
    """Does a generator run over itself?"""
    return (_MARK, source) in s.context.memory.sources or _calls_itself(source.node)


def found_recursive(s: LoweringState, source: FunctionSource) -> None:
    """A generator runs over itself by way of others (`yield from self.left`, which is its `__iter__`)."""
    s.context.memory.sources[_MARK, source] = source
    raise Restart


@lru_cache(maxsize=4096)
def _calls_itself(function: ast.AST) -> bool:
    """Does a generator function call one of its own name?"""
    name = getattr(function, "name", None)
    return any(isinstance(n, ast.Call) and _name(n) == name for n in ast.walk(function))


def _name(call: ast.Call) -> str:
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def listed(s: LoweringState, generator: v.Generator) -> v.Abstract:
    """The list of what a generator yields that runs over itself."""
    source, held = generator.source, generator.captured
    if generator.local and held is None:
        made = captured(s, v.LocalFunction(source, ()))
        assert isinstance(made, v.LocalFunction)
        held = made.captured
    return activate(s, _written(s, source), dict(generator.arguments), dict(held or ()))


def tells_apart(generator: v.Generator, loop: ast.For) -> bool:
    """Could a loop tell a generator from the list of what it yields?"""
    if isinstance(loop.target, ast.Name) and loop.target.id == _ITEM:
        return False  # a `yield from`: nothing happens between two turns
    source = generator.source
    given = [x for _, x in (*generator.arguments, *(generator.captured or ()))]
    moving = source.cells_read or any(map(_may_change, given))
    if _changes(source) or (moving and not all(map(_is_quiet, loop.body))):
        return True
    return any(leaves_early(b) for b in loop.body) and not _is_total(source)


def _changes(source: FunctionSource) -> bool:
    """Does a generator change what is not its own?"""
    own = frozenset(n.id for n in ast.walk(source.node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    inner = [n for n in ast.walk(source.node) if _changes_inside(n)]
    return bool(inner) or not own.issuperset(changed(*source.body))


def _changes_inside(node: ast.AST) -> bool:
    """Does it change what a field or element holds, or a variable of another function?"""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Attribute() | ast.Subscript(), attr=name)):
            return name in MUTATORS
        case ast.Attribute(value=holder, ctx=ast.Store()) | ast.Subscript(value=holder, ctx=ast.Store()):
            return not isinstance(holder, ast.Name)
        case _:
            return isinstance(node, ast.Nonlocal | ast.Global)


def _is_quiet(statement: ast.stmt) -> bool:
    """Does a statement only assign variables of its own?"""
    return not any(map(_is_loud, ast.walk(statement)))


def _is_loud(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name))):
            return name != _FOUND
        case ast.Attribute(ctx=context) | ast.Subscript(ctx=context):
            return not isinstance(context, ast.Load)
        case _:
            return isinstance(node, ast.Call | ast.Delete | ast.With | ast.Nonlocal)


def _may_change(value: v.Abstract) -> bool:
    match value:
        case v.MemoryRow() | v.Optional(value=v.MemoryRow()) | v.Record(kind="object"):
            return True
        case v.Record(items=items):
            return any(map(_may_change, items))
        case _:
            return False


def _is_total(source: FunctionSource) -> bool:
    """Does a generator end, and fail nowhere?"""
    name = getattr(source.node, "name", "")
    if not _calls_itself(source.node):
        return False
    partial = (ast.While, ast.Raise, ast.Assert, ast.Subscript, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow)
    for node in ast.walk(source.node):
        if isinstance(node, partial) or (isinstance(node, ast.Call) and _name(node) not in (*_TOTAL, name)):
            return False
    return True


def _written(s: LoweringState, source: FunctionSource) -> FunctionSource:
    """The function that gives the list."""
    cache = s.context.memory.sources
    if ("listed", source) not in cache:
        node = copy.deepcopy(source.node)
        assert isinstance(node, ast.FunctionDef)
        first = ast.Assign([ast.Name(_FOUND, ast.Store())], ast.List([], ast.Load()))
        last = ast.Return(ast.Name(_FOUND, ast.Load()))
        body = [_Appending().visit(x) for x in node.body]
        node.body = [ast.copy_location(first, body[0]), *body, ast.copy_location(last, body[-1])]
        ast.fix_missing_locations(node)
        made = describe(node, source.file, source.name, source.globals, source.function)
        cache["listed", source] = made
    cells.note(s, cache["listed", source])
    return cache["listed", source]


class _Appending(ast.NodeTransformer):
    """Appends what a generator yields."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return node

    def visit_Return(self, node: ast.Return) -> ast.AST:
        return ast.copy_location(ast.Return(ast.Name(_FOUND, ast.Load())), node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        match node.value:
            case ast.Yield(value=value):
                return ast.copy_location(_append(value or ast.Constant(None)), node)
            case ast.YieldFrom(value=value):
                body: list[ast.stmt] = [_append(ast.Name(_ITEM, ast.Load()))]
                return ast.copy_location(ast.For(ast.Name(_ITEM, ast.Store()), value, body, []), node)
            case _:
                return node


def _append(value: ast.expr) -> ast.Expr:
    function = ast.Attribute(ast.Name(_FOUND, ast.Load()), "append", ast.Load())
    return ast.Expr(ast.Call(function, [value], []))


Body = Sequence[ast.stmt]
DONE, BROKEN = "done", "broken"


def begun(
    s: LoweringState, function: v.Abstract, args: Sequence[v.Abstract], kwargs: dict[str, v.Abstract]
) -> v.Generator | None:
    """What a call of a generator function gives; None for other functions."""
    match function:
        case v.LocalFunction(source=source, captured=captured) if yields(source.node):
            defaults = dict(function.defaults)
        case v.Static(value=held) if is_user_function(held) and held.__code__.co_flags & inspect.CO_GENERATOR:
            source, captured, defaults = lookup(s, held), None, defaults_of(s, held)
        case _:
            return None
    bound = bind_arguments(s, source, args, kwargs, defaults)
    return v.Generator(source, tuple(bound.items()), captured, isinstance(function, v.LocalFunction))


def lent(
    s: LoweringState, function: Callable[..., object], copied: bool = False, /, **arguments: v.Abstract
) -> v.Generator:
    """A generator function of this package, whose text stands where the user called what it does. `copied`: as of
    `Lent`."""
    assert isinstance(function, types.FunctionType)
    cache, key = s.context.memory.sources, (function, s.frame.source, s.span)
    if key not in cache:
        source = source_of(function)
        cache[key] = Lent(**{f.name: getattr(source, f.name) for f in fields(source)}, place=s.span, copied=copied)
    return v.Generator(cache[key], tuple(arguments.items()))


def may_be_inlined(source: FunctionSource, loop: ast.For) -> bool:
    """May a loop over the generator stand in its text?"""
    if any(isinstance(n, ast.Try | ast.With) and leaves(n) for b in loop.body for n in ast.walk(b)):
        return False
    parts = (n for b in source.body for n in ast.walk(b))
    apart = any(isinstance(n, ast.FunctionDef | ast.Lambda | ast.Try | ast.With) for n in parts)
    return not apart and not takes_values(source)


def takes_values(source: FunctionSource) -> bool:
    """Does a generator use what a `yield` gives, which is sent to it or returned by another one?"""
    parts = [n for b in source.body for n in ast.walk(b)]
    statements = {n.value for n in parts if isinstance(n, ast.Expr)}
    return any(isinstance(n, ast.Yield | ast.YieldFrom) and n not in statements for n in parts)


def run_over(s: LoweringState, node: ast.For, generator: v.Generator) -> None:
    """A loop over what a generator yields; behind it BROKE says whether the loop was left."""
    own = _run(s, node, generator, False)
    if not s.dead:
        s.bind(BROKE, s.env[own[BROKEN]].value)


def run_inside(s: LoweringState, node: ast.For, generator: v.Generator) -> None:
    """The one turn of a loop over a generator that yields once, as a `with` runs it: what the turn raises or leaves is
    raised and left where the generator yields."""
    _run(s, node, generator, True)


def _run(s: LoweringState, node: ast.For, generator: v.Generator, inside: bool) -> dict[str, str]:
    source = generator.source
    made = _inlined(s, node, source, inside)
    block, whole, own = made.block, made.whole, made.own
    _bind(s, generator, own)
    s.bind(own[DONE], v.Static(False))
    s.bind(own[BROKEN], v.Static(False))
    around, s.frame.source = s.frame.source, whole
    s.frame.generators.append(source)
    try:
        s.context.rules.execute(s, block)
    finally:
        s.frame.source = around
        s.frame.generators.pop()
    for name, value in generator.arguments:
        if isinstance(value, v.Generator):
            s.env.pop(own[name], None)
    return own


def _bind(s: LoweringState, generator: v.Generator, own: dict[str, str]) -> None:
    """Give the parameters of a generator their arguments, and what it reads from elsewhere its value."""
    source, held = generator.source, dict(generator.captured or ())
    for name, value in generator.arguments:
        s.bind(own[name], value)
    elsewhere = LoweringState(FunctionFrame(s.context, source, held), s.block, {}, span=s.span)
    for name in source.free:
        if name in own:
            s.bind(own[name], held[name] if name in held else variable(elsewhere, name))
    for name in sorted(source.cells_read):
        cells.pass_through(s, source, name, name in source.cells_changed)


def _inlined(s: LoweringState, node: ast.For, source: FunctionSource, inside: bool) -> Inlined:
    """What a loop over a generator is. `inside`: as in `run_inside`."""
    outer, cache = s.frame.source, s.context.memory.inlined
    key = (outer, node, source)
    if key not in cache:
        number = sum(x is source for x in s.frame.generators)
        if number > 3:
            found_recursive(s, source)
        local = s.frame.source.function is None or source.function is not s.frame.source.function
        names = [*source.locals, DONE, BROKEN, *(source.free if local else ())]
        own = {n: f"{n} in {source.name}{' ' + str(len(cache))}" for n in names if not is_cell(n)}
        if _is_here(s, source):
            own = {n: x for n, x in own.items() if n in source.locals or n in (DONE, BROKEN)}
        writer = _GeneratorWriter(s, node, source, own, inside)
        block = writer.block(copy.deepcopy(source.body))
        read = placed(ast.Expr(ast.Name(own[BROKEN], ast.Load())), node)
        always = ast.Constant(True)
        around = ast.If(always, block, []) if inside else ast.While(always, [*block, ast.Break()], [])
        text = _with(outer.node, node, [placed(around, node), read])
        whole = describe(text, outer.file, outer.name, outer.globals, outer.function)
        whole.places.update(writer.places)
        cache[key] = Inlined(block, whole, own)
    return cache[key]


def _is_here(s: LoweringState, source: FunctionSource) -> bool:
    """Is the generator defined in the function at hand, or around it, so that its free variables are those?"""
    return source.function is None or source.function is s.frame.source.function


def _with(function: ast.AST, node: ast.For, block: Body) -> ast.FunctionDef | ast.Lambda:
    """The function with other statements in the place of a loop. Where the loop is none of its own, but was written by
    another pass, they stand in front of all, and whatever the function reads may be read behind them."""
    found = _replaced(function, node, block)
    if found is function and isinstance(function, ast.Lambda):
        given = ast.FunctionDef("lambda", function.args, [placed(ast.Return(function.body), node)], [])
        return _with(placed(given, node), node, block)
    if found is function and isinstance(function, ast.FunctionDef):
        names = sorted({n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)})
        reads = placed(ast.Expr(ast.Tuple([ast.Name(n, ast.Load()) for n in names], ast.Load())), node)
        found = copy.copy(function)
        found.body = [*block, reads, *function.body]
    assert isinstance(found, ast.FunctionDef | ast.Lambda)
    return found


def _replaced(node: ast.AST, old: ast.For, block: Body) -> ast.AST:
    if node is old:
        return ast.copy_location(ast.If(ast.copy_location(ast.Constant(True), old), list(block), list(old.orelse)), old)
    changes: dict[str, list[ast.AST]] = {}
    for name in ("body", "orelse", "handlers", "cases", "finalbody"):
        parts = getattr(node, name, None)
        if isinstance(parts, list):
            new = [_replaced(p, old, block) for p in parts]
            if any(x is not y for x, y in zip(new, parts, strict=True)):
                changes[name] = new
    if not changes:
        return node
    made = copy.copy(node)
    for name, new in changes.items():
        setattr(made, name, new)
    return made


@dataclass
class _GeneratorWriter:
    """Writes the body of a generator with the consumer's at its `yield`s."""

    s: LoweringState
    loop: ast.For
    source: FunctionSource
    own: dict[str, str]
    inside: bool
    places: dict[ast.AST, Span] = field(default_factory=dict)

    def block(self, body: Body) -> list[ast.stmt]:
        for statement in body:
            for part in ast.walk(statement):
                if hasattr(part, "lineno"):
                    self.places[part] = self.source.at(part)
                if isinstance(part, ast.Name):
                    part.id = self.own.get(part.id, part.id)
                elif isinstance(part, ast.MatchAs | ast.MatchStar | ast.ExceptHandler) and part.name is not None:
                    part.name = self.own.get(part.name, part.name)
        return self.statements(body, False)

    def statements(self, body: Body, in_loop: bool) -> list[ast.stmt]:
        return [x for statement in body for x in self.statement(statement, in_loop)]

    def statement(self, node: ast.stmt, in_loop: bool) -> list[ast.stmt]:
        match node:
            case ast.Expr(value=ast.Yield(value=value)):
                given = value or ast.copy_location(ast.Constant(None), node)
                first = ast.copy_location(ast.Assign([copy.deepcopy(self.loop.target)], given), node)
                return [first, *self.loop.body] if self.inside else self.consumed([first])
            case ast.Try() | ast.With():
                node.body = self.statements(node.body, in_loop)
                return [node]
            case ast.Expr(value=ast.YieldFrom(value=value)):
                return self.from_another(value, node)
            case ast.Return():
                return [self.set(DONE, node), ast.copy_location(ast.Break(), node)]
            case ast.If():
                node.body, node.orelse = self.statements(node.body, in_loop), self.statements(node.orelse, in_loop)
                return [node]
            case ast.For() | ast.While():
                ends = yields(node) or any(isinstance(n, ast.Return) for n in ast.walk(node))
                node.body, node.orelse = self.statements(node.body, True), self.statements(node.orelse, in_loop)
                return [node, self.left(node)] if ends and self.may_leave() else [node]
            case ast.Match():
                for case in node.cases:
                    case.body = self.statements(case.body, in_loop)
                return [node]
            case _:
                return [node]

    def may_leave(self) -> bool:
        returns = any(isinstance(n, ast.Return) for n in ast.walk(self.source.node))
        return returns or any(leaves(b) for b in self.loop.body)

    def consumed(self, before: list[ast.stmt]) -> list[ast.stmt]:
        """The consumer's turn."""
        body = [*before, *_broken(copy.deepcopy(self.loop.body), self)]
        if not any(leaves(b) or continues(b) for b in self.loop.body):
            return body
        name = ast.Name(f"turn in {self.source.name}", ast.Store())
        once = ast.For(name, ast.Tuple([ast.Constant(None)], ast.Load()), body, [])
        return [placed(once, self.loop), self.left(self.loop)]

    def from_another(self, value: ast.expr, node: ast.stmt) -> list[ast.stmt]:
        """`yield from`: a loop over the other one."""
        body = _broken(copy.deepcopy(self.loop.body), self)
        loop = ast.copy_location(ast.For(copy.deepcopy(self.loop.target), value, body, []), node)
        return [loop, self.left(node)] if self.may_leave() else [loop]

    def set(self, flag: str, node: ast.AST) -> ast.stmt:
        made = ast.Assign([ast.Name(self.own[flag], ast.Store())], ast.Constant(True))
        return placed(made, node)

    def left(self, node: ast.AST) -> ast.stmt:
        """Leave the loop around where the generator is done."""
        return placed(ast.If(ast.Name(self.own[DONE], ast.Load()), [ast.Break()], []), node)


def _broken(body: list[ast.stmt], writer: _GeneratorWriter) -> list[ast.stmt]:
    """The consumer's body, each `break` of its loop preceded by flags that say so."""

    def statement(node: ast.stmt) -> list[ast.stmt]:
        match node:
            case ast.Break():
                return [writer.set(DONE, node), writer.set(BROKEN, node), node]
            case ast.For() | ast.While():
                node.orelse = each(node.orelse)
            case ast.If():
                node.body, node.orelse = each(node.body), each(node.orelse)
            case ast.Match():
                for case in node.cases:
                    case.body = each(case.body)
        return [node]

    def each(statements: list[ast.stmt]) -> list[ast.stmt]:
        return [x for node in statements for x in statement(node)]

    return each(body)


# ---- generators in expressions


def run(s: LoweringState, generator: v.Generator, start: v.Abstract, body: str) -> v.Abstract:
    """Run over a generator with a body that sets what is `found`, from `start` on."""
    cache, key = s.context.memory.consumers, (s.frame.source, s.span, generator.source, body)
    if key not in cache:
        loop = ast.parse(f"for item in source:\n    {body}").body[0]
        assert isinstance(loop, ast.For)
        for part in ast.walk(loop):
            if isinstance(part, ast.Name):
                part.id = f"<{part.id} {len(cache)}>"
            if isinstance(part, ast.stmt | ast.expr):
                part.lineno = part.end_lineno = s.span.line
                part.col_offset = part.end_col_offset = s.span.column - 1
        cache[key] = loop
    loop = cache[key]
    names = {n.id.split()[0]: n.id for n in ast.walk(loop) if isinstance(n, ast.Name)}
    found, source = names["<found"], names["<source"]
    s.bind(found, start)
    s.bind(source, generator)
    s.context.rules.execute(s, [loop])
    s.env.pop(source, None)
    return s.env.pop(found).value


def yielded(s: LoweringState, generator: v.Generator) -> v.Abstract:
    """The list of all that a generator yields."""
    refuse_whole(s, generator)
    if is_recursive(s, generator.source):
        return listed(s, generator)
    return run(s, generator, v.Record("list", (), ()), "found.append(item)")


def expression(s: LoweringState, node: ast.GeneratorExp | ast.ListComp, items: v.Generator) -> v.Generator:
    """`(e for x in items if c)`, where what is run over is a generator."""
    cache, outer = s.context.memory.sources, s.frame.source
    if (outer, node) not in cache:
        first, *rest = copy.deepcopy(node.generators)
        first.iter = ast.Name("gi_source", ast.Load())
        block: ast.stmt = ast.Expr(ast.Yield(copy.deepcopy(node.elt)))
        for part in reversed((first, *rest)):
            for test in reversed(part.ifs):
                block = ast.If(test, [block], [])
            block = ast.For(part.target, part.iter, [block], [])
        given = ast.arguments([], [ast.arg("gi_source")], None, [], [], None, [])
        made = ast.FunctionDef("generator", given, [block], [])
        for x in ast.walk(made):
            if isinstance(x, ast.stmt | ast.expr | ast.arg) and not hasattr(x, "lineno"):
                ast.copy_location(x, node)
        cache[outer, node] = describe(made, outer.file, f"{outer.name}.generator", outer.globals, outer.function)
    return v.Generator(cache[outer, node], (("gi_source", items),), local=True)


# ---- stepping
#
# Functions that take a generator step by step (`zip`, `enumerate`, `itertools.takewhile`, `any`, `next`): generators
# themselves, in Python, which a loop over them runs inside. So what a generator does, and how far it runs, is as Python
# has it; what reads a generator to its end (`sum`, `list`, `sorted`) makes a list of it (`sequences.py`).
#
# for k, x in enumerate(g(y)):    ->    k = 0
#     ...                               for x in g(y):
#                                           ...; k = k + 1


Arguments = Sequence[v.Abstract]
Named = dict[str, v.Abstract]


def _enumerate(items: Any, start: Any) -> Any:
    k = start
    for item in items:
        yield k, item
        k = k + 1


def _takewhile(predicate: Any, items: Any) -> Any:
    for item in items:
        if not predicate(item):
            break
        yield item


def _dropwhile(predicate: Any, items: Any) -> Any:
    dropping = True
    for item in items:
        if dropping and predicate(item):
            continue
        dropping = False
        yield item


def _islice(items: Any, start: Any, stop: Any, step: Any) -> Any:
    if start < 0 or stop < 0 or step < 1:
        raise ValueError("the arguments of islice() must not be negative, nor its step 0")
    k = 0
    if stop > 0:
        for item in items:
            if k >= start and (k - start) % step == 0:
                yield item
            k = k + 1
            if k >= stop:
                break


def _islice_on(items: Any, start: Any, step: Any) -> Any:
    if start < 0 or step < 1:
        raise ValueError("the arguments of islice() must not be negative, nor its step 0")
    k = 0
    for item in items:
        if k >= start and (k - start) % step == 0:
            yield item
        k = k + 1


def _chain(first: Any, second: Any) -> Any:
    yield from first
    yield from second


def _chain_of(parts: Any) -> Any:
    for part in parts:
        yield from part


def _map(function: Any, items: Any) -> Any:
    for item in items:
        yield function(item)


def _filter(function: Any, items: Any) -> Any:
    for item in items:
        if function(item):
            yield item


def _truthy(items: Any) -> Any:
    for item in items:
        if item:
            yield item


def _count(start: Any, step: Any) -> Any:
    k = start
    while True:
        yield k
        k = k + step


def _repeat(item: Any) -> Any:
    while True:
        yield item


def _itself(item: Any) -> Any:
    return item


def _zip_first(items: Any, others: Any) -> Any:
    k, n = 0, len(others)
    for item in items:
        if k >= n:
            break
        yield item, *others[k]
        k = k + 1


def _zip_last(others: Any, items: Any) -> Any:
    k, n = 0, len(others)
    if n > 0:
        for item in items:
            yield *others[k], item
            k = k + 1
            if k >= n:
                break


def _zip_between(before: Any, items: Any, others: Any) -> Any:
    k, n, m = 0, len(before), len(others)
    if n > 0:
        for item in items:
            if k >= m:
                break
            yield *before[k], item, *others[k]
            k = k + 1
            if k >= n:
                break


def _counted(items: Any, start: Any, step: Any) -> Any:
    k = start
    for item in items:
        yield item, k
        k = k + step


def _numbered(start: Any, step: Any, items: Any) -> Any:
    k = start
    for item in items:
        yield k, item
        k = k + step


def called(s: LoweringState, held: object, args: Arguments, kwargs: Named) -> v.Abstract | None:
    """What a function gives that takes its argument step by step; None for other functions, and for other arguments."""
    always = any(held is x for x in (itertools.takewhile, itertools.dropwhile, itertools.count, itertools.groupby))
    always = (
        always
        or held in (itertools.cycle, itertools.tee)
        or (held is itertools.repeat and len(args) == 1 and not kwargs)
    )
    if any(held is x for x in _STEPPING):
        args = [lent(s, through, iterator=x) if written(s, x, "__next__") else x for x in args]
    if not always and not any(isinstance(x, v.Generator) for x in args):
        return None
    if any(held is x for x in _WHOLE):
        items = [yielded(s, x) if isinstance(x, v.Generator) else x for x in args]
        return items[0] if held is list else s.call(v.Static(held), items, kwargs)
    made = next((f for x, f in _BY_FUNCTION.items() if x == held), None)  # `held` may have no hash
    if made is not None:
        return made(s, args, kwargs)
    if any(held is x for x in ITERATORS):
        name = getattr(held, "__name__", "")
        s.refuse(f"{name}() of a generator cannot be compiled", f"make a list of it: {name}(list(...))")
    return None


def _takes(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    return lent(s, _takewhile, predicate=args[0], items=args[1])


def _drops(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    return lent(s, _dropwhile, predicate=args[0], items=args[1])


def _counts(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    start = args[0] if args else kwargs.get("start", v.Static(0))
    return lent(s, _count, start=start, step=args[1] if len(args) > 1 else kwargs.get("step", v.Static(1)))


def _repeats(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    if len(args) != 1 or kwargs:
        s.refuse("itertools.repeat() of a generator cannot be compiled", "make a list of it: list(...)")
    return lent(s, _repeat, item=args[0])


def _groups(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    key = args[1] if len(args) > 1 else kwargs.get("key", v.Static(None))
    key = wrap(s.context, _itself) if key == v.Static(None) else key
    items = yielded(s, args[0]) if isinstance(args[0], v.Generator) else args[0]
    return lent(s, groups, items=items, key=key)


def _enumerates(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    start = args[1] if len(args) > 1 else kwargs.get("start", v.Static(0))
    return lent(s, _enumerate, items=args[0], start=start)


def _maps(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    if len(args) == 2:
        return lent(s, _map, function=args[0], items=args[1])
    return lent(s, _map_over, function=args[0], items=_zips(s, args[1:], {}))


def _filters(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    if args[0] == v.Static(None):
        return lent(s, _truthy, items=args[1])
    return lent(s, _filter, function=args[0], items=args[1])


def _chains(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    return functools.reduce(lambda a, b: lent(s, _chain, first=a, second=b), args)


def _chains_of(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    return lent(s, _chain_of, parts=args[0])


def _slices(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    items, *bounds = args
    start, stop, step = [v.Static(0), *bounds, v.Static(1)] if len(bounds) == 1 else [*bounds, v.Static(1)][:3]
    start = v.Static(0) if start == v.Static(None) else start
    step = v.Static(1) if step == v.Static(None) else step
    if stop == v.Static(None):
        return lent(s, _islice_on, items=items, start=start, step=step)
    return lent(s, _islice, items=items, start=start, stop=stop, step=step)


def _zips(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    given = [k for k, x in enumerate(args) if isinstance(x, v.Generator)]
    strict = kwargs.get("strict", v.Static(False))
    if not isinstance(strict, v.Static):
        s.refuse("`strict` of zip() is computed", "write two calls, in the arms of an `if`")
    several = len(given) > 1 or (strict.value and len(args) > 1)
    match args:
        case _ if not several or strict.value:
            pass
        case [items, v.Generator() as other] if other.source.function is _count:
            return lent(s, _counted, items=items, **dict(other.arguments))
        case [v.Generator() as other, items] if other.source.function is _count:
            return lent(s, _numbered, **dict(other.arguments), items=items)
    if several:
        first, second, *rest = [s.call(v.Static(iter), [x]) for x in args]
        rows = s.context.rules.iterator(s, lent(s, _zip_two, first=first, second=second, strict=strict))
        for one in rest:
            rows = s.context.rules.iterator(s, lent(s, _zip_more, rows=rows, other=one, strict=strict))
        return rows
    at = given[0]
    items, before, behind = args[at], args[:at], args[at + 1 :]
    if not before and not behind:
        return lent(s, _alone, items=items)
    if not before:
        return lent(s, _zip_first, items=items, others=zipped(s, behind, False))
    if not behind:
        return lent(s, _zip_last, others=zipped(s, before, False), items=items)
    return lent(s, _zip_between, before=zipped(s, before, False), items=items, others=zipped(s, behind, False))


def _any(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    return run(s, _generator(args[0]), v.Static(False), "if item:\n        found = True\n        break")


def _all(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    return run(s, _generator(args[0]), v.Static(True), "if not item:\n        found = False\n        break")


def _next(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    items = run(s, _generator(args[0]), v.Record("list", (), ()), "found.append(item)\n    break")
    function = _first if len(args) == 1 else _first_or
    return s.call(wrap(s.context, function), [items, *args[1:]])


def _generator(value: v.Abstract) -> v.Generator:
    assert isinstance(value, v.Generator)
    return value


def _cycles(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    return lent(s, _cycle, items=args[0])


def _tees(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    count = args[1] if len(args) > 1 else kwargs.get("n", v.Static(2))
    if not isinstance(count, v.Static):
        s.refuse("itertools.tee() of a computed number of iterators", "make a list of the items: list(...)")
    shared = s.call(wrap(s.context, _TeeBuffer), [s.call(v.Static(iter), [args[0]])])
    made = tuple(s.context.rules.iterator(s, lent(s, _tee, shared=shared)) for _ in range(count.value))
    return v.Record("tuple", tuple(range(len(made))), made)


class _TeeBuffer:
    """What several iterators of `tee` read."""

    def __init__(self, iterator: Any) -> None:
        self.iterator = iterator
        self.items: list[Any] = []

    def holds(self, place: int) -> bool:
        """Is there an item of this place? It is read where it is the next one."""
        found = True
        if place == len(self.items):
            try:
                self.items.append(next(self.iterator))
            except StopIteration:
                found = False
        return found


def _tee(shared: Any) -> Any:
    place = 0
    while shared.holds(place):
        yield shared.items[place]
        place += 1


def _cycle(items: Any) -> Any:
    read = []
    for item in items:
        read.append(item)
        yield item
    while read:
        for item in read:
            yield item


def _zip_two(first: Any, second: Any, strict: Any) -> Any:
    for item in first:
        try:
            found = next(second)
        except StopIteration:
            if strict:
                raise ValueError("zip() argument 2 is shorter than argument 1") from None
            return
        yield item, found
    if strict and _has_more(second):
        raise ValueError("zip() argument 2 is longer than argument 1")


def _zip_more(rows: Any, other: Any, strict: Any) -> Any:
    for row in rows:
        try:
            found = next(other)
        except StopIteration:
            if strict:
                raise ValueError("zip() argument is shorter than the ones before") from None
            return
        yield (*row, found)
    if strict and _has_more(other):
        raise ValueError("zip() argument is longer than the ones before")


def _has_more(iterator: Any) -> Any:
    for _ in iterator:
        return True
    return False


def through(iterator: Any) -> Any:
    yield from iterator


def _alone(items: Any) -> Any:
    for item in items:
        yield (item,)


def _map_over(function: Any, items: Any) -> Any:
    for item in items:
        yield function(*item)


def _first_or(items: list[object], default: object) -> object:
    """Lowered like a function of the user."""
    return items[0] if items else default


def _first(items: list[object]) -> object:
    """Lowered like a function of the user."""
    if not items:
        raise StopIteration
    return items[0]


_WHOLE = (
    *(dict, frozenset, list, max, min, set, sorted, sum, tuple, math.fsum, math.prod, collections.deque),
    *(functools.reduce, itertools.product, itertools.combinations),
)
"""Functions that read all of what they are given before they give anything."""
_BY_FUNCTION: dict[Any, Callable[[LoweringState, Arguments, Named], v.Abstract]] = {
    all: _all,
    any: _any,
    enumerate: _enumerates,
    filter: _filters,
    itertools.chain: _chains,
    itertools.chain.from_iterable: _chains_of,
    itertools.count: _counts,
    itertools.cycle: _cycles,
    itertools.dropwhile: _drops,
    itertools.groupby: _groups,
    itertools.islice: _slices,
    itertools.repeat: _repeats,
    itertools.takewhile: _takes,
    itertools.tee: _tees,
    map: _maps,
    next: _next,
    zip: _zips,
}
_STEPPING = tuple(x for x in _BY_FUNCTION if x is not next)
