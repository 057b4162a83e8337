"""`backend="llvm"` and its handles on what they should not be given, or where they cannot run."""

import os
import subprocess
import sys
import tracemalloc
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from autobatch.backends.llvm import machine_code, program


def blend(x, n):
    k = 0
    while k < n:
        x, k = x * 0.5 + 1.0, k + 1
    return x, k


X, N = np.linspace(-3, 3, 40, dtype=np.float32), np.arange(40, dtype=np.int32)


def test_no_rows():
    f = ab.batched(blend, backend="llvm")
    handle = f.lower(X, N).compile()
    for call in (f, handle, ab.batched(blend, backend="llvm")):
        found = call(X[:0], N[:0])
        assert [(x.shape, x.dtype.name) for x in found] == [((0,), "float32"), ((0,), "int32")]


@pytest.mark.parametrize("step", [2, -1, -3])
def test_rows_that_are_not_side_by_side(step):
    f = ab.batched(blend, backend="llvm")
    handle, wanted = f.lower(X, N).compile(), f(X, N)
    for call in (f, handle):
        found = call(X[::step], N[::step])
        jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, b[::step]), found, wanted)


def test_columns_of_a_matrix_and_broadcast_rows():
    f = ab.batched(lambda x, v: x + v.sum(), backend="llvm")
    matrix = np.arange(24, dtype=np.float32).reshape(4, 6)
    handle = f.lower(matrix[0], matrix.T).compile()
    for call in (f, handle):
        np.testing.assert_allclose(call(matrix[0], matrix.T), matrix[0] + matrix.sum(0))
        np.testing.assert_allclose(call(np.broadcast_to(np.float32(2), 6), matrix.T), 2 + matrix.sum(0))


def test_no_memory_grows_with_a_large_batch_but_its_results(monkeypatch):
    monkeypatch.setattr(program, "CHUNK", 512)
    rows = 200_000
    x, n = np.resize(X, rows), np.resize(N, rows)
    f = ab.batched(blend, backend="llvm", options={"threads": 2})
    wanted = f(X, N)
    handle = f.lower(X, N).compile()
    for call in (f, handle):
        call(x[:5000], n[:5000])
        tracemalloc.start()
        found = call(x, n)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert most < 3.5 * x.nbytes  # two results, and what each row may have failed with
        jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, np.resize(b, rows)), found, wanted)


@pytest.mark.parametrize("threads", [1, 2, 7, 64])
def test_more_threads_than_processors_or_chunks(threads, monkeypatch):
    monkeypatch.setattr(program, "CHUNK", 16)
    found = ab.batched(blend, backend="llvm", options={"threads": threads})(X, N)
    jax.tree.map(np.testing.assert_array_equal, found, ab.batched(blend, backend="llvm")(X, N))


@pytest.mark.parametrize("threads", [0, -1, 1.5, "many"])
def test_numbers_of_threads_that_are_none(threads):
    with pytest.raises(ValueError, match="a positive int, or None"):
        ab.options(threads=threads)


@pytest.mark.parametrize(
    "where, said",
    [
        ({"machine": "riscv64"}, "not for linux on riscv64"),
        ({"platform": "darwin"}, "not for darwin"),
        ({"flags": "flags : fpu"}, "the processor is none of"),
    ],
)
def test_a_processor_that_has_no_code(where, said, monkeypatch):
    monkeypatch.setattr(machine_code.platform, "machine", lambda: where.get("machine", "x86_64"))
    monkeypatch.setattr(machine_code.sys, "platform", where.get("platform", "linux"))
    if "flags" in where:
        monkeypatch.setattr(machine_code.Path, "read_text", lambda *a, **k: where["flags"])
    machine_code._own_host.cache_clear()
    try:
        with pytest.raises(ab.UnsupportedError, match=said) as caught:
            ab.batched(blend, backend="llvm")(X, N)
        assert "xla" in str(caught.value)
    finally:
        monkeypatch.undo()
        machine_code._own_host.cache_clear()
    assert machine_code.host().bits


CHILD = """
import sys
sys.modules["llvmlite"] = None
import autobatch as ab, numpy as np
from tests.backends.whole.test_bad_input import blend
f = ab.batched(blend, backend="llvm", options={"compilation_cache": False})
try:
    f(np.ones(3, np.float32), np.ones(3, np.int32))
except ab.UnsupportedError as error:
    print(error)
"""


def test_without_llvmlite(tmp_path):
    environment = {"XDG_CACHE_HOME": str(tmp_path), "PATH": "", "PYTHONPATH": ":".join(sys.path)}
    ran = subprocess.run([sys.executable, "-c", CHILD], env=environment, check=True, capture_output=True, text=True)
    assert "pip install 'autobatch[native]'" in ran.stdout and "use backend='xla'" in ran.stdout


def test_a_choice_that_is_slow_is_said_once():
    """What numbers end XLA runs step by step: where machine code refuses it, the line is named, at the call."""

    def turned(x):
        a = jnp.full((512, 250), x)
        while x < 5.0:
            x = x + 1.0
            a = jnp.sin(a + x)
        return a.sum()

    f = ab.batched(turned)
    with pytest.warns(
        ab.PerformanceWarning, match=r"turned runs by xla.*test_bad_input.py:\d+.*128,000 numbers"
    ) as found:
        f(np.ones(2, np.float32))
    assert [w.filename for w in found] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        f(np.ones(2, np.float32))


def of_many_kinds(w, x):
    y = jnp.concatenate([x, x * 2.0]) @ w
    apart = jnp.abs(x[:, None, :] - x[None, :, :]).mean()
    return y[jnp.argmax(y[:, 0])] + jnp.var(x, axis=0) + jnp.cumsum(x, 0)[-1] + apart + jax.vmap(lambda r: r @ w)(x)[0]


QUIET = """
import autobatch as ab, numpy as np
from tests.backends.whole.test_bad_input import of_many_kinds
f, w = ab.batched(of_many_kinds, in_axes=(None, 0), backend="llvm"), np.eye(8, dtype=np.float32)
for rows in (2, 7, 24):
    f(w, np.ones((3, rows, 8), np.float32))
"""


def test_llvm_says_nothing(tmp_path):
    """Of loops of which it makes no vectors it writes to the standard error stream, if it was told to make some."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": ":".join(sys.path)}
    ran = subprocess.run([sys.executable, "-c", QUIET], env=environment, check=True, capture_output=True, text=True)
    assert ran.stderr == ""
