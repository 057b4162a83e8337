"""Batches that memory cannot hold: refused before anything is allocated, with the sizes and the cures."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from autobatch.common import runtime
from autobatch.passes.costs import Footprint, in_words
from tests.api.nodes import Node, params, total, trees
from tests.passes.frames.programs import parameters, prepared, random_tree, tree_lstm


@ab.batched
def spread(t: Node):
    """A row of it takes 256 GB."""
    if t.left is None:
        return jnp.full((2**20, 2**16), t.x)
    return jnp.tanh(spread(t.left) + spread(t.right))


@ab.batched
def corner(t: Node):
    return spread(t)[0, 0]


def full(depth):
    return Node(0.5) if depth == 0 else Node(0.25, full(depth - 1), full(depth - 1))


CURE = r"call with fewer examples at a time, and set ab\.options\(max_rows=\.\.\.\)"


def test_a_batch_larger_than_memory_is_refused_before_it_runs():
    """How much there is, how much it takes, which arrays are the largest, and what to do."""
    words = r"batch of 2 examples is too large for the memory: there are [\d.]+ [GT]B, .* are [\d.]+ TB \(\d+ rows of "
    with pytest.raises(ab.PlanError, match=rf"{words}spread.*float32\*\[1048576x65536\].*{CURE}"):
        corner([full(4), Node(1.0)])


def test_a_planned_batch_and_a_trace_are_refused_too():
    data = ab.pack([full(4), Node(1.0)])
    with pytest.raises(ab.PlanError, match=CURE):
        corner(data)
    with pytest.raises(ab.PlanError, match=CURE):
        jax.jit(lambda b: corner(b))(data.plan(corner))


@pytest.mark.cpu
def test_what_xla_cannot_allocate(monkeypatch):
    """Where the machine does not tell its memory, or the stages need more: XLA's words, and the same sizes and cure."""
    monkeypatch.setattr(runtime, "memory_limit", lambda: 2**62)
    f = type(corner)(corner.__wrapped__, corner.settings)
    with pytest.raises(ab.PlanError, match=rf"XLA says 'RESOURCE_EXHAUSTED: .*rows of spread.*{CURE}") as caught:
        f([full(10)])
    assert isinstance(caught.value.__cause__, jax.errors.JaxRuntimeError)


def test_the_limit_counts_what_a_smaller_batch_does_not_take(monkeypatch):
    """One more executable fits or does not: the limit is that of bytes, not of rows."""
    f = ab.batched(total.__wrapped__, in_axes=(None, 0), backend="xla")
    expected = np.asarray(total(params(), trees()))
    monkeypatch.setattr(runtime, "memory_limit", lambda: 10)
    with pytest.raises(ab.PlanError, match="there are 10 bytes"):
        f(params(), trees())
    assert f.loop(params(), trees())[0] == pytest.approx(float(expected[0]))
    monkeypatch.setattr(runtime, "memory_limit", lambda: 10**6)
    np.testing.assert_array_equal(f(params(), trees()), expected)


def test_the_reference_needs_no_arrays_of_all_rows(monkeypatch):
    monkeypatch.setattr(runtime, "memory_limit", lambda: 10)
    f = ab.batched(total.__wrapped__, in_axes=(None, 0), backend="interpret")
    assert np.isfinite(np.asarray(f(params(), trees()))).all()


def test_the_footprint_is_no_more_than_what_xla_takes():
    """A lower bound: nothing that could run is refused."""
    batch = [random_tree(np.random.default_rng(k), 20) for k in range(40)]
    held = prepared(tree_lstm, parameters(), batch)
    capacity = held.ready.signature.capacity
    taken = tree_lstm.lower(parameters(), batch).compile().executable.memory_analysis()
    least = Footprint.of(held.program.compiled.schedule).bytes(capacity)
    assert 0 < least <= taken.temp_size_in_bytes + taken.output_size_in_bytes


def test_the_limit_is_the_memory_of_the_machine_or_of_the_container(tmp_path, monkeypatch):
    physical = runtime._physical()
    assert 2**28 < runtime.memory_limit() <= physical
    device = dataclasses.make_dataclass("Device", ["platform", "statistics"])
    device.memory_stats = lambda self: self.statistics
    small, unlimited = tmp_path / "small", tmp_path / "unlimited"
    small.write_text("1048576\n")
    unlimited.write_text("max\n")
    monkeypatch.setattr(runtime, "CONTAINER", (unlimited, small, tmp_path / "missing"))
    limit = runtime._limit.__wrapped__
    assert limit(device("cpu", None)) == 1048576
    assert limit(device("gpu", {"bytes_limit": 7})) == 7
    assert limit(device("gpu", None)) > 2**60


def test_bytes_in_words():
    assert [in_words(n) for n in (0, 999, 1000, 25_300_000_000, 3 * 10**15)] == [
        "0 bytes",
        "999 bytes",
        "1.0 kB",
        "25.3 GB",
        "3000.0 TB",
    ]


def test_features_of_zero_width_and_spaces_of_zero_rows():
    """A recurrence whose arrays hold nothing, and one without rows."""
    empty = {k: v[..., :0] if v.ndim < 2 else v[:0, :0] for k, v in {"W": jnp.ones((2, 2)), "b": jnp.ones(2)}.items()}

    def f(p, t: Node):
        if t.left is None:
            return p["b"] * t.x
        return jnp.tanh(p["W"] @ f(p, t.left) + f(p, t.right))

    f = ab.batched(f, in_axes=(None, 0))
    assert f(empty, [full(2), full(0)]).shape == (2, 0)
    some = {"W": jnp.ones((2, 2)), "b": jnp.ones(2)}
    np.testing.assert_allclose(f(some, [full(0)]), [[0.5, 0.5]])
    assert f(some, ab.pack([full(2)])[[]]).shape == (0, 2)
