"""Functions of Python's library, in Python: they are lowered like a function of the user, at the place of the call."""

from __future__ import annotations

import functools
import heapq
import itertools
import linecache
import math
import operator
import statistics
import types
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import lru_cache
from typing import Any

import jax.numpy as jnp

from autobatch.frontend.library.builtin_functions import BUILTINS
from autobatch.frontend.library.equality import fields_shown
from autobatch.frontend.library.strings import is_text, text
from autobatch.frontend.library.tables import EMPTY, concatenate, flatten
from autobatch.frontend.lowering.attributes import alternatives, written
from autobatch.frontend.lowering.calls import activate, bind_arguments
from autobatch.frontend.lowering.comprehensions import collect
from autobatch.frontend.lowering.joins import conditional, stored
from autobatch.frontend.lowering.numbers import operand_of
from autobatch.frontend.lowering.operators import identical
from autobatch.frontend.lowering.selection import of_each
from autobatch.frontend.lowering.sequences import check_zipped, length, sequence, sliced
from autobatch.frontend.lowering.state import LoweringState, hand_out
from autobatch.frontend.lowering.unions import by_type
from autobatch.frontend.memory.list_heap import copied
from autobatch.frontend.syntax.flattening import of_one_length
from autobatch.frontend.syntax.generators import lent
from autobatch.frontend.syntax.iterator_variables import listed, stepped_through
from autobatch.frontend.syntax.sources import Lent, source_of
from autobatch.frontend.types import values as v
from autobatch.ir.core import BOOL, INT, List, Ref

Arguments = Sequence[v.Abstract]
Named = dict[str, v.Abstract]


def _index(items: Any, value: Any) -> Any:
    for position, item in enumerate(items):
        if item == value:
            return position
    raise ValueError(f"{value!r} is not in list")


def _place_to_remove(items: Any, value: Any) -> Any:
    for position, item in enumerate(items):
        if item == value:
            return position
    raise ValueError("list.remove(x): x not in list")


def _index_between(items: Any, value: Any, start: Any, stop: Any) -> Any:
    places = range(len(items))[start:stop]
    for k in range(len(places)):
        if items[places[k]] == value:
            return places[k]
    raise ValueError(f"{value!r} is not in list")


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


def _gcd(*numbers: Any) -> Any:
    """By the algorithm of Euclid."""
    found = 0
    for n in numbers:
        a, b = abs(n), found
        while b != 0:
            a, b = b, a % b
        found = a
    return found


def _lcm(*numbers: Any) -> Any:
    found = 1
    for n in numbers:
        found = found // _gcd(n, found) * abs(n) if n != 0 else 0
    return found


