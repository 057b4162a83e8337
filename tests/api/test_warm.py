"""Calls that look like one before them take its program at once, and give what every call gives."""

from __future__ import annotations

import dataclasses
import gc
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from autobatch.api.batched import Batched

RNG = np.random.default_rng(0)
SCALE = 2.0


def layers(p, x):
    h = jnp.tanh(x @ p["w"] + p["b"])
    return {"z": (h @ p["out"][0]) * p["out"][1], "a": h.sum()}


def loss(p, x):
    return (layers(p, x)["z"] ** 2).sum()


def parameters() -> dict[str, Any]:
    return {
        "w": jnp.asarray(RNG.normal(size=(3, 4)), jnp.float32),
        "b": jnp.asarray(RNG.normal(size=4), jnp.float32),
        "out": (jnp.asarray(RNG.normal(size=(4, 2)), jnp.float32), jnp.float32(RNG.normal())),
    }


def rows(count: int = 5) -> Any:
    return jnp.asarray(RNG.normal(size=(count, 3)), jnp.float32)


def made(call, *args: Any) -> bool:
    """Was the program found at once?"""
    seen = []
    held = Batched.bound

    def bound(self, args, kwargs):
        seen.append(self)
        return held(self, args, kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Batched, "bound", bound)
        call(*args)
    return not seen


def close(found, wanted):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), found, wanted)


@pytest.mark.parametrize("backend", ["auto", "xla", "llvm", "interpret"])
@pytest.mark.parametrize("take", [lambda x: x, np.asarray], ids=["jax", "numpy"])
def test_calls_and_gradients(backend, take):
    f, g = (ab.batched(h, in_axes=(None, 0), backend=backend) for h in (layers, loss))
    calls = {
        "values": (f, jax.vmap(layers, (None, 0))),
        "shared": (ab.grad(g), jax.grad(lambda p, x: jax.vmap(loss, (None, 0))(p, x).sum())),
        "both": (ab.grad(g, (1, 0)), jax.grad(lambda p, x: jax.vmap(loss, (None, 0))(p, x).sum(), (1, 0))),
    }
    for call, plain in calls.values():
        kinds = []
        for n in range(4):
            p, x = parameters(), rows()
            p, x = jax.tree.map(take, (p, x))
            found = call(p, x)
            close(found, plain(p, x))
            kinds.append([type(y) for y in jax.tree.leaves(found)])
        assert all(k == kinds[0] for k in kinds)
        assert made(call, *jax.tree.map(take, (parameters(), rows())))


def test_what_looks_otherwise_does_not():
    f = ab.batched(layers, in_axes=(None, 0))
    p = parameters()
    for _ in range(2):
        f(p, rows())
    assert made(f, p, rows())
    assert not made(f, p, rows(7))
    assert not made(f, {**p, "b": np.asarray(p["b"])}, rows())
    assert not made(f, {**p, "b": p["b"].astype(jnp.float16)}, rows())
    assert not made(f, {**p, "more": p["b"]}, rows())
    with ab.options(max_rows=1000):
        assert not made(f, p, rows())
    for x in (rows(7), rows()):
        close(f(p, x), jax.vmap(layers, (None, 0))(p, x))


def test_one_array_in_two_places():
    f = ab.batched(lambda a, b, x: a * x - b, in_axes=(None, None, 0))
    a, b = jnp.float32(2.0), jnp.float32(3.0)
    for _ in range(3):
        close(f(a, a, jnp.arange(3.0)), 2.0 * np.arange(3.0) - 2.0)
    close(f(a, b, jnp.arange(3.0)), 2.0 * np.arange(3.0) - 3.0)
    close(f(b, a, jnp.arange(3.0)), 3.0 * np.arange(3.0) - 2.0)


def test_gradients_have_the_keys_of_their_call():
    g = ab.grad(ab.batched(loss, in_axes=(None, 0)))
    p, x = parameters(), rows()
    for names in (["w", "b", "out"], ["out", "w", "b"], ["w", "b", "out"]):
        assert list(g({k: p[k] for k in names}, x)) == names


def test_an_array_that_is_not_read():
    f = ab.batched(lambda w, x, y: w * x, in_axes=(None, 0, 0), backend="xla")
    for n in range(3):
        close(f(2.0 + n, jnp.arange(3.0), jnp.ones(3)), (2.0 + n) * np.arange(3.0))


def test_free_variables(monkeypatch):
    f = ab.batched(lambda x: x * SCALE)
    for _ in range(3):
        close(f(jnp.arange(3.0)), 2.0 * np.arange(3.0))
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    close(f(jnp.arange(3.0)), 3.0 * np.arange(3.0))


