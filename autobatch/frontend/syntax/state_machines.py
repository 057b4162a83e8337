"""Generators as classes: `__next__` is a state machine, and the variables that live across a `yield` are fields.

    def halves(v, n):                  class halves:
        for i in range(n):                 def __init__(self, v, n):
            yield v / (i + 1)                  self.v, self.n, self.state = v, n, 0
                                           def __next__(self):
                                               state, self.state = self.state, ENDED
                             ->                if state == 0:
                                                   self.items = iter(range(self.n))
                                                   state = 1
                                               if state == 1:
                                                   try: self.i = next(self.items); more = True
                                                   except StopIteration: more = False
                                                   if more:
                                                       self.state = 1
                                                       return self.v / (self.i + 1)
                                               raise StopIteration

The body becomes basic blocks, cut at each `yield`; blocks that one other leads to are written where that one ends, and
the others stand one behind another, in an order in which control runs forward. Where it runs backward without a `yield`
between, all of them stand in a loop. (C# compiles its iterators so, JavaScript's regenerator its generators; blocks and
their order: Aho, Lam, Sethi, Ullman: Compilers, 2nd edition, 8.4 and 9.6.)

A class, not a text, is what a generator is that is kept, passed, or run over in several places. One that a single
loop runs over is cheaper as a part of that loop (`generators.py`).
"""

from __future__ import annotations

import ast
import copy
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

from autobatch.frontend.syntax.iterator_variables import place_of
from autobatch.frontend.syntax.scopes import MARK, AsFields, FunctionNode, Renaming, scopes_of
from autobatch.frontend.syntax.sources import WRITTEN, LiveNames, parameters

ENDED = -1
SENT, STATE, RESULT = "gi_sent", "gi_state", "gi_result"
"""Fields: what `send` gives, the block that is next, and what the generator has returned."""
_SELF, _NOW, _MORE, _VALUE = "gi_self", "<state>", "<more>", "<value>"
_NEXT = "<next "
_OWN = "own "  # before the names that a variable has only while a statement binds it


_IN_AN_EXPRESSION = ("a `yield` stands in an expression", "give what it gives a name: x = yield y")


class NotAMachine(Exception):
    """Why a generator cannot be written so: what stands where, and what to do."""

    def __init__(self, node: ast.AST, what: str, cure: str) -> None:
        super().__init__(what)
        self.node, self.what, self.cure = node, what, cure


def class_of(
    node: ast.FunctionDef, file: str, globals: dict[str, Any], captured: Mapping[str, str], own: str | None = None
) -> type:
    """The class of what calls of a generator function give. `captured`: variables of the functions around it, and
    as what arguments `__init__` takes them; `own`: the variable that holds the function itself, where it calls itself.

    Raises:
      NotAMachine: it holds what cannot be resumed: `yield` in `with`, `finally` or an expression.
    """
    written = copy.deepcopy(node)
    if own is not None:
        _Recursive(written, own, captured).visit(written)
    methods = _StateMachine(written, captured).methods()
    members: dict[str, Any] = {m.name: _function(m, file, globals) for m in methods}
    if not any(isinstance(n, ast.Return) and n.value is not None for n in _own(node.body)):
        members[RESULT] = None
    made = type(f"generator {node.name}", (), {"__module__": globals.get("__name__", ""), **members})
    for constant in (n for m in methods for n in ast.walk(m) if isinstance(n, ast.Constant)):
        value: Any = constant.value
        if value is _Recursive:
            constant.value = made  # type: ignore[assignment]
    return made


class _Recursive(ast.NodeTransformer):
    """Writes calls of a local generator in itself as calls of its class. That stands there when it is made; till then
    this class does."""

    def __init__(self, function: ast.FunctionDef, own: str, captured: Mapping[str, str]) -> None:
        self.function, self.own, self.captured = function, own, captured

    def visit_Call(self, node: ast.Call) -> ast.expr:
        match node.func:
            case ast.Name(id=name) if name == self.own:
                spread = any(isinstance(x, ast.Starred) for x in node.args) or any(k.arg is None for k in node.keywords)
                if spread or len(node.args) + len(node.keywords) != len(parameters(self.function)):
                    raise NotAMachine(node, "it calls itself without all of its arguments", "give all of them")
                node.func = placed(_known(_Recursive), node)
                node.keywords += [placed(ast.keyword(given, _get(name)), node) for name, given in self.captured.items()]
            case _:
                pass
        return self.generic_visit(node)  # type: ignore[return-value]

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id == self.own:
            raise NotAMachine(node, "it names itself, not only to call itself", "hand the function to it")
        return node


