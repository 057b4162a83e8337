"""The truth of objects, and `==` of lists: what Python means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

import autobatch as ab

WORDS = [[3, 1], [2], [], [5, 5, 5]]


@dataclass
class Positive:
    x: int
    inner: Positive | None = None

    def __bool__(self) -> bool:
        return self.x > 1


class Sized:
    def __init__(self, items: Any) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)


@dataclass
class Plain:
    x: int


def check(function: Any, *args: Any, **options: Any) -> None:
    f = ab.batched(function, **options)
    assert ab.unbatch(f(*args)) == f.loop(*args)


@pytest.mark.parametrize(
    "function",
    [
        lambda a: 1 if a else 0,
        lambda a: not a,
        lambda a: a.x if a.inner else -1,
        lambda a: 2 if a and a.inner is None else 3,
        lambda a: bool(a.inner) if a.inner is not None else True,
        lambda a: 1 if Positive(a.x * 2) else 0,
    ],
)
def test_objects_tell_their_truth_by_bool(function):
    check(function, [Positive(1), Positive(2), Positive(2, Positive(1)), Positive(1, Positive(5))])


def test_objects_tell_their_truth_by_len():
    check(lambda a: 1 if a else 0, [Sized([]), Sized([1])])
    check(lambda words: 1 if Sized(words) else 0, WORDS)


def test_other_objects_are_true():
    check(lambda a: 1 if a else 0, [Plain(0), Plain(1)])


def test_shared_objects_tell_their_truth():
    for x in (1, 2):
        check(lambda a, words: len(words) if a else 0, Positive(x), WORDS, in_axes=(None, 0))


def test_empty_tuples_are_false():
    check(lambda q: 1 if q else 0, [(), ()])
    check(lambda q: 1 if q else 0, [(0,), (0,)])


def test_classes_that_tell_their_truth_differently_are_refused():
    with pytest.raises(ab.UnsupportedError, match="isinstance"):
        ab.batched(lambda a: 1 if a else 0)([Plain(1), Positive(1)])


@pytest.mark.parametrize(
    "function",
    [
        lambda words: words == [2],
        lambda words: [3, 1] == words,
        lambda words: words != [2],
        lambda words: words == [],
        lambda words: words == words[::-1],
        lambda words: [w * 1.0 for w in words] == words,
        lambda words: words == (2,),
        lambda words: words in [[2], [3, 1]],
        lambda words: [[w] for w in words] == [[2]],
    ],
)
def test_lists_are_equal_when_their_items_are(function):
    check(function, WORDS)


def test_a_list_of_an_example_and_a_shared_one():
    check(lambda shared, words: words == shared, [2], WORDS, in_axes=(None, 0))
