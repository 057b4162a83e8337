"""`for` and `while`.

A loop over a container whose items are known one by one is unrolled. A loop over a length is a `For`; one that some
turn may leave, a `While` that carries flags. Which variables are carried, and of which types, is a fixpoint: the first
turn may widen what the loop starts with (`s = 0` becomes an array).
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from autobatch.errors import TypeConflictError, UnsupportedError
from autobatch.frontend import values as v
from autobatch.frontend.appending import appended_list
from autobatch.frontend.assignment import assign
from autobatch.frontend.branches import both, condition, guarded_by, leaving, run
from autobatch.frontend.joins import common, common_layouts, convert, level, stored
from autobatch.frontend.layouts import Layout, layout_of, leaf_types, rebuild
from autobatch.frontend.numbers import negate, operand_of, traced
from autobatch.frontend.sequences import sequence
from autobatch.frontend.sources import stores
from autobatch.frontend.state import BROKE, CONTINUED, FLAGS, RESULT, RETURNED, Impure, State
from autobatch.ir.core import For, Operand, Region, Value, While
from autobatch.ir.types import INT

UNROLLED_AT_MOST = 64
ROUNDS = 12

Loop = ast.For | ast.While
Layouts = dict[str, Layout]


def for_statement(s: State, node: ast.For) -> None:
    """`for target in sequence: body`"""
    found = sequence(s, s.evaluate(node.iter))
    for flag in FLAGS:
        s.bind(flag, v.Static(False))
    if isinstance(found, v.Record):
        _unroll(s, node, [lambda t, x=x: x for x in found.items])  # type: ignore[misc]
    elif not appended_list(s, node, found):
        _roll(s, node, found)
    _orelse(s, node)


def while_statement(s: State, node: ast.While) -> None:
    """`while test: body`"""
    for flag in FLAGS:
        s.bind(flag, v.Static(False))
    if condition(s.fork(), node.test) is not False:
        _while(s, node, None)
    _orelse(s, node)


def _roll(s: State, node: ast.For, found: v.Lazy) -> None:
    """A loop over a length; unrolled where its turns cannot share one text (types that change, shapes by turn)."""
    env, length, memo = dict(s.env), len(s.block.body), dict(s.block.memo)
    count = found.length
    try:
        if any(_leaves(b) for b in node.body):
            _while(s, node, found)
        else:
            _for(s, node, found)
    except Impure:
        raise
    except (UnsupportedError, TypeConflictError) as error:
        if not isinstance(count, v.Static) or count.value > UNROLLED_AT_MOST:
            raise
        s.env, s.block.memo = env, memo
        del s.block.body[length:]
        items = [lambda t, k=k: found.item(t, v.Static(k)) for k in range(count.value)]
        try:
            _unroll(s, node, items)
        except (UnsupportedError, TypeConflictError):
            raise error from None


def _unroll(s: State, node: ast.For, items: Sequence[Callable[[State], v.Abstract]]) -> None:
    """One turn after the other."""
    for position, item in enumerate(items):
        if s.left:
            break
        left = leaving(s)
        if left is not None:
            guarded_by(s, left, partial(_unroll, node=node, items=items[position:]), node)
            return
        assign(s, node.target, item(s))
        _body(s, node)


def _orelse(s: State, node: Loop) -> None:
    """The `else` of a loop runs when no `break` was reached."""
    broke = s.flag(BROKE)
    s.bind(BROKE, v.Static(False))
    if not node.orelse or s.dead or broke == v.Static(True):
        return
    if isinstance(broke, v.Leaf):
        guarded_by(s, broke.operand, lambda t: t.context.rules.execute(t, node.orelse), node)
    else:
        s.context.rules.execute(s, node.orelse)


def _body(s: State, node: Loop) -> None:
    """The statements of one turn; `continue` ends them."""
    s.frame.loops.append(node)
    try:
        s.context.rules.execute(s, node.body)
    finally:
        s.frame.loops.pop()
    s.bind(CONTINUED, v.Static(False))


def _leaves(node: ast.AST, inner: bool = False) -> bool:
    """Is there a `break` of this loop, or a `return`?"""
    match node:
        case ast.Return():
            return True
        case ast.Break():
            return not inner
        case ast.FunctionDef() | ast.Lambda() | ast.ClassDef():
            return False
    inner = inner or isinstance(node, ast.For | ast.While)
    return any(_leaves(child, inner) for child in ast.iter_child_nodes(node))


def _carried(s: State, node: Loop) -> list[str]:
    """Variables that one turn hands to the next, or to what follows the loop."""
    outer = s.frame.outer_loop
    head = node.target if isinstance(node, ast.For) else node.test
    names = [n for n in stores(head, *node.body) if n in s.env or s.frame.source.read_after(n, node, outer)]
    if any(_leaves(b) for b in node.body):
        names += [BROKE, RETURNED, RESULT]
    return list(dict.fromkeys(names))


@dataclass
class _Turn:
    """One turn, lowered for carried variables of some layouts. `head` is the state of a `while` test."""

    end: State
    args: tuple[Value, ...]
    index: Value | None = None
    head: State | None = None
    head_args: tuple[Value, ...] = ()
    condition: Operand | None = None


def _for(s: State, node: ast.For, found: v.Lazy) -> None:
    """A loop that every turn runs to its end."""

    def turn(layouts: Layouts) -> _Turn:
        t, args = _enter(s, layouts, ())
        index = s.context.value(INT, "turn")

        def body(u: State) -> None:
            assign(u, node.target, found.item(u, v.Leaf(index)))
            _body(u, node)

        run(t, body)
        return _Turn(t, args, index)

    layouts, made, initial = _settle(s, _carried(s, node), turn)
    assert made.index is not None
    count = operand_of(s, found.length)
    if made.end.dead:
        if made.end.block.body:
            loop = For((), count, tuple(initial), _region((made.index, *made.args), made.end, made.args), s.span)
            results = tuple(s.context.value(a.type) for a in made.args)
            s.emit(For(results, count, loop.init, loop.body, s.span))
        return
    yields = _yields(made.end, layouts)
    region = _region((made.index, *made.args), made.end, yields)
    results = tuple(s.context.value(a.type) for a in made.args)
    s.emit(For(results, count, tuple(initial), region, s.span))
    _leave(s, layouts, results)


def _region(args: tuple[Value, ...], t: State, results: Sequence[Operand]) -> Region:
    return Region(args, tuple(t.block.body), tuple(results))


def _while(s: State, node: Loop, found: v.Lazy | None) -> None:
    """A `while`, or a `for` over `found` that some turn may leave; that one carries its index."""
    index_types = () if found is None else (INT,)

    def more(t: State, index: v.Abstract | None) -> v.Abstract:
        if index is not None and found is not None:
            return traced(t, operator.lt, index, found.length)
        assert isinstance(node, ast.While)
        test = condition(t, node.test)
        return v.Static(test) if isinstance(test, bool) else v.Leaf(test)

    def turn(layouts: Layouts) -> _Turn:
        head, head_args = _enter(s, layouts, index_types)
        held = v.Leaf(head_args[0]) if found is not None else None
        left = leaving(head)
        test = more(head, held) if left is None else both(head, negate(head, left), lambda t: more(t, held))
        holds = operand_of(head, test)
        t, args = _enter(s, layouts, index_types)
        _transfer(head, holds, head_args, t, args)

        def body(u: State) -> None:
            for flag in FLAGS:
                u.bind(flag, v.Static(False))
            if found is not None:
                assert isinstance(node, ast.For)
                assign(u, node.target, found.item(u, v.Leaf(args[0])))
            else:
                assert isinstance(node, ast.While)
                if any(isinstance(n, ast.NamedExpr) for n in ast.walk(node.test)):
                    u.evaluate(node.test)
            _body(u, node)

        run(t, body)
        return _Turn(t, args, None, head, head_args, holds)

    layouts, made, initial = _settle(s, _carried(s, node), turn)
    assert made.head is not None and made.condition is not None
    first = [s.scalar(0)] if found is not None else []
    yields: list[Operand] = list(made.args)
    if not made.end.dead:
        step = [traced(made.end, _successor, v.Leaf(made.args[0])).operand] if found is not None else []
        yields = [*step, *_yields(made.end, layouts)]
    elif not made.end.block.body:
        return
    results = tuple(s.context.value(a.type) for a in made.args)
    head = _region(made.head_args, made.head, (made.condition,))
    s.emit(While(results, (*first, *initial), head, _region(made.args, made.end, yields), s.span))
    _leave(s, layouts, results[len(index_types) :])


def _successor(i: int) -> int:
    return i + 1


def _transfer(head: State, condition: Operand, old: Sequence[Value], t: State, new: Sequence[Value]) -> None:
    """What the test of a loop says about the carried variables holds at the start of a turn."""
    inside = head.fork()
    inside.assume(condition, True)
    for a, b in zip(old, new, strict=True):
        if a in inside.block.facts:
            t.block.facts[b] = inside.block.facts[a]
        known = inside.block.truth(a)
        if known is not None:
            t.block.known[b] = known


def _enter(s: State, layouts: Layouts, more: Sequence[object]) -> tuple[State, tuple[Value, ...]]:
    """A state at the start of a turn, with fresh values for the carried variables (behind those of types `more`)."""
    t = s.fork()
    extra = [s.context.value(INT, "turn") for _ in more]
    args = [(s.context.value(x, n)) for n, k in layouts.items() for x in leaf_types(k)]
    operands = iter(args)
    for name, layout in layouts.items():
        t.bind(name, rebuild(layout, operands), s.env[name].span if name in s.env else s.span)
    return t, (*extra, *args)


def _leave(s: State, layouts: Layouts, results: Sequence[Value]) -> None:
    operands = iter(results)
    for name, layout in layouts.items():
        s.bind(name, rebuild(layout, operands))


def _settle(s: State, names: Sequence[str], turn: Callable[[Layouts], _Turn]) -> tuple[Layouts, _Turn, list[Operand]]:
    """Layouts of the carried variables that a turn preserves, that turn, and the operands the loop starts with."""
    initial = {n: stored(s, _current(s, n)) for n in names}
    shared = s.context.shared_values
    layouts: Layouts = {n: layout_of(x, shared) for n, x in initial.items()}
    for _ in range(ROUNDS):
        made = turn(layouts)
        wider = layouts if made.end.dead else _wider(s, made.end, layouts, initial)
        if wider == layouts:
            start = [o for n, x in initial.items() for o in convert(s, _levelled(s, x, layouts[n]), layouts[n])]
            return layouts, made, start
        layouts = wider
    s.refuse("the types of the variables of this loop do not settle", "give them their final types before the loop")


def _current(s: State, name: str) -> v.Abstract:
    bound = s.env.get(name)
    return bound.value if bound is not None else v.Unset(name)


def _wider(s: State, t: State, layouts: Layouts, initial: dict[str, v.Abstract]) -> Layouts:
    """The layouts of the variables before the turn joined with those at its end."""
    wider: Layouts = {}
    for name, layout in layouts.items():
        after, before = stored(t, _current(t, name)), initial[name]
        places = [x.env[name].span if name in x.env else s.span for x in (s, t)]
        after, before = level(t, after, before), level(s, before, after)
        joined = common(before, after, name, places[0], places[1])
        wider[name] = common_layouts(layout, joined, name, places[0], places[1])
    return wider


def _levelled(s: State, value: v.Abstract, layout: Layout) -> v.Abstract:
    return level(s, value, v.Record("tuple", (), ())) if leaf_types(layout) else value


def _yields(t: State, layouts: Layouts) -> list[Operand]:
    """What a turn hands to the next one."""
    return [o for n, k in layouts.items() for o in convert(t, _levelled(t, stored(t, _current(t, n)), k), k)]
