"""The compiled handle of a function that is machine code as a whole: for small batches, what a call costs matters.

    handle = f.lower(x).compile()
    handle(x)          arrays of NumPy as they were: their addresses go to the code, and arrays of NumPy come back
    handle([1, 2])     anything else of these types: as `f` itself does it, but never compiled

A handle takes batches of any size. `autobatch/backends/llvm/whole/trampoline.py` is what the first way costs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any

import jax
import numpy as np

from autobatch.backends.llvm.whole.objects import object_of, target_of
from autobatch.backends.llvm.whole.program import WholeProgram
from autobatch.backends.llvm.whole.running import CHUNK, fits, processors, zeros
from autobatch.backends.llvm.whole.trampoline import arrays_for, trampoline
from autobatch.call.arguments import ArgumentSlot, BoundArguments, Raw, canonical
from autobatch.call.prepared import Prepared
from autobatch.call.specialisations import compiling_nothing
from autobatch.call.specialise import SpecialisedProgram
from autobatch.compiler.reporting import failures_of
from autobatch.errors import ExampleError, PlanError, TargetError
from autobatch.ir.handing_over import as_jax
from autobatch.ir.template import Container, Output, Template
from autobatch.ir.types import Array

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
