"""`backend="llvm"`: lists, objects, trees and strings as arguments, which machine code reads itself."""

import enum
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autobatch as ab
from autobatch.backends.llvm import code
from autobatch.testing import check_equivalence
from tests.properties import strategies as draws
from tests.properties.test_equivalence import CASES, SIZE, check

QUICK = (
    "child_sum",
    "evaluate",
    "lists_decide",
    "kept_nodes",
    "mutual",
    "rounding",
    "searched",
    "two_trees",
    "child_reduction",
)
KNOWN = [c if c.name in QUICK else pytest.param(c, marks=pytest.mark.long) for c in CASES]


@pytest.mark.parametrize("case", KNOWN, ids=lambda c: c.name)
@settings(max_examples=2)
@given(data=st.data())
def test_equals_plain_python(case, data):
    f = case.function.with_settings(backend="llvm")
    with jax.enable_x64(True):
        check(f, *case.arguments(tuple(data.draw(draws.batches(d, SIZE)) for d in case.drawn)))


class Kind(enum.Enum):
    SUM = 1
    LARGEST = 2


@dataclass
class Point:
    x: float
    v: np.ndarray
    n: int = 0
    y: float | None = None
    name: str = "a"
    kind: Kind = Kind.SUM
    more: list["Point"] = field(default_factory=list)


floats = st.floats(-4, 4, width=32)
points = st.deferred(
    lambda: st.builds(
        Point,
        floats,
        st.lists(floats, min_size=3, max_size=3).map(lambda v: np.array(v, np.float32)),
        st.integers(-3, 3),
        st.none() | floats,
        st.sampled_from("abc"),
        st.sampled_from(Kind),
        st.lists(points, max_size=2),
    )
)


def leaves_of(point):
    return [p for p in [point, *point.more] if p.x > 0.5], [p.name for p in point.more if p.n > 0]


def test_lists_of_what_examples_hold():
    some = Point(0.9, np.zeros(3, np.float32), 2, name="b", more=[Point(0.3, np.ones(3, np.float32), 1, name="c")])
    others = Point(0.1, np.zeros(3, np.float32), 2, name="d", more=[some, some])
    check_equivalence(leaves_of, [some, others, Point(0.7, np.ones(3, np.float32))], backends=("llvm",), jit=False)


def added(xs):
    return sum(xs)


def weighed(w, xs):
    total = 0.0
    for i, x in enumerate(xs):
        if x > 0:
            total += x * w + i
    return total


def at_places(xs, k):
    return xs[k] + xs[-1]


def rows(vs):
    total = jnp.zeros(3)
    for v in vs:
        total = total + v * v[0]
    return total


def fields(p):
    if p.y is not None and p.name == "b":
        return p.y * p.v.sum() + len(p.more)
    return p.x + p.n


def below(p):
    if p.kind is Kind.SUM:
        return p.x + sum(below(q) for q in p.more)
    return p.x if not p.more else max(below(q) for q in p.more)


def largest(p):
    return max(q.x for q in p.more) + p.more[0].v @ p.v


def again(xs):
    doubled = [2 * x for x in xs]
    total = 0.0
    for d, x in zip(doubled, xs, strict=True):
        total = total + d * x
    return total + len(doubled)


def while_numbers_say_so(p):
    """Structure inside of a loop that computed numbers end, which has no rows that could be laid out ahead."""
    best, i = p.x, 0
    while i < len(p.more) and best < 1.0:
        best += p.more[i].x * p.v[0] + p.more[i].n
        i += 1
    return best


def chosen(p):
    """An object that computed numbers choose."""
    q = p.more[0] if len(p.more) > 0 and p.v.sum() > 0 else p
    return q.x * 2 + q.n


def named(p):
    return {"a": p.x, "b": 2.0}[p.name]


FULL = Point(1.0, np.ones(3, np.float32), 2, 0.5, "b", Kind.LARGEST, [Point(0.25, np.zeros(3, np.float32), name="c")])
"""An example that shows all that the others may have, so that each draw is of the same types."""


