"""Errors and inspection: what is raised and where, the plain function, what a call compiles."""

from __future__ import annotations

import logging
import sys
import threading
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from tests.api.nodes import Node, close, params, total, trees


@ab.batched
def second(words):
    if len(words) > 3:
        raise ValueError(f"{len(words)} words")
    return words[1] * 2.0


@ab.batched(on_error="mask")
def masked(words):
    if len(words) > 3:
        raise ValueError("too long")
    return words[1] * 2.0, len(words), "name", [w + 1 for w in words]


BATCH = [[1, 2], [3], [4, 5, 6], [1, 2, 3, 4]]


# ---- the errors


def test_the_errors_have_one_root():
    """`ab.Error` catches all of them."""
    kinds = [ab.UnsupportedError, ab.TypeConflictError, ab.BatchError, ab.PlanError, ab.ExampleError]
    assert all(issubclass(k, ab.Error) and k is not ab.Error for k in kinds)
    assert issubclass(ab.Error, Exception)


def refused(t):
    return [(yield t.x)]


def of_two_types(t):
    if t.left is None:
        return jnp.zeros(2)
    return jnp.zeros((3, 2))


@pytest.mark.parametrize(
    "function, error, line", [(refused, ab.UnsupportedError, 1), (of_two_types, ab.TypeConflictError, 3)]
)
def test_errors_of_compiling_have_a_place_a_caret_and_a_cure(function, error, line):
    """`file:line:col`, the line with a caret under it, and what to write instead."""
    with pytest.raises(error) as caught:
        ab.batched(function)(trees())
    text, span = str(caught.value), caught.value.span
    number = function.__code__.co_firstlineno + line
    assert text.startswith(f"{__file__}:{number}:{span.column}: ")
    assert "\n    " + open(__file__).read().splitlines()[number - 1] + "\n" in text
    assert "^" in text and caught.value.cure and text.endswith(caught.value.cure)


def test_errors_of_a_call_name_the_function_and_the_argument():
    """BatchError: what was given; PlanError: what to call first."""
    with pytest.raises(ab.BatchError, match="total: t: one example was given"):
        total(params(), Node(1.0))
    fresh = ab.batched(total.__wrapped__, in_axes=(None, 0), backend="xla")
    with pytest.raises(ab.PlanError, match=r"total.*batch\.plan\(total\) first"):
        jax.jit(lambda p, b: fresh(p, b))(params(), ab.pack(trees()))


def test_an_example_error_describes_its_failures():
    """Index, line, kind and message of each."""
    with pytest.raises(ab.ExampleError) as caught:
        second(BATCH)
    first = second.__wrapped__.__code__.co_firstlineno
    assert [(f.index, f.line - first, f.kind, f.message) for f in caught.value.failures] == [
        (1, 4, "IndexError", "list index out of range"),
        (3, 3, "ValueError", "4 words"),
    ]
    assert "example 1" in str(caught.value) and "words[1] * 2.0" in str(caught.value)


def test_the_failure_is_the_first_in_program_order():
    """Not the first that the breadth-first planner meets."""

    @ab.batched
    def f(t):
        below = 0.0 if t.left is None else f(t.left)
        assert t.x < 8, "too large"
        return below + t.x

    with pytest.raises(ab.ExampleError) as caught:
        f([Node(9.0, Node(8.5, Node(1.0))), Node(1.0)])
    (failure,) = caught.value.failures
    assert failure.index == 0 and failure.kind == "AssertionError"
    calls = []

    def plain(t):
        below = 0.0 if t.left is None else plain(t.left)
        calls.append(t.x)
        assert t.x < 8
        return below

    with pytest.raises(AssertionError):
        plain(Node(9.0, Node(8.5, Node(1.0))))
    assert calls[-1] == 8.5


# ---- on_error


def test_failures_are_raised_after_the_whole_batch():
    """One error names every example that failed."""
    with pytest.raises(ab.ExampleError) as caught:
        second(BATCH + [[], [5, 6]])
    assert [f.index for f in caught.value.failures] == [1, 3, 4]


