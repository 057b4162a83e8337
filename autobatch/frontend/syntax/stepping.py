"""Functions that take a generator step by step (`zip`, `enumerate`, `itertools.takewhile`, `any`, `next`): generators
themselves, in Python, which a loop over them runs inside. So what a generator does, and how far it runs, is as Python
has it; what reads a generator to its end (`sum`, `list`, `sorted`) makes a list of it (`sequences.py`).

for k, x in enumerate(g(y)):    ->    k = 0
    ...                               for x in g(y):
                                          ...; k = k + 1
"""

from __future__ import annotations

import collections
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

from autobatch.frontend.library.groups import groups
from autobatch.frontend.lowering.access import wrap
from autobatch.frontend.lowering.sequences import zipped
from autobatch.frontend.lowering.state import LoweringState
from autobatch.frontend.syntax.generators import lent, run, yielded
from autobatch.frontend.syntax.iterators import ITERATORS
from autobatch.frontend.types import values as v

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
    always = always or (held is itertools.repeat and len(args) == 1 and not kwargs)
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
    if kwargs.get("strict", v.Static(False)) != v.Static(False):
        s.refuse("zip() of a generator cannot be strict here", "make a list of it: zip(list(...), ...)")
    match args:
        case [items, v.Generator() as other] if len(given) == 2 and other.source.function is _count:
            return lent(s, _counted, items=items, **dict(other.arguments))
        case [v.Generator() as other, items] if len(given) == 2 and other.source.function is _count:
            return lent(s, _numbered, **dict(other.arguments), items=items)
    if len(given) > 1:
        s.refuse("zip() of several generators cannot be compiled", "make lists of all but one: zip(g(...), list(...))")
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
    itertools.dropwhile: _drops,
    itertools.groupby: _groups,
    itertools.islice: _slices,
    itertools.repeat: _repeats,
    itertools.takewhile: _takes,
    map: _maps,
    next: _next,
    zip: _zips,
}