class TestPrograms:
    @pytest.mark.parametrize(("f", "shared"), [(added, ()), (weighed, (0.5,)), (again, ())])
    @settings(max_examples=4)
    @given(xs=st.lists(st.lists(floats, max_size=5), min_size=4, max_size=4))
    def test_lists_of_numbers(self, f, shared, xs):
        check_equivalence(f, [[1.0], *xs], shared, backends=("llvm",), grads=False, jit=False)

    @settings(max_examples=4)
    @given(st.lists(st.tuples(st.lists(floats, max_size=4), st.integers(-5, 5)), min_size=6, max_size=6))
    def test_indices(self, examples):
        f = ab.batched(at_places, in_axes=(0, 0))
        check_equivalence(f, [([1.0], 0), *examples], backends=("llvm",), grads=False, jit=False)

    @pytest.mark.parametrize("f", [fields, below, largest, while_numbers_say_so, chosen, named])
    @settings(max_examples=4)
    @given(examples=st.lists(points, min_size=5, max_size=5))
    def test_objects(self, f, examples):
        check_equivalence(f, [FULL, *examples], backends=("llvm",), grads=False, jit=False)

    def test_arrays_of_lists(self):
        rng = np.random.default_rng(0)
        examples = [list(rng.normal(size=(n, 3)).astype(np.float32)) for n in (3, 1, 2, 7, 1)]
        check_equivalence(rows, examples, backends=("llvm",), grads=False, jit=False)

    def test_derivatives_and_jit_run_as_xla_runs_them(self):
        f = ab.batched(weighed, in_axes=(None, 0), backend="llvm")
        batch = f.pack([[1.0, 2.0], [], [3.0, -1.0]])
        np.testing.assert_allclose(f(0.5, batch), [2.5, 0, 1.5])
        np.testing.assert_allclose(jax.jit(f)(0.5, batch), [2.5, 0, 1.5])
        of_w, of_batch = ab.grad(f, argnums=(0, 1))(0.5, batch)
        assert float(of_w) == 6.0
        assert ab.unbatch(of_batch) == [[0.5, 0.5], [], [0.5, 0.0]]

    def test_64_bits(self):
        with jax.enable_x64(True):
            f = ab.batched(weighed, in_axes=(None, 0), backend="llvm")
            found = f(0.5, [[1.0, 2.0**-40], [3.0]])
            assert found.dtype == np.float64
            assert found.tolist() == [0.5 + (2.0**-41 + 1), 1.5]


class TestBadInput:
    def test_an_index_says_which_example_and_where(self):
        f = ab.batched(at_places, backend="llvm")
        with pytest.raises(ab.ExampleError, match=r"example 1 at .*test_structure.py:\d+:\d+: IndexError: list index"):
            f([[1.0], [1.0, 2.0]], [0, 2])

    def test_none_has_no_fields(self):
        def of_right(p, right):
            return p.x + right.x

        p = Point(1.0, np.zeros(3, np.float32))
        f = ab.batched(of_right, backend="llvm", on_error="mask")
        found, failures = f([p, p], [p, None])
        assert found.tolist() == [2.0, 0.0]
        assert [(e.index, e.kind) for e in failures] == [(1, "AttributeError")]

    def test_ints_of_64_bits(self):
        def counted(p):
            return p.n + 1

        batch = [Point(1.0, np.zeros(3, np.float32), n=1 << 40)]
        assert ab.batched(counted, backend="llvm")(batch).tolist() == [(1 << 40) + 1]

    def test_no_examples(self):
        f = ab.batched(added, backend="llvm")
        f([[1.0]])
        assert f([]).shape == (0,)


def test_functions_that_share_programs_fail_in_their_own_way():
    f = ab.batched(at_places, backend="llvm", on_error="mask")
    (values, _), strict = f([[1.0, 2.0]], [0]), f.with_settings(on_error="raise")
    assert strict([[1.0, 2.0]], [0]).tolist() == values.tolist() == [3.0]


@dataclass
class Chain:
    value: float
    next: "Chain | None" = None


def total(c):
    return c.value if c.next is None else c.value + total(c.next)


def checked(c):
    if c.value < 0:
        raise ValueError("negative")
    return c.value if c.next is None else checked(c.next)


