"""Comprehensions, and loops that append, whose turns change something that the next one reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

import jax.numpy as jnp
import networkx
import pytest

import autobatch as ab
from autobatch.testing import assert_same, check_equivalence

PROGRAMS: list[Callable[[Any, list[Any]], Any]] = []
XS = [[1.0, -2.0, 3.0], [0.5, 2.5], [2.0, 2.0, -1.0, 4.0]]


def program(f: Callable[[Any, list[Any]], Any]) -> Callable[[Any, list[Any]], Any]:
    PROGRAMS.append(f)
    return f


@dataclass(order=True)
class Item:
    cost: Any
    place: int = field(compare=False)


@dataclass(order=True, frozen=True)
class Version:
    major: int
    minor: Any


@program
def popped(w: Any, xs: list[Any]) -> Any:
    rest = [x * w for x in xs]
    return [rest.pop() for _ in range(len(xs) - 1)], rest


@program
def popped_by_a_loop(w: Any, xs: list[Any]) -> Any:
    rest, out = [x * w for x in xs], []
    for _ in range(len(rest)):
        out.append(rest.pop())
    return out, len(rest)


@program
def where_a_test_pops(w: Any, xs: list[Any]) -> Any:
    rest, out = list(xs), []
    for k in range(len(xs)):
        if rest.pop() > 0:
            out.append(k * w)
    return out, len(rest)


@program
def sorted_by_a_heap(w: Any, xs: list[Any]) -> Any:
    heap: list[Any] = []
    for k, x in enumerate(xs):
        heappush(heap, Item(x * w, k))
    return [heappop(heap).place for _ in xs]


@program
def latest(w: Any, xs: list[Any]) -> Any:
    best = Version(-9, w)
    for x in xs:
        found = Version(int(x), -x * w)
        if x > -5.0 and best < found:
            best = found
    return best.minor, best <= Version(2, w), best >= best


@program
def running(w: Any, xs: list[Any]) -> Any:
    total = 0.0 * w
    return [total := total * w + x for x in xs], total


@program
def reduced(w: Any, xs: list[Any]) -> Any:
    rest = [x * w for x in xs]
    found = any(rest.pop() > 2.0 for _ in range(len(xs) - 1))
    return sum(rest.pop() for _ in range(1)), found


@program
def in_two_loops(w: Any, xs: list[Any]) -> Any:
    rest = [x * w for x in xs]
    return [[rest.pop(), k] for k in range(len(xs)) if rest[-1] > -5.0], [rest.pop(0) for _ in xs if len(rest) > 9]


@program
def numbered(w: Any, xs: list[Any]) -> Any:
    places: dict[int, int] = {}
    return [places.setdefault(int(x), len(places)) * w for x in xs], len(places)


class Registered:
    """Notes itself in a list that it is given, before all of it is there."""

    def __init__(self, others: list[Any], x: Any) -> None:
        others.append(self)
        self.x = x
        self.twice = 2.0 * x


@program
def noted_by_init(w: Any, xs: list[Any]) -> Any:
    others: list[Any] = []
    for x in xs:
        if x > 0:
            Registered(others, x * w)
    return sum(r.twice for r in others), len(others)


class Counting:
    def __init__(self) -> None:
        self.looks = 0

    def above(self, x: Any, y: Any) -> Any:
        self.looks += 1
        return x > y


@program
def one_decides(w: Any, xs: list[Any]) -> Any:
    counting = Counting()
    for _ in xs[:1]:
        found = any(counting.above(x * w, 2.0) for x in xs) or all(counting.above(x, 0.0) for x in xs)
    return found, counting.looks


@program
def sets_of_what_counts(w: Any, xs: list[Any]) -> Any:
    counting = Counting()
    seen: set[Any] = set()
    for _ in xs[:1]:
        seen = {1 if counting.above(x * w, 2.0) else 0 for x in xs}
    return len(seen), counting.looks


class Running:
    """Its attributes are set by methods that its `__init__` calls."""

    def __init__(self, weight: Any) -> None:
        self.weight = weight
        self.reset()
        self.first = self.total + 1.0

    def reset(self) -> None:
        self.total: Any = 0.0
        self.start_again()

    def start_again(self) -> None:
        self.count, self.seen = 0, []

    def add(self, x: Any) -> None:
        self.total += x * self.weight
        self.count += 1
        self.seen.append(x)


@program
def set_by_methods(w: Any, xs: list[Any]) -> Any:
    running = Running(w)
    for x in xs:
        if x * w > 2.0:
            running.reset()
        running.add(x)
    return running.total + running.first, running.count, len(running.seen)


@program
def attributes_that_are_there(w: Any, xs: list[Any]) -> Any:
    array = jnp.ones(2) * w
    return [hasattr(array, "shape"), hasattr(xs, "append"), hasattr(xs, "shape"), hasattr(xs[0], "is_integer")]


@program
def changed_by_the_second_operand(w: Any, xs: list[Any]) -> Any:
    """Nothing in it can fail, and its value is known: it was done where the first operand decides, too."""
    taken: list[Any] = []
    for x in xs:
        if x * w > 0.3 or taken.append(w) is None:  # type: ignore[func-returns-value]
            taken.append(x * w)
    seen: list[Any] = []
    both = xs[0] * w > 0.3 and seen.append(w) is None  # type: ignore[func-returns-value]
    return taken, len(seen), both


@program
def without_result(w: Any, xs: list[Any]) -> Any:
    out: list[Any] = []
    [out.append(x * w) for x in xs if x > 0]  # type: ignore[func-returns-value]
    return out


@pytest.mark.parametrize("each", PROGRAMS, ids=lambda f: f.__name__)
def test_turns_follow_one_another(each: Callable[..., Any]) -> None:
    check_equivalence(
        ab.batched(each, in_axes=(None, 0)), XS, (jnp.float32(1.1),), grads=False, backends=("interpret",), jit=False
    )


@pytest.mark.long
@pytest.mark.parametrize("backend", ["interpret", "xla", "llvm"])
@pytest.mark.parametrize("each", PROGRAMS, ids=lambda f: f.__name__)
def test_derivatives(each: Callable[..., Any], backend: str) -> None:
    f = ab.batched(each, in_axes=(None, 0))
    check_equivalence(f, XS, (jnp.float32(1.1),), backends=(backend,), jit=False, tolerance=2e-5)


def test_a_generator_expression_that_is_kept_may_change_nothing() -> None:
    def kept(xs: list[Any]) -> Any:
        rest = list(xs)
        g = (rest.pop() for _ in range(2))
        return sum(g)

    with pytest.raises(ab.UnsupportedError, match="changes a variable"):
        ab.batched(kept)(XS)


def test_a_view_that_a_function_changes_is_not_handed_to_it() -> None:
    """It would have to show what the function does to the dict."""

    def summed(items: Any, held: Any) -> Any:
        held[9] = 1.0
        return sum(x for _, x in items)

    def viewed(xs: list[Any]) -> Any:
        held = {0: 0.0}
        for k, x in enumerate(xs):
            if x > 0:
                held[k] = x
        return summed(held.items(), held)

    with pytest.raises(ab.UnsupportedError, match="view or an iterator"):
        ab.batched(viewed)(XS)


@pytest.mark.parametrize("change", [lambda h: list.append(h, 1.0), lambda h: h.__setitem__(0, 1.0)])
def test_methods_that_do_not_name_the_list_are_refused(change: Callable[[list[Any]], None]) -> None:
    """They changed nothing."""

    def changed(xs: list[Any]) -> Any:
        held = [0.0, xs[0]]
        change(held)
        return held

    with pytest.raises(ab.UnsupportedError, match="by another name|cannot be compiled"):
        ab.batched(changed)(XS)


def test_a_value_for_each_node_of_a_graph_may_change_something() -> None:
    def given_out(w: Any, graph: Any) -> Any:
        rest = [w, 2.0 * w, 3.0 * w]
        found = {v: rest.pop() for v in graph}
        return [found[v] for v in graph], len(rest)

    graphs, w = [networkx.path_graph(3), networkx.path_graph(2)], jnp.float32(1.1)
    found = ab.unbatch(ab.batched(given_out, in_axes=(None, 0), backend="llvm")(w, graphs))
    assert_same(found, [given_out(w, g) for g in graphs])
