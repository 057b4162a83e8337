"""Arrays are changed where they lie, and memory is used again: nobody reads what was there before."""

import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from autobatch.backends.llvm import code, machine_code
from tests.backends.whole.in_place import SIZE, program

try:
    HOST = machine_code.host()
except machine_code.UnavailableError as error:
    pytest.skip(f"no machine code here: {error}", allow_module_level=True)

COUNT = 41


def given():
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=(2, COUNT, SIZE)).astype(np.float32)
    return a, b, rng.normal(size=COUNT).astype(np.float32), rng.integers(0, SIZE, COUNT).astype(np.int32)


def function(seed, folder, branches=False):
    path = folder / f"program{seed}.py"
    path.write_text(program(seed, branches))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.changed


def compiled(fun, *arguments):
    return ab.batched(fun, backend="llvm").lower(*arguments).compile()


CASES = [*((seed, "gangs") for seed in (0, 28)), (15, "one lane")]
MORE = [(seed, lanes) for seed in range(3, 28) for lanes in ("gangs", "one lane")]


@pytest.mark.parametrize(("seed", "lanes"), [*CASES, *(pytest.param(*c, marks=pytest.mark.long) for c in MORE)])
def test_the_same_bits_as_with_copies(seed, lanes, tmp_path, monkeypatch):
    """The oracle has no lifetimes: every change is one of a copy. (In program 28 loops inside a loop have its memory,
    which it needs again; in 15 memory ends inside an operation, and again behind it.)"""
    fun = function(seed, tmp_path)
    if lanes == "one lane":
        monkeypatch.setattr(code, "WIDEST", 0)
    found = compiled(fun, *given())(*given())
    monkeypatch.setattr(code, "Lifetimes", lambda: None)
    jax.tree.map(np.testing.assert_array_equal, found, compiled(fun, *given())(*given()))


BRANCHING = [
    pytest.param(seed, lanes, marks=pytest.mark.long) for seed in range(3, 28) for lanes in ("gangs", "one lane")
]


@pytest.mark.parametrize(("seed", "lanes"), [(0, "gangs"), (1, "gangs"), (2, "one lane"), *BRANCHING])
def test_the_same_bits_of_branches(seed, lanes, tmp_path, monkeypatch):
    """Arms change an array from outside where it lies: in their lanes, and where nobody reads it behind them."""
    fun = function(seed, tmp_path, branches=True)
    if lanes == "one lane":
        monkeypatch.setattr(code, "WIDEST", 0)
    found = compiled(fun, *given())(*given())
    monkeypatch.setattr(code, "Lifetimes", lambda: None)
    jax.tree.map(np.testing.assert_array_equal, found, compiled(fun, *given())(*given()))


def test_an_array_that_one_arm_changes_and_another_result_is():
    """Where the second result is what the first one is made of, that is copied before it is written over."""

    def passed_on(a, b, x, k):
        if a[k] > b[k]:
            a = b.at[2:10].set(a[4:12])
        else:
            a = b.at[k].add(0.5 * a[k])
            b = b.at[15].set(b[7] + b[k])
        return a, b

    def turned_round(a, b, x, k):
        c = b
        if a[k] > b[k]:
            a, c = b.at[2:10].set(a[4:12]), b[::-1]
        else:
            a, c = b.at[k].add(0.5 * a[k]), b + x
        return a, c

    for fun in (passed_on, turned_round):
        wanted = ab.batched(fun, backend="interpret")(*given())
        jax.tree.map(np.testing.assert_allclose, ab.batched(fun, backend="llvm")(*given()), wanted)


def sorted_by_insertion(v):
    v = jnp.asarray(v)
    for i in range(1, SIZE):
        x, j = v[i], i
        while j > 0 and v[j - 1] > x:
            v = v.at[j].set(v[j - 1])
            j = j - 1
        v = v.at[j].set(x)
    return v


def counted(v):
    found = jnp.zeros(32, jnp.int32)
    for k in range(SIZE):
        found = found.at[jnp.int32(8 * v[k]) % 32].add(1)
    return found


def halved(v):
    for _ in range(SIZE - 1):
        v = 0.5 * v[:-1] + 0.5 * v[1:]
    return v[0]


@pytest.mark.parametrize("fun", [sorted_by_insertion, counted, halved])
def test_equals_plain_python(fun):
    v = given()[0]
    found, f = compiled(fun, v)(v), ab.batched(fun, backend="llvm")
    np.testing.assert_allclose(found[:5], np.stack(f.loop(v[:5])), rtol=1e-6)


def chained(v):
    for _ in range(30):
        v = v * 0.5 + v[::-1]
    return v[0]


def changed_twice(v):
    return v.at[3].set(1.0).at[4].set(2.0).sum()


def shrinking(v):
    for _ in range(60):
        v = v[:-1] + 2.0 * v[1:]
    return v.sum()


@pytest.mark.parametrize(("fun", "arrays"), [(chained, 3), (changed_twice, 2), (shrinking, 3)])
def test_memory_is_used_again(fun, arrays):
    """It is not reserved for each of thirty products, and no array is copied when one number of it changes."""
    v = np.ones((3, 100), np.float32)
    made = compiled(fun, v).executable
    lines = [line for line in made.text.splitlines() if "alloca [" in line and "x float]" in line]
    assert sum(int(line.split("alloca [")[1].split(" x ")[0]) for line in lines) <= arrays * v.shape[1] * made.width
