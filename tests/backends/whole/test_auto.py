"""What is taken where nobody asks for a back end: machine code where it pays and computes the same, else XLA."""

from __future__ import annotations

import math
import re
import warnings
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autobatch as ab
from autobatch.backends.interface import Cost, Work
from autobatch.backends.llvm import machine_code
from autobatch.backends.xla.program import Xla
from autobatch.compiler import choice
from autobatch.testing import assert_same
from tests.properties import masked

X = np.linspace(0.5, 3.0, 6).astype(np.float32)
W32, W64 = jnp.eye(32), jnp.eye(64)
MANY = 2000
"""Examples of which there are so many that what a call costs does not count."""


def settled(x):
    turns = 0
    while x < 100.0:
        x = x * 1.5
        turns += 1
    return turns, x


def layer(w, x):
    return jnp.tanh(w @ x)


@dataclass
class Body:
    x: float
    v: float


def attracted(x):
    """Objects that a list holds change, and structure alone decides which."""
    bodies = [Body(x * k, 0.0) for k in range(4)]
    for _ in range(3):
        for k in range(4):
            for other in bodies:
                if other is not bodies[k]:
                    bodies[k].v += other.x - bodies[k].x * 0.5
        for body in bodies:
            body.x += 0.1 * body.v
    return [body.x for body in bodies]


class Shared(NamedTuple):
    value: float
    left: "Shared | None"
    right: "Shared | None"


def walked_as_a_tree(node):
    found = node.value
    if node.left is not None:
        found = found + 0.5 * walked_as_a_tree(node.left)
    if node.right is not None:
        found = found + 0.0 * walked_as_a_tree(node.right)
    return found


def weighed(w, tree):
    return w * tree[0] + sum(weighed(w, child) for child in tree[1])


def with_products(w, xs):
    total = 0.0
    for x in xs:
        total = total + (w @ (x * jnp.ones(w.shape[0])))[0]
    return total


def counted_down(node, step):
    return counted_down((node[0] - step, node[1]), step) if node[0] > 0.0 else node[0]


def taken(f, *args):
    return f.explain(*args).data["backend"]


def test_loops_on_numbers_are_machine_code():
    f = ab.batched(settled)
    backend = taken(f, X)
    assert (backend["asked"], backend["taken"]) == ("auto", "llvm")
    assert "a loop that numbers end" in backend["why"]
    for numbers in (X, jnp.asarray(X)):
        turns, last = f(numbers)
        assert isinstance(turns, jax.Array) and isinstance(last, jax.Array)  # as XLA gives them
        wanted = [settled(x) for x in X]
        np.testing.assert_array_equal(turns, [t for t, _ in wanted])
        np.testing.assert_allclose(last, [x for _, x in wanted], rtol=1e-6)
    assert f.cache_info()[:2] == (2, 1)  # that of `explain`, with the tables of XLA, has no executable


