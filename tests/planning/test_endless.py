"""Loops and recursion on the host that never end: they fail their example alone, with their line, soon."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from autobatch.data.spec import joined
from autobatch.planning import activations


def grows(p: Any, n: int) -> Any:
    while n > 0:
        n = n + 1
    return n * p


def halves(p: Any, x: float) -> Any:
    while x < 1.0:
        x = x * 0.5
    return x * p


def decides(p: Any, n: int) -> Any:
    """The host waits for what the loop gives."""
    k = 0
    while k < n or k < 0:
        k = k - 1
    s = p
    for _ in range(k):
        s = s + p
    return s


def changes_nothing(p: Any, n: int) -> Any:
    s = p
    while n == 3:
        s = s + 1
    return s


def often(p: Any, n: int) -> Any:
    """Many turns together, few of each run of a loop."""
    turns = 0
    while n > 0:
        k = n
        while k > 0:
            k, turns = k - 1, turns + 1
        n = n - 1
    return turns * p


LIMIT = 50
CASES = [
    (grows, [0, 1, -4], {1}),
    (halves, [1.5, 0.5, 2.0], {1}),
    (decides, [0, 2, -1], {1}),
    (changes_nothing, [1, 3], {1}),
    (often, [5, 49, 51], {2}),
]


@pytest.mark.parametrize(("function", "batch", "failing"), CASES, ids=lambda x: getattr(x, "__name__", None))
def test_a_loop_that_never_ends_fails_its_example(function: Any, batch: list[Any], failing: set[int]) -> None:
    p = jnp.asarray(2.0)
    f = ab.batched(
        function, in_axes=(None, 0), on_error="mask", backend="interpret", options=ab.options(max_iterations=LIMIT)
    )
    found, failures = f(p, batch)
    assert {x.index for x in failures} == failing
    for x in failures:
        assert "never ends" in x.message or f"max_iterations={LIMIT} turns of this loop were not enough" in x.message
        assert x.span.excerpt().strip().startswith("while")
    for k, x in enumerate(batch):
        np.testing.assert_allclose(found[k], 0 if k in failing else function(p, x), rtol=1e-6)


@ab.batched(backend="interpret")
def deeper(n: int) -> Any:
    return 0 if n == 0 else 1 + deeper(n - 1)


@ab.batched(backend="interpret")
def there(n: int, by: int) -> Any:
    return 1 if n == 0 else 1 + back(n - by, by)


def back(n: int, by: int) -> Any:
    return there(n - by, by) * 2


@dataclass
class Stop:
    """A place in a graph."""

    x: float
    following: list[Stop] = field(default_factory=list)


@ab.batched(backend="interpret")
def walks(stop: Stop, steps: int) -> Any:
    """What changes along the walk lets no two calls be equal, so that the cycle is none of calls."""
    s = stop.x if steps != 1000 else -1.0
    for other in stop.following:
        s = s + walks(other, steps + 1)
    return s


@ab.batched(backend="interpret")
def doubles(n: int, m: int) -> Any:
    """The activations are the square of the depth."""
    return 1.0 if n < 0 else doubles(n + 1, m) + doubles(n, m + 1)


def ring() -> Stop:
    first = Stop(1.0)
    first.following.append(Stop(2.0, [first]))
    return first


RECURSIONS = [
    (deeper, ([3, -1, 0],), "1 + deeper(n - 1)", {1}),
    (there, ([4, 3, 0], [1, 2, 1]), "there(n - by, by)", {1}),
    (walks, ([Stop(1.0, [Stop(2.0)]), ring()], [0, 0]), "walks(other, steps + 1)", {1}),
    (doubles, ([-1, 2], [1, 1]), "doubles(n + 1, m)", {1}),
]


@pytest.mark.parametrize(("function", "batch", "call", "failing"), RECURSIONS, ids=lambda x: getattr(x, "_name", None))
def test_a_recursion_that_never_ends_fails_its_example(function: Any, batch: Any, call: str, failing: set[int]) -> None:
    """With the line of the call, and the option."""
    with ab.options(max_host_turns=60), pytest.raises(ab.ExampleError) as raised:
        function(*batch)
    assert {x.index for x in raised.value.failures} == failing
    for x in raised.value.failures:
        assert x.kind == "RecursionError" and call in x.span.excerpt()
        assert "calls wait for one another" in x.message and "max_host_turns" in x.message
    inside = [x[:1] for x in batch]
    with ab.options(max_host_turns=60):
        np.testing.assert_allclose(function(*inside), np.stack(function.loop(*inside)), rtol=1e-6)


def test_what_has_as_many_objects_may_go_as_deep() -> None:
    """A chain is walked to its end, by a recursion and by a loop."""
    chain = Stop(0.0)
    for k in range(200):
        chain = Stop(float(k), [chain])

    @ab.batched(backend="interpret")
    def steps(stop: Stop) -> int:
        n = 0
        while len(stop.following) > 0:
            stop, n = stop.following[0], n + 1
        return n

    with ab.options(max_host_turns=1):
        assert walks([chain], [0]).tolist() == [199 * 100]
        assert steps([chain]).tolist() == [200]


def test_recursions_that_hand_down_what_they_have() -> None:
    """No object is in it, so that no cycle in the data is spoken of."""

    @ab.batched(backend="interpret")
    def same(n: int) -> int:
        return 0 if n == 0 else 1 + same(n)

    with pytest.raises(ab.ExampleError, match=r"example 1 .*it calls itself with the arguments.*test for its end"):
        same([0, 2])


def test_an_example_that_goes_far_is_run_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long before the limit; what it fails with is what Python meets first, and one that ends is left to go on."""
    monkeypatch.setattr(activations, "LONG", 16)
    ran: list[int] = []
    run = activations.EndlessWatch.run
    monkeypatch.setattr(activations.EndlessWatch, "run", lambda self, e: ran.append(e) or run(self, e))

    @ab.batched(backend="interpret")
    def f(n: int, wrong: int) -> Any:
        assert wrong < 2, "wrong"
        k, out = 0, []
        while k != n:
            k = k + 1
            out.append(k)
        return out

    with ab.options(max_host_turns=1000):
        with pytest.raises(ab.ExampleError) as raised:
            f([30, -1, 2], [0, 0, 0])
        assert ran == [0, 1]
        assert [(x.index, x.kind) for x in raised.value.failures] == [(1, "RuntimeError")]
        assert [len(x) for x in ab.unbatch(f([30, 2, 70], [0, 0, 0]))] == [30, 2, 70]


