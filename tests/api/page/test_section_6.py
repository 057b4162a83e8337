"""Numbers: what dtypes they have, what arithmetic means, what is exact and what is not."""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autobatch as ab
from tests.api.nodes import Node, close, trees
from tests.api.page.oracle import agrees, alike

INTEGERS = st.integers(-50, 50)
FLOATS = st.floats(-50, 50, width=32)
SIZE = 6
"""One size of batch, so that everything is compiled once."""


def pairs(x, y):
    return st.lists(st.tuples(x, y), min_size=SIZE, max_size=SIZE)


def kinds(f, examples):
    """What each example fails with; None where it does not fail."""
    _, failures = ab.batched(f, on_error="mask")(examples)
    found = {x.index: x.kind for x in failures}
    return [found.get(k) for k in range(len(examples))]


def raised(f, examples):
    """The same of the plain function."""
    found = []
    for example in examples:
        try:
            f(example)
            found.append(None)
        except Exception as error:
            found.append(type(error).__name__)
    return found


# ---- widths


@pytest.mark.parametrize("wide", [False, True], ids=["32 bits", "64 bits"])
def test_ints_and_floats_have_32_bits_unless_x64_is_on(wide):
    """Fields of examples, constants, and what is computed from them."""
    f = ab.batched(lambda q: (q[0], q[0] + 1, q[1], q[1] * 2, q[0] / 2, 7, 0.5))
    with jax.enable_x64(wide):
        found = f([(1, 0.25), (2, 0.5)])
    bits = 64 if wide else 32
    expected = ["int", "int", "float", "float", "float", "int", "float"]
    assert [str(x.dtype) for x in found] == [f"{name}{bits}" for name in expected]


def test_x64_is_part_of_the_key():
    """Two programs, and each call sees its own precision."""
    f = ab.batched(lambda x: x / 3)
    with jax.enable_x64(True):
        assert np.asarray(f([1.0]))[0] == 1 / 3
    assert np.asarray(f([1.0]))[0] == np.float32(1 / 3)
    assert f.cache_info().specialisations == 2


# ---- what Python means


def arithmetic(q):
    x, y = q
    return x // y, x % y, x / y, divmod(x, y), round(x / y), int(x / y), round(x), int(x), -x, abs(x), x - y, x * y


def powers(q):
    x, y = q
    return x**2, x ** abs(y % 4), 2.0**x, x**3 - y**2


