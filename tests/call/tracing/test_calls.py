"""Calls of functions whose structure is traced: what is remembered, what is refused, what fails."""

from __future__ import annotations

import functools
import itertools
import warnings
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from autobatch.call.tracing.structure import Tracing

SCALE: Any = jnp.float32(2.0)
RUNS: list[int] = []


def last(xs: list[float]) -> Any:
    """A dict that it fills, by a shared array that is a global variable."""
    RUNS.append(len(xs))
    held = {}
    for k, x in enumerate(xs):
        held[k % 3] = x * SCALE
    return held[2]


def cell(p: Any, x: Any, h: Any, c: Any) -> tuple[Any, Any]:
    i, f, o, g = jnp.split(x @ p["W"] + h @ p["U"], 4)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    return jax.nn.sigmoid(o) * jnp.tanh(c), c


def tagger(p: Any, words: list[int]) -> Any:
    """An LSTM over rows of a table that it remembers."""
    rows: dict[int, Any] = {}
    h = c = jnp.zeros(3)
    for w in words:
        if w not in rows:
            rows[w] = p["E"][w]
        h, c = cell(p, rows[w], h, c)
    return h @ p["V"]


def lstm() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    shapes = {"E": (9, 3), "W": (3, 12), "U": (3, 12), "V": (3,)}
    return {k: jnp.asarray(rng.normal(size=s).astype(np.float32)) for k, s in shapes.items()}


def test_a_warning_names_the_line() -> None:
    f = ab.batched(last)
    with pytest.warns(ab.StructureWarning, match=r"last: structure is traced.*test_calls\.py:\d+") as caught:
        f([[1.0, 2.0, 3.0]])
    assert caught[0].filename == __file__  # the line of the call
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # once
        assert f([[1.0, 2.0, 4.0]]).tolist() == [8.0]


def test_without_the_option_it_is_refused() -> None:
    with ab.options(trace=False), pytest.raises(ab.UnsupportedError, match="RUNS is changed"):
        ab.batched(last)([[1.0, 2.0, 3.0]])


def test_a_cell_is_one_row_of_each_turn() -> None:
    f, p = ab.batched(tagger, in_axes=(None, 0), backend="xla"), lstm()
    batch = [[1, 2, 3, 1], [4, 4], [5, 6, 7, 8, 0]]
    np.testing.assert_allclose(f(p, batch), f.loop(p, batch), rtol=1e-5)
    ((_, structure),) = f._traces._structures.items()
    assert len(structure.compounds.all) == 3  # a row of the table, a turn, what is read of the last one
    found = ab.grad(f)(p, batch)
    wanted = jax.grad(lambda p: sum(tagger(p, words) for words in batch))(p)
    for name in p:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-4, atol=1e-5)


def test_packed_examples_are_traced_once() -> None:
    f = ab.batched(last)
    data = ab.pack([[1.0, 2.0, 3.0], [0.0, 0.0, 1.0], [4.0, 5.0, 6.0, 7.0]]).plan(f)
    RUNS.clear()
    assert f(data).tolist() == [6.0, 2.0, 12.0]
    assert RUNS == [3, 3, 4]  # the first twice; examples that differ in their numbers alone have one trace
    for indices in ([2, 0], [1], [0, 1, 2]):
        assert f(data[np.array(indices)]).tolist() == [[6.0, 2.0, 12.0][k] for k in indices]
    assert RUNS == [3, 3, 4]


def test_free_arrays_are_read_again_and_have_derivatives(monkeypatch: pytest.MonkeyPatch) -> None:
    f = ab.batched(last)
    data = ab.pack([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]).plan(f)
    assert f(data).tolist() == [6.0, 12.0]
    monkeypatch.setitem(globals(), "SCALE", jnp.float32(3.0))
    assert f(data).tolist() == [9.0, 18.0]

    def loss(scale: Any) -> Any:
        monkeypatch.setitem(globals(), "SCALE", scale)
        return f(data).sum()

    assert jax.grad(loss)(jnp.float32(1.0)) == 9.0


def test_other_free_values_are_traced_again(monkeypatch: pytest.MonkeyPatch) -> None:
    f = ab.batched(counted)
    data = ab.pack([[1.0, 2.0, 3.0]]).plan(f)
    assert f(data).tolist() == [3.0]
    monkeypatch.setitem(globals(), "EVERY", 2)
    assert f(data).tolist() == [4.0]


