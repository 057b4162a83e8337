"""Python's integers fail their example where they are divided by zero, whoever computes them; floats do not."""

import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from autobatch.testing import check_equivalence

BACKENDS = ["interpret", "xla", "llvm"]
LEAST = -(2**31)


def by_computed(x, n):
    """The divisor is known to the device alone."""
    k = int(jnp.sin(x) * 2.0)
    return n // k, n % k, n / k


def by_given(x, n):
    k = int(x)
    return n // k, n % k


def in_a_branch(x, n):
    k = int(jnp.sin(x) * 2.0)
    return n // k if k != 0 else -1


def by_constant(x, n):
    k = int(jnp.sin(x) * 2.0)
    return k // 7, k % -3


X, N = np.float32([0.0, 1.0, 2.0, -1.0, -1.0]), [7, 7, -7, LEAST, LEAST + 1]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "function, wanted",
    [
        (by_computed, {0: "ZeroDivisionError", 3: "OverflowError"}),
        (by_given, {0: "ZeroDivisionError", 3: "OverflowError"}),
        (in_a_branch, {3: "OverflowError"}),
        (by_constant, {}),
    ],
)
def test_examples_fail_as_python_does(backend, function, wanted):
    found, failures = ab.batched(function, backend=backend, on_error="mask")(X, N)
    if backend == "llvm":  # 2**31 has 64 bits there
        wanted = {k: kind for k, kind in wanted.items() if kind != "OverflowError"}
    assert {f.index: f.kind for f in failures} == wanted
    assert all(f.span.file == __file__ and f.span.line for f in failures)
    for k, (row, failed) in enumerate(zip(ab.unbatch(found), failures.failed, strict=True)):
        if not failed:
            assert np.allclose(row, function(X[k], N[k]))


@pytest.mark.parametrize("backend", BACKENDS)
def test_floats_divide_as_ieee_754_says(backend):
    f = ab.batched(lambda x: (1.0 / x, x // 1.0), backend=backend)
    found = f(np.float32([0.0, -0.0, 2.0]))
    np.testing.assert_array_equal(found[0], [np.inf, -np.inf, 0.5])


@pytest.mark.parametrize("backend", BACKENDS)
def test_integers_of_arrays_divide_as_arrays_do(backend):
    """No error, as `f.loop` has none over the rows of such arrays."""
    f = ab.batched(lambda x, n: x // n, backend=backend)
    x, n = jnp.int32([10, -7, LEAST]), jnp.int32([0, 3, -1])
    np.testing.assert_array_equal(f(x, n), np.stack(f.loop(x, n)))


def by_the_turns_of_a_loop(w, ns):
    count = 0
    for n in ns:
        if n > 0:
            count += 1
    return w * (1.0 / count + 6 // count)


def by_a_recursion(w, ns):
    def count(k):
        return 0 if k >= len(ns) else (ns[k] > 0) + count(k + 1)

    return w * (5 % count(0))


def by_a_loop_of_constants(w, ns):
    k = 0
    while k < 3:
        k += 2
    return w * (1.0 // (k % 2 + len(ns) - 1))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("function", (by_the_turns_of_a_loop, by_a_recursion, by_a_loop_of_constants))
def test_integers_that_loops_and_calls_of_the_host_give(function, backend):
    examples = [[1, 0, 2], [0, 0], [0], []]
    f = ab.batched(function, in_axes=(None, 0), backend=backend)
    check_equivalence(f, examples, (jnp.float32(0.8),), backends=(backend,), jit=False)