@pytest.mark.parametrize("backend", ["auto", "xla", "llvm"])
def test_failures(backend):
    import math

    f = ab.batched(lambda w, x: math.sqrt(x) * w, in_axes=(None, 0), backend=backend)
    good, bad = np.float32([4.0, 9.0]), np.float32([4.0, -1.0])
    for _ in range(3):
        close(f(2.0, good), [4.0, 6.0])
    with pytest.raises(ab.ExampleError, match="ValueError") as warm:
        f(2.0, bad)
    with pytest.raises(ab.ExampleError) as cold:
        ab.batched(f.__wrapped__, in_axes=(None, 0), backend=backend)(2.0, bad)
    assert str(warm.value) == str(cold.value)
    close(f(2.0, good), [4.0, 6.0])
    with pytest.raises(ab.ExampleError):
        ab.grad(f)(2.0, bad)
    masked = ab.batched(f.__wrapped__, in_axes=(None, 0), backend=backend, on_error="mask")
    for _ in range(3):
        values, failures = masked(2.0, bad)
        assert np.asarray(failures.failed).tolist() == [False, True] and float(values[0]) == 4.0
        gradient = ab.grad(masked)(2.0, bad)
        np.testing.assert_allclose(gradient, 2.0)


def test_under_transformations():
    f = ab.batched(layers, in_axes=(None, 0))
    p, x = parameters(), rows()
    wanted = jax.vmap(layers, (None, 0))(p, x)
    for _ in range(3):
        close(f(p, x), wanted)
    close(jax.jit(f)(p, x), wanted)
    close(
        jax.grad(lambda p: f(p, x)["a"].sum())(p), jax.grad(lambda p: jax.vmap(layers, (None, 0))(p, x)["a"].sum())(p)
    )
    with ab.disable():
        close(f(p, x), wanted)


def test_nothing_of_a_call_is_kept():
    for call in (ab.batched(loss, in_axes=(None, 0)), ab.grad(ab.batched(loss, in_axes=(None, 0)))):
        p, x = parameters(), rows()
        held = [weakref.ref(y) for y in jax.tree.leaves((p, x))]
        found = [weakref.ref(y) for y in jax.tree.leaves(call(p, x))]
        call(parameters(), rows())
        del p, x
        gc.collect()
        assert not any(y() for y in (*held, *found))


def scaled(w, xs, word="a"):
    total = 0.0
    for x in xs:
        total = total + w * x if x > 0 else total
    return total


def test_lists_of_examples_that_look_alike():
    """They are packed, and that is all; other types, and what fails, go the long way."""
    rng = np.random.default_rng(0)
    f = ab.batched(scaled, in_axes=(None, 0))
    gradient = ab.value_and_grad(f)

    def check(lists):
        wanted = [scaled(0.5, xs) for xs in lists]
        np.testing.assert_allclose(f(0.5, lists), wanted, rtol=1e-5)
        value, found = gradient(jnp.float32(0.5), lists)
        np.testing.assert_allclose(value, wanted, rtol=1e-5)
        np.testing.assert_allclose(found, sum(scaled(1.0, xs) for xs in lists), rtol=1e-5)

    for count in (3, 3, 5, 1, 40):
        check([rng.normal(size=n).tolist() for n in rng.integers(0, 9, count)] + [[1.0]])
    assert made(f, 0.5, [[1.0, 2.0], [3.0]])
    assert made(gradient, jnp.float32(0.5), [[1.0, 2.0], [3.0]])
    check([[1, 2], [3]])  # integers
    check([[1.0], []])
    check([np.float32([1.0, 2.0]), np.float32([3.0])])
    check([[1.0, -2.0], [3.0]])
    with pytest.raises(ab.ExampleError, match="example 1 .*another type where float is needed"):
        f(0.5, [[1.0], ["a"]])
    assert f(0.5, [[], []]).tolist() == [0.0, 0.0]


@ab.batched
def both(a, b, x):
    return a[0] * len(b) + x if b else x


def test_several_lists_beside_an_array():
    for size in (2, 2, 3, 2):
        a, b = [[float(k + size)] for k in range(size)], [[1] * k for k in range(size)]
        x = np.arange(size, dtype=np.float32)
        assert both(a, b, x).tolist() == [both.example(*row) for row in zip(a, b, x.tolist(), strict=True)]
    with pytest.raises(ab.BatchError):
        both([[1.0], [2.0]], [[1]], np.zeros(2, np.float32))
    with pytest.raises(ab.ExampleError) as failed:
        both([[1.0], []], [[1], [1]], np.zeros(2, np.float32))
    assert failed.value.failures[0].index == 1


