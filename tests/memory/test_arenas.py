"""Data-dependent lists: what programs do with stacks and queues, room that grows, and failures."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autobatch as ab
from autobatch.call import prepared
from autobatch.ir.printer import print_module
from autobatch.passes import arenas
from autobatch.passes.arena_memory import stores_behind_branches
from autobatch.testing import Tree, check_equivalence
from autobatch.testing.programs import typical_tree
from tests.memory.programs import PROGRAMS

BACKENDS = ("interpret", "xla", "llvm")
LONG = pytest.mark.long
COMMON = ("pop_branch", "item_assignment", "tuple_pop", "insert")


@pytest.mark.parametrize("program", [p for p in PROGRAMS if p.name in COMMON], ids=lambda p: p.name)
def test_programs_whose_numbers_decide(program: Any) -> None:
    batch = [[0.9, 0.4, -0.7], [3.1, 0.3, 0.8], [0.61, 0.2, 0.3]]
    check_equivalence(program.load("computed"), batch, (jnp.float32(1.1),), backends=("interpret",), tolerance=2e-5)


# ---- programs


def parse(p: Any, words: Any) -> Any:
    """A shift-reduce parser: a score of the two vectors on top of the stack decides whether they are composed."""
    stack, position, reductions = [p["start"]], 0, 0
    while position < words.shape[0] or len(stack) > 1:
        is_reduced = position >= words.shape[0]
        if len(stack) > 1 and position < words.shape[0]:
            is_reduced = jnp.dot(p["score"], jnp.concatenate([stack[-2], stack[-1]])) > 0.0
        if is_reduced:
            right = stack.pop()
            left = stack.pop()
            stack.append(jnp.tanh(p["left"] @ left + p["right"] @ right))
            reductions = reductions + 1
        else:
            stack.append(words[position])
            position = position + 1
    return jnp.sum(stack[0]) + 0.1 * reductions


def machine(p: Any, program: list[float]) -> Any:
    """An interpreter of a stack machine: numbers are pushed, codes from 10 on are operations."""
    stack = [p["scale"]]
    for code in program:
        word = code * p["one"]
        if word < 9.5:
            stack.append(word * 0.1)
        elif word < 10.5:
            stack.append(stack.pop() + stack.pop())
        elif word < 11.5:
            stack.append(stack.pop() * stack.pop())
        else:
            stack.append(stack[-1])
    return stack.pop() + len(stack)


def distance(p: Any, a: list[float], b: list[float]) -> Any:
    """The edit distance of two lists of numbers that are near or not, row by row."""
    row = [float(k) for k in range(len(b) + 1)]
    for x in a:
        above = row[0]
        row[0] = row[0] + 1.0
        for k in range(len(b)):
            change = above + p["cost"] * (x - b[k]) * (x - b[k])
            above = row[k + 1]
            least = change
            if row[k + 1] + 1.0 < least:
                least = row[k + 1] + 1.0
            if row[k] + 1.0 < least:
                least = row[k] + 1.0
            row[k + 1] = least
    return row[-1]


def parameters() -> dict[str, Any]:
    rng = np.random.default_rng(1)
    shapes = {"start": (3,), "score": (6,), "left": (3, 3), "right": (3, 3)}
    made = {name: jnp.asarray(rng.normal(size=shape), jnp.float32) for name, shape in shapes.items()}
    return made | {name: jnp.float32(x) for name, x in (("scale", 1.3), ("one", 1.0), ("cost", 0.7))}


@pytest.mark.parametrize("backend", ["llvm", "xla", pytest.param("interpret", marks=LONG)])
def test_a_parser_whose_scores_decide(backend: str) -> None:
    words = [np.random.default_rng(k).normal(size=(6, 3)).astype(np.float32) for k in range(5)]
    check_equivalence(parse, words, (parameters(),), backends=(backend,), jit=False, tolerance=2e-5)


@pytest.mark.parametrize("backend", ["llvm", *(pytest.param(b, marks=LONG) for b in ("interpret", "xla"))])
def test_an_interpreter_of_a_stack_machine(backend: str) -> None:
    programs = [[3.0, 4.0, 10.0, 12.0, 11.0], [2.0, 12.0, 11.0, 10.0], [10.0, 1.0], [5.0], [], [1.0, 10.0, 10.0]]
    grads = backend != "llvm"  # which leaves them to XLA
    check_equivalence(machine, programs, (parameters(),), grads=grads, backends=(backend,), jit=False, tolerance=2e-5)


@pytest.mark.parametrize("backend", ["llvm", *(pytest.param(b, marks=LONG) for b in ("interpret", "xla"))])
def test_edit_distance(backend: str) -> None:
    f = ab.batched(distance, in_axes=(None, 0, 0))
    pairs = [([0.1, 1.0, 2.2], [0.3, 2.0]), ([0.5], [0.4, 1.5, 0.2]), ([], [1.0]), ([2.0, 3.1], [])]
    grads = backend != "llvm"
    check_equivalence(f, pairs, (parameters(),), grads=grads, backends=(backend,), jit=False, tolerance=2e-5)


# ---- any program of stack operations

CODES = st.lists(st.tuples(st.integers(0, 7), st.integers(-3, 3)), min_size=1, max_size=9)


def run(w: Any, codes: Any) -> Any:
    """Operations on a list, one for each pair of a code and a place; numbers decide which."""
    xs, total, k = [w, 2.0], w, 0
    while k < codes.shape[0] and codes[k, 0] * w >= 0.0:
        code, place = codes[k, 0] * w, codes[k, 1]
        if code < 0.5:
            xs.append(total * 0.5)
        elif code < 1.5:
            total = total + xs.pop()
        elif code < 2.5:
            total = total * 0.5 + xs[place]
        elif code < 3.5:
            xs[place] = total + 1.0
        elif code < 4.5:
            xs.insert(place, total)
        elif code < 5.5:
            xs = xs[place:]
        elif code < 6.5:
            xs.reverse()
        else:
            xs.extend([total, w])
        k = k + 1
    return total + sum(xs) + len(xs)


@settings(max_examples=12)
@given(batch=st.lists(CODES, min_size=2, max_size=4))
def test_any_program_of_list_operations(batch: list[list[tuple[int, int]]]) -> None:
    padded = [np.array([*codes, *[(-1, 0)] * (9 - len(codes))], np.int32) for codes in batch]
    check_equivalence(run, padded, (jnp.float32(1.0),), backends=("llvm",), jit=False, grads=False, tolerance=2e-5)


@pytest.mark.long
@settings(max_examples=10)
@given(batch=st.lists(CODES, min_size=2, max_size=3))
def test_any_program_of_list_operations_and_derivatives(batch: list[list[tuple[int, int]]]) -> None:
    padded = [np.array([*codes, *[(-1, 0)] * (9 - len(codes))], np.int32) for codes in batch]
    check_equivalence(run, padded, (jnp.float32(1.0),), backends=("interpret", "xla"), jit=False, tolerance=2e-5)


# ---- stores behind branches


def changed(w: Any, x: Any) -> Any:
    """Branches that store into one list, at places of their own, or leave it, inside each other and behind reads."""
    xs, k = [w, 2.0 * w, 3.0], 0
    while len(xs) > 1 and k < 7:
        if x > 1.0:
            if x > 3.0:
                xs[0] = xs[-1] + x
            else:
                xs[-1] = x * xs[0]
            x = x - 0.7
        elif x > 0.5:
            last = xs.pop()
            x = x + 0.3 * last
        else:
            xs[1] = xs[1] * 0.5
            xs.append(xs[0] - x)
            x = x + 0.2
        k = k + 1
    return sum(xs) + x


@pytest.mark.parametrize("backend", ["llvm", "xla", pytest.param("interpret", marks=LONG)])
def test_branches_that_store_into_one_list(backend: str) -> None:
    batch = [0.1, 0.6, 1.4, 2.7, 3.6, 5.2]
    grads = backend != "llvm"
    check_equivalence(changed, batch, (jnp.float32(0.4),), grads=grads, backends=(backend,), jit=False, tolerance=2e-5)


def test_what_both_arms_store_is_stored_behind_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """One store in a turn, and none in a branch."""
    texts: list[str] = []

    def spied(module: Any) -> Any:
        made = stores_behind_branches(module)
        texts.append(print_module(made))
        return made

    monkeypatch.setattr(arenas, "stores_behind_branches", spied)
    ab.batched(parse, in_axes=(None, 0)).lower(parameters(), [np.ones((6, 3), np.float32)])
    stores = [line for line in texts[0].splitlines() if "float32[32x3] = dynamic_update_slice" in line]
    turns = [line for line in stores if line.startswith("    ")]
    assert len(turns) == 1 and not any(line.startswith("      ") for line in turns), texts[0]


# ---- room


def counted(w: Any, n: Any) -> Any:
    xs, x = [w], w
    while x < n:
        x = x + w
        xs.append(x)
    return xs[len(xs) // 2] + len(xs)


COUNTS = np.array([0.5, 3.2, 40.7, 150.2], np.float32)


@pytest.mark.parametrize(
    ("backend", "on_error"), [("llvm", "raise"), ("llvm", "mask"), ("xla", "raise"), ("xla", "mask")]
)
def test_room_grows(backend: str, on_error: str) -> None:
    f = ab.batched(counted, in_axes=(None, 0), backend=backend, on_error=on_error)
    found = f(jnp.float32(1.0), COUNTS)
    np.testing.assert_allclose(found[0] if on_error == "mask" else found, f.loop(jnp.float32(1.0), COUNTS), rtol=1e-5)
    programs = f.cache_info()
    f(jnp.float32(1.0), COUNTS)
    assert f.cache_info() == programs  # it begins with what it has needed


@pytest.mark.parametrize("transform", ["vjp", pytest.param("jvp", marks=LONG), "grad"])
def test_room_grows_in_derivatives(transform: str) -> None:
    f, w = ab.batched(counted, in_axes=(None, 0)), jnp.float32(1.0)
    match transform:
        case "vjp":
            out, pull = ab.vjp(f, w, COUNTS)
            (found, _) = pull(jnp.ones_like(out))
        case "jvp":
            _, tangents = ab.jvp(f, (w, COUNTS), (1.0, None))
            found = jnp.sum(tangents)
        case _:
            found = ab.grad(f)(w, COUNTS)
    wanted = sum(jax.grad(counted)(w, n) for n in COUNTS.tolist())
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_inside_jit_examples_without_room_fail_by_name() -> None:
    f = ab.batched(counted, in_axes=(None, 0), on_error="mask")
    _, failures = jax.jit(lambda w: f(w, COUNTS))(1.0)
    assert failures.failed.tolist() == [False, False, True, True]
    f(jnp.float32(1.0), COUNTS)
    found, failures = jax.jit(lambda w: f(w, COUNTS))(jnp.float32(1.0))
    assert not failures.failed.any()
    np.testing.assert_allclose(found, f.loop(1.0, COUNTS), rtol=1e-5)


def test_a_list_without_end_fails_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(w: Any, x: Any) -> Any:
        xs = [w]
        while w * x * len(xs) > 0.0:
            xs.append(x)
        return xs[-1]

    monkeypatch.setattr(prepared, "LARGEST", 100)
    f = ab.batched(endless, in_axes=(None, 0), backend="llvm")
    with pytest.raises(ab.ExampleError) as failed:
        f(jnp.float32(1.0), np.array([1.0, -1.0], np.float32))
    assert [(x.index, x.kind) for x in failed.value.failures] == [(0, "MemoryError")]


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_example_that_pops_an_empty_list_fails_alone(backend: str) -> None:
    def popped(w: Any, x: Any) -> Any:
        xs, y = [w], w * x
        while y > 1.0:
            y = y - 1.0
            xs.pop()
        return y + len(xs)

    f = ab.batched(popped, in_axes=(None, 0), backend=backend)
    with pytest.raises(ab.ExampleError) as failed:
        f(jnp.float32(1.0), np.array([0.5, 1.5, 2.5, 7.5], np.float32))
    assert [(x.index, x.kind, x.message) for x in failed.value.failures] == [
        (2, "IndexError", "list index out of range"),
        (3, "IndexError", "list index out of range"),
    ]


@pytest.mark.parametrize("backend", ["interpret", "llvm"])
def test_such_a_list_is_a_result(backend: Any) -> None:
    f = ab.batched(lambda w, x: [y for y in [w, 2.0 * w] if y > x * w], in_axes=(None, 0), backend=backend)
    found = f(jnp.float32(1.0), np.array([0.5, 1.5, 2.0], np.float32))
    assert isinstance(found, ab.Ragged)
    assert ab.unbatch(found) == [[1.0, 2.0], [2.0], []]


def mixed(w: Any, ns: list[int]) -> Any:
    """Integers of the data and of the program in one list."""
    found, x = list(ns), w
    for _ in range(2):
        if x > 0.1:
            found.append(1)
        x = x * 0.5
    return w + sum(found)


@pytest.mark.parametrize("backend", ["interpret", "llvm"])
def test_a_copy_of_integers_of_the_data_has_their_width(backend: str) -> None:
    with jax.enable_x64(True), ab.options(verify=True):
        check_equivalence(mixed, [[3, -1], [], [2]], (np.float64(0.15),), grads=False, backends=(backend,), jit=False)


def last_row(p: Any, t: Tree) -> Any:
    rows = [kid.v for kid in t.kids]
    return p["b"] + (rows[-1] if rows else p["b"])


def test_columns_are_read_in_turns_that_there_are_only() -> None:
    """Machine code once read rows of the data for all the room of a list: beyond the column, at any address."""
    leaf = Tree(0.5, 1, "a", np.arange(3.0))
    batch = [typical_tree(), leaf, Tree(1.0, 1, "b", np.ones(3), [leaf, leaf])]
    shared = ({"b": np.ones(3)},)
    check_equivalence(last_row, batch, shared, grads=False, backends=("llvm",), jit=False, tolerance=2e-5)
