"""Long functions: LLVM runs few passes, formulas are called, and the results are the same bits."""

import importlib

import numpy as np
import pytest

import autobatch as ab
from autobatch.backends.llvm import code, machine_code, text
from benchmarks import startup


def every_formula(x, n):
    y, k = x, 0
    while k < n and y * y < 100.0:
        y = np.sin(y) + np.cos(y) * np.exp(-y * y) + np.tanh(y) + np.log(1.0 + y * y) + np.arctan(y)
        k = k + 1
    return y, k


X, N = np.linspace(-4, 4, 100, dtype=np.float32), np.arange(100, dtype=np.int32) % 7


@pytest.fixture
def all_are_long(monkeypatch):
    monkeypatch.setattr(text, "LONG", 0)
    monkeypatch.setattr(code, "MANY", 0)
    monkeypatch.setattr(machine_code, "LONG", 0)
    monkeypatch.setattr(machine_code, "STRAIGHT", 0)


def run(function):
    f = ab.batched(function, backend="llvm", options={"compilation_cache": False})
    return f(X, N), f.lower(X, N).compile().executable.text


def test_the_same_bits(request):
    wanted, short = run(every_formula)
    request.getfixturevalue("all_are_long")
    found, long = run(every_formula)
    assert "@ab_exp." in long and "@ab_exp." not in short
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.fixture
def written_functions(tmp_path, monkeypatch):
    (tmp_path / "written_functions.py").write_text(startup.source(280))
    monkeypatch.syspath_prepend(tmp_path)
    return importlib.import_module("written_functions")


def test_generated_functions_have_so_many_leaf_operations(written_functions):
    assert startup.leaf_operations(written_functions.many, X, X, N) == 339


def test_generated_functions_agree_with_plain_python(written_functions):
    f = ab.batched(written_functions.many, backend="llvm")
    found = ab.unbatch(f(X[:20], X[20:40], N[:20]))
    wanted = f.loop(X[:20], X[20:40], N[:20])
    same = [np.allclose(a, b, rtol=1e-3, atol=1e-3) for a, b in zip(found, wanted, strict=True)]
    assert np.mean(same) > 0.8, "branches may go otherwise where a float is at a threshold, but for a few"