EVERY = 1
SETTINGS: dict[str, Any] = {"scale": jnp.float32(2.0), "first": 1}
MIXED: dict[Any, Any] = {1: "a", "b": 2}


def test_containers_of_free_arrays_are_compared_by_what_else_they_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    f = ab.batched(set_up)
    data = ab.pack([[1.0, 2.0, 3.0]]).plan(f)
    assert f(data).tolist() == [4.0]
    monkeypatch.setitem(SETTINGS, "scale", jnp.float32(10.0))
    assert f(data).tolist() == [20.0]
    monkeypatch.setitem(SETTINGS, "first", 2)
    assert f(data).tolist() == [30.0]


def set_up(xs: list[float]) -> Any:
    assert MIXED[1] == "a"  # keys that JAX cannot sort
    kept = {k: x * SETTINGS["scale"] for k, x in enumerate(xs) if k >= SETTINGS["first"]}
    return kept[min(kept)]


def counted(xs: list[float]) -> Any:
    kept = {k: x for k, x in enumerate(xs) if k % EVERY == 0}
    return max(kept) + kept[0] if len(kept) > 2 else sum(kept.values())


def test_structure_that_numbers_decide_is_refused_with_both_lines() -> None:
    def chosen(xs: list[float]) -> Any:
        RUNS.append(len(xs))
        return sum(x if x > 0 else -x for x in xs)

    with pytest.raises(ab.UnsupportedError) as caught:
        ab.batched(chosen)([[1.0, 2.0]])
    (note,) = caught.value.__notes__
    assert "asks for a computed number" in note and "test_calls.py" in note


@dataclass
class Held:
    items: list[float] = field(default_factory=list)


