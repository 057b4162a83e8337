"""A call of a function that is machine code as a whole: no plan and no tables, arrays in and arrays out.

Arrays of JAX come back where one of them goes in, else arrays of NumPy. What JAX traces is no array: then the program
runs as XLA runs it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.backends.llvm.lanes.tensors import KEY
from autobatch.backends.llvm.whole.running import Executable
from autobatch.data import Examples, raw
from autobatch.pipeline import ArrayResult
from autobatch.specialise import Program, parameters


def operands(program: Program, examples: Examples, shared: Sequence[Any]) -> list[Any] | None:
    """What the code reads: shared inputs, then batched ones. None where the call is not its own: the program is no
    machine code, or JAX traces it."""
    if program.compiled.native is None:
        return None
    given = [raw(x) if hasattr(x, "dtype") else x for x in shared]
    found = [*given, *_batched(program, examples)]
    return None if any(isinstance(x, jax.core.Tracer) for x in found) else found


def _batched(program: Program, examples: Examples) -> Iterator[Any]:
    """A column for each parameter of the entry."""
    packed = program.argument_columns(examples.schema)
    for k, (position, component) in enumerate(parameters(program.components)):
        if component.array:
            yield raw(examples.arrays[k])
            continue
        columns: Mapping[str, Any]
        if examples.leaves is not None and examples.group is None:
            columns = examples.leaves[0].columns
        else:
            columns = examples.on_host().columns.arrays
        for table in range(position, position + 1 + component.optional):
            yield columns[packed[f"#argument{table}"]][: examples.count]


def run(program: Program, given: Sequence[Any], rows: int, threads: int | None) -> tuple[list[Any], bool]:
    """The arrays that the code computes, and whether an example has failed."""
    assert program.compiled.native is not None
    return program.compiled.native(given, rows, threads or processors())


def places(program: Program, slots: Sequence[int]) -> list[int]:
    """Where batched leaves are among the parameters of the entry."""
    found = [position for position, _ in parameters(program.components)]
    return [found[k] for k in slots]


def gradient_of(program: Program, output: int, wrt: Sequence[int]) -> Executable | None:
    """The derivative of result `output` by some operands; None where there is no machine code for it."""
    assert program.compiled.native is not None
    return program.compiled.native.gradient(output, tuple(wrt))


def processors() -> int:
    """How many this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def results(program: Program, arrays: Sequence[Any]) -> list[ArrayResult]:
    """What the program has computed, as XLA would have given it."""
    assert program.compiled.native is not None
    dtypes = [r.dtype for r in program.compiled.native.results]
    return [ArrayResult(_typed(x, d)) for x, d in zip(arrays, dtypes, strict=True)]


def _typed(x: Any, dtype: str) -> Any:
    return jax.random.wrap_key_data(jnp.asarray(x)) if dtype == KEY else x


def as_given(result: Any, given: Sequence[Any]) -> Any:
    """The result with arrays of the kind that the operands are of."""
    wanted: Any = jnp.asarray if any(isinstance(x, jax.Array) for x in given) else _numpy
    return jax.tree.map(wanted, result)


def _numpy(x: Any) -> Any:
    is_key = hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
    return np.asarray(x) if isinstance(x, jax.Array) and not is_key else x
