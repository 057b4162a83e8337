"""What XLA has made of a call's programs: an executable for each group of examples by shape, what it costs, and what
memory it takes; `ab.lower`, the same of functions that call batched ones. Names are those of `jax.stages.Compiled`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import jax

from autobatch.call.handles import Call
from autobatch.call.specialisations import compiling_nothing
from autobatch.call.specialise import SpecialisedProgram
from autobatch.common.targets import Target, made_for
from autobatch.common.targets import target as find_target
from autobatch.errors import PlanError, TargetError, entry

Run = Callable[[Any, Any, Any], Any]

MODELLED = ("flops", "transcendentals", "bytes accessed", "optimal_seconds")
"""What is shown of what XLA counts; the rest is details of one operand or another."""


@dataclass(frozen=True)
class MemoryAnalysis:
    """Bytes on the device, as XLA has laid them out. `temp`: what all programs need beside arguments and results, of
    which one runs after another."""

    argument_size_in_bytes: int
    output_size_in_bytes: int
    alias_size_in_bytes: int
    temp_size_in_bytes: int
    generated_code_size_in_bytes: int

    @property
    def total(self) -> int:
        """What has to fit on the device at once: arguments, results, temporaries and code."""
        sizes: list[int] = [getattr(self, f.name) for f in fields(self)]
        return sum(sizes) - 2 * self.alias_size_in_bytes


@dataclass(frozen=True, eq=False)
class XlaExecutable:
    """What XLA has made of a program for one size class."""

    program: SpecialisedProgram
    signature: Any
    made: jax.stages.Compiled

    @property
    def title(self) -> str:
        words = f"{self.signature.batch} examples, capacities {', '.join(map(str, self.signature.capacity))}"
        return f"{self.program.fingerprint}, size class: {words}"

    def run(self, shared: Any, tables: Any, _: Any) -> Any:
        held = jax.tree.map(jax.numpy.asarray, (list(shared), dict(tables)))
        return self.made(*held)


@dataclass(frozen=True, eq=False)
class CompiledCaller:
    """What XLA has made of a function of the user that calls batched ones."""

    title: str
    made: jax.stages.Compiled


class Analysed:
    """Executables, one for each group of examples by shape, and what XLA says of them."""

    machine = "this machine"

    def __init__(self, executables: Sequence[XlaExecutable | CompiledCaller]) -> None:
        self.executables = tuple(executables)

    @property
    def executable(self) -> jax.stages.Compiled:
        """What JAX calls compiled, of the first group."""
        return self.executables[0].made

    def as_text(self) -> str:
        """The programs as XLA has optimised them."""
        try:
            return "\n\n".join(e.made.as_text() or "" for e in self.executables)
        except jax.errors.JaxRuntimeError as error:  # a compiler that is newer than jaxlib, which reads what it made
            raise TargetError(f"the program for {self.machine} cannot be shown: {error}") from error

    def cost_analysis(self) -> dict[str, float] | None:
        """What XLA counts: "flops", "bytes accessed" and more, summed over the groups. A loop whose length is data is
        counted as one turn. None where XLA's compiler for the machine does not count."""
        found: list[dict[str, float]] = [c for e in self.executables if (c := e.made.cost_analysis())]
        if len(found) < len(self.executables):
            return None
        if len(found) == 1:
            return dict(found[0])
        total: dict[str, float] = {}
        for name, amount in (pair for costs in found for pair in costs.items()):
            if not name.startswith("utilization"):
                total[name] = total.get(name, 0.0) + amount
        return total

    def memory_analysis(self) -> MemoryAnalysis | None:
        """The memory that the programs take on the device. None where XLA's compiler for the machine does not say."""
        found = [e.made.memory_analysis() for e in self.executables]
        if any(m is None for m in found):
            return None
        together = {
            f.name: (max if f.name.startswith("temp") else sum)(int(getattr(m, f.name)) for m in found)
            for f in fields(MemoryAnalysis)
        }
        return MemoryAnalysis(**together)

    @cached_property
    def _page(self) -> str:
        lines = [f"for {self.machine}, by XLA: {e.title}" for e in self.executables]
        lines += ["", *_costs(self.cost_analysis()), *_memory(self.memory_analysis())]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self._page


