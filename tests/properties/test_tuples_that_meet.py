"""A tuple of the examples and one that the program writes are one value behind a branch, in `min` and in `max`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import autobatch as ab

PROGRAMS = {
    "max": lambda q: max(q, (0, 5)),
    "min": lambda q: min((0, 5), q),
    "three": lambda q: max((q[1], 1), q, (0, 5)),
    "of a list": lambda q: max([q, (0, 5)]),
    "floats": lambda q: max(q, (0.5, 5)),
    "branch": lambda q: q if q[0] > 0 else (0, 5),
    "in a tuple": lambda q: (q if q[0] > 0 else (0, 5), q[1]),
    "read behind": lambda q: (q if q < (0, 5) else (7, q[0]))[1] * 2,
}


@pytest.mark.parametrize("name", PROGRAMS)
@given(st.lists(st.tuples(st.integers(-9, 9), st.integers(-9, 9)), min_size=1, max_size=5))
def test_a_tuple_of_the_examples_meets_one_of_constants(name, examples):
    f = ab.batched(PROGRAMS[name]) if name not in _BATCHED else _BATCHED[name]
    _BATCHED[name] = f
    assert ab.unbatch(f(examples)) == f.loop(examples)


_BATCHED: dict[str, ab.Batched] = {}


def test_a_tuple_that_may_be_none_is_not_read():
    """What is only handed on is not taken apart: None stays None."""
    f = ab.batched(lambda q: 0 if q[0] is None else max(q[0], (0, 5))[1])
    examples = [((1, 2),), (None,), ((0, 7),)]
    assert ab.unbatch(f(examples)) == f.loop(examples) == [2, 0, 7]


def test_a_null_reference_is_none_behind_its_test():
    f = ab.batched(lambda q: (q[0][1] if q[0] is not None else -1, q[0] is None))
    examples = [((1, 2),), (None,)]
    assert ab.unbatch(f(examples)) == f.loop(examples)
