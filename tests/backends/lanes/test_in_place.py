"""Arrays that branches change where they lie: the numbers of the Python loop, and no copies."""

import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from autobatch.backends.llvm import machine_code
from autobatch.backends.llvm.lanes.analysis import BranchOrigins
from autobatch.backends.llvm.lanes.tensors import SMALL, MemoryTensor

try:
    machine_code.host()
except machine_code.UnavailableError as error:
    pytest.skip(f"no machine code here: {error}", allow_module_level=True)

N = 24
X = np.linspace(-2.03, 1.987, 37).astype(np.float32)
K = (np.arange(37) % 7).astype(np.int32)


def table(x):
    return [x + k for k in range(N)]


def total(values):
    s = 0.0
    for k in range(N):
        s = 0.5 * s + values[k]
    return s


def one_arm(x, n):
    values = table(x)
    for i in range(n):
        for j in range(N - 1):
            if values[j] > i:
                values[j] = 0.5 * values[j + 1] + 0.1 * values[j]
    return total(values)


def both_arms(x, n):
    values = table(x)
    for i in range(n):
        for j in range(N - 1):
            if values[j] > 1.0713:
                values[j] = values[j + 1] - i
            else:
                values[j + 1] = values[j] * 0.5 + i
    return total(values)


def several_stores(x, n):
    values = table(x)
    for i in range(n):
        if values[i] > 0:
            values[i + 1] = values[i] * 0.5
            values[i] = values[i + 1] + values[i + 2]
            values[i + 2] = values[i]
        else:
            values[i] = 1.0
    return total(values)


def swaps(x, n):
    values = table(x)
    for _ in range(n):
        for j in range(N - 1):
            if values[j] * (j % 3 - 1) > values[j + 1]:
                values[j], values[j + 1] = values[j + 1], values[j]
    return total(values)


def nested(x, n):
    values = table(x)
    for i in range(n):
        if x > -1:
            if values[i] > 1:
                values[i] = values[i] / (values[i] + 0.5)
            elif i % 2:
                values[i + 1] = values[i] ** 2
        else:
            for j in range(i):
                if values[j] < 0:
                    values[j] = values[j] + i
    return total(values)


def loops_in_arms(x, n):
    values = table(x)
    for i in range(n):
        if values[i] > 0:
            j = 0
            while values[j] < 2 and j < N - 2:
                values[j] = values[j] + values[j + 1] * 0.5
                j += 1
        else:
            for j in range(5):
                values[j] = values[j] * 0.9 + i
    return total(values)


def anew(x, n):
    """One arm changes the table, the other makes another."""
    values = table(x)
    for i in range(n):
        if values[i] > 1:
            values[i] = 0.5
        else:
            values = [values[k] * 0.5 + i for k in range(N)]
    return total(values)


def read_behind(x, n):
    """What was there before the branch is read behind it."""
    values = table(x)
    s = 0.0
    for i in range(n):
        before = list(values)
        if values[i] > 0:
            values[i] = 7.0
        s = s + before[i] - values[i]
    return total(values) + s


def read_before_changed(x, n):
    values = table(x)
    for i in range(n):
        if values[i] > 0:
            old = list(values)
            values[i] = 0.0
            values[i + 1] = old[i] + old[i + 1]
            s = sum(old)
        else:
            s = sum(values)
            values[i] = s
    return total(values)


def two_tables(x, n):
    one, other = table(x), table(-x)
    for i in range(n):
        if one[i] > other[i]:
            one[i], other[i + 1] = other[i], one[i + 1]
        else:
            other[i] = one[i] * 0.5
    return total(one) + 2 * total(other)


def exchanged(x, n):
    """The tables change their names in an arm."""
    one, other = table(x), table(-x)
    for i in range(n):
        if one[i] > other[i]:
            one, other = other, one
            one[i] = 0.25
        other[i] = other[i] + 1
    return total(one) + 2 * total(other)


def fails_between(x, n):
    """Checks stand between the stores: division, and places outside."""
    values = table(x)
    for i in range(n):
        values[i] = 1.0 / (values[i + 1] - 3)
        values[i + n] = values[i] + 2.0 ** (values[i] * 0.1)
        if values[i] > 0:
            values[3 * i] = values[i] * 2
    return total(values)


