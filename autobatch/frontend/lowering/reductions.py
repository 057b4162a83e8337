"""`sum`, `any`, `all`, `min`, `max` over containers, lists and comprehensions."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax.numpy as jnp

from autobatch.frontend.library.numpy_arrays import kind_of
from autobatch.frontend.library.ordering import first_of, keys_of
from autobatch.frontend.library.tables import concatenate, flatten
from autobatch.frontend.lowering import unions
from autobatch.frontend.lowering.attributes import written
from autobatch.frontend.lowering.branches import truth
from autobatch.frontend.lowering.comprehensions import collect
from autobatch.frontend.lowering.joins import conditional, stored
from autobatch.frontend.lowering.loops import for_statement
from autobatch.frontend.lowering.numbers import coerce, combine, integer, is_number, operand_of, present, traced
from autobatch.frontend.lowering.operators import apply_binary, compare_with
from autobatch.frontend.lowering.selection import of_each
from autobatch.frontend.lowering.sequences import length, listing_item, sequence
from autobatch.frontend.lowering.state import LoweringState, variable
from autobatch.frontend.lowering.unions import taken_as
from autobatch.frontend.syntax.sources import stores
from autobatch.frontend.tracing.recipes import alike_for_all
from autobatch.frontend.types import values as v
from autobatch.frontend.types.layouts import LeafLayout, type_name
from autobatch.ir import jax_compat
from autobatch.ir.core import INT, Array, For, List, Operand, Region, Value
from autobatch.ir.ops import NO_ELEMENTS, own

Comparison = Callable[[Any, Any], Any]


def sum_of(s: LoweringState, value: v.Abstract, start: v.Abstract, *, builtin: bool = False) -> v.Abstract:
    """`sum(value, start)`. `builtin`: it is Python's, whose sum of nothing is an int."""
    found = sequence(s, value)
    if _is_list(start):
        lists = collect(s, found, lambda t, x: (True, lambda u: stored(u, x)), listed=True)
        return concatenate(s, start, flatten(s, lists))
    if isinstance(found, v.Record):
        return _combined(s, operator.add, found.items, start)
    if not is_number(start) or _are_added(s, value, found):
        return s.call(v.Static(_added), [value, start])
    listing = collect(s, found, lambda t, x: (True, lambda u: _term(u, x, "sum() adds")))
    if isinstance(listing, v.Record):
        return start
    total = _reduce(s, listing, "sum")
    if builtin and start == v.Static(0) and isinstance(found.length, v.Leaf) and isinstance(total.operand, Value):
        s.context.meanings[total.operand] = ("sum", found.length.operand)
    return total if start == v.Static(0) else apply_binary(s, operator.add, start, total)


def _are_added(s: LoweringState, value: v.Abstract, found: v.Lazy) -> bool:
    """Are the elements of a list objects of the user, which are added to numbers?"""
    is_list = isinstance(value, v.Listing | v.MemoryRow) or (isinstance(value, v.Leaf) and isinstance(value.type, List))
    return is_list and written(s, found.item(s.fork(), v.Static(0)), "__radd__")


def _added(items: Any, total: Any) -> Any:
    """Lowered like a function of the user."""
    for x in items:
        total = total + x
    return total


def product_of(s: LoweringState, value: v.Abstract, start: v.Abstract) -> v.Abstract:
    """`math.prod(value, start=start)`"""
    found = sequence(s, value)
    if isinstance(found, v.Record):
        return _combined(s, operator.mul, found.items, start)
    listing = collect(s, found, lambda t, x: (True, lambda u: _term(u, x, "prod() multiplies")))
    if isinstance(listing, v.Record):
        return start
    total = multiplied(s, listing)
    return total if start == v.Static(1) else apply_binary(s, operator.mul, start, total)


