"""`batched`: a function for one example becomes a function for a batch.

A call goes through five steps, each of them a module:

    arguments   which leaves are batched, which shared; shared arrays become inputs of the program
    data        the batched leaves as packed examples, with their plan
    cache       the program for these types: compiled once (`specialise`)
    pipeline    the program runs as one executable for its size class
    results     arrays, containers, Ragged, Batch and Objects, as the function's result says
"""

from __future__ import annotations

import functools
import os
import sys
import types
import typing
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, Generic, ParamSpec, TypeVar, overload

from autobatch.backends.interface import Placement
from autobatch.call import native, packed, plain
from autobatch.call.arguments import ArgumentSlot, AxisEntries, BoundArguments, Sharing, bind, positions_of, read_axes
from autobatch.call.batch import Batch, Declared, GroupedBatch, whole_arrays
from autobatch.call.changes import check_objects, joined, longest, with_objects, write_back
from autobatch.call.examples import NOTHING, Examples, KnownTypes, bound_to_pack, fixed_by, gather
from autobatch.call.exporting import PLATFORMS, Calling
from autobatch.call.inspection import Lowered, LoweredGroups, Parts, lowered
from autobatch.call.linear import Collected, LinearCall, Tree
from autobatch.call.packed import Group
from autobatch.call.prepared import WIDER, Prepared, widen
from autobatch.call.results import Changed, arguments_noted, note_arguments
from autobatch.call.shapes import ByShape, RaggedRefused
from autobatch.call.specialisations import Request, Specialisations, Way
from autobatch.call.specialise import SpecialisedProgram
from autobatch.call.tracing.calls import Traced, TraceRequest, is_traced
from autobatch.call.warm import MISS, RUN, Warm
from autobatch.common.cache import Bounded, CacheInfo, Key
from autobatch.common.runtime import Timings
from autobatch.compiler.choice import is_use
from autobatch.data.columns import Schema
from autobatch.data.infer import disagreements, schema_of_annotation
from autobatch.data.ragged import ShapesDiffer, ragged_names
from autobatch.errors import BatchError, Error, PlanError, SourceError, UnsupportedError, entry, nearest, show
from autobatch.frontend.lowering.state import ChangesObjects, DictsDiffer, SeenInMemory, UnseenInTraces
from autobatch.ir.jax_compat import wide_integers
from autobatch.options import BACKENDS, Options, current, enable_compilation_cache, options
from autobatch.passes.failures import WideConstantError
from autobatch.tools.explain import Explanation, GroupedExplanation, backend_of, explain_parts, explain_refusal

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
Run = Callable[[Prepared], Any]


@dataclass(frozen=True)
class Settings:
    """The arguments of `batched`."""

    in_axes: Any
    out_axes: Any
    backend: str
    on_error: str
    static: frozenset[str]
    options: options | Mapping[str, Any] | None