def chained(*values):
    made = None
    for v in reversed(values):
        made = Chain(v, made)
    return made


def apart(c):
    """Lanes that disagree call different functions."""
    if c.next is None:
        return c.value
    return total(c.next) * 2.0 if c.value > 0 else c.value + apart(c.next)


def together(c):
    """Lanes that disagree call one function, each with what it has computed before."""
    if c.next is None:
        return c.value
    if c.value > 1.0:
        scale = c.value * 3.0
        return scale * together(c.next) + scale
    return c.value - together(c.next)


class TestRecursion:
    """A recursion over what each example has for itself, on the native stack as far as that goes."""

    def test_lanes_that_part_run_one_after_another(self):
        deep, flat = [chained(1.0), chained(2.0, 3.0)], [[1.0], [2.0, 3.0]]
        assert ab.batched(total, backend="llvm").lower(deep).compile().executable.width > 1
        for function in (apart, together):
            assert ab.batched(function, backend="llvm").lower(deep).compile().executable.width == 1
        assert ab.batched(added, backend="llvm").lower(flat).compile().executable.width > 1

    @pytest.mark.parametrize("fun", [total, apart, together])
    def test_the_same_alone(self, fun, monkeypatch):
        rng = np.random.default_rng(0)
        chains = [chained(*rng.uniform(-1, 2, n).astype(np.float32).tolist()) for n in rng.integers(1, 9, 40)]
        f = ab.batched(fun, backend="llvm")
        found = f(chains)
        np.testing.assert_allclose(found, f.loop(chains), rtol=1e-5)
        monkeypatch.setattr(code, "widths", lambda whole: iter([1]))
        np.testing.assert_array_equal(ab.batched(fun, backend="llvm")(chains), found)

    def test_deeper_than_the_native_stack(self):
        f = ab.batched(total, backend="llvm", options={"max_depth": 200_000})
        found = f([chained(1.0, 2.0), chained(*[1.0] * 60_000), chained(4.0)])
        assert found.tolist() == [3.0, 60_000.0, 4.0]

    def test_deeper_than_allowed(self):
        f = ab.batched(total, backend="llvm", options={"max_depth": 50}, on_error="mask")
        found, failures = f([chained(*[1.0] * 40), chained(*[1.0] * 60)])
        assert found.tolist() == [40.0, 0.0]
        assert [(e.index, e.kind) for e in failures] == [(1, "RecursionError")]

    def test_what_a_row_fails_with_inside(self):
        f = ab.batched(checked, backend="llvm", on_error="mask")
        found, failures = f([chained(1.0, 2.0), chained(1.0, -2.0, 3.0), chained(5.0)])
        assert found.tolist() == [2.0, 0.0, 5.0]
        assert [(e.index, e.kind, str(e.message)) for e in failures] == [(1, "ValueError", "negative")]


@dataclass
class Ball:
    x: float
    radius: float
    left: "Ball | None" = None
    right: "Ball | None" = None


def balls(depth, x=0.0):
    if depth == 0:
        return Ball(x, 0.125)
    wide = 2.0**-depth
    below = balls(depth - 1, x - wide), balls(depth - 1, x + wide)
    return Ball(x, 2.0, *below)


def nearest(ball, best, x):
    far = abs(ball.x - x) - ball.radius
    if far >= best:
        return best
    if ball.left is None:
        return far
    return nearest(ball.right, nearest(ball.left, best, x), x)


