"""Dicts, lists and objects that all examples share, where floats of the examples choose among what they hold."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import autobatch as ab
from autobatch.testing import assert_same

BACKENDS = ["llvm", "auto", pytest.param("xla", marks=pytest.mark.xla)]


class Stop:
    def __init__(self, name, fare):
        self.name, self.fare, self.next = name, fare, None


class Trie:
    def __init__(self, score, **kids):
        self.kids, self.score = kids, score


@dataclass
class Weapon:
    name: str
    damage: float


@dataclass
class Split:
    limit: float
    left: object
    right: object


@dataclass
class Room:
    name: str
    danger: float
    exits: dict[str, str]


def cheapest(graph, start):
    cost, at = 0.0, start
    while cost < 3.0:
        best = at
        for to, weight in graph[at]:
            cost += weight
            best = to
        at = best
        cost += 1.0
    return cost, at


def likeliest(model, word):
    best, p = None, 0.0
    for w, x in model[word].items():
        if x > p:
            best, p = w, x
    return best, p


def scored(trie, text):
    node, best = trie, 0.0
    for c in text:
        if c not in node.kids:
            break
        node = node.kids[c]
        if node.score > best:
            best = node.score
    return best


def travelled(first, money):
    stop = first
    while stop.next is not None and stop.next.fare <= money:
        stop = stop.next
        money -= stop.fare
    return money, stop.name


def bought(weapons, gold):
    best = Weapon("fist", 0.5)
    for w in weapons:
        if w.damage * 2 <= gold and w.damage > best.damage:
            best = w
    return best.damage


def walked(world, health):
    room, seen = world["hall"], []
    while health > 0:
        health -= room.danger
        if room not in seen:
            seen.append(room)
        room = world[room.exits["n"]]
    return room.name, len(seen)


def by_forest(forest, name, x):
    def walk(node):
        if isinstance(node, float):
            return node
        return walk(node.left) if x <= node.limit else walk(node.right)

    return sum(walk(tree) for tree in forest[name])


def stops():
    a, b, c = Stop("a", 0.5), Stop("b", 1.0), Stop("c", 2.0)
    a.next, b.next = b, c
    return a


TRIE = Trie(0.0, h=Trie(0.1, e=Trie(1.0), i=Trie(0.0, s=Trie(3.0))), a=Trie(0.5))
WORLD = {"hall": Room("hall", 0.5, {"n": "cave"}), "cave": Room("cave", 1.0, {"n": "hall"})}
FOREST = {"a": [Split(0.5, 1.0, Split(0.8, 2.0, 3.0)), 0.5], "b": [Split(0.1, -1.0, 4.0)]}
CASES = [
    (cheapest, {"a": [("b", 1.0), ("c", 4.0)], "b": [("c", 2.0)], "c": []}, [["a", "b", "c"]]),
    (likeliest, {"the": {"cat": 0.6, "dog": 0.4}, "cat": {"sat": 0.9}, "dog": {}}, [["the", "cat", "dog"]]),
    (scored, TRIE, [["he", "his", "h", "x", "a"]]),
    (travelled, stops(), [[10.0, 0.9, 1.5]]),
    (bought, [Weapon("a", 1.5), Weapon("b", 4.0), Weapon("c", 2.5)], [[0.0, 4.0, 9.5]]),
    (walked, WORLD, [[0.4, 1.0, 5.0]]),
    (by_forest, FOREST, [["a", "b", "a"], [0.1, 0.2, 0.9]]),
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("function", "shared", "data"), CASES, ids=[f.__name__ for f, _, _ in CASES])
def test_it_is_walked_by_each_example(function, shared, data, backend):
    if backend == "xla" and function is bought:
        pytest.skip("XLA has no memory that objects of the examples and made ones share")
    axes = (None, *[0] * len(data))
    whole = ab.batched(function, in_axes=axes, backend=backend)
    for given in (data, [x[::-1] for x in data]):
        assert_same(ab.unbatch(whole(shared, *given)), [function(shared, *x) for x in zip(*given, strict=True)])


def test_another_one_is_seen():
    whole = ab.batched(bought, in_axes=(None, 0))
    assert np.asarray(whole([Weapon("a", 1.5)], [9.0])).tolist() == [1.5]
    weapons = [Weapon("a", 2.0), Weapon("b", 3.0)]
    assert np.asarray(whole(weapons, [9.0, 4.0])).tolist() == [3.0, 2.0]
    weapons[0].damage = 1.0
    assert np.asarray(whole(weapons, [9.0, 4.0])).tolist() == [3.0, 1.0]
