"""One operation on rows by machine code, beside what JAX makes of it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from autobatch.backends.llvm import machine_code
from autobatch.backends.llvm.lanes.ops import LeafOperations, shape_of
from autobatch.backends.llvm.lanes.program import CodeOperand, CodeSignature, Result, program
from autobatch.backends.llvm.machine_code import HANDLER, RefusedError, link
from autobatch.backends.llvm.text import library
from autobatch.errors import NOWHERE
from autobatch.ir import jax_compat
from autobatch.ir.core import Literal, Value


def vector_width():
    """Numbers of 32 bits in a vector of this processor; skips the module that asks where there is no machine code."""
    try:
        return machine_code.host().bits // 32
    except machine_code.UnavailableError as error:
        pytest.skip(f"no machine code here: {error}", allow_module_level=True)


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


def written(fun, rows, varying, width):
    """`fun` over rows as the text of a module for so many lanes, and what goes in and comes out."""
    ones = [x[0] if v else x for x, v in zip(rows, varying, strict=True)]
    inputs, body, results, arrays = equations(fun, *ones)
    operands = tuple(CodeOperand(*shape_of(x.type), v) for x, v in zip(inputs, varying, strict=True))
    signature = CodeSignature(operands, tuple(Result(*shape_of(r.type)) for r in results), masked=True)

    def run(gang, xs):
        leaves = LeafOperations(gang.w, gang.constant)
        leaves.mask = gang.mask
        env = dict(zip(inputs, xs, strict=True))
        leaves.run(body, env, results, arrays)
        return [leaves.read(r, env, arrays) for r in results]

    return program(signature, width, run), signature


def compiled(fun, rows, varying, width, kind=None):
    """The same as a function of arrays, and of which rows matter. `kind`: of processors, the least of which it is
    compiled for; else it is for this one."""
    made, signature = written(fun, rows, varying, width)
    if kind is None:
        target = machine_code.registered_text(f"test_{width}", made.text, library(), vectorize=True)
    else:
        target = machine_code.target_name(f"test_{width}_{kind.bits}", made.text)
        code = link(machine_code.compile_object(made.text, True, kind), (HANDLER,), library())
        machine_code.make_known(target, code.functions[HANDLER])
        _KEPT.append(code)

    def call(rows, live):
        count = len(live)
        found = jax.ffi.ffi_call(target, [*(_result(r, count) for r in signature.results), _SCRATCH])(
            *map(_words, rows), live, *map(jnp.asarray, made.constants)
        )
        return found[:-1]

    return call


_KEPT = []
"""XLA keeps the addresses."""
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


def many(cases, width):
    """Functions of one row by machine code, each a module of its own, called by one program of XLA's. `cases`: name ->
    (function of one row, arrays of rows). Returns a function of which rows matter: name -> results."""
    calls = {}
    for name, (fun, rows) in cases.items():
        try:
            calls[name] = compiled(fun, rows, [True] * len(rows), width)
        except RefusedError as error:
            raise AssertionError(f"{name}: {error}") from error

    def call(live):
        rows = {n: rows for n, (_, rows) in cases.items()}
        return jax.jit(lambda rows, live: {n: call(rows[n], live) for n, call in calls.items()})(rows, live)

    return call


def by_jax(cases):
    """The same by JAX's `vmap`."""

    def every(rows):
        return {n: jax.tree.leaves(jax.vmap(fun)(*rows[n])) for n, (fun, _) in cases.items()}

    found = jax.jit(every)({n: rows for n, (_, rows) in cases.items()})
    return {n: [_words(x) for x in results] for n, results in found.items()}


def assert_equal(found, wanted, live, ulps, name=""):
    """Rows that matter are JAX's, others are zero. Floats: so many units of the last place, or as many of half of one
    of the largest number of the array."""
    live = np.asarray(live)
    for k, (x, y) in enumerate(zip(found, wanted, strict=True)):
        x, y = np.asarray(x), np.asarray(y)
        place = f"{name}, result {k}"
        assert x.dtype == y.dtype, place
        assert not np.any(x[~live]), f"{place}: rows that do not matter"
        x, y = x[live], y[live]
        if jnp.issubdtype(y.dtype, jnp.inexact):
            last = float(jnp.finfo(y.dtype).eps)
            wide = np.complex128 if jnp.issubdtype(y.dtype, jnp.complexfloating) else np.float64
            x, y = x.astype(wide), y.astype(wide)
            scale = np.abs(y).max(initial=0.0, where=np.isfinite(y))
            np.testing.assert_allclose(x, y, rtol=ulps * last, atol=scale * last / 2, err_msg=place)
        else:
            np.testing.assert_array_equal(x, y, err_msg=place)


def check(fun, rows, varying, width, ulps=2.0):
    """Machine code is JAX's `vmap` on rows that matter, and zero on others."""
    call = compiled(fun, rows, varying, width)
    count = next(len(x) for x, v in zip(rows, varying, strict=True) if v)
    live = jnp.arange(count) % 5 != 3
    found = call(rows, live)
    wanted = jax.jit(jax.vmap(fun, tuple(0 if v else None for v in varying)))(*rows)
    wanted = [_words(x) for x in (wanted if isinstance(wanted, tuple | list) else [wanted])]
    assert_equal(found, wanted, live, ulps)
