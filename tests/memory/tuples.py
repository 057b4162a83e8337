"""Tuples of data-dependent length, as results and inside of them.

Each program is a plain function of `w`, that all examples share, and `x`, a number of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

PROGRAMS: list[Callable[[Any, Any], Any]] = []


def program(f: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    PROGRAMS.append(f)
    return f


class Path(NamedTuple):
    cost: Any
    steps: tuple[Any, ...]


def collected(w: Any, x: Any) -> list[Any]:
    out = []
    while x < 3.0:
        x = x * 1.3 + 0.2
        out.append(x * w)
    return out


@program
def of_a_list(w: Any, x: Any) -> Any:
    return tuple(collected(w, x))


@program
def inside_of_others(w: Any, x: Any) -> Any:
    out = collected(w, x)
    paths = [Path(y, tuple(z for z in out if z < y)) for y in out]
    return {"t": tuple(out), "l": out}, Path(x, tuple(out)), paths, (tuple(range(len(out))), [tuple(out)])


@program
def of_pairs(w: Any, x: Any) -> Any:
    out = []
    while x < 3.0:
        x = x * 1.3 + 0.2
        out.append((x, x > 2.0, "big" if x > 2.0 else "small", None if x > 2.5 else w))
    return tuple(out)


@program
def made_of_others(w: Any, x: Any) -> Any:
    out = collected(w, x)
    t = tuple(out)
    kinds = isinstance(t, tuple), isinstance(t, list), t == out, t == tuple(out), t == (w,), hasattr(t, "append")
    return (*t, w), [*t], t[1:], t[::-1], t + (w,), t * 2, list(t), sorted(t), tuple(sorted(t)), kinds


@program
def of_two_paths(w: Any, x: Any) -> Any:
    t = tuple(collected(w, x))
    if x < 2.0:
        t = t[1:]
    return t if x > 0.8 else ()


@program
def grown(w: Any, x: Any) -> Any:
    t: tuple[Any, ...] = ()
    u: tuple[Any, ...] = ()
    while x < 3.0:
        x = x * 1.3 + 0.2
        t = t + (x,)
        u = (x * w, *u)
    return t, u, sum(t, w) * len(u)


def path(w: Any, x: Any) -> tuple[Any, ...]:
    if x > 3.0:
        return ()
    return (x * w, *path(w, x * 1.3 + 0.2))


@program
def by_recursion(w: Any, x: Any) -> Any:
    return path(w, x)


@program
def in_memory(w: Any, x: Any) -> Any:
    """Beside lists that are changed where they are held."""
    rows: list[dict[str, Any]] = []
    a: list[Any] = []
    while x < 3.0:
        x = x * 1.3 + 0.2
        a.append(x)
        rows.append({"n": 1, "t": tuple(a), "l": list(a)})
        rows[0]["n"] += len(rows[-1]["t"])
        rows[0]["l"].append(w)
    return rows


@program
def of_tuples(w: Any, x: Any) -> Any:
    out: list[Any] = []
    a: list[Any] = []
    while x < 3.0:
        x = x * 1.3 + 0.2
        a = [*a, x]
        out.append(tuple(a))
    return tuple(out), out