def test_one_list_in_two_places():
    f = ab.batched(lambda a, b: a[0] * len(b) + sum(b))
    shared = ab.batched(lambda w, b: len(w) + b[0], in_axes=(None, 0))
    for k in range(3):
        lists, other = [[1.0 + k], [2.0, 3.0]], [[4.0], [5.0]]
        assert f(lists, lists).tolist() == [2.0 + 2 * k, 9.0]
        assert f(lists, other).tolist() == [5.0 + k, 7.0]
        assert shared(lists, lists).tolist() == [3.0 + k, 4.0]


@pytest.mark.parametrize("backend", ["auto", "xla", "llvm"])
def test_results_of_every_kind(backend):
    """Random keys, constants, and numbers twice."""

    def several(key, x):
        y = x * 2.0
        return {"key": jax.random.fold_in(key, 3), "twice": (y, y), "count": 3, "whole": jnp.arange(2) + x.astype(int)}

    f, key = ab.batched(several, in_axes=(None, 0), backend=backend), jax.random.key(0)
    for n in range(3):
        x = jnp.arange(3.0) + n
        found, wanted = f(key, x), jax.vmap(several, (None, 0))(key, x)
        assert found["key"].dtype == wanted["key"].dtype
        close(jax.random.key_data(found.pop("key")), jax.random.key_data(wanted.pop("key")))
        wanted["count"] = np.full(3, 3)
        close(found, wanted)


def test_packed_batches():
    f = ab.batched(lambda w, xs: w * sum(xs) + len(xs), in_axes=(None, 0))
    first, second = f.pack([[1.0], [2.0, 3.0]]), f.pack([[4.0, 5.0, 6.0]])
    for _ in range(3):
        assert f(2.0, first).tolist() == [3.0, 12.0] and f(2.0, second).tolist() == [33.0]
        assert f(2.0, first[[1, 1, 0]]).tolist() == [12.0, 12.0, 3.0]
    assert made(f, 2.0, second) and made(f, 2.0, first[1:])
    assert not made(f, 2.0, ab.pack([[1], [2, 3]]))  # of other numbers
    assert jax.jit(lambda b: f(2.0, b))(first).tolist() == [3.0, 12.0]
    assert f(2.0, first.with_floats({k: 2 * x for k, x in first.floats().items()})).tolist() == [5.0, 22.0]
    assert f.cache_info().plans == 1


@pytest.mark.parametrize("backend", ["auto", "xla", "llvm", "interpret"])
@pytest.mark.parametrize("on_error", ["raise", "mask"])
def test_packed_batches_of_which_examples_fail(backend, on_error):
    """What fails while planning fails in values and gradients, whatever was called before."""

    def chosen(w, xs: list[float], k: int):
        total = 0.0
        for x in xs:
            total = jnp.tanh(w * total + x)
        return total * xs[k]

    f = ab.batched(chosen, in_axes=(None, 0, 0), backend=backend, on_error=on_error)
    good, bad = f.pack([[1.0, 2.0], [3.0, 4.0, 5.0]], [0, 1]), f.pack([[1.0, 2.0], [3.0]], [0, 3])
    wanted = [chosen(2.0, [1.0, 2.0], 0), chosen(2.0, [3.0, 4.0, 5.0], 1)]
    slopes = [jax.grad(chosen)(2.0, [1.0, 2.0], 0), jax.grad(chosen)(2.0, [3.0, 4.0, 5.0], 1)]
    for batch in (good, good, bad, good, bad[[0]], bad):
        fails = batch is bad
        calls = (
            lambda b: f(2.0, *b.args),
            lambda b: ab.grad(f)(2.0, *b.args),
            lambda b: ab.value_and_grad(f)(2.0, *b.args),
        )
        for number, call in enumerate(calls):
            if fails and on_error == "raise":
                with pytest.raises(ab.ExampleError, match="IndexError"):
                    call(batch)
                continue
            found = call(batch)
            value, slope = (found, None) if number == 0 else (None, found) if number == 1 else found
            if value is not None:
                values, failed = value if on_error == "mask" else (value, None)
                close(np.asarray(values)[:1], np.array(wanted[:1]))
                if failed is not None:
                    assert np.asarray(failed.failed).tolist() == [False, fails][: len(batch)]
            if slope is not None:
                close(slope, slopes[0] if fails or len(batch) == 1 else sum(slopes))


