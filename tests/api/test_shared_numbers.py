"""Shared Python integers and bools: run-time values that may decide structure, static where the number is needed."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from tests.api.nodes import agrees, chain, limited, trees

X = np.array([1.5, -2.0, 0.25], np.float32)
INTEGERS = (0, 1, 3, -1, -2)
WORDS = [[3, 1, 2], [5], [], [7, 7]]


def fails_alike(f, *args):
    """Every example fails, with the exception that plain Python raises for the first one."""
    with pytest.raises(Exception) as plain:
        f.loop(*args)
    with pytest.raises(ab.ExampleError) as batched:
        f(*args)
    assert batched.value.failures[0].kind == type(plain.value).__name__


# ---- numbers


@pytest.mark.parametrize("backend", ["xla", "interpret"])
def test_an_integer_that_only_numbers_depend_on_is_like_a_float(backend):
    """Another value: no other program, no other executable, no other plan."""

    @ab.batched(in_axes=(None, None, 0), backend=backend)
    def f(n, scale, t):
        below = f(n, scale, t.left) * n if t.left is not None else n - 1
        return below + t.x * scale + (n + 2) * t.x

    data = ab.pack(trees()).plan(f)
    for n in INTEGERS:
        agrees(f, n, 0.5, data)
    assert (f.cache_info().specialisations, f.cache_info().plans) == (1, 1)
    assert f.cache_info().executables == (1 if backend == "xla" else 0)


def test_arithmetic_is_that_of_python():
    """Floor, modulo, true division, power, with negative operands, and beside integers of the examples."""

    def f(n, k, x):
        return (
            n // 2,
            n % 3,
            n / 2,
            k // 2 + n,
            (k + n) // 2,
            (k * n) % 5,
            -n,
            abs(n),
            +n,
            x * n,
            x / (n * n + 1),
            2 * n > 3,
        )

    f = ab.batched(f, in_axes=(None, 0, 0))
    for n in (*INTEGERS, 7, -7):
        for got, want in zip(ab.unbatch(f(n, [3, -4, 0], X)), f.loop(n, [3, -4, 0], X), strict=True):
            np.testing.assert_allclose(np.asarray(got, float), np.asarray(want, float), rtol=1e-5)
    assert f.cache_info().specialisations == 1


def test_results_keep_their_types():
    """An int stays an int, a bool a bool, and an array takes its dtype where it meets an int."""
    f = ab.batched(lambda n, flag, x: (n, n + 1, n > 1, flag, x * n, x.astype(int) + n), in_axes=(None, None, 0))
    found = f(2, True, X[:, None])
    assert [a.dtype for a in found] == [jnp.int32, jnp.int32, jnp.bool_, jnp.bool_, jnp.float32, jnp.int32]
    assert ab.unbatch(found)[0][:4] == (2, 3, True, True)


def test_powers():
    """An integer to a negative power is a float, so the exponent is part of the program; that of a float is not."""
    f = ab.batched(lambda n, k: k**n, in_axes=(None, 0))
    for n in (2, 0, 1, -1):
        agrees(f, n, [3, -2, 1])
    g = ab.batched(lambda n, x: x**n, in_axes=(None, 0))
    for n in (2, 0, 3, -1):
        agrees(g, n, X)
        agrees(g, n, X.tolist())
        agrees(g, n, X[:, None])


@pytest.mark.parametrize("divide", [lambda n, x: x / n, lambda n, x: x // n, lambda n, x: x % n, lambda n, x: 10 // n])
def test_division_by_zero_fails_as_in_python(divide):
    """Only whether it is zero decides structure: one plan for all other integers."""
    for values in ([1, 2, 3], [1.0, 2.0, -3.0]):
        f = ab.batched(divide, in_axes=(None, 0))
        data = ab.pack(values).plan(f)
        for n in (1, 2, -3):
            agrees(f, n, data)
        fails_alike(f, 0, data)
        assert f.cache_info().specialisations == 1
        agrees(f, 5, data)


def test_a_division_that_does_not_run_does_not_fail():
    f = ab.batched(lambda n, t: t.x / n if t.left is None else t.x, in_axes=(None, 0), on_error="mask")
    values, failures = f(0, trees())
    assert np.asarray(failures.failed).tolist() == [True, False, False]
    np.testing.assert_allclose(values, [0, 2, 5])


def test_integers_that_the_program_cannot_hold_are_exact():
    """They stay Python's: folded where that is possible, of 64 bits in machine code, a failure where XLA would have to
    hold them."""
    f = ab.batched(lambda seed, k: k + seed % 1000, in_axes=(None, 0))
    for seed in (2**40 + 17, 2**100 + 1, 12345):
        agrees(f, seed, [1, 2])
    with pytest.raises((ab.ExampleError, ab.UnsupportedError), match="int32|overflow"):
        ab.batched(lambda n, k: k + n, in_axes=(None, 0), backend="xla")(2**40, [1, 2])
    assert ab.batched(lambda n, k: k + n, in_axes=(None, 0))(2**40, [1, 2]).tolist() == [2**40 + 1, 2**40 + 2]


def test_mixed_with_floats_and_arrays():
    def f(p, t):
        value = p["w"] * t.x + p["bias"] * p["k"]
        return value + f_(p, t.left) / p["n"] if t.left is not None else value

    f_ = ab.batched(f, in_axes=(None, 0), backend="xla")
    data = ab.pack(trees()).plan(f_)
    for n, k, bias in ((1, 0, 0.5), (2, -3, 1.5), (-4, 5, -1.0)):
        agrees(f_, {"w": np.float32(2), "bias": bias, "k": k, "n": n}, data)
    assert f_.cache_info() == (1, 1, 1)


# ---- structure


@pytest.mark.parametrize("backend", ["xla", "interpret"])
def test_recursion_with_a_shared_depth(backend):
    """One program; a plan for each depth that a data set is used with, side by side."""
    f = ab.batched(limited.__wrapped__, in_axes=(None, 0, None), backend=backend)
    data = ab.pack(trees()).plan(f)
    for _ in range(2):
        for depth in (0, 1, 2, 3, 9):
            agrees(f, 2.0, data, depth)
            agrees(f, 3.0, data[[2, 0]], depth)
    assert (f.cache_info().specialisations, f.cache_info().plans) == (1, 5)
    agrees(f, 2.0, trees(), 2)


def test_depth_is_passed_on_as_one_program():
    """The entry's copy of a recursive function is not another one."""
    text = limited.lower(2.0, trees(), 2).as_text()
    assert text.count("func @") == 2


