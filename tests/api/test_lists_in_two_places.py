"""One list in two places: of an object, of two arguments, of a tree; in some batches, and not in others."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import autobatch as ab
from autobatch.data.infer import merge
from autobatch.data.pack import pack
from autobatch.data.together import conform
from autobatch.data.unpack import unpack


@dataclass
class Two:
    a: list[float]
    b: list[float]


@dataclass
class Tree:
    x: list[float]
    below: list[Tree]


def fields(p: Any) -> Any:
    return sum(p.a) * 10 + sum(p.b) + len(p.a)


def arguments(a: Any, b: Any) -> Any:
    return sum(a) * 10 + sum(b) + len(a)


def lists_of_lists(a: Any, b: Any) -> Any:
    return sum([sum(v) for v in a]) * 10 + sum([sum(v) for v in b]) + len(a)


def pairs(t: Any) -> Any:
    return sum(t[0]) * 10 + sum(t[1])


def trees(t: Any) -> Any:
    return sum(t.x) + 2.0 * sum([trees(k) for k in t.below])


def words(a: Any, b: Any) -> Any:
    return len(a) * 10 + len(b) + (a[0] == b[0])


def data(kind: Any, shared: bool, rng: random.Random) -> tuple[list[Any], ...]:
    def new() -> list[float]:
        return [float(rng.randint(0, 9)) for _ in range(rng.randint(1, 3))]

    def again(x: list[Any], other: list[Any]) -> list[Any]:
        return x if shared and rng.random() < 0.7 else other

    if kind is words:
        a: list[Any] = [["p", "q"][: rng.randint(1, 2)] for _ in range(3)]
        return a, [again(x, ["q", "r"]) for x in a]
    if kind is lists_of_lists:
        a = [[new(), new()] for _ in range(3)]
        return a, [again(x, [again(x[0], new()), new()]) for x in a]
    a = [new() for _ in range(3)]
    if kind is arguments:
        return a, [again(x, new()) for x in a]
    if kind is trees:
        nodes = [[Tree(again(x, new()), []), Tree(new(), [])] for x in a]
        return ([Tree(x, [*k, k[0]] if shared else k) for x, k in zip(a, nodes, strict=True)],)
    return ([(Two if kind is fields else lambda x, y: (x, y))(x, again(x, new())) for x in a],)


KINDS = [fields, arguments, lists_of_lists, pairs, trees, words]


@pytest.mark.parametrize("backend", ["auto", "interpret", "xla", "llvm"])
@pytest.mark.parametrize("fun", KINDS, ids=lambda f: f.__name__)
def test_batches_in_any_order(fun: Any, backend: str) -> None:
    """What one batch shares and another does not is found in its place in both: the types of the second call are
    joined with those of the first, and its columns are moved there."""
    rng = random.Random(0)
    for order in ((True, False, True), (False, True, False), (True, True, True)):
        f = ab.batched(fun, backend=backend)
        for shared in order:
            args = data(fun, shared, rng)
            wanted = [fun(*row) for row in zip(*args, strict=True)]
            packed = f.pack(*args)
            held = packed.args if len(args) > 1 else (packed,)
            np.testing.assert_allclose(f(*args), wanted)
            np.testing.assert_allclose(f(*held), wanted)


@pytest.mark.parametrize("fun", [fields, lists_of_lists, pairs, trees], ids=lambda f: f.__name__)
def test_columns_in_a_wider_schema_hold_the_same(fun: Any) -> None:
    rng = random.Random(1)
    for _ in range(5):
        batches = [list(zip(*data(fun, shared, rng), strict=True)) for shared in (True, False)]
        columns = [pack(batch) for batch in batches]
        whole = merge(columns[0].schema, columns[1].schema)
        assert whole == merge(columns[1].schema, columns[0].schema)
        for c, batch in zip(columns, batches, strict=True):
            assert repr(list(unpack(conform(c, whole)))) == repr(batch)
