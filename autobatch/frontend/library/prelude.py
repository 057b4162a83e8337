"""Functions of Python's library, in Python: they are lowered like a function of the user, at the place of the call."""

from __future__ import annotations

import functools
import itertools
import math
import operator
import types
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import jax.numpy as jnp

from autobatch.frontend.library.builtin_functions import BUILTINS
from autobatch.frontend.library.joined import EMPTY, concatenate, flatten
from autobatch.frontend.lowering.calls import activate, bind_arguments
from autobatch.frontend.lowering.comprehensions import collect
from autobatch.frontend.lowering.joins import stored
from autobatch.frontend.lowering.sequences import sequence, sliced
from autobatch.frontend.lowering.state import LoweringState
from autobatch.frontend.memory.list_heap import copied
from autobatch.frontend.syntax.iterator_variables import listed
from autobatch.frontend.syntax.sources import Lent, source_of
from autobatch.frontend.types import values as v

Arguments = Sequence[v.Abstract]
Named = dict[str, v.Abstract]


def _index(items: Any, value: Any) -> Any:
    for position, item in enumerate(items):
        if item == value:
            return position
    raise ValueError("the value is not in the list")


def _index_between(items: Any, value: Any, start: Any, stop: Any) -> Any:
    places = range(len(items))[start:stop]
    for k in range(len(places)):
        if items[places[k]] == value:
            return places[k]
    raise ValueError("the value is not in the list")


def _reduce(function: Any, items: Any) -> Any:
    found = list(items)
    if len(found) == 0:
        raise TypeError("reduce() of empty iterable with no initial value")
    result = found[0]
    for item in found[1:]:
        result = function(result, item)
    return result


def _reduce_from(function: Any, items: Any, initial: Any) -> Any:
    for item in items:
        initial = function(initial, item)
    return initial


def _power(base: Any, exp: Any, mod: Any = None) -> Any:
    """By squares, so that no number in between is larger than the square of `mod`."""
    if mod is None:
        return base**exp
    if mod == 0:
        raise ValueError("pow() 3rd argument cannot be 0")
    square, left, result = base % mod, exp, 1 % mod
    if left < 0:
        square, left = _inverse(base, mod), -left
    while left > 0:
        if left % 2 == 1:
            result = result * square % mod
        square, left = square * square % mod, left // 2
    return result


def _inverse(base: Any, mod: Any) -> Any:
    """By the extended algorithm of Euclid."""
    a, b, x, y = abs(mod), base % abs(mod), 0, 1
    while b != 0:
        times = a // b
        a, b, x, y = b, a - times * b, y, x - times * y
    if a != 1:
        raise ValueError("base is not invertible for the given modulus")
    return x % mod


def _is_whole(x: Any) -> Any:
    return x == x // 1


def _bits(n: Any) -> Any:
    n, count = abs(n), 0
    while n > 0:
        n, count = n // 2, count + 1
    return count


def _ones(n: Any) -> Any:
    n, count = abs(n), 0
    while n > 0:
        n, count = n // 2, count + n % 2
    return count


def _add(a: Any, b: Any) -> Any:
    return a + b


def accumulate(items: Any, function: Any = _add) -> Any:
    found = list(items)
    if len(found) == 0:
        return found
    total = found[0]
    totals = [total]
    for item in found[1:]:
        total = function(total, item)
        totals.append(total)
    return totals


def _accumulate_from(items: Any, function: Any = _add, *, initial: Any) -> Any:
    totals = [initial]
    for item in items:
        initial = function(initial, item)
        totals.append(initial)
    return totals


def along_first(rows: Any, function: Any) -> Any:
    total = list(rows[0])
    for row in rows[1:]:
        total = [function(a, b) for a, b in zip(total, row, strict=True)]
    return total


def in_order(items: Any) -> Any:
    return sorted(items)


def places_in_order(items: Any) -> Any:
    return [place for _, place in sorted([(items[k], k) for k in range(len(items))])]