def test_mask_returns_results_and_failures():
    """`(result, failures)`, `failures.failed` is bool[B]; the rows of the others are untouched."""
    result, failures = masked(BATCH)
    assert failures.failed.dtype == jnp.bool_ and failures.failed.tolist() == [False, True, False, True]
    assert result[0].tolist() == [4, 0, 10, 0]
    assert [(f.index, f.kind) for f in failures] == [(1, "IndexError"), (3, "ValueError")]


def test_masked_rows_are_zero():
    """Of every part of a result: numbers are zero, lists empty."""
    (numbers, lengths, _, lists), _ = masked(BATCH)
    assert numbers.tolist() == [4, 0, 10, 0] and lengths.tolist() == [2, 0, 3, 0]
    assert lists.to_list() == [[2, 3], [], [5, 6, 7], []]


def test_mask_returns_a_pair_also_when_nothing_failed():
    """The form of the result does not depend on the data."""
    (numbers, *_), failures = masked(BATCH[:1])
    assert numbers.tolist() == [4] and failures.failed.tolist() == [False]


def test_a_batch_in_which_every_example_fails():
    """The result has its types all the same."""
    (numbers, *_), failures = masked([[1], [2]])
    assert numbers.tolist() == [0, 0] and failures.failed.all()


def test_failures_of_structure_are_found_while_planning():
    """So they are known under jit too: raised, or masked."""
    data = second.pack(BATCH)
    second(data[[0, 2]])
    with pytest.raises(ab.ExampleError, match="example 1"):
        jax.jit(second)(data[[0, 1]])
    packed = masked.pack(BATCH)
    masked(packed)
    (numbers, *_), failures = jax.jit(lambda b: masked(b))(packed)
    assert numbers.tolist() == [4, 0, 10, 0] and failures.failed.tolist() == [False, True, False, True]


def test_an_example_that_fails_fails_wherever_it_is_repeated():
    """In a minibatch too, under jit and with gradients."""
    data = masked.pack(BATCH)
    (numbers, *_), failures = masked(data[[1, 0, 1, 3]])
    assert failures.failed.tolist() == [True, False, True, True] and numbers.tolist() == [0, 4, 0, 0]
    assert [(f.index, f.kind) for f in failures] == [(0, "IndexError"), (2, "IndexError"), (3, "ValueError")]
    assert jax.jit(lambda b: masked(b)[1].failed)(data[[1, 0, 1]]).tolist() == [True, False, True]
    with pytest.raises(ab.ExampleError) as caught:
        second(second.pack(BATCH)[[0, 3, 3]])
    assert [f.index for f in caught.value.failures] == [1, 2]


def test_a_failed_example_does_not_disturb_its_neighbours():
    """Their results are those of a batch without it."""
    alone, _ = masked([[1, 2], [4, 5, 6]])
    together, _ = masked(BATCH)
    close(alone[0], together[0][np.array([0, 2])])


# ---- plain Python


def test_example_is_the_plain_function():
    """Python itself, with Python's types and errors."""
    assert second.example([1, 2]) == 4.0 and type(second.example([1, 2])) is float
    with pytest.raises(IndexError):
        second.example([1])


def test_example_runs_batched_functions_inside_plainly():
    """Every call of a batched function in it is one activation in Python."""
    seen = []

    @ab.batched
    def inner(x):
        seen.append(type(x))
        return x + 1

    outer = ab.batched(lambda x: inner(x) * 2)
    assert outer.example(1.0) == 4.0 and seen == [float]


def test_loop_is_example_over_the_batch():
    """A list of B plain results, in any form of the batched arguments."""
    f = ab.batched(lambda p, t, k: p * t.x + k, in_axes=(None, 0, 0))
    for batch in (trees(), ab.pack(trees())):
        assert [float(x) for x in f.loop(2.0, batch, np.arange(3))] == [2, 5, 12]