def test_objects_that_change_are_machine_code():
    """Their structure is not traced, example by example, though it could be: calls of what is take 1,000 times as
    long."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = ab.batched(attracted)(X)
    wanted = [attracted(float(x)) for x in X]
    np.testing.assert_allclose(np.stack(found), wanted, rtol=1e-5)


def test_under_transformations_it_is_xla():
    f = ab.batched(settled)
    np.testing.assert_array_equal(jax.jit(f)(X)[0], f(X)[0])
    wanted = jax.grad(lambda x: f(x)[1].sum())(jnp.asarray(X))
    np.testing.assert_allclose(wanted, 1.5 ** np.asarray(f(X)[0]), rtol=1e-5)
    assert f.lower(X).as_text("backend").startswith("HloModule")


def test_derivatives_are_machine_code_too():
    f = ab.batched(lambda p, x: settled(p * x)[1], in_axes=(None, 0))
    found = ab.grad(f)(2.0, X), ab.grad(f, argnums=1)(2.0, X)
    assert all(isinstance(x, jax.Array) for x in found)
    of_p, of_x = jax.grad(lambda p, x: sum(f.loop(p, x)), argnums=(0, 1))(2.0, jnp.asarray(X))
    np.testing.assert_allclose(found[0], of_p, rtol=1e-5)
    np.testing.assert_allclose(found[1], of_x, rtol=1e-5)
    assert f.cache_info().executables == 1 and f.cache_info().plans == 0


def branched(x):
    return x * 2.0 if x > 1.0 else x


@pytest.mark.parametrize(
    ("function", "shape", "by"),
    [
        (lambda x: x * 1.25, (1,), "xla"),
        (lambda x: x * 1.25, (MANY,), "xla"),
        (lambda x: (x @ W32).sum(), (8, 32), "xla"),
        (lambda x: (x @ W32).sum(), (MANY, 32), "llvm"),
        (lambda x: (x @ x.T).sum(), (4, 3, 3), "xla"),
        (lambda x: (x @ x.T).sum(), (64, 3, 3), "llvm"),
        (lambda x: jnp.tanh(x), (MANY, 2048), "xla"),
        (lambda x: jnp.sort(x), (64, 64), "llvm"),
        (branched, (1,), "llvm"),
        (lambda x: x[0] // x[1], (4, 2), "xla"),
        (lambda x: int(x) * 3, (4,), "llvm"),
    ],
)
def test_what_costs_less_is_taken(function, shape, by):
    """Both costs are said."""
    f, x = ab.batched(function), np.linspace(0.5, 3.0, math.prod(shape), dtype=np.float32).reshape(shape)
    backend = taken(f, x)
    assert backend["taken"] == by
    assert re.search(r"llvm [\d,]+ and xla [\d,]+ microseconds, estimated for [\d,]+ examples", backend["why"])
    np.testing.assert_allclose(f(x[:100]), np.stack([function(row) for row in x[:100]]), rtol=1e-5)


def test_a_function_has_programs_for_few_examples_and_for_many():
    f = ab.batched(lambda p, x: (p * x @ W32).sum(), in_axes=(None, 0))
    for _ in range(2):
        for count in (1, 7, 8, 9, 64, 1024, 1025, 5000, 3):
            x = np.linspace(-1.0, 1.0, 32 * count, dtype=np.float32).reshape(count, 32)
            np.testing.assert_allclose(f(2.0, x), (2.0 * x).sum(1), rtol=1e-4, atol=1e-4)
    assert f.cache_info().specialisations == 2


class TestCosts:
    """What decides are the costs that back ends state: of those near the least, what is compiled sooner."""

    WORK = Work(operations=10, multiplications=0, longest=4, loops=0, elements=40, returned=4)

    @pytest.mark.parametrize("use", choice.Use)
    def test_the_least_is_taken(self, use, monkeypatch):
        own = choice.compiles_functions(use)
        for costs, declined in (((1.0, 9.0), False), ((9.0, 1.0), True), ((1.05, 1.0), False)):
            monkeypatch.setattr(type(own), "cost", lambda *_, c=costs[0]: Cost(c, 0.1))
            monkeypatch.setattr(Xla, "cost", lambda *_, c=costs[1]: Cost(c, 0.5))
            assert bool(choice.declines(use, self.WORK)) == declined

    def test_what_decides(self):
        """Small calls, products of many rows, long results: XLA. Control flow, and structure that is planned in the
        call: machine code."""
        few, many, batch = choice.Use.CALL_OF_8, choice.Use.DERIVATIVE, choice.Use.DERIVATIVE_OF_BATCH
        assert choice.declines(few, self.WORK)
        assert not choice.declines(few, replace(self.WORK, loops=1))
        assert not choice.declines(few, replace(self.WORK, branches=1))
        layer = replace(self.WORK, multiplications=1 << 16, dots=1)
        assert choice.declines(many, layer)
        assert choice.declines(batch, replace(layer, structured=True))
        assert not choice.declines(choice.Use.DERIVATIVE_OF_64, replace(layer, structured=True))
        assert not choice.declines(choice.Use.OF_BATCH, replace(self.WORK, structured=True))

    @pytest.mark.parametrize("size", [16, 64, 128])
    def test_trees_with_products_are_for_xla_where_plans_are_kept(self, size):
        """Rows of many examples meet in one product there, and machine code walks one tree after another."""
        nodes, cell = 16, 10 * size * size
        work = Work(
            operations=660,
            multiplications=nodes * (cell + 3 * size * size),
            longest=size,
            loops=1,
            elements=640 * size,
            branches=1,
            dots=3 * nodes,
            structured=True,
            recursions=1,
            returned=2,
            fails=True,
        )
        assert choice.declines(choice.Use.OF_BATCH, work)
        assert choice.declines(choice.Use.DERIVATIVE_OF_BATCH, work)
        if size == 16:  # to plan them in the call takes longer
            assert not choice.declines(choice.Use.CALL_OF_64, work)


def test_derivatives_of_products_are_for_xla_sooner():
    f = ab.batched(lambda w, x: jnp.tanh(w @ x).sum(), in_axes=(None, 0))
    w, x = jnp.eye(32), jnp.ones((MANY, 32))
    assert taken(f, w, x)["taken"] == "llvm"
    np.testing.assert_allclose(f(w, x), 32 * np.tanh(np.ones(MANY)), rtol=1e-5)
    wanted = jax.grad(lambda w: jax.vmap(lambda x: jnp.tanh(w @ x).sum())(x).sum())(w)
    np.testing.assert_allclose(ab.grad(f)(w, x), wanted, rtol=1e-4)
    assert f.cache_info().specialisations == 2


def test_what_was_declined_is_not_compiled_twice():
    f = ab.batched(layer, in_axes=(None, 0))
    w, x = jnp.eye(96), jnp.ones((3, 96))
    for _ in range(3):
        f(w, x)
    assert f.cache_info() == (1, 1, 1)
    jax.jit(f)(w, x)
    assert f.cache_info().specialisations == 2  # what JAX traces has types of its own


class TestIntegers:
    """Those of Python need more bits than machine code has: it sees that, and runs the call again with 64."""

    def test_of_floats(self):
        f = ab.batched(lambda x: int(x * 1e6) * int(x * 1e6))
        assert taken(f, np.float32([1e-3]))["taken"] == "llvm"
        assert f(np.float32([1e-3])).tolist() == [1000000]
        assert f(np.float32([1.0])).tolist() == [1000000**2]

    def test_that_no_turn_hands_on(self):
        def counted(x):
            n, last = 0, 0
            while x > 1.0:
                x, n, last = 0.5 * x, n + 1, n + 1000
            return last

        f = ab.batched(counted)
        assert taken(f, X)["taken"] == "llvm"
        assert f(X).tolist() == [counted(x) for x in X.tolist()]

    @pytest.mark.parametrize("step", [1, -1, 2, 60_000])
    def test_that_turns_add_to(self, step):
        def counted(x):
            n = 0
            while x > 1.0:
                x, n = 0.5 * x, n + step
            return n + 1000

        f = ab.batched(counted)
        assert taken(f, X)["taken"] == "llvm"
        assert f(X).tolist() == [counted(x) for x in X.tolist()]

    def test_that_arms_and_inner_loops_add_to(self):
        def counted(x):
            n = 0
            for _ in range(3):
                while x > 1.0:
                    x = 0.5 * x
                    n = n + 3 if x > 0.75 else n
            return n

        f = ab.batched(counted)
        assert taken(f, X)["taken"] == "llvm"
        assert f(X).tolist() == [counted(x) for x in X.tolist()]

    def test_shared(self):
        f = ab.batched(lambda n, x: x * (n * n), in_axes=(None, 0))
        assert taken(f, 3, X)["taken"] == "llvm"
        np.testing.assert_allclose(f(3, X), 9 * X, rtol=1e-6)

    def test_that_count(self):
        f = ab.batched(lambda n, x: sum(x for _ in range(n)), in_axes=(None, 0))
        np.testing.assert_allclose(f(3, X), 3 * X, rtol=1e-6)

    def test_of_arrays(self):
        """They are the device's, and wrap as JAX's do."""
        squared = lambda n: n * n + 1
        f, by_xla = ab.batched(squared), ab.batched(squared, backend="xla")
        given = np.array([3, 1 << 16, (1 << 16) + 1] * MANY, np.int32)
        f = ab.batched(squared, backend="llvm")
        np.testing.assert_array_equal(f(given), by_xla(given))

    def test_of_arrays_that_count(self):
        def grown(n, x):
            for k in range(n):
                x = x * 1.5 if k % 2 else x + 1.0
            return x

        f = ab.batched(grown)
        counts = np.array([0, 5, 2, 1, 7, 3], np.int64)
        assert taken(f, counts, X)["taken"] == "llvm"
        np.testing.assert_allclose(f(counts, X), f.loop(counts, X), rtol=1e-6)


@dataclass
class Formula:
    kind: int
    value: float
    left: Formula | None = None
    right: Formula | None = None


class TestStructure:
    """XLA plans it ahead, which pays where the plan is kept; where computed numbers end a loop over it, it calls
    machine code for each row anyway."""

    def test_derivatives_with_products_are_for_xla_where_plans_are_kept(self):
        f, lists, w = ab.batched(with_products, in_axes=(None, 0)), [[1.0], [2.0, 3.0]], 2 * jnp.eye(32)
        packed, wanted = ab.pack(lists), jax.grad(lambda w: sum(f.loop(w, lists)))(w)
        assert taken(f, w, lists)["taken"] == taken(f, w, packed)["taken"] == "llvm"
        np.testing.assert_allclose(f(w, lists), f(w, packed))
        plans = f.cache_info().plans  # those of `explain`
        np.testing.assert_allclose(ab.grad(f)(w, lists), wanted, rtol=1e-5)
        assert f.cache_info().plans == plans
        packed = ab.pack(lists)
        for _ in range(2):
            np.testing.assert_allclose(ab.grad(f)(w, packed), wanted, rtol=1e-5)
            assert f.cache_info().plans == plans + 1

    def test_derivatives_without_products_need_no_plans(self):
        f, lists = ab.batched(lambda w, xs: sum(w * x for x in xs), in_axes=(None, 0)), [[1.0], [2.0, 3.0]]
        assert f(2.0, lists).tolist() == [2.0, 10.0] and ab.grad(f)(2.0, ab.pack(lists)) == 6.0
        assert f.cache_info() == (1, 1, 0)

    def test_derivatives_of_levels_that_are_no_kernel_are_machine_code(self):
        """XLA runs them step by step."""

        def best(w, words):
            scores = w[0]
            for k in words:
                scores = jnp.max(scores[:, None] + w, axis=0) * 0.5 + w[k]
            return jnp.max(scores)

        f, words = ab.batched(best, in_axes=(None, 0)), [[3, 1, 2], [2], [4, 4, 1, 0, 2]]
        w, packed = jnp.asarray(np.random.default_rng(0).normal(size=(5, 5)), jnp.float32), f.pack(words)
        found = ab.grad(f)(w, packed)
        wanted = jax.grad(lambda w: sum(f.loop(w, words)))(w)
        np.testing.assert_allclose(found, wanted, rtol=1e-5)
        assert f.cache_info().plans == 0

    @staticmethod
    def parsed(w, words):
        """A stack which computed numbers shrink."""
        stack, k = [w[0]], 0
        while k < len(words) or len(stack) > 1:
            if k == len(words) or (len(stack) > 1 and stack[-1] @ stack[-2] > 0.0):
                right = stack.pop()
                stack.append(jnp.tanh(w @ right + stack.pop() @ w))
            else:
                stack.append(w[words[k]])
                k += 1
        return stack[0]

    def test_that_computed_numbers_walk_is_machine_code(self):
        f = ab.batched(self.parsed, in_axes=(None, 0))
        w = jnp.asarray(np.random.default_rng(0).normal(size=(64, 64)) / 10, jnp.float32)
        words = [[3, 1, 2], [], [4, 4, 1, 0, 2], [5]]
        backend = taken(f, w, words)
        assert backend["taken"] == "llvm", backend["why"]
        for held in (words, ab.pack(words)):
            found = f(w, held)
            assert isinstance(found, jax.Array)
            np.testing.assert_allclose(found, f.loop(w, words), rtol=1e-5, atol=1e-6)

    def test_derivatives_are_those_of_xla(self):
        f = ab.batched(self.parsed, in_axes=(None, 0))
        w, words = jnp.eye(8) + 0.1, [[3, 1, 2], [4, 4, 1, 0]]
        f(w, words)
        found = jax.grad(lambda w: f(w, words).sum())(w)
        wanted = jax.grad(lambda w: sum(x.sum() for x in f.loop(w, words)))(w)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)

    def test_that_xla_refuses(self):
        """Which list is read next, computed numbers say."""

        def walked(w, lists):
            k, total = 0, 0.0
            while total < 3.0:
                row = lists[k]
                total = total + 0.1 + w * sum(row)
                k = len(row) if total > 1.0 else 0
            return total

        f = ab.batched(walked, in_axes=(None, 0))
        lists = [[[0.5, 0.25], [1.0], [2.0, 0.0]], [[0.125], [3.0]]]
        found = f(1.0, lists)
        np.testing.assert_allclose(found, [walked(1.0, x) for x in lists], rtol=1e-6)
        assert taken(f, 1.0, lists)["taken"] == "llvm"

    @staticmethod
    def below(tree):
        found = tree[0]
        for child in tree[1]:
            found = found + TestStructure.below(child)
        while found > 1.0:
            found = 0.5 * found
        return found

    def test_recursion_is_machine_code_where_plans_are_kept_too(self):
        f = ab.batched(self.below)
        trees = [(3.0, [(0.5, []), (9.0, [(0.25, [])])]), (0.125, [])]
        packed = ab.pack(trees)
        assert taken(f, trees)["taken"] == taken(f, packed)["taken"] == "llvm"
        for held in (trees, packed):
            np.testing.assert_allclose(f(held), list(map(self.below, trees)), rtol=1e-6)

    @staticmethod
    def of_cases(e):
        if e.kind == 0:
            return e.value
        if e.kind == 1:
            return -TestStructure.of_cases(e.left)
        if e.kind == 2:
            return TestStructure.of_cases(e.left) + TestStructure.of_cases(e.right)
        return TestStructure.of_cases(e.left) * TestStructure.of_cases(e.right)

    def test_a_recursion_that_integers_decide_is_machine_code(self):
        def hanoi(n):
            def moved(k, a, b):
                return 0 if k == 0 else moved(k - 1, a, 3 - a - b) + a * b + moved(k - 1, 3 - a - b, b)

            return moved(n, 0, 2)

        f, numbers = ab.batched(hanoi), [3, 0, 5, 1]
        for data in (numbers, np.asarray(numbers)):
            assert taken(f, data)["taken"] == "llvm"
            assert f(data).tolist() == list(map(hanoi, numbers))

    def test_a_recursion_of_many_cases_is_machine_code_there_too(self):
        f, leaf = ab.batched(self.of_cases), Formula(0, 1.5)
        formulas = [Formula(3, 2.0, Formula(1, 0.0, leaf), leaf), Formula(2, 0.0, leaf, leaf), leaf]
        assert taken(f, ab.pack(formulas))["taken"] == "llvm"
        assert f(ab.pack(formulas)).tolist() == list(map(self.of_cases, formulas))

    @pytest.mark.parametrize("first", ["value", "gradient"])
    def test_derivatives_of_a_recursion_of_numbers_are_machine_code_too(self, first):
        f = ab.batched(weighed, in_axes=(None, 0))
        trees = [(3.0, [(0.5, []), (9.0, [(0.25, [])])]), (0.125, [])]
        calls = [lambda: f(2.0, trees).tolist() == [25.5, 0.25], lambda: ab.grad(f)(2.0, trees) == 12.875]
        for call in calls if first == "value" else calls[::-1]:
            assert call()
        assert f.cache_info() == (1, 1, 0)
        assert ab.grad(f)(2.0, ab.pack(trees)) == 12.875
        assert f.cache_info().plans == 0
        assert all(call() for call in calls)

    def test_one_program_for_calls_batches_and_derivatives(self):
        f, lists = ab.batched(lambda w, xs: sum(w * x for x in xs), in_axes=(None, 0)), [[1.0], [2.0, 3.0]]
        assert f(2.0, lists).tolist() == f(2.0, ab.pack(lists)).tolist() == [2.0, 10.0]
        assert ab.grad(f)(2.0, lists) == 6.0
        assert f.cache_info() == (1, 1, 0)

    @pytest.mark.parametrize("given", [list, ab.pack])
    def test_a_graph_that_is_walked_as_a_tree_is_for_xla(self, given):
        """For which equal calls are one: there are as many as nodes."""
        leaf = node = Shared(1.0, None, None)
        for k in range(64):
            node = Shared(float(k), node, node)
        f, graphs = ab.batched(walked_as_a_tree), given([node, leaf])
        assert taken(f, graphs)["taken"] == "llvm"
        for _ in range(2):
            np.testing.assert_allclose(f(graphs), [124.0, 1.0], rtol=1e-5)
        assert taken(f, graphs)["taken"] == "xla"

    def test_a_recursion_that_xla_refuses_may_take_long(self):
        """Computed numbers say which of the branches is walked, and how often."""
        with ab.options(max_steps=5_000_000):
            f = ab.batched(counted_down, in_axes=(0, None))
            found = f([(150_000.0, None)], 1.0)
            assert isinstance(found, jax.Array) and found.tolist() == [0.0]
            with pytest.raises(ab.ExampleError, match="max_steps=5000000 blocks"):
                f([(3_000_000.0, None)], 1.0)

    def test_integers_of_the_examples_are_checked(self):
        def added(level, xs):
            total, k = 0, 0
            while level < 100.0:
                total, k = total + xs[k % len(xs)], k + 1
                level = level * 1.5
            return total

        f = ab.batched(added, in_axes=(None, 0))
        assert taken(f, 1.0, [[1], [2, 3]])["taken"] == "llvm"
        assert list(f(1.0, [[1], [2, 3]])) == [added(1.0, [1]), added(1.0, [2, 3])]
        assert list(f(1.0, [[2**30]])) == [added(1.0, [2**30])]


def test_no_machine_code_on_this_processor(monkeypatch):
    """It says so, and XLA computes."""
    monkeypatch.setattr(machine_code.platform, "machine", lambda: "riscv64")
    machine_code._own_host.cache_clear()
    try:
        f = ab.batched(branched)
        assert "not for linux on riscv64" in taken(f, X)["why"]
        np.testing.assert_allclose(f(X), np.where(X > 1.0, 2.0 * X, X))
    finally:
        monkeypatch.undo()
        machine_code._own_host.cache_clear()


def test_failures_are_those_of_xla():
    def root(x):
        if x < 1.0:
            raise ValueError("too small")
        return jnp.sqrt(x)

    f = ab.batched(root, on_error="mask")
    assert taken(f, X)["taken"] == "llvm"
    (found, failures), (wanted, same) = f(X), ab.batched(root, on_error="mask", backend="xla")(X)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    assert np.array_equal(failures.failed, same.failed) and len(failures.details) == len(same.details) == 1


@pytest.mark.parametrize(
    "function", [masked.root, masked.guarded, masked.early_exit, masked.nested, masked.unlike, masked.checked]
)
@settings(max_examples=10)
@given(xs=st.lists(st.integers(-64, 64).map(lambda n: n / 16), min_size=1, max_size=20))  # XLA has no subnormal numbers
def test_it_equals_plain_python(function, xs):
    f, x = masked.batched(function, on_error="mask"), np.array(xs)
    (found, failures), (wanted, same) = f(masked.shared(), x), f.with_settings(backend="xla")(masked.shared(), x)
    np.testing.assert_array_equal(failures.failed, same.failed)
    assert_same(ab.unbatch(found), ab.unbatch(wanted))
