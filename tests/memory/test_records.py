"""Dicts that are used as records agree with plain Python where numbers decide."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autobatch as ab
from autobatch.testing.programs import load
from tests.memory.pairs import W, X, check_numbers
from tests.memory.records import PROGRAMS, RESULTS, under_two_names

BACKENDS = ("interpret", "xla", "llvm")


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_values(program: Callable[..., Any]) -> None:
    check_numbers(ab.batched(program, in_axes=(None, 0)), "interpret", False)


@pytest.mark.long
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_gradients(program: Callable[..., Any], backend: str) -> None:
    check_numbers(ab.batched(program, in_axes=(None, 0)), backend, True)


# ---- random programs

HEAD = """
import autobatch as ab

@ab.batched(in_axes=(None, 0))
def main(w, x):
    a = {"n": 0, "s": w, "v": None}
    b = {"n": 3, "s": x, "v": x}
    out = [a, b, dict(n=1, s=0.5, v=w)]
    s, k = w, 0
    while x < 3.0:
        x = x * 1.3 + 0.3
        k = k + 1
        out[k % 3]["n"] += 1
"""
TAIL = """
    for j, row in enumerate(out):
        s = s * 0.9 + row["s"] * (j + row["n"]) + (0.3 if row["v"] is None else row["v"])
    return s + a["s"] * b["n"] + len(out)
"""
STATEMENTS = (
    '{u}["s"] = x * w',
    '{u}["n"] += k',
    '{u}["v"] = None if k % 2 else x',
    "{u} = out[k % 3]",
    '{u} = {{"n": k, "s": x, "v": w}}',
    "out[k % 3] = {u}",
    "out.append({u})",
    "{u}.update({v})",
    '{u}.update(s=x, n={v}["n"] + 1)',
    "{u} = {v}.copy()",
    "{u} = dict({v}, n=7)",
    '{u} = {{**{v}, "s": {u}["s"] + 1.0}}',
    "if {u} is {v}:\n    s = s + 0.5 * x",
    "if {u} == {v}:\n    s = s * 0.7",
    'if "n" in {u} and "k" not in {u}:\n    s = s + {u}.get("s") + {u}.get("k", w)',
    'for key, y in {u}.items():\n    if key == "n":\n        {v}["s"] = x\n    else:\n        s = s + (y or 0.0)',
    'for r in out:\n    r["s"] = r["s"] * 0.5 + w',
    's = s + max(out, key=lambda r: r["s"])["n"]',
    's = s + sum(r["s"] * r["n"] for r in out if r["v"] is not None)',
    'out = sorted(out, key=lambda r: (r["n"], r["s"]))',
    '{u}["s"], {v}["s"] = {v}["s"], {u}["s"]',
    'for key in ("n", "s"):\n    s = s + {u}[key] * 0.1',
)


@st.composite
def sources(draw: st.DrawFn) -> str:
    """A program whose turns change records under several names."""
    names = st.sampled_from("ab")
    drawn = draw(st.lists(st.tuples(st.sampled_from(STATEMENTS), names, names), min_size=2, max_size=5))
    lines = [line for text, u, v in drawn for line in text.format(u=u, v=v).splitlines()]
    return HEAD + "".join(f"        {line}\n" for line in lines) + TAIL


@pytest.mark.long
@settings(max_examples=15)
@given(source=sources(), backend=st.sampled_from(BACKENDS))
def test_random_records(source: str, backend: str) -> None:
    check_numbers(load(source), backend, False)


# ---- results


def rounded(value: Any) -> Any:
    """The same with numbers that can be compared, and the classes of containers."""
    if isinstance(value, dict):
        return type(value).__name__, {k: rounded(y) for k, y in value.items()}
    if isinstance(value, list | tuple):
        return type(value).__name__, [rounded(y) for y in value]
    return value if value is None or isinstance(value, int | str) else round(float(value), 3)


@pytest.mark.parametrize("backend", ["interpret", "llvm"])
@pytest.mark.parametrize("program", RESULTS, ids=lambda p: p.__name__)
def test_results(program: Callable[..., Any], backend: str) -> None:
    f = ab.batched(program, in_axes=(None, 0), backend=backend)  # type: ignore[call-overload]
    found = ab.unbatch(f(W, X))
    assert list(map(repr, map(rounded, found))) == [repr(rounded(program(W, float(x)))) for x in X]


def test_what_is_one_dict_comes_back_as_one() -> None:
    for first, rows, held in ab.unbatch(ab.batched(under_two_names, in_axes=(None, 0), backend="llvm")(W, X)):
        assert first is rows[0] and held["a"] is rows[1]


# ---- what is no record


def computed_keys(w: Any, x: Any) -> Any:
    """All values are of one type, so these are dicts as others are."""
    rows: list[dict[Any, Any]] = [{0: w, 1: x}, {0: x}]
    while x < 3.0:
        x = x * 1.3 + 0.2
        rows[int(x) % 2][int(x)] = x
    return sum(rows[0].values()) + len(rows[1])


def test_computed_keys_make_other_dicts() -> None:
    check_numbers(ab.batched(computed_keys, in_axes=(None, 0)), "llvm", False)


def test_keys_that_are_added_to_values_of_other_types_are_refused_by_name() -> None:
    def adds(w: Any, x: Any) -> Any:
        rows = [{"n": jnp.ones(3), "s": w}]
        while x < 3.0:
            x = x * 1.3 + 0.2
            rows[0]["k"] = 5
        return rows[0]["s"]

    with pytest.raises(ab.TypeConflictError, match="the key .k. is added in line 1..: the keys or the values of dicts"):
        ab.batched(adds, in_axes=(None, 0))(W, X)


def misses(w: Any, x: Any) -> Any:
    rows: list[dict[str, Any]] = [{"n": 0, "s": w}]
    while x < 3.0:
        x = x * 1.3 + 0.2
        rows[0]["n"] += 1
    return rows[0]["k"] if x > 3.5 else rows[0]["s"] + rows[0]["n"]


@pytest.mark.parametrize("backend", ["interpret", "llvm"])
def test_failures(backend: str) -> None:
    f = ab.batched(misses, in_axes=(None, 0), backend=backend)  # type: ignore[call-overload]
    failed = 0
    for x in X:
        try:
            wanted = float(misses(W, float(x)))
        except KeyError:
            failed += 1
            with pytest.raises(ab.ExampleError, match="KeyError: 'k'"):
                f(W, x[None])
        else:
            assert float(f(W, x[None])[0]) == pytest.approx(wanted, rel=1e-5)
    assert failed