def multiplied(s: LoweringState, listing: v.Listing) -> v.Leaf:
    """The product of numbers or arrays. Those that can move are multiplied one after the other, as Python does: the
    derivative by one of them is the product of the others then, which no division by a zero gives."""
    assert isinstance(listing.elem, LeafLayout) and isinstance(listing.elem.type, Array)
    type = listing.elem.type
    if type.is_integer or type.is_bool:
        return _reduce(s, listing, "prod")
    t, turn, before = s.fork(), s.context.value(INT, "turn"), s.context.value(type, "product")
    factor = listing_item(t, listing, v.Leaf(turn))
    after = coerce(t, traced(t, operator.mul, v.Leaf(before), factor).operand, type)
    result = s.context.value(type)
    region = Region((turn, before), tuple(t.block.body), (after,))
    s.emit(For((result,), operand_of(s, length(s, listing)), (coerce(s, s.scalar(1), type),), region, s.span))
    return v.Leaf(result, numpy=listing.elem.numpy or None)


def _is_list(value: v.Abstract) -> bool:
    if isinstance(value, v.Static):
        return isinstance(value.value, (list, tuple))
    return isinstance(value, v.Listing | v.Lazy) or (isinstance(value, v.Record) and value.kind in ("list", "tuple"))


def _combined(s: LoweringState, function: Comparison, items: Sequence[v.Abstract], start: v.Abstract) -> v.Abstract:
    total = start
    for x in items:
        total = apply_binary(s, function, total, x)
    return total


def _term(s: LoweringState, value: v.Abstract, does: str) -> v.Abstract:
    value = taken_as(s, present(s, value), unions.is_number)
    if (made := of_each(s, (value,), lambda t, x: _term(t, x, does), lambda x: sum([x]))) is not None:
        return made
    if not is_number(value):
        cure = "take the parts one by one; or give sum() an object that it starts with: sum(vectors, Vector(0.0, 0.0))"
        s.refuse(f"{does} numbers and arrays, and this is a {type_name(value)}", cure)
    return v.Leaf(integer(s, operand_of(s, value)), numpy=kind_of([value]))


def _reduce(s: LoweringState, listing: v.Listing, kind: str) -> v.Leaf:
    assert isinstance(listing.elem, LeafLayout)
    result = s.apply(own("reduce", kind=kind), listing.lists, listing.elem.type)
    return v.Leaf(result, numpy=listing.elem.numpy or None)


def reduce_sequence(s: LoweringState, value: v.Abstract, kind: str) -> v.Abstract:
    """`any(value)`, `all(value)`"""
    found = sequence(s, value)
    if isinstance(found, v.Record):
        return _reduce_items(s, found.items, kind)

    def body(t: LoweringState, x: v.Abstract) -> tuple[bool, Callable[[LoweringState], v.Abstract]]:
        return True, lambda u: v.Leaf(as_operand(u, truth(u, x)))

    listing = collect(s, found, body)
    if isinstance(listing, v.Record):
        return v.Static(kind == "all")
    return _reduce(s, listing, kind)


def as_operand(s: LoweringState, condition: bool | Operand) -> Operand:
    return s.scalar(condition) if isinstance(condition, bool) else condition


def _reduce_items(s: LoweringState, items: Sequence[v.Abstract], kind: str) -> v.Abstract:
    decisive = kind == "any"
    result: Operand | None = None
    for x in items:
        condition = truth(s, x)
        if condition is decisive:
            return v.Static(decisive)
        if not isinstance(condition, bool):
            result = condition if result is None else combine(s, "or" if decisive else "and", result, condition)
    return v.Static(not decisive) if result is None else v.Leaf(result)


def extreme(
    s: LoweringState, args: Sequence[v.Abstract], kwargs: dict[str, v.Abstract], better: Comparison
) -> v.Abstract:
    """`min` and `max`: of several arguments or of one sequence, with `key` and `default`."""
    value = args[0] if len(args) == 1 else v.Record("tuple", tuple(range(len(args))), tuple(args))
    key, default = kwargs.get("key"), kwargs.get("default")
    key = None if key == v.Static(None) else key
    found = sequence(s, value)
    if isinstance(found, v.Record):
        return _extreme_item(s, found.items, key, default, better)
    if default is None:
        return _extreme_of_list(s, found, key, better, checked=True)
    some = truth(s, compare_with(s, operator.gt, found.length, v.Static(0)))
    if isinstance(some, bool):
        return _extreme_of_list(s, found, key, better) if some else default
    return conditional(s, some, lambda t: _extreme_of_list(t, found, key, better), lambda t: default)


