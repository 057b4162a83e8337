"""`f.lower(...)`: the program of one call, as text, as an executable, and what it costs.

Where the examples are in groups by the shapes of their arrays, each group has a program of its own.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import repeat
from pathlib import Path
from typing import Any, overload

import jax
import numpy as np

from autobatch.backends.cuda.device import names
from autobatch.backends.cuda.program import CudaProgram
from autobatch.backends.llvm.program import (
    CHUNK,
    WholeProgram,
    arrays_for,
    fits,
    object_of,
    processors,
    target_of,
    trampoline,
    zeros,
)
from autobatch.call.arguments import ArgumentSlot, BoundArguments, Raw, canonical
from autobatch.call.exporting import PLATFORMS, Calling, export
from autobatch.call.prepared import Prepared
from autobatch.call.specialisations import compiling_nothing
from autobatch.call.specialise import SpecialisedProgram
from autobatch.common.runtime import Target, made_for
from autobatch.common.runtime import target as find_target
from autobatch.compiler.executables import failures_of
from autobatch.data.columns import Ints
from autobatch.data.ragged import distinguishing, group_title
from autobatch.errors import BatchError, ExampleError, PlanError, TargetError, entry
from autobatch.ir.core import Array, Container, Output, Template
from autobatch.ir.jax_compat import as_jax

# ---- handles
#
# The compiled handle of a function that is machine code as a whole: for small batches, what a call costs matters.
#
#     handle = f.lower(x).compile()
#     handle(x)          arrays of NumPy as they were: their addresses go to the code, and arrays of NumPy come back
#     handle([1, 2])     anything else of these types: as `f` itself does it, but never compiled
#
# A handle takes batches of any size. `autobatch/backends/llvm/program.py` is what the first way costs.


Call = Callable[..., Any]
"""A call of the function with the arguments `args` and `kwargs`, each of whose groups is run by `run`. `runs`: machine
code does, where that is the back end."""


MANY = 4 * CHUNK
"""Rows from which on several threads are worth what it takes to start them."""


class NativeGroups:
    """Machine code for calls whose groups, by the shapes of their examples, are of the same types."""

    def __init__(self, programs: Sequence[SpecialisedProgram], call: Call) -> None:
        self.programs, self._by_function = tuple(programs), call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Like the function itself, but never compiles: PlanError for other types."""
        with compiling_nothing():
            return self._by_function(args, kwargs, self._run, runs=True)

    def _run(self, prepared: Prepared) -> Any:
        if all(prepared.program.compiled is not p.compiled for p in self.programs):
            held = " or ".join(p.fingerprint for p in self.programs)
            raise PlanError(
                f"this executable is for {held}, not for the call's {prepared.program.fingerprint}; call the function "
                "itself"
            )
        return prepared.run()


class NativeCompiled(NativeGroups):
    """Machine code for calls of the same types; `executable.text` is its LLVM IR."""

    def __init__(self, prepared: Prepared, bound: BoundArguments, call: Call) -> None:
        super().__init__([prepared.program], call)
        self.program, self.threads = prepared.program, prepared.place.threads or processors()
        native = prepared.program.compiled.native
        assert native is not None
        self.executable = native
        self._order = _order(prepared, bound)
        build = _builder(self.program.result) if prepared.out_axes == 0 and not self.program.masks else None
        self._direct: Callable[..., Any] | None = None
        if isinstance(native, WholeProgram) and self._order is not None and build is not None:
            fast = trampoline(native)
            self._direct = None if fast is None else _direct(fast, build, self._order, self, native)

    @property
    def is_direct(self) -> bool:
        """Do arrays of NumPy go to the code as they are?"""
        return self._direct is not None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._direct is None or kwargs:
            return super().__call__(*args, **kwargs)
        return self._direct(*args)

    def operands(self, *args: Any, **kwargs: Any) -> list[Any]:
        """What the code reads for a call, in its order: shared values, then columns of the examples."""
        found: list[Any] = self._by_function(args, kwargs, lambda prepared: prepared.operands, runs=True)
        return found

    def export_object(
        self, path: str | os.PathLike[str], *, target: str = "x86-64-v3", name: str | None = None
    ) -> None:
        """Write the machine code as an object file for programs in C, `path`, and its header beside it (`.h`). They
        need neither Python nor JAX, and compute the same bits; link with `-lm`.

        `target`: the least that the processor has, "x86-64" (SSE2), "x86-64-v3" (AVX2), "x86-64-v4" (AVX-512) or
        "aarch64" (NEON). `name`: of the function, which is that of the file. Arrays that the function has closed over
        are in the object. Raises TargetError for other targets and names, and for functions of objects and lists.

        >>> import tempfile
        >>> import autobatch as ab
        >>> double = ab.batched(lambda x: 2 * x, backend="llvm")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     double.lower(np.ones(3)).compile().export_object(f"{folder}/doubled.o")
        ...     print([line for line in open(f"{folder}/doubled.h") if "doubled(" in line])
        ['int64_t doubled(\\n']
        """
        file = Path(path)
        native, program = self.executable, self.program
        if not isinstance(native, WholeProgram):
            raise TargetError(f"{program.name} is a kernel for a GPU; its text is f.lower(...).ptx(architecture)")
        if native.inputs:
            raise TargetError(f"{program.name} takes objects or lists: a program in C has none that it could hand over")
        shared = program.shared([None] * (native.whole.shared - program.hidden))
        held = {k: x for k, x in enumerate(shared) if x is not None}
        made = object_of(native.whole, native.sites, name or file.stem, target_of(target), held)
        file.write_bytes(made.code)
        file.with_suffix(".h").write_text(made.header, encoding="utf-8")

    def indirectly(self, args: tuple[Any, ...]) -> Any:
        """A call that the machine code cannot take as it is."""
        if self._direct is not None and any(isinstance(x, jax.Array) for x in args):
            held = [_on_host(x) for x in args]
            if all(type(x) is np.ndarray for x in held):
                return as_jax(self._direct(*held))
        return super().__call__(*args)


