"""More functions of Python's library, in Python (`prelude.py`): of `statistics`, `math`, `heapq` and `dict`."""

from __future__ import annotations

import heapq
import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from autobatch.frontend.library.prelude import run
from autobatch.frontend.lowering.state import LoweringState
from autobatch.frontend.types import values as v

Arguments = Sequence[v.Abstract]
Named = dict[str, v.Abstract]


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


def _written(function: Callable[..., Any], *more: Any, names: Sequence[str] = ()) -> Callable[..., v.Abstract]:
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


STANDARD: dict[Any, Callable[[LoweringState, Arguments, Named], v.Abstract]] = {
    dict.fromkeys: _keyed,
    heapq.merge: _merge,
    math.dist: lambda s, args, kwargs: run(s, _distance, args, kwargs),
    statistics.mean: _written(_mean),
    statistics.fmean: _written(_mean),
    statistics.median: _written(_median),
    statistics.pvariance: _written(_spread, None, 1, names=("mu",)),
    statistics.variance: _written(_spread, None, 2, names=("xbar",)),
    statistics.pstdev: _written(_root_of_spread, None, 1, names=("mu",)),
    statistics.stdev: _written(_root_of_spread, None, 2, names=("xbar",)),
}
