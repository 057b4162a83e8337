"""One operation on rows by machine code, beside what JAX makes of it."""

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.backends.llvm import machine_code
from autobatch.backends.llvm.lanes.blocks import library
from autobatch.backends.llvm.lanes.ops import Leaves, shape_of
from autobatch.backends.llvm.lanes.program import Operand, Result, Signature, program
from autobatch.ir import jax_compat
from autobatch.ir.core import Literal, Value
from autobatch.source import NOWHERE


def equations(fun, *xs):
    """What JAX traces of a function of one row."""
    closed = jax.make_jaxpr(fun)(*xs)
    values, body, arrays = iter(range(1000, 9000)), [], []
    inputs = [Value(k, jax_compat.type_of(jax.typeof(x))) for k, x in enumerate(xs)]

    def constant(x):
        arrays.append(x)
        return Literal(None, jax_compat.type_of(x), len(arrays) - 1)

    results = jax_compat.inline(closed, inputs, lambda t: Value(next(values), t), constant, body.append, NOWHERE)
    return inputs, body, results, arrays


def compiled(fun, rows, varying, width):
    """`fun` over rows, by machine code of so many lanes: a function of arrays, and of which rows matter."""
    ones = [x[0] if v else x for x, v in zip(rows, varying, strict=True)]
    inputs, body, results, arrays = equations(fun, *ones)
    operands = tuple(Operand(*shape_of(x.type), v) for x, v in zip(inputs, varying, strict=True))
    signature = Signature(operands, tuple(Result(*shape_of(r.type)) for r in results), masked=True)

    def run(gang, xs):
        leaves = Leaves(gang.w, gang.constant)
        env = dict(zip(inputs, xs, strict=True))
        leaves.run(body, env, results, arrays)
        return [leaves.read(r, env, arrays) for r in results]

    made = program(signature, width, run)
    target = machine_code.registered_text(f"test_{width}", made.text, library(), vectorize=True)

    def call(rows, live):
        count = len(live)
        found = jax.ffi.ffi_call(target, [*(_result(r, count) for r in signature.results), _SCRATCH])(
            *map(_words, rows), live, *map(jnp.asarray, made.constants)
        )
        return found[:-1]

    return call


_SCRATCH = jax.ShapeDtypeStruct((1,), np.dtype("uint8"))


def _is_key(x):
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def _words(x):
    x = jnp.asarray(x)
    return jax.random.key_data(x) if _is_key(x) else x


def _result(r, rows):
    if r.dtype.startswith("key<"):
        return jax.ShapeDtypeStruct((rows, *r.shape, 2), np.dtype("uint32"))
    return jax.ShapeDtypeStruct((rows, *r.shape), np.dtype(r.dtype))


def check(fun, rows, varying, width, ulps=2.0):
    """Machine code is JAX's `vmap` on rows that matter, and zero on others."""
    call = compiled(fun, rows, varying, width)
    count = next(len(x) for x, v in zip(rows, varying, strict=True) if v)
    live = jnp.arange(count) % 5 != 3
    found = call(rows, live)
    wanted = jax.jit(jax.vmap(fun, tuple(0 if v else None for v in varying)))(*rows)
    wanted = [_words(x) for x in (wanted if isinstance(wanted, tuple | list) else [wanted])]
    for x, y in zip(found, wanted, strict=True):
        x, y = np.asarray(x), np.asarray(y)
        assert not np.any(x[~np.asarray(live)])
        x, y = x[np.asarray(live)], y[np.asarray(live)]
        if np.issubdtype(y.dtype, np.floating):
            scale = np.abs(y).max(initial=0.0, where=np.isfinite(y))
            np.testing.assert_allclose(x, y, rtol=ulps * 2.0**-23, atol=scale * 2.0**-24)
        else:
            np.testing.assert_array_equal(x, y)