def test_many_examples_that_never_end_are_not_all_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of them say what is wrong; with `on_error="mask"` each is run to its end."""
    monkeypatch.setattr(activations, "LONG", 16)
    with ab.options(max_iterations=300), pytest.raises(ab.ExampleError, match="were not run to their end") as raised:
        ab.batched(changing, backend="interpret")([-1] * 20)
    assert len(raised.value.failures) == activations.AT_ONCE
    f = ab.batched(changing, backend="interpret", on_error="mask", options=ab.options(max_iterations=300))
    assert f([-1, 0, -2] * 3)[1].failed.sum() == 6


def changing(n: int) -> Any:
    while n != 0:
        n = n - 1
    return n


def test_the_limit_on_rows_names_the_example_and_the_call() -> None:
    with ab.options(max_rows=30), pytest.raises(ab.PlanError) as raised:
        deeper([3, -1])
    words = str(raised.value)
    assert "more than 30 activations" in words and "max_rows" in words and "example 1" in words
    assert "1 + deeper(n - 1)" in words and f"{__file__}:" in words


@pytest.mark.parametrize("lists", [[(3, 7), (9,)], [(), (1,)], [], [(2,)]])
def test_joined_lists_are_their_elements(lists: list[tuple[int, ...]]) -> None:
    """Equal ones are equal, with equal hashes, however they were made; longer ones leave shorter ones as they are."""
    flat = [x for items in lists for x in items]
    made = joined(lists)
    longer, other = joined((made, (8,))), joined((made, (9, 10)))  # in this order
    assert (list(made), list(longer), list(other)) == (flat, [*flat, 8], [*flat, 9, 10])
    again = joined([tuple(flat), (8,)])
    assert longer.buffer is made.buffer is not other.buffer, "lists that grow share their elements"
    assert again == longer and hash(again) == hash(longer) and longer != other
    assert [again[k] for k in range(-len(again), len(again))] == [*flat, 8] * 2
    with pytest.raises(IndexError):
        again[len(again)]