def _function(node: ast.FunctionDef, file: str, globals: dict[str, Any]) -> types.FunctionType:
    """A method as Python runs it. The front end reads its syntax tree, whose constants may be functions."""
    names: dict[str, Any] = {}
    plain = ast.Module([_Plain().visit(copy.deepcopy(node))], [])
    exec(compile(ast.fix_missing_locations(plain), file, "exec"), globals, names)
    made = names[node.name]
    assert isinstance(made, types.FunctionType)
    setattr(made, WRITTEN, node)
    return made


class _Plain(ast.NodeTransformer):
    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        known: Any = node.value
        if known is _Recursive:
            return ast.copy_location(ast.Call(_get("type"), [_get(_SELF)], []), node)
        return ast.copy_location(ast.Name(known.__name__, ast.Load()), node) if callable(known) else node


# ---- basic blocks


@dataclass(eq=False)
class _BasicBlock:
    """Statements that run one after another, and what comes then. `guards`: the `try` around it, the innermost last."""

    number: int
    guards: tuple[_Guard, ...] = ()
    body: list[ast.stmt] = field(default_factory=list)
    end: _Jump | _Branch | _Yield | _Return | None = None


@dataclass(eq=False)
class _Guard:
    """The handlers of a `try`, and the block that each of them is. One that control does not leave stands in the
    handler itself, and the block is what follows."""

    handlers: list[tuple[ast.ExceptHandler, _BasicBlock]]


@dataclass(eq=False)
class _Jump:
    target: _BasicBlock


@dataclass(eq=False)
class _Branch:
    test: ast.expr
    then: _BasicBlock
    orelse: _BasicBlock


@dataclass(eq=False)
class _Yield:
    value: ast.expr
    resumed: _BasicBlock
    at: ast.AST


@dataclass(eq=False)
class _Return:
    value: ast.expr | None
    at: ast.AST


def _reached(block: _BasicBlock, start: _BasicBlock) -> _BasicBlock:
    """Where a jump to a block leads, past those in which nothing happens."""
    seen = {start}
    while isinstance(block.end, _Jump) and not block.body and block not in seen:
        seen.add(block)
        block = block.end.target
    return block


def _targets(block: _BasicBlock) -> Sequence[_BasicBlock]:
    """Where control goes on without a `yield`: the end of the block, then handlers."""
    match block.end:
        case _Jump(target=target):
            found = [target]
        case _Branch(then=then, orelse=orelse):
            found = [then, orelse]
        case _:
            found = []
    return [*found, *(h for guard in block.guards for _, h in guard.handlers)]


@dataclass(frozen=True)
class _Around:
    """What is around a statement: where `break` and `continue` lead, and the guards."""

    broken: _BasicBlock | None = None
    continued: _BasicBlock | None = None
    guards: tuple[_Guard, ...] = ()