def _costs(found: dict[str, float] | None) -> list[str]:
    if found is None:
        return ["  costs: XLA's compiler for this machine does not count them"]
    rows = [(n, found[n]) for n in MODELLED if n in found]
    made = ["  costs, a loop whose length is data as one turn"]
    for name, amount in rows:
        shown = f"{amount * 1e6:,.2f} us" if name == "optimal_seconds" else f"{amount:,.0f}"
        made.append(f"    {name.replace('_', ' '):<20} {shown:>20}")
    return made


def _memory(found: MemoryAnalysis | None) -> list[str]:
    if found is None:
        return ["  memory: XLA's compiler for this machine does not say"]
    rows = [(f.name.removesuffix("_size_in_bytes").replace("_", " "), getattr(found, f.name)) for f in fields(found)]
    return ["  memory, bytes", *(f"    {name:<20} {size:>20,}" for name, size in (*rows, ("total", found.total)))]


class Compiled(Analysed):
    """An executable of one size class; for groups of examples by shape, one for each group."""

    def __init__(self, executables: Sequence[XlaExecutable], call: Call) -> None:
        super().__init__(executables)
        self._own, self._call = tuple(executables), call

    @entry
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Like the function itself, but never compiles: PlanError for other types or another size class."""
        with compiling_nothing():
            return self._call(args, kwargs, lambda p: p.run(self._for(p.program, p.ready.signature)))

    def _for(self, program: SpecialisedProgram, signature: Any) -> Run:
        for e in self._own:
            if e.program.compiled is program.compiled and e.signature == signature:
                return e.run
        held = " or ".join(f"{e.signature} of {e.program.fingerprint}" for e in self._own)
        raise PlanError(f"this executable is for {held}, not for the call's {signature}; call the function itself")


class CompiledFor(Analysed):
    """Executables for a machine that need not be here: what they cost there (`str` is a page), their text, and JAX's
    own `executable`."""

    def __init__(self, executables: Sequence[XlaExecutable | CompiledCaller], target: Target) -> None:
        super().__init__(executables)
        self.target = target.name
        self.machine = f"{target.name} ({target.device.device_kind})"

    @entry
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """TargetError: what is compiled ahead of time does not run here."""
        raise TargetError(
            f"this executable is for {self.machine}, and was compiled ahead of time, to be looked at; on a machine "
            "that has one, call the function itself, or what f.export wrote"
        )


class LoweredFunction:
    """A call of any function that JAX can trace, to be compiled for a machine that need not be here."""

    def __init__(self, fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._fun, self._given = fun, (args, kwargs)

    def compile(self, target: str) -> CompiledFor:
        """What XLA makes of it for a `target`, as `f.lower(...).compile(target)` takes them. Raises TargetError."""
        found = find_target(target)
        args, kwargs = found.shapes(self._given)
        with made_for(found.platform):
            lowered = jax.jit(self._fun).lower(*args, **kwargs)
        return CompiledFor([CompiledCaller(getattr(self._fun, "__name__", "a function"), found.made(lowered))], found)


@entry
def lower(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> LoweredFunction:
    """A call of a function in which batched functions are called: a gradient, a step of training. Its arguments are
    pytrees of arrays and of batches that are planned for these functions.

    >>> import autobatch as ab
    >>> import numpy as np
    >>> square = ab.batched(lambda w, x: (w * x) ** 2, in_axes=(None, 0))
    >>> step = jax.grad(lambda w, x: square(w, x).mean())
    >>> made = lower(step, np.float32(1.0), np.ones(8, np.float32)).compile("cpu")
    >>> made.memory_analysis().argument_size_in_bytes
    36
    """
    return LoweredFunction(fun, args, kwargs)
