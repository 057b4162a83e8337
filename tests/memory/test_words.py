"""Data-dependent strings and enum members: as keys, as elements, as states, character by character."""

from __future__ import annotations

import enum
from collections import Counter, defaultdict
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autobatch as ab
from autobatch.testing import check_equivalence
from tests.memory.programs import program

LONG = pytest.mark.long
ONE = jnp.float32(1.1)
BACKENDS = ["interpret", "llvm", pytest.param("xla", marks=LONG)]


class Color(enum.Enum):
    RED = 1
    BLUE = 2


def check(f: Any, batch: Any, backend: str, grads: bool = True) -> None:
    f = ab.batched(f, in_axes=(None, 0))
    grads = grads and backend != "llvm"  # which leaves them to XLA
    check_equivalence(f, batch, (ONE,), grads=grads, backends=(backend,), jit=False, tolerance=2e-5)


def keys(w: Any, example: Any) -> Any:
    """Constant strings, strings of the example, tuples of them and enum members as keys."""
    words, x = example
    known = {"the": 1.0, "cat": 2.0, "dog": 3.0}
    sums, pairs, colors, seen = {}, defaultdict(float), Counter(), set()
    y, k, s, last = w * x, 0, w, "<s>"
    while y < 3.0:
        y = y * 1.5 + 0.3
        level = "low" if y < 1.0 else "mid" if y < 2.0 else "high"
        sums[level] = sums.get(level, 0.0) + y
        word = words[k % len(words)] if y < 2.5 else "the"
        pairs[last, word] += y
        colors[Color.RED if y < 1.5 else Color.BLUE] += 1
        if word not in seen:
            seen.add(word)
            s = s + y * known.get(word, 0.5)
        last, k = word, k + 1
    best = max(sums, key=lambda key: sums[key]) if sums else "none"
    s = s * (2.0 if best == "mid" else 1.0) + pairs["<s>", "the"] + 0.1 * len(pairs)
    return s * len(seen) + colors[Color.RED] + 0.5 * colors[Color.BLUE] + sums.get("mid", 0.5)


SENTENCES = [(["the", "cat", "sat"], 0.9), (["a", "dog"], 2.2), (["cat", "the", "cat", "dog"], 0.3), (["a"], 3.5)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_keys(backend: str) -> None:
    check(keys, SENTENCES, backend, grads=backend == "xla")


def states(w: Any, x: float) -> Any:
    """A machine whose state is a string, with a stack of strings."""
    y, state, stack = w * x, "start", ["bottom"]
    while y < 5.0 and stack:
        match state:
            case "start":
                y = y * 1.5 + 0.3
                state = "middle" if y > 1.0 else "start"
                stack.append("a" if y < 2.0 else "b")
            case "middle":
                state = "end" if stack.pop() == "b" else "start"
                y = y + 0.5 * w
            case _:
                stack.pop()
                y = y + 0.7
    return y * (2.0 if state == "end" else 1.0) + len(stack) + (0.5 if "b" in stack else 0.0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_states(backend: str) -> None:
    check(states, np.array([0.1, 0.9, 2.2, 7.0], np.float32), backend)


def spelt(w: Any, example: Any) -> Any:
    """What is asked of characters at computed places, of the example and of a constant."""
    text, x = example
    y, k, s, count, letters = w * x, 0, w, {}, "abcabz"
    while y < 3.0:
        y = y * 1.4 + 0.3
        c = text[(k + int(y)) % len(text)]
        count[c] = count.get(c, 0) + 1
        if c.isdecimal():
            s = s + y * int(c)
        elif c.isalpha() and c < "m":
            s = s * 0.5 + (ord(c) - ord("a")) * w
        elif c in "zh ":
            s = s + 0.25 * len(c)
        elif c.isupper() or c >= "\u0660":
            s = s + 3.0 * y
        d = letters[(k * 2) % 6]
        s = s + (y if d == c else 0.5 * ord(d) / 97.0) + (0.125 if chr(ord(d) + 1) in count else 0.0)
        k = k + 1
    return s * len(count)


TEXTS = st.text(st.sampled_from("abmzh A3\u0664\u00df\U0001f600\u0130"), min_size=1, max_size=5)


@settings(max_examples=3)
@given(texts=st.lists(TEXTS, min_size=3, max_size=3))
def test_any_characters(texts: list[str]) -> None:
    f = ab.batched(spelt, in_axes=(None, 0))
    batch = [(text, x) for text, x in zip(texts, (0.9, 2.2, 0.2), strict=True)]
    check_equivalence(f, batch, (ONE,), backends=("interpret",), jit=False, grads=False, tolerance=2e-5)


@LONG
def test_characters_and_derivatives() -> None:
    check(spelt, [("a1b22", 0.9), ("Zz 9", 2.2), ("hello", 0.3)], "xla")


@pytest.mark.parametrize("backend", ["interpret", pytest.param("xla", marks=LONG)])
def test_what_fails(backend: str) -> None:
    def fails(w: Any, example: Any) -> Any:
        text, x = example
        y, k, s = w * x, 0, w
        while y < 3.0:
            y, k = y + 1.0, k + 1
            s = s + int(text[k])
        return s

    f = ab.batched(fails, in_axes=(None, 0), backend=backend)
    with pytest.raises(ab.ExampleError) as failed:
        f(jnp.float32(1.0), [("012", 2.5), ("01", 0.5), ("0b2", 0.5), ("0\u06642", 1.5)])
    assert [(x.index, x.kind, x.message) for x in failed.value.failures] == [
        (1, "IndexError", "string index out of range"),
        (2, "ValueError", "invalid literal for int() with base 10: 'b'"),
    ]


REFUSED = (("s = 'one' if y < 1.0 else 'three'", "len(s.expandtabs())", "is looked into: expandtabs"),)


@pytest.mark.parametrize(("turn", "result", "words"), REFUSED)
def test_what_is_refused(turn: str, result: str, words: str) -> None:
    f = program("refused", "s = 'a'", turn, result).load("computed")
    with pytest.raises(ab.UnsupportedError, match=words):
        f(ONE, [[0.9], [2.2]])
