"""`f.lower(...)`: the program of one call, as text, as an executable, and what it costs.

Where the examples are in groups by the shapes of their arrays, each group has a program of its own.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property
from typing import overload

import jax

from autobatch.backends.cuda.program import CudaProgram
from autobatch.backends.cuda.ptx import names
from autobatch.call.arguments import BoundArguments
from autobatch.call.compiled import Compiled, CompiledFor, XlaExecutable
from autobatch.call.exporting import PLATFORMS, Calling, export
from autobatch.call.handles import Call, NativeCompiled, NativeGroups
from autobatch.call.prepared import Prepared
from autobatch.call.specialise import SpecialisedProgram
from autobatch.common.targets import Target
from autobatch.common.targets import target as find_target
from autobatch.data.columns import Ints
from autobatch.data.shapes import distinguishing, group_title
from autobatch.errors import BatchError

STAGES = ("source", "example", "spmd", "adjoint", "fissioned", "backend")

Parts = Sequence[tuple[Ints, Prepared]]
"""The groups of a call by the shapes of arrays: the numbers of their examples, and what runs."""


def lowered(parts: Parts, call: Call, bound: BoundArguments, calling: Calling) -> Lowered | LoweredGroups:
    """The program of a call, whose arguments are `bound`, or those of its groups."""
    found = [Lowered(p, call, bound, calling) for _, p in parts]
    return found[0] if len(found) == 1 else LoweredGroups(found, [m for m, _ in parts], shapes_of(parts), call)


def shapes_of(parts: Parts) -> list[dict[str, str]]:
    """What tells each group from the others."""
    return distinguishing([p.examples.schema for _, p in parts])


class Lowered:
    """A program for the types and the size class of one call."""

    def __init__(self, prepared: Prepared, call: Call, bound: BoundArguments, calling: Calling) -> None:
        self._calling = calling
        self._prepared, self._program, self._call, self._bound = prepared, prepared.program, call, bound

    @property
    def program(self) -> SpecialisedProgram:
        """The specialisation."""
        return self._program

    def as_text(self, stage: str = "example") -> str:
        """The program at a stage: the user's "source"; "example", the typed IR for one example; "spmd", its equations
        over rows of activations; "fissioned", those in stages and level loops; "adjoint", those of the derivative in
        reverse; "backend", what the back end makes."""
        if stage not in STAGES:
            raise BatchError(f"there is no stage {stage!r}; the stages are {', '.join(STAGES)}")
        if stage == "source":
            return inspect.getsource(self._program.planner.__wrapped__)
        if stage == "backend":
            native = self._program.compiled.native
            return str(self.compile_by_xla().executable.as_text()) if native is None else native.text
        return self._program.compiled.as_text(stage)

    def ptx(self, architecture: str = "sm_80") -> str:
        """The kernel of `backend="cuda"` for a kind of GPU: "sm_80", "sm_90" or "sm_100", and whatever is newer. No GPU
        is needed. BatchError for another back end, or another kind."""
        native = self._program.compiled.native
        if not isinstance(native, CudaProgram):
            raise BatchError("a program has PTX where backend='cuda'; as_text('backend') is what another one makes")
        if architecture not in (known := names()):
            raise BatchError(f"architecture={architecture!r} is not known; it is {', '.join(map(repr, known))}")
        return native.ptx(architecture)

    @overload
    def compile(self, target: None = None) -> Compiled | NativeCompiled: ...

    @overload
    def compile(self, target: str) -> CompiledFor: ...

    def compile(self, target: str | None = None) -> Compiled | NativeCompiled | CompiledFor:
        """The executable: a callable for calls of the same types and size class; of any size, where the back end is
        llvm.

        `target`: compile ahead of time for a machine that need not be here, by XLA whatever the back end: "tpu:v5e",
        "cuda:h100", or "cpu", "tpu", "cuda" for the device of that kind that is here (`targets.py`). Raises
        TargetError where nothing here compiles for it."""
        if target is not None:
            return CompiledFor([self.executable_for(found := find_target(target))], found)
        if self._program.compiled.native is None:
            return self.compile_by_xla()
        return NativeCompiled(self._prepared, self._bound, self._call)

    def compile_by_xla(self) -> Compiled:
        """The executable of XLA."""
        return Compiled([self.executable_for()], self._call)

    def export(
        self, path: str | os.PathLike[str], *, platforms: str | Sequence[str] = PLATFORMS, vjp_order: int = 0
    ) -> None:
        """Write the program to a file that `ab.load_exported` reads, in a process that needs no source of the function.

        It is for batches of as many examples as this call has, or fewer, with as many rows as there is room for in its
        size class; `f.explain` says how many. `platforms`: those of "cpu", "cuda", "rocm" and "tpu" that it can run on.
        `vjp_order`: how often it can be differentiated in reverse (`jax.grad` by shared arguments).

        What is static (strings, functions, what `static` names) and what the function has closed over is part of the
        file. Raises BatchError where the result has a form that no file holds, as pytrees of the user's."""
        export(path, self._prepared.with_tables(), self._bound, self._calling, platforms, vjp_order)

    def executable_for(self, target: Target | None = None) -> XlaExecutable:
        """What XLA makes of the program, for this machine or another."""
        if target is None:
            return self._executable
        program, signature, lowered = self._by_xla(target)
        return XlaExecutable(program, signature, target.made(lowered))

    @cached_property
    def _executable(self) -> XlaExecutable:
        program, signature, lowered = self._by_xla(None)
        return XlaExecutable(program, signature, lowered.compile())

    def _by_xla(self, target: Target | None) -> tuple[SpecialisedProgram, Hashable, jax.stages.Lowered]:
        planned = self._prepared.with_tables()
        program, signature = planned.program, planned.ready.signature
        return program, signature, program.lowered(planned.shared, dict(planned.ready.tables), signature, target)

    def cost(self) -> dict[str, float]:
        """What XLA counts: "flops", "bytes accessed" and more. A loop whose length is data is counted as one turn."""
        return self.compile_by_xla().cost_analysis() or {}


