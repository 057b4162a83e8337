"""Host operations against JAX (primitives) and against Python (our own operations)."""

import operator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

from autobatch.errors import NOWHERE
from autobatch.ir import host_ops, jax_compat
from autobatch.ir.core import FLOAT, INT, Apply, Array, Literal, Value
from autobatch.ir.ops import Op, own

INT32 = np.array([0, 1, -1, 7, -7, 3, 40, -(2**31), 2**31 - 1, 5], np.int32)
FLOATS = np.array([0.0, -0.0, 0.5, -0.5, 1.5, -2.5, 1e30, np.inf, -np.inf, np.nan], np.float32)
BOOLS = np.array([True, False] * 5)


def equations(fun, *examples):
    """The leaf operations of a traced function, with their operands and result types."""
    applies: list[Apply] = []
    closed, _ = jax_compat.trace(fun, *(jax_compat.type_of(x) for x in examples))
    counter = iter(range(10**6))
    args = [Value(next(counter), jax_compat.type_of(x)) for x in examples]
    constants = []
    out = jax_compat.inline(
        closed,
        args,
        lambda t: Value(next(counter), t),
        lambda c: constants.append(c) or Literal(None, jax_compat.type_of(c), len(constants) - 1),
        applies.append,
        NOWHERE,
    )
    return args, applies, constants, out


def on_host(fun, *columns):
    """`fun` over the rows of `columns`, every operation by NumPy."""
    args, applies, constants, out = equations(fun, *(jnp.asarray(c[0]) for c in columns))
    env = dict(zip(args, columns))
    rows = len(columns[0])

    def read(x):
        if not isinstance(x, Literal):
            return env[x]
        value = constants[x.constant] if x.constant >= 0 else x.value
        return np.broadcast_to(np.asarray(value), (rows, *np.shape(value)))

    for a in applies:
        assert host_ops.can_evaluate(a.op), a.op.name
        env.update(zip(a.results, host_ops.evaluate(a.op, [r.type for r in a.results], [read(x) for x in a.operands])))
    return [read(x) for x in out]


def check(fun, *columns, exact=True):
    got = on_host(fun, *columns)
    want = jax.tree.leaves(jax.vmap(fun)(*columns))
    for g, w in zip(got, want, strict=True):
        assert g.dtype == w.dtype
        if exact:
            np.testing.assert_array_equal(g, w)
        else:
            np.testing.assert_allclose(g, w, rtol=2e-6, atol=1e-7)


BINARY = [lax.add, lax.sub, lax.mul, lax.div, lax.rem, lax.max, lax.min]
COMPARE = [lax.eq, lax.ne, lax.lt, lax.le, lax.gt, lax.ge]


@pytest.mark.parametrize("fun", BINARY + COMPARE, ids=lambda f: f.__name__)
@pytest.mark.parametrize("column", [INT32, FLOATS], ids=["int", "float"])
def test_binary_primitives_agree_with_jax_on_all_pairs(fun, column):
    x, y = np.repeat(column, len(column)), np.tile(column, len(column))
    check(fun, x, y)


@pytest.mark.parametrize(
    "fun",
    [
        lax.bitwise_and,
        lax.bitwise_or,
        lax.bitwise_xor,
        lax.shift_left,
        lax.shift_right_arithmetic,
        lax.shift_right_logical,
    ],
    ids=lambda f: f.__name__,
)
def test_bits(fun):
    check(fun, np.repeat(INT32, len(INT32)), np.tile(INT32, len(INT32)))


@pytest.mark.parametrize(
    "fun",
    [
        lambda x: lax.convert_element_type(x, jnp.int32),
        lambda x: lax.convert_element_type(x, jnp.uint8),
        lambda x: lax.convert_element_type(x, bool),
        lax.floor,
        lax.ceil,
        lax.abs,
        lax.neg,
        lax.sign,
        lax.is_finite,
        lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO),
        jnp.round,
        lambda x: x > 0.1,
        lambda x: x == 1.5,
        lambda x: jnp.clip(x, -1.0, 1.0),
        lambda x: jnp.where(x > 0, x, 2.0),
    ],
)
def test_functions_of_a_float(fun):
    check(fun, FLOATS)


@pytest.mark.parametrize(
    "fun",
    [
        lax.sqrt,
        lax.exp,
        lax.log,
        lax.rsqrt,
        lax.tanh,
        lax.logistic,
        lambda x: x**0.5,
        lambda x: x**3,
        lambda x: x**-2,
        lambda x: lax.log1p(x),
        lambda x: lax.square(x),
    ],
)
def test_smooth_functions(fun):
    check(fun, np.abs(np.array([0.1, 0.5, 1.0, 2.0, 7.5, 30.0], np.float32)), exact=False)


