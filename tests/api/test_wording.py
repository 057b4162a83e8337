"""The words of failures are those of the plain function, as far as it says them soon."""

import pytest

from autobatch.call import wording
from autobatch.errors import ExampleError, Failure
from autobatch.passes.control.indices import UNKNOWN


def fails():
    raise ExampleError([Failure(0, "KeyError", UNKNOWN)], 1)


def test_plain_python_says_them():
    def plainly(k):
        raise KeyError(7)

    with pytest.raises(ExampleError, match="KeyError: 7"):
        wording.in_words(fails, plainly)


def test_another_failure_of_plain_python_says_nothing():
    def plainly(k):
        raise ValueError("7")

    with pytest.raises(ExampleError, match=f"KeyError: {UNKNOWN}"):
        wording.in_words(fails, plainly)


def test_plain_python_is_left_where_it_takes_long(monkeypatch):
    """Whatever it catches itself."""
    monkeypatch.setattr(wording, "SECONDS", 0.05)
    turns = 0

    def plainly(k):
        nonlocal turns
        while turns < 10_000_000:
            try:
                turns += 1
            except Exception:
                turns += 1

    with pytest.raises(ExampleError, match=f"KeyError: {UNKNOWN}"):
        wording.in_words(fails, plainly)
    assert turns < 10_000_000
