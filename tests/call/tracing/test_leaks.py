"""What a traced function leaves outside of it: computed numbers are refused, and what was there is put back."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pytest

import autobatch as ab

SEEN: list[Any] = [1.0]
BY_LENGTH: dict[int, Any] = {}
QUEUE: deque[Any] = deque([1])
NESTED: dict[str, list[Any]] = {"all": [[0.5]]}


class Meter:
    def __init__(self) -> None:
        self.last: Any = 0.0
        self.counts = 0


METER = Meter()
XS = [[0.5, 0.25], [1.0], [2.0, 3.0, 4.0]]


def appends(w, xs):
    SEEN.append(xs[0] * w)
    return xs[0]


def sets_item(w, xs):
    BY_LENGTH[len(xs)] = xs[0] * w
    return xs[0]


def queues(w, xs):
    QUEUE.append(xs[0] + w)
    return xs[0]


def deep(w, xs):
    NESTED["all"][0].append(xs[0] * w)
    return xs[0]


def sets_field(w, xs):
    METER.last = xs[0] * w
    return xs[0]


def defines(w, xs):
    global DEFINED
    DEFINED = xs[0] * w
    return DEFINED


@pytest.mark.parametrize(
    ("function", "variable"),
    [
        (appends, "SEEN"),
        (sets_item, "BY_LENGTH"),
        (queues, "QUEUE"),
        (deep, "NESTED"),
        (sets_field, "METER"),
        (defines, "DEFINED"),
    ],
    ids=lambda x: getattr(x, "__name__", x),
)
def test_a_computed_number_is_refused_and_taken_back(function, variable):
    with ab.options(trace=True), pytest.raises(ab.UnsupportedError) as caught:
        ab.batched(function, in_axes=(None, 0))(1.5, XS)
    assert f"leaves a computed number in {variable}" in "\n".join([str(caught.value), *caught.value.__notes__])
    assert caught.value.span.file == __file__
    assert [1.0] == SEEN and not BY_LENGTH and deque([1]) == QUEUE and NESTED == {"all": [[0.5]]}
    assert METER.last == 0.0 and "DEFINED" not in globals()


def test_a_closure_is_given_back():
    found: list[Any] = []

    def f(w, xs):
        found.append(xs[0] * w)
        return xs[0]

    with ab.options(trace=True), pytest.raises(ab.UnsupportedError):
        ab.batched(f, in_axes=(None, 0))(1.5, XS)
    assert found == []


@pytest.mark.filterwarnings("ignore::autobatch.StructureWarning")
def test_what_is_no_number_stays():
    """As plain Python leaves it."""

    def f(w, xs):
        METER.counts += len(xs)
        return xs[-1] * w

    with ab.options(trace=True):
        found = ab.batched(f, in_axes=(None, 0))(1.5, XS)
    np.testing.assert_allclose(found, [1.5 * x[-1] for x in XS])
    assert METER.counts > 0