def test_loop_is_the_oracle():
    """The batched call agrees with it."""
    close(total(params(), trees()), total.loop(params(), trees()))


def test_disable_runs_the_loop_and_stacks():
    """Results have the form of the batched call, and nothing is compiled."""
    f = ab.batched(lambda t: (t.x, [t.x], "a"))
    with ab.disable():
        numbers, lists, words = f(trees())
    assert f.cache_info().specialisations == 0
    close(numbers, [1, 2, 5])
    assert isinstance(lists, ab.Ragged) and isinstance(words, ab.Batch)
    assert ab.unbatch((numbers, lists, words)) == f.loop(trees())


def test_disable_nests():
    """Only the outermost end switches it off."""
    f = ab.batched(lambda x: x * 2)
    with ab.disable():
        with ab.disable():
            pass
        f(np.ones(2))
        assert f.cache_info().specialisations == 0
    f(np.ones(2))
    assert f.cache_info().specialisations == 1


def test_disable_is_of_one_thread():
    """Other threads go on compiling."""
    f = ab.batched(lambda x: x * 2)
    with ab.disable():
        thread = threading.Thread(target=lambda: f(np.ones(1)))
        thread.start()
        thread.join()
    assert f.cache_info().specialisations == 1


# ---- inspection


def test_lower_shows_the_program_stage_by_stage():
    """The user's source, the typed program of one example, equations over rows, stages and loops, XLA's text."""

    @ab.batched(in_axes=(None, 0))
    def state(p, t):
        return jnp.tanh(p["w"] * t.x) if t.left is None else jnp.tanh(state(p, t.left) * state(p, t.right))

    lowered = state.lower(params(), trees())
    assert lowered.as_text("source").strip().startswith("@ab.batched") and "def state" in lowered.as_text("source")
    assert lowered.as_text() == lowered.as_text("example") and "func @" in lowered.as_text()
    assert "space " in lowered.as_text("spmd") and "recurrence" in lowered.as_text("fissioned")
    assert lowered.as_text("backend").startswith("HloModule")


def test_lower_refuses_a_stage_that_it_does_not_know():
    """And names those that there are."""
    with pytest.raises(ab.BatchError, match="source, example, spmd"):
        total.lower(params(), trees()).as_text("tape")


def test_lower_compiles_to_a_callable_for_the_size_class():
    """It computes what the function does; another size class is refused."""
    run = total.lower(params(), trees()).compile()
    close(run(params(3.0), trees()[::-1]), total(params(3.0), trees()[::-1]))
    with pytest.raises(ab.PlanError, match="this executable is for"):
        run(params(), trees() * 300)


def test_lower_tells_the_cost():
    """What XLA counts."""
    cost = total.lower(params(), trees()).cost()
    assert cost["flops"] > 0 and cost["bytes accessed"] > 0


def test_cache_info_counts_specialisations_executables_and_plans():
    """Of this function, so far."""
    f = ab.batched(total.__wrapped__, in_axes=(None, 0), backend="xla")
    assert f.cache_info() == ab.CacheInfo(0, 0, 0)
    f(params(), trees())
    assert f.cache_info() == ab.CacheInfo(specialisations=1, executables=1, plans=1)
    f(params(), trees())
    assert f.cache_info()[:2] == (1, 1)


# ---- the key


def count_after(f, *calls):
    found = []
    for call in calls:
        call()
        found.append(f.cache_info().specialisations)
    return found


def test_the_key_holds_the_statics_of_every_function_reached():
    """A number that a helper of a helper reads: another value, another program."""
    state = {"power": 2}

    def helper(x):
        return x ** state["power"]

    f = ab.batched(lambda x: helper(x) + 0)
    assert f(np.array([3.0])).tolist() == [9]
    state["power"] = 3
    assert f(np.array([3.0])).tolist() == [27]


