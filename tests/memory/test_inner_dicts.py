"""Dicts in dicts, lists and objects that are changed where numbers decide agree with plain Python."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autobatch as ab
from autobatch.testing.programs import load
from tests.memory.inner_dicts import PROGRAMS
from tests.memory.pairs import W, X, check_numbers

BACKENDS = ("interpret", "xla", "llvm")
COMMON = ("bigrams", "by_set_default", "aliases", "taken_out", "of_object")


@pytest.mark.parametrize("program", [p for p in PROGRAMS if p.__name__ in COMMON], ids=lambda p: p.__name__)
def test_values(program: Callable[..., Any]) -> None:
    check_numbers(ab.batched(program, in_axes=(None, 0)), "interpret", False)


@pytest.mark.long
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_gradients(program: Callable[..., Any], backend: str) -> None:
    check_numbers(ab.batched(program, in_axes=(None, 0)), backend, True)


# ---- random programs

HEAD = """
from collections import Counter, defaultdict
import autobatch as ab

@ab.batched(in_axes=(None, 0))
def main(w, x):
    a = {0: w, 3: 0.5}
    b = {1: x}
    out = {0: a, 1: b, 2: {}}
    sums = defaultdict(lambda: defaultdict(float))
    counts = defaultdict(Counter)
    s, k = w, 0
    while x < 3.0:
        x = x * 1.3 + 0.3
        k = k + 1
        out[2][9] = w
"""
TAIL = """
    for key, row in out.items():
        for j, v in row.items():
            s = s * 0.9 + v * (j + key + 1)
    for key in sums:
        s = s + sum(sums[key].values()) + len(sums[key])
    for more in counts.values():
        for j, c in more.items():
            s = s * 0.5 + j * c
    return s + sum(a.values()) * 0.3 + len(b)