class _StateMachine:
    def __init__(self, node: ast.FunctionDef, captured: Mapping[str, str]) -> None:
        self.node, self.captured = node, captured
        self.blocks: list[_BasicBlock] = []
        self.iterators = 0
        self.takes_sent = any(
            isinstance(n, ast.Assign | ast.AugAssign) and isinstance(n.value, ast.Yield) for n in _own(node.body)
        )
        first = self.block(_Around())
        last = self.statements(node.body, first, _Around())
        if last is not None:
            last.end = _Return(None, node)
        for block in self.blocks:
            match block.end:
                case _Jump(target=target):
                    block.end = _Jump(_reached(target, block))
                case _Branch(test=test, then=then, orelse=orelse):
                    block.end = _Branch(test, _reached(then, block), _reached(orelse, block))
                case _Yield(value=value, resumed=resumed, at=at):
                    block.end = _Yield(value, _reached(resumed, block), at)
                case _:
                    pass

    # ---- cutting the body

    def block(self, around: _Around) -> _BasicBlock:
        made = _BasicBlock(len(self.blocks), around.guards)
        self.blocks.append(made)
        return made

    def statements(self, body: Iterable[ast.stmt], block: _BasicBlock | None, around: _Around) -> _BasicBlock | None:
        """Where control is behind the statements; None where it does not get there."""
        for statement in body:
            if block is None:
                return None
            block = self.statement(statement, block, around)
        return block

    def statement(self, node: ast.stmt, block: _BasicBlock, around: _Around) -> _BasicBlock | None:
        match node:
            case ast.Return(value=value):
                block.end = _Return(value, node)
                return None
            case ast.Break() | ast.Continue():
                target = around.broken if isinstance(node, ast.Break) else around.continued
                assert target is not None
                block.end = _Jump(target)
                return None
            case ast.Expr(value=ast.Yield()) | ast.Assign(value=ast.Yield()) | ast.AugAssign(value=ast.Yield()):
                assert isinstance(node.value, ast.Yield)
                return self.suspended(node, node.value, block, around)
            case (
                ast.Expr(value=ast.YieldFrom())
                | ast.Assign(value=ast.YieldFrom())
                | ast.AugAssign(value=ast.YieldFrom())
            ):
                assert isinstance(node.value, ast.YieldFrom)
                return self.from_another(node, node.value.value, block, around)
            case _ if not _is_cut(node):
                block.body.append(node)
                return block
            case ast.If():
                return self.chosen(node, block, around)
            case ast.While(test=test, body=body, orelse=orelse):
                head, inside, behind = self.block(around), self.block(around), self.block(around)
                block.end = _Jump(head)
                head.end = _Branch(test, inside, left := self.block(around))
                self.turns(body, inside, head, behind, around)
                _go_on(self.statements(orelse, left, around), behind)
                return behind
            case ast.For():
                return self.stepped(node, block, around)
            case ast.Try():
                return self.guarded(node, block, around)
            case ast.Match():
                return self.matched(node, block, around)
            case ast.With():
                raise NotAMachine(node, "a `yield` stands in a `with`", "loop over the generator where it is made")
            case _:
                raise NotAMachine(node, *_IN_AN_EXPRESSION)

    def suspended(self, node: ast.stmt, given: ast.Yield, block: _BasicBlock, around: _Around) -> _BasicBlock:
        behind = self.block(around)
        value = given.value or ast.copy_location(ast.Constant(None), node)
        block.end = _Yield(value, behind, node)
        if isinstance(node, ast.Assign | ast.AugAssign):
            node.value = placed(_field(SENT), given)
            behind.body.append(node)
        return behind

    def from_another(self, node: ast.stmt, value: ast.expr, block: _BasicBlock, around: _Around) -> _BasicBlock | None:
        """`yield from`: a loop over the other one. `x = yield from g` is what it has returned."""
        if self.takes_sent:
            raise NotAMachine(node, "what is sent to it goes to another one by `yield from`", "write the loop out")
        item, other = f"<item {self.iterators}>", self.iterator()
        body: list[ast.stmt] = [ast.Expr(ast.Yield(ast.Name(item, ast.Load())))]
        loop = ast.For(ast.Name(item, ast.Store()), value, body, [])
        behind = self.stepped(placed(loop, node), block, around)
        if isinstance(node, ast.Assign | ast.AugAssign):
            node.value = placed(ast.Attribute(_field(other), RESULT, ast.Load()), node)
            behind.body.append(node)
        return behind

    def chosen(self, node: ast.If, block: _BasicBlock, around: _Around) -> _BasicBlock | None:
        then, orelse = self.block(around), self.block(around)
        block.end = _Branch(node.test, then, orelse)
        ends = self.statements(node.body, then, around), self.statements(node.orelse, orelse, around)
        if ends == (None, None):
            return None
        behind = self.block(around)
        for end in ends:
            _go_on(end, behind)
        return behind

    def turns(
        self, body: Sequence[ast.stmt], inside: _BasicBlock, head: _BasicBlock, behind: _BasicBlock, around: _Around
    ) -> None:
        end = self.statements(body, inside, _Around(behind, head, around.guards))
        _go_on(end, head)

    def iterator(self) -> str:
        """The field of the next iterator."""
        return f"gi_items{self.iterators}"

    def stepped(self, node: ast.For, block: _BasicBlock, around: _Around) -> _BasicBlock:
        items = self.iterator()
        self.iterators += 1
        begin = ast.Call(_known(iter), [node.iter], [])
        block.body.append(placed(ast.Assign([_field(items, ast.Store())], begin), node.iter))
        head, inside, behind = self.block(around), self.block(around), self.block(around)
        block.end = _Jump(head)
        item = f"{_NEXT}{items}>"  # one for each loop: its items may have a type of their own
        step = _set(item, ast.Call(_known(next), [_field(items)], []))
        inside.body.append(placed(ast.Assign([node.target], _get(item)), node.target))
        ends = ast.ExceptHandler(_known(StopIteration), None, [_set(_MORE, ast.Constant(False))])
        tried = ast.Try([step], [ends], [], [])
        head.body += [placed(x, node.iter) for x in (_set(_MORE, ast.Constant(True)), tried)]
        head.end = _Branch(placed(ast.Name(_MORE, ast.Load()), node.iter), inside, left := self.block(around))
        self.turns(node.body, inside, head, behind, around)
        _go_on(self.statements(node.orelse, left, around), behind)
        return behind

    def guarded(self, node: ast.Try, block: _BasicBlock, around: _Around) -> _BasicBlock | None:
        if node.finalbody:
            raise NotAMachine(node, "a `yield` stands in a `try` with `finally`", "loop over it where it is made")
        behind = self.block(around)
        entries = [(h, self.block(around) if _is_cut(h) else behind) for h in node.handlers]
        inner = _Around(around.broken, around.continued, (*around.guards, _Guard(entries)))
        begin = self.block(inner)
        block.end = _Jump(begin)
        end = self.statements(node.body, begin, inner)
        if end is not None:
            _go_on(end, left := self.block(around))
            _go_on(self.statements(node.orelse, left, around), behind)
        for handler, entry in entries:
            if entry is not behind:
                if any(isinstance(n, ast.Raise) and n.exc is None for n in _own(handler.body)):
                    raise NotAMachine(handler, "a handler with a `yield` raises again", "raise a new exception there")
                _go_on(self.statements(handler.body, entry, around), behind)
                handler.body = []
        return behind

    def matched(self, node: ast.Match, block: _BasicBlock, around: _Around) -> _BasicBlock:
        """Which case it is, then the case: as a number, so that patterns stand as they were written."""
        number, behind = f"<case {node.lineno}>", self.block(around)
        block.body.append(placed(_set(number, ast.Constant(-1)), node))
        bodies = [case.body for case in node.cases]
        for k, case in enumerate(node.cases):
            case.body = [placed(_set(number, ast.Constant(k)), node)]
        block.body.append(node)
        for k, body in enumerate(bodies):
            test = ast.Compare(ast.Name(number, ast.Load()), [ast.Eq()], [ast.Constant(k)])
            then, orelse = self.block(around), self.block(around)
            block.end = _Branch(placed(test, node), then, orelse)
            _go_on(self.statements(body, then, around), behind)
            block = orelse
        block.end = _Jump(behind)
        return behind

    # ---- writing the class

    def methods(self) -> list[ast.FunctionDef]:
        step = "gi_step" if self.takes_sent else "__next__"
        order = self.in_order(resumed=True)
        machine = self.method(step, [], self.run(order))
        if (
            left := next((n for n in _own(machine.body) if isinstance(n, ast.Yield | ast.YieldFrom)), None)
        ) is not None:
            raise NotAMachine(left, *_IN_AN_EXPRESSION)
        kept = self.fields(machine)
        self.with_fields(machine, kept)
        given = {**{name: name for name in parameters(self.node)}, **self.captured}
        begin = [_put(name, _get(argument)) for name, argument in given.items()]
        begin.append(_put(STATE, ast.Constant(0)))
        made = [
            self.method("__init__", list(given.values()), begin),
            self.method("__iter__", [], [ast.Return(_get(_SELF))]),
            machine,
            self.method("close", [], [_put(STATE, ast.Constant(ENDED))]),
        ]
        if self.takes_sent:
            # up to the first `yield` nothing is read that was sent, so that `next` need not send None there
            first = self.method("gi_begin", [], self.run(self.in_order(resumed=False)))
            self.with_fields(first, kept)
            new = ast.Compare(_field(STATE), [ast.Eq()], [ast.Constant(0)])
            start, resume = (ast.Return(ast.Call(_field(name), [], [])) for name in (first.name, step))
            made += [
                first,
                self.method("__next__", [], [ast.If(new, [start], []), _put(SENT, ast.Constant(None)), resume]),
                self.method("send", [_VALUE], [_put(SENT, _get(_VALUE)), copy.deepcopy(resume)]),
            ]
        return made

    def method(self, name: str, given: Sequence[str], body: Sequence[ast.stmt]) -> ast.FunctionDef:
        arguments = ast.arguments([], [ast.arg(_SELF), *map(ast.arg, given)], None, [], [], None, [])
        return placed(ast.FunctionDef(name, arguments, list(body), []), self.node)

    def in_order(self, resumed: bool) -> list[_BasicBlock]:
        """The blocks that control reaches, in reverse postorder: where they form no cycle, every jump goes forward.
        `resumed`: also behind a `yield`."""
        found: list[_BasicBlock] = []
        seen: set[_BasicBlock] = set()

        def visit(block: _BasicBlock) -> None:
            seen.add(block)
            for target in _targets(block):
                if target not in seen:
                    visit(target)
            if isinstance(block.end, _Yield) and resumed:
                begins.append(block.end.resumed)
            found.append(block)

        begins = [self.blocks[0]]
        while begins:
            block = begins.pop(0)
            if block not in seen:
                visit(block)
        return found[::-1]

    def run(self, order: list[_BasicBlock]) -> list[ast.stmt]:
        place = {block: k for k, block in enumerate(order)}
        ways = [(b, t) for b in order for t in _targets(b)]
        leads = [t for _, t in ways]
        self.apart = {self.blocks[0], *(t for t in leads if leads.count(t) > 1)}
        self.apart |= {b.end.resumed for b in order if isinstance(b.end, _Yield)}
        self.apart |= {t for b, t in ways if t.guards != b.guards}
        arms = [self.arm(block) for block in order if block in self.apart]
        read, ended = _set(_NOW, _field(STATE)), _put(STATE, ast.Constant(ENDED))
        self.arms = [arm.body for arm in arms]
        whole: list[ast.stmt] = [*arms]
        if any(place[t] <= place[b] for b, t in ways):
            going = ast.Compare(_get(_NOW), [ast.NotEq()], [ast.Constant(ENDED)])
            whole = [ast.While(going, whole, [])]
        return [read, ended, *whole, ast.Raise(_known(StopIteration), None)]

    def arm(self, block: _BasicBlock) -> ast.If:
        body = [*block.body, *self.leaving(block)]
        for guard in reversed(block.guards):
            body = [ast.Try(body, [self.handler(h, entry) for h, entry in guard.handlers], [], [])]
        return ast.If(ast.Compare(_get(_NOW), [ast.Eq()], [ast.Constant(block.number)]), body, [])

    def handler(self, node: ast.ExceptHandler, entry: _BasicBlock) -> ast.ExceptHandler:
        made = copy.deepcopy(node)
        made.body.append(_set(_NOW, ast.Constant(entry.number)))
        if node.name is not None and not node.body:
            made.body.insert(0, ast.Assign([_get(node.name, ast.Store())], _get(node.name)))  # for the other arm
        return made

    def leaving(self, block: _BasicBlock) -> list[ast.stmt]:
        match block.end:
            case _Jump(target=target):
                return self.to(target)
            case _Branch(test=test, then=then, orelse=orelse):
                return [placed(ast.If(test, self.to(then), self.to(orelse)), test)]
            case _Yield(value=value, resumed=resumed, at=at):
                keep = _put(STATE, ast.Constant(resumed.number))
                return [placed(x, at) for x in (_set(_VALUE, value), keep, ast.Return(_get(_VALUE)))]
            case _Return(value=value, at=at):
                kept = [_put(RESULT, value)] if value is not None else []
                return [placed(x, at) for x in (*kept, _set(_NOW, ast.Constant(ENDED)))]
            case _:
                return [ast.Pass()]  # raised before

    def to(self, target: _BasicBlock) -> list[ast.stmt]:
        if target in self.apart:
            return [_set(_NOW, ast.Constant(target.number))]
        return [*target.body, *self.leaving(target)]

    # ---- variables

    def fields(self, machine: ast.FunctionDef) -> set[str]:
        """The variables that more than one arm names, or that live from one run of an arm to the next."""
        scopes = list(scopes_of(machine, None))
        own = scopes[0]
        own.own.update(parameters(self.node), self.captured)
        kept = {*parameters(self.node), *self.captured}
        kept |= {n for inner in scopes[1:] for n in inner.read | inner.changed if inner.owner(n) is own}
        named = [set(_names(body)) for body in self.arms]
        for body, names in zip(self.arms, named, strict=True):
            first = ast.Pass()
            live = LiveNames([first, *body])
            for name in {n for n in names if not n.startswith(_NEXT)} & own.own - {_SELF, _NOW, _MORE, _VALUE}:
                if live.behind(first, name) or sum(name in other for other in named) > 1:
                    kept.add(name)
        return kept

    def with_fields(self, machine: ast.FunctionDef, kept: set[str]) -> None:
        """Let these variables be fields."""
        _bind_by_assignment(machine, kept)
        after = list(scopes_of(machine, None))
        after[0].own |= kept
        renamed = {(after[0], name): f"{MARK}{MARK}{name}" for name in kept}
        Renaming({x.node: x for x in after}, renamed).function(machine)
        AsFields(lambda _: _SELF).visit(machine)
        placed(machine, self.node)