def of_jax(x, n):
    values = x + jnp.arange(40.0)
    for i in range(n):
        if values[i] > 0:
            values = values.at[i].set(values[i + 1] * 0.5).at[i + 1].add(values[i])
        else:
            values = values.at[i].multiply(0.5)
    return values.sum() + values[3]


def left_early(x, n):
    values = table(x)
    for i in range(N - 1):
        if values[i] > n:
            values[i] = values[i + 1] * 0.5
            if i > 4:
                break
        values[i + 1] += 0.1
    return total(values)


CHANGED = [one_arm, both_arms, several_stores, swaps, nested, loops_in_arms, anew, read_behind, read_before_changed]
CHANGED += [two_tables, exchanged, of_jax, left_early]


@pytest.mark.parametrize("count", [1, 37])
@pytest.mark.parametrize("f", CHANGED, ids=lambda f: f.__name__)
def test_as_python(f, count):
    found = ab.batched(f, backend="llvm")(X[:count], K[:count])
    wanted = [f(float(x), int(k)) for x, k in zip(X[:count], K[:count], strict=True)]
    np.testing.assert_allclose(found, np.asarray(wanted, np.float32), rtol=2e-5, atol=1e-4)


def test_of_examples_that_fail():
    k = (np.arange(37) % 15).astype(np.int32)
    found, failures = ab.batched(fails_between, backend="llvm", on_error="mask")(X, k)
    failed = {f.index for f in failures}
    for row, (x, n, y) in enumerate(zip(X, k, np.asarray(found), strict=True)):
        if row in failed:
            with pytest.raises(IndexError):
                fails_between(float(x), int(n))
        else:
            np.testing.assert_allclose(y, fails_between(float(x), int(n)), rtol=1e-4)
    assert 0 < len(failed) < 37


@pytest.mark.parametrize("f", [one_arm, both_arms, several_stores, swaps, nested, two_tables, fails_between])
def test_without_a_copy(f, monkeypatch):
    """A table is written where it is made, and where the operation under a mask begins; never in a branch."""
    filled, fill = [], MemoryTensor.fill
    monkeypatch.setattr(MemoryTensor, "fill", lambda self, x: (filled.append(self.pointer), fill(self, x))[1])
    ab.batched(f, backend="llvm")(X, K)
    tables = 2 if f is two_tables else 1
    assert len(filled) <= 3 * tables
    assert N > SMALL


def test_long_loops_are_not_written_out():
    """As many instructions for 30 turns as for 60."""

    def smoothed(turns):
        def function(x):
            values = [x * k for k in range(turns + 1)]
            for i in range(turns):
                for j in range(i + 1):
                    values[j] = max(0.5 * values[j] + 0.25 * values[j + 1], x)
            return values[0]

        return function

    sizes = set()
    for turns in (30, 45, 60):
        f = ab.batched(smoothed(turns), backend="llvm")
        sizes.add(len(f.lower(X).compile().executable.text.splitlines()))
        np.testing.assert_allclose(f(X), f.loop(X), rtol=1e-5)
    assert max(sizes) < 1.1 * min(sizes)


def deep(x, n):
    one, other = table(x), table(-x)
    for i in range(n):
        if one[i] > -1.5:
            one[i] = one[i] * 0.5
            if one[i] > -1.25:
                other[i] = one[i] + 0.25
                if one[i] > -1.125:
                    one[i + 1] = other[i]
                    if one[i] > -1.0625:
                        other[i + 1] = 0.5 / (one[i] + 2)
                        if one[i] > -1.03125:
                            one[i + 2] = other[i + 1] / (x + 3)
                            if one[i] > -1.01:
                                other[i + 2] = one[i] / (x + 4)
    return total(one) + 2 * total(other)


def test_a_branch_is_looked_at_once(monkeypatch):
    """However deep it stands: in every check that can fail there is one, so the time would be exponential."""
    asked, origin = [], BranchOrigins.origin
    monkeypatch.setattr(BranchOrigins, "origin", lambda self, x, made: (asked.append(x), origin(self, x, made))[1])
    found = ab.batched(deep, backend="llvm")(X, K)
    wanted = [deep(float(x), int(k)) for x, k in zip(X, K, strict=True)]
    np.testing.assert_allclose(found, np.asarray(wanted, np.float32), rtol=2e-5, atol=1e-4)
    assert len(asked) < 500