def test_what_decides_is_what_a_plan_depends_on():
    """`n > 2` is the same for 3 and 7; the value itself goes to the device."""
    f = ab.batched(lambda n, t: t.x * n if n > 2 and t.left is None else t.x, in_axes=(None, 0), backend="xla")
    data = ab.pack(trees()).plan(f)
    for n in (0, 1, 3, 7, 2, 9):
        agrees(f, n, data)
    assert f.cache_info() == (1, f.cache_info().executables, 2)


def test_loops():
    """Counted loops, loops with an end of their own, loops whose turns nothing distinguishes."""

    def f(n, words: list[int]):
        total = 0
        for k in range(n):
            total += k * len(words)
        for w in words:
            if w > n:
                break
            total += w - n
        m = n
        while m > 0:
            total, m = total + m, m - 2
        return total, [w * n for w in words], sum(i * i for i in range(1, n))

    f = ab.batched(f, in_axes=(None, 0))
    for n in (*INTEGERS, 6):
        found, expected = ab.unbatch(f(n, WORDS)), f.loop(n, WORDS)
        assert found == expected
    assert f.cache_info().specialisations == 1


def test_a_loop_over_numbers_alone():
    """One scan for all counts of a size class, with its derivative; the plan does not depend on the count."""
    f = ab.batched(iterated, in_axes=(None, None, 0), backend="xla")
    w = jnp.float32(0.5)
    for n in (0, 1, 4, -1, 16):
        agrees(f, n, w, X)
    assert f.cache_info() == (1, 1, 1)
    for n in (17, 30):
        agrees(f, n, w, X)
        found = jax.grad(lambda w, n=n: f(n, w, X).sum())(w)
        np.testing.assert_allclose(found, jax.grad(lambda w, n=n: iterated(n, w, X).sum())(w), rtol=1e-4)
    assert f.cache_info().specialisations == 2
    assert "scan" in f.lower(3, w, X).as_text("spmd")