@pytest.mark.parametrize(
    "fun",
    [
        lambda a, i: a[i],
        lambda a, i: a[1:4],
        lambda a, i: a[::-1],
        lambda a, i: a.sum(),
        lambda a, i: a.max(),
        lambda a, i: a.min(),
        lambda a, i: jnp.argmax(a),
        lambda a, i: jnp.argmin(a),
        lambda a, i: a[None] * 2,
        lambda a, i: a.reshape(1, 6).T,
        lambda a, i: jnp.any(a > 0),
        lambda a, i: jnp.all(a > 0),
        lambda a, i: a.prod(),
        lambda a, i: jnp.broadcast_to(a[:, None], (6, 2)),
        lambda a, i: jnp.concatenate([a, a + 1]),
        lambda a, i: lax.dynamic_slice(a, (i,), (3,)),
        lambda a, i: a + i,
        lambda a, i: a[:0].max(initial=-3),
        lambda a, i: jnp.where(i > 0, a, -a),
        lambda a, i: lax.reduce_max(a[:0], (0,)),
        lambda a, i: a // 3 + a % -4,
    ],
)
def test_small_arrays(fun):
    a = np.array([[3, 1, 2, -5, 0, 9], [7, 7, 7, 7, 7, 7], [0, -1, -2, -3, -4, -5]], np.int32)
    check(fun, a, np.array([-1, 2, 40], np.int32))


ints = st.integers(-(2**63), 2**63 - 1) | st.integers(-10, 10)
floats = st.floats(allow_nan=False) | st.integers(-4, 4).map(float)
OWN = {"floordiv": operator.floordiv, "mod": operator.mod, "truediv": operator.truediv, "pow": operator.pow}


def agrees_with_python(op, type, function, *values):
    """The value Python gives, or its failure."""
    xs = [np.array([v]) for v in values]
    failed = host_ops.fails(op, *xs)
    try:
        want = function(*values)
    except (ArithmeticError, ValueError) as error:
        assert failed is not None and failed[0]
        kind, message = host_ops.failure(op, *(x[0] for x in xs))
        assert (kind, message) == (type_name(error), str(error.args[-1]))
        return
    if isinstance(want, complex) or (isinstance(want, int) and not -(2**63) <= want < 2**63):
        assert failed[0]
    elif isinstance(want, float) and isinstance(type, Array) and type.is_integer:
        assert failed[0]  # int ** -int
    else:
        assert failed is None or not failed[0]
        (got,) = host_ops.evaluate(op, [type], xs)
        assert got.shape == (1,) and (got[0] == want or (got[0] != got[0] and want != want)), (got, want)


def type_name(error):
    return type(error).__name__


@given(st.sampled_from(sorted(OWN)), ints, ints)
def test_python_arithmetic_on_ints(name, x, y):
    if name == "pow":
        y %= 70
    agrees_with_python(own(name), FLOAT if name == "truediv" else INT, OWN[name], x, y)


@given(st.sampled_from(sorted(OWN)), floats, floats)
def test_python_arithmetic_on_floats(name, x, y):
    agrees_with_python(own(name), FLOAT, OWN[name], x, y)


@given(floats | st.just(float("nan")) | st.just(float("inf")), st.integers(-3, 3))
def test_round_and_int(x, digits):
    agrees_with_python(own("int"), INT, int, x)
    agrees_with_python(own("round", ndigits=None), INT, round, x)
    if abs(x) < 1e300:
        agrees_with_python(own("round", ndigits=digits), FLOAT, lambda v: round(v, digits), x)


@given(ints, st.integers(-3, 3))
def test_round_of_ints(x, digits):
    agrees_with_python(own("round", ndigits=None), INT, round, x)
    if abs(x) < 2**62:
        agrees_with_python(own("round", ndigits=digits), INT, lambda v: round(v, digits), x)


@given(st.sampled_from([(lax.add_p, operator.add), (lax.sub_p, operator.sub), (lax.mul_p, operator.mul)]), ints, ints)
def test_python_ints_do_not_wrap(pair, x, y):
    primitive, function = pair
    op = Op(primitive.name, (), primitive)
    want = function(x, y)
    failed = host_ops.fails(op, np.array([x]), np.array([y]))[0]
    assert failed == (not -(2**63) <= want < 2**63)
    if not failed:
        assert host_ops.evaluate(op, [INT], [np.array([x]), np.array([y])])[0][0] == want


def test_jax_evaluates_the_rest_for_any_number_of_rows():
    _, (apply,), _, _ = equations(lambda a: jnp.cumsum(a), jnp.arange(4))
    assert not host_ops.can_evaluate(apply.op)
    for rows in (0, 1, 3, 8):
        column = np.arange(rows * 4, dtype=np.int32).reshape(rows, 4)
        (got,) = host_ops.evaluate(apply.op, [apply.results[0].type], [column])
        np.testing.assert_array_equal(got, np.cumsum(column, 1))


def test_an_operation_without_operands_has_as_many_rows_as_asked_for():
    _, (apply,), _, _ = equations(lambda: jnp.arange(3))
    (got,) = host_ops.evaluate(apply.op, [apply.results[0].type], [], rows=2)
    np.testing.assert_array_equal(got, [[0, 1, 2], [0, 1, 2]])


@pytest.mark.parametrize("x64", [False, True])
def test_leading_zeros_are_those_of_the_device(x64):
    """The host has 64 bits for each integer."""
    with jax.enable_x64(x64):
        (found,) = host_ops.evaluate(Op("clz", (), lax.clz_p), [Array("int32")], [np.array([4, 1], np.int64)])
    assert found.tolist() == [29, 31]
