"""Each operation that machine code knows, against JAX: in gangs, and one row after another."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax, random

import autobatch as ab
from autobatch.backends.llvm import machine_code
from autobatch.backends.llvm.lanes.ops import INNER, LOWER, WRITTEN
from autobatch.ir import jax_compat
from autobatch.options import OptionError
from tests.backends.lanes import more_cases
from tests.backends.lanes.harness import assert_equal, by_jax, check, equations, many

try:
    WIDTHS = (machine_code.host().bits // 32, 1)
except machine_code.UnavailableError as error:
    pytest.skip(f"no machine code here: {error}", allow_module_level=True)

COUNT = 37
RNG = np.random.default_rng(0)


def floats(*shape, low=-3.0, high=3.0):
    return jnp.asarray(RNG.uniform(low, high, (COUNT, *shape)), jnp.float32)


def ints(*shape, low=-9, high=9, dtype=np.int32):
    return jnp.asarray(RNG.integers(low, high, (COUNT, *shape)), dtype)


def bools(*shape):
    return jnp.asarray(RNG.random((COUNT, *shape)) > 0.5)


SPECIAL = jnp.asarray(
    [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -2.5, 3e38, -3e38, 1e-38, 7.0] * 3, jnp.float32
)[:COUNT]
EXTREME = jnp.asarray([0, 1, -1, 2**31 - 1, -(2**31), 7, -7, 3] * 5, jnp.int32)[:COUNT]
KEYS = random.split(random.key(3), COUNT)

# name: (function of one row, arguments, which of them have rows)
CASES = {
    "arithmetic of floats": (lambda x, y: (x + y, x - y, x * y, x / y, -x, abs(x)), (floats(), floats())),
    "extremes of floats": (lambda x, y: (jnp.maximum(x, y), jnp.minimum(x, y)), (SPECIAL, floats())),
    "comparisons": (lambda x, y: (x < y, x <= y, x > y, x >= y, x == y, x != y), (SPECIAL, SPECIAL[::-1])),
    "comparisons of ints": (lambda x, y: (x < y, x <= y, x > y, x >= y, x == y, x != y), (EXTREME, EXTREME[::-1])),
    "comparisons of unsigned": (
        lambda x, y: (x < y, x >= y),
        (EXTREME.astype(jnp.uint32), EXTREME[::-1].astype(jnp.uint32)),
    ),
    "rounding": (
        lambda x: (jnp.floor(x), jnp.ceil(x), jnp.round(x), lax.round(x), jnp.sign(x), jnp.isfinite(x)),
        (jnp.concatenate([SPECIAL[:12], floats()[:25] * 2]),),
    ),
    "arithmetic of ints": (
        lambda x, y: (x + y, x - y, x * y, -x, abs(x), jnp.maximum(x, y), jnp.minimum(x, y), jnp.sign(x)),
        (EXTREME, ints()),
    ),
    "arcs": (
        lambda x, y: (
            *(lax.asin(x), lax.acos(x), lax.atan(x), lax.atanh(x), lax.asinh(x), lax.acosh(x)),
            *(lax.atan2(x, y), lax.cbrt(x)),
        ),
        (floats(low=-1, high=1.5), floats()),
    ),
    "functions of statistics": (
        lambda x: (lax.erf(x), lax.erfc(x), lax.erf_inv(x / 4), lax.lgamma(x), lax.digamma(x)),
        (floats(low=3.0, high=3.9),),
    ),
    "remainders and neighbours": (lambda x, y: (lax.rem(x, y), lax.nextafter(x, y)), (floats(), floats())),
    "division of ints": (lambda x, y: (lax.div(x, y), lax.rem(x, y)), (EXTREME, jnp.roll(EXTREME, 1))),
    "division by zero": (lambda x, y: (lax.div(x, y), lax.rem(x, y)), (ints(), jnp.zeros(COUNT, jnp.int32))),
    "division of unsigned": (
        lambda x, y: (lax.div(x, y), lax.rem(x, y), jnp.sign(x)),
        (EXTREME.astype(jnp.uint32), jnp.roll(EXTREME, 3).astype(jnp.uint32)),
    ),
    "python's division": (lambda x, y: (x // y, x % y), (ints(), ints(low=1))),
    "bits": (lambda x, y: (x & y, x | y, x ^ y, ~x, lax.population_count(x)), (EXTREME, ints())),
    "shifts": (
        lambda x, y: (
            lax.shift_left(x, y),
            lax.shift_right_logical(x, y),
            lax.shift_right_arithmetic(x, y),
        ),
        (EXTREME, ints(low=0, high=40)),
    ),
    "logic": (lambda x, y: (x & y, x | y, x ^ y, ~x), (bools(), bools())),
    "functions": (
        lambda x: (jnp.exp(x), jnp.tanh(x), jax.nn.sigmoid(x), jnp.sin(x), jnp.cos(x), jnp.expm1(x), jnp.exp2(x)),
        (floats(low=-20, high=20),),
    ),
    "functions of more": (lambda x: (jnp.sinh(x), jnp.cosh(x), jnp.tan(x)), (floats(low=-8, high=8),)),
    "functions of positive numbers": (
        lambda x: (jnp.log(x), jnp.log1p(x), jnp.sqrt(x), lax.rsqrt(x), x**0.3, jnp.float32(2.5) ** x),
        (jnp.exp(floats(low=-30, high=30)),),
    ),
    "special values": (
        lambda x: (jnp.exp(x), jnp.tanh(x), jnp.log(x), jnp.log1p(x), jnp.sqrt(x), jnp.expm1(x), jnp.cosh(x)),
        (SPECIAL,),
    ),
    "powers": (lambda x, y: (lax.pow(x, y), x**3, x**-2, lax.square(x)), (SPECIAL, jnp.roll(SPECIAL, 1))),
    "powers of ints": (lambda x: (x**3, x * x), (ints(),)),
    "clamp": (lambda x: (lax.clamp(-1.0, x, 1.0), jnp.clip(x, 0.2, 5.0)), (floats(4),)),
    "choice": (lambda c, x, y: (jnp.where(c, x, y), lax.select(c[0], x, y)), (bools(5), floats(5), floats(5))),
    "conversions of floats": (
        lambda x: (x.astype(jnp.int32), x.astype(jnp.uint8), x.astype(bool), x.astype(jnp.int8)),
        (jnp.concatenate([SPECIAL[:10], floats()[:27] * 300]),),
    ),
    "conversions of ints": (
        lambda x: (x.astype(jnp.float32), x.astype(jnp.int8), x.astype(jnp.uint32), x.astype(bool)),
        (EXTREME,),
    ),
    "conversions of bools": (lambda x: (x.astype(jnp.float32), x.astype(jnp.int32)), (bools(3),)),
    "bits of floats": (lambda x: lax.bitcast_convert_type(x, jnp.int32), (SPECIAL,)),
    "shapes": (
        lambda x: (
            jnp.tile(x, (2, 3)),
            x.reshape(6),
            x.T,
            x[None],
            x[0],
            jnp.squeeze(x[:1]),
            x[::2, 1:],
            jnp.flip(x, 1),
            x.ravel()[::-1],
        ),
        (floats(2, 3),),
    ),
    "large shapes": (lambda x: (jnp.tile(x, 2), x.reshape(8, 12).T.reshape(96), jnp.flip(x)[3:90:4]), (floats(96),)),
    "broadcasts": (lambda x, y: (x[:, None] + y[None], jnp.broadcast_to(x[0], (3, 2))), (floats(4), floats(3))),
    "joins": (
        lambda x, y: (jnp.concatenate([x, y, x]), jnp.stack([x[:2], y[:2]], 1), jnp.pad(x, (1, 2)), jnp.split(y, 2)[1]),
        (floats(3), floats(4)),
    ),
    "large joins": (
        lambda x, y: (
            jnp.concatenate([x, y]),
            jnp.stack([x, y[:20]], 1),
            jnp.pad(x, (5, 3)),
            lax.pad(y, 0.0, [(1, 0, 1)]),
        ),
        (floats(20), floats(30)),
    ),
    "many joins": (
        lambda x, y: (jnp.stack(list(x), 1), jnp.concatenate([y[k::5, None] for k in range(5)], 1)),
        (floats(5, 4), floats(25)),
    ),
    "unstack": (lambda x: tuple(jnp.unstack(x, axis=1)), (floats(2, 3),)),
    "split": (lambda x: tuple(jnp.split(x, [1, 4])), (floats(6),)),
    "iota": (lambda x: (x + jnp.arange(5), lax.broadcasted_iota(jnp.int32, (2, 3), 1) + x.astype(int)), (floats(),)),
    "reductions": (
        lambda x: (x.sum(), x.prod(), x.max(0), x.min(1), x.mean(), (x > 0).any(), (x > -2).all(0)),
        (floats(3, 4),),
    ),
    "reductions of many": (lambda x: (x.sum(), x.max(), x.min(), jnp.dot(x, x)), (floats(100),)),
    "reductions of ints": (lambda x: (x.sum(), x.max(), x.min(), x.prod()), (ints(20, low=-2, high=3),)),
    "places": (lambda x: (jnp.argmax(x), jnp.argmin(x, axis=-1), jnp.argmax(x[:3])), (floats(9),)),
    "places of nan": (lambda x: (jnp.argmax(x), jnp.argmin(x)), (jnp.stack([SPECIAL, jnp.roll(SPECIAL, 1)], 1),)),
    "running sums": (
        lambda x: (jnp.cumsum(x), jnp.cumprod(x), lax.cummax(x, reverse=True), lax.cummin(x)),
        (floats(7),),
    ),
    "products": (
        lambda a, b, v: (a @ b, b @ v, jnp.einsum("ij,kj->ki", a, b.T), a * 2.0),
        (floats(2, 3), floats(3, 4), floats(4)),
    ),
    "large products": (
        lambda a, b, v: (v @ b, a @ b, b.T @ v),
        (floats(2, 20), floats(20, 11), floats(20)),
    ),
    "a slice at a place": (
        lambda x, i: (x[i], lax.dynamic_slice(x, (i,), (3,)), lax.dynamic_index_in_dim(x, i, keepdims=False)),
        (floats(7), ints(low=-4, high=12)),
    ),
    "a write at a place": (
        lambda x, i: (lax.dynamic_update_slice(x, x[:2] * 2, (i,)), x.at[i].set(3.0), x.at[i].add(x[0])),
        (floats(7), ints(low=-4, high=12)),
    ),
    "other writes": (lambda x, i: (x.at[i].max(0.5), x.at[i].min(0.5), x.at[i].multiply(2.0)), (floats(7), ints())),
    "many reads": (
        lambda x, i: (x[i], jnp.take(x, i, mode="clip"), jnp.take(x, i, mode="fill", fill_value=-1.0)),
        (floats(9), ints(4, low=-12, high=12)),
    ),
    "reads of rows": (lambda x, i: (x[i], x[:, i[0]]), (floats(4, 3), ints(2, low=0, high=3))),
    "random bits": (
        lambda k: (random.bits(k), random.bits(k, (3,)), random.bits(k, (2,), jnp.uint8), random.uniform(k, (2,))),
        (KEYS,),
    ),
    "random keys": (
        lambda k: (random.split(k, 3), random.fold_in(k, 5), random.key_data(k), random.split(k)[1]),
        (KEYS,),
    ),
    "random ints": (lambda k: (random.randint(k, (), 0, 10), random.bernoulli(k, 0.3)), (KEYS,)),
    "keys of numbers": (lambda n: (random.key(n), random.key(n + 7)), (ints(),)),
    "words of random bits": (
        lambda a, b: tuple(jax_compat.primitive("threefry2x32").bind(a, b, b, a)),
        (EXTREME.astype(jnp.uint32), ints().astype(jnp.uint32)),
    ),
    "keys from words": (lambda k: random.wrap_key_data(random.key_data(k)), (KEYS,)),
    "a custom derivative": (jax.nn.relu, (floats(3),)),
    "nothing": (lambda x: (lax.stop_gradient(x), jnp.copy(x)), (floats(2),)),
}


def groups():
    """Examples that JAX compiles together, which takes a fraction of the time."""
    names = list(CASES)
    for k in range(0, len(names), 20):
        yield f"operations from {names[k]}", (False, lambda k=k: {n: CASES[n] for n in names[k : k + 20]})
    yield from more_cases.groups().items()


GROUPS = dict(groups())


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.long) if n.startswith("more") else n for n in GROUPS]
)
def test_equals_jax(name):
    """In gangs, and one row after another."""
    wide, make = GROUPS[name]
    with jax.enable_x64(wide):
        cases, live = make(), jnp.arange(COUNT) % 5 != 3
        wanted = by_jax(cases)
        for width in WIDTHS:
            found = many(cases, width)(live)
            for case in cases:
                assert_equal(found[case], wanted[case], live, 32.0, f"{case}, {width} lanes")


@pytest.mark.parametrize("width", WIDTHS, ids=lambda w: f"{w} lanes")
def test_what_all_rows_share(width):
    matrix = jnp.asarray(RNG.normal(size=(5, 30)), jnp.float32)
    check(
        lambda a, x, s: (a @ x * s, a[1] + s), (matrix, floats(30), jnp.float32(2.0)), [False, True, False], width, 32.0
    )


def test_every_operation_is_here():
    """But for three of our own, and sums of cotangents: the tests of masks and of chosen objects have them."""
    seen = {i.op.name for fun, rows in all_cases().values() for i in equations(fun, *(x[0] for x in rows))[1]}
    known = {*LOWER, *INNER} - {"platform_index"}  # that of the determinant of a large matrix (test_matrices.py)
    assert known - seen == {"undefined", "unknown", "within", "add_any"}


def all_cases():
    return {n: c for wide, make in GROUPS.values() if not wide for n, c in make().items()}


OF_OTHERS = {
    "custom derivatives, which consist of other operations": "call_hi_primitive custom_jvp_call custom_vjp_call",
    "groups of operations, which are dissolved": "call closed_call eval_jaxpr jit remat2",
    "linear algebra": "eig eigh hessenberg householder_product qr schur svd tridiagonal tridiagonal_solve fft",
    "windows whose places are chosen by numbers, or that are combined by a function of the user's": "reduce_window "
    "select_and_gather_add select_and_scatter select_and_scatter_add",
    "several devices": "all_gather all_to_all axis_index pmax pmin ppermute psum ragged_all_to_all sharding_constraint",
    "tokens, references and what JAX needs for itself": "after_all create_token custom_lin empty2 get swap",
    "generators of random numbers that are not threefry": "rng_bit_generator rng_uniform",
    "approximations": "approx_top_k",
}
"""Primitives of JAX that are not in the table, and why."""


def test_every_primitive_of_jax_is_here_or_is_known_not_to_be():
    """A newer JAX may have more: whoever supports it says what they are."""
    known = {name for names in OF_OTHERS.values() for name in names.split()}
    names = {x.name for x in vars(jax_compat.primitives).values() if isinstance(x, jax_compat.jex.Primitive)}
    assert names - known - {*LOWER, *INNER, *WRITTEN} == set()
    assert known.isdisjoint({*LOWER, *INNER, *WRITTEN})


def test_a_refusal_says_which_operation_and_where():
    """The line is the user's; the operation has its types."""

    @ab.batched
    def solves(x):
        y = x
        while y.sum() < 10:
            y = jnp.linalg.eigh(jnp.outer(y, y) + jnp.eye(3))[1][0] + 1.0
        return y

    here = solves.__wrapped__.__code__.co_firstlineno
    with ab.options(loops="native"), pytest.raises(OptionError) as caught:
        solves(floats(3))
    assert "eigh(float32[3x3])" in str(caught.value)
    assert f"test_ops.py:{here + 4}" in str(caught.value)
