"""Arithmetic that is met again is what it would be if it were traced anew."""

import operator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autobatch as ab
from autobatch.frontend.lowering import tracing

OPERATORS = ("+", "-", "*", "/", "<", ">=", "==", "%", "//")


@pytest.fixture
def nothing_known(monkeypatch):
    monkeypatch.setattr(tracing, "_recipes", {})


def written(tmp_path, monkeypatch, text):
    """A function of a module that is written for the test."""
    name = f"recipes_{abs(hash(text))}"
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    return __import__(name).f


def instructions(function, *args):
    return ab.batched(function, options={"compilation_cache": False}).lower(*args).as_text("example")


@pytest.mark.parametrize("symbol", OPERATORS)
@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("literals", [("0.1", "3.7", "-1e30"), ("1", "0", "-7")])
def test_literals_are_those_of_a_trace(symbol, dtype, literals, tmp_path, monkeypatch):
    lines = [f"    y{k} = x {symbol} {c}" for k, c in enumerate(literals) if c != "0" or symbol not in ("%", "//")]
    names = ", ".join(line.split()[0] for line in lines)
    f = written(tmp_path, monkeypatch, "\n".join(["def f(x):", *lines, f"    return {names}"]))
    x = np.arange(1, 5).astype(dtype)
    monkeypatch.setattr(tracing, "_recipes", {})
    found = instructions(f, x)
    monkeypatch.setattr(tracing, "_recipes", {})
    monkeypatch.setattr(tracing, "_blind", set())
    assert found == instructions(f, x)


def test_kinds_of_arithmetic_are_traced_once(nothing_known, monkeypatch):
    traced = []
    trace = tracing.trace
    monkeypatch.setattr(
        tracing, "trace", lambda s, function, *rest: [traced.append(function), trace(s, function, *rest)][1]
    )
    ab.batched(many_literals)(np.ones(3, np.float32)).block_until_ready()
    assert sorted(f.__name__ for f in traced) == ["_smaller", "add", "mul", "sub"]
    ab.batched(lambda x: x * 8.0 + 2.0)(np.ones(3, np.float32))
    assert len(traced) == 4, "another function of the same process has them"


def many_literals(x):
    y = x * 0.5 * 0.25 * 1.5 + 0.125 + 3.5
    return min(y - 0.75, 0.1) - 2.5


def test_a_number_that_is_a_marker(nothing_known):
    for marker in (*tracing.MARKERS[0].values(), *tracing.MARKERS[1].values()):
        tracing._recipes.clear()
        f = ab.batched(lambda x: x * marker + (x - 2.0) * marker)
        np.testing.assert_allclose(f(np.ones(2, np.float32)), 0, atol=1e-6)


def test_ways_of_jax_are_told_apart(nothing_known):
    f = lambda x: x * 0.1
    one = ab.batched(f)(np.ones(2, np.float32))
    with jax.enable_x64(True):
        other = ab.batched(f)(np.ones(2))
    assert (one.dtype, other.dtype) == (np.float32, np.float64)
    assert float(other[0]) == 0.1


@settings(max_examples=20, deadline=None)
@given(st.floats(allow_nan=False), st.integers(-(2**40), 2**40))
def test_any_literal(number, whole):
    def f(x, n):
        return x + number, x * whole, number < x, n - number

    x, n = np.ones(5, np.float32), np.arange(5, dtype=np.int32)
    found = instructions(f, x, n)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tracing, "_recipes", {})
        patch.setattr(tracing, "_blind", set())
        assert found == instructions(f, x, n)


def test_what_is_alike_for_all():
    assert operator.add in tracing._blind
    assert operator.pow not in tracing._blind and operator.mod not in tracing._blind


@pytest.mark.parametrize("backend", ["xla", "llvm"])
def test_a_shape_is_no_number(backend: str) -> None:
    """What is found out about an integer that is a shape holds for that integer alone."""
    for k in (1, 3, 2):
        f = ab.batched(lambda n, x: jnp.ones(n) * x, in_axes=(None, 0), backend=backend)
        assert [np.shape(y) for y in ab.unbatch(f(k, np.ones(2, np.float32)))] == [(k,)] * 2
        g = ab.batched(lambda x: sum(jnp.ones(i + 1).sum() * x for i in range(k)), backend=backend)  # noqa: B023
        np.testing.assert_array_equal(g(np.ones(2, np.float32)), [k * (k + 1) / 2] * 2)
