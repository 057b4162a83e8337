"""A compilation that takes long shows a line on stderr, where it is wanted; and how long each stage took is kept."""

from __future__ import annotations

import time

import pytest

import autobatch as ab
from autobatch.common import runtime
from autobatch.common.runtime import OTHER, Timings, compiling, stage
from autobatch.compiler.passes import PASSES


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(runtime, "DELAY", 0.0)
    monkeypatch.setattr(runtime, "STEP", 0.01)


def test_what_is_compiled_and_its_stage(capfd):
    with compiling("f", "passes", True, Timings("f")):
        time.sleep(0.1)
        with stage("masks"):
            time.sleep(0.1)
        with compiling("g", "XLA", True, Timings("g")):
            time.sleep(0.1)
    shown = capfd.readouterr().err
    assert "compiling f: passes [00:00]" in shown and "compiling f: masks" in shown and "compiling f: XLA" in shown
    assert shown.endswith("\r")  # the line is gone
    with stage("behind it"):
        time.sleep(0.05)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("wanted", ["auto", False])
def test_nothing_where_it_is_not_wanted(capfd, wanted):
    with compiling("f", "passes", wanted, Timings("f")):
        time.sleep(0.05)
    assert capfd.readouterr().err == ""


def test_what_compiles_quickly_shows_nothing(capfd, monkeypatch):
    monkeypatch.setattr(runtime, "DELAY", 60.0)
    with compiling("f", "passes", True, Timings("f")):
        pass
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("backend", ["xla", "llvm"])
def test_calls_and_derivatives(capfd, backend):
    @ab.batched(in_axes=(None, 0), backend=backend)
    def walked(w, xs):
        h = 0.0
        for x in xs:
            h = h * 0.5 + x * w
        return h

    with ab.options(progress=True, compilation_cache=False):
        ab.value_and_grad(walked)(2.0, [[1.0, 2.0], [3.0]])
        assert "compiling walked: " in capfd.readouterr().err
        ab.value_and_grad(walked)(2.0, [[1.0, 2.0], [3.0]])
    assert capfd.readouterr().err == ""


def test_it_ends_where_compiling_fails(capfd):
    with pytest.raises(ValueError), compiling("f", "passes", True, Timings("f")):
        raise ValueError
    with compiling("g", "passes", True, Timings("g")):
        time.sleep(0.05)
    assert "compiling g" in capfd.readouterr().err


def test_each_moment_belongs_to_the_innermost_stage(monkeypatch):
    now, timings = [0.0], Timings("f")
    monkeypatch.setattr(runtime.time, "perf_counter", lambda: now[0])
    with compiling("f", "outer", False, timings):
        for _ in range(2):
            now[0] += 1.0
            with stage("inner"):
                now[0] += 2.0
                with compiling("g", "innermost", False, Timings("g")):
                    now[0] += 4.0
                now[0] += 0.5
                runtime._ended_in_jax("/jax/core/compile/backend_compile_duration", 0.5)
    found = {name: (s.seconds, s.count) for name, s in timings.stages.items()}
    assert found == {
        "innermost": (8.0, 2),
        "inner": (4.0, 2),
        "XLA: compile": (1.0, 2),
        "outer": (2.0, 1),
        OTHER: (0.0, 1),
    }
    assert timings.seconds == timings.data["seconds"] == 15.0
    assert "2 times" in str(timings)


@pytest.mark.parametrize("backend", ["xla", "llvm"])
def test_the_stages_of_a_function(backend):
    @ab.batched(in_axes=(None, 0), backend=backend)
    def walked(w, xs):
        h = 0.0
        for x in xs:
            h = h * 0.5 + x * w
        return h

    assert not walked.timings().stages
    with ab.options(compilation_cache=False):
        walked(2.0, [[1.0, 2.0], [3.0]])
        first = set(walked.timings().stages)
        ab.grad(walked)(2.0, [[1.0, 2.0], [3.0]])
    of_backend = {"fission", "JAX: trace"} if backend == "xla" else {"rows", "LLVM: write IR"}
    assert {"lower", "inline", "masks", *of_backend} <= first
    assert first - {p.name for p in PASSES} - of_backend <= {
        *("passes", "machine code", "first run", OTHER, "JAX: trace", "JAX: lower to MLIR", "XLA: compile"),
        *("LLVM: optimise", "LLVM: generate code"),
    }
    later = "first run" if backend == "xla" else "the derivative's machine code"
    assert walked.timings().stages[later].count == (2 if backend == "xla" else 1)


def test_a_program_that_is_not_compiled_again_adds_nothing():
    double = ab.batched(lambda x: 2.0 * x)
    double([1.0, 2.0])
    before = double.timings().data
    double([1.0, 2.0])
    assert double.timings().data == before
