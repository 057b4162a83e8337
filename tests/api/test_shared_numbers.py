"""Shared Python integers and bools: run-time values that may decide structure, static where the number is needed."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from tests.api.nodes import Node, chain, trees

X = np.array([1.5, -2.0, 0.25], np.float32)
INTEGERS = (0, 1, 3, -1, -2)
WORDS = [[3, 1, 2], [5], [], [7, 7]]


def agrees(f, *args, rtol=1e-5):
    """The batched call gives what plain Python gives for each example."""
    found, expected = ab.unbatch(f(*args)), f.loop(*args)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=rtol, atol=1e-6)


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
    """They stay Python's: folded where that is possible, refused where the device would have to hold them."""
    f = ab.batched(lambda seed, k: k + seed % 1000, in_axes=(None, 0))
    for seed in (2**40 + 17, 2**100 + 1, 12345):
        agrees(f, seed, [1, 2])
    with pytest.raises(ab.UnsupportedError, match="too large"):
        ab.batched(lambda n, k: k + n, in_axes=(None, 0))(2**40, [1, 2])


def test_mixed_with_floats_and_arrays():
    def f(p, t):
        value = p["w"] * t.x + p["bias"] * p["k"]
        return value + f_(p, t.left) / p["n"] if t.left is not None else value

    f_ = ab.batched(f, in_axes=(None, 0))
    data = ab.pack(trees()).plan(f_)
    for n, k, bias in ((1, 0, 0.5), (2, -3, 1.5), (-4, 5, -1.0)):
        agrees(f_, {"w": np.float32(2), "bias": bias, "k": k, "n": n}, data)
    assert f_.cache_info() == (1, 1, 1)


# ---- structure


@ab.batched(in_axes=(None, 0, None))
def limited(p, t, depth):
    """A sum over the upper levels of a tree, weighted by how many levels are left."""
    if t is None or depth == 0:
        return 0.0
    return p * t.x * depth + limited(p, t.left, depth - 1) + limited(p, t.right, depth - 1)


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
    f = ab.batched(lambda n, t: t.x * n if n > 2 and t.left is None else t.x, in_axes=(None, 0))
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
    f = ab.batched(lambda n, w, x: iterated(n, w, x), in_axes=(None, None, 0))
    for n in (0, 1, 4, -1):
        agrees(f, n, 0.5, X)
    assert f.cache_info().specialisations == 1


def iterated(n, w, x):
    for k in range(n):
        x = jnp.tanh(w * x + k)
    return x


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
    """On arrays they are numbers; a shared list is read at a constant position."""
    f = ab.batched(lambda n, x: x[n] + x[-n], in_axes=(None, 0))
    for n in (0, 1, 2):
        agrees(f, n, np.arange(12.0).reshape(3, 4))
    assert f.cache_info() == (1, 1, 1)
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
    f = ab.batched(lambda flag, x: jnp.where(flag, x, -x) + flag, in_axes=(None, 0))
    for flag in (True, False):
        agrees(f, flag, X)
    assert f.cache_info() == (1, 1, 1)


def test_bools_everywhere_else():
    def f(flag, words: list[int]):
        pairs = zip(words, words[1:], strict=flag)
        return sum(words) if flag or len(words) > 2 else len(words), not flag, flag and len(words) > 1, flag is True

    f = ab.batched(f, in_axes=(None, 0))
    for flag in (False,):
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


# ---- where integers are


@dataclass
class Config:
    depth: int
    width: int = 2
    flag: bool = False
    scale: float = 1.0
    name: str = "c"
    inner: Any = None
    sizes: list[int] = field(default_factory=lambda: [1, 2])


class Pair(NamedTuple):
    n: int
    w: Any


def test_objects_and_nested_containers():
    """Each integer by itself: one is a shape, one a depth, one a number."""

    def f(c, t):
        if t is None or c.depth == 0:
            return jnp.zeros(c.inner["width"])
        inner = Config(c.depth - 1, c.width, inner=c.inner)
        return f_(inner, t.left) + t.x * c.width + sum(c.sizes)

    f_ = ab.batched(f, in_axes=(None, 0))
    data = ab.pack(trees()).plan(f_)
    for depth in (0, 1, 2):
        for width in (3, -1):
            agrees(f_, Config(depth, width, inner={"width": 2}), data)
    assert f_.cache_info().specialisations == 1
    agrees(f_, Config(2, 1, inner={"width": 3}), data)
    assert f_.cache_info().specialisations == 2


def test_tuples_dicts_and_namedtuples():
    f = ab.batched(lambda p, x: x[p[0].n] * p[0].w + p[1]["k"][1] * len(p[1]["k"]), in_axes=(None, 0))
    rows = np.arange(12.0).reshape(3, 4)
    for n, k in ((0, 1), (3, -2)):
        agrees(f, (Pair(n, jnp.float32(2)), {"k": [9, k]}), rows)
    assert f.cache_info() == (1, 1, 1)