def test_what_asks_for_numbers_is_compiled_where_memory_makes_it_possible(monkeypatch: pytest.MonkeyPatch) -> None:
    """Structure alone decides the loop, so it would be traced; but to ask whether a number is in a list asks for it."""

    def f(w: Any, xs: list[float]) -> Any:
        held = Held()
        for x in xs:
            held.items.append(x * w)
        return 3.0 in held.items, sum(held.items)

    g, w, xs = ab.batched(f, in_axes=(None, 0), backend="interpret"), jnp.float32(2.0), [[1.5, 2.0], [0.5]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ab.unbatch(g(w, xs)) == [(True, 7.0), (False, 1.0)]
        monkeypatch.setattr(Tracing, "runs", None)  # once is enough to know
        assert ab.unbatch(g(w, xs)) == [(True, 7.0), (False, 1.0)]
        assert ab.unbatch(jax.jit(g)(w, g.pack(xs))) == [(True, 7.0), (False, 1.0)]


def test_examples_that_fail_are_named() -> None:
    f = ab.batched(last)
    f([[1.0, 2.0, 3.0]])
    with pytest.raises(ab.ExampleError, match="KeyError: 2") as caught:
        f([[1.0, 2.0, 3.0], [1.0]])
    (failure,) = caught.value.failures
    assert failure.index == 1 and "test_calls.py" in str(failure.span)


def test_failed_examples_are_masked() -> None:
    f = ab.batched(last, on_error="mask")
    result, failures = f([[1.0, 2.0, 3.0], [4.0], [5.0, 6.0, 7.0]])
    assert result.tolist() == [6.0, 0.0, 14.0]
    assert failures.failed.tolist() == [False, True, False]
    (only,) = failures.details
    assert (only.index, only.kind) == (1, "KeyError")


def test_all_examples_of_a_later_batch_may_fail() -> None:
    f = ab.batched(last, on_error="mask")
    with pytest.raises(ab.UnsupportedError, match="As plain Python, example 0"):
        f([[1.0], [2.0]])  # nothing is known of what it returns
    f([[1.0, 2.0, 3.0]])
    result, failures = f([[1.0], [2.0]])
    assert result.tolist() == [0.0, 0.0] and failures.failed.tolist() == [True, True]
    with pytest.raises(ab.ExampleError, match="1 of the batch's examples failed"):
        ab.batched(last)([[1.0, 2.0, 3.0], [1.0]])


def test_integers_that_are_shared_decide() -> None:
    def powers(n: int, xs: list[float]) -> Any:
        held = dict(enumerate(xs))
        for _ in range(n):
            held = {k: x * x for k, x in held.items()}
        return sum(held.values())

    f = ab.batched(powers, in_axes=(None, 0))
    for n in (1, 2, 0):
        np.testing.assert_allclose(f(n, [[2.0, 1.0], [3.0]]), f.loop(n, [[2.0, 1.0], [3.0]]))


def test_explain_shows_the_program_over_traces() -> None:
    text = str(ab.batched(last).explain([[1.0, 2.0, 3.0]]))
    assert "structure of last" in text


COUNT = [0]


def changing(xs: list[float]) -> Any:
    COUNT[0] += 1
    held = {k: x * 2 for k, x in enumerate(xs)}
    return held[0] + COUNT[0]


def test_a_trace_that_differs_from_run_to_run_is_named() -> None:
    with pytest.raises(ab.Error) as caught:
        ab.batched(changing)([[1.0, 2.0]])
    words = "".join(caught.value.__notes__)
    assert "does not do the same on the same example again" in words and "test_calls.py" in words


def endless(xs: list[float]) -> Any:
    RUNS.append(len(xs))
    return functools.reduce(lambda x, k: x * 2, itertools.count(), xs[0])


def test_a_loop_that_never_ends_is_named() -> None:
    with ab.options(max_rows=1000), pytest.raises(ab.PlanError, match=r"example 0 .* 1,000 operations.*test_calls\.py"):
        ab.batched(endless)([[1.0]])


def test_many_small_shared_values_at_one_place_are_one_class() -> None:
    """A machine whose registers hold shared numbers: the rows say which of them they multiply."""

    def picked(p: Any, example: tuple[list[int], list[float]]) -> Any:
        RUNS.append(len(example))
        held = dict(enumerate([p["w"], p["b"], p["w"] * p["b"], p["w"] + 1.0, p["b"] - p["w"], p["w"] * 3.0]))
        total: Any = 0.0
        for k, x in zip(*example, strict=True):
            total = jnp.tanh(total + held[k] * x)
        return total

    f, p = ab.batched(picked, in_axes=(None, 0)), {"w": jnp.float32(0.5), "b": jnp.float32(-0.75)}
    few = [([0, 1, 1], [0.5, 1.0, -0.5]), ([1], [2.0])]
    np.testing.assert_allclose(f(p, few), f.loop(p, few), rtol=1e-5)  # classes of their own, so far
    batch = [([1, 2, 3, 4, 5], [1.0, -0.5, 0.25, 2.0, 1.5]), ([5, 5, 2], [1.0, 2.0, 3.0]), ([3], [0.1])]
    np.testing.assert_allclose(f(p, few), f.loop(p, few), rtol=1e-5)
    np.testing.assert_allclose(f(p, batch), f.loop(p, batch), rtol=1e-5)
    ((_, structure),) = f._traces._structures.items()
    assert len(structure.source.rows) < 16
    np.testing.assert_allclose(f(p, [*few, *batch]), f.loop(p, [*few, *batch]), rtol=1e-5)
    found = ab.grad(f)(p, batch)
    wanted = jax.grad(lambda p: sum(picked(p, x) for x in batch))(p)
    for name in p:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-4)


def test_large_shared_values_at_one_place_are_classes_of_their_own() -> None:
    """The modules of a network: a product with each matrix, not rows of matrices."""

    def modular(p: Any, which: list[int]) -> Any:
        RUNS.append(len(which))
        modules = dict(enumerate(p))
        h = jnp.ones(6)
        for k in which:
            h = jnp.tanh(modules[k] @ h)
        return h.sum()

    rng = np.random.default_rng(0)
    p = [jnp.asarray(rng.normal(size=(6, 6)), jnp.float32) for _ in range(6)]
    f, batch = ab.batched(modular, in_axes=(None, 0)), [[0, 1, 2, 3, 4, 5], [5, 0], [2]]
    np.testing.assert_allclose(f(p, batch), f.loop(p, batch), rtol=1e-4)
    ((_, structure),) = f._traces._structures.items()
    assert sum(c.name == "matmul" for c in structure.classes.all) == 6


def test_none_among_numbers_fails_its_example() -> None:
    def f(w: Any, xs: Any) -> Any:
        s = 0.0
        for x in xs:
            s += x * w
        return s

    g = ab.batched(f, in_axes=(None, 0), backend="interpret")
    with pytest.raises(ab.ExampleError, match="example 0 .*TypeError: None where a value is needed"):
        g(jnp.float32(2.0), [[1.0, None], [2.0]])
