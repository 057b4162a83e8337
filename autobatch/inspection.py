"""`f.lower(...)`: the program of one call, as text, as an executable, and what it costs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax

from autobatch.errors import BatchError, PlanError
from autobatch.specialise import Program

STAGES = ("source", "example", "spmd", "adjoint", "fissioned", "backend")


class Lowered:
    """A program for the types and the size class of one call."""

    def __init__(
        self,
        program: Program,
        shared: list[Any],
        tables: Mapping[str, Any],
        signature: Any,
        prepare: Callable[..., Any],
    ) -> None:
        self._program, self._shared, self._signature, self._prepare = program, shared, signature, prepare
        self._tables = dict(tables)

    def as_text(self, stage: str = "example") -> str:
        """The program at a stage: the user's "source"; "example", the typed IR for one example; "spmd", its equations
        over rows of activations; "fissioned", those in stages and level loops; "adjoint", those of the derivative in
        reverse; "backend", what the back end makes."""
        if stage not in STAGES:
            raise BatchError(f"there is no stage {stage!r}; the stages are {', '.join(STAGES)}")
        if stage == "source":
            return inspect.getsource(self._program.planner.__wrapped__)
        if stage == "backend":
            return str(self.compile().executable.as_text())
        return self._program.compiled.as_text(stage)

    def compile(self) -> Compiled:
        """The executable: a callable for calls of the same types and size class."""
        made = self._program.lowered(self._shared, self._tables, self._signature).compile()
        return Compiled(self._program, self._signature, made, self._prepare)

    def cost(self) -> dict[str, float]:
        """What XLA counts: "flops", "bytes accessed" and more. A loop whose length is data is counted as one turn."""
        analysis = self.compile().executable.cost_analysis()
        return dict(analysis or {})


class Compiled:
    """An executable of one size class."""

    def __init__(self, program: Program, signature: Any, executable: Any, prepare: Callable[..., Any]) -> None:
        self._program, self._signature, self.executable, self._prepare = program, signature, executable, prepare

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Like the function itself, but never compiles: PlanError for other types or another size class."""
        prepared, finish = self._prepare(args, kwargs)
        if prepared.program.compiled is not self._program.compiled or prepared.ready.signature != self._signature:
            raise PlanError(
                f"this executable is for {self._signature} of {self._program.fingerprint}, not for the "
                f"call's {prepared.ready.signature}; call the function itself"
            )

        def run(shared: Any, tables: Any, _: Any) -> Any:
            held = jax.tree.map(jax.numpy.asarray, (list(shared), dict(tables)))
            return self.executable(*held)

        return finish(run)