def test_membership_and_equality_of_shared_containers():
    """Comparisons of containers that hold integers are never decided by what stands for them."""

    def f(allowed, pair, k):
        return (
            k in allowed,
            pair == (1, 2),
            (1, 2) == pair,
            pair != (1, 2),
            pair < (2, 0),
            min(allowed),
            max(allowed),
            sum(allowed),
        )

    f = ab.batched(f, in_axes=(None, None, 0))
    for allowed, pair in (([1, 2], (1, 2)), ([3, -4], (2, 1)), ([0, 2], (1, 3))):
        assert ab.unbatch(f(allowed, pair, [1, 2, 3])) == f.loop(allowed, pair, [1, 2, 3])


class Model:
    def __init__(self, depth: int, power: int) -> None:
        self.depth, self.power = depth, power

    @ab.batched(in_axes=0)
    def value(self, t):
        return self.below(t, self.depth) * self.power

    def below(self, t, depth):
        if t is None or depth == 0:
            return 0.0
        return t.x + self.below(t.left, depth - 1) - self.below(t.right, depth - 1)


def test_attributes_of_self():
    data = ab.pack(trees()).plan(Model(1, 1).value)
    for depth in (0, 2, 5):
        for power in (1, -3):
            agrees(Model(depth, power).value, data)
    assert Model(1, 1).value.cache_info().specialisations == 1
    assert Model(1, 1).value.cache_info().plans == 3


def test_integers_of_closures_are_guarded():
    """Free variables are read again at every call; they are part of the program."""
    n = 2
    f = ab.batched(lambda x: x * n)
    agrees(f, X)
    n = 5
    agrees(f, X)
    assert f.cache_info().specialisations == 2


# ---- batches, jit, options


def test_batches_packed_and_cut():
    """Plans for several values live on one data set; what is cut from it uses them."""
    f = ab.batched(limited.__wrapped__, in_axes=(None, 0, None))
    data = ab.pack([*trees(), chain(6)]).plan(f)
    for depth in (2, 4):
        agrees(f, 1.0, data, depth)
    plans = f.cache_info().plans
    for rows in ([3], [0, 3, 3], slice(1, None), []):
        for depth in (2, 4):
            agrees(f, 1.0, data[rows], depth)
    assert f.cache_info().plans == plans == 2


def test_no_examples_and_one():
    f = ab.batched(limited.__wrapped__, in_axes=(None, 0, None))
    agrees(f, 1.0, trees()[2:], 3)
    assert np.asarray(f(1.0, ab.pack(trees())[[]], 3)).shape == (0,)


def test_under_jit_an_integer_of_python():
    """It is closed over: its value is known. Batches bring the plans of their data set along."""
    f = ab.batched(limited.__wrapped__, in_axes=(None, 0, None))
    data = ab.pack([*trees(), chain(6)]).plan(f)
    for depth in (2, 3):
        f(1.0, data, depth)
    for depth in (2, 3, 2):
        step = jax.jit(lambda p, b, depth=depth: f(p, b, depth))
        for rows in ([0, 1], [3, 2]):
            np.testing.assert_allclose(step(1.5, data[rows]), f.loop(1.5, data[rows], depth), rtol=1e-5)
    assert f.cache_info().plans == 2


def test_under_jit_a_value_that_no_call_had_before():
    """It is planned from the host's copy of the examples."""
    f = ab.batched(limited.__wrapped__, in_axes=(None, 0, None))
    data = ab.pack([*trees(), chain(6)]).plan(f)
    for depth in (1, 4, 5):
        step = jax.jit(lambda p, b, depth=depth: f(p, b, depth))
        for rows in ([0, 1], [3, 2], [3, 2]):
            np.testing.assert_allclose(step(1.5, data[rows]), f.loop(1.5, data[rows], depth), rtol=1e-5)
    closed = jax.jit(lambda p: f(p, data, 2))
    np.testing.assert_allclose(closed(1.5), f.loop(1.5, data, 2), rtol=1e-5)


def test_under_jit_batches_that_were_given_up():
    """Where only leaves are left there is nothing to plan from, and the error says how to."""
    f = ab.batched(limited.__wrapped__, in_axes=(None, 0, None))
    f(1.0, trees(), 1)
    bare = jax.jit(lambda b: b)(ab.pack(trees()))
    with pytest.raises(ab.PlanError, match="once outside"):
        jax.jit(lambda b: f(1.0, b, 2))(bare)
    agrees(f, 1.0, bare, 2)


