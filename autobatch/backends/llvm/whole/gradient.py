"""The derivative of a whole function in reverse, as one function over the rows of a batch.

    operands   those of the function, the arrays that its literals name, the weight of each row
    results    of each operand asked for: its cotangents row by row; of a shared one their sum over the rows of a call;
               of a column the cotangents of what each row has in it for itself
    status     has a row failed? (Which one, and of what, only the function itself says.)

The region runs forward with a tape and then backward (`lanes/reverse.py`), gang by gang, so what is kept does not grow
with the batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from autobatch.backends.llvm.lanes.gathers import PLACES_READ
from autobatch.backends.llvm.lanes.ops import shape_of
from autobatch.backends.llvm.lanes.program import MOST_SUMMED, CodeOperand, CodeSignature, Gang, GangLoop, Result
from autobatch.backends.llvm.lanes.reverse import Told, pulled_back
from autobatch.backends.llvm.lanes.tape import versions_of
from autobatch.backends.llvm.lanes.tensors import Tensor
from autobatch.backends.llvm.machine_code import RefusedError
from autobatch.backends.llvm.text import LlvmFunction
from autobatch.backends.llvm.whole.code import WholeCode, completed, direct, notice, refusal, widths
from autobatch.backends.llvm.whole.estimate import all_regions
from autobatch.backends.llvm.whole.region import WholeRegion
from autobatch.ir.core import Apply, For, Literal, Region, Value, While
from autobatch.ir.core import Operand as Read
from autobatch.ir.leaf import DerivativeRule
from autobatch.ir.ops import own
from autobatch.ir.rewrite import region_values, with_operands
from autobatch.ir.types import Array


def write_gradient(whole: WholeRegion, sites: bool, output: int, wrt: Sequence[int]) -> WholeCode:
    """The code of a derivative. UnsupportedError where there is none."""
    try:
        return _written(whole, sites, output, wrt)
    except RefusedError as error:
        raise refusal(error, whole.region) from error


@dataclass(frozen=True)
class Derivative:
    """What the code of a derivative computes. `arrays`: its operands before the last one, which the program holds."""

    rule: DerivativeRule
    signature: CodeSignature
    arrays: tuple[Any, ...]

    @property
    def reads_tables(self) -> bool:
        """Is it by large arrays that all rows share, and read at places of their own, as columns are?"""
        made = {(r.dtype, r.shape) for r in self.signature.results if r.summed and math.prod(r.shape) > MOST_SUMMED}
        inside = (i for r in all_regions(self.rule.op["region"]) for i in r.body if isinstance(i, Apply))
        return any(i.op.name in PLACES_READ and shape_of(i.operands[0].type) in made for i in inside)

    @property
    def changes_arrays(self) -> bool:
        """Are there loops that change arrays here and there? One lane does not copy these (`lanes/tape.py`)."""
        loops = (i for r in all_regions(self.rule.op["region"]) for i in r.body if isinstance(i, For | While))
        return any(versions_of(i, k) is not None for i in loops for k in range(len(i.init)))

    def body(self, gang: Gang, xs: Sequence[Tensor], told: Told = lambda results: None) -> Sequence[Tensor | None]:
        """The cotangents of the rows of a gang. `told`: who wants to know the results of the function."""
        return pulled_back(gang, self.rule, xs, told, gang.totals)


def derivative_of(whole: WholeRegion, sites: bool, output: int, wrt: Sequence[int]) -> Derivative:
    """The derivative of result `output` by the operands `wrt`. `sites`: rows that have failed have none."""
    region, constants = _without_arrays(whole)
    inputs = len(whole.region.args)
    types = tuple(a.type for a in region.args if isinstance(a.type, Array))
    results = tuple(r.type for r in region.results if isinstance(r.type, Array))
    op = own("masked", region=region, sites=(), **({"cut": True} if sites else {}))
    has = tuple(k == output for k in range(len(results)))
    rule = DerivativeRule(op, types, (None,) * len(types), results, has, tuple(wrt))
    varies = [whole.shared <= k < inputs for k in range(len(types))]
    operands = [CodeOperand(*shape_of(t), v) for t, v in zip(types, varies, strict=True)]
    weight = CodeOperand(*shape_of(results[output]), True)
    columns = {k for k, a in enumerate(whole.region.args) if a in whole.columns}
    made = tuple(Result(*shape_of(types[k]), not varies[k], column=k if k in columns else None) for k in wrt)
    return Derivative(rule, CodeSignature((*operands, weight), made, False), tuple(constants))


def _written(whole: WholeRegion, sites: bool, output: int, wrt: Sequence[int]) -> WholeCode:
    found = derivative_of(whole, sites, output, wrt)
    refused: RefusedError | None = None
    alone = found.reads_tables or found.changes_arrays
    for width in widths(whole):
        if width > 1 and alone:
            continue  # each lane would have all of a table, or copy its arrays in each turn
        f = LlvmFunction("")
        gang, failed = direct(f, width, found.signature), f.slot(0)

        def body(gang: Gang, xs: Sequence[Tensor], failed: str = failed) -> Sequence[Tensor | None]:
            return found.body(gang, xs, lambda results: notice(gang.w, failed, results, gang.mask) if sites else None)

        try:
            GangLoop(gang, "%begin", "%end").run(body)
            f.do(f"ret i64 {f.get(failed)}")
            program = completed(f, gang)
        except RefusedError as error:
            refused = refused or error
            continue
        return WholeCode(program, found.signature, width, found.arrays)
    assert refused is not None
    raise refused


def _without_arrays(whole: WholeRegion) -> tuple[Region, list[np.ndarray[Any, Any]]]:
    """The region with arguments more for the arrays that its literals name."""
    number = 1 + max((v.id for v in region_values(whole.region)), default=-1)
    made: dict[int, Value] = {}

    def put(x: Read) -> Read:
        if not isinstance(x, Literal) or x.constant < 0:
            return x
        return made.setdefault(x.constant, Value(number + len(made), x.type))

    region = with_operands(whole.region, put)
    arrays = [np.asarray(whole.constants[k]) for k in made]
    return replace(region, args=(*region.args, *made.values())), arrays
