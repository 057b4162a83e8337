"""A closure over vectors that is called before a data-dependent loop and inside of it: arrays and lists, of any origin.
What it captured keeps its length and its values from one turn to the next."""

import linecache

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import autobatch as ab

ORIGINS = {
    "argument": None,
    "shared argument": None,
    "list of numbers": "[0.5, 1.5, -0.25]",
    "list of results": "[n * 0.1, 0.5, n * -0.2]",
    "array of NumPy": "np.array([0.5, 1.0, 2.0])",
    "array of JAX": "jnp.array([0.5, n * 0.1, 2.0])",
    "tuple": "(0.5, n * 0.1, 1.0)",
    "comprehension": "[x * n * 0.25 for x in (1.0, -2.0, 0.5)]",
    "global list": "GLOBAL_LIST",
    "global array": "GLOBAL_ARRAY",
}
CLOSURES = [
    "g = lambda v: sum(p * q + r for p, q, r in zip(a, v, b))",
    "g = lambda v: max([p * q + r for p, q, r in zip(a, v, b, strict=True)])",
    "def g(v):\n        t = 0.0\n        for p, q, r in zip(a, v, b):\n            t += p * q + r\n        return t",
]
LOOPS = [
    "while s < n:\n        s += 1.0 + abs(g(v))",
    "while k < n:\n        s = 0.5 * s + 0.1 * g([s, v[0], v[2]])\n        k += 1",
    "while True:\n        s = 0.5 * s + g(v) * 0.1\n        k += 1\n        if s < -n or k > n:\n            break",
]
SOURCE = """def f(n, given, shared):
    {places}
    {closure}
    s, k = g(v), 0
    {loop}
    return s + g(v) * k
"""

N = np.float32([3.0, 10.0, 25.0, 1.0])
GIVEN = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
GLOBAL_LIST = [0.5, 1.5, -0.25]
GLOBAL_ARRAY = np.float32(GLOBAL_LIST)


@pytest.mark.parametrize("backend", ["interpret", "xla", "llvm"])
@settings(max_examples=10)
@given(*[st.sampled_from(list(ORIGINS))] * 3, st.sampled_from(CLOSURES), st.sampled_from(LOOPS), st.booleans())
@example("array of JAX", "tuple", "array of NumPy", CLOSURES[2], LOOPS[0], False)  # was "tuple index out of range"
@example("argument", "argument", "array of NumPy", CLOSURES[1], LOOPS[0], True)
def test_what_was_captured_is_the_same_in_each_turn(backend, a, v, b, closure, loop, lists):
    names = {"argument": "given", "shared argument": "shared"}
    places = "\n    ".join(f"{x} = {ORIGINS[o] or names[o]}" for x, o in zip("avb", (a, v, b)))
    source = SOURCE.format(places=places, closure=closure, loop=loop)
    name = "<captured>"
    linecache.cache[name] = len(source), None, source.splitlines(True), name
    space = {"np": np, "jnp": jnp, "GLOBAL_LIST": GLOBAL_LIST, "GLOBAL_ARRAY": GLOBAL_ARRAY}
    exec(compile(source, name, "exec"), space)
    rows, shared = (GIVEN.tolist(), GIVEN[0].tolist()) if lists else (GIVEN, GIVEN[0])
    f = ab.batched(space["f"], in_axes=(0, 0, None), backend=backend)
    np.testing.assert_allclose(f(N, rows, shared), f.loop(N, rows, shared), rtol=1e-3, atol=1e-3)