def test_arguments_that_were_packed_together():
    f = ab.batched(lambda xs, n, ys: sum(xs) * n + len(ys))
    pairs = ab.batched(lambda xs, ys: 0.0).pack([[1.0], [2.0, 3.0]], [[1.0, 1.0], []])
    xs, ys = pairs.args
    n = np.array([2.0, 3.0])
    for _ in range(3):
        assert f(xs, n, ys).tolist() == [4.0, 15.0]
        assert f(ys, n, xs).tolist() == [5.0, 2.0]
        assert f(xs, n, xs).tolist() == [3.0, 17.0]
    assert made(f, xs, n, ys)


@ab.batched
def first_words(words, n):
    return words[0] == "a" if n > 1 else len(words) > 1


def test_lists_of_strings_that_look_alike():
    for words in ([["a"], ["b", "a"]], [["b"], ["c", "a"]], [["c"], ["a", "a"]]):
        n = [2, 2]
        assert first_words(words, n).tolist() == [first_words.example(*row) for row in zip(words, n, strict=True)]


def test_examples_of_a_call_are_not_kept():
    @dataclasses.dataclass
    class Item:
        x: float

    f = ab.batched(lambda items: sum(i.x for i in items))
    for _ in range(3):
        items = [[Item(1.0), Item(2.0)], [Item(3.0)]]
        assert f(items).tolist() == [3.0, 3.0]
        held = weakref.ref(items[0][0])
        del items
        gc.collect()
        assert held() is None


# ---- calls of arrays that XLA runs are one executable from arguments to results


def staged(f) -> list[Any]:
    return [one for program in f._cache._all() for _, one in program.staged.items()]


def test_a_call_of_arrays_is_one_executable_for_each_number_of_examples():
    f = ab.batched(loss, in_axes=(None, 0), backend="xla")
    p, gradient = parameters(), ab.value_and_grad(f)
    for _ in range(2):
        for count in (1, 2, 3, 4, 5, 6, 16, 17):
            x = rows(count)
            for given in (x, np.asarray(x)):
                close(f(p, given), jax.vmap(loss, (None, 0))(p, x))
            value, found = gradient(p, x)
            close((value, found), (f(p, x), jax.grad(lambda p, x: jax.vmap(loss, (None, 0))(p, x).sum())(p, x)))
            assert list(found) == list(p)
    assert len(staged(f)) == 14
    assert f.cache_info().executables == 16


def test_a_staged_call_under_transformations():
    f = ab.batched(loss, in_axes=(None, 0), backend="xla")
    p, x = parameters(), rows()
    f(p, x)
    assert staged(f) and made(f, p, x)
    wanted = jax.vmap(loss, (None, 0))
    close(jax.grad(lambda p: f(p, x).sum())(p), jax.grad(lambda p: wanted(p, x).sum())(p))
    close(jax.vmap(lambda x: f(p, x))(jnp.stack([x, 2 * x])), jnp.stack([wanted(p, x), wanted(p, 2 * x)]))
    with pytest.raises(ab.UnsupportedError, match=r"ab\.jvp"):
        jax.jvp(lambda p: f(p, x), (p,), (p,))
    with jax.disable_jit():
        close(f(p, x), wanted(p, x))
    with pytest.raises(TypeError):
        f(p, x, x)
    with pytest.raises(ab.Error):
        f(p | {"w": p["w"].T}, x)
    close(f(p, x), wanted(p, x))


def test_results_of_staged_calls_have_their_keys_in_order():
    f = ab.batched(layers, in_axes=(None, 0), backend="xla")
    p, x = parameters(), rows()
    for _ in range(2):
        assert list(f(p, x)) == ["z", "a"]
    assert staged(f) and made(f, p, x)
    gradient = ab.grad(ab.batched(loss, in_axes=(None, 0), backend="xla"))
    for _ in range(2):
        for order in (["w", "b", "out"], ["b", "out", "w"]):
            given = {name: p[name] for name in order}
            found = gradient(given, x)
            assert list(found) == order and type(found["out"]) is tuple
            close(found, jax.grad(lambda p, x: jax.vmap(loss, (None, 0))(p, x).sum())(given, x))


def test_staged_calls_of_another_width_and_of_no_examples():
    def wide(x):
        return jnp.ones(2) * jnp.sum(x), jnp.arange(3).sum() + x[0]

    f, x = ab.batched(wide, backend="xla"), rows()
    for _ in range(2):
        assert [y.dtype for y in f(x)] == ["float32", "float32"]
        with jax.enable_x64(True):
            assert [y.dtype for y in f(x)] == [y.dtype for y in jax.vmap(wide)(x)]
    assert staged(f)
    assert [y.shape for y in f(x[:0])] == [(0, 2), (0,)]