class Batched(Generic[P, R]):
    """A function for one example that takes a batch of them. Made by `batched`.

    `f.example(...)` runs the plain function for one example, `f.loop(...)` for every example of a batch.
    """

    __wrapped__: Callable[P, R]
    __name__: str
    __qualname__: str

    def __init__(self, fun: Callable[P, R], settings: Settings) -> None:
        self._is_static = isinstance(fun, staticmethod)
        fun = fun.__func__ if isinstance(fun, staticmethod) else fun
        functools.update_wrapper(self, fun)
        self.__autobatch_function__ = fun
        if isinstance(settings.options, Mapping):
            settings = replace(settings, options=options(**settings.options))
        self.settings = settings
        self.planner: Batched[..., Any] = self  # what batches are planned for: methods of all instances are one
        self._receiver: tuple[Any, ...] = ()
        self._signature = plain.signature_of(fun)
        self._positions = positions_of(self._signature)
        self._is_method = False
        if not plain.is_in_class(fun):
            self._entries  # noqa: B018  wrong axes are refused here; those of a method at its first call
        unknown = settings.static - set(self._signature.parameters)
        if unknown:
            raise BatchError(f"{self._name}: static names {', '.join(sorted(unknown))}, which is no parameter")
        self._known = KnownTypes()
        self._cache = Specialisations(self._name)
        self.warm: defaultdict[Any, Warm] = defaultdict(Warm)  # calls, and gradients by what they are by
        self.room = self._cache.room
        self._traces = Traced(self._name)
        self._unseen: set[Any] = set()  # calls whose changes in place a trace would not see
        self._own: Bounded[Any, Exception] = Bounded(64)  # those whose examples are given shared objects, and why

    # -- calls

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            with Changed() as changed:
                simple = not kwargs and not self._receiver and plain.is_ordinary()
                given = args
                if simple and self._known.changes:
                    given = (*args, *self.given_objects(self.bound(args, kwargs)).objects)
                again = self.warm[RUN].call
                if self.room.is_wide and self._asked in WIDER:
                    again = wide_integers()(again)
                found = again(given, self.options()) if simple else MISS
                if found is MISS:
                    found = self._anew(args, kwargs, simple)
            self._change(changed, args, kwargs)
            return found
        except Exception as error:  # as `entry` does: this is the call whose time counts
            if not plain.is_plain():
                show(error)
            raise

    def _change(self, changed: Changed, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Let the arguments of a call be what it has made of them."""
        if changed.by_python:
            plain.change_arguments(self.__wrapped__, self.bound(args, kwargs))
        elif changed.parts:
            write_back(self._name, self.bound(args, kwargs), changed.parts)

    def _anew(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], simple: bool) -> Any:
        """A call that looks like none before it, which is remembered where it is `simple`."""
        if plain.is_plain():
            return self.__wrapped__(*self._receiver, *args, **kwargs)
        bound = self.bound(args, kwargs)
        if plain.is_disabled():
            return plain.run_stacked(self.__wrapped__, bound, self._name, masks=self.settings.on_error == "mask")
        seen = self.warm[RUN]

        def run(prepared: Prepared) -> Any:
            whole = arguments_noted() or bound
            given = (*args, *whole.objects)
            if simple and (found := seen.staged(given, whole, self.options(), prepared)) is not MISS:
                return found
            result = prepared.run_or_grow()
            if simple:
                seen.note(given, whole, self.options(), prepared)
            return result

        return self.enough_for(lambda: self._run(bound, run, True))

    def enough_for(self, call: Callable[[], T]) -> T:
        """What a call gives, with as much room and as many bits as its examples need."""
        return self.room.enough_for(call, self._asked)

    def example(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Plain Python for one example; every batched function called inside runs plainly too."""
        with plain.plainly():
            return self.__wrapped__(*self._receiver, *args, **kwargs)

    def loop(self, *args: Any, **kwargs: Any) -> list[R]:
        """`example` for every example of the batch that `f(*args)` takes: what the batched call must agree with."""
        return list(plain.run(self.__wrapped__, self.bound(*native.on_host((args, kwargs)))))

    @entry
    def pack(self, *args: Any, like: Any = None) -> Batch:
        """Pack the batched arguments, in their order, together: a Batch planned for this function.

        With several arguments the result's examples are tuples, and `f(p, *packed.args)` passes them on. `like` fixes
        types: a Batch or an annotation."""
        bound = bound_to_pack(self._name, self._signature, self._entries, self._is_method, args)
        if len(bound.slots) == 1 and bound.slots[0].kind == "batch":
            return bound.slots[0].values.plan(self)  # type: ignore[no-any-return]
        wanted = self._declared if like is None else fixed_by(like)

        def packed(part: BoundArguments) -> Batch:
            found = gather(self._name, part.slots, self._known, wanted, self.planner, grow=False)
            return Batch(found.on_host()).plan(self)

        by_shape = self._by_shape(packed)
        by_shape.rounded = False
        made: Batch = by_shape.run(
            bound.with_slots(lambda s: replace(s, kind="list", values=list(s.leading())) if s.kind == "array" else s)
        )
        return made

    @entry
    def lower(self, *args: Any, **kwargs: Any) -> Lowered | LoweredGroups:
        """The program that this call would run, without running it: text of every stage, cost, executable. Where arrays
        differ in shape by example, those of each group (`.groups`)."""
        bound = self.bound(args, kwargs)
        calling = Calling(self.axes(), lambda: self._cache.static)
        by_name = self._backend(self.options())[0] != "auto"
        return lowered(self._prepare_apart(bound, runs=by_name), self._call_compiled, bound, calling)

    @entry
    def export(
        self,
        path: str | os.PathLike[str],
        *args: Any,
        platforms: str | Sequence[str] = PLATFORMS,
        vjp_order: int = 0,
        **kwargs: Any,
    ) -> None:
        """`f.lower(*args, **kwargs).export(path)`: a file for processes without the source; see `Lowered.export`."""
        self.lower(*args, **kwargs).export(path, platforms=platforms, vjp_order=vjp_order)

    @entry
    def explain(self, *args: Any, **kwargs: Any) -> Explanation | GroupedExplanation:
        """What the compiler does with each line for this call, and what the call costs: as text (`str`), as one HTML
        page (`.html()`), as plain data (`.data`).

        Specialises and plans as the call would, and keeps that for it; makes no executable, and runs nothing. A
        function that cannot be compiled is shown with the line that is refused. Where arrays differ in shape by
        example, each group is explained (`.groups`). Outside `jax.jit` only."""
        bound, wide = self.bound(args, kwargs), self.room.is_wide and self._asked in WIDER
        with wide_integers() if wide else nullcontext():
            asked, taken = self._asked, self._backend(self.options())[1]
            try:
                parts = self._prepare_apart(bound, runs=True)
            except SourceError as error:
                return explain_refusal(self._name, self.__wrapped__, bound.size, backend_of(asked, taken), error)
            return explain_parts(self._name, asked, taken, self._cache.why_xla, parts)

    def timings(self) -> Timings:
        """How long each stage of the last compilation took: passes, LLVM, JAX, XLA, and the first run.

        Executables and derivatives that the same program needed later are added. `print` shows a table; `.stages`
        holds the seconds of each stage, without those of stages inside it, `.data` the same as plain data. Empty
        before the first call.

        >>> import autobatch as ab
        >>> double = ab.batched(lambda x: 2.0 * x)
        >>> double([1.0, 2.0])
        Array([2., 4.], dtype=float32)
        >>> "lower" in double.timings().stages
        True
        """
        return self._traces.timings or self._cache.timings

    def cache_info(self) -> CacheInfo:
        """How much this function has compiled, and keeps."""
        return self._cache.info()

    # -- methods, pickling, identity

    def __set_name__(self, owner: type, name: str) -> None:
        """Called for an attribute of a class: the first parameter is `self`, which has no axis."""
        self._is_method = not self._is_static

    @functools.cached_property
    def _entries(self) -> AxisEntries:
        """`in_axes` by parameter."""
        return read_axes(self.settings.in_axes, self._signature, self._name, self._is_method)

    def __get__(self, instance: Any, owner: type | None = None) -> Batched[..., R]:
        if instance is None or self._is_static:
            return self
        if not self._is_method:  # a class attribute that was set after the class was made
            self._is_method = True
            self.__dict__.pop("_entries", None)
        made: Batched[..., R] = object.__new__(type(self))
        made.__dict__.update(self.__dict__, _receiver=(instance,))
        # inside another batched function: the compiler calls the plain function, with this `self`
        made.__autobatch_function__ = types.MethodType(self.__wrapped__, instance)
        return made

    def __reduce__(self) -> Any:
        if self._receiver:
            return getattr, (self._receiver[0], self.__name__)
        held: Any = sys.modules.get(self.__module__)
        for part in self.__qualname__.split("."):
            held = getattr(held, part, None)
        if held is self:
            return self.__qualname__
        # a function whose name is taken by its decorated form is found through that
        function = held if isinstance(held, Batched) and held.__wrapped__ is self.__wrapped__ else self.__wrapped__
        return _rebuilt, (function, self.settings)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Batched):
            return NotImplemented
        return (
            self._cache is other._cache
            and all(a is b for a, b in zip(self._receiver, other._receiver, strict=False))
            and len(self._receiver) == len(other._receiver)
        )

    def __hash__(self) -> int:
        return hash((id(self._cache), *map(id, self._receiver)))

    def __repr__(self) -> str:
        return f"<batched {self.__qualname__}>"

    # -- how a call is prepared

    @property
    def _name(self) -> str:
        return getattr(self, "__name__", type(self.__wrapped__).__name__)

    def options(self) -> Options:
        """The options that a call sees here and now: those of `batched`, of the context, of the process."""
        return self.room.in_options(current(self.settings.options))

    def _by_shape(self, call: Callable[[BoundArguments], Any], chosen: Options | None = None) -> ByShape:
        """`call` for batches whose examples may differ in shape."""
        return ByShape(self._name, call, self._known, (chosen or self.options()).shape_groups)

    def regrouped(self, batch: Batch) -> Batch:
        """The batch in groups by shape, where this function is known to need arrays whole that are ragged in it."""
        if isinstance(batch, GroupedBatch):
            return GroupedBatch([self.regrouped(g) for g in batch.groups], batch.order)
        if batch.component is not None:
            return batch
        group = batch.group()
        reasons = self._known.needs_whole(group.schema, group.width)
        return whole_arrays(group, reasons, self.options().shape_groups) if reasons else batch

    def bound(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> BoundArguments:
        """The arguments of a call by parameter, `self` among them."""
        given = (*self._receiver, *args)
        if self.settings.backend in ("auto", "cuda"):
            given, kwargs = native.for_backend(*self._backend(self.options()), given, kwargs)
        return bind(self._name, self._signature, self._entries, self.settings.static, given, kwargs, self._positions)

    def given_objects(self, bound: BoundArguments) -> BoundArguments:
        """The arguments of a call with all objects of the classes that it changes, where it is known to change any."""
        found = with_objects(bound, self._known.changes, bool(self._known.keys_are_data))
        note_arguments(found)
        return found

    def programs(self, bound: BoundArguments, moving: bool, runs: bool = False) -> Tree:
        """The programs of a call, for its derivatives. `moving`: by batched arguments too; `runs`: machine code has the
        derivative, if it has one."""
        chosen = self.options()

        def prepared(part: BoundArguments) -> LinearCall:
            found = self.prepare(part, chosen, runs, moving, derives=True).growing()
            return LinearCall(found, part)

        by_shape = Collected(self._name, prepared, self._known, chosen.shape_groups)
        by_shape.out_axes, by_shape.masks = self.settings.out_axes, self.settings.on_error == "mask"
        found: Tree = by_shape.run(bound)
        return found

    @property
    def arguments_before(self) -> int:
        """How many arguments a call has before those that are given: `self` of a method."""
        return len(self._receiver)

    def axes(self) -> dict[str, Any]:
        """The entry of `in_axes` for each parameter that has one."""
        entries = self._entries
        names = [n for n in self._signature.parameters if n != entries.receiver]
        return {**(dict.fromkeys(names, entries.default) if entries.has_default else {}), **entries.axes}

    def with_axes(self, in_axes: Mapping[str, Any]) -> Batched[..., R]:
        """The same function with other axes. Batches that are planned for one are planned for the other."""
        return self.with_settings(in_axes=dict(in_axes))

    def with_settings(self, **changes: Any) -> Batched[..., R]:
        """The same function with other arguments of `batched`, and the programs that it has in common with this one."""
        made: Batched[..., R] = object.__new__(type(self))
        made.__dict__.update(self.__dict__, settings=replace(self.settings, **changes), warm=defaultdict(Warm))
        made.__dict__.pop("_entries", None)
        return made

    @property
    def _asked(self) -> str:
        """The back end that is asked for."""
        return self.settings.backend if self.settings.backend != "auto" else current(self.settings.options).backend

    def _backend(self, chosen: Options) -> tuple[str, str]:
        """The back end that is asked for, by the argument of `batched` or the option, and the one that is taken."""
        asked = self.settings.backend if self.settings.backend != "auto" else chosen.backend
        return asked, "xla" if asked == "auto" else asked

    def _prepare_apart(self, bound: BoundArguments, runs: bool) -> Parts:
        """As `prepare`, for each group of examples of one shape, with the numbers of its examples."""
        by_shape = self._by_shape(lambda part: self.prepare(part, runs=runs))
        by_shape.apart = True
        return [(part.members, part.result) for part in by_shape.run(bound)]

    def prepare(
        self,
        bound: BoundArguments,
        chosen: Options | None = None,
        runs: bool = False,
        moving: bool = False,
        derives: bool = False,
    ) -> Prepared:
        """Find or compile the program for the types of a call, and its tables. `runs`: nothing but to run it, for which
        machine code that is the whole function needs no tables. `derives`: it is differentiated, `moving`: by batched
        arguments. What does not compile is traced, where it can be."""
        chosen = chosen or self.options()
        try:
            return self._prepared(bound, chosen, runs, moving, derives)
        except (PlanError, SourceError) as refused:
            if (found := self._called_back(bound, chosen, moving, refused)) is None:
                raise
            return found

    def _prepared(self, bound: BoundArguments, chosen: Options, runs: bool, moving: bool, derives: bool) -> Prepared:
        """As `prepare`, by XLA where JAX traces the arguments."""
        refused: Exception | None = None
        if chosen.trace and bound.key in self._unseen:
            chosen = replace(chosen, trace=False)
        if len(self._own) and not derives and (reason := self._own.get(bound.key)) is not None:
            try:
                return self._of_own(bound, chosen, runs, moving, derives, reason)
            except (SourceError, BatchError):
                self._own.drop(bound.key)  # what is shared has changed
        if not (chosen.trace and self._traces.knows(bound)):
            given = self.given_objects(bound)
            chosen = self.room.with_capacity(longest(given), chosen) if given is not bound else chosen
            changes = given is not bound and not derives
            asked = replace(chosen, trace=False) if changes else chosen  # a trace would not say what they become
            try:
                return self._compiled(given, asked, runs, moving, derives)
            except ChangesObjects as error:
                known = joined(self._known.changes, error.kinds)
                if known != self._known.changes:
                    self._known.changes = known
                    return self._prepared(bound, chosen, runs, moving, derives)
                if not chosen.trace:
                    return self._of_own(bound, chosen, runs, moving, derives, error.error)
                refused = error.error
            except WideConstantError as error:
                widen(error)
                raise
            except SeenInMemory:
                self._unseen.add(bound.key)
                return self._compiled(self.given_objects(bound), replace(chosen, trace=False), runs, moving, derives)
            except UnseenInTraces as error:
                raise UnsupportedError(error.message, error.span, error.cure) from None
            except (SourceError, BatchError) as error:
                differ = isinstance(error, DictsDiffer) and self._known.may_read_keys(bound.slots)
                if differ or isinstance(error, ShapesDiffer):
                    raise
                if not chosen.trace:
                    return self._of_own(bound, chosen, runs, moving, derives, error)
                refused = error
        settings = replace(self.settings, in_axes=(None, 0), static=frozenset())
        over, examples = functools.partial(Batched, settings=settings), functools.partial(self._examples, bound)
        request = TraceRequest(self, bound, refused, chosen, runs and not moving, derives, over, examples)
        try:
            return self._traces.call(request, moving)
        except SourceError as error:
            return self._of_own(bound, chosen, runs, moving, derives, error)

    def _of_own(
        self, bound: BoundArguments, chosen: Options, runs: bool, moving: bool, derives: bool, refused: Exception
    ) -> Prepared:
        """As `prepare`, where floats choose among objects and containers that all examples share: each example is given
        them as its own. Raises what was refused where that does not compile either."""
        own = bound.with_own() if isinstance(refused, SourceError) and not derives else None
        if own is None:
            raise refused
        try:
            found = self._compiled(own, replace(chosen, trace=False), runs, moving, derives)
        except (SourceError, BatchError) as error:
            differ = isinstance(error, DictsDiffer) and self._known.may_read_keys(own.slots)
            raise error if differ else refused from None
        self._own.put(bound.key, refused.with_traceback(None))
        return found

    def _called_back(self, bound: BoundArguments, chosen: Options, moving: bool, refused: Exception) -> Prepared | None:
        """A call that JAX traces, as machine code that XLA calls, where there is any: XLA has no form for it, or would
        have to know the examples."""
        traced = is_traced(bound) or native.shares_traced(bound)
        if self._backend(chosen)[0] != "auto" or not traced or moving or self.settings.out_axes != 0:
            return None
        whole = self.with_settings(backend="llvm")
        try:
            found = whole._compiled(bound, chosen, True, moving, False, traced=True)
        except Error:
            return None
        return replace(found, called_back=refused) if native.fits(found.program) else None

    def _examples(self, bound: BoundArguments) -> Examples:
        """The batched arguments of a call, packed."""
        return gather(self._name, bound.slots, self._known, self._declared, self.planner)

    def learn(self, schema: Schema) -> None:
        """Know the types of one batched argument from now on: batches that show less are of these types, too."""
        self._known.learn(schema, 1)

    def _compiled(
        self, bound: BoundArguments, chosen: Options, runs: bool, moving: bool, derives: bool, traced: bool = False
    ) -> Prepared:
        """As `prepare`, for what compiles. `traced`: machine code may read what JAX traces."""
        settings = self.settings
        enable_compilation_cache(chosen.compilation_cache)
        examples = self._examples(bound)
        check_objects(bound, examples)
        asked, backend = self._backend(chosen)
        if asked == "auto":
            backend = native.backend_for(examples, [r.value for r in bound.shared], runs, derives, chosen)
        is_free = is_use(backend) or (backend == "llvm" and self._asked == "auto")

        @functools.cache
        def shared_with(static: frozenset[str]) -> tuple[Sharing, tuple[Any, ...], dict[str, Any]]:
            sharing = Sharing(self._name, static, len(examples.components), self._cache.columns)
            return sharing, *bound.rebuild(examples.input, sharing.raw)

        def request(way: Way, static: frozenset[str]) -> Request:
            sharing, args, kwargs = shared_with(static)
            key = Key(
                axes=repr(settings.in_axes),
                arguments=(bound.key, tuple(sharing.keys), examples.components),
                shared=tuple(sharing.types),
                schema=examples.schema,
                backend=way[0],
                on_error=way[1],
                options=chosen.key,
                x64=packed.widths(),
            )
            return Request(key, args, kwargs, sharing, (*sharing.numpy, *examples.numpy), bound.orders)

        try:
            program, leaves, was_packed = self._cache.find(
                (backend, settings.on_error), request, bound, self.planner, examples, chosen
            )
        except SourceError as error:
            if ragged := ragged_names(examples.schema):
                raise RaggedRefused(error, ragged, examples.width) from error
            if examples.own == examples.schema:
                for note in disagreements(examples.schema):
                    error.add_note(note)
                raise
            return self._known.apart_from(examples, lambda: self.prepare(bound, runs=runs, derives=derives))
        self._known.learn(examples.schema, examples.width)
        shared = program.shared(leaves)
        other = replace(chosen, backend="xla") if is_free and chosen.backend == "llvm" else chosen
        by_xla = functools.partial(self.prepare, bound, other, False, moving, derives)
        try:
            operands = native.operands(program, examples, shared, runs, traced)
        except BatchError as error:
            widen(error)  # integers of the examples that need 64 bits
            if not is_free:
                raise
            return by_xla()
        if operands is None and program.compiled.native is not None and is_free:
            return by_xla()
        if operands is None:
            native.refuse_for_xla(self._name, [*shared, *examples.arrays.values()])
            program = program.by_xla.at(leaves)
        ready = NOTHING if operands is not None else examples.ready(program)
        if operands is not None and examples.kept and examples.group is not None:
            examples.group.mark(self.planner)  # what needs plans later finds them with it
        held = (program, examples, shared, ready, settings.out_axes, chosen.check_plans, operands)
        place = Placement(chosen.threads, chosen.stream)
        return Prepared(self._name, *held, place, by_xla if is_free else None, packed=was_packed, use=backend)

    def _call_compiled(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], run: Run, runs: bool = False) -> Any:
        """A call that `run` runs, for each group. `runs`: as in `prepare`."""
        with Changed() as changed:
            found = self._run(self.bound(args, kwargs), run, runs)
        self._change(changed, args, kwargs)
        return found

    def _run(self, bound: BoundArguments, run: Run, runs: bool) -> Any:
        chosen = self.options()
        by_shape = self._by_shape(lambda part: run(self.prepare(part, chosen, runs)), chosen)
        by_shape.out_axes, by_shape.masks = self.settings.out_axes, self.settings.on_error == "mask"
        return plain.in_words(self.__wrapped__, bound, by_shape.run, lambda: self._traces.knows_any)

    def specialisations_for(self, group: Group) -> tuple[SpecialisedProgram, ...]:
        """The programs that this function has for such examples; batches are planned for all of them."""
        return (*self._cache.for_group(group), *self._traces.for_group(group))

    def _declared(self, slot: ArgumentSlot) -> Declared:
        """What the annotation of the parameter that a slot is says; None where there is none."""
        try:
            hints = typing.get_type_hints(self.__wrapped__)
        except Exception:
            return None  # an annotation that names what does not exist here says nothing; it is no error of the call
        hint = hints.get(slot.name)
        return None if hint is None or hint is Any else lambda: schema_of_annotation(hint)