def on_the_host(q):
    """The same operators where they decide structure."""
    x, y = q
    kept = [k for k in range(abs(x // y) % 5)] + [k for k in range(x % y if y > 0 else y % 7)]
    if round(x / y) > 1 or int(x / y) < -1:
        kept.append(divmod(x, y)[1])
    return len(kept), sum(kept), 1 if x**2 > y**2 else 0


BATCHED = {f: ab.batched(f) for f in (arithmetic, powers, on_the_host)}


@settings(max_examples=15)
@given(pairs(INTEGERS, INTEGERS.filter(bool)))
def test_operators_on_integers_mean_what_python_means(batch):
    """Floor and remainder by the divisor's sign, true division, round half to even, int towards zero; exactly."""
    with jax.enable_x64(True):
        for f, batched in BATCHED.items():
            alike(ab.unbatch(batched(batch)), [f(q) for q in batch], f.__name__)


@settings(max_examples=15)
@given(pairs(FLOATS, FLOATS.filter(lambda y: abs(y) > 1e-3)))
def test_operators_on_floats_mean_what_python_means(batch):
    """The same for floats, not what C means."""
    with jax.enable_x64(True):
        alike(ab.unbatch(BATCHED[arithmetic](batch)), [arithmetic(q) for q in batch])


@settings(max_examples=10)
@given(pairs(INTEGERS, FLOATS.filter(lambda y: abs(y) > 1e-3)))
def test_operators_on_mixed_numbers_mean_what_python_means(batch):
    """An int beside a float is a float."""
    with jax.enable_x64(True):
        alike(ab.unbatch(BATCHED[arithmetic](batch)), [arithmetic(q) for q in batch])


def test_rounding_is_half_to_even():
    """On the device and on the host."""
    halves = [-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5]
    agrees(ab.batched(lambda x: (round(x), int(x), round(x * 10, 1))), halves)
    agrees(ab.batched(lambda x: len(range(abs(round(x))))), halves)


def test_negative_operands_on_the_device():
    """Python numbers that only the device computes are Python numbers there, too."""
    f = ab.batched(lambda p, q: ((q[0] - p) // q[1], (q[0] - p) % q[1], round((q[0] - p) / q[1])), in_axes=(None, 0))
    agrees(f, 0.5, [(7, -2), (-7, 2), (-7, -2), (7, 2), (1, -3)])


def test_arrays_divide_as_jax_does():
    """`//` and `%` of arrays floor, too; an array divided by zero is infinite."""
    f = ab.batched(lambda x, n: (x // n, x % n, x / n))
    agrees(f, np.array([[7.0, -7.0], [-1.0, 5.0]], np.float32), [2, -3])
    assert np.isinf(np.asarray(ab.batched(lambda x: x / 0.0)(np.ones((2, 3), np.float32)))).all()


@pytest.mark.parametrize("function", [math.floor, math.ceil, math.trunc, math.sqrt, math.exp, math.atan])
def test_functions_of_math(function):
    """They mean the same on numbers of the examples."""
    agrees(ab.batched(lambda x: function(x)), [0.5, 2.5, 1.0, 0.25])


# ---- structural integers


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def test_structural_integers_have_64_bits():
    """Where the host computes, nothing is lost between 32 and 64 bits."""

    def f(n):
        big = n * 1_000_000_007
        return 1 if big > 3_000_000_000 else 0 if big % 1_000_000_006 == n else 2

    agrees(ab.batched(f), [0, 1, 2, 5, -7, 100])
    big = [2**40, 2**40 + 1, 3]
    agrees(ab.batched(lambda n: n % 1000 if n > 2**31 else -n), big)


@pytest.mark.parametrize(
    "f, examples",
    [
        (lambda n: 1 if 3**n > 5 else 2, [1, 2, 39, 41, 60]),
        (lambda n: 1 if n * n * n > 5 else 2, [1, 3, 2**21, 2**22]),
        (lambda n: 1 if n + 2**62 > 5 else 2, [1, 2**61, 2**62]),
        (lambda n: 1 if n << 40 > 5 else 2, [1, 2**20, 2**30]),
    ],
    ids=["power", "product", "sum", "shift"],
)
def test_one_that_overflows_fails_its_example(f, examples):
    """Python's integers grow; here the example fails, with OverflowError, and the others do not."""
    exact = [n for n in examples if kinds(f, [n]) == [None]]
    failed = [k for k in kinds(f, examples) if k is not None]
    assert set(failed) == {"OverflowError"} and len(exact) + len(failed) == len(examples)
    agrees(ab.batched(f), exact)


@pytest.mark.parametrize(
    "f",
    [
        lambda q: [k for k in range(q[0] // q[1])],
        lambda q: 1 if q[0] % q[1] else 2,
        lambda q: q[0] // q[1],
        lambda q: q[0] % q[1],
        lambda q: q[0] / q[1],
        lambda q: q[0] * 0.5 / q[1],
        lambda q: divmod(q[0], q[1]),
        lambda q: q[0] * 0.5 % q[1],
    ],
    ids=["structure", "condition", "floor", "remainder", "true", "float", "divmod", "float remainder"],
)
def test_one_that_divides_by_zero_fails_its_example(f):
    """Whether the quotient decides structure or is a number of the device."""
    examples = [(4, 2), (1, 0), (-3, 2), (0, 0)]
    assert kinds(f, examples) == raised(f, examples) == [None, "ZeroDivisionError", None, "ZeroDivisionError"]
    agrees(ab.batched(f), [(4, 2), (-3, 2)])


def test_the_mean_of_nothing_fails_its_example():
    """The length of a list is a structural integer."""
    f = ab.batched(lambda words: sum(words) / len(words), on_error="mask")
    found, failures = f([[1, 2], [], [4]])
    assert [x.kind for x in failures] == ["ZeroDivisionError"] and failures.details[0].index == 1
    close(found, [1.5, 0, 4])


@pytest.mark.parametrize("of", [np.asarray, jnp.asarray], ids=["numpy", "jax"])
@pytest.mark.parametrize("f", [lambda x: sum(x) / len(x), lambda x: sum(x) // len(x), lambda x: sum(x) % len(x)])
def test_python_s_sum_of_no_rows_is_an_int(f, of):
    """`sum` of an array without rows is the int 0, so the mean is 0 / 0, also where the rows are arrays."""
    examples = [of(x) for x in ([1.0, 2.0], np.zeros(0), [4.0])]
    assert kinds(f, examples) == raised(f, examples) == [None, "ZeroDivisionError", None]


def test_numpy_s_mean_of_nothing_is_nan():
    """What arrays compute of nothing is an array, which divides as IEEE 754 says."""
    f = ab.batched(lambda x: (x.sum() / len(x), np.sum(x) / len(x), sum(x) / (len(x) + 1)))
    for found in f([np.arange(3.0), np.zeros(0)])[:2]:
        np.testing.assert_array_equal(found, [1.0, np.nan])


def test_a_division_that_is_not_reached_does_not_fail():
    """Only the path taken divides."""
    agrees(ab.batched(lambda words: sum(words) / len(words) if words else -1.0), [[1, 2], [], [4]])


def test_floats_fail_as_python_s_do():
    """And elements of arrays divide as IEEE 754 says, as in NumPy."""
    examples = [(1.0, 0.0), (0.0, 0.0), (-1.0, 0.0), (1.0, 4.0)]

    def f(q):
        return q[0] / q[1], q[0] // q[1]

    assert kinds(f, examples) == raised(f, examples) == ["ZeroDivisionError"] * 3 + [None]
    quotient = ab.batched(lambda q: q[0] / q[1])(np.array(examples, np.float32))
    np.testing.assert_array_equal(quotient, np.array([np.inf, np.nan, -np.inf, 0.25], np.float32))


@pytest.mark.parametrize(
    "f",
    [lambda q: q[0][q[1]], lambda q: q[0][q[1]] * 0.5, lambda q: [2 * x for x in q[0]][q[1]], lambda q: q[2][q[1]]],
    ids=["int", "computed", "made here", "strings"],
)
def test_one_that_indexes_a_list_out_of_range_fails_its_example(f):
    """And a negative one counts from the end."""
    examples = [([1, 2, 3], n, ["a", "b", "c"]) for n in (0, 2, 3, -1, -3, -4)]
    assert kinds(f, examples) == raised(f, examples)
    assert kinds(f, examples) == [None, None, "IndexError", None, None, "IndexError"]


def test_ints_have_64_bits_where_they_need_them():
    """Nothing wraps silently: machine code computes again with 64 bits, and what needs more fails its example."""
    f = ab.batched(lambda n: n * 1_000_000, on_error="mask")
    found, failures = f([10, 100_000, -5, 2**50])
    assert [(x.index, x.kind, x.message) for x in failures] == [(3, "OverflowError", "an int needs more than 64 bits")]
    assert np.asarray(found).tolist() == [10_000_000, 100_000_000_000, -5_000_000, 0]
    assert np.asarray(f([10, 5])[0]).dtype == np.int32  # again where they do not
    with jax.enable_x64(True):
        assert ab.batched(lambda n: n * 1_000_000)([10, 100_000]).tolist() == [10_000_000, 100_000_000_000]


def test_by_xla_an_int_that_no_integer_of_the_device_holds_fails_its_example():
    f = ab.batched(lambda n: n * 1_000_000, on_error="mask", backend="xla")
    found, failures = f([10, 100_000, -5])
    assert [(x.index, x.kind) for x in failures] == [(1, "OverflowError")]
    assert np.asarray(found).tolist() == [10_000_000, 0, -5_000_000]


# ---- indices


def test_lists_index_as_python_does():
    """Items and slices, from both ends, at run time."""
    examples = [([3, 1, 4, 1, 5], n) for n in (-5, -2, 0, 1, 4)]
    agrees(ab.batched(lambda q: (q[0][q[1]], q[0][q[1] :], q[0][: q[1]], q[0][q[1] :: -1], q[0][-3:])), examples)


def test_jax_arrays_clamp_as_jax_does():
    """An index out of range reads the nearest row; a negative one counts from the end."""
    f = ab.batched(lambda p, n: p[n], in_axes=(None, 0))
    agrees(f, jnp.arange(5.0), [0, 4, 5, 100, -1, -5, -100])
    agrees(ab.batched(lambda q: q[0][q[1]]), [(jnp.arange(3.0), n) for n in (0, 2, 3, -1, -7)])


# ---- equality


@dataclass
class Point:
    x: int
    y: int


@dataclass(eq=False)
class Plain:
    x: int


class Close:
    def __init__(self, x):
        self.x = x

    def __eq__(self, other):
        return abs(self.x - other.x) < 2


def test_equality_of_objects_is_their_eq():
    """A method of the class, never identity."""
    examples = [(Close(1), Close(2)), (Close(1), Close(5)), (Close(3), Close(3))]
    f = ab.batched(lambda q: (q[0] == q[1], q[0] != q[1], q[0] is q[1]))
    agrees(f, examples)
    same = Close(4)
    agrees(f, [(same, same), *examples])


def test_equality_of_objects_without_eq_is_identity():
    """As in Python: the `__eq__` of object."""
    one = Plain(1)
    agrees(ab.batched(lambda q: q[0] == q[1]), [(one, one), (Plain(1), Plain(1))])


def test_equality_of_values():
    """Tuples, strings, None, enum members: by value."""

    def f(q):
        return q[0] == q[1], q[0] != q[1], (q[0], 1) == (q[1], 1), [q[0]] == [q[1]], [1, 2] == (1, 2)

    batched = ab.batched(f)
    for examples in ([(1, 1), (1, 2), (-3, -3)], [("a", "a"), ("a", "b")], [(0.5, 0.5), (0.25, 0.5)]):
        agrees(batched, examples)


def test_an_eq_is_asked_about_its_own_kind_only():
    """Not about None, which the user's method may not expect."""
    limit = Close(2)
    agrees(ab.batched(lambda q: limit == Close(q)), [1, 2, 7])


def test_equality_of_objects_built_in_the_function():
    """A dataclass compares its fields."""
    agrees(ab.batched(lambda q: Point(q[0], 2) == Point(q[1], 2)), [(1, 1), (1, 2)])


# ---- computed once


def test_a_structural_value_is_a_column_of_the_device():
    """The host computes it, and the device reads a number: both see the same one."""
    agrees(ab.batched(lambda t: size(t) * t.x if size(t) > 1 else t.x / size(t)), trees())
    assert "column" in ab.batched(lambda words: len(words) * 0.5).lower([[1], [2, 3]]).as_text("spmd")


def size(t):
    return 1 if t.left is None else 1 + size(t.left) + size(t.right)


# ---- the same in every batch


def test_integers_strings_structure_and_control_do_not_depend_on_the_batch():
    """Of one example alone, of a batch, of a repeated one: exactly the same. Floats nearly."""

    def f(t):
        big = size(t) > 2
        return {"size": size(t), "name": "big" if big else "small", "node": t.left, "h": total(t) if big else t.x}

    batched = ab.batched(f)
    together = ab.unbatch(batched(trees() * 5))
    for k, t in enumerate(trees()):
        (alone,) = ab.unbatch(batched([t]))
        for found in together[k::3]:
            assert (found["size"], found["name"]) == (alone["size"], alone["name"])
            alike(found["h"], alone["h"])
            assert (found["node"] is None) == (alone["node"] is None)


def total(t):
    return t.x if t.left is None else jnp.tanh(total(t.left) + total(t.right)) + t.x


def test_nan_stays_in_its_example():
    """In sums, recursions, products with zero rows: other examples do not see it."""
    bad = Node(1.0, Node(float("nan")), Node(2.0))
    f = ab.batched(lambda t: (total(t), sum([c.x for c in (t.left, t.right) if c is not None])))
    found, sums = f([trees()[1], bad, trees()[2], Node(float("nan")), Node(1.0)])
    assert np.isnan(np.asarray(found)).tolist() == [False, True, False, True, False]
    assert np.isnan(np.asarray(sums)).tolist() == [False, True, False, False, False]
    g = ab.batched(lambda w, xs: sum(xs) * w, in_axes=(None, 0))
    assert np.isnan(np.asarray(g(2.0, [[1.0], [float("nan"), 1.0], []]))).tolist() == [False, True, False]


def test_nan_in_data_passes_under_debug_nans_where_nothing_reads_it():
    """Rows of padding make no NaN of their own."""
    with jax.debug_nans(True):
        close(ab.batched(lambda t: jnp.log(total(t)))([Node(1.0), *trees()[1:2]]).shape, (2,))


def test_the_largest_integers():
    """The ends of the range are kept."""
    ends = [2**31 - 1, -(2**31), 0]
    agrees(ab.batched(lambda n: n), ends)
    agrees(ab.batched(lambda n: 1 if n > 2**62 else -1 if n < -(2**62) else 0), [2**63 - 1, -(2**63), 5])


@pytest.mark.parametrize(
    "f",
    [lambda n: 2**40, lambda n: (n, 2**40), lambda n: [n, 2**40]],
    ids=["result", "tuple", "list"],
)
def test_a_constant_of_64_bits(f):
    """XLA has none, and says what to write instead; under x64 it is a number like any other."""
    with pytest.raises(ab.Error, match="(?s)does not fit into.*write it as a float, or turn on jax_enable_x64"):
        ab.batched(f, backend="xla")([1, 2])
    assert ab.unbatch(ab.batched(f)([1, 2])) == [f(1), f(2)]
    with jax.enable_x64(True):
        agrees(ab.batched(f), [1, 2])


def test_a_constant_beside_a_float_is_a_float():
    """Then its size does not matter."""
    agrees(ab.batched(lambda n: (n * 0.5 + 2**40, n * 0.5 > 2**40, 2**40 / (n * 0.5))), [1, 2])