class LoweredGroups:
    """The programs of one call whose examples are in groups by the shapes of their arrays. `groups` are those of each
    group, `members` the numbers of its examples, `shapes` what tells it from the others."""

    def __init__(
        self, groups: Sequence[Lowered], members: Sequence[Ints], shapes: Sequence[Mapping[str, str]], call: Call
    ) -> None:
        self.groups, self.members, self.shapes = tuple(groups), tuple(members), tuple(map(dict, shapes))
        self._call = call

    def as_text(self, stage: str = "example") -> str:
        """The programs at a stage, one after another under a heading each; the "source" is that of all."""
        texts = [g.as_text(stage) for g in self.groups]
        if stage == "source":
            return texts[0]
        count = len(texts)
        heads = [group_title(k, count, m, s) for k, (m, s) in enumerate(zip(self.members, self.shapes, strict=True))]
        return "\n\n".join(f"# {head}\n\n{text}" for head, text in zip(heads, texts, strict=True))

    @overload
    def compile(self, target: None = None) -> Compiled | NativeGroups: ...

    @overload
    def compile(self, target: str) -> CompiledFor: ...

    def compile(self, target: str | None = None) -> Compiled | NativeGroups | CompiledFor:
        """The executables of all groups: a callable for calls whose groups are of these types and size classes.
        `target`: see `Lowered.compile`."""
        if target is not None:
            found = find_target(target)
            return CompiledFor([g.executable_for(found) for g in self.groups], found)
        programs = [g.program for g in self.groups]
        if all(p.compiled.native is not None for p in programs):
            return NativeGroups(programs, self._call)
        return Compiled([g.executable_for() for g in self.groups], self._call)

    def export(
        self, path: str | os.PathLike[str], *, platforms: str | Sequence[str] = PLATFORMS, vjp_order: int = 0
    ) -> None:
        """BatchError: a file has one program, and these are several."""
        raise BatchError(
            f"the examples are in {len(self.groups)} groups by the shapes of their arrays, each of which has a program "
            "of its own; export f.lower(...) for the examples of one shape"
        )

    def cost(self) -> dict[str, float]:
        """What XLA counts, summed over the groups; see `Lowered.cost`."""
        made = Compiled([g.executable_for() for g in self.groups], self._call)
        return made.cost_analysis() or {}
