"""Numbers mean what Python means, on the host and on the device."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import autobatch as ab
from tests.api.nodes import close

INTS = st.integers(-50, 50)
DIVISORS = INTS.filter(bool)


@ab.batched
def arithmetic(q):
    a, b = q[0], q[1]
    return a // b, a % b, a / b, round(a / b), int(a / b), a**2, abs(a), -a, min(a, b), max(a, b)


@given(st.lists(st.tuples(INTS, DIVISORS), min_size=1, max_size=5))
def test_integers_of_examples(pairs):
    out = ab.unbatch(arithmetic(ab.pack(pairs)))
    for got, want in zip(out, arithmetic.loop(pairs), strict=True):
        assert [g for g in got if isinstance(g, int)] == [w for w in want if isinstance(w, int)]
        close([g for g in got], [w for w in want])


@given(st.lists(st.tuples(st.floats(-9, 9, width=32), st.sampled_from([-2.5, -1.0, 0.5, 3.0])), min_size=1, max_size=5))
def test_floats_of_examples(pairs):
    f = ab.batched(lambda q: (q[0] // q[1], q[0] % q[1], q[0] / q[1], round(q[0]), int(q[0])))
    with jax.enable_x64(True):
        for got, want in zip(ab.unbatch(f(pairs)), f.loop(pairs), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)


def test_indices_count_as_python_does():
    f = ab.batched(lambda q: q[0][q[1]])
    assert f([([1, 2, 3], -1), ([4, 5], 0)]).tolist() == [3, 4]
    with pytest.raises(ab.ExampleError, match="IndexError"):
        f([([1, 2, 3], 3)])


def test_dividing_by_a_structural_zero_fails_its_example():
    f = ab.batched(lambda q: [k for k in range(q[0] // q[1])], on_error="mask")
    _, failures = f([(4, 2), (1, 0)])
    assert failures.failed.tolist() == [False, True]
    assert failures.details[0].kind == "ZeroDivisionError"


def test_nan_stays_in_its_example():
    f = ab.batched(lambda t: sum(x * 2 for x in t))
    out = f([[1.0, float("nan")], [1.0, 2.0]])
    assert np.isnan(out[0]) and out[1] == 6


def test_the_same_example_has_the_same_integers_in_every_batch():
    f = ab.batched(lambda words: (len(words), sum(words)))
    alone, together = f([[1, 2, 3]]), f([[5], [1, 2, 3], []])
    assert [x[0] for x in ab.unbatch(alone)][0] == ab.unbatch(together)[1][0]
    assert ab.unbatch(alone)[0] == ab.unbatch(together)[1]


def test_arrays_are_values_and_objects_have_identity():
    f = ab.batched(lambda q: jnp.where(q[0] is q[1], 1.0, 0.0))
    shared = [1]
    close(f([(shared, shared), ([1], [1])]), [1, 0])
