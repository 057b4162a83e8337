"""Strings that are put together, cut and compared under data-dependent control flow, and come back as results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest

import autobatch as ab
from autobatch.testing import check_equivalence

LONG = pytest.mark.long
BACKENDS = ["interpret", "llvm", pytest.param("xla", marks=LONG)]
ONE = jnp.float32(1.1)


@dataclass
class Token:
    text: str
    tag: str
    score: float


def made(w: Any, x: float) -> Any:
    """By `+` and f-strings, and what is asked of them."""
    y, s, k = w * x, "", 3
    while y < 5.0 and s != "zzaab":
        s = s + ("a" if y > 1.0 else "\U0001f600z")
        s = f"{s}{k}" if k < 0 else s
        y, k = y * 1.5 + 0.3, k - 2
    asked = s.startswith("za"), s.endswith("a-3"), "-1a" in s, s.find("a"), s < "a-", s >= "aa-1", s == "a"
    total = 0.0
    for c in s:
        total = total * 0.5 + ord(c)
    return s, len(s), asked, total, (s + "!")[0], f"{{{k * 1000}}}, {y > 6.0}"


def cut(w: Any, x: float) -> Any:
    """Slices, repetition, and strings that turn round."""
    y, s, n = w * x, "abcdef", 0
    while y < 5.0:
        s = s[1:] + s[0] if y > 1.0 else s + "g"
        y, n = y * 1.5 + 0.3, n + 1
    return s[::-1], s[-3:-1], s[5:1:-2], s[n:], s[10:2], "ab" * n, s[:n] == s[:n][::-1], "." * (2 - n)


def kept(w: Any, x: float) -> Any:
    """Keys of a dict, elements of a set and of lists, fields of results."""
    y, s, counts, seen, words, tokens = w * x, "", {}, set(), [], []
    while y < 5.0:
        s = ("a" if y > 1.0 else "bb") + s[:1]
        counts[s] = counts.get(s, 0) + 1
        seen.add(s)
        words.append(s)
        tokens.append(Token(s, "N" if y > 2.0 else s, y))
        y = y * 1.4 + 0.3
    return counts, len(seen), "ab" in seen, words, "-".join(words), tokens, {"last": s, "none": None if s else "no"}


def lengthens(w: Any, x: float) -> Any:
    """Longer than there is room for at first."""
    y, s = w * x, ""
    while y < 20.0:
        s = s + "abcdefghijklmnop"
        y = y * 1.2 + 0.3
    return s


NUMBERS = [0.1, 0.9, 2.2, 7.0]


def of_examples(w: Any, example: Any) -> Any:
    """Characters and words of the examples."""
    words, x = example
    y, out, letters, parts = w * x, "", "", []
    for word in words:
        if y > 1.0:
            out = out + " " + word if out else word
            parts.append(word)
        for c in word:
            if y * ord(c) > 110.0 and c not in "aeiou":
                letters += c
        y = y * 1.3
    return out, letters, " ".join(parts), out == words[0], letters[::-1] == letters


def of_host(w: Any, example: Any) -> Any:
    """Strings that structure makes, and that numbers choose."""
    words, x = example
    y, tags = w * x, []
    for word in words:
        if y > 0.7:
            tags.append(f"{word}/{len(word)}")
        y = y * 1.4
    return words[0] + "!" if w * x > 1.0 else words[-1], tags


SENTENCES = [(["the", "cat", "sat"], 0.9), (["a", "dog"], 2.2), (["cat", "the"], 0.3), (["a"], 3.5)]
PROGRAMS: list[tuple[Callable[..., Any], Any]] = [(f, NUMBERS) for f in (made, cut, kept, lengthens)]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("function", "batch"), PROGRAMS, ids=lambda x: getattr(x, "__name__", ""))
def test_agreement(function: Callable[..., Any], batch: Any, backend: str) -> None:
    f = ab.batched(function, in_axes=(None, 0))
    check_equivalence(f, batch, (ONE,), grads=False, backends=(backend,), jit=False, tolerance=2e-5)


@pytest.mark.parametrize("backend", ["interpret", pytest.param("xla", marks=LONG)])
@pytest.mark.parametrize("function", [of_examples, of_host], ids=lambda f: f.__name__)
def test_strings_of_the_examples(function: Callable[..., Any], backend: str) -> None:
    f = ab.batched(function, in_axes=(None, 0))
    check_equivalence(f, SENTENCES, (ONE,), grads=False, backends=(backend,), jit=False, tolerance=2e-5)


@pytest.mark.parametrize("backend", ["interpret", "llvm"])
def test_failures(backend: str) -> None:
    def fails(w: Any, x: float) -> Any:
        y, s = w * x, ""
        while y < 2.0:
            s = s + "ab"
            y = y * 1.5 + 0.3
        return s[3], s

    f = ab.batched(fails, in_axes=(None, 0), backend=backend, on_error="mask")  # type: ignore[call-overload]
    results, failures = f(ONE, jnp.asarray(NUMBERS))
    message = "string index out of range"
    assert [(x.index, x.kind, x.message) for x in failures] == [(k, "IndexError", message) for k in (2, 3)]
    assert ab.unbatch(results)[:2] == [("b", "ababababab"[: len(ab.unbatch(results)[0][1])]), ("b", "abab")]


def kept_in_memory(w: Any, x: float) -> Any:
    y, rows = w * x, [{}, {}]
    while y < 5.0:
        rows[1 if y > 1.0 else 0]["a" * int(y)] = y
        y = y * 1.5 + 0.3
    return len(rows[0])


REFUSED = [
    (kept_in_memory, "interpret", "put together is kept in a list, dict or object that has memory"),
]


@pytest.mark.parametrize(("function", "backend", "words"), REFUSED)
def test_what_is_refused(function: Callable[..., Any], backend: str, words: str) -> None:
    f = ab.batched(function, in_axes=(None, 0), backend=backend)  # type: ignore[call-overload]
    with pytest.raises(ab.UnsupportedError, match=words):
        f(ONE, jnp.asarray(NUMBERS))


def test_sorted_strings_of_machine_code() -> None:
    f = ab.batched(lambda w, e: sorted(e[0]) if w * e[1] > 1.0 else e[0], in_axes=(None, 0), backend="llvm")
    assert ab.unbatch(f(ONE, SENTENCES)) == f.loop(ONE, SENTENCES)


@LONG
def test_made_strings_of_an_exported_program(tmp_path: Path) -> None:
    f = ab.batched(lambda w, x: "." * int(w * x) + "!", in_axes=(None, 0))
    f.export(tmp_path / "f.program", ONE, NUMBERS)
    assert ab.unbatch(ab.load_exported(tmp_path / "f.program")(ONE, NUMBERS)) == f.loop(ONE, NUMBERS)
