"""Level loops in JAX programs: the kernel where the program is lowered for a CPU, the loops of XLA everywhere else,
under `jax.vmap` and in derivatives. What is not lowered is not traced either."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from autobatch.backends.llvm.machine_code import RefusedError, UnavailableError
from autobatch.backends.xla.level_tasks import DTYPE, RecurrenceForm
from autobatch.backends.xla.native.code import module
from autobatch.backends.xla.products.kernel import registered, registered_code
from autobatch.backends.xla.products.operation import Matrix, ProductChoice
from autobatch.ir import jax_compat
from autobatch.ir.system import Variable
from autobatch.options import OptionError
from autobatch.passes.equations import RowProduct

if TYPE_CHECKING:
    from autobatch.backends.xla.emit import LevelLoop

logger = logging.getLogger("autobatch")

_call = jax_compat.foreign_call("autobatch_level_loop")


def native(loop: LevelLoop) -> list[Any] | None:
    """The buffers of a loop after all levels, by the kernel; None where it cannot run it."""
    try:
        form, target = _prepared(loop)
    except (RefusedError, UnavailableError) as error:
        if loop.e.loops == "native" and not loop.before:
            raise OptionError(f"option 'loops' is 'native', but there is a level loop for XLA: {error}") from None
        logger.debug("level loop %s by XLA: %s", loop.recurrence.index, error)
        return None
    count, known = len(form.arguments), list(loop.e.env)
    tables = list(loop.e.tables)

    def plain(*operands: Any) -> list[Any]:
        given = operands[count:]
        return _by_xla(loop, dict(zip(known, given, strict=False)), dict(zip(tables, given[len(known) :], strict=True)))

    found: list[Any] = _call.bind(
        *form.arguments,
        *loop.e.env.values(),
        *loop.e.tables.values(),
        plain=plain,
        target=target,
        taken=count,
        shapes=tuple(b.whole for b in loop.buffers),
        scratch=(jax.ShapeDtypeStruct((max(form.scratch, 1),), np.dtype(form.kernel.dtype)),),
    )
    return found


def _by_xla(loop: LevelLoop, env: dict[Variable, Any], tables: dict[str, Any]) -> list[Any]:
    """The same buffers, computed by loops that XLA compiles, from other arrays."""
    e = loop.e.forgetful()
    e.env.update(env)
    e.tables = tables
    e.compute(q for t in loop.before for q in t.equations)
    made = e.level_loop(loop.recurrence)
    final = made.levels_by_xla()
    e.env.update(made.placed(final))
    found = {buffer: final[at] for (_, buffer), (_, at) in zip(loop.shared, made.shared, strict=True)}
    found.update((buffer, e.env[v]) for v, (buffer, _) in loop.place.items() if buffer not in found)
    return [found[k] for k in range(len(loop.buffers))]


def _prepared(loop: LevelLoop) -> tuple[RecurrenceForm, str]:
    if loop.e.loops == "xla" or (loop.e.loops == "auto" and loop.e.products == "xla"):
        raise RefusedError("asked for")
    if {str(b.dtype) for b in loop.buffers} != {DTYPE}:
        raise RefusedError(f"it is for {DTYPE} alone")
    kernel, packing = registered(DTYPE), registered(DTYPE, "pack")

    def matrix(product: RowProduct) -> Matrix:
        found = loop.products.matrices.pack(product, ProductChoice(kernel, "in a level loop", packing))
        assert found is not None
        return found

    form = RecurrenceForm(loop, kernel.kernel, matrix)
    return form, registered_code("levels", module(form), DTYPE)