def test_the_key_holds_the_source_of_every_function_reached():
    """A helper that was replaced by another function."""
    namespace = {"helper": lambda x: x + 1}
    f = ab.batched(lambda x: namespace["helper"](x))
    assert f(np.array([1.0])).tolist() == [2]
    namespace["helper"] = lambda x: x * 10
    assert f(np.array([1.0])).tolist() == [10]


def test_the_key_holds_the_shapes_of_shared_arrays():
    """And not their values."""
    f = ab.batched(lambda p, t: p * t.x, in_axes=(None, 0))
    ones = count_after(f, lambda: f(jnp.ones(2), trees()), lambda: f(jnp.zeros(2), trees()))
    assert ones == [1, 1]
    assert count_after(f, lambda: f(jnp.ones(3), trees())) == [2]
    assert count_after(f, lambda: f(jnp.ones(3, jnp.int32), trees())) == [3]


def test_the_key_holds_the_schema():
    """Examples of another class are another program."""

    @dataclass
    class Other:
        x: float

    f = ab.batched(lambda t: t.x * 2)
    assert count_after(f, lambda: f(trees()), lambda: f([Other(1.0)])) == [1, 2]


def test_the_key_holds_the_size_class():
    """Within one specialisation: an executable for each."""
    f = ab.batched(total.__wrapped__, in_axes=(None, 0), backend="xla")
    f(params(), trees())
    f(params(), trees() * 200)
    assert f.cache_info()[:2] == (1, 2)


def test_the_key_holds_x64_backend_and_options():
    """What is compiled depends on them."""
    f = ab.batched(total.__wrapped__, in_axes=(None, 0))
    f(params(), trees())
    with jax.enable_x64(True):
        f(params(), trees())
    assert f.cache_info().specialisations == 2
    with ab.options(backend="interpret"):
        f(params(), trees())
    assert f.cache_info().specialisations == 3
    with ab.options(widths=(32, 8)):
        f(params(), trees())
    assert f.cache_info().specialisations == 4


def test_a_log_line_names_the_part_of_the_key_that_changed(caplog):
    """So that nobody wonders why a call compiles."""
    f = ab.batched(lambda p, t: p * t.x, in_axes=(None, 0))
    with caplog.at_level(logging.INFO, logger="autobatch"):
        f(jnp.ones(2), trees())
        f(jnp.ones(3), trees())
    assert any("shared changed from float32[2] to float32[3]" in r.getMessage() for r in caplog.records)


# ---- options


def test_options_in_a_context_and_by_default(monkeypatch):
    """Inside `with`, and for the whole process with `make_default`."""
    monkeypatch.setattr(sys.modules["autobatch.options"], "_process", ())
    f = ab.batched(total.__wrapped__, in_axes=(None, 0), backend="xla")
    with pytest.raises(ab.PlanError, match="max_rows"), ab.options(max_rows=2):
        f(params(), trees())
    ab.options(max_rows=2).make_default()
    with pytest.raises(ab.PlanError, match="max_rows"):
        f(params(), trees())
    with ab.options(max_rows=1000):
        close(f(params(), trees()), [2, 18, 70])


def test_the_argument_of_batched_wins_over_the_context():
    """It is nearest to the function."""
    f = ab.batched(total.__wrapped__, in_axes=(None, 0), backend="xla", options={"max_rows": 2})
    with ab.options(max_rows=1000), pytest.raises(ab.PlanError, match="max_rows"):
        f(params(), trees())


def test_the_context_wins_over_the_environment(monkeypatch):
    """`AUTOBATCH_<NAME>` is what counts where nobody says otherwise."""
    f = ab.batched(total.__wrapped__, in_axes=(None, 0), backend="xla")
    monkeypatch.setattr(sys.modules["autobatch.options"], "_process", ())
    monkeypatch.setenv("AUTOBATCH_MAX_ROWS", "2")
    with pytest.raises(ab.PlanError, match="max_rows"):
        f(params(), trees())
    with ab.options(max_rows=1000):
        close(f(params(), trees()), [2, 18, 70])
