"""Loops that count are inspected with all of their turns at once: the same rows, as turn by turn."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autobatch as ab
from autobatch.errors import ExampleError
from autobatch.planning.activations import Inspection
from autobatch.testing import check_equivalence

W = jnp.asarray(np.random.default_rng(0).normal(size=(5, 5)) / 2, jnp.float32)
words = st.lists(st.integers(0, 4), max_size=6)


# ---- programs, and how often their functions are executed by inspection for any examples of theirs


def of_list(w: Any, xs: list[int]) -> Any:
    h = c = w[0]
    for x in xs:
        c = jnp.tanh(w @ h + w[x]) * c
        h = h + c
    return h


def backward(w: Any, xs: list[int]) -> Any:
    h = w[0]
    for k in range(len(xs) - 1, -1, -1):
        h = jnp.tanh(w @ h + w[xs[k]])
    return h


def by_twos(w: Any, xs: list[int]) -> Any:
    h, k = w[0], 1
    while k <= len(xs) - 1:
        h = jnp.tanh(w @ h + w[xs[k]] - w[xs[k - 1]])
        k += 2
    return h


def with_the_last(w: Any, xs: list[int]) -> Any:
    h, last, is_first = w[0], 2, True
    for x in xs:
        h = jnp.tanh(w @ h + w[x] * w[last] + is_first)
        last, is_first = x, False
    return h


def in_turns(w: Any, xs: list[int]) -> Any:
    h = w[0]
    for k, x in enumerate(xs):
        c = w[k % 5]
        for y in xs[k:]:
            c = jnp.tanh(c + w[y] * w[x])
        h = jnp.tanh(w @ h + c)
    return h


def also_apart(w: Any, xs: list[int]) -> Any:
    """The same loop from two places, of which one begins behind the other."""

    def run(h: Any, begin: int) -> Any:
        for k in range(begin, len(xs)):
            h = jnp.tanh(h * w[xs[k]] + k)
        return h

    return run(w[0], 0) + run(w[1], min(2, len(xs)))


def handed_around(w: Any, xs: list[int]) -> Any:
    """What one turn computes is another's other number: pointers change places."""
    a, b = w[0], w[1]
    for x in xs:
        a, b = b, jnp.tanh(a + w[x])
    return a - b


def sometimes(w: Any, xs: list[int]) -> Any:
    h = w[0]
    for x in xs:
        if x % 2 == 0:
            h = jnp.tanh(w @ h + w[x])
    return h


def until(w: Any, xs: list[int]) -> Any:
    h = w[0]
    for x in xs:
        if x == 3:
            break
        h = jnp.tanh(w @ h + w[x])
    return h


def up_to(w: Any, xs: list[int]) -> Any:
    """Fails where it reads behind the end."""
    h = w[0]
    for k, x in enumerate(xs):
        h = h * w[xs[k + 1]] if x > 2 else h + w[x]
    return h


def nested_branches(w: Any, xs: list[int]) -> Any:
    a = b = w[0]
    for k, x in enumerate(xs):
        if x > 1:
            if k % 2:
                a, b = b, a
            else:
                a = jnp.tanh(a + w[x])
        elif x == 1:
            b = w[1]
    return a - b


def called(w: Any, xs: list[int]) -> Any:
    """Equal calls are one where turns hand on the same number: so it has to be known which one it is."""

    def deep(h: Any, n: int) -> Any:
        return h if n == 0 else deep(jnp.tanh(h), n - 1)

    h, total = w[0], w[1]
    for x in xs:
        if x == 3:
            h = w[x] * h
        total = total + deep(h, 2)
    return total


COUNTED = (
    of_list, backward, by_twos, with_the_last, in_turns, also_apart, handed_around, sometimes, nested_branches,
)  # fmt: skip
OTHERS = (until, called)