def _extreme_item(
    s: LoweringState,
    items: Sequence[v.Abstract],
    key: v.Abstract | None,
    default: v.Abstract | None,
    better: Comparison,
) -> v.Abstract:
    if not items:
        if default is not None:
            return default
        s.check(s.scalar(False), "ValueError", NO_ELEMENTS["min" if better is operator.lt else "max"])
        s.dead = True
        return v.Static(None)
    best = items[0]
    best_key = best if key is None else s.call(key, [best])
    for x in items[1:]:
        x_key = x if key is None else s.call(key, [x])
        best, best_key = _pick(s, better, x, x_key, best, best_key, key is None)
    return best


def _pick(
    s: LoweringState, better: Comparison, x: v.Abstract, x_key: v.Abstract, y: v.Abstract, y_key: v.Abstract, same: bool
) -> tuple[v.Abstract, v.Abstract]:
    """The better of two items and its key; the first of equal ones."""
    x_key, y_key = present(s, x_key), present(s, y_key)
    if same and is_number(x_key) and is_number(y_key) and not _both_static(x_key, y_key):
        best: v.Abstract = traced(s, _smaller if better is operator.lt else _larger, x_key, y_key)
        return best, best
    condition = truth(s, compare_with(s, better, x_key, y_key))
    if isinstance(condition, bool):
        return (x, x_key) if condition else (y, y_key)
    chosen = conditional(s, condition, lambda t: _pair(x, x_key), lambda t: _pair(y, y_key))
    assert isinstance(chosen, v.Record)
    return chosen.items[0], chosen.items[1]


def _pair(x: v.Abstract, y: v.Abstract) -> v.Record:
    return v.Record("tuple", (0, 1), (x, y))


def _both_static(x: v.Abstract, y: v.Abstract) -> bool:
    return isinstance(x, v.Static) and isinstance(y, v.Static)


@alike_for_all
@jax_compat.choosing
def _where(condition: Any, x: Any, y: Any) -> Any:
    return jnp.where(condition, x, y)


@alike_for_all
@jax_compat.choosing
def _smaller(x: Any, y: Any) -> Any:
    return jnp.where(x < y, x, y)


@alike_for_all
@jax_compat.choosing
def _larger(x: Any, y: Any) -> Any:
    return jnp.where(x > y, x, y)


def _extreme_of_list(
    s: LoweringState, found: v.Lazy, key: v.Abstract | None, better: Comparison, *, checked: bool = False
) -> v.Abstract:
    """Of a list that has an element; `checked` fails the examples whose list is empty."""
    kind = "min" if better is operator.lt else "max"
    keys = keys_of(s, found, key)
    if keys is None:
        s.refuse(
            f"{kind}() of a list whose elements are not known", "annotate the list, or give an example that has one"
        )
    count = length(s, keys)
    if checked:
        some = compare_with(s, operator.gt, count, v.Static(0))
        s.check(operand_of(s, some), "ValueError", NO_ELEMENTS[kind])
    if isinstance(keys.elem, LeafLayout) and isinstance(keys.elem.type, Array):
        if key is None:
            return _reduce(s, keys, kind)
        items = collect(s, found, lambda t, x: (True, lambda u: stored(u, present(u, x))))
        if isinstance(items, v.Listing) and isinstance(items.elem, LeafLayout) and isinstance(items.elem.type, Array):
            return _carried(s, keys, items, count, better)
    return found.item(s, first_of(s, keys, greatest=better is operator.gt))


