"""Long code is compiled at once with few passes, and in the background with all: the second takes its place."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest

import autobatch as ab
from autobatch.backends.llvm import background, machine_code, program
from autobatch.call import native

XS = np.array([0.3, 1.5, 2.5], np.float32)


def halved(x):
    total = 0.0
    while x > 0.4:
        total += x * x
        x *= 0.5
    return total


@pytest.fixture
def tiered(monkeypatch, tmp_path):
    """Every text is long, and nothing is kept from before."""
    monkeypatch.setattr(machine_code, "TIERED", 10)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def addresses(f):
    """Where the code of a call lies, and its trampoline's idea of it."""
    (prepared,) = [x for _, x in f._prepare_apart(f.bound((XS,), {}), runs=True)]
    code = native.program_of(prepared.program)
    return [code.address, *(int(table[program.RUN]) for table in code.tables)]


def test_the_optimised_code_takes_the_place_of_the_first(tiered):
    f, wanted = ab.batched(halved, backend="llvm"), [halved(float(x)) for x in XS]
    g = ab.grad(f)
    for _ in range(3):
        np.testing.assert_allclose(f(XS), wanted, rtol=1e-6)
    before, slope = addresses(f), g(XS)
    machine_code.wait_for_optimised()
    after = addresses(f)
    assert len(set(before)) == len(set(after)) == 1 and set(before) != set(after)
    for _ in range(3):
        np.testing.assert_allclose(f(XS), wanted, rtol=1e-6)
    np.testing.assert_allclose(g(XS), slope, rtol=1e-6)


def test_it_is_kept_for_the_next_process(tiered, monkeypatch):
    ab.batched(halved, backend="llvm")(XS)
    machine_code.wait_for_optimised()
    monkeypatch.setattr(machine_code, "_baseline", lambda text: pytest.fail("compiled again"))
    again = ab.batched(halved, backend="llvm", options=ab.options(cache_size=7))
    np.testing.assert_allclose(again(XS), [halved(float(x)) for x in XS], rtol=1e-6)


@pytest.mark.parametrize("fails", ["it cannot begin", "it ends early"])
def test_the_first_code_stays_where_the_process_fails(tiered, monkeypatch, fails):
    if fails == "it cannot begin":

        def begin(*_, **__):
            raise OSError("no process")

        monkeypatch.setattr(subprocess, "Popen", begin)
    else:
        monkeypatch.setattr(background, "__file__", "/dev/null")
    f = ab.batched(halved, backend="llvm")
    f(XS)
    before = addresses(f)
    machine_code.wait_for_optimised()
    assert addresses(f) == before
    np.testing.assert_allclose(f(XS), [halved(float(x)) for x in XS], rtol=1e-6)
