"""A call that looks like one before it finds its program without a key: never another program than the key would."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autobatch as ab
from autobatch.call.warm import Matcher, pattern_of

leaves = st.one_of(
    st.integers(-32, 32).map(lambda n: n / 8),  # sums of these are exact in any order, also where they cancel
    st.sampled_from([(), (2,), (2, 2)]).map(lambda s: np.ones(s, np.float32)),
    st.sampled_from([(), (2,)]).map(lambda s: jnp.ones(s, jnp.float32)),
    st.just(jnp.asarray(2.0)),
    st.just(np.ones(2, np.int32)),
)
shared = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=2),
        st.lists(inner, max_size=2).map(tuple),
        st.lists(st.tuples(st.sampled_from("ab"), inner), max_size=2).map(dict),
    ),
    max_leaves=4,
)


def total(p):
    if isinstance(p, dict):
        return sum(10.0 * k * total(x) for k, x in enumerate(p.values(), 1))
    if isinstance(p, (list, tuple)):
        return sum((2.0 if isinstance(p, tuple) else 3.0) * total(x) for x in p) + 0.5
    return jnp.sum(jnp.asarray(p))


def program(p, x):
    return total(p) + x


@settings(max_examples=15)
@given(st.lists(shared, min_size=2, max_size=4))
def test_what_was_called_before_changes_no_result(values):
    f = ab.batched(program, in_axes=(None, 0))
    for p in (*values, *values):
        found = np.asarray(f(p, [1.0, 2.0]))
        np.testing.assert_allclose(found, np.stack(f.loop(p, [1.0, 2.0])), rtol=1e-6)


@given(shared, shared)
def test_a_value_matches_its_own_pattern_and_only_values_of_its_form(one, other):
    pattern = pattern_of(one)
    assert pattern is not None
    matcher = Matcher([pattern])
    assert len(matcher.match([one]) or []) == len(matcher.numbers)
    assert (matcher.match([other]) is not None) == (pattern_of(other) == pattern)


def test_what_decides_the_program_by_its_value_has_no_pattern():
    for value in (1, True, "a", None, np.float32(1).item, {"a": [1.0, 2]}, {"a": np.sin}):
        assert pattern_of(value) is None


def test_static_floats_are_told_apart():
    f = ab.batched(lambda n, x: x * 2 if n > 1.5 else x, in_axes=(None, 0), static=("n",))
    assert [f(n, np.ones(1)).tolist() for n in (1.0, 2.0, 1.0, 2.0)] == [[1.0], [2.0], [1.0], [2.0]]


def test_free_variables_and_options_are_looked_at_in_every_call():
    held = {"k": 2.0}
    f = ab.batched(lambda p, x: p * x * (held["k"] if held["k"] > 1 else 0.0), in_axes=(None, 0))
    assert [f(3.0, np.ones(1)).tolist() for _ in range(2)] == [[6.0], [6.0]]
    held["k"] = 0.5
    assert [f(3.0, np.ones(1)).tolist() for _ in range(2)] == [[0.0], [0.0]]
    with ab.options(backend="interpret"):
        assert f(3.0, np.ones(1)).tolist() == [0.0]
    assert f.cache_info().specialisations == 3


@pytest.mark.cpu
def test_programs_that_calls_find_again_are_not_the_first_to_go():
    with ab.options(cache_size=2):
        f = ab.batched(lambda p, x: jnp.sum(p) * x, in_axes=(None, 0))
        for size in (1, 2, 1, 1, 3, 1):
            f(np.ones(size, np.float32), np.ones(1))
        compiled = f.cache_info()
        f(np.ones(1, np.float32), np.ones(1))
        assert f.cache_info() == compiled
        assert compiled.specialisations == 2


def test_random_keys_have_a_pattern_of_their_own():
    f = ab.batched(lambda key, x: x + jax.random.uniform(key), in_axes=(None, 0))
    keys = [jax.random.key(0), jax.random.key(1), jax.random.key(0, impl="rbg"), jax.random.key(1)]
    for key in keys:
        np.testing.assert_allclose(f(key, np.zeros(2)), np.stack(f.loop(key, np.zeros(2))))