"""
STATEMENTS = (
    "{u}[k % 3] = x * w",
    "{u} = out[k % 3]",
    "{u} = {{k: x, 9: w}}",
    "out[k % 3] = {u}",
    "out[1][k] = {u}.get(k - 1, w)",
    "if k - 1 in {u}:\n    {u}[k - 1] *= 0.5",
    "if 0 in {u}:\n    del {u}[0]",
    "s = s + {u}.pop(k % 4, x)",
    "s = s + out[k % 3].setdefault(k, x)",
    "{u}.update({v})",
    "{u} = {v}.copy()",
    "{u} = {v} | {{k: w}}",
    "if {u} is {v}:\n    s = s + 0.5 * x",
    "if {u} == {v}:\n    s = s * 0.7",
    "if len({u}) > 4:\n    {u}.clear()",
    "if {u}:\n    s = s + {u}.popitem()[1]",
    "sums[k % 2][k % 3] += x",
    "s = s + sums[0][k]",
    "counts[k % 2][int(x * 3.0) % 3] += 1",
    "s = s + counts[0][k] * x",
    "for j in {u}:\n    {u}[j] = {u}[j] * 0.5 + w",
    "for j, y in {u}.items():\n    if y > 2.0:\n        s = s + j\n        break\n    {v}[0 if 0 in {v} else j] = w",
    "s = s + max({u}.values(), default=0.0) * 0.1",
    "s = s + sum(y * j for j, y in out[k % 3].items())",
)


@st.composite
def sources(draw: st.DrawFn) -> str:
    """A program whose turns change dicts under several names."""
    names = st.sampled_from("ab")
    drawn = draw(st.lists(st.tuples(st.sampled_from(STATEMENTS), names, names), min_size=2, max_size=5))
    lines = [line for text, u, v in drawn for line in text.format(u=u, v=v).splitlines()]
    return HEAD + "".join(f"        {line}\n" for line in lines) + TAIL


@pytest.mark.long
@settings(max_examples=15)
@given(source=sources(), backend=st.sampled_from(BACKENDS))
def test_random_dicts(source: str, backend: str) -> None:
    check_numbers(load(source), backend, False)


# ---- failures


def misses(w: Any, x: Any) -> Any:
    held: dict[int, dict[int, Any]] = {0: {}, 1: {7: w}}
    k = 0
    while x < 3.0:
        x = x * 1.3 + 0.2
        held[k % 2][k] = x
        k = k + 1
    return held[0][2] + held[1][7]


def misses_of_counter(w: Any, x: Any) -> Any:
    """Reading a counter makes no key; of a defaultdict it does."""
    counts: Any = defaultdict(Counter)
    sums: Any = defaultdict(lambda: defaultdict(float))
    while x < 3.0:
        x = x * 1.3 + 0.2
        counts[0][int(x)] += 1
        sums[0][int(x)] += x
    a = counts[0][9] + sums[0][9] * w + counts[5][1]
    return a + len(counts[0]) * 100 + len(sums[0]) * 10_000 + len(counts)


def grows_under_its_loop(w: Any, x: Any) -> Any:
    held: dict[int, dict[int, Any]] = {0: {0: w, 1: x}}
    while x < 3.0:
        x = x * 1.3 + 0.2
        for j in held[0]:
            if x > 2.9:
                held[0][j + 10] = x
    return sum(held[0].values())


def grows_and_is_left(w: Any, x: Any) -> Any:
    held: dict[int, dict[int, Any]] = {0: {0: w, 1: x}}
    while x < 3.0:
        x = x * 1.3 + 0.2
        for j, y in held[0].items():
            if x > 2.0:
                held[0][j + 10] = x + y
                break
    return sum(held[0].values())


def grows_and_is_not_left(w: Any, x: Any) -> Any:
    held: dict[int, dict[int, Any]] = {0: {0: w, 1: x}}
    while x < 3.0:
        x = x * 1.3 + 0.2
        for j, y in enumerate(held[0].values()):
            if x > 2.0:
                held[0][j + 10] = x + y
            if x > 2.6:
                break
    return sum(held[0].values())


FAILURES = (misses, misses_of_counter, grows_under_its_loop, grows_and_is_left, grows_and_is_not_left)


@pytest.mark.parametrize("backend", ["interpret", "llvm"])
@pytest.mark.parametrize("program", FAILURES, ids=lambda p: p.__name__)
def test_failures(program: Callable[..., Any], backend: str) -> None:
    """Each example fails, or not, as plain Python does."""
    f = ab.batched(program, in_axes=(None, 0), backend=backend)  # type: ignore[call-overload]
    failed = 0
    for x in X:
        try:
            wanted = float(program(W, float(x)))
        except (KeyError, RuntimeError) as error:
            failed += 1
            with pytest.raises(ab.ExampleError, match=type(error).__name__):
                f(W, x[None])
        else:
            assert float(f(W, x[None])[0]) == pytest.approx(wanted, rel=1e-5)
    assert failed == (0 if program in (misses_of_counter, grows_and_is_left) else failed)


def returns_them(w: Any, x: Any) -> Any:
    held: dict[int, dict[int, Any]] = {0: {}, 1: {}}
    while x < 3.0:
        x = x * 1.3 + 0.2
        held[int(x) % 2][int(x)] = x * w
    return held


def returns_counters(w: Any, x: Any) -> Any:
    counts: Any = defaultdict(Counter)
    while x < 3.0:
        x = x * 1.3 + 0.2
        counts[int(x) % 2][int(x * 3.0) % 3] += 1
    return counts, counts[1], [counts[0]]


@pytest.mark.parametrize("backend", ["interpret", "llvm"])
@pytest.mark.parametrize("program", [returns_them, returns_counters], ids=lambda p: p.__name__)
def test_results(program: Callable[..., Any], backend: str) -> None:
    f = ab.batched(program, in_axes=(None, 0), backend=backend)  # type: ignore[call-overload]
    for found, x in zip(ab.unbatch(f(W, X)), X, strict=True):
        wanted = program(W, float(x))
        assert repr(rounded(found)) == repr(rounded(wanted))


def rounded(value: Any) -> Any:
    if isinstance(value, dict):
        items = {k: rounded(y) for k, y in value.items()}
        return type(value).__name__, items
    if isinstance(value, list | tuple):
        return type(value)(map(rounded, value))
    return value if isinstance(value, int) else round(float(value), 3)


def test_views_that_are_kept_are_refused() -> None:
    def keeps(w: Any, x: Any) -> Any:
        held = {0: {0: w}}
        seen = held[0].values()
        while x < 3.0:
            x = x * 1.3 + 0.2
            held[0][int(x)] = x
        return sum(seen)

    with pytest.raises(ab.UnsupportedError, match="a view of a dict that is changed is kept"):
        ab.batched(keeps, in_axes=(None, 0))(W, X)


def reads_missing(row: Any, k: Any) -> Any:
    base = 100.0
    return row[k] + base


def test_a_factory_that_reads_variables_is_refused() -> None:
    """It was called where the dict was read, and read the variables of that function."""

    def defaults(w: Any, x: Any) -> Any:
        base = 2.0 * w
        held: Any = defaultdict(lambda: defaultdict(lambda: base))
        while x < 3.0:
            x = x * 1.3 + 0.2
            held[0][int(x)] += x
        return reads_missing(held[0], 7)

    with pytest.raises(ab.UnsupportedError, match="its factory reads variables of a function"):
        ab.batched(defaults, in_axes=(None, 0))(W, X)
