"""Control on computed numbers equals plain Python: values, gradients, on both back ends."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import autobatch as ab
from autobatch.testing import assert_same
from tests.properties import masked as m
from tests.properties.test_gradients import total

QUICK = settings(max_examples=2, phases=(Phase.explicit, Phase.generate), deadline=None)
SIZE = 5
"""One, because it is part of what an executable is compiled for: the second draw runs what the first has compiled."""
FLOATS = st.sampled_from([0.0, 0.25, 1.0, 1.5, 2.75, 7.0, 9.0])


@st.composite
def nodes(draw: Any, depth: int = 3) -> m.Node:
    inner = depth > 0 and draw(st.booleans())
    below = (draw(nodes(depth - 1)), draw(nodes(depth - 1))) if inner else ()
    return m.Node(draw(FLOATS), *below)


DRAWN = {
    m.recursion: nodes(),
    m.of_turns: st.lists(FLOATS, max_size=4),
    m.until: st.lists(FLOATS, max_size=4),
    m.walk_down: nodes(1),
}


def batch_of(function: Any, data: Any) -> Any:
    if function in DRAWN:
        return [data.draw(DRAWN[function]) for _ in range(SIZE)]
    whole = function is m.collatz
    return jnp.asarray([float(data.draw(st.integers(1, 30)) if whole else data.draw(FLOATS)) for _ in range(SIZE)])


@pytest.mark.parametrize("function", [*m.NUMBERS, *m.STRUCTURES], ids=lambda f: f.__name__)
@QUICK
@given(data=st.data())
def test_values(function: Any, data: Any) -> None:
    f, batch = m.batched(function), batch_of(function, data)
    assert_same(ab.unbatch(f(m.shared(), batch)), f.loop(m.shared(), batch))


@pytest.mark.parametrize("function", [m.nested, m.recursion, m.early_exit], ids=lambda f: f.__name__)
@settings(QUICK, max_examples=1)
@given(data=st.data())
def test_the_reference_back_end(function: Any, data: Any) -> None:
    f, batch = m.batched(function, backend="interpret"), batch_of(function, data)
    assert_same(ab.unbatch(f(m.shared(), batch)), f.loop(m.shared(), batch))


@pytest.mark.parametrize("function", m.DIFFERENTIABLE, ids=lambda f: f.__name__)
@QUICK
@given(data=st.data())
def test_gradients(function: Any, data: Any) -> None:
    f, batch = m.batched(function), batch_of(function, data)
    p = m.shared()
    expected = jax.grad(lambda p: sum(total(r) for r in f.loop(p, batch)))(p)
    found = jax.grad(lambda p: total(f(p, batch)))(p)
    for name in p:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-7, atol=1e-9, err_msg=name)


def test_an_arm_that_is_not_taken_gives_no_gradient() -> None:
    """First and second order: sqrt at 0, behind `if x > 0`."""
    f = m.batched(lambda p, x: jnp.sqrt(p * x) if p * x > 0 else 0.0)
    xs = jnp.asarray([0.0, 4.0, -1.0])
    loss = lambda p: jnp.sum(f(p, xs))  # noqa: E731
    assert jax.grad(loss)(1.0) == 1.0
    assert jax.grad(jax.grad(loss))(1.0) == -0.5
    by_example = jax.grad(lambda xs: jnp.sum(f(1.0, xs)))(xs)
    np.testing.assert_allclose(by_example, [0.0, 0.25, 0.0])


def test_turns_beyond_the_states_that_are_kept() -> None:
    """Thousands of turns: states are computed again from the nearest one that is kept."""

    def decay(p: Any, x: Any) -> Any:
        y = x + 0 * p
        while y > 0.1:
            y = y * p
        return y

    f, xs, p = m.batched(decay), jnp.asarray([0.05, 1.0, 3.0]), jnp.asarray(0.9993)
    turns = np.ceil(np.log(0.1 / np.asarray(xs[1:])) / np.log(0.9993))
    expected = np.sum(turns * np.asarray(xs[1:]) * 0.9993 ** (turns - 1))
    assert turns.max() > 4000
    np.testing.assert_allclose(jax.grad(lambda p: jnp.sum(f(p, xs)))(p), expected, rtol=1e-9)


def test_a_second_derivative_of_a_loop_is_refused_with_its_line() -> None:
    f, xs = m.batched(m.of_arrays), jnp.asarray([0.5])
    with pytest.raises(ab.UnsupportedError, match="no second derivative in reverse") as raised:
        jax.grad(lambda p: total(jax.grad(lambda p: total(f(p, xs)))(p)))(m.shared())
    assert "while norm < 4.0" in str(raised.value)


def test_forward_and_forward_over_reverse() -> None:
    function, p, xs = m.of_arrays, m.shared(), jnp.asarray([0.5, 1.25])
    along = jax.tree.map(lambda x: jnp.cos(jnp.arange(x.size, dtype=x.dtype)).reshape(x.shape), p)
    whole = lambda p: sum(total(function(p, x)) for x in xs)  # noqa: E731
    f = m.batched(lambda p, x: squares(function(p, x)))
    _, tangent = ab.jvp(f, (p, xs), (along, None))
    step = 1e-6
    ahead, behind = (whole(jax.tree.map(lambda x, d: x + s * d, p, along)) for s in (step, -step))  # noqa: B023
    np.testing.assert_allclose(jnp.sum(tangent), (ahead - behind) / (2 * step), rtol=1e-6)
    second = ab.hvp(f, (p, xs), (along, None))
    g = jax.grad(whole)
    ahead, behind = (g(jax.tree.map(lambda x, d: x + s * d, p, along)) for s in (step, -step))  # noqa: B023
    for name in p:
        np.testing.assert_allclose(second[name], (ahead[name] - behind[name]) / (2 * step), rtol=1e-5, atol=1e-6)


def squares(result: Any) -> Any:
    """As `total`, of what one example returns."""
    y = result[0] if isinstance(result, tuple) else result
    return jnp.sum(y * y + 0.7 * y)


def test_rows_that_do_not_count_run_no_loop() -> None:
    """Rows past the last one are zero, and would never end."""

    def until(p: Any, x: Any) -> Any:
        y = x * p
        while y < 10.0:
            y = y * 2
        return y

    f = m.batched(until)
    xs = [1.0, 3.0, 5.0]
    assert_same(ab.unbatch(f(jnp.asarray(1.0), xs)), f.loop(jnp.asarray(1.0), xs))


def failures_of(function: Any, xs: Any) -> dict[int, tuple[str, str]]:
    """What plain Python raises, by example."""
    found = {}
    for k, x in enumerate(xs):
        try:
            function(m.shared(), x)
        except Exception as error:  # noqa: BLE001
            found[k] = (type(error).__name__, str(error))
    return found


XS = jnp.asarray([1.0, 0.0, 7.5, 2.5, 9.0, 0.5, 5.0, 20.0])


@pytest.mark.parametrize("backend", ["xla", "interpret"])
@pytest.mark.parametrize("function", [m.checked, m.unset, m.checked_test], ids=lambda f: f.__name__)
def test_failures_are_of_their_example_alone(function: Any, backend: str) -> None:
    expected = failures_of(function, XS)
    assert 0 < len(expected) < len(XS)
    with pytest.raises(ab.ExampleError) as raised:
        m.batched(function, backend=backend)(m.shared(), XS)
    assert {f.index: f.kind for f in raised.value.failures} == {k: kind for k, (kind, _) in expected.items()}
    found, failures = m.batched(function, backend=backend, on_error="mask")(m.shared(), XS)
    assert np.flatnonzero(failures.failed).tolist() == sorted(expected)
    for k, x in enumerate(XS):
        np.testing.assert_allclose(found[k], 0 if k in expected else function(m.shared(), x), rtol=1e-9)
    lines = {f.span.excerpt().strip().split("\n")[0] for f in failures.details}
    assert all("raise" in line or "assert" in line or "found" in line for line in lines)


def test_gradients_of_the_neighbours_of_failures() -> None:
    f = m.batched(m.checked, on_error="mask")
    fine = jnp.asarray([x for k, x in enumerate(XS) if k not in failures_of(m.checked, XS)])
    found = jax.grad(lambda p: jnp.sum(f(p, XS)[0]))(m.shared())["a"]
    expected = jax.grad(lambda p: sum(m.checked(p, x) for x in fine))(m.shared())["a"]
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9)


def test_a_failure_inside_jit_poisons_its_example() -> None:
    f = jax.jit(lambda p, xs: m.batched(m.checked, on_error="mask")(p, xs))
    found, failures = f(m.shared(), XS)
    assert np.flatnonzero(failures.failed).tolist() == sorted(failures_of(m.checked, XS))
    assert np.isfinite(found).all()


@pytest.mark.parametrize("backend", ["xla", "interpret"])
def test_a_loop_that_never_ends_is_named(backend: str) -> None:
    def steps(p: Any, x: Any) -> Any:
        n, y = 0, x + 0 * p["a"]
        while y != 3:
            y, n = y + 1, n + 1
        return n

    f = m.batched(steps, backend=backend, options=ab.options(max_iterations=50))
    with pytest.raises(ab.ExampleError, match="max_iterations=50 turns of this loop were not enough") as raised:
        f(m.shared(), jnp.asarray([0.0, 0.5, -47.0, -48.0]))
    assert [(x.index, x.kind) for x in raised.value.failures] == [(1, "RuntimeError"), (3, "RuntimeError")]
    assert "while y != 3" in str(raised.value)


def test_the_margin_says_masked() -> None:
    f = m.batched(m.root)
    (text,) = f.explain(m.shared(), jnp.asarray([1.0])).data["texts"]
    kinds = {line["text"].strip(): line["place"]["kind"] for line in text["lines"] if line["place"]}
    assert kinds['while abs(y * y - p["a"] - x) > 1e-9:'] == kinds["if turns > 30:"] == "masked"


def test_what_stands_behind_a_runtime_error_of_the_user_is_computed_for_the_others() -> None:
    """It was taken for a loop that had too many turns, behind which nothing is masked."""

    def limited(p: Any, x: Any) -> Any:
        if x * p > 3:
            raise RuntimeError("too large")
        return jnp.log(4 - x * p)

    f = m.batched(limited, on_error="mask")
    assert jax.grad(lambda p: jnp.sum(f(p, jnp.asarray([1.0, 4.0, 5.0, 2.0]))[0]))(1.0) == pytest.approx(-4 / 3)


def test_failures_are_counted_and_the_first_hundred_described() -> None:
    def positive(p: Any, x: Any) -> Any:
        assert x * p > 0, "not positive"
        return jnp.sqrt(x * p)

    xs = jnp.asarray([-1.0, 4.0] * 120)
    with pytest.raises(ab.ExampleError, match="120 of the batch's examples failed") as raised:
        m.batched(positive)(1.0, xs)
    assert (raised.value.count, len(raised.value.failures)) == (120, 100)
    assert "and 115 more (the first 100 are in .failures)" in str(raised.value)
    found, failures = m.batched(positive, on_error="mask")(1.0, xs)
    assert int(failures.failed.sum()) == 120 and [f.index for f in failures] == list(range(0, 200, 2))
    assert str(failures).startswith("120 of 240 examples failed\nexample 0 at") and "not positive" in str(failures)
    np.testing.assert_allclose(found, [0.0, 2.0] * 120)
