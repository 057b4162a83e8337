"""Programs that walk over objects of the examples by ways which computed numbers choose."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

import jax.numpy as jnp


@dataclass
class Leaf:
    value: float


@dataclass
class Split:
    """A node of a decision tree: to the first side where a feature is below a threshold."""

    feature: int
    at: float
    sides: tuple[Any, Any]
    name: str = "a"


@dataclass
class Place:
    """A node of a graph, with what it gives and where it leads."""

    gives: float
    next: list[Place] = field(default_factory=list)
    home: Place | None = None


def features(w: Any, x: Any) -> Any:
    return jnp.tanh(w * jnp.asarray(x))


def decided(w: Any, tree: Any, x: Any) -> Any:
    y = features(w, x)
    while isinstance(tree, Split):
        tree = tree.sides[0] if y[tree.feature] < tree.at else tree.sides[1]
    return tree.value * y[0]


def few_steps(w: Any, tree: Any, x: Any) -> Any:
    y = features(w, x)
    for step in range(3):
        if isinstance(tree, Leaf):
            break
        tree = tree.sides[1 if y[tree.feature] >= tree.at else 0]
    return step + (tree.at if isinstance(tree, Split) else tree.value * y[1])


def names_on_the_way(w: Any, tree: Any, x: Any) -> Any:
    y, count = features(w, x), 0
    while isinstance(tree, Split):
        if tree.name == "a":
            count += 1
        elif tree.name == "c":
            count += 10
        tree = tree.sides[0] if y[tree.feature] < tree.at else tree.sides[1]
    return count * y[0]


def nodes_on_the_way(w: Any, tree: Any, x: Any) -> Any:
    y, seen = features(w, x), []
    while isinstance(tree, Split):
        seen.append(tree)
        tree = tree.sides[0] if y[tree.feature] < tree.at else tree.sides[1]
    return sum(n.at for n in seen) * y[0] + len(seen)


def same_node(w: Any, tree: Any, x: Any) -> Any:
    y = features(w, x)
    first = second = tree
    for _ in range(2):
        if isinstance(first, Split):
            first = first.sides[0] if y[0] < first.at else first.sides[1]
        if isinstance(second, Split):
            second = second.sides[0] if y[1] < second.at else second.sides[1]
    return y[0] if first is second else y[1] * 2 if second is not tree else 0.0


def breadth_first(w: Any, tree: Any, x: Any) -> Any:
    y = features(w, x)
    queue, total = deque([tree]), 0.0
    while queue and total < 3.0:
        node = queue.popleft()
        if isinstance(node, Split):
            if y[node.feature] > node.at:
                queue.append(node.sides[0])
            queue.append(node.sides[1])
            total += abs(node.at) * y[0]
        else:
            total += node.value * y[1]
    return total


def by_recursion(w: Any, tree: Any, x: Any) -> Any:
    y = features(w, x)

    def go(node: Any, tired: Any) -> Any:
        if isinstance(node, Leaf):
            return node.value
        if tired > y[0] * 3:
            return node.at
        chosen = node.sides[0] if y[node.feature] < node.at else node.sides[1]
        return go(chosen, tired + y[1] ** 2 + 0.5) * 0.5

    return go(tree, 0.0)


TREES: list[Callable[..., Any]] = [
    decided,
    few_steps,
    names_on_the_way,
    nodes_on_the_way,
    same_node,
    breadth_first,
    by_recursion,
]
"""Their examples are a tree and two numbers."""


def automaton(w: Any, place: Any, x: Any) -> Any:
    total = 0.0
    for number in x:
        place = place.next[int(number * w > 0.5) % len(place.next)]
        total += place.gives * w
    return total


def best_first(w: Any, place: Any, x: Any) -> Any:
    y, total = features(w, x), 0.0
    for _ in range(3):
        place = max(place.next, key=lambda p: p.gives * y[0])
        total += place.gives
        if total > 2.0:
            break
    return total * y[1]


def home_or_on(w: Any, place: Any, x: Any) -> Any:
    """Fields that are None at some places."""
    y, here = features(w, x), place
    for k in range(4):
        if here.home is not None and y[k % 2] < here.gives:
            here = here.home
        else:
            here = here.next[-1]
    return here.gives * y[0] + (1.0 if here is place else 0.0)


def loud_if_lost(w: Any, place: Any, x: Any) -> Any:
    """None has no attributes: an example fails that comes there."""
    y, here = features(w, x), place
    for k in range(2):
        here = here.home if y[k] < 0.3 else here.next[0]
    return here.gives * y[0]


def far_index(w: Any, place: Any, x: Any) -> Any:
    """Places that are not in a list: an example fails that asks for one."""
    y = features(w, x)
    for k in range(2):
        place = place.next[int(y[k] * 2.5)]
    return place.gives * y[0]


def sums_of_lists(w: Any, place: Any, x: Any) -> Any:
    y, total = features(w, x), 0.0
    while total < 4.0:
        total += abs(y[0]) + sum(p.gives * y[1] for p in place.next)
        place = place.next[0] if total > 1.0 else place.next[-1]
    return total


def best_of_heap(w: Any, place: Any, x: Any) -> Any:
    """Places have no order: the number in front of them decides."""
    y, count, total = features(w, x), 1, 0.0
    heap = [(-place.gives * w, 0, place)]
    for _ in range(3):
        score, _, best = heappop(heap)
        total += score
        for p in best.next:
            heappush(heap, (-p.gives * y[0], count, p))
            count += 1
    return total


def equal_scores(w: Any, place: Any, x: Any) -> Any:
    """Places have no order: an example fails in which two of them decide."""
    y, heap = features(w, x), [(0.1, place)]
    for p in place.next:
        heappush(heap, (0.1 if y[0] > 0.5 else p.gives * y[1], p))
    score, best = heappop(heap)
    return score + best.gives


def common_way(w: Any, place: Any, x: Any) -> Any:
    def way(at: Any, number: Any) -> list[Any]:
        places = [at]
        for _ in range(2):
            at = at.next[0] if number * at.gives < 0.3 else at.next[-1]
            places.append(at)
        return places

    y, count = features(w, x), 0
    for a, b in zip(way(place, y[0]), way(place, y[1]), strict=True):
        if a is b:
            count += 1
    return count * y[0]


PLACES: list[Callable[..., Any]] = [
    automaton,
    best_first,
    home_or_on,
    loud_if_lost,
    far_index,
    sums_of_lists,
    best_of_heap,
    equal_scores,
    common_way,
]
"""Their examples are a place of a graph and two numbers."""


def ring(numbers: list[float]) -> Place:
    """A graph in which some places know the first one."""
    places = [Place(g) for g in numbers]
    for k, place in enumerate(places):
        place.next = [places[(k + step) % len(places)] for step in (1, 2)[: 1 + k % 2]]
        place.home = places[0] if k % 3 else None
    return places[0]