def _go_on(block: _BasicBlock | None, target: _BasicBlock) -> None:
    if block is not None:
        block.end = _Jump(target)


# ---- parts of syntax trees


def _own(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """All parts but those of functions inside."""
    for part in body:
        yield part
        if not isinstance(part, FunctionNode | ast.GeneratorExp):
            yield from _own(ast.iter_child_nodes(part))


def _is_cut(node: ast.stmt | ast.ExceptHandler) -> bool:
    """Is a statement no part of one basic block: may control leave it by `yield`, `return`, `break` or `continue`?"""
    leaving = ast.Yield | ast.YieldFrom | ast.Return
    return any(isinstance(n, leaving) for n in _own([node])) or leaves(node) or continues(node)


@lru_cache(maxsize=4096)
def yields(node: ast.AST) -> bool:
    """Is there a `yield` that is not one of a function inside?"""
    return any(isinstance(n, ast.Yield | ast.YieldFrom) for n in _own(ast.iter_child_nodes(node)))


def _finds(kind: type[ast.stmt]) -> Callable[[ast.AST], bool]:
    def found(node: ast.AST) -> bool:
        if isinstance(node, kind):
            return True
        if isinstance(node, FunctionNode):
            return False
        if isinstance(node, ast.For | ast.While):
            return any(map(found, node.orelse))
        return any(map(found, ast.iter_child_nodes(node)))

    return found


leaves = _finds(ast.Break)
"""Does a statement leave the loop that it is in?"""

continues = _finds(ast.Continue)
"""Does a statement end the turn of the loop that it is in?"""


def _names(body: Iterable[ast.AST]) -> Iterator[str]:
    """The variables that statements name, those of functions inside too."""
    for part in (n for statement in body for n in ast.walk(statement)):
        match part:
            case ast.Name(id=name) | ast.FunctionDef(name=name) | ast.MatchMapping(rest=str(name)):
                yield name
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.ExceptHandler(name=str(name)):
                yield name
            case _:
                pass


def _bind_by_assignment(node: ast.AST, kept: set[str]) -> None:
    """Bind variables by assignments alone, which fields can take the place of: `except E as e` becomes
    `except E as (another): e = (another)`."""
    for part in list(ast.walk(node)):
        for name in ("body", "orelse"):
            block = getattr(part, name, None)
            if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                block[:] = [x for statement in block for x in _bound(statement, kept)]
        if isinstance(part, ast.Try):
            for handler in part.handlers:
                handler.body[:] = [x for statement in handler.body for x in _bound(statement, kept)]
                if handler.name in kept:
                    handler.body[:0] = _renamed([handler], {handler.name}, handler)
        elif isinstance(part, ast.Match):
            for case in part.cases:
                case.body[:] = [x for statement in case.body for x in _bound(statement, kept)]
                held = kept.intersection(_names([case.pattern]))
                case.body[:0] = _renamed([case.pattern, *([case.guard] if case.guard else [])], held, case.pattern)


def _bound(node: ast.stmt, kept: set[str]) -> list[ast.stmt]:
    """A statement that binds none of these variables but by assignment, and what goes with it."""
    match node:
        case ast.FunctionDef(name=name) if name in kept:
            node.name = _OWN + name
            return [node, placed(_set(name, _get(node.name)), node)]
        case ast.AnnAssign(target=ast.Name(id=name), value=None) if name in kept:
            return [placed(ast.Pass(), node)]
        case ast.Nonlocal() | ast.Global():
            return [placed(ast.Pass(), node)]
        case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
            if not kept.isdisjoint((a.asname or a.name).split(".")[0] for a in aliases):
                raise NotAMachine(node, "a generator imports a module", "import it at the top of the file")
        case ast.With(items=items):
            for item in reversed(items):
                if item.optional_vars is not None and not kept.isdisjoint(_names([item.optional_vars])):
                    place = f"{_OWN}{item.optional_vars.lineno} {item.optional_vars.col_offset}"
                    node.body.insert(0, placed(ast.Assign([item.optional_vars], _get(place)), node))
                    item.optional_vars = placed(_get(place, ast.Store()), node)
        case _:
            pass
    heads: Sequence[ast.AST] = [node] if not hasattr(node, "body") else list(_heads(node))
    held = kept & {w.target.id for head in heads for w in _own([head]) if isinstance(w, ast.NamedExpr)}
    if not held:
        return [node]
    for head in heads:
        _check_always(head, held)
    copied = _renamed(heads, held, node)
    if isinstance(node, ast.If):
        test = f"{_OWN}test {node.lineno} {node.col_offset}"
        before = placed(_set(test, node.test), node)
        node.test = placed(_get(test), node)
        return [before, *copied, node]
    if isinstance(node, ast.While):
        node.body[:0] = copied
        node.orelse[:0] = copy.deepcopy(copied)
        return [node]
    if hasattr(node, "body"):
        raise NotAMachine(node, "a variable is assigned by `:=` here", "assign it by a statement")
    return [node, *copied]


def _heads(node: ast.stmt) -> Iterator[ast.AST]:
    """The parts of a statement that are no statements."""
    return (x for x in ast.iter_child_nodes(node) if not isinstance(x, ast.stmt | ast.ExceptHandler | ast.match_case))


def _check_always(node: ast.AST, names: set[str]) -> None:
    """Refuse what is not assigned whenever the expression is evaluated, or read before."""
    bound: set[str] = set()
    for part in sorted((n for n in _own([node]) if hasattr(n, "lineno")), key=place_of):
        match part:
            case ast.BoolOp(values=[_, *rest]):
                inside = list(_own(rest))
            case ast.IfExp(body=then, orelse=orelse):
                inside = list(_own([then, orelse]))
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                inside = list(ast.walk(part))
            case _:
                inside = []
        late = any(isinstance(x, ast.NamedExpr) and x.target.id in names for x in inside)
        if late or (isinstance(part, ast.Name) and part.id in names - bound and isinstance(part.ctx, ast.Load)):
            raise NotAMachine(part, "a variable is assigned by `:=` here", "assign it by a statement")
        if isinstance(part, ast.NamedExpr):
            bound.add(part.target.id)


def _renamed(nodes: Iterable[ast.AST], names: set[str], place: ast.AST) -> list[ast.stmt]:
    """Let nodes bind variables under other names; the assignments that these need."""
    for part in (n for node in nodes for n in ast.walk(node)):
        if isinstance(part, ast.stmt):
            continue
        for attribute in ("id", "name", "rest"):
            if isinstance(name := getattr(part, attribute, None), str) and name in names:
                setattr(part, attribute, _OWN + name)
    return [placed(_set(name, _get(_OWN + name)), place) for name in sorted(names)]


Placed = TypeVar("Placed", bound=ast.AST)


def placed(made: Placed, node: ast.AST) -> Placed:
    """Give what was made the place of a node, but the parts that have one."""
    for part in ast.walk(made):
        if isinstance(part, ast.stmt | ast.expr | ast.arg | ast.ExceptHandler) and not hasattr(part, "lineno"):
            ast.copy_location(part, node)
    return made


def _get(name: str, context: ast.expr_context | None = None) -> ast.Name:
    return ast.Name(name, context or ast.Load())


def _set(name: str, value: ast.expr) -> ast.stmt:
    return ast.Assign([_get(name, ast.Store())], value)


def _field(name: str, context: ast.expr_context | None = None) -> ast.Attribute:
    return ast.Attribute(_get(_SELF), name, context or ast.Load())


def _put(name: str, value: ast.expr) -> ast.stmt:
    return ast.Assign([_field(name, ast.Store())], value)


def _known(value: Any) -> ast.Constant:
    """A function or class of Python's, as the front end reads it."""
    return ast.Constant(value)