def _carried(s: LoweringState, keys: v.Listing, items: v.Listing, count: v.Abstract, better: Comparison) -> v.Abstract:
    """The number with the first best key: a loop that carries it, so that keys may be computed in the batch."""
    t, first = s.fork(), v.Static(0)
    start = [operand_of(s, listing_item(s, x, first)) for x in (keys, items)]
    turn, best_key, best = (s.context.value(x, "turn" if x is INT else "best") for x in (INT, *(o.type for o in start)))
    key, found = (listing_item(t, x, v.Leaf(turn)) for x in (keys, items))
    hit = traced(t, better, key, v.Leaf(best_key))
    chosen = [traced(t, _where, hit, x, v.Leaf(y)).operand for x, y in ((key, best_key), (found, best))]
    region = Region((turn, best_key, best), tuple(t.block.body), tuple(chosen))
    results = tuple(s.context.value(o.type) for o in start)
    s.emit(For(results, operand_of(s, count), tuple(start), region, s.span))
    return v.Leaf(results[1])


# ---- searching
#
# `next(...)` of a generator expression: a loop that stops at the first element.
#
# next((c for c in t.kids if c.ok), d)        found = d
#                                        ->   for c in t.kids:
#                                                 if c.ok: found = c; break


_FOUND, _HIT = "<found>", "<hit>"
Node = TypeVar("Node", bound=ast.AST)


def first_element(s: LoweringState, node: ast.Call) -> v.Abstract | None:
    """The value of `next(elements, default)`; None when the call is another one."""
    match node:
        case ast.Call(func=ast.Name(id="next"), args=[elements, *default], keywords=[]) if len(default) < 2:
            generator = _generator(s, elements)
        case _:
            return None
    if generator is None or variable(s, "next") != v.Static(next):
        return None
    before, own = dict(s.env), stores(*(g.target for g in generator.generators))
    for name in own:
        s.env.pop(name, None)
    s.bind(_FOUND, stored(s, s.evaluate(default[0])) if default else v.Unset(_FOUND))
    s.bind(_HIT, v.Static(False))
    known = s.context.memory.rewritten  # what is noted of a loop is found again by it
    if node not in known:
        known[node] = _search(generator)
    for_statement(s, known[node])
    found, hit = s.env[_FOUND].value, present(s, s.env[_HIT].value)
    s.restore(before, own)
    if not default:
        s.check(operand_of(s, hit), "StopIteration", "")
        if isinstance(found, v.Unset):
            s.dead = True
    return found


def _generator(s: LoweringState, elements: ast.expr) -> ast.GeneratorExp | None:
    """The generator whose first element is asked for: written out, or `iter(items)`."""
    match elements:
        case ast.GeneratorExp():
            return elements
        case ast.Call(func=ast.Name(id="iter"), args=[items], keywords=[]) if variable(s, "iter") == v.Static(iter):
            name = "<element>"
            made = ast.comprehension(ast.Name(name, ast.Store()), items, [], 0)
            return _at(elements, ast.GeneratorExp(ast.Name(name, ast.Load()), [made]))
        case _:
            return None


def _search(generator: ast.GeneratorExp) -> ast.For:
    """The loop, or several in each other: the outer ones stop when an inner one has stopped."""
    body: list[ast.stmt] = [
        ast.Assign([ast.Name(_FOUND, ast.Store())], generator.elt),
        ast.Assign([ast.Name(_HIT, ast.Store())], ast.Constant(True)),
        ast.Break(),
    ]
    for part in reversed(generator.generators):
        for test in reversed(part.ifs):
            body = [ast.If(test, body, [])]
        loop = ast.For(part.target, part.iter, body, [])
        body = [loop, ast.If(ast.Name(_HIT, ast.Load()), [ast.Break()], [])]
    return _at(generator, loop)


def _at(place: ast.AST, made: Node) -> Node:
    """A node that was made, at a place of the source, with all its parts that have none."""
    ast.copy_location(made, place)
    return ast.fix_missing_locations(made)
