"""Idioms of Python: generators, next(), map and filter, walrus, else of loops, unpacking, library functions."""

from __future__ import annotations

import collections
import functools
from dataclasses import dataclass
from typing import Generic, TypeVar

import pytest

from tests.frontend.batches import Program, Programs, agree, fails, refused
from tests.frontend.examples import DOCS, LISTS, MANY

T = TypeVar("T")


@dataclass
class Sum:
    n: int = 0
    s: float = 0.0


programs = Programs()


@programs.over(DOCS)
def first_large(d):
    return next((x for x in d.words if x > 1), -1)


@programs.over(DOCS)
def position(d):
    return next((i for i, x in enumerate(d.words) if x == 2), len(d.words))


@programs.over(MANY)
def first_node(t):
    c = next((c for c in t.kids if c.x > 3), None)
    return -1 if c is None else c.x


@programs.over(DOCS)
def first_of_iter(d):
    return next(iter(d.words), 0)


@programs.over(DOCS)
def first_of_those_seen(d):
    seen = []

    def is_large(x):
        seen.append(x)
        return x > 1

    found = next((x for x in d.words if is_large(x)), -1)
    return found, len(seen), sum(seen)


@programs.over(DOCS)
def generator_kept(d):
    ys = (x * 2 for x in d.words)
    return sum(ys)


@programs.over(DOCS)
def strict_zip(d):
    return sum(x * y for x, y in zip(d.words, d.fs, strict=True))


@programs.over(DOCS)
def mapped(d):
    return (
        list(map(lambda x: x + 1, d.words)),
        sum(map(abs, d.fs)),
        list(map(max, d.words, [2] * len(d.words))),
        list(filter(lambda x: x > 1, d.words)),
    )


@programs.over(DOCS)
def filtered(d):
    return len(list(filter(None, d.words))), sum(filter(lambda x: x % 2, d.words))


@programs.over(DOCS)
def defaults_captured(d):
    fs = [lambda x, k=k: x * k for k in range(3)]
    return [f(len(d.words)) for f in fs]


@programs.over(DOCS)
def nested_function(d):
    total = 0

    def add(x, by=2):
        return x * by

    for x in d.words:
        total = add(x) + add(total, by=1)
    return total


@programs.over(DOCS)
def while_else(d):
    i = 0
    while i < len(d.words):
        if d.words[i] == 2:
            r = i
            break
        i += 1
    else:
        r = -1
    return r


@programs.over(DOCS)
def for_else(d):
    for x in d.words:
        if x > 4:
            y = x
            break
    else:
        y = 0
    return y


@programs.over(DOCS)
def walrus(d):
    if (n := len(d.words)) > 1:
        return n * 2
    return n


@programs.over(DOCS)
def walrus_in_while(d):
    i = 0
    s = 0
    while i < len(d.words) and (x := d.words[i]) != 2:
        s += x
        i += 1
    return s


@programs.over(DOCS)
def unpacked(d):
    a, *b, c = (1, len(d.words), 3, 4)
    (x, y), z = (a, b[0]), c
    first, *rest = [*d.words, 5]
    return a + sum(b) + c + x + y + z, first, rest


@programs.over(DOCS)
def imported(d):
    if len(d.words) > 1:
        import math as m

        return m.sqrt(2.0) * len(d.words)
    from math import pi

    return pi


@programs.over(DOCS)
def augmented(d):
    t = (1, 2)
    t += (len(d.words),)
    x = [1]
    x *= 3
    x[0] += 5
    y = {"a": 1}
    y["a"] += len(d.words)
    return sum(t), x, y


@programs.over(DOCS)
def fields_augmented(d):
    a = Sum()
    for x in d.words:
        a.n += 1
        a.s += x * 0.5
    return a.s + a.n


@programs.over(DOCS)
def in_a_set(d):
    return [x in {1, 2} for x in d.words]


@programs.over(DOCS)
def reduced(d):
    return functools.reduce(lambda a, b: a * 2 + b, d.words, 0)


@programs.over(DOCS)
def divided(d):
    return [divmod(x, 2) for x in d.words]


@programs.over(DOCS)
def characters_of_a_constant(d):
    return sum(i for i, c in enumerate("abc")) + len(d.words)


@programs.over(LISTS)
def negative_powers(xs):
    return [2**-x for x in xs], 10 ** -len(xs), 2 ** len(xs)


class Stack(Generic[T]):
    def __init__(self, first: T) -> None:
        self.items = [first]


@programs.over(DOCS)
def classes_with_parameters(d):
    xs, total = list[float](), collections.deque[float](d.fs)
    for x in total:
        xs.append(x * 2)
    return xs, Stack[int](len(xs)).items


@programs.over(DOCS)
def calls_of_elements(d):
    list = [abs, float]
    return [list[1](x) + list[0](x) for x in d.fs]


@pytest.mark.parametrize("program", programs, ids=str)
def test_batch_equals_loop(program):
    agree(program, jit=False)


def test_next_of_nothing_fails_like_python():
    fails(lambda d: next(x for x in d.words if x > 2), DOCS)


def test_a_search_that_raises_at_its_end():
    def find(xs, value):
        for position, x in enumerate(xs):
            if x == value:
                return position
        raise ValueError("not there")

    fails(lambda d: find(d.words, 2), DOCS)
    agree(Program(lambda d: find(d.words, 2) if 2 in d.words else -1, DOCS, ()))


def test_a_dict_by_words_of_the_example():
    def counted(d):
        table = {}
        for x in d.words:
            table[x] = table.get(x, 0) + 1
        return len(table)

    agree(Program(counted, DOCS, ()))


def test_refusals():
    def generator(d):
        def doubled():
            for x in d.words:
                yield x * 2

        return zip(doubled(), d.words)

    refused(generator, DOCS, saying="is a generator or iterator")