def iterated(n, w, x):
    for k in range(n):
        x = jnp.tanh(w * x + 0.1 * k)
    return x


def test_nested_loops_over_numbers_alone():
    def f(n, m, x):
        for i in range(n):
            for j in range(i, m):
                x = x * 0.5 + j
            for _ in range(m - 1):
                x = x + i
        return x

    f = ab.batched(f, in_axes=(None, None, 0))
    for n, m in ((0, 3), (2, 2), (3, 1), (4, 4), (18, 2)):
        agrees(f, n, m, X)


def test_indices_and_slices_of_lists():
    f = ab.batched(
        lambda n, words: (words[n] if -len(words) <= n < len(words) else -1, words[:n], words[n:], words[::2]),
        in_axes=(None, 0),
    )
    for n in (*INTEGERS, 5):
        assert ab.unbatch(f(n, WORDS[:2])) == f.loop(n, WORDS[:2])
    g = ab.batched(lambda n, words: words[n], in_axes=(None, 0), on_error="mask")
    for n in (0, 1, -1, -2):
        _, failures = g(n, WORDS)
        assert [f.index for f in failures] == [k for k, w in enumerate(WORDS) if not -len(w) <= n < len(w)]
    assert g.cache_info().specialisations == 1


def test_indices_of_arrays_and_of_shared_lists():
    """On JAX's arrays they are numbers; on NumPy's they decide whether an example fails. A shared list is read at a
    constant position."""
    f = ab.batched(lambda n, x: x[n] + x[-n], in_axes=(None, 0), backend="xla")
    for n in (0, 1, 2):
        agrees(f, n, jnp.arange(12.0).reshape(3, 4))
    assert f.cache_info() == (1, 1, 1)
    for n in (0, 1, 2):
        agrees(f, n, np.arange(12.0).reshape(3, 4))
    assert f.cache_info().specialisations == 2
    g = ab.batched(lambda ws, k, x: x * ws[k] + {3: 1.0, 4: 2.0}[k + 3], in_axes=(None, None, 0))
    for k in (0, 1):
        agrees(g, [2.0, 3.0], k, X)


def test_a_result_of_structure():
    """Which object of the example is returned."""
    f = ab.batched(lambda left, t: (t.left if left > 0 else t.right) if t.left is not None else t, in_axes=(None, 0))
    for left in (1, 0, 2):
        assert [n.x for n in ab.unbatch(f(left, trees()))] == [n.x for n in f.loop(left, trees())]


def test_failures_are_those_of_python():
    """The first one in program order, whether the integer decides it or the example."""

    def f(n, words: list[int]):
        if n == 2:
            raise ValueError("two")
        assert len(words) > 0, "empty"
        return words[n]

    f = ab.batched(f, in_axes=(None, 0), on_error="mask")
    kinds = {
        0: {2: "AssertionError"},
        1: {1: "IndexError", 2: "AssertionError"},
        2: dict.fromkeys(range(4), "ValueError"),
    }
    for n, expected in kinds.items():
        _, failures = f(n, WORDS)
        assert {x.index: x.kind for x in failures} == expected
    assert f.cache_info().specialisations == 1


def test_long_recursion():
    deep = ab.batched(lambda t, n: reach(t, n), in_axes=(0, None))
    assert ab.unbatch(deep([chain(3000), chain(10)], 2500)) == deep.loop([chain(300), chain(10)], 250)[:0] + [
        501.0,
        0.0,
    ]


def reach(t, n):
    if n == 1:
        return t.x
    return reach(t.left, n - 1) if t.left is not None else 0.0


# ---- what becomes static


def test_a_shape_makes_its_integer_static_and_no_other():
    f = ab.batched(lambda n, k, x: jnp.full(n, k) + x, in_axes=(None, None, 0))
    for n in (0, 1, 3):
        for k in (0, 2, -5):
            agrees(f, n, k, X)
    assert f.cache_info().specialisations == 3


