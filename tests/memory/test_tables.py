"""Dicts, sets and queues that computed numbers change: any sequence of operations, aliases, arms, failures."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autobatch as ab
from autobatch.call import plain
from autobatch.testing import Tree, check_equivalence
from autobatch.testing.programs import typical_tree
from tests.memory.programs import TABLES, program

BACKENDS = ("interpret", "xla", "llvm")
LONG = pytest.mark.long
BATCH = [[0.9, 0.4, -0.7], [3.1, 0.3, 0.8], [0.61, 0.2, 0.3]]
ONE = jnp.float32(1.0)


def check(f: Any, batch: Any, backends: Any = BACKENDS, grads: bool = True) -> None:
    f = ab.batched(f, in_axes=(None, 0))
    check_equivalence(f, batch, (jnp.float32(1.1),), grads=grads, backends=backends, jit=False, tolerance=2e-5)


@pytest.mark.parametrize("name", ["dict_get", "dict_tuple"])
def test_programs_whose_numbers_decide(name: str) -> None:
    program = next(p for p in TABLES if p.name == name)
    check_equivalence(
        program.load("computed"), BATCH, (jnp.float32(1.1),), backends=("interpret",), jit=False, tolerance=2e-5
    )


# ---- any sequence of operations

ROUNDS = 8
CODES = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 3)), min_size=1, max_size=ROUNDS)


def padded(batch: list[list[tuple[int, int]]]) -> list[Any]:
    return [np.array([*codes, *[(-1, 0)] * (ROUNDS - len(codes))], np.int32) for codes in batch]


def run_dict(w: Any, codes: Any) -> Any:
    """Operations on a dict, one for each pair of a code and a key; numbers decide which."""
    d, total, n = {7: w}, w, 0
    while n < codes.shape[0] and codes[n, 0] * w >= 0.0:
        code, k = codes[n, 0] * w, int(codes[n, 1])
        if code < 0.5:
            d[k] = total * 0.5
        elif code < 1.5:
            d[k] = d.get(k, 0.5) + total
        elif code < 2.5:
            total = total * 0.5 + (d[k] if k in d else w)
        elif code < 3.5:
            total = total + d.pop(k, 0.25 * w)
        elif code < 4.5:
            if k in d:
                del d[k]
        elif code < 5.5:
            total = total * 0.5 + d.setdefault(k, 2.0 * w)
        elif code < 6.5:
            for key, value in d.items():
                total = total * 0.5 + value * (key + 1)
        elif code < 7.5:
            d.update({k: w, 9: total})
        else:
            d = {key: value * 0.5 for key, value in d.items() if key != k}
        n = n + 1
    for value in d.values():
        total = total * 0.5 + value
    return total + sum(d.keys()) + len(d)


@settings(max_examples=4)
@given(batch=st.lists(CODES, min_size=3, max_size=3))
def test_any_sequence_of_dict_operations(batch: list[list[tuple[int, int]]]) -> None:
    f = ab.batched(run_dict, in_axes=(None, 0))
    check_equivalence(f, padded(batch), (ONE,), backends=("llvm",), jit=False, grads=False, tolerance=2e-5)


@LONG
@settings(max_examples=5)
@given(batch=st.lists(CODES, min_size=2, max_size=2))
def test_any_sequence_of_dict_operations_and_derivatives(batch: list[list[tuple[int, int]]]) -> None:
    f = ab.batched(run_dict, in_axes=(None, 0))
    check_equivalence(f, padded(batch), (ONE,), backends=("interpret", "xla"), jit=False, tolerance=2e-5)


MEMBERS = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 3)), min_size=1, max_size=ROUNDS)


def run_set(w: Any, codes: Any) -> Any:
    """Operations on a set, a counter and a dict with a default, one for each pair of a code and an element."""
    a, b, total, n = {7}, {1, 2}, w, 0
    count, sums = Counter(), defaultdict(float)
    alias = a
    while n < codes.shape[0] and codes[n, 0] * w >= 0.0:
        code, k = codes[n, 0] * w, int(codes[n, 1])
        if code < 0.5:
            a.add(k)
        elif code < 1.5:
            a.discard(k)
        elif code < 2.5:
            b = b | {k, 5}
        elif code < 3.5:
            a -= b
        elif code < 4.5:
            total = total * 0.5 + len(a & b) + len(a ^ b) + (2.0 if a <= b else 1.0) + (3.0 if k in b else 0.0)
        elif code < 5.5:
            count[k] += 1
            sums[k] += total
        elif code < 6.5:
            total = total * 0.5 + sums[k] + count[k]
        else:
            b = {x + 1 for x in sorted(b) if x != k}
        n = n + 1
    for value in sums.values():
        total = total * 0.5 + value
    return total + sum(alias) + 2.0 * sum(b) + len(sums) + sum(count.values()) + (1.0 if a == b else 0.0)


@settings(max_examples=4)
@given(batch=st.lists(MEMBERS, min_size=3, max_size=3))
def test_any_sequence_of_set_operations(batch: list[list[tuple[int, int]]]) -> None:
    f = ab.batched(run_set, in_axes=(None, 0))
    check_equivalence(f, padded(batch), (ONE,), backends=("llvm",), jit=False, grads=False, tolerance=2e-5)


@LONG
@settings(max_examples=5)
@given(batch=st.lists(MEMBERS, min_size=2, max_size=2))
def test_any_sequence_of_set_operations_and_derivatives(batch: list[list[tuple[int, int]]]) -> None:
    f = ab.batched(run_set, in_axes=(None, 0))
    check_equivalence(f, padded(batch), (ONE,), backends=("interpret", "xla"), jit=False, tolerance=2e-5)


QUEUES = st.lists(st.tuples(st.integers(0, 9), st.integers(-2, 3)), min_size=1, max_size=ROUNDS)


def run_deque(w: Any, codes: Any) -> Any:
    """Operations on two deques, one of which keeps three elements at most; numbers decide which."""
    q, last, total, n = deque([w, 2.0]), deque(maxlen=3), w, 0
    while n < codes.shape[0] and codes[n, 0] * w >= 0.0:
        code, place = codes[n, 0] * w, int(codes[n, 1])
        if code < 0.5:
            q.append(total * 0.5)
        elif code < 1.5:
            q.appendleft(total + 1.0)
        elif code < 2.5:
            total = total + q.popleft()
        elif code < 3.5:
            total = total * 0.5 + q.pop()
        elif code < 4.5:
            q.rotate(place)
        elif code < 5.5:
            q.extend([w, total])
        elif code < 6.5:
            last.append(total)
        elif code < 7.5:
            last.appendleft(w)
            last.extend([total, 0.5])
        elif code < 8.5:
            q[place] = total
        else:
            for x in q:
                total = total * 0.5 + x
        n = n + 1
    for x in last:
        total = total * 0.5 + x
    return total + sum(q) + len(q) + 2.0 * len(last)


@settings(max_examples=4)
@given(batch=st.lists(QUEUES, min_size=3, max_size=3))
def test_any_sequence_of_deque_operations(batch: list[list[tuple[int, int]]]) -> None:
    f = ab.batched(run_deque, in_axes=(None, 0))
    check_equivalence(f, padded(batch), (ONE,), backends=("llvm",), jit=False, grads=False, tolerance=2e-5)


@LONG
@settings(max_examples=5)
@given(batch=st.lists(QUEUES, min_size=2, max_size=2))
def test_any_sequence_of_deque_operations_and_derivatives(batch: list[list[tuple[int, int]]]) -> None:
    f = ab.batched(run_deque, in_axes=(None, 0))
    check_equivalence(f, padded(batch), (ONE,), backends=("interpret", "xla"), jit=False, tolerance=2e-5)


# ---- names, arms, parts of other containers


@dataclass(frozen=True)
class Held:
    """A program as those of `programs.py`: what it starts with, what a turn does, what it returns."""

    name: str
    setup: str
    turn: str
    result: str


HELD = (
    Held("two_names_and_an_operator", "a = {7}\nb = a", "a |= {k}", "w * len(b) + sum(b)"),
    Held("two_names_of_a_deque", "d = collections.deque([w])\ne = d", "d.append(y)", "sum(e)"),
    Held(
        "breadth_first",
        "d = collections.deque([1])\nn = w",
        "while d:\n    a = d.popleft()\n    n = n * 0.5 + y * a\n"
        "    if a < 8:\n        d.append(2 * a)\n        d.append(2 * a + 1)\nd.append(1)",
        "n",
    ),
    Held("filled_in_a_loop", "d = collections.deque()", "for j in range(k):\n    d.append(y * j)", "sum(d) + w"),
    Held(
        "read_in_a_loop",
        "d = collections.defaultdict(float)\nn = w",
        "out = []\nfor j in range(k):\n    out.append(d[j] + y)\nn = n + sum(out)",
        "len(d) * n",
    ),
    Held("two_names_of_a_list", "a = [w]\nb = a", "a += [y]", "w * len(b) + sum(b)"),
    Held("two_names", "d = {}\ne = d", "d[k % 2] = y", "len(e) * w + sum(e.values())"),
    Held("two_names_of_a_set", "a = set()\nb = a", "a.add(k % 3)", "w * len(b) + sum(b)"),
    Held(
        "a_copy", "d = {1: w}\ne = d.copy()", "e = d.copy()\nd[k] = y\ne[9] = w", "len(e) * w + 3.0 * sum(d.values())"
    ),
    Held("one_arm", "d = {}\nn = w", "if y > 1.0:\n    d[k] = y\nelse:\n    n = n + len(d)", "n + sum(d.values()) * w"),
    Held(
        "in_a_tuple", "p = ({}, w)", "d, r = p\nd = dict(d)\nd[k % 2] = y\np = (d, r + y)", "p[1] + sum(p[0].values())"
    ),
    Held(
        "by_a_function", "put = lambda t, key, x: {**t, key: x}\nd = {}", "d = put(d, k % 2, y)", "sum(d.values()) * w"
    ),
    Held("tuples", "d = {0: (w, 1)}", "a, n = d[0]\nd[0] = (a * 0.5 + y, n + 1)\nd[k] = (y, k)", "d[0][0] * d[0][1]"),
    Held(
        "vectors",
        "d = {0: jnp.ones(3) * w}",
        "d[k % 3] = jnp.tanh(d[0] + y)",
        "jnp.sum(d[0]) + jnp.sum(d.get(1, d[0]))",
    ),
    Held("equal", "d = {}\ne = {}\nn = w", "d[k % 2] = k\ne[k % 2] = k\nif d == e:\n    n = n + y", "n"),
    Held(
        "last",
        "d = {0: w}",
        "d[k] = y\nif k > 1:\n    key, x = d.popitem()\n    y = y + 0.1 * key * x",
        "sum(d.values()) * w",
    ),
    Held("lists", "d = {}", "d[k % 3] = [y, w]", "sum(x[0] for x in d.values()) + w"),
    Held("largest", "d = {0: w}", "d[k % 3] = y", "max(d.values()) + max(d, key=d.get) + sorted(d)[-1]"),
    Held(
        "common",
        "c = collections.Counter()",
        "c[k % 3] += 2\nc.update([k % 2, 1])",
        "w * c[0] + c[5] + sum(c.values())",
    ),
)


@pytest.mark.parametrize("backend", ["llvm", *(pytest.param(b, marks=LONG) for b in ("interpret", "xla"))])
@pytest.mark.parametrize("held", HELD, ids=lambda x: x.name)
def test_where_a_container_is_held(held: Held, backend: str) -> None:
    f = program(held.name, held.setup, held.turn, held.result).load("computed")
    grads = backend != "llvm"  # which leaves them to XLA
    check_equivalence(f, BATCH, (jnp.float32(1.1),), grads=grads, backends=(backend,), jit=False, tolerance=2e-5)


REFUSED = (
    ("d = collections.defaultdict(float)", "z = [d[j] + y for j in range(3)]", "len(d) * w", "in a comprehension"),
    ("d = {0: w}\nv = d.values()", "d[k] = y", "sum(v)", "a view of a dict, read after"),
    ("a = {0}\nn = w", "a.add(k)\nfor x in a:\n    n = n * 0.5 + x", "n", "the order of a set is not kept"),
    ("d = {}", "d[y] = 1.0", "w", "an array has no hash"),
    ("d = {}", "d[[k]] = 1.0", "w", "has no hash"),
)


@pytest.mark.parametrize(("setup", "turn", "result", "words"), REFUSED)
def test_what_is_refused(setup: str, turn: str, result: str, words: str) -> None:
    f = program("refused", setup, turn, result).load("computed")
    with pytest.raises((ab.UnsupportedError, ab.TypeConflictError), match=words):
        f(ONE, BATCH)


def test_a_loop_that_changes_the_keys_of_its_dict_fails() -> None:
    f = program("changed", "d = {0: w}\nn = w", "for q in d:\n    n = n + d[q]\n    d[q + 1] = y", "n").load("computed")
    with pytest.raises(ab.ExampleError) as failed:
        f.with_settings(backend="llvm")(ONE, BATCH)
    assert {(x.kind, x.message) for x in failed.value.failures} == {
        ("RuntimeError", "dictionary changed size during iteration")
    }


def counts_below(w: Any, t: Tree) -> Any:
    seen = Counter(t.ns)
    seen[len(t.kids)] += 1
    below = [counts_below(w, c) for c in t.kids]
    return sum(below) + (w * seen[1] if t.n / 4 > 0.1 else w)


@pytest.mark.filterwarnings("ignore::autobatch.StructureWarning")
def test_in_a_recursion_over_structure() -> None:
    """Machine code has memory for them in each call. Rows that the host plans have none: there they are traced."""
    f, by_xla = (ab.batched(counts_below, in_axes=(None, 0), backend=backend) for backend in ("auto", "xla"))
    batch = [typical_tree(), typical_tree().kids[0]]
    np.testing.assert_allclose(f(ONE, batch), f.loop(ONE, batch), rtol=1e-6)
    with pytest.raises(ab.UnsupportedError, match=r"test_tables.py:\d+:\d+: a dict or set (.|\n)* in a recursion"):
        by_xla(ONE, batch)
    with ab.options(trace=True):
        np.testing.assert_allclose(by_xla(ONE, batch), f.loop(ONE, batch), rtol=1e-6)


# ---- failures


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_key_that_is_missing_fails_its_example_alone(backend: str) -> None:
    def missing(w: Any, x: Any) -> Any:
        d, y, k = {0: w}, w * x, 0
        while y < 3.0:
            y = y + 1.0
            k = k + 1
            d[k] = y
        return d[2] * 2.0

    f = ab.batched(missing, in_axes=(None, 0), backend=backend)
    with pytest.raises(ab.ExampleError) as failed:
        f(ONE, np.array([0.5, 1.5, 2.5, 7.5], np.float32))
    assert [(x.index, x.kind, x.message) for x in failed.value.failures] == [(2, "KeyError", "2"), (3, "KeyError", "2")]
    assert failed.value.failures[0].span.line == missing.__code__.co_firstlineno + 6


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_computed_key_shows_in_the_words(backend: str) -> None:
    def missing(w: Any, x: Any) -> Any:
        d, y, k = {0: w}, w * x, 0
        while y < 3.0:
            y, k = y + 1.0, k + 1
            d[k] = y
        return d[k + 1] if k > 1 else d[k]

    f = ab.batched(missing, in_axes=(None, 0), backend=backend)
    with pytest.raises(ab.ExampleError, match="KeyError: 4") as failed:
        f(ONE, np.array([0.5, 1.5, 2.5, 7.5], np.float32))
    assert [(x.index, x.kind, x.message) for x in failed.value.failures] == [(0, "KeyError", "4"), (1, "KeyError", "3")]


def test_words_that_take_python_too_long_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain, "SECONDS", 0.0)

    def missing(w: Any, x: Any) -> Any:
        d, y, k = {0: w}, w * x, 0
        while y < 30.0:
            y, k = y + 1.0, k + 1
        return d[k]

    f = ab.batched(missing, in_axes=(None, 0), backend="llvm")
    with pytest.raises(ab.ExampleError) as failed:
        f(ONE, np.array([0.5, 31.0], np.float32))
    assert [(x.index, x.kind, x.message) for x in failed.value.failures] == [(0, "KeyError", "<...>")]


def test_structure_alone_decides_and_a_number_is_asked_for() -> None:
    """No trace knows what `int(x)` is, so the dict has memory."""

    def f(w, xs):
        found = {k % 3: x * w for k, x in enumerate(xs)}
        return found.get(1, 0.5) + w, int(xs[0] * 3.0) + len(found)

    xs = [[0.9, 0.4, -0.7, 1.3, 2.1], [0.5, 1.7], [1.4]]
    with ab.options(trace=True):
        check_equivalence(f, xs, (jnp.float32(1.1),), backends=("interpret", "llvm"), jit=False)