def _on_host(x: Any) -> Any:
    """An array of JAX as one of NumPy, which is its memory where that can be."""
    return np.asarray(x) if isinstance(x, jax.Array) and not isinstance(x, jax.core.Tracer) else x


def _direct(
    call: Callable[..., bool | None],
    build: Callable[[Sequence[Any]], Any],
    order: OperandOrder,
    of: NativeCompiled,
    native: WholeProgram,
) -> Callable[..., Any]:
    """A call with arrays of NumPy alone."""
    empty, array, shapes = np.empty, np.ndarray, arrays_for(native)
    program, first = of.program, order.first
    count, places, dicts = order.arguments, order.places, order.dicts
    sites = program.compiled.sites
    current = program.is_current if program.guards or program.hidden else None
    straight, threads = places == tuple(range(count)), of.threads
    ((shape, dtype), *others) = shapes
    single, seldom = not others and not shape and build is _first, native.seldom
    plain = shapes[:-1] if seldom else shapes

    def run(*args: Any) -> Any:
        if len(args) != count or type(args[first]) is not array or (current is not None and not current()):
            return of.indirectly(args)
        try:
            rows = len(args[first])
            given = args if straight else _given(args, places, dicts)
        except (TypeError, KeyError):
            return of.indirectly(args)  # it has no axis of examples, or other keys
        if rows > MANY and threads > 1 and all(map(fits, given, native.operands, repeat(rows))):
            out, wrong = native(given, rows, threads)
            return of.indirectly(args) if wrong else build(out)
        if single:
            one = empty(rows, dtype)
            return one if call(*given, one) else of.indirectly(args)
        out = [empty((rows, *s), d) for s, d in plain]
        if seldom:
            out.append(zeros.take(rows))
        ran = call(*given, *out)
        if ran:
            if seldom:
                zeros.give_back(out[-1])
            return build(out)
        if ran is None:
            return of.indirectly(args)
        raise ExampleError(failures_of(sites, out[-1]))

    return run


@dataclass(frozen=True)
class OperandOrder:
    """Where the operands of the code are in a call: `places` has for each the number of an argument, or of one that is
    a dict and a key of it. `first`: an argument that is batched; `dicts`: how many keys each dict has."""

    places: tuple[int | tuple[int, str], ...]
    first: int
    arguments: int
    dicts: Mapping[int, int]


def _given(args: Sequence[Any], places: Sequence[int | tuple[int, str]], dicts: Mapping[int, int]) -> list[Any]:
    """The operands of a call. KeyError where a dict has other keys."""
    for k, size in dicts.items():
        if type(args[k]) is not dict or len(args[k]) != size:
            raise KeyError(k)
    return [args[p] if isinstance(p, int) else args[p[0]][p[1]] for p in places]


def _order(prepared: Prepared, bound: BoundArguments) -> OperandOrder | None:
    """For each operand of the code where it is; None where one is neither an argument nor in a dict that is one, or
    where the order of a dict's keys matters."""
    program, native = prepared.program, prepared.program.compiled.native
    if program.hidden or program.orders or any(c.optional or not c.array for c in program.components):
        return None
    shared: list[int | tuple[int, str]] = []
    batched: dict[int, int] = {}
    dicts: dict[int, int] = {}
    for k, form in enumerate(bound.forms.values()):
        match form:
            case ArgumentSlot(kind="array", axis=0):
                batched[form.index] = k
            case Raw(value=value, static=False) if isinstance(value, np.ndarray):
                shared.append(k)
            case Raw(value=value, static=False) if _is_dict_of_arrays(value):
                dicts[k] = len(value)
                shared += [(k, key) for key in canonical(value)]
            case _:
                return None
    if not isinstance(native, WholeProgram) or sum(not x.varies for x in native.operands) != len(shared):
        return None
    last = [batched[k] for k in sorted(batched)]
    return OperandOrder((*shared, *last), last[-1], len(bound.forms), dicts)


def _is_dict_of_arrays(value: Any) -> bool:
    return type(value) is dict and all(type(k) is str and type(x) is np.ndarray for k, x in value.items())


def _builder(template: Template) -> Callable[[Sequence[Any]], Any] | None:
    """From the arrays of the code to the result; None where that is more than to put them into containers."""
    match template:
        case Output(index=0, type=Array()) if not _is_key(template):
            return _first
        case Output(index=index, type=Array()) if not _is_key(template):
            return lambda out: out[index]
        case Container(kind="tuple" | "dict" | "namedtuple" as kind, children=children, keys=keys, cls=cls):
            parts = [_builder(c) for c in children]
            if any(p is None for p in parts):
                return None
            if kind == "dict":
                return lambda out: {k: p(out) for k, p in zip(keys, parts, strict=True)}  # type: ignore[misc]
            if kind == "tuple":
                return lambda out: tuple([p(out) for p in parts])  # type: ignore[misc]
            return lambda out: cls(*(p(out) for p in parts))  # type: ignore[misc]
        case _:
            return None


def _first(out: Sequence[Any]) -> Any:
    return out[0]


def _is_key(x: Output) -> bool:
    return isinstance(x.type, Array) and x.type.dtype.startswith("key<")


# ---- compiled
#
# What XLA has made of a call's programs: an executable for each group of examples by shape, what it costs, and what
# memory it takes; `ab.lower`, the same of functions that call batched ones. Names are those of `jax.stages.Compiled`.


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
        "cuda:h100", or "cpu", "tpu", "cuda" for the device of that kind that is here (`common/runtime.py`). Raises
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