def middle(items: Any) -> Any:
    found = sorted(items)
    count = len(found)
    return (found[(count - 1) // 2] + found[count // 2]) * 0.5


def place_of_greatest(items: Any) -> Any:
    best: Any = items[0]
    place: Any = 0
    for k in range(1, len(items)):
        better = (items[k] > best) | ((items[k] != items[k]) & (best == best))
        best, place = jnp.where(better, items[k], best), jnp.where(better, k, place)
    return place


def place_of_least(items: Any) -> Any:
    best: Any = items[0]
    place: Any = 0
    for k in range(1, len(items)):
        better = (items[k] < best) | ((items[k] != items[k]) & (best == best))
        best, place = jnp.where(better, items[k], best), jnp.where(better, k, place)
    return place


def _pairwise(items: Any) -> Any:
    found = list(items)
    return [(found[k], found[k + 1]) for k in range(len(found) - 1)]


def _zip_longest(xs: Any, ys: Any, fillvalue: Any = None) -> Any:
    a, b = list(xs), list(ys)
    n, m = len(a), len(b)
    return [(a[k] if k < n else fillvalue, b[k] if k < m else fillvalue) for k in range(max(n, m))]


def _starmap(function: Any, items: Any) -> Any:
    return [function(*x) for x in items]


def _compress(items: Any, selectors: Any) -> Any:
    return [x for x, k in zip(items, selectors) if k]  # noqa: B905


def _filterfalse(predicate: Any, items: Any) -> Any:
    return [x for x in items if not predicate(x)]


def _repeat(item: Any, times: Any) -> Any:
    return [item for _ in range(times)]


def _isclose(a: Any, b: Any, rel_tol: Any, abs_tol: Any) -> Any:
    if abs(a) == math.inf or abs(b) == math.inf:
        return a == b
    return a == b or abs(a - b) <= max(rel_tol * max(abs(a), abs(b)), abs_tol)


def _item_of(key: Any) -> Any:
    return lambda x: x[key]


def _items_of(*keys: Any) -> Any:
    return lambda x: tuple([x[k] for k in keys])


class _Compared:
    """What `cmp_to_key(compare)` makes of an element."""

    def __init__(self, compare: Any, element: Any) -> None:
        self.compare, self.element = compare, element

    def __lt__(self, other: Any) -> Any:
        return self.compare(self.element, other.element) < 0

    def __gt__(self, other: Any) -> Any:
        return self.compare(self.element, other.element) > 0


def _compared_by(compare: Any) -> Any:
    return lambda x: _Compared(compare, x)


def _next_or(iterator: Any, default: Any) -> Any:
    try:
        return iterator.__next__()
    except StopIteration:
        return default


def _join(separator: Any, items: Any) -> Any:
    joined = ""
    first = True
    for item in items:
        joined = joined + item if first else joined + separator + item
        first = False
    return joined


def run(s: LoweringState, function: Callable[..., Any], args: Arguments, kwargs: Named) -> v.Abstract:
    """A call of a function of this module."""
    assert isinstance(function, types.FunctionType)
    cache = s.context.memory.sources
    key: Any = (function, s.span)
    if key not in cache:
        source = source_of(function)
        cache[key] = Lent(**{f.name: getattr(source, f.name) for f in fields(source)}, place=s.span)
    defaults: Named = {"function": v.Static(_add)}
    return activate(s, cache[key], bind_arguments(s, cache[key], args, kwargs, defaults), {})


def _written(function: Callable[..., Any]) -> Callable[[LoweringState, Arguments, Named], v.Abstract]:
    return lambda s, args, kwargs: run(s, function, args, kwargs)


def _reduced(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    return run(s, _reduce if len(args) == 2 else _reduce_from, args, kwargs)


def _accumulated(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    named = {"function" if k == "func" else k: x for k, x in kwargs.items() if k != "initial" or x != v.Static(None)}
    return run(s, _accumulate_from if "initial" in named else accumulate, args, named)


def _chain(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    return concatenate(s, EMPTY, *args)


def _chain_of(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    lists = collect(s, sequence(s, args[0]), lambda t, x: (True, lambda u: stored(u, copied(u, x))), listed=True)
    return flatten(s, lists)


def _islice(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    bounds = [v.Static(None), args[1], v.Static(None)] if len(args) == 2 else [*args[1:], v.Static(None)][:3]
    return sliced(s, args[0], bounds)


def _longest(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    if len(args) != 2:
        s.refuse("itertools.zip_longest() of two lists can be compiled", "append to the shorter ones in front of it")
    return run(s, _zip_longest, args, {"fillvalue": v.Static(None)} | kwargs)


def _is_close(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    return run(s, _isclose, args, {"rel_tol": v.Static(1e-9), "abs_tol": v.Static(0.0)} | kwargs)


def _listed(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    """What an iterator in a variable runs over, as a list."""
    if isinstance(args[0], v.Generator):
        s.refuse("an iterator of a generator is kept here", "make a list of it: iter(list(...))")
    if len(args) > 1:
        s.refuse("an iterator is kept of what is changed behind it", "make a list of it: iter(list(...))")
    return BUILTINS[list](s, args, {})


def stepped(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    """`next(iterator)` and `next(iterator, default)` of a class of the user."""
    return (
        s.call(s.context.rules.attribute(s, args[0], "__next__"), []) if len(args) == 1 else run(s, _next_or, args, {})
    )


LIBRARY: dict[Any, Callable[[LoweringState, Arguments, Named], v.Abstract]] = {
    float.is_integer: _written(_is_whole),
    functools.cmp_to_key: _written(_compared_by),
    functools.reduce: _reduced,
    int.bit_count: _written(_ones),
    int.bit_length: _written(_bits),
    itertools.accumulate: _accumulated,
    itertools.chain: _chain,
    itertools.chain.from_iterable: _chain_of,
    itertools.compress: _written(_compress),
    itertools.filterfalse: _written(_filterfalse),
    itertools.islice: _islice,
    itertools.pairwise: _written(_pairwise),
    itertools.repeat: _written(_repeat),
    itertools.starmap: _written(_starmap),
    itertools.zip_longest: _longest,
    listed: _listed,
    math.isclose: _is_close,
    pow: lambda s, args, kwargs: (BUILTINS[pow] if len(args) == 2 else _written(_power))(s, args, kwargs),
    operator.itemgetter: lambda s, args, kwargs: run(s, _item_of if len(args) == 1 else _items_of, args, kwargs),
}
"""Functions of `functools`, `itertools`, `math` and `operator`, and of classes that are built in."""


_TOTAL: dict[str, Callable[..., Any]] = {
    "_gt_from_lt": lambda a, b: not (a < b) and a != b,
    "_le_from_lt": lambda a, b: a < b or a == b,
    "_ge_from_lt": lambda a, b: not (a < b),
    "_ge_from_le": lambda a, b: not (a <= b) or a == b,
    "_lt_from_le": lambda a, b: a <= b and a != b,
    "_gt_from_le": lambda a, b: not (a <= b),
    "_lt_from_gt": lambda a, b: not (a > b) and a != b,
    "_ge_from_gt": lambda a, b: a > b or a == b,
    "_le_from_gt": lambda a, b: not (a > b),
    "_le_from_ge": lambda a, b: not (a >= b) or a == b,
    "_gt_from_ge": lambda a, b: a >= b and a != b,
    "_lt_from_ge": lambda a, b: not (a >= b),
}
"""What `functools.total_ordering` gives a class, by the names that the functions have in `functools`."""
LIBRARY |= {getattr(functools, name): _written(f) for name, f in _TOTAL.items() if hasattr(functools, name)}


def join(s: LoweringState, args: Arguments) -> v.Abstract:
    """`separator.join(items)` of a list whose length is data."""
    return run(s, _join, args, {})


def index_of(s: LoweringState, receiver: v.Abstract, args: Arguments, kwargs: Named) -> v.Abstract:
    """`receiver.index(value)` of a list or tuple, also with a start and a stop."""
    if len(args) == 1:
        return run(s, _index, [receiver, *args], kwargs)
    bounds = [*args[1:], v.Static(None)][:2]
    return run(s, _index_between, [receiver, args[0], *bounds], kwargs)
