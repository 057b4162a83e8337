"""What Python says in its own exceptions, looked at by a handler."""

from __future__ import annotations

import math

import pytest

import autobatch as ab
from autobatch.testing import assert_same

LISTS = [[1], [1, 2], [3, 0], [3, 1, 2], [3, 4, 5], [7]]
STRINGS = ["12", "ab", " 3", "", "4.5"]


def unpacked(xs):
    try:
        a, b = xs
        return a + b, ""
    except ValueError as error:
        return 0, str(error)


def unpacked_with_a_rest(xs):
    try:
        a, b, *rest = xs
        return a + b + len(rest), ""
    except ValueError as error:
        return 0, str(error)


def indexed(xs):
    try:
        return xs.index(3, 1) if len(xs) > 2 else xs.index(3), ""
    except ValueError as error:
        return error.args[0], str(error)


def removed(xs):
    kept = list(xs)
    try:
        kept.remove(2)
        return len(kept), ""
    except ValueError as error:
        return 0, f"failed: {error}"


def zipped(xs):
    try:
        return sum(a * b for a, b in zip(xs, [1, 2], strict=True)), ""
    except ValueError as error:
        return 0, str(error)


def element(xs):
    try:
        return xs[2], ""
    except IndexError as error:
        return 0, str(error)


def largest(xs):
    try:
        return max([x for x in xs if x > 2]), ""
    except ValueError as error:
        return 0, str(error)


def popped(xs):
    kept = list(xs)
    try:
        return kept.pop() + kept.pop() + kept.pop(2), ""
    except IndexError as error:
        return 0, str(error)


def divided(xs):
    try:
        return xs[0] // xs[-1], ""
    except ZeroDivisionError as error:
        return 0, str(error)


def _second(xs):
    return xs[1]


def called(xs):
    """Words that come from a function, where the handlers look at several kinds."""
    try:
        return _second(xs) // (xs[0] - 3), ""
    except (IndexError, ZeroDivisionError) as error:
        return -1, str(error)


def collected(xs):
    """In a loop: what each turn says."""
    said = []
    for k in range(3):
        try:
            if xs[k] == 3:
                raise ValueError(f"three at {k}")
        except IndexError as error:
            said.append(str(error))
        except ValueError as error:
            said.append(str(error).upper())
    return "; ".join(said)


def keyed(xs):
    try:
        return {x: 1 for x in xs}[3], ""
    except KeyError as error:
        return error.args[0], str(error)


class Box:
    def __init__(self, value, below):
        self.value, self.below = value, below


def attribute(xs):
    box = None
    for x in xs:
        if x > 2:
            box = Box(x, box)
    try:
        return box.value, ""
    except AttributeError as error:
        return 0, str(error)


def read(s):
    try:
        return int(s), ""
    except ValueError as error:
        return 0, str(error)


def letters(s):
    try:
        return ord(s), s[3]
    except TypeError as error:
        return 0, str(error)
    except IndexError as error:
        return 1, str(error)


def found(s):
    try:
        return s.index("b"), ""
    except ValueError as error:
        return 0, str(error)


def root(x):
    try:
        return math.sqrt(x), ""
    except ValueError as error:
        return 0.0, str(error)


OF_LISTS = [
    unpacked,
    unpacked_with_a_rest,
    indexed,
    removed,
    zipped,
    element,
    largest,
    popped,
    divided,
    called,
    collected,
]
CASES = [(f, LISTS) for f in [*OF_LISTS, keyed, attribute]] + [(f, STRINGS) for f in (read, letters, found)]


@pytest.mark.parametrize("backend", ["auto", "llvm"])
@pytest.mark.parametrize(
    ("function", "examples"), [*CASES, (root, [1.5, -2.0, 4.0])], ids=lambda x: getattr(x, "__name__", "")
)
def test_words_are_pythons(function, examples, backend):
    with ab.options(trace=False):
        got = ab.batched(function, backend=backend)(examples)
    got = list(zip(*map(list, got), strict=True)) if isinstance(got, tuple) else list(got)
    assert_same(got, list(map(function, examples)))


def compared(s, n):
    value = s if n > 1 else n
    try:
        return value > 1
    except TypeError:
        return s in "abc"


def test_an_order_of_strings_and_numbers_is_a_type_error():
    strings, numbers = ["a", "bcd", "x"], [1, 2, 3]
    with ab.options(trace=False):
        got = ab.batched(compared)(strings, numbers)
        assert_same(list(got), list(map(compared, strings, numbers)))
        for refused in (lambda s, n: s > n, lambda s, n: max(s, n), lambda s, n: n in s, lambda s, n: s.find(n)):
            with pytest.raises(ab.UnsupportedError, match="str"):
                ab.batched(refused)(strings, numbers)
