"""What `__init__` does besides setting attributes: branches at its end, exceptions that a caller catches."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, Phase, assume, given, reject, settings

import autobatch as ab
from autobatch.testing import assert_same
from tests.python import drawn_classes

XLA = pytest.param("xla", marks=pytest.mark.xla)
PAIRS = [(5, 8), (1, 0), (7, 8), (3, 2), (4, 4)]


class Branches:
    def __init__(self, lo, hi):
        self.lo = lo
        if lo > hi:
            self.width, self.sign = lo - hi, -1
        elif lo == hi:
            self.width = self.sign = 0
        else:
            self.sign = 1
            self.width = hi - lo


class First:
    def __init__(self, lo, hi):
        if lo > hi:
            raise ValueError("empty")
        self.lo, self.hi = lo, hi


class Between:
    def __init__(self, lo, hi):
        self.lo = lo
        if lo > hi:
            raise ValueError("empty")
        self.hi = hi


class Last:
    def __init__(self, lo, hi):
        self.lo, self.hi = lo, hi
        if lo > hi:
            raise ValueError("empty")


class Inside:
    """An exception of its own that it catches, and one that it does not."""

    def __init__(self, lo, hi):
        try:
            self.lo = lo // (hi - 2)
        except ZeroDivisionError:
            self.lo = 0
        if lo > hi + 1:
            raise ValueError("empty")
        self.hi = hi


class Derived(First):
    def __init__(self, lo, hi):
        super().__init__(lo, hi)
        if hi == 8 and lo == 7:
            raise ValueError("odd")
        self.both = lo + hi


@dataclass
class Checked:
    lo: int
    hi: int
    width: int = field(init=False)

    def __post_init__(self):
        if self.lo > self.hi:
            raise ValueError("empty")
        self.width = self.hi - self.lo


def branches(a, b):
    made = Branches(a, b)
    return made.width * made.sign + made.lo


class Sometimes:
    kind = "plain"

    def __init__(self, lo, hi):
        self.lo = lo
        if lo > hi:
            self.kind, self.gap = "other", lo - hi


def sometimes(a, b):
    made = Sometimes(a, b)
    try:
        found = made.gap
    except AttributeError as error:
        return -1, made.kind, str(error)
    return found + made.gap * hasattr(made, "gap"), made.kind, ""


def _tried(cls):
    def tried(a, b):
        try:
            made = cls(a, b)
        except ValueError as error:
            return -1, str(error)
        return made.hi - made.lo, ""

    return tried


def _again(cls):
    def again(a, b):
        try:
            made = cls(a, b)
        except ValueError:
            made = cls(min(a, b), max(a, b, 20))
        else:
            b += 1
        return made.hi - made.lo + b

    return again


def _collected(cls):
    def collected(a, b):
        good, bad = [], 0
        for k in range(4):
            try:
                good.append(cls(a + k, b + 1))
            except ValueError:
                bad += 1
        return sum(x.hi - x.lo for x in good), bad

    return collected


CLASSES = [First, Between, Last, Inside, Derived, Checked]
CASES = [branches, sometimes, *(make(cls) for make in (_tried, _again, _collected) for cls in CLASSES)]


@pytest.mark.parametrize("backend", ["auto", "llvm", XLA])
@pytest.mark.parametrize(
    "function",
    CASES,
    ids=["branches", "sometimes", *(f"{w}-{c.__name__}" for w in ("tried", "again", "collected") for c in CLASSES)],
)
def test_constructors(function, backend):
    if backend == "xla" and function.__name__ in ("tried", "sometimes"):
        function_of_numbers = lambda a, b: function(a, b)[0]  # noqa: E731
    else:
        function_of_numbers = function
    with ab.options(trace=False):
        got = ab.batched(function_of_numbers, backend=backend)(*map(list, zip(*PAIRS, strict=True)))
    got = list(zip(*map(list, got), strict=True)) if isinstance(got, tuple) else list(got)
    assert_same(got, [function_of_numbers(*x) for x in PAIRS])


class Doubled:
    def __get__(self, owner, cls=None):
        return 2 * owner.x


class Slotted:
    __slots__ = ("x", "y")
    twice = Doubled()

    def __init__(self, x):
        self.x = x


def descriptors(x):
    made = Slotted(x)
    try:
        unset = made.y
    except AttributeError:
        unset = -1
    return made.twice + unset, made.__class__.__name__


def causes(x):
    try:
        try:
            if x > 0:
                raise KeyError("a")
        except KeyError as error:
            raise ValueError("b") from error
    except ValueError as error:
        return isinstance(error.__cause__, KeyError)
    return False


def test_what_classes_and_python_compute():
    with ab.options(trace=False):
        got = ab.batched(descriptors)([1, 2])
        with pytest.raises(ab.UnsupportedError, match="__cause__ of ValueError is computed by Python itself"):
            ab.batched(causes)([1, -1])
    assert_same(list(zip(*map(list, got), strict=True)), [(1, "Slotted"), (3, "Slotted")])


@settings(max_examples=12, deadline=None, phases=(Phase.generate,), suppress_health_check=list(HealthCheck))
@given(drawn_classes.programs())
def test_random_classes(drawn):
    program, data = drawn
    plain = program.function
    wanted = []
    for numbers in data:
        try:
            wanted.append((numbers, plain(list(numbers))))
        except (AttributeError, TypeError, UnboundLocalError):  # an attribute that is set on other paths
            pass
    assume(wanted)
    try:
        with ab.options(trace=False):
            got = ab.unbatch(ab.batched(plain, backend="llvm")([numbers for numbers, _ in wanted]))
    except ab.UnsupportedError:  # what a `with` catches may fail in a choice between classes
        reject()
    assert_same(got, [result for _, result in wanted])
