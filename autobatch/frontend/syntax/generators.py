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
import copy
import inspect
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache

from autobatch.frontend.library.groups import refuse_whole
from autobatch.frontend.lowering.access import variable
from autobatch.frontend.lowering.calls import bind_arguments, defaults_of, lookup
from autobatch.frontend.lowering.state import BROKE, FunctionFrame, LoweringState
from autobatch.frontend.syntax import cells
from autobatch.frontend.syntax.listed import found_recursive, is_recursive, listed
from autobatch.frontend.syntax.scopes import is_cell
from autobatch.frontend.syntax.sources import FunctionSource, Inlined, Lent, describe, is_user_function, source_of
from autobatch.frontend.types import values as v
from autobatch.source import Span

Body = Sequence[ast.stmt]
DONE, BROKEN = "done", "broken"


def begun(
    s: LoweringState, function: v.Abstract, args: Sequence[v.Abstract], kwargs: dict[str, v.Abstract]
) -> v.Generator | None:
    """What a call of a generator function gives; None for other functions."""
    match function:
        case v.LocalFunction(source=source, captured=captured) if _yields(source.node):
            defaults = dict(function.defaults)
        case v.Static(value=held) if is_user_function(held) and held.__code__.co_flags & inspect.CO_GENERATOR:
            source, captured, defaults = lookup(s, held), None, defaults_of(s, held)
        case _:
            return None
    bound = bind_arguments(s, source, args, kwargs, defaults)
    return v.Generator(source, tuple(bound.items()), captured, isinstance(function, v.LocalFunction))


def lent(s: LoweringState, function: Callable[..., object], /, **arguments: v.Abstract) -> v.Generator:
    """A generator function of this package, whose text stands where the user called what it does."""
    assert isinstance(function, types.FunctionType)
    cache, key = s.context.memory.sources, (function, s.frame.source, s.span)
    if key not in cache:
        source = source_of(function)
        cache[key] = Lent(**{f.name: getattr(source, f.name) for f in fields(source)}, place=s.span)
    return v.Generator(cache[key], tuple(arguments.items()))


@lru_cache(maxsize=4096)
def _yields(node: ast.AST) -> bool:
    """Is there a `yield` that is not one of a function inside?"""
    for part in ast.iter_child_nodes(node):
        if isinstance(part, ast.Yield | ast.YieldFrom):
            return True
        if not isinstance(part, ast.FunctionDef | ast.Lambda | ast.GeneratorExp) and _yields(part):
            return True
    return False


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
        cells.pass_through(s, name, name in source.cells_changed)


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
        read = _placed(ast.Expr(ast.Name(own[BROKEN], ast.Load())), node)
        always = ast.Constant(True)
        around = ast.If(always, block, []) if inside else ast.While(always, [*block, ast.Break()], [])
        text = _with(outer.node, node, [_placed(around, node), read])
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
    if found is function and isinstance(function, ast.FunctionDef):
        names = sorted({n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)})
        reads = _placed(ast.Expr(ast.Tuple([ast.Name(n, ast.Load()) for n in names], ast.Load())), node)
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
                elif isinstance(part, ast.FunctionDef | ast.Lambda):
                    self.s.refuse(f"the generator {self.source.name} holds a function", "move it out of it")
                elif isinstance(part, ast.Try | ast.With) and not self.inside:
                    self.s.refuse(f"the generator {self.source.name} holds a `try` or `with`", "move it out of it")
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
                ends = _yields(node) or any(isinstance(n, ast.Return) for n in ast.walk(node))
                node.body, node.orelse = self.statements(node.body, True), self.statements(node.orelse, in_loop)
                return [node, self.left(node)] if ends and self.may_leave() else [node]
            case ast.Match():
                for case in node.cases:
                    case.body = self.statements(case.body, in_loop)
                return [node]
            case _:
                if _yields(node):
                    self.s.refuse(
                        "a `yield` gives a value here, which `send` decides",
                        "write `yield` as a statement",
                        self.source.at(node),
                    )
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
        return [_placed(once, self.loop), self.left(self.loop)]

    def from_another(self, value: ast.expr, node: ast.stmt) -> list[ast.stmt]:
        """`yield from`: a loop over the other one."""
        body = _broken(copy.deepcopy(self.loop.body), self)
        loop = ast.copy_location(ast.For(copy.deepcopy(self.loop.target), value, body, []), node)
        return [loop, self.left(node)] if self.may_leave() else [loop]

    def set(self, flag: str, node: ast.AST) -> ast.stmt:
        made = ast.Assign([ast.Name(self.own[flag], ast.Store())], ast.Constant(True))
        return _placed(made, node)

    def left(self, node: ast.AST) -> ast.stmt:
        """Leave the loop around where the generator is done."""
        return _placed(ast.If(ast.Name(self.own[DONE], ast.Load()), [ast.Break()], []), node)


def _placed(made: ast.stmt, node: ast.AST) -> ast.stmt:
    for part in ast.walk(made):
        if not hasattr(part, "lineno"):
            ast.copy_location(part, node)
    return made


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
            case ast.Try() | ast.With() if leaves(node):
                writer.s.refuse("a `try` leaves a loop over a generator", "loop over list(...) of it")
        return [node]

    def each(statements: list[ast.stmt]) -> list[ast.stmt]:
        return [x for node in statements for x in statement(node)]

    return each(body)


def _finds(kind: type[ast.stmt]) -> Callable[[ast.AST], bool]:
    def found(node: ast.AST) -> bool:
        if isinstance(node, kind):
            return True
        if isinstance(node, ast.FunctionDef | ast.Lambda):
            return False
        if isinstance(node, ast.For | ast.While):
            return any(map(found, node.orelse))
        return any(map(found, ast.iter_child_nodes(node)))

    return found


leaves = _finds(ast.Break)
"""Does a statement leave the loop that it is in?"""

continues = _finds(ast.Continue)
"""Does a statement end the turn of the loop that it is in?"""


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
        first.iter = ast.Name("<items>", ast.Load())
        block: ast.stmt = ast.Expr(ast.Yield(copy.deepcopy(node.elt)))
        for part in reversed((first, *rest)):
            for test in reversed(part.ifs):
                block = ast.If(test, [block], [])
            block = ast.For(part.target, part.iter, [block], [])
        given = ast.arguments([], [ast.arg("<items>")], None, [], [], None, [])
        made = ast.FunctionDef("generator", given, [block], [])
        for x in ast.walk(made):
            if isinstance(x, ast.stmt | ast.expr | ast.arg) and not hasattr(x, "lineno"):
                ast.copy_location(x, node)
        cache[outer, node] = describe(made, outer.file, f"{outer.name}.generator", outer.globals, outer.function)
    return v.Generator(cache[outer, node], (("<items>", items),))
