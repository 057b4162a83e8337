"""What fails while an example is traced fails with the kind, message and line of Python, on every back end."""

import itertools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autobatch as ab
from autobatch.testing import check_equivalence
from autobatch.testing.programs import load


@dataclass
class Tree:
    value: float
    number: int
    kids: list


def leaf(value, number):
    return Tree(value, number, [])


TREES = [
    Tree(1.0, 1, [leaf(2.0, 2), leaf(3.0, 3)]),
    Tree(6.0, 5, [leaf(1.0, 1)]),
    Tree(-2.0, 2, [leaf(-1.0, 2), leaf(1.5, 1)]),
    leaf(0.5, 2),
    Tree(0.0, 3, [leaf(1.0, 2)]),
    leaf(1.0, 2),
]


def raises(tree):
    xs = [k.value for k in tree.kids]  # noqa: F841
    if tree.number > 3:
        raise KeyError("number", tree.number)
    return eval("xs[0]") + tree.value


def looks_up(tree):
    by_number = {k.number: k.value for k in tree.kids}  # noqa: F841
    return eval("by_number[2]") * tree.value


def divides(tree):
    total = eval("tree.value")
    for kid in tree.kids:
        total = total + tree.value / (kid.value - 1.0)
    return total / tree.value


def remainders(tree):
    a, b = divmod(eval("tree.value"), tree.value - 0.5)
    return a + b + tree.value % (tree.value - 6.0) + 7 // (tree.value - 1.0) + divmod(3.0, tree.value + 2.0)[1]


def powers(tree):
    x = eval("tree.value")
    return (x - 1.0) ** -2 + (x + 2.0) ** -1.0 + (x + 1.0) ** 0.5 + (x - 6.0) ** (2.0 * (x - 7.0))


def of_what_is_known(tree):
    return eval("tree.value") / (tree.number - 2)


NUMBERS = (0.0, -1.0, 0.5, 2.0, -0.75)
SCALE = jnp.ones(3)


def by_jax(tree):
    x = tree.value * (eval("SCALE") * 2).sum()
    return x + 1.0 / (tree.value - 1.0) + 1 // (tree.value + 2.0) + (tree.value - 6.0) ** -3 + 3 % (tree.value - 0.5)


def told(failures):
    return [(f.index, f.kind, f.message, f.line) for f in failures]


def plainly(function):
    found = []
    for k, tree in enumerate(TREES):
        try:
            function(tree)
        except Exception as error:
            line = error.__traceback__.tb_next
            while line.tb_next is not None:
                line = line.tb_next
            found.append((k, type(error).__name__, str(error), line.tb_lineno))
    return found


@pytest.fixture(autouse=True)
def traced(monkeypatch):
    monkeypatch.setenv("AUTOBATCH_TRACE", "1")


@pytest.mark.filterwarnings("ignore::autobatch.StructureWarning")
@pytest.mark.parametrize("backend", ["auto", "interpret", "xla", "llvm"])
@pytest.mark.parametrize("function", [raises, looks_up, divides, remainders, powers, of_what_is_known, by_jax])
def test_failures_are_those_of_python(function, backend):
    wanted = plainly(function)
    assert len(wanted) >= 2
    with pytest.raises(ab.ExampleError) as caught:
        ab.batched(function, backend=backend)(TREES)
    known = {w[0]: w for w in told(caught.value.failures)}
    assert known and all(known[k] == w for k, *_ in wanted if k in known for w in wanted if w[0] == k)
    result, failures = ab.batched(function, backend=backend, on_error="mask")(TREES)
    assert told(failures.details) == wanted
    fine = ~np.asarray(failures.failed)
    np.testing.assert_allclose(np.asarray(result)[fine], [function(t) for t, f in zip(TREES, fine) if f], rtol=1e-6)


@pytest.mark.filterwarnings("ignore::autobatch.StructureWarning")
@pytest.mark.parametrize("backend", ["auto", "interpret", "xla", "llvm"])
def test_arrays_divide_as_numpy_does(backend):
    def ratio(x, by):
        return eval("x") / by + jnp.divide(1.0, by) + x[0] / by[0]

    x, by = np.array([[1.0, 2.0], [0.0, -1.0]], np.float32), np.array([[0.0, 1.0], [2.0, 0.0]], np.float32)
    with np.errstate(divide="ignore", invalid="ignore"):
        wanted = [ratio(a, b) for a, b in zip(x, by, strict=True)]
    np.testing.assert_array_equal(ab.batched(ratio, backend=backend)(x, by), wanted)


@pytest.mark.filterwarnings("ignore::autobatch.StructureWarning")
@pytest.mark.parametrize("backend", ["auto", "interpret", "xla", "llvm"])
def test_derivatives_of_what_may_fail(backend):
    fine = [t for t in TREES if t.value not in (0.0,) and all(k.value != 1.0 for k in t.kids)]
    scale = np.float32(3.0)

    def ratio(scale, tree):
        return scale * eval("tree.value") / tree.value**2 + scale**2 / (tree.value + 10.0)

    f = ab.batched(ratio, in_axes=(None, 0), backend=backend)
    found = ab.grad(f)(scale, fine)
    wanted = sum(1 / t.value + 6.0 / (t.value + 10.0) for t in fine)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def expressions():
    """Of numbers that no trace knows: what fails, fails when the program runs."""
    operators = st.sampled_from(["+", "-", "*", "/", "//", "%"])
    return st.recursive(
        st.sampled_from(["t.value", "below", "w", "t.value"]),
        lambda e: st.one_of(
            st.builds("({} {} {})".format, e, operators, e),
            st.builds("divmod({}, {})[1]".format, e, e),
            st.builds("sum([{} for t in t.kids], w)".format, e),
            st.builds("({} {} {})".format, st.sampled_from(["3", "0.5", "-1.0"]), operators, e),
            st.builds("({} {})".format, e, st.sampled_from(["** -2", "** 3", "** -2.0", "% -0.5", "// 2", "/ 0.25"])),
        ),
        max_leaves=5,
    )


SOURCE = """
import autobatch as ab

def walk(w, t):
    below = sum([walk(w, k) for k in t.kids], eval("t.value"))
    x = {}
    return x * 0.5 + {}

main = ab.batched(walk, in_axes=(None, 0), on_error="mask")
"""


@pytest.mark.filterwarnings("ignore::autobatch.StructureWarning")
@settings(max_examples=6, deadline=None)
@given(first=expressions(), last=expressions(), numbers=st.lists(st.sampled_from(NUMBERS), min_size=9))
def test_random_expressions_fail_as_python(first, last, numbers):
    drawn = itertools.cycle(numbers)
    trees = [Tree(next(drawn), 0, [leaf(next(drawn), 0) for _ in range(k % 3)]) for k in range(6)]
    f = load(SOURCE.format(first, last))
    with jax.enable_x64(True):
        check_equivalence(f, trees, (0.75,), grads=False, jit=False, backends=("interpret", "xla", "llvm"))