@pytest.mark.parametrize(
    "use",
    [
        lambda n, x: jnp.zeros(n + 1) + x[0],
        lambda n, x: x.reshape(n, -1),
        lambda n, x: jnp.ones((n, 2)) * x[0],
        lambda n, x: jnp.arange(n) + x[0],
        lambda n, x: jnp.stack([x * k for k in range(n)]),
        lambda n, x: jnp.sum(x.reshape(2, 2), axis=n - 1),
        lambda n, x: jnp.roll(x, n)[: n + 1],
        lambda n, x: helper(x, n + 1),
        lambda n, x: jnp.concatenate([x] * n),
        lambda n, x: round(x[0] * 1.0, n) if n < 0 else x[0],
        lambda n, x: x[:n],
        lambda n, x: grown(x, n),
    ],
)
def test_what_needs_the_number(use):
    f = ab.batched(use, in_axes=(None, 0))
    for n in (1, 2):
        agrees(f, n, np.arange(12.0, dtype=np.float32).reshape(3, 4))


def helper(x, n):
    return jnp.zeros(n) + x[0]


def grown(x, n):
    for _ in range(n):
        x = jnp.concatenate([x, x])
    return x


def test_the_front_end_remembers_which():
    """Only the first call pays for finding out."""
    f = ab.batched(lambda c, x: jnp.ones(c["n"]) * c["k"] * x, in_axes=(None, 0))
    f({"n": 2, "k": 3}, X)
    before = f.cache_info()
    agrees(f, {"n": 2, "k": 4}, X)
    assert f.cache_info() == before
    agrees(f, {"n": 3, "k": 4}, X)
    assert f.cache_info().specialisations == before.specialisations + 1


def test_a_bool_that_decides_a_branch_is_part_of_the_program():
    """Two programs at most, and neither has the other's arm: arms may differ in type."""
    f = ab.batched(lambda train, x: x * 2 if train else jnp.stack([x, x]), in_axes=(None, 0))
    for train in (True, False, True, False):
        agrees(f, train, X)
    assert f.cache_info().specialisations == 2
    assert "if" not in f.lower(True, X).as_text()


def test_a_bool_that_is_a_number():
    f = ab.batched(lambda flag, x: jnp.where(flag, x, -x) + flag, in_axes=(None, 0), backend="xla")
    for flag in (True, False):
        agrees(f, flag, X)
    assert f.cache_info() == (1, 1, 1)


def test_bools_everywhere_else():
    def f(flag, words: list[int]):
        return sum(words) if flag or len(words) > 2 else len(words), not flag, flag and len(words) > 1, flag is True

    f = ab.batched(f, in_axes=(None, 0))
    for flag in (True, False):
        assert ab.unbatch(f(flag, WORDS)) == f.loop(flag, WORDS)
    g = ab.batched(
        lambda flag, xs, ys: sum(x * y for x, y in zip(xs, ys, strict=flag)), in_axes=(None, 0, 0), on_error="mask"
    )
    for flag in (True, False):
        _, failures = g(flag, [[1, 2], [3]], [[1, 2], [3, 4]])
        assert [x.index for x in failures] == ([1] if flag else [])


def test_branches_of_different_types_by_an_integer():
    """Both arms cannot be one program, so the integer is part of it."""

    def f(mode, x):
        if mode == 0:
            return x
        if mode == 1:
            return {"both": (x, -x)}
        return jnp.stack([x, x])

    f = ab.batched(f, in_axes=(None, 0))
    np.testing.assert_allclose(f(0, X), X)
    np.testing.assert_allclose(f(1, X)["both"][1], -X)
    assert f(2, X).shape == (3, 2)


def test_rounds_of_message_passing():
    """Lists handed from turn to turn."""

    def f(rounds, kids):
        h = [float(k) for k in kids]
        for _ in range(rounds):
            h = [h[k % len(kids)] * 0.5 + v for k, v in zip(kids, h)]
        return h

    f = ab.batched(f, in_axes=(None, 0))
    for rounds in (0, 1, 3):
        for got, want in zip(ab.unbatch(f(rounds, [[1, 0, 2], [0]])), f.loop(rounds, [[1, 0, 2], [0]]), strict=True):
            np.testing.assert_allclose(got, want)


def test_names_in_static_stay_static():
    f = ab.batched(lambda n, x: x * n, in_axes=(None, 0), static="n")
    for n in (1, 2, 3):
        agrees(f, n, X)
    assert f.cache_info().specialisations == 3
