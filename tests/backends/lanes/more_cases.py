"""Examples of operations in every dtype: name -> (function of one row, arrays of rows), under the x64 that holds."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name

COUNT = 37
RNG = np.random.default_rng(1)

WHOLE_WIDE = ("int64", "uint64")
HALVES = ("float16", "bfloat16")


def edges(dtype):
    """Numbers at which things change, in another order each time."""
    dtype = jnp.dtype(dtype)
    if dtype.kind == "b":
        few = [False, True]
    elif jnp.issubdtype(dtype, jnp.integer):
        most, least = jnp.iinfo(dtype).max, jnp.iinfo(dtype).min
        few = [0, 1, 2, 3, 7, 8, most, most - 1, least, least + 1, most // 2, 100]
    elif jnp.issubdtype(dtype, jnp.complexfloating):
        parts = [0.0, 1.0, -1.5, 3.0, 0.25, -0.75]
        few = [complex(a, b) for a in parts for b in parts]
    else:
        info = jnp.finfo(dtype)
        few = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, -2.5, 3.0, np.inf, -np.inf, np.nan, 0.1]
        few += [float(info.tiny), float(info.max), -float(info.max), float(info.eps)]
    return jnp.asarray(RNG.permutation(np.resize(np.asarray(few, dtype), COUNT)))


def rows(dtype, *shape, low=-3, high=4):
    dtype = jnp.dtype(dtype)
    if dtype.kind == "b":
        return jnp.asarray(RNG.random((COUNT, *shape)) > 0.5)
    if jnp.issubdtype(dtype, jnp.integer):
        low = max(low, 0) if jnp.issubdtype(dtype, jnp.unsignedinteger) else low
        return jnp.asarray(RNG.integers(low, high, (COUNT, *shape)), dtype)
    found = RNG.uniform(low, high, (COUNT, *shape))
    if jnp.issubdtype(dtype, jnp.complexfloating):
        found = found + 1j * RNG.uniform(low, high, (COUNT, *shape))
    return jnp.asarray(found, dtype)


def whole(dtype):
    """Of integers."""
    a, b, some = edges(dtype), edges(dtype), rows(dtype, 4)
    return {
        f"{dtype} arithmetic": (
            lambda x, y: (x + y, x - y, x * y, -x, abs(x), jnp.sign(x), jnp.maximum(x, y), jnp.minimum(x, y)),
            (a, b),
        ),
        f"{dtype} division": (lambda x, y: (lax.div(x, y), lax.rem(x, y)), (a, b)),
        f"{dtype} bits": (
            lambda x, y: (x & y, x | y, x ^ y, ~x, lax.population_count(x), lax.clz(x)),
            (a, b),
        ),
        f"{dtype} shifts": (
            lambda x, y: (lax.shift_left(x, y), lax.shift_right_logical(x, y), lax.shift_right_arithmetic(x, y)),
            (a, rows(dtype, low=0, high=20)),
        ),
        f"{dtype} comparisons": (lambda x, y: (x < y, x <= y, x > y, x >= y, x == y, x != y), (a, b)),
        f"{dtype} conversions": (
            lambda x: (x.astype(jnp.float32), x.astype(bool), x.astype(jnp.int8), x.astype(jnp.uint32)),
            (a,),
        ),
        f"{dtype} reductions": (
            lambda x: (
                *(lax.reduce_sum_p.bind(x, axes=(0,), out_sharding=None), x.max(), x.min(), jnp.argmax(x)),
                *(lax.reduce_and(x, (0,)), lax.reduce_or(x, (0,)), lax.reduce_xor(x, (0,)), lax.cummax(x)),
            ),
            (some,),
        ),
        f"{dtype} order": (lambda x: (jnp.sort(x), jnp.argsort(x), *lax.top_k(x, 3)), (some,)),
        f"{dtype} powers": (lambda x: (x**3, lax.square(x), lax.clamp(x * 0 + 1, x, x * 0 + 3)), (a,)),
    }


def floats(dtype):
    """Of floats, but for their functions."""
    a, b, some, more = edges(dtype), edges(dtype), rows(dtype, 4), rows(dtype, 2, 3)
    return {
        f"{dtype} arithmetic": (
            lambda x, y: (x + y, x - y, x * y, -x, abs(x), jnp.maximum(x, y), jnp.minimum(x, y), jnp.sign(x)),
            (a, b),
        ),
        f"{dtype} division": (lambda x, y: (x / y, lax.integer_pow(y, 3), lax.square(y)), (a, b)),
        f"{dtype} comparisons": (lambda x, y: (x < y, x <= y, x > y, x >= y, x == y, x != y), (a, b)),
        f"{dtype} rounding": (
            lambda x: (jnp.floor(x), jnp.ceil(x), jnp.round(x), lax.round(x), jnp.isfinite(x), lax.sqrt(abs(x))),
            (a,),
        ),
        f"{dtype} conversions": (
            lambda x: (x.astype(jnp.float32), x.astype(bool), x.astype(jnp.int32), x.astype(jnp.uint8)),
            (a,),
        ),
        f"{dtype} from others": (lambda x, y: (x.astype(dtype), y.astype(dtype)), (edges("int32"), edges("float32"))),
        f"{dtype} reductions": (
            lambda x: (x.sum(), x.max(0), x.min(), x.prod(1), x.mean(), jnp.argmax(x[0]), jnp.argmin(x, 1)),
            (more,),
        ),
        f"{dtype} running": (lambda x: (jnp.cumsum(x), lax.cummax(x), lax.cummin(x)), (some,)),
        f"{dtype} moves": (
            lambda x, i: (x[::-1], x[i], x.at[i].set(1.5), jnp.pad(x, 1), jnp.where(x > 0, x, 2), jnp.stack([x, x])),
            (some, rows("int32", low=0, high=4)),
        ),
        f"{dtype} products": (lambda x, y: (x @ y, jnp.dot(y, y)), (more, rows(dtype, 3))),
        f"{dtype} order": (lambda x, y: (jnp.sort(x), jnp.argsort(x), lax.top_k(y, 2)[0]), (some, some)),
        f"{dtype} constants": (lambda x: (x + np.asarray([1.5, -2.0, 3.0], dtype), jnp.arange(3, dtype=dtype)), (a,)),
    }


def complexes(dtype):
    a, b, some, more = edges(dtype), rows(dtype), rows(dtype, 4), rows(dtype, 2, 3)
    part = "float32" if dtype == "complex64" else "float64"
    return {
        f"{dtype} arithmetic": (lambda x, y: (x + y, x - y, x * y, x / y, -x, x == y, x != y), (a, b)),
        f"{dtype} parts": (
            lambda x, y: (x.real, x.imag, jnp.conj(x), abs(x), lax.complex(y, y * 2), jnp.isfinite(x)),
            (a, rows(part)),
        ),
        f"{dtype} powers": (lambda x: (x**3, lax.integer_pow(x, -2), lax.square(x), jnp.sign(x), lax.sqrt(x)), (b,)),
        f"{dtype} reductions": (lambda x, y: (x.sum(), jnp.cumsum(x), x @ x, y @ y.T, y.T @ x[:2]), (some, more)),
        f"{dtype} moves": (
            lambda x, i: (x[::-1], x[i], x.at[i].set(1j), x.at[i].add(2.0), jnp.where(x.real > 0, x, 1 + 2j)),
            (some, rows("int32", low=0, high=4)),
        ),
        f"{dtype} conversions": (
            lambda x, y: (
                x.astype(dtype),
                y.astype(dtype),
                lax.convert_element_type(x, dtype) * np.asarray(1 - 2j, dtype),
            ),
            (rows(part), rows("int32")),
        ),
    }


def complex_functions(dtype):
    """Those that need functions of floats."""
    return {f"{dtype} functions": (lambda x: (jnp.exp(x), jnp.sin(x), jnp.cos(x), jnp.log(x)), (rows(dtype),))}


def carried(x, ys):
    def turn(c, y):
        return jnp.sin(c) + y, (c * y, y > c)

    return lax.scan(turn, x, ys)


def collatz(n):
    return lax.while_loop(
        lambda s: s[0] > 1, lambda s: (jnp.where(s[0] % 2 == 0, s[0] // 2, 3 * s[0] + 1), s[1] + 1), (n, 0)
    )


def nested_loops(x, n):
    """A loop inside of a branch inside of a loop; as many turns as each row wants."""

    def body(s):
        k, y = s
        y = lax.cond(y > 2, lambda y: lax.fori_loop(0, k, lambda _, z: z * 0.75, y), lambda y: y * 1.5 + 1, y)
        return k + 1, y

    return lax.while_loop(lambda s: s[0] < n, body, (0, x))[1]


def single():
    """What has no dtype of its own."""
    x, v, m, n = rows("float32"), rows("float32", 7), rows("float32", 3, 5), rows("int32", low=-2, high=5)
    long = rows("float32", 23)
    places = rows("int32", 4, low=-9, high=9)
    return {
        "scan": (carried, (x, v)),
        "a scan backward": (lambda x, v: lax.scan(lambda c, y: (c * 0.5 + y, c), x, v, reverse=True), (x, v)),
        "a long scan": (lambda x, v: lax.scan(lambda c, y: (jnp.tanh(c + y * c), c + y), x, v), (x, long)),
        "a scan of arrays": (lambda v, m: lax.scan(lambda c, r: (c[::-1] + r.sum(), c * 2), v, m), (v, m)),
        "while": (collatz, (rows("int32", low=1, high=30),)),
        "for": (lambda x, n: lax.fori_loop(0, n, lambda i, y: y * 0.5 + i, x), (x, n)),
        "cond": (lambda x, v: lax.cond(x > 0, lambda v: (v.sum(), v), lambda v: (v[0], -v), v), (x, v)),
        "switch": (
            lambda n, x: lax.switch(n, [lambda x: x, lambda x: x * 2, lambda x: jnp.sin(x) - 1, lambda x: -x], x),
            (n, x),
        ),
        "loops in branches in loops": (nested_loops, (x, n)),
        "a map": (lambda v: lax.map(lambda y: jnp.exp(-y * y), v), (v,)),
        "an associative scan": (lambda v: lax.associative_scan(jnp.multiply, v), (v,)),
        "reduce": (lambda m: lax.reduce(m, jnp.float32(1.0), lambda a, b: a * 0.5 + b, (1,)), (m,)),
        "many cases": (lambda n, v: lax.select_n(jnp.clip(n, 0, 2), v[0], v[1], v[2]), (n, v)),
        "order by several keys": (lambda v: lax.sort((jnp.round(v), v, v * 2), num_keys=1), (v,)),
        "order along the first axis": (lambda m: (jnp.sort(m, 0), jnp.argsort(m, 1), jnp.median(m)), (m,)),
        "order of nan": (
            lambda v: (jnp.sort(v), jnp.argsort(v)),
            (jnp.stack([edges("float32") for _ in range(5)], 1),),
        ),
        "order of many": (lambda v: (jnp.sort(v), jnp.argsort(v), *lax.top_k(v, 5)), (long,)),
        "running logsumexp": (lambda v: (lax.cumlogsumexp(v), lax.cumlogsumexp(v, reverse=True)), (v,)),
        "running logsumexp of nothing": (lax.cumlogsumexp, (jnp.where(v > 1, -jnp.inf, v),)),
        "windows": (
            lambda v, m: (
                lax.reduce_window(v, 0.0, lax.add, (3,), (2,), "SAME"),
                lax.reduce_window(m, -jnp.inf, lax.max, (2, 2), (1, 2), "VALID"),
                lax.reduce_window(v, jnp.inf, lax.min, (2,), (1,), "VALID", window_dilation=(2,)),
            ),
            (v, m),
        ),
        "convolutions": (
            lambda v, m: (jnp.convolve(v, v[:3]), lax.conv(m[None, None], m[None, None, :2, :2], (1, 2), "SAME")),
            (v, m),
        ),
        "bits of other sizes": (
            lambda x, b: (
                *(lax.bitcast_convert_type(x, d) for d in (jnp.uint8, jnp.int16, jnp.uint32)),
                *(lax.bitcast_convert_type(b, d) for d in (jnp.float32, jnp.uint32)),
            ),
            (x, rows("uint8", 4, high=255)),
        ),
        "another precision": (
            lambda x, y: tuple(lax.reduce_precision(v, *d) for v in (x, y) for d in ((5, 10), (8, 7), (4, 3), (8, 23))),
            (edges("float32"), rows("float32") * 1e-4),
        ),
        "reads by several indices": (
            lambda m, i: (m[i[:3] % 3, i[1:]], m[:, i], jnp.take_along_axis(m, i[:3, None] % 5, 1), m[i[0] % 3, 1:3]),
            (m, places),
        ),
        "writes by several indices": (
            lambda m, i: (m.at[i[:2] % 3, i[2:]].add(1.0), m.at[1, i].set(0.0), m.at[:, 1].multiply(2.0)),
            (m, places),
        ),
        "orders with a sign and nan": (
            lambda x, y: (lax.lt_to_p.bind(x, y), lax.le_to_p.bind(x, y), lax.eq_to_p.bind(x, y)),
            (edges("float32"), edges("float32")),
        ),
        "on a device": (lambda x: jax.device_put(x) * 2, (x,)),
        "barriers": (lambda x, v: lax.optimization_barrier((x + 1, v)), (x, v)),
        "names": (lambda x: checkpoint_name(x * 2, "twice") + 1, (x,)),
        "a derivative of a scan": (jax.grad(lambda x: carried(x, jnp.arange(5.0))[0]), (x,)),
        "linear algebra by hand": (
            lambda m: jnp.einsum("ij,kj->ik", m, m) + jnp.trace(m[:, :3]) + jnp.vander(m[0], 3)[0],
            (m,),
        ),
        "counts": (lambda v: (jnp.histogram(v, 4)[0], jnp.searchsorted(jnp.sort(v), 0.5), jnp.unique(v, size=3)), (v,)),
    }


def groups():
    """Examples that are compiled together, by what is wanted of x64."""
    narrow = {
        "what has no dtype": single,
        "integers of 8 and 16 bits": lambda: {n: c for d in ("int8", "uint16") for n, c in whole(d).items()},
        "more integers of 8 and 16 bits": lambda: {n: c for d in ("uint8", "int16") for n, c in whole(d).items()},
        "integers of 32 bits": lambda: {n: c for d in ("int32", "uint32") for n, c in whole(d).items()},
        "float32 and complex": lambda: {
            **floats("float32"),
            **complexes("complex64"),
            **complex_functions("complex64"),
        },
        "floats of 16 bits": lambda: {n: c for d in HALVES for n, c in floats(d).items()},
    }
    wide = {
        "integers of 64 bits": lambda: {n: c for d in WHOLE_WIDE for n, c in whole(d).items()},
        "float64 and complex": lambda: {
            **floats("float64"),
            **complexes("complex128"),
            **complex_functions("complex128"),
        },
    }
    return {**{n: (False, f) for n, f in narrow.items()}, **{n: (True, f) for n, f in wide.items()}}