def _rebuilt(fun: Callable[..., Any], settings: Settings) -> Batched[..., Any]:
    return Batched(fun.__wrapped__ if isinstance(fun, Batched) else fun, settings)


@overload
def batched(fun: Callable[P, R], /) -> Batched[P, R]: ...


@overload
def batched(
    fun: Callable[P, R],
    /,
    *,
    in_axes: Any = 0,
    out_axes: Any = 0,
    backend: str = "auto",
    on_error: str = "raise",
    static: tuple[str, ...] | str = (),
    options: options | Mapping[str, Any] | None = None,
) -> Batched[P, R]: ...


@overload
def batched(
    *,
    in_axes: Any = 0,
    out_axes: Any = 0,
    backend: str = "auto",
    on_error: str = "raise",
    static: tuple[str, ...] | str = (),
    options: options | Mapping[str, Any] | None = None,
) -> Callable[[Callable[P, R]], Batched[P, R]]: ...


@entry
def batched(
    fun: Callable[..., Any] | None = None,
    /,
    *,
    in_axes: Any = 0,
    out_axes: Any = 0,
    backend: str = "auto",
    on_error: str = "raise",
    static: tuple[str, ...] | str = (),
    options: options | Mapping[str, Any] | None = None,
) -> Any:
    """Make a function for one example take a batch of them. A function, and a decorator with or without arguments.

    Args:
      fun: a Python function for one example. Control flow on the structure of examples (trees, lists) is fine.
      in_axes: which arguments are batched, as in `jax.vmap`: an int or None for all parameters, a sequence with an
        entry for each positional parameter, or a dict by parameter name. An entry is an int (the axis; 0 for a list of
        examples or a `Batch`), None (shared by all examples), or a container of entries that is a prefix of the
        argument.
      out_axes: where arrays of the result get the axis of examples; a prefix of the result's structure. None: the
        result does not depend on batched arguments and is returned once.
      backend: "auto", "interpret", "xla", "llvm" or "cuda"; the option `backend` says what each of them is.
      on_error: "raise" raises `ExampleError` when examples fail; "mask" makes the function return
        `(result, failures)`, where the rows of failed examples are zero.
      static: names of shared parameters whose values are part of the compiled program. Strings, functions and None are
        so without being named; arrays and Python floats are run-time values, and so are Python ints and bools: another
        value is no other program. They may decide structure (`f(node.left, depth - 1)`, `range(n)`, `words[n]`): then
        a batch keeps a plan for each of the values that it met last. An int becomes static by itself where a shape or
        another constant needs it (`jnp.zeros(n)`), a bool where it decides a branch (`if train:`), which gives two
        programs at most, each with its own arm. What `jax.jit` traces cannot decide structure: close over it there, or
        name it in `static_argnames`. Ints that are free variables are part of the program.
      options: an `ab.options(...)` or a dict; wins over options of the context.

    The order of a dict's keys matters only to a function that runs over it: then another order is another program.

    Numbers mean what Python means by them. Integers of the examples that overflow, divide by zero or index a list or a
    NumPy array out of range fail their example, computed ones too. Floats divide as IEEE 754 says (1.0 / 0.0: inf),
    integers of arrays as arrays do; indices of JAX's clamp. An array that may be either, on two paths, is NumPy's.

    Raises:
      UnsupportedError, TypeConflictError: at the first call with new types, naming a place in the source.
      BatchError: the arguments of a call are not a batch. PlanError: a batch has no plan inside `jax.jit`.
      ExampleError: some examples failed.

    >>> @batched
    ... def double(x):
    ...     return 2 * x
    >>> double.example(21)
    42
    """
    static = (static,) if isinstance(static, str) else static
    if not isinstance(static, (tuple, list, set, frozenset)) or not all(isinstance(n, str) for n in static):
        raise BatchError(f"static={static!r}: it takes the names of parameters, e.g. static=('n',)")
    if backend not in BACKENDS:
        hint, known = nearest(backend, BACKENDS) or ";", ", ".join(map(repr, BACKENDS))
        raise BatchError(f"backend={backend!r} is not available{hint} it takes {known}")
    if on_error not in ("raise", "mask"):
        raise BatchError(f"on_error={on_error!r} is not known; it takes 'raise' or 'mask'")
    settings = Settings(in_axes, out_axes, backend, on_error, frozenset(static), options)
    if fun is None:
        return lambda f: batched_with(f, settings)
    return batched_with(fun, settings)


def batched_with(fun: Callable[..., Any], settings: Settings) -> Batched[..., Any]:
    """`batched` with its arguments in one object."""
    if isinstance(fun, Batched):
        raise BatchError(f"{fun!r} is batched already")
    if isinstance(fun, classmethod):
        raise BatchError("ab.batched takes a function, not a classmethod: write @classmethod above @ab.batched")
    if not callable(fun):
        raise BatchError(f"ab.batched takes a function, not {fun!r}")
    return Batched(fun, settings)
