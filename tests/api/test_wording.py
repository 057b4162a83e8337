"""The words of failures are those of the plain function, as far as it says them soon."""

import pytest

import autobatch as ab
from autobatch.call import plain
from autobatch.errors import ExampleError, Failure, StructureWarning, UnsupportedError
from autobatch.passes.overflows import UNKNOWN


def fails():
    raise ExampleError([Failure(0, "KeyError", UNKNOWN)], 1)


def test_plain_python_says_them():
    def plainly(k):
        raise KeyError(7)

    with pytest.raises(ExampleError, match="KeyError: 7"):
        plain.reworded(fails, plainly, lambda: False)


def test_another_failure_of_plain_python_says_nothing():
    def plainly(k):
        raise ValueError("7")

    with pytest.raises(ExampleError, match=f"KeyError: {UNKNOWN}"):
        plain.reworded(fails, plainly, lambda: False)


def test_plain_python_is_left_where_it_takes_long(monkeypatch):
    """Whatever it catches itself."""
    monkeypatch.setattr(plain, "SECONDS", 0.05)
    turns = 0

    def plainly(k):
        nonlocal turns
        while turns < 10_000_000:
            try:
                turns += 1
            except Exception:
                turns += 1

    with pytest.raises(ExampleError, match=f"KeyError: {UNKNOWN}"):
        plain.reworded(fails, plainly, lambda: False)
    assert turns < 10_000_000


def test_an_exception_that_a_trace_does_not_catch():
    """What plain Python catches is no failure of the example: a traced function is refused, in words."""

    def caught(n, x):
        seen = {id(n): 1, id(x): 2}  # does not compile
        try:
            return 1 / x + len(seen)
        except ZeroDivisionError:
            return -1.0

    f = ab.batched(caught)
    with ab.options(trace=True):
        with pytest.warns(StructureWarning):
            f([1, 2], [2.0, 4.0])
        with pytest.raises(UnsupportedError, match="does not fail"):
            f([1, 2], [2.0, 0.0])