def _isqrt(n: Any) -> Any:
    """By Newton's steps, from above."""
    if n < 0:
        raise ValueError("isqrt() argument must be nonnegative")
    found, less = n, n // 2 + n % 2
    while less < found:
        found, less = less, (less + n // less) // 2
    return found


def _falling(n: Any, k: Any) -> Any:
    """The product of k numbers from n downward."""
    found = 1
    for i in range(k):
        found = found * (n - i)
    return found


def _factorial(n: Any) -> Any:
    if n < 0:
        raise ValueError("factorial() not defined for negative values")
    return _falling(n, n)


def _refuse_negative(n: Any, k: Any) -> None:
    if n < 0:
        raise ValueError("n must be a non-negative integer")
    if k < 0:
        raise ValueError("k must be a non-negative integer")


def _perm(n: Any, k: Any) -> Any:
    _refuse_negative(n, k)
    return _falling(n, k) if k <= n else 0


def _comb(n: Any, k: Any) -> Any:
    """Each partial product is a binomial coefficient, so none is much larger than the result."""
    _refuse_negative(n, k)
    found = 1
    for i in range(min(k, n - k)):
        found = found * (n - i) // (i + 1)
    return found if k <= n else 0


def _in_base(n: Any, base: Any, prefix: Any) -> Any:
    left, digits = abs(n) // base, "0123456789abcdef"[abs(n) % base]
    while left > 0:
        left, digits = left // base, "0123456789abcdef"[left % base] + digits
    return "-" + prefix + digits if n < 0 else prefix + digits


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


def where_true(items: Any, mask: Any) -> Any:
    if len(mask) != len(items):
        raise IndexError("boolean index did not match indexed array along axis 0")
    return [items[k] for k in range(len(items)) if mask[k]]


def at_places(items: Any, places: Any) -> Any:
    return [items[k] for k in places]


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


def _based(base: int, prefix: str) -> Callable[[LoweringState, Arguments, Named], v.Abstract]:
    return lambda s, args, kwargs: run(s, _in_base, [*args, v.Static(base), v.Static(prefix)], kwargs)


def _permutations(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    whole = len(args) == 1 or args[1] == v.Static(None)
    return run(s, _factorial, args[:1], kwargs) if whole else run(s, _perm, args, kwargs)


def _is_close(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    return run(s, _isclose, args, {"rel_tol": v.Static(1e-9), "abs_tol": v.Static(0.0)} | kwargs)


def _quoted(word: Any) -> Any:
    quote = '"' if "'" in word and '"' not in word else "'"
    made = quote
    for letter in word:
        if letter == quote or letter == "\\":
            made += "\\" + letter
        elif letter.isprintable():
            made += letter
        elif letter in "\n\r\t":
            made += "\\n" if letter == "\n" else "\\r" if letter == "\r" else "\\t"
        else:
            code = ord(letter)
            digits = 2 if code < 256 else 4 if code < 65536 else 8
            made += "\\x" if digits == 2 else "\\u" if digits == 4 else "\\U"
            for k in range(digits):
                made += "0123456789abcdef"[(code >> 4 * (digits - 1 - k)) % 16]
    return made + quote


def _list_shown(items: Any) -> Any:
    return "[" + ", ".join([repr(x) for x in items]) + "]"


def _tuple_shown(items: Any) -> Any:
    return "(" + ", ".join([repr(x) for x in items]) + (",)" if len(items) == 1 else ")")


def _dict_shown(items: Any) -> Any:
    return "{" + ", ".join([repr(k) + ": " + repr(x) for k, x in items.items()]) + "}"


_SHOWN: dict[Any, Callable[[Any], Any]] = {list: _list_shown, tuple: _tuple_shown, dict: _dict_shown}


def _shown(s: LoweringState, value: v.Abstract, function: Callable[[Any], str]) -> v.Abstract:
    """`str(value)` or `repr(value)`, whichever function it is."""

    def of(t: LoweringState, x: v.Abstract) -> v.Abstract:
        return _shown(t, x, function)

    if (made := of_each(s, (value,), of)) is not None:
        return made
    if alternatives(s, value):
        return by_type(s, value, of, v.Static("None"))
    if isinstance(value, v.Static):
        hand_out(s.context, value.value)
        return v.Static(function(value.value))
    if is_text(value):
        return value if function is str else run(s, _quoted, [value], {})
    if isinstance(value, v.Leaf) and value.type in (INT, BOOL):
        return text(s, "format", v.Static("{}"), value)
    if isinstance(value, v.Leaf) and not isinstance(value.type, Ref | List):
        s.refuse(f"{function.__name__}() of a value of the program cannot be compiled", "make strings before packing")
    missing = operand_of(s, identical(s, value, v.Static(None)))
    if s.block.truth(missing) is not False:
        there = value.value if isinstance(value, v.Optional) else value
        return conditional(s, missing, lambda t: v.Static("None"), lambda t: of(t, there))
    return _present_shown(s, value, function)


def _present_shown(s: LoweringState, value: v.Abstract, function: Callable[[Any], str]) -> v.Abstract:
    """Of an object or a container."""
    cls = BUILTINS[type](s, [value], {})
    kind = cls.value if isinstance(cls, v.Static) else None
    fields_of = fields_shown(kind) if isinstance(kind, type) else None
    for method in ("__str__", "__repr__") if function is str else ("__repr__",):
        if written(s, value, method) and (method == "__str__" or fields_of is None):
            return s.call(s.context.rules.attribute(s, value, method), [])
    if isinstance(kind, type) and issubclass(kind, BaseException) and function is str:
        given = s.context.rules.attribute(s, value, "args")
        if isinstance(given, v.Record) and len(given.items) < 2:
            return s.call(v.Static(repr if given.items and issubclass(kind, KeyError) else str), given.items)
    if kind in _SHOWN:
        return run(s, _SHOWN[kind], [value], {})
    if fields_of is None:
        s.refuse(f"{function.__name__}() of a value of the program cannot be compiled", "make strings before packing")
    return s.call(v.Static(fields_of), [value])


def _of_one_length(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    check_zipped(s, [length(s, sequence(s, x)) for x in args])
    return v.Static(None)


def _stepped_through(iterator: Any) -> Any:
    found = []
    for item in iterator:
        found.append(item)
    return found


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
    bin: _based(2, "0b"),
    float.is_integer: _written(_is_whole),
    functools.cmp_to_key: _written(_compared_by),
    functools.reduce: _reduced,
    hex: _based(16, "0x"),
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
    math.comb: _written(_comb),
    math.factorial: _written(_factorial),
    math.gcd: _written(_gcd),
    math.isclose: _is_close,
    math.isqrt: _written(_isqrt),
    math.lcm: _written(_lcm),
    math.perm: _permutations,
    oct: _based(8, "0o"),
    stepped_through: _written(_stepped_through),
    of_one_length: _of_one_length,
    repr: lambda s, args, kwargs: _shown(s, args[0], repr),
    str: lambda s, args, kwargs: _shown(s, args[0], str) if args else v.Static(""),
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


def place_to_remove(s: LoweringState, receiver: v.Abstract, value: v.Abstract) -> v.Abstract:
    """Where `receiver.remove(value)` takes an element out."""
    return run(s, _place_to_remove, [receiver, value], {})


# ---- standard
#
# More functions of Python's library, in Python (`prelude.py`): of `statistics`, `math`, `heapq` and `dict`.


def _mean(data: Any) -> Any:
    xs = list(data)
    if len(xs) < 1:
        raise statistics.StatisticsError("mean requires at least one data point")
    return sum(xs) / len(xs)


def _median(data: Any) -> Any:
    xs = sorted(data)
    n = len(xs)
    if n == 0:
        raise statistics.StatisticsError("no median for empty data")
    return xs[n // 2] if n % 2 == 1 else (xs[n // 2 - 1] + xs[n // 2]) / 2


def _spread(data: Any, center: Any, least: Any) -> Any:
    """The mean square of the distances from the mean; `least`: so many data there must be, and one less are free."""
    xs = list(data)
    n = len(xs)
    if n < least:
        raise statistics.StatisticsError("variance requires more data points")
    middle = sum(xs) / n if center is None else center
    return sum([(x - middle) * (x - middle) for x in xs]) / (n + 1 - least)


def _root_of_spread(data: Any, center: Any, least: Any) -> Any:
    return math.sqrt(_spread(data, center, least))


def _distance(p: Any, q: Any) -> Any:
    if len(p) != len(q):
        raise ValueError("both points must have the same number of dimensions")
    return math.sqrt(sum([(x - y) * (x - y) for x, y in zip(p, q)]))  # noqa: B905


def _merged(a: Any, b: Any) -> Any:
    xs, ys = list(a), list(b)
    i, j, made = 0, 0, xs[:0]
    while i < len(xs) or j < len(ys):
        if j == len(ys) or (i < len(xs) and not ys[j] < xs[i]):
            made.append(xs[i])
            i = i + 1
        else:
            made.append(ys[j])
            j = j + 1
    return made


def _from_keys(keys: Any, value: Any) -> Any:
    return {k: value for k in keys}  # noqa: C420  this is what that means


def _from_keys_in_order(keys: Any, value: Any) -> Any:
    made = OrderedDict[Any, Any]()
    for k in keys:
        made[k] = value
    return made


def _written_with_defaults(
    function: Callable[..., Any], *more: Any, names: Sequence[str] = ()
) -> Callable[..., v.Abstract]:
    """A function that takes these constants behind its first argument. `names`: those that an argument may replace."""

    def call(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
        behind: list[v.Abstract] = [v.Static(x) for x in more]
        for name, x in [*zip(names, args[1:], strict=False), *kwargs.items()]:
            if name not in names:
                s.refuse(f"the argument {name!r} of this function cannot be compiled", "compute it of the list")
            behind[list(names).index(name)] = x
        return run(s, function, [*args[:1], *behind], {})

    return call


def _merge(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    if len(args) < 1 or kwargs:
        s.refuse("heapq.merge() takes lists alone here", "sort them together: sorted(a + b, key=...)")
    made = args[0]
    for more in args[1:]:
        made = run(s, _merged, [made, more], {})
    return made


def _keyed(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    return run(s, _from_keys, [*args, v.Static(None)][:2], kwargs)


def _keyed_in_order(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    return run(s, _from_keys_in_order, [*args, v.Static(None)][:2], kwargs)


STANDARD: dict[Any, Callable[[LoweringState, Arguments, Named], v.Abstract]] = {
    dict.fromkeys: _keyed,
    OrderedDict.fromkeys: _keyed_in_order,
    heapq.merge: _merge,
    math.dist: lambda s, args, kwargs: run(s, _distance, args, kwargs),
    statistics.mean: _written_with_defaults(_mean),
    statistics.fmean: _written_with_defaults(_mean),
    statistics.median: _written_with_defaults(_median),
    statistics.pvariance: _written_with_defaults(_spread, None, 1, names=("mu",)),
    statistics.variance: _written_with_defaults(_spread, None, 2, names=("xbar",)),
    statistics.pstdev: _written_with_defaults(_root_of_spread, None, 1, names=("mu",)),
    statistics.stdev: _written_with_defaults(_root_of_spread, None, 2, names=("xbar",)),
}


# ---- choices
#
# Functions that are written for each call: `itertools`' choices of some elements, and products of some sequences, are
# generators of as many nested loops; what `operator` gets or calls by name is a lambda.
#
#     itertools.combinations(q, 2)      # found = list(q), n = len(q): as they are when it is called
#                                       for i0 in range(n):
#                                           for i1 in range(i0 + 1, n):
#                                               yield (found[i0], found[i1],)
#
# How many elements are chosen has to be known when the function is compiled.


MOST = 8
"""So many elements are chosen at most: each is a loop of its own."""


def _head(k: int, first: Callable[[str], str]) -> str:
    return f"for i{k} in range({first(f'i{k - 1}') if k else '0'}, n):"


def _differ(k: int) -> str:
    tests = " and ".join(f"i{k} != i{j}" for j in range(k))
    return f"for i{k} in range(n):" + (f"\nif {tests}:" if tests else "")


_LOOPS: dict[Any, Callable[[int], str]] = {
    itertools.combinations: lambda k: _head(k, lambda before: f"{before} + 1"),
    itertools.combinations_with_replacement: lambda k: _head(k, lambda before: before),
    itertools.permutations: _differ,
}


@lru_cache(maxsize=64)
def _of_one(function: Any, size: int) -> Any:
    chosen = "".join(f"found[i{k}], " for k in range(size))
    heads = [line for k in range(size) for line in _LOOPS[function](k).split("\n")]
    return _made(f"{function.__name__}{size}", _nested("found, n", heads, chosen))


def _nested(given: str, heads: Sequence[str], chosen: str) -> str:
    """The text of a generator that yields a tuple inside of loops."""
    lines = ["    " * (k + 1) + head for k, head in enumerate([*heads, f"yield ({chosen})"])]
    return "\n".join([f"def choose({given}):", *lines]) + "\n"


@lru_cache(maxsize=64)
def _of_several(size: int) -> Any:
    names = [f"x{k}" for k in range(size)]
    heads = [f"for {x} in l{k}:" for k, x in enumerate(names)]
    given = ", ".join(f"l{k}" for k in range(size))
    return _made(f"product{size}", _nested(given, heads, f"{', '.join(names)},"))


def _made(name: str, text: str) -> Any:
    """The function of this text, whose source can be read."""
    file = f"<itertools.{name}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    held: dict[str, Any] = {}
    exec(compile(text, file, "exec"), held)
    return next(f for f in held.values() if isinstance(f, types.FunctionType))


def _choosing(function: Any) -> Callable[[LoweringState, Arguments, Named], v.Abstract]:
    def chosen(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
        given = [*args, *kwargs.values()]
        size = given[1].value if len(given) == 2 and isinstance(given[1], v.Static) else None
        if size is None and function is itertools.permutations and isinstance(whole := sequence(s, given[0]), v.Record):
            size = len(whole.items)
        if not isinstance(size, int) or not 0 < size <= MOST:
            s.refuse(
                f"how many elements itertools.{function.__name__}() chooses is not known here, or more than {MOST}",
                f"give a constant from 1 to {MOST}; of all elements of a list, swap them in a recursion",
            )
        found = _read(s, given[0])
        return lent(s, _of_one(function, size), True, found=found, n=s.call(v.Static(len), [found], {}))

    return chosen


def _read(s: LoweringState, items: v.Abstract) -> v.Abstract:
    """The elements as they are now: what changes the list later changes no choice."""
    return s.call(v.Static(list), [items], {})


def _product(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    repeat = kwargs.get("repeat", v.Static(1))
    again = repeat.value if isinstance(repeat, v.Static) else 0
    size = len(args) * again if isinstance(again, int) else 0
    if not 0 < size <= MOST:
        words = f"how many lists itertools.product() takes is not known here, or more than {MOST}"
        s.refuse(words, f"give a constant: from 1 to {MOST} lists")
    given = [_read(s, x) for x in args] * again
    return lent(s, _of_several(size), True, **{f"l{k}": x for k, x in enumerate(given)})


@lru_cache(maxsize=64)
def _reading(names: tuple[str, ...]) -> Any:
    reads = [f"x.{n}" for n in names]
    given = reads[0] if len(reads) == 1 else f"({', '.join(reads)})"
    return _made(f"attrgetter {names}", f"def choose():\n    return lambda x: {given}\n")


def _attributes(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    """`operator.attrgetter("a.b", "c")`"""
    names = [a.value if isinstance(a, v.Static) else None for a in args]
    if not names or not all(isinstance(n, str) and all(p.isidentifier() for p in n.split(".")) for n in names):
        s.refuse("operator.attrgetter() takes constant names of attributes here", "write a lambda")
    return run(s, _reading(tuple(str(n) for n in names)), [], {})


@lru_cache(maxsize=64)
def _calling(name: str, positional: int, named: tuple[str, ...]) -> Any:
    given = [f"a{k}" for k in range(positional)]
    passed = ", ".join([*given, *(f"{n}={n}" for n in named)])
    text = f"def choose({', '.join([*given, *named])}):\n    return lambda x: x.{name}({passed})\n"
    return _made(f"methodcaller {name} {positional} {named}", text)


def _method(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    """`operator.methodcaller("count", 1.0)`"""
    name = args[0].value if args and isinstance(args[0], v.Static) else None
    if not isinstance(name, str) or not name.isidentifier():
        s.refuse("operator.methodcaller() takes a constant name of a method here", "write a lambda")
    return run(s, _calling(name, len(args) - 1, tuple(kwargs)), args[1:], kwargs)


CHOICES: dict[Any, Callable[[LoweringState, Arguments, Named], v.Abstract]] = {
    **{function: _choosing(function) for function in _LOOPS},
    itertools.product: _product,
    operator.attrgetter: _attributes,
    operator.methodcaller: _method,
}
