"""Functions of strings under data-dependent control flow: of the examples' words in arms and loops, what fails in them,
and what `try` catches of that; of strings that are put together."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import pytest

import autobatch as ab
from autobatch.testing import assert_same

Example = tuple[str, float]
EXAMPLES: list[Example] = [("the cat", 0.9), ("a", 2.2), ("Dog-12", 0.3), ("42", 3.5), ("", 1.7), ("  xyz ", 0.05)]
ONE = jnp.float32(1.1)


@dataclass
class Token:
    text: str
    score: float


def arms(w: Any, e: Example) -> Any:
    """Functions that fit all strings."""
    s, x = e
    y = w * x
    upper = s.upper() if y > 1.0 else s.replace("a", "oo")
    t = s
    if y > 0.04:
        t = s.strip()
    return upper, t, len(t), s.zfill(8) if y > 1 else s.ljust(8, "."), s.count("a") * x if y > 0.2 else 0.0


def numerals(w: Any, e: Example) -> Any:
    """Functions that fit some, in arms that others do not take, and what `try` catches of them."""
    s, x = e
    y, n = w * x, 0
    if y > 1.0:
        try:
            n = int(s)
        except ValueError:
            n = -1
    try:
        k = s.index("a")
    except ValueError:
        k = -2
    return n, k * y if y > 1 else y, int(s) * x if y > 1.0 and s.isdigit() else x


def characters(w: Any, e: Example) -> Any:
    s, x = e
    y, out = w * x, ""
    for c in s:
        if c.isalpha() and y > 1:
            out += chr((ord(c) - ord("a") + 3) % 26 + ord("a"))
        else:
            out += c
        y *= 1.1
    moved = "".join(chr(ord(c) + 1) if w * x > 1 else c for c in s)
    return out, moved, s[0] if w * x > 2 else "?", "-".join(c.upper() for c in s if y > 1 and c.isalpha())


def longer(w: Any, e: Example) -> Any:
    s, x = e
    y, t, out = w * x, s + "c" if w * x > 1 else s, []
    while y < 5.0:
        out.append(Token(s + "x" * int(y), y))
        y = y * 1.5 + 0.3
    return out, sum(1 for a, b in zip(t, s[1:], strict=False) if a == b), t[::-1], len(set(t)), Counter(t), t == t[::-1]


def parts(w: Any, e: Example) -> Any:
    s, x = e
    y, groups, keys = w * x, defaultdict(list), {}
    for word in s.split():
        if y > 0.5:
            groups[word[0]].append(word + "!")
    if y > 1 and len(s) > 0:
        keys[s + s[0]] = y
    return dict(groups), keys, len(s.split("-")) if y > 1 else 0


def loops(w: Any, e: Example) -> Any:
    """What is the same in every turn of a loop that numbers end, and parts that such a loop reads."""
    s, x = e
    y, n, counts = w * x, 0, {}
    while y < 3.0:
        for part in s.lower().split():
            counts[part] = counts.get(part, 0) + 1
        if s.isdigit() or s.startswith("D"):
            n += len(s.title().split("-"))
        y = y * 1.5 + 0.3
    return counts, n


def rewritten(w: Any, e: Example) -> Any:
    """Of strings that are put together."""
    s, x = e
    t = s + "-b 1" if w * x > 1.0 else s
    try:
        n = int(t[-1:])
    except ValueError:
        n = -1
    return t.title(), t.isdigit(), t.replace("-", "xy"), t.strip(), t.split("-"), n, t.count("a"), t.partition("-")[2]


def formats(w: Any, e: Example) -> Any:
    s, x = e
    n = -7
    while w * x < 5.0:
        n, x = n + 5, x * 1.4 + 0.2
    made = f"{n:03d}|{n:<4}|{n:>+4d}", f"{s:^9}|{n:*^7}|{n!r}"
    return made, "%05d: %-8s%%" % (n, s), str(n).zfill(4), f"{n > 3}"  # noqa: UP031


def orders(w: Any, e: Example) -> Any:
    s, x = e
    y, words = w * x, []
    for word in [*s.split(), "b", "ab", "B"]:
        if y > 0.1:
            words.append(word)
    t = s + "c" if y > 1 else s
    return sorted(words), sorted(words, reverse=True), "".join(sorted(t)), max(t, default="-"), list(dict.fromkeys(t))


def tables(w: Any, e: Example) -> Any:
    """Of words of the examples: with machine code, columns over the vocabulary."""
    s, x = e
    y, n, t = w * x, 0, ""
    try:
        scale = float(s)
    except ValueError:
        scale = 0.5
    while y < 5.0:
        if s.strip().lower().startswith(("a", "do", "th")) or s.isdigit():
            n += len(s.title().split("-"))
        t = t + s.strip().upper()[:1]
        y = y * 1.5 + 0.3
    last = s.split()[-1] if y > 5.0 and s.strip() else s.rpartition("-")[2]
    return n * scale, t, {s.lower(): y}, last, "a" in s, int("1" + s) if y > 5 and s.isdigit() else 0


PROGRAMS = [arms, numerals, characters, longer, loops, parts, rewritten, formats, orders, tables]


@pytest.mark.parametrize("backend", ["interpret", "llvm", pytest.param("xla", marks=pytest.mark.long)])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_agrees_with_the_loop(program: Any, backend: str) -> None:
    f = ab.batched(program, in_axes=(None, 0), backend=backend)
    assert_same(ab.unbatch(f(ONE, EXAMPLES)), f.loop(ONE, EXAMPLES))


@pytest.mark.parametrize("backend", ["interpret", "llvm"])
def test_what_fails_fails_the_examples_that_take_the_arm(backend: str) -> None:
    def f(w: Any, e: Example) -> Any:
        s, x = e
        return (int(s) if w * x > 0.8 else 0), (s[1] if w * x > 3.0 else "")

    g = ab.batched(f, in_axes=(None, 0), backend=backend, on_error="mask")  # type: ignore[call-overload]
    results, failures = g(ONE, EXAMPLES)
    assert [(x.index, x.kind) for x in failures] == [(0, "ValueError"), (1, "ValueError"), (4, "ValueError")]
    assert ab.unbatch(results)[2:4] == [f(ONE, e) for e in EXAMPLES[2:4]]


def test_columns_of_the_vocabulary_are_those_of_each_call() -> None:
    f = ab.batched(tables, in_axes=(None, 0), backend="llvm")
    for batch in (EXAMPLES, EXAMPLES[:1], [("x-y", 0.3), ("7e1", 0.2)]):
        assert_same(ab.unbatch(f(ONE, batch)), f.loop(ONE, batch))


@pytest.mark.parametrize(("function", "words"), [
    (lambda w, e: f"{w * e[1]:.2f}", "strings are made of strings and whole numbers here"),
    (lambda w, e: (e[0] + "a" if w * e[1] > 1 else "b").expandtabs(), r"is looked into: expandtabs\(\)"),
    (lambda w, e: int(e[0] + "1" if w * e[1] > 1 else "b", 16), "a number of another base"),
    (lambda w, e: f"{int(w * e[1]):,}", "formatted with ','"),
])  # fmt: skip
def test_what_is_refused(function: Any, words: str) -> None:
    for backend in ("interpret", "llvm"):
        with pytest.raises(ab.UnsupportedError, match=words):
            ab.batched(function, in_axes=(None, 0), backend=backend)(ONE, EXAMPLES)  # type: ignore[call-overload]


def test_a_capital_sigma_is_not_put_into_lower_case() -> None:
    f = ab.batched(lambda w, e: (e[0] + "!" if w * e[1] > 1 else e[0]).lower(), in_axes=(None, 0), backend="llvm")
    with pytest.raises(ab.ExampleError, match="NotImplementedError: lower.. of a capital sigma"):
        f(ONE, [("\u03a3a", 2.0)])