def test_under_jit_a_traced_integer():
    """As a number it may be used; it cannot decide structure, and the error names it, the line and the cure."""
    f = ab.batched(lambda n, t: t.x * n + n % 3, in_axes=(None, 0))
    data = ab.pack(trees()).plan(f)
    step = jax.jit(lambda n, b: f(n, b))
    for n in (2, -1):
        np.testing.assert_allclose(step(n, data), f.loop(n, data), rtol=1e-5)
    agrees(f, 4, data)
    assert f.cache_info().specialisations == 1, "the same program for both"
    with pytest.raises(ab.UnsupportedError, match=r"test_shared_numbers.py:\d+.*depth, an integer that is traced") as e:
        jax.jit(lambda d: limited(1.0, trees(), d))(2)
    assert "Python int" in str(e.value) and "if t is None or depth == 0" in str(e.value)
    with pytest.raises(ab.UnsupportedError, match="is traced"):
        jax.jit(lambda flag: ab.batched(lambda flag, x: x if flag else -x, in_axes=(None, 0))(flag, X))(True)
    with pytest.raises(ab.UnsupportedError, match="static"):
        jax.jit(lambda n: ab.batched(lambda n, x: jnp.ones(n) + x, in_axes=(None, 0))(n, X))(2)
    with pytest.raises(ab.BatchError, match="static_argnames"):
        jax.jit(lambda n: ab.batched(lambda n, x: x + n, in_axes=(None, 0), static="n")(n, X))(2)


def test_static_argnames_of_jit():
    step = jax.jit(lambda p, b, depth: limited(p, b, depth), static_argnames="depth")
    data = ab.pack(trees()).plan(limited)
    for depth in (1, 2):
        np.testing.assert_allclose(step(1.0, data, depth=depth), limited.loop(1.0, data, depth), rtol=1e-5)


def test_gradients_and_vmap_over_the_other_arguments():
    f = ab.batched(lambda w, n, x: w * x * n, in_axes=(None, None, 0))
    for n in (2, -3):
        np.testing.assert_allclose(jax.grad(lambda w: f(w, n, X).sum())(jnp.float32(1)), X.sum() * n, rtol=1e-5)
        np.testing.assert_allclose(jax.vmap(lambda w: f(w, n, X))(jnp.ones(2)), np.stack([X * n] * 2), rtol=1e-5)
    assert f.cache_info().specialisations == 1


def test_epochs_are_for_the_values_that_a_data_set_was_planned_for():
    f = ab.batched(limited.__wrapped__, in_axes=(None, 0, None))
    data = ab.pack([*trees(), chain(6)]).plan(f)
    with pytest.raises(ab.PlanError):
        data.epoch(np.array([[0, 1], [2, 3]]))
    f(1.0, data[:1], 3)
    epoch = data.epoch(np.array([[0, 1], [2, 3]]))
    _, values = jax.lax.scan(lambda c, b: (c, f(1.0, b, 3)), 0, epoch)
    np.testing.assert_allclose(np.asarray(values).reshape(-1), f.loop(1.0, data, 3), rtol=1e-5)


def test_plans_of_many_values_are_bounded():
    f = ab.batched(limited.__wrapped__, in_axes=(None, 0, None))
    data = ab.pack([chain(40)]).plan(f)
    for depth in range(1, 40):
        f(1.0, data, depth)
    small = data.nbytes
    for depth in range(40, 80):
        f(1.0, data, depth)
    assert data.nbytes < 2 * small
    agrees(f, 1.0, data, 1)


def test_example_loop_disable_lower_explain_and_pickle():
    assert limited.example(2.0, trees()[1], 1) == 4.0
    with ab.disable():
        np.testing.assert_allclose(limited(2.0, trees(), 2), limited.loop(2.0, trees(), 2))
    lowered = limited.lower(2.0, trees(), 2)
    np.testing.assert_allclose(lowered.compile()(2.0, trees(), 2), limited.loop(2.0, trees(), 2), rtol=1e-5)
    assert pickle.loads(pickle.dumps(limited)) is limited
    assert "limited" in str(limited.explain(2.0, trees(), 2))


def test_sixty_four_bits():
    with jax.enable_x64(True):
        f = ab.batched(lambda n, k: k + n, in_axes=(None, 0))
        for n in (2**40, -(2**60), 3):
            assert ab.unbatch(f(n, [1, 2])) == f.loop(n, [1, 2])
        assert f.cache_info().specialisations == 1


def test_another_function_called_with_an_integer():
    """Calls of batched functions are activations; integers cross them as any other argument."""

    @ab.batched(in_axes=(None, 0))
    def power(n, x):
        return 1.0 if n == 0 else x * power(n - 1, x)

    f = ab.batched(lambda n, m, x: power(n, x) + power(m, x) * power(2, x), in_axes=(None, None, 0))
    for n, m in ((0, 1), (3, 2), (2, 5)):
        agrees(f, n, m, X)
    assert f.cache_info().specialisations == 1


def test_keyword_and_variadic_arguments():
    f = ab.batched(lambda x, *, n, m=2: x * n + m, in_axes={"x": 0, "n": None, "m": None})
    for n in (1, -2):
        np.testing.assert_allclose(f(X, n=n), X * n + 2, rtol=1e-6)
        np.testing.assert_allclose(f(X, n=n, m=n), X * n + n, rtol=1e-6)
    g = ab.batched(lambda x, *ns: x * ns[0] + len(ns) * ns[-1], in_axes=(0, None))
    for ns in ((1, 2), (3, -4)):
        agrees(g, X, *ns)
    assert g.cache_info().specialisations == 1
