"""What is compiled of the programs of `programs.py`, what is refused and with which words; and those that compile agree
with plain Python.

What is refused stands in `tests/golden/memory/`, a file for each control and back end, so that the lists shrink under
review; what is refused too where it may be traced stands in a file of its own.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator

import jax.numpy as jnp
import pytest

import autobatch as ab
from autobatch.testing import check_equivalence
from tests.conftest import Golden
from tests.memory.programs import PROGRAMS, Control, Program

BATCHES: dict[Control, list[list[float]]] = {
    "structural": [[0.9, 0.4, -0.7, 1.3, 2.1], [0.5, 1.7], [1.4, 0.3, 0.8], [0.61]],
    "computed": [[0.9, 0.4, -0.7], [2.2, 1.7, 0.1], [3.1, 0.3, 0.8], [0.61, 0.2, 0.3]],
}
"""The last but one turns not at all where numbers decide."""
SHARED = (1.1,)


def refusal(program: Program, control: Control, backend: str) -> str | None:
    """What the compiler says, without places in the source; None where it compiles."""
    f = program.load(control)
    try:
        with ab.options(backend=backend):
            f.lower(jnp.float32(*SHARED), BATCHES[control])
    except (ab.UnsupportedError, ab.TypeConflictError) as error:
        notes = [note for note, _ in error.also]
        return re.sub(r"<drawn program \d+>", "...", "; ".join([error.message, *notes]))
    return None


def refusals(control: Control, backend: str) -> Iterator[str]:
    for program in PROGRAMS:
        if (words := refusal(program, control, backend)) is not None:
            yield f"{program.name}: {words}\n"


@pytest.mark.parametrize(
    ("control", "backend"),
    [("structural", "xla"), ("computed", "xla"), ("computed", "llvm"),
     pytest.param("structural", "llvm", marks=pytest.mark.long)],
)  # fmt: skip
def test_what_is_refused(control: Control, backend: str, golden: Golden) -> None:
    golden("memory", f"refused_{control}_{backend}", "".join(refusals(control, backend)))


def test_what_is_refused_traced(golden: Golden) -> None:
    with ab.options(trace=True), warnings.catch_warnings():
        warnings.simplefilter("ignore", ab.StructureWarning)
        golden("memory", "refused_structural_traced", "".join(refusals("structural", "xla")))


@pytest.mark.long
@pytest.mark.parametrize("backend", ["interpret", "xla", "llvm"])
@pytest.mark.parametrize("control", ["structural", "computed"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_agreement(program: Program, control: Control, backend: str) -> None:
    if refusal(program, control, backend) is not None:
        return  # `test_what_is_refused` has it
    f, w, grads = program.load(control), jnp.float32(*SHARED), refusal(program, control, "xla") is None
    check_equivalence(f, BATCHES[control], (w,), grads=grads, backends=(backend,), jit=False, tolerance=2e-5)
