"""Machine code inside of what JAX traces: a callback of XLA's executable, with derivatives in reverse.

    jax.jit(f)(p, batch)     XLA has no form for it, or the batch no plan:     pure_callback(code, p, columns)
    jax.grad(...)            its derivative is machine code too:               pure_callback(gradient, p, columns, ct)

XLA copies the operands for each call of the host, and fuses nothing with it: a plan (`batch.plan(f)`) is faster where
XLA computes whole levels at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.custom_derivatives import SymbolicZero

from autobatch.backends.interface import Placement
from autobatch.backends.llvm.whole.running import MachineCode
from autobatch.call import native
from autobatch.call.specialise import SpecialisedProgram


def fits(program: SpecialisedProgram) -> bool:
    """Are the results arrays whose shapes are known when JAX traces?"""
    code = program.compiled.native
    return isinstance(code, MachineCode) and program.returns_arrays and not program.masks


def called(code: MachineCode, operands: Sequence[Any], rows: int, place: Placement) -> list[Any]:
    """The results of machine code for operands that JAX traces."""
    types = zip(code.shapes(operands, rows), code.writes, strict=True)
    shapes = [jax.ShapeDtypeStruct(shape, x.dtype) for shape, x in types]

    def on_host(*given: Any) -> list[Any]:
        found, _ = code.run([np.asarray(x) for x in given], rows, place)
        return [*found[:-1], found[-1].copy()] if code.seldom else found  # the next call has that memory

    return list(jax.pure_callback(on_host, shapes, *operands, vmap_method="sequential"))


def differentiable(
    program: SpecialisedProgram, operands: Sequence[Any], rows: int, place: Placement, refused: Exception
) -> list[Any]:
    """The results of a function that is machine code as a whole, which JAX can differentiate in reverse. `refused`: why
    it is not XLA's, which is raised where its derivative is no machine code."""
    code = native.program_of(program)
    assert isinstance(code, MachineCode)

    @jax.custom_vjp
    def call(*given: Any) -> list[Any]:
        return called(code, given, rows, place)

    def forward(*given: Any) -> tuple[list[Any], tuple[Sequence[Any], Wanted]]:
        values = [x.value for x in given]
        return call(*values), (values, Wanted(k for k, x in enumerate(given) if x.perturbed))

    def backward(kept: tuple[Sequence[Any], Wanted], cotangents: Sequence[Any]) -> tuple[Any, ...]:
        given, wrt = kept
        total: list[Any] = [None] * len(given)
        for number, ct in enumerate(cotangents):
            if isinstance(ct, SymbolicZero):
                continue
            for k, x in zip(wrt, pulled(program, number, wrt, [*given, ct], rows, place, refused), strict=True):
                total[k] = x if total[k] is None else total[k] + x
        return tuple(total)

    call.defvjp(forward, backward, symbolic_zeros=True)
    return call(*operands)


@jax.tree_util.register_static
class Wanted(tuple[int, ...]):
    """The operands by which a derivative is taken."""


def pulled(
    program: SpecialisedProgram,
    output: int,
    wrt: Sequence[int],
    operands: Sequence[Any],
    rows: int,
    place: Placement,
    refused: Exception,
) -> list[Any]:
    """The derivative of the sum of a result, weighted by the last operand."""
    made = native.gradient_of(program, output, wrt)
    if not isinstance(made, MachineCode):
        raise refused
    return called(made, operands, rows, place)
