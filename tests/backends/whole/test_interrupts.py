"""Ctrl-C ends a call, in every kind of loop and on every thread, and the function works afterwards."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
from dataclasses import dataclass

import numpy as np
import pytest

import autobatch as ab


@dataclass
class Node:
    weight: float


def turns(n):
    """A loop that numbers end."""
    k = 0.0
    while n > 0.0:
        n = 1.0 if n > 1e30 else n * 1.0000001
        k += 1.0
    return k


def ends(w, n):
    """A loop that no host can run ahead."""
    k = 0.0
    while n > w:
        n = 1.0 if n > 1e30 else n * 1.0000001
        k += 1.0
    return k * n


def walks(scene, n):
    """Lanes that walk objects together."""
    k, t = 0, 0.0
    while t < n:
        t += scene[k].weight * 0.0
        k = (k + 1) % len(scene)
    return t


def counts(n):
    """A loop of a constant number of turns."""
    t = 0.0
    for _ in range(2_000_000_000):
        t = t * 0.5 + n
    return t


def within(n):
    """A loop inside of one, of a computed number of turns."""
    t = 0.0
    for _ in range(1_000_000):
        for _ in range(int(n * 1e6)):
            t = t * 0.5 + n
    return t


X = np.linspace(1, 2, 5000).astype(np.float32)
SCENE = [Node(1.0), Node(2.0)]
KINDS = (
    "turns", "turns, many rows", "walks", "counts", "within", "a gradient", "a handle", "two threads",
    "xla",
)  # fmt: skip


def call(kind):
    """A function that is compiled, so that a signal finds its loops, and what it is called with."""
    x = X[: 5000 if "many" in kind or kind in ("counts", "two threads") else 3]
    settings = {"backend": "llvm", "options": {"max_iterations": 10**9, "threads": 2 if kind == "two threads" else 1}}
    if kind == "walks":
        f = ab.batched(walks, in_axes=(None, 0), **settings)
        f(SCENE, -x)
        return lambda x: f(SCENE, x), x
    if "xla" in kind:
        f = ab.batched(ends, in_axes=(None, 0), backend="xla", options={"max_iterations": 3 * 10**8})
        f = ab.grad(f, 1) if "gradient" in kind else f
        f(0.0, -x)
        return lambda x: f(0.0, x), x
    f = ab.batched({"counts": counts, "within": within}.get(kind, turns), **settings)
    if kind in ("counts", "within", "a handle"):
        return f.lower(x).compile(), x
    if kind == "a gradient":
        f = ab.grad(f)
    f(-x)  # loops do not turn
    return f, x


def interrupted(kind):
    """Run in a process of its own: a signal comes while the code runs."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background may ignore it
    f, x = call(kind)
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        f(x)
    except KeyboardInterrupt:
        pass
    else:
        raise AssertionError("it went on to its end")
    if kind not in ("counts", "within"):
        f(-x)
    np.testing.assert_array_equal(ab.batched(lambda x: x * 2.0, backend="llvm")(x), x * 2)


@pytest.mark.parametrize("kind", [*KINDS, pytest.param("a gradient by xla", marks=pytest.mark.long)])
def test_control_c_ends_a_call(kind):
    code = f"""
        from tests.backends.whole.test_interrupts import interrupted
        interrupted({kind!r})
        print("fine")
    """
    root = os.path.dirname(os.path.dirname(ab.__file__))
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=root, capture_output=True, text=True, timeout=60
    )
    assert found.stdout.strip() == "fine", found.stderr


def test_a_handler_that_raises_nothing_does_not_end_it():
    heard = []
    before = signal.signal(signal.SIGALRM, lambda *_: heard.append(1))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
        f = ab.batched(turns, backend="llvm", options={"max_iterations": 10**9})
        g = ab.batched(lambda n: sum(n * 0.0 + 1.0 for _ in range(100_000_000)), backend="llvm")
        np.testing.assert_array_equal(g(X[:3]), [16777216.0] * 3)
        np.testing.assert_array_equal(f(-X), 0.0 * X)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert heard
