"""`for` and `while`.

A loop over a container whose items are known one by one is unrolled. A loop over a length is a `For`; one that some
turn may leave, a `While` that carries flags. Which variables are carried, and of which types, is a fixpoint: the first
turn may widen what the loop starts with (`s = 0` becomes an array).
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from autobatch.errors import TypeConflictError, UnsupportedError
from autobatch.frontend.library import groups
from autobatch.frontend.library.sets import iterated
from autobatch.frontend.library.tables import is_dict
from autobatch.frontend.lowering.assignment import assign
from autobatch.frontend.lowering.attributes import written
from autobatch.frontend.lowering.branches import both, can_fail, condition, guarded_by, leaving, run
from autobatch.frontend.lowering.carrying import (
    Layouts,
    Loop,
    Turn,
    aliases_of,
    breaks,
    carried_names,
    enter_turn,
    leave,
    leaves_early,
    may_leave,
    read_of_default,
    region_of,
    settle,
    yields_of,
)
from autobatch.frontend.lowering.comprehensions import appended_list, scan
from autobatch.frontend.lowering.exceptions import in_range
from autobatch.frontend.lowering.iterators import in_steps, is_lazy
from autobatch.frontend.lowering.numbers import combine, negate, operand_of, traced
from autobatch.frontend.lowering.sequences import length, sequence
from autobatch.frontend.lowering.state import BROKE, CONTINUED, FLAGS, RETURNED, Impure, LoweringState
from autobatch.frontend.memory import heaps, list_heap
from autobatch.frontend.syntax.flattening import (
    compared_when_it_ends,
    list_of,
    run_by_index,
    run_by_steps,
    with_test_inside,
)
from autobatch.frontend.syntax.generators import (
    is_recursive,
    listed,
    may_be_inlined,
    run_over,
    takes_values,
    tells_apart,
)
from autobatch.frontend.syntax.invalidation import (
    changed_by_calls,
    changes_argument,
    changes_own_list,
    makes_iterator,
    refuse_calls,
    refuse_changes,
    refuse_other_items,
    sees_changes,
)
from autobatch.frontend.syntax.sources import Lent, mutated, stores
from autobatch.frontend.types import values as v
from autobatch.frontend.types.values import leaf_types
from autobatch.ir.core import INT, Apply, Call, For, If, List, Operand, Region, Value, While, regions, walk
from autobatch.ir.regions import free_values

UNROLLED_AT_MOST = 64
MOST_UNROLLED = 2048
"""Instructions that a loop which changes a list may become, so that its elements are in registers. (They take a tenth
of a millisecond each to compile.) Where a list is made anew in each turn, and rows are planned, the rows of each turn
shall have a space of their own in any case."""
USUAL_TURNS = 16


ENDLESS = (
    "RecursionError",
    "this loop never ends: none of its turns changes what it tests, and none leaves it; let its body change a variable "
    "of the test",
)
RESIZED = "dictionary changed size during iteration"


def _constantly(x: v.Abstract) -> Callable[[LoweringState], v.Abstract]:
    return lambda _: x


def for_statement(s: LoweringState, node: ast.For) -> None:
    """`for target in sequence: body`"""
    if s.frame.trying and (apart := compared_when_it_ends(s, node)) is not None:
        s.context.rules.execute(s, apart)
        return
    own, take_back = list_of(s, node), s.mark()
    if own is None:
        if not _run(s, node):
            return
        refuse_calls(s, node)
    elif changes_own_list(s, node, own.id):
        run_by_index(s, node, own)
        return
    else:
        _run(s, node)
        if changed_by_calls(s, node) is not None:
            take_back()
            run_by_index(s, node, own)
            return
    _orelse(s, node)


def _run(s: LoweringState, node: ast.For) -> bool:
    """The turns of a loop over what it runs over as a whole. False where its `else` is done too."""
    held = _run_over(s, node.iter)
    if makes_iterator(s, node.iter) and is_lazy(node.iter) and sees_changes(s, node):
        items: v.Abstract = s.evaluate(in_steps(s, node.iter))
    else:
        items = iterated(s, node.iter)
    if written(s, items, "__next__"):
        run_by_steps(s, node, items)
        return False
    if isinstance(items, v.Generator) and _is_stepped(s, node, items):
        run_by_steps(s, node, s.context.rules.iterator(s, items))
        return False
    if isinstance(items, v.Generator) and is_recursive(s, items.source):
        items = listed(s, items)
    if isinstance(items, v.Generator):
        for flag in FLAGS:
            s.bind(flag, v.Static(False))
        groups.refuse_second_reads(s, node, items)
        run_over(s, node, items)
        return True
    refuse_changes(s, node)
    if list_heap.is_view(items):
        for flag in FLAGS:
            s.bind(flag, v.Static(False))
        _unroll(s, node, _items(items))
        return True
    refuse_other_items(s, node)
    found = sequence(s, items)
    for flag in FLAGS:
        s.bind(flag, v.Static(False))
    sizes = _sizes(s, node, found)
    found = _of_one_size(found, sizes)
    if isinstance(found, v.Record):
        _unroll(s, node, [_constantly(x) for x in found.items])
    elif (
        s.frame.trying or read_of_default(s, *node.body) or not (appended_list(s, node, found) or scan(s, node, found))
    ):
        _roll(s, node, found)
    _check_size(s, node, held)
    _check_sizes(s, sizes, left=True)
    return True


def _is_stepped(s: LoweringState, node: ast.For, items: v.Generator) -> bool:
    """Is a generator an object where a loop runs over it, as the loop can be no part of its text?"""
    if is_recursive(s, items.source):
        return tells_apart(items, node) or takes_values(items.source)
    copied = isinstance(items.source, Lent) and items.source.copied
    return not may_be_inlined(items.source, node) or (not copied and changes_argument(s, node))


def _run_over(s: LoweringState, node: ast.expr) -> tuple[str, v.Abstract] | None:
    """The variable of the dict that a loop runs over, and what it holds; None where it runs over something else."""
    match node:
        case (
            ast.Name(id=name)
            | ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="keys" | "values" | "items"), args=[])
        ) if name in s.env and is_dict(s.env[name].value):
            return name, s.env[name].value
        case _:
            return None


def _check_size(s: LoweringState, node: ast.For, held: tuple[str, v.Abstract] | None) -> None:
    """RuntimeError where a loop has put keys into the dict that it runs over, or taken some out."""
    if held is None or s.dead or any(leaves_early(b) for b in node.body):
        return
    name, before = held
    if name not in s.env or s.env[name].value is before or name in stores(node.target, *node.body):
        return
    now, then = length(s, s.env[name].value), length(s, before)
    if isinstance(now, v.Static) and isinstance(then, v.Static):
        s.check(s.scalar(now == then), "RuntimeError", RESIZED)
    else:
        s.check(traced(s, operator.eq, now, then).operand, "RuntimeError", RESIZED)


Sizes = Sequence[tuple[v.MemoryRow, v.Abstract]]


def _sizes(s: LoweringState, node: ast.For, found: v.Record | v.Lazy) -> Sizes:
    """The dicts in memory that a loop runs over and may change, and how long they are."""
    if isinstance(found, v.Record):
        return []
    changed = heaps.carried(s, node)
    dicts = [row for row in found.dicts if not row.heap.is_record]
    return [(row, length(s, row)) for row in dicts if row.heap.variable in changed]


def _of_one_size(found: v.Record | v.Lazy, sizes: Sizes) -> v.Record | v.Lazy:
    """A sequence whose next item is asked for only while these dicts are as long as they were."""
    if isinstance(found, v.Record) or not sizes:
        return found
    each = found.item

    def item(t: LoweringState, i: v.Abstract) -> v.Abstract:
        _check_sizes(t, sizes)
        return each(t, i)

    return replace(found, item=item)


def _check_sizes(s: LoweringState, sizes: Sizes, left: bool = False) -> None:
    """RuntimeError where dicts are not as long as they were. `left`: but for a loop that was left."""
    if s.dead:
        return
    for row, size in sizes:
        same = traced(s, operator.eq, length(s, row), size).operand
        for flag in (BROKE, RETURNED) if left else ():
            known = s.flag(flag)
            same = combine(s, "or", same, operand_of(s, known)) if known != v.Static(False) else same
        s.check(same, "RuntimeError", RESIZED)


def while_statement(s: LoweringState, node: ast.While) -> None:
    """`while test: body`"""
    if mutated(node.test):  # a part of each turn: what it changes is passed on
        node = with_test_inside(s, node)
    for flag in FLAGS:
        s.bind(flag, v.Static(False))
    if condition(s.fork(), node.test) is not False:
        holds = _while(s, node, None)
        if holds and not any(map(breaks, node.body)) and isinstance(s.flag(RETURNED), v.Leaf):
            s.bind(RETURNED, v.Static(True))  # what follows `while True` is not reached
    _orelse(s, node)


def _roll(s: LoweringState, node: ast.For, found: v.Lazy) -> None:
    """A loop over a length; unrolled where its turns cannot share one text (types that change, shapes by turn)."""
    take_back = s.mark()
    count = found.length
    try:
        if may_leave(s, node) or (found.live is not None and heaps.carried(s, node)):
            _while(s, node, found)
        else:
            _for(s, node, found)
    except Impure:
        raise
    except _CarriesList:
        take_back()
        _unroll(s, node, _items(found))
    except (UnsupportedError, TypeConflictError) as error:
        if not isinstance(count, v.Static) or count.value > UNROLLED_AT_MOST:
            raise
        take_back()
        try:
            _unroll(s, node, _items(found))
        except (UnsupportedError, TypeConflictError):
            raise error from None


class _CarriesList(Exception):
    """A loop of few turns hands a list from turn to turn: it is unrolled."""


def _items(found: v.Lazy) -> list[Callable[[LoweringState], v.Abstract]]:
    """The items of a sequence of known length, one by one."""
    assert isinstance(found.length, v.Static)
    return [partial(_item, found=found, position=k) for k in range(found.length.value)]


def _item(s: LoweringState, found: v.Lazy, position: int) -> v.Abstract:
    return found.item(s, v.Static(position))


def _unroll(s: LoweringState, node: ast.For, items: Sequence[Callable[[LoweringState], v.Abstract]]) -> None:
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


def _orelse(s: LoweringState, node: Loop) -> None:
    """The `else` of a loop runs when no `break` was reached."""
    broke = s.flag(BROKE)
    s.bind(BROKE, v.Static(False))
    if not node.orelse or s.dead or broke == v.Static(True):
        return
    if isinstance(broke, v.Leaf):
        guarded_by(s, broke.operand, lambda t: t.context.rules.execute(t, node.orelse), node)
    else:
        s.context.rules.execute(s, node.orelse)


def _body(s: LoweringState, node: Loop) -> None:
    """The statements of one turn; `continue` ends them."""
    s.context.rules.execute(s, node.body)
    s.bind(CONTINUED, v.Static(False))


def _for(s: LoweringState, node: ast.For, found: v.Lazy) -> None:
    """A loop that every turn runs to its end."""
    aliases = aliases_of(s, node)

    def turn(layouts: Layouts) -> Turn:
        t, args = enter_turn(s, layouts, (), aliases)
        index = s.context.value(INT, "turn")

        def body(u: LoweringState) -> None:
            assign(u, node.target, found.item(u, v.Leaf(index)))
            in_range(u, index)
            _body(u, node)

        run(t, body)
        return Turn(t, args, index)

    layouts, made, initial = settle(s, carried_names(s, node), turn, aliases, node)
    heaps.note_carried(s, [made.end], node)
    assert made.index is not None
    count = operand_of(s, found.length)
    if made.end.dead and not made.end.block.body:
        return
    yields = made.args if made.end.dead else yields_of(made.end, layouts)
    region = region_of((made.index, *made.args), made.end, yields)
    lists = [name for name, k in layouts.items() if any(isinstance(t, List) for t in leaf_types(k))]
    if lists and _is_short(s, node, lists, found.length, region):
        raise _CarriesList
    results = tuple(s.context.value(a.type) for a in made.args)
    s.emit(For(results, count, tuple(initial), region, s.span))
    leave(s, layouts, results, aliases)


def _is_short(s: LoweringState, node: ast.For, lists: Sequence[str], turns: v.Abstract, body: Region) -> bool:
    """Is a loop that carries lists better written out, turn after turn?"""
    if not isinstance(turns, v.Static) or turns.value > UNROLLED_AT_MOST:
        return False
    makes = s.context.memory.rows and not set(lists).isdisjoint(stores(*node.body))
    return makes or bool(turns.value * _size(body) <= MOST_UNROLLED)


def _size(region: Region) -> int:
    """Instructions of a region, where loops in it have some turns."""
    inner = ((1 if isinstance(i, If) else USUAL_TURNS) * _size(r) for i in region.body for r in regions(i))
    return len(region.body) + sum(inner)


def _while(s: LoweringState, node: Loop, found: v.Lazy | None) -> bool:
    """A `while`, or a `for` over `found` that some turn may leave; that one carries its index. Whether its test holds
    before every turn, whatever the turns before it have done."""
    index_types = () if found is None else (INT,)
    aliases = aliases_of(s, node)
    again = [False]  # does the test change something, so that a turn begins with it?
    always = [False]  # is the test true of whatever is carried?

    def more(t: LoweringState, index: v.Abstract | None) -> v.Abstract:
        if index is not None and found is not None:
            return traced(t, operator.lt, index, found.length if found.live is None else found.live(t))
        assert isinstance(node, ast.While)
        test = condition(t, node.test)
        always[0] = test is True
        return v.Static(test) if isinstance(test, bool) else v.Leaf(test)

    def turn(layouts: Layouts) -> Turn:
        head, head_args = enter_turn(s, layouts, index_types, aliases)
        entered = head.fork()
        held = v.Leaf(head_args[0]) if found is not None else None
        left = leaving(head)
        test = more(head, held) if left is None else both(head, negate(head, left), lambda t: more(t, held))
        holds = operand_of(head, test)
        t, args = enter_turn(s, layouts, index_types, aliases)
        _transfer(head, holds, head_args, t, args)
        again[0] = _binds(node) or heaps.is_changed(entered, head)

        def body(u: LoweringState) -> None:
            for flag in FLAGS:
                u.bind(flag, v.Static(False))
            if found is not None:
                assert isinstance(node, ast.For)
                assign(u, node.target, found.item(u, v.Leaf(args[0])))
                in_range(u, args[0])
            else:
                assert isinstance(node, ast.While)
                if again[0]:
                    u.evaluate(node.test)
            _body(u, node)

        run(t, body)
        return Turn(t, args, None, head, head_args, holds)

    layouts, made, initial = settle(s, carried_names(s, node), turn, aliases, node)
    assert made.head is not None and made.condition is not None
    heaps.note_carried(s, [made.head, made.end], node)
    first = [s.scalar(0)] if found is not None else []
    yields: list[Operand] = list(made.args)
    if not made.end.dead:
        step = [traced(made.end, _successor, v.Leaf(made.args[0])).operand] if found is not None else []
        yields = [*step, *yields_of(made.end, layouts)]
    elif not made.end.block.body:
        return always[0]
    head = region_of(made.head_args, made.head, (made.condition,))
    if found is None and not again[0] and _is_endless(s, head, region_of(made.args, made.end, yields)):
        assert isinstance(node, ast.While)
        test = condition(s, node.test)
        s.check(negate(s, operand_of(s, v.Static(test) if isinstance(test, bool) else v.Leaf(test))), *ENDLESS)
        s.dead = test is True
        return False
    results = tuple(s.context.value(a.type) for a in made.args)
    s.emit(While(results, (*first, *initial), head, region_of(made.args, made.end, yields), s.span))
    leave(s, layouts, results[len(index_types) :], aliases)
    if isinstance(node, ast.While) and again[0]:
        _last_test(s, node)
    return always[0]


def _is_endless(s: LoweringState, test: Region, turn: Region) -> bool:
    """Does a loop that has begun never end, as no turn changes what is tested, and none fails?"""
    inside = [i for region in (test, turn) for i in walk(region)]
    if any(isinstance(i, Call) or (isinstance(i, Apply) and can_fail(s, i)) for i in inside):
        return False
    read = free_values(Region((), test.body, test.results))
    tested = [k for k, a in enumerate(test.args) if a in read]
    return all(turn.results[k] == turn.args[k] for k in tested)


def _binds(node: Loop) -> bool:
    """Does the test of a `while` bind names?"""
    return isinstance(node, ast.While) and any(isinstance(n, ast.NamedExpr) for n in ast.walk(node.test))


def _last_test(s: LoweringState, node: ast.While) -> None:
    """The test that ended the loop has bound names too, unless a `break` or `return` ended it."""
    left = leaving(s)
    if left is None:
        s.evaluate(node.test)
    else:
        guarded_by(s, left, lambda t: _evaluate(t, node.test), node)


def _evaluate(s: LoweringState, node: ast.expr) -> None:
    s.evaluate(node)


def _successor(i: int) -> int:
    return i + 1


def _transfer(
    head: LoweringState, condition: Operand, old: Sequence[Value], t: LoweringState, new: Sequence[Value]
) -> None:
    """What the test of a loop says about the carried variables holds at the start of a turn."""
    inside = head.fork()
    inside.assume(condition, True)
    for a, b in zip(old, new, strict=True):
        if a in inside.block.facts:
            t.block.facts[b] = inside.block.facts[a]
        known = inside.block.truth(a)
        if known is not None:
            t.block.known[b] = known
