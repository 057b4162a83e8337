"""Variables that a loop carries: which they are, of which types, and one turn lowered for them.

The types are a fixpoint: a turn is lowered for the types that the loop starts with, then for those that its end joins
with them, until nothing changes.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from autobatch.errors import Span, UnsupportedError
from autobatch.frontend.library.tables import has_default
from autobatch.frontend.lowering import exceptions
from autobatch.frontend.lowering.joins import as_array, common, common_layouts, convert, level, stored
from autobatch.frontend.lowering.state import BROKE, RESULT, RETURNED, LoweringState, unset
from autobatch.frontend.memory import heaps
from autobatch.frontend.memory.heap import containers, is_state
from autobatch.frontend.memory.rebinding import without_memory
from autobatch.frontend.syntax.sources import changed, nodes_in, stores
from autobatch.frontend.types import values as v
from autobatch.frontend.types.unify import is_static_set, linked, nests_without_end
from autobatch.frontend.types.values import (
    Layout,
    ListingLayout,
    NotStored,
    UnsetLayout,
    layout_of,
    leaf_types,
    rebuild,
)
from autobatch.ir.core import INT, Operand, Region, Value

ROUNDS = 12

Loop = ast.For | ast.While
Sharing = frozenset[tuple[str, str, int]]
SAME, PARTS, HELD, IN_COMMON, STORED = range(5)


class Layouts(dict[str, Layout]):
    """The layouts of carried variables. `sharing`: pairs of variables that may hold one object when a turn begins,
    because an earlier turn may have left it in both; or, where the third is true, the second holds a list that may hold
    what the first does, or memory does. The second may be one that the loop does not carry."""

    sharing: Sharing = frozenset()

    def with_sharing(self, pairs: Sharing) -> Layouts:
        made = Layouts(self)
        made.sharing = pairs
        return made


Aliases = Sequence[tuple[str, str]]


@lru_cache(maxsize=4096)
def leaves_early(node: ast.AST, inner: bool = False) -> bool:
    """Is there a `break` of this loop, or a `return`?"""
    match node:
        case ast.Return():
            return True
        case ast.Break():
            return not inner
        case ast.FunctionDef() | ast.Lambda() | ast.ClassDef():
            return False
    inner = inner or isinstance(node, ast.For | ast.While)
    return any(leaves_early(child, inner) for child in ast.iter_child_nodes(node))


def completes(statements: Sequence[ast.stmt]) -> bool:
    """May a path go on behind statements: is there one that neither returns nor raises, breaks or continues?"""
    return all(map(_completes, statements))


def _completes(node: ast.stmt) -> bool:
    match node:
        case ast.Return() | ast.Raise() | ast.Break() | ast.Continue():
            return False
        case ast.If(body=body, orelse=orelse):
            return completes(body) or completes(orelse)
        case ast.While(test=ast.Constant(value=True)):
            return any(map(breaks, node.body))
        case ast.Try(body=body, handlers=handlers, orelse=orelse, finalbody=last):
            goes_on = completes([*body, *orelse]) or any(completes(h.body) for h in handlers)
            return goes_on and completes(last)
        case _:
            return True


def may_leave(s: LoweringState, node: Loop) -> bool:
    """May some turn leave the loop: by `break`, `return`, or with what a `try` around it catches?"""
    return bool(s.frame.trying) or any(leaves_early(b) for b in node.body)


def breaks(node: ast.AST) -> bool:
    """Is there a `break` of this loop?"""
    match node:
        case ast.Break():
            return True
        case ast.FunctionDef() | ast.Lambda() | ast.ClassDef():
            return False
        case ast.For() | ast.While():
            return any(map(breaks, node.orelse))
    return any(map(breaks, ast.iter_child_nodes(node)))


def read_of_default(s: LoweringState, *nodes: ast.AST) -> list[str]:
    """The variables whose `defaultdict` statements read, which makes values for its keys."""
    items = (n.value for x in nodes for n in nodes_in(x) if isinstance(n, ast.Subscript))
    found = dict.fromkeys(x.id for x in items if isinstance(x, ast.Name))
    return [n for n in found if n in s.env and has_default(s.env[n].value)]


def reads_earlier(body: Sequence[ast.stmt], name: str) -> bool:
    """May a turn read the variable before it sets it, so that it reads what an earlier turn has set?"""
    return _flow(body, name)[0]


def _flow(body: Sequence[ast.stmt], name: str) -> tuple[bool, bool]:
    """Is the variable read where these statements have not set it; and have they set it where they end?"""
    for statement in body:
        match statement:
            case ast.Return() | ast.Raise() | ast.Continue() | ast.Break():
                return _loads(statement, name), True
            case ast.If(test=test, body=then, orelse=orelse):
                a, b = _flow(then, name), _flow(orelse, name)
                if _loads(test, name) or a[0] or b[0]:
                    return True, True
                if a[1] and b[1]:
                    return False, True
            case ast.For(iter=head, target=target, body=inner, orelse=orelse):
                set_by_head = name in stores(target)
                if _loads(head, name) or (not set_by_head and _flow(inner, name)[0]) or _flow(orelse, name)[0]:
                    return True, True
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
                augments = isinstance(statement, ast.AugAssign) and name in stores(statement)
                if augments or _loads(statement, name):
                    return True, True
                if name in stores(statement):
                    return False, True
            case _ if _loads(statement, name):
                return True, True
    return False, False


def _loads(node: ast.AST, name: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load) for n in nodes_in(node))


def carried_names(s: LoweringState, node: Loop) -> list[str]:
    """Variables that one turn hands to the next, or to what follows the loop."""
    head = node.target if isinstance(node, ast.For) else node.test
    own = s.frame.source.locals  # `jnp.sort(x)` has the form of a list's `sort`
    names = [n for n in changed(head, *node.body) if n in s.env or (n in own and s.frame.source.read_after(n, node))]
    names += [n for n in stores(*node.body) if n not in s.env and n not in names and reads_earlier(node.body, n)]
    names += [n for n in read_of_default(s, head, *node.body) if n not in names]
    names += [name for name, _ in aliases_of(s, node)]
    if may_leave(s, node):
        names += [BROKE, RETURNED, RESULT]
    if s.frame.trying:
        names += exceptions.variables(s)
    names += heaps.carried(s, node)
    return list(dict.fromkeys(names))


@dataclass
class Turn:
    """One turn, lowered for carried variables of some layouts. `head` is the state of a `while` test."""

    end: LoweringState
    args: tuple[Value, ...]
    index: Value | None = None
    head: LoweringState | None = None
    head_args: tuple[Value, ...] = ()
    condition: Operand | None = None


def region_of(args: tuple[Value, ...], t: LoweringState, results: Sequence[Operand]) -> Region:
    return Region(args, tuple(t.block.body), tuple(results))


def enter_turn(
    s: LoweringState, layouts: Layouts, more: Sequence[object], aliases: Aliases = ()
) -> tuple[LoweringState, tuple[Value, ...]]:
    """A state at the start of a turn, with fresh values for the carried variables (behind those of types `more`)."""
    t = s.fork()
    extra = [s.context.value(INT, "turn") for _ in more]
    args = [(s.context.value(x, n)) for n, k in layouts.items() for x in leaf_types(k)]
    operands = iter(args)
    for name, layout in layouts.items():
        before = s.env.get(name)
        t.bind(name, _rebuilt(s, name, layout, operands), before.span if before is not None else s.span)
        if before is not None and any(x is before.value for x in s.frame.borrowed):
            s.frame.borrowed.append(t.env[name].value)
    for name, other in aliases:
        t.bind(name, t.env[other].value, s.env[name].span)
    _relate(t, layouts)
    return t, (*extra, *args)


def _relate(s: LoweringState, layouts: Layouts) -> None:
    """Note which variables may hold one object, and which lists may hold what a variable holds."""
    identities = s.context.identities
    notes = (
        identities.relate,
        identities.relate_parts,
        identities.hold,
        identities.have_same,
        lambda value, _: identities.stored(value),
    )
    for name, other, kind in sorted(layouts.sharing):
        if name in s.env and other in s.env:
            notes[kind](s.env[name].value, s.env[other].value)


def _sharing(s: LoweringState, t: LoweringState, layouts: Layouts, aliases: Aliases) -> Sharing:
    """What variables share at the end of a turn, and what they did when it began."""
    identities, found = s.context.identities, set(layouts.sharing)
    same = {frozenset(pair) for pair in aliases}
    ours = [n for n in layouts if n in t.env and any(True for _ in containers(t.env[n].value))]
    for name in ours:
        value = t.env[name].value
        if identities.is_stored(value):
            found.add((name, name, STORED))
        for other, bound in t.env.items():
            if other == name or frozenset((name, other)) in same:
                continue
            if not (other in layouts and other < name) and identities.may_share(value, bound.value):
                found.add((name, other, SAME if identities.may_be_one(value, bound.value) else PARTS))
            elif identities.may_have_same(value, bound.value):
                found.add((name, other, IN_COMMON))
            for held, holder, list_of in ((name, other, bound.value), (other, name, value)):
                if identities.may_be_in(t.env[held].value, list_of):
                    found.add((held, holder, HELD))
    return frozenset(found)


def _rebuilt(s: LoweringState, name: str, layout: Layout, operands: Iterator[Operand]) -> v.Abstract:
    """The value of a variable at another point of the loop."""
    value = rebuild(layout, operands)
    if name in s.env:
        s.context.identities.same(value, s.env[name].value)
    return value


def aliases_of(s: LoweringState, node: Loop) -> Aliases:
    """Other names of the containers and objects that the loop changes in place, with the names that it uses."""
    again = _assigned_again(node.body)
    in_place = [n for n in changed(*node.body) if n in s.env and n not in again]
    in_place += read_of_default(s, *node.body)
    held = [(n, x) for n in in_place if isinstance(x := s.env[n].value, v.Record | v.Listing) or is_static_set(x)]
    return [(name, n) for name, b in s.env.items() for n, x in held if b.value is x and name != n]


def _assigned_again(body: Sequence[ast.stmt]) -> frozenset[str]:
    """The variables that statements assign otherwise than by `x += y`, which changes a list or set in place."""
    augmented = {id(n.target) for b in body for n in nodes_in(b) if isinstance(n, ast.AugAssign)}
    plain = (n for b in body for n in nodes_in(b) if isinstance(n, ast.Name) and id(n) not in augmented)
    stored_names = frozenset(n.id for n in plain if not isinstance(n.ctx, ast.Load))
    return stored_names.intersection(stores(*body))


def leave(s: LoweringState, layouts: Layouts, results: Sequence[Value], aliases: Aliases = ()) -> None:
    operands = iter(results)
    for name, layout in layouts.items():
        s.bind(name, _rebuilt(s, name, layout, operands))
    for name, other in aliases:
        s.bind(name, s.env[other].value)
    _relate(s, layouts)


def settle(
    s: LoweringState,
    names: Sequence[str],
    turn: Callable[[Layouts], Turn],
    aliases: Aliases = (),
    node: Loop | None = None,
) -> tuple[Layouts, Turn, list[Operand]]:
    """Layouts of the carried variables that a turn preserves, that turn, and the operands the loop starts with.

    That of a statement begins where the last one for the same layouts has ended: loops around it, and further rounds of
    the lowering, come to it again and again."""
    initial = {n: as_array(s, stored(s, _current(s, n))) for n in names}
    shared = s.context.shared_values
    layouts = Layouts({n: layout_of(x, shared) for n, x in initial.items()})
    known, key = s.context.memory.settled, None if node is None else _around(s, node, layouts)
    layouts = Layouts(known.get(key, layouts))
    for _ in range(ROUNDS):
        made, reads = _turned(s, turn, layouts)
        if apart := [a for a, b in aliases if not made.end.dead and _are_apart(made.end, a, b)]:
            words = "two names of one list or object part in this loop"
            raise without_memory(s, [s.env[a].value for a in apart], words, "give each its own from the start")
        if not made.end.dead and (unseen := changed_unseen(s, made.end, {*layouts, *(a for a, _ in aliases)})):
            initial |= {n: as_array(s, stored(s, _current(s, n))) for n in unseen}
            more = {n: layout_of(initial[n], shared) for n in unseen}
            layouts = Layouts(layouts | more).with_sharing(layouts.sharing)
            continue
        wider = layouts if made.end.dead else _wider(s, made.end, layouts, initial)
        if not made.end.dead:
            wider = wider.with_sharing(_sharing(s, made.end, layouts, aliases))
        if wider == layouts and wider.sharing == layouts.sharing:
            for name in names:
                if isinstance(layouts[name], UnsetLayout) and (place := reads.get(name)) is not None:
                    raise unset(name, place)
            if key is not None:
                known[key] = layouts
            start = [o for n, x in initial.items() for o in convert(s, _levelled(s, x, layouts[n]), layouts[n])]
            return layouts, made, start
        growing = any(nests_without_end(layouts[n], wider[n]) for n in names)
        layouts = wider
        if growing:
            break
    words, cure = "the types of the variables of this loop do not settle", "give them their final types before the loop"
    raise linked(layouts.values(), UnsupportedError(words, s.span, cure))


def changed_unseen(s: LoweringState, t: LoweringState, carried: Collection[str]) -> list[str]:
    """The variables whose lists, dicts or objects a turn changes though its text does not name them: a generator does
    that it runs over."""
    before = {n: s.env[n].value for n in t.env if n in s.env and n not in carried and not is_state(n)}
    kept = ("list", "dict", "table", "object")
    held = [n for n, x in before.items() if isinstance(x, v.Listing) or (isinstance(x, v.Record) and x.kind in kept)]
    found = [n for n in held if t.env[n].value is not before[n]]
    if len({id(before[n]) for n in found}) < len(found):
        words = "a list or object that has two names is changed by a generator in this loop"
        raise without_memory(s, [before[n] for n in found], words, "use one name")
    return found


def _are_apart(s: LoweringState, a: str, b: str) -> bool:
    """Do two variables, where both are read later, hold two values?"""
    return a in s.env and b in s.env and s.env[a].value is not s.env[b].value


def _around(s: LoweringState, node: Loop, layouts: Layouts) -> Any:
    """What decides the layouts that a turn preserves: those of the variables that it carries, or reads. None where it
    reads what has none."""
    read = dict.fromkeys(n.id for n in nodes_in(node) if isinstance(n, ast.Name) and n.id not in layouts)
    values = [s.env[n].value for n in read if n in s.env] + list(s.frame.enclosing.values())
    try:
        return node, tuple(layouts.items()), tuple(layout_of(x, s.context.shared_values) for x in values)
    except NotStored:
        return None


def _turned(s: LoweringState, turn: Callable[[Layouts], Turn], layouts: Layouts) -> tuple[Turn, dict[str, Span | None]]:
    """A turn, and where it reads variables that are not set yet: such a read ends its path."""
    around = s.frame.settling
    s.frame.settling = {**around, **{n: None for n, k in layouts.items() if isinstance(k, UnsetLayout)}}
    try:
        made = turn(layouts)
        for name in () if made.end.dead else layouts:
            if name in made.end.env:
                held = made.end.env[name]
                made.end.bind(name, stored(made.end, held.value), held.span)
        return made, s.frame.settling
    finally:
        s.frame.settling = around


def _current(s: LoweringState, name: str) -> v.Abstract:
    bound = s.env.get(name)
    return bound.value if bound is not None else v.Unset(name)


def _wider(s: LoweringState, t: LoweringState, layouts: Layouts, initial: dict[str, v.Abstract]) -> Layouts:
    """The layouts of the variables before the turn joined with those at its end."""
    wider = Layouts()
    for name, layout in layouts.items():
        after, before = _current(t, name), initial[name]
        places = [x.env[name].span if name in x.env else s.span for x in (s, t)]
        after, before = level(t, after, before), level(s, before, after)
        joined = common(before, after, name, places[0], places[1], turns=True)
        wider[name] = common_layouts(layout, joined, name, places[0], places[1], turns=True)
    return wider


def _levelled(s: LoweringState, value: v.Abstract, layout: Layout) -> v.Abstract:
    if isinstance(layout, ListingLayout) and layout.array:
        value = as_array(s, value)
    return level(s, value, v.Record("tuple", (), ())) if leaf_types(layout) else value


def yields_of(t: LoweringState, layouts: Layouts) -> list[Operand]:
    """What a turn hands to the next one."""
    return [o for n, k in layouts.items() for o in convert(t, _levelled(t, _current(t, n), k), k)]