class TestShared:
    """Objects that all examples share, more of them than are compiled one by one."""

    x = np.linspace(-3, 3, 50).astype(np.float32)
    far = np.full(50, 1e9, np.float32)

    def test_a_tree(self):
        f = ab.batched(nearest, in_axes=(None, 0, 0), backend="llvm")
        tree = balls(6)
        found = f(tree, self.far, self.x)
        np.testing.assert_allclose(found, f.loop(tree, self.far, self.x), rtol=1e-6)
        assert f.lower(tree, self.far, self.x).compile().executable.width > 1
        assert f.cache_info().specialisations == 1
        tree.left.right.radius = tree.left.radius = tree.radius = 9.0  # what it holds is read in each call
        tree.left.right.left.x = tree.left.right.right.x = 0.25
        np.testing.assert_allclose(f(tree, self.far, self.x), f.loop(tree, self.far, self.x), rtol=1e-6)
        np.testing.assert_allclose(f(balls(7), self.far, self.x), f.loop(balls(7), self.far, self.x), rtol=1e-6)

    def test_what_was_packed_is_packed_again_when_it_has_changed(self):
        f = ab.batched(nearest, in_axes=(None, 0, 0), backend="llvm")
        tree = balls(6)
        leaf = tree.left.left
        for name, value in (("radius", 9.0), ("left", balls(3, -2.0)), ("x", leaf.x)):
            setattr(leaf, name, value)
            for _ in range(2):
                np.testing.assert_allclose(f(tree, self.far, self.x), f.loop(tree, self.far, self.x), rtol=1e-6)

    def test_beside_trees_of_the_examples(self):
        def both(tree, best, p):
            return nearest(tree, best, p.x) + below(p)

        f = ab.batched(both, in_axes=(None, 0, 0), backend="llvm")
        batch = [FULL, Point(0.5, np.ones(3, np.float32)), Point(-2.0, np.ones(3, np.float32))]
        found = f(balls(6), self.far[:3], batch)
        np.testing.assert_allclose(found, f.loop(balls(6), self.far[:3], batch), rtol=1e-6)

    @pytest.mark.parametrize("backend", ["llvm", "auto"])
    def test_are_explained(self, backend):
        """Machine code takes them; the program of XLA that has rows and tables is another one."""
        f = ab.batched(nearest, in_axes=(None, 0, 0), backend=backend)
        explained = f.explain(balls(6), self.far, self.x)
        assert explained.data["backend"]["taken"] == "llvm"
        assert "rows and tables are those of xla under jax.jit" in str(explained)
        assert "def nearest(ball, best, x):" in explained.html()
        np.testing.assert_allclose(f(balls(6), self.far, self.x), f.loop(balls(6), self.far, self.x), rtol=1e-6)
        small = balls(2)
        np.testing.assert_allclose(f(small, self.far, self.x), f.loop(small, self.far, self.x), rtol=1e-6)

    def test_none_in_it_has_no_fields(self):
        def off(ball, x):
            return ball.x - x if x > 0 else off(ball.left, x + 1)

        f = ab.batched(off, in_axes=(None, 0), backend="llvm")
        with pytest.raises(ab.ExampleError, match="example 1 at .*AttributeError: 'NoneType'"):
            f(balls(6), np.array([1.0, -9.0], np.float32))


class TestBatches:
    def test_a_batch_and_a_minibatch_of_it(self):
        examples = [[float(k)] * (k % 4) for k in range(40)]
        f = ab.batched(added, backend="llvm")
        batch = ab.pack(examples)
        wanted = [sum(x) for x in examples]
        np.testing.assert_allclose(f(batch), wanted)
        np.testing.assert_allclose(f(batch[5:30:3]), wanted[5:30:3])

    def test_batches_of_any_size_give_the_same_bits(self):
        rng = np.random.default_rng(3)
        examples = [rng.normal(size=n).tolist() for n in rng.integers(0, 9, 100)]
        f = ab.batched(weighed, in_axes=(None, 0), backend="llvm")
        whole = f(0.3, examples)
        for n in (1, 7, 16, 33):
            np.testing.assert_array_equal(f(0.3, examples[:n]), whole[:n])

    def test_a_node_as_a_result(self):
        def last(p):
            return p.more[-1] if p.more else p

        inner = Point(2.0, np.ones(3, np.float32))
        outer = Point(1.0, np.zeros(3, np.float32), more=[inner])
        found = ab.unbatch(ab.batched(last, backend="llvm")([outer, inner]))
        assert [q.x for q in found] == [2.0, 2.0]

    def test_a_string_as_a_result(self):
        def named(p):
            return p.name if p.x > 0 else "none"

        make = lambda x, name: Point(x, np.zeros(3, np.float32), name=name)
        found = ab.batched(named, backend="llvm")([make(1.0, "b"), make(-1.0, "c"), make(2.0, "a")])
        assert ab.unbatch(found) == ["b", "none", "a"]