@contextmanager
def turn_by_turn(in_order: bool) -> Iterator[list[int]]:
    """Every inspection is done both ways, and there are as many rows: the same ones where loops stand in no others,
    whose turns come earlier otherwise. How often functions ran: at once, by turns."""
    executed, run, execute = [0, 0], Inspection.run, Inspection.execute

    def counted(self: Inspection, kind: Any) -> None:
        executed[not self.together] += 1
        execute(self, kind)

    def both(self: Inspection) -> Any:
        made = run(self)
        if self.together:
            other = run(Inspection(self.spec, self.columns, self.roots, self.examples, self.watch, together=False))
            if made is not None and other is not None:
                assert sum(map(len, made.example.values())) == sum(map(len, other.example.values()))
                if in_order:
                    same(made.example, other.example)
                    same(made.tables, other.tables)
                    same(made.outputs, other.outputs)
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Inspection, "execute", counted)
        patch.setattr(Inspection, "run", both)
        yield executed


def same(a: dict[Any, Any], b: dict[Any, Any]) -> None:
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=str(name))


@pytest.mark.parametrize("function", [*COUNTED, *OTHERS], ids=lambda f: f.__name__)
@settings(max_examples=20)
@given(xss=st.lists(words, min_size=1, max_size=4))
def test_rows_are_those_of_turn_by_turn(function: Any, xss: list[list[int]]) -> None:
    f = ab.batched(function, in_axes=(None, 0), backend="interpret")
    with turn_by_turn(in_order=function is not in_turns):
        got, expected = f(W, xss), f.loop(W, xss)
    np.testing.assert_allclose(np.asarray(got), np.asarray(expected), rtol=1e-5, atol=1e-5)


def test_long_lists_are_one_execution_too() -> None:
    """Turns of `for` loops end, however many there are."""
    with turn_by_turn(in_order=True) as executed:
        f = ab.batched(of_list, in_axes=(None, 0), backend="interpret")
        f.prepare(f.bound((W, [[1, 2, 3] * 2_000]), {}))
    assert executed == [2, 6_002]


@pytest.mark.parametrize("function", COUNTED, ids=lambda f: f.__name__)
def test_as_many_executions_as_loops(function: Any) -> None:
    """Longer lists are no more executions: of the entry, and of each loop."""
    with turn_by_turn(in_order=False) as executed:
        ab.batched(function, in_axes=(None, 0), backend="interpret")(W, [[1, 2, 3, 4] * 6, [2]])
    at_once, by_turns = executed
    assert at_once <= 3
    assert by_turns > 10


@pytest.mark.parametrize("function", [*COUNTED, *OTHERS], ids=lambda f: f.__name__)
def test_derivatives(function: Any) -> None:
    check_equivalence(function, [[1, 2, 0, 4], [], [3, 3, 1]], shared=(W,), backends=("interpret",))


def test_the_first_failure_is_that_of_plain_python() -> None:
    f = ab.batched(up_to, in_axes=(None, 0), backend="interpret")
    with pytest.raises(ExampleError, match="IndexError") as error:
        f(W, [[1, 2], [0, 1, 4], [4, 0, 1]])
    assert [x.index for x in error.value.failures] == [1]


def test_other_examples_than_those_that_fail_are_computed() -> None:
    f = ab.batched(up_to, in_axes=(None, 0), backend="interpret", on_error="mask")
    lists = [[1, 2], [0, 1, 4], [4, 0, 1]]
    found = f(W, lists)
    value = found.value if hasattr(found, "value") else found[0]
    for k in (0, 2):
        np.testing.assert_allclose(np.asarray(value)[k], np.asarray(up_to(W, lists[k])), rtol=1e-5)


def test_a_loop_of_too_many_turns_is_named() -> None:
    def long(w: Any, n: int) -> Any:
        h = w[0]
        for _ in range(n):
            h = h + 1.0
        return h

    f = ab.batched(long, in_axes=(None, 0), backend="interpret", options={"max_rows": 5000, "trace": False})
    with pytest.raises(ab.PlanError, match="has more than 5,000 activations"):
        f(W, [10**9, 3])
