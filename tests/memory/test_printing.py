"""What functions print under data-dependent control flow: the lines of the loop, in its order, after the batch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from tests.memory.printing import PROGRAMS, called, choices, halved

XS = jnp.array([0.5, 2.0, 0.125, 3.5])

Capture = pytest.CaptureFixture[str]


def printed(capture: Capture, run: Callable[[], Any]) -> tuple[str, str]:
    capture.readouterr()
    run()
    jax.effects_barrier()
    found = capture.readouterr()
    return found.out, found.err


BACKENDS = [(f, "llvm") for f in PROGRAMS] + [(called, "interpret"), (called, "xla"), (choices, "interpret")]


@pytest.mark.parametrize(("program", "backend"), BACKENDS, ids=lambda x: getattr(x, "__name__", x))
def test_prints_what_the_loop_prints(capsys: Capture, program: Any, backend: str) -> None:
    f = ab.batched(program, backend=backend)
    wanted = printed(capsys, lambda: [program(x) for x in XS])
    assert any(wanted)
    assert printed(capsys, lambda: f(XS)) == wanted
    np.testing.assert_allclose(f(XS), np.stack([program(x) for x in XS]))


def test_under_transformations(capsys: Capture) -> None:
    def f(w: Any, x: Any) -> Any:
        while x > 0.4:
            x = halved(x, 0) * w
        return x

    w = jnp.float32(0.75)
    g = ab.batched(f, in_axes=(None, 0), backend="xla")
    wanted = printed(capsys, lambda: [f(w, x) for x in XS])
    for run in (lambda: jax.jit(g)(w, XS), lambda: ab.grad(g)(w, XS)):
        assert printed(capsys, run) == wanted


def test_examples_that_fail_print_nothing(capsys: Capture) -> None:
    def f(x: Any) -> Any:
        n = 0
        while x > 0.4:
            x, n = x * 0.5, n + 1
            print(n)
        assert n < 3
        return x

    g = ab.batched(f, on_error="mask", backend="llvm")
    assert printed(capsys, lambda: g(XS)) == ("1\n" * 1, "")


def test_what_is_refused() -> None:
    def spread(x: Any) -> Any:
        xs = [x]
        while xs[-1] > 0.4:
            xs.append(xs[-1] * 0.5)
        print(*xs)
        return x

    def to_a_file(x: Any) -> Any:
        if x > 1:
            print(x, file=sys.stdin)
        return x

    def a_view(x: Any) -> Any:
        if x > 1:
            print({"a": 1}.keys())
        return x

    def a_range(x: Any) -> Any:
        if x > 1:
            print(range(3))
        return x

    refused = ((spread, "as many arguments as a list has"), (to_a_file, "writes to a file"))
    for f, why in (*refused, (a_view, "or a view of a dict"), (a_range, "given a range")):
        with pytest.raises(ab.UnsupportedError, match=why):
            ab.batched(f)(XS)


def test_a_program_from_a_file_prints_nothing(capsys: Capture, tmp_path: Any) -> None:
    f = ab.batched(called, backend="xla")
    f.export(tmp_path / "f.program", XS)
    g = ab.load_exported(tmp_path / "f.program")
    assert printed(capsys, lambda: g(XS)) == ("", "")
    np.testing.assert_allclose(g(XS), np.stack([called(x) for x in XS]))


@pytest.mark.parametrize("backend", ["interpret", "llvm"])
def test_a_pullback_prints_nothing_more(backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    def f(w, xs):
        s = 0.0
        for x in xs:
            if x * w > 0.3:
                print("x", x)
                s = s + x * w
        return s

    g = ab.batched(f, in_axes=(None, 0), backend=backend)
    found, pull = ab.vjp(g, jnp.float32(1.1), [[0.5, 0.1], [0.75]])
    assert capsys.readouterr().out == "x 0.5\nx 0.75\n"
    pull(found)
    pull([1.0, 2.0])
    assert capsys.readouterr().out == ""
