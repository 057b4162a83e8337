"""The front end from outside: one Python function and its arguments in, one module out.

A round lowers everything. Calls of functions that are being lowered use the result found in the round before; rounds
repeat until no assumption changes (recursion), or an argument that varies has become a run-time value.
"""

from __future__ import annotations

import ast
import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NoReturn

from autobatch.data.schema import Schema
from autobatch.errors import Error, UnsupportedError
from autobatch.frontend.library.caches import Caches
from autobatch.frontend.library.sets import set_of
from autobatch.frontend.library.stacking import operate
from autobatch.frontend.lowering import printing
from autobatch.frontend.lowering.access import enter
from autobatch.frontend.lowering.attributes import attribute, fields_of
from autobatch.frontend.lowering.calls import Never, lookup
from autobatch.frontend.lowering.comprehensions import materialise
from autobatch.frontend.lowering.construct import initialised
from autobatch.frontend.lowering.dispatch import call
from autobatch.frontend.lowering.expressions import evaluate
from autobatch.frontend.lowering.joins import stored
from autobatch.frontend.lowering.key_order import names_of
from autobatch.frontend.lowering.results import EntryOutputs, made_classes
from autobatch.frontend.lowering.state import (
    Context,
    Ended,
    FreeVariable,
    FunctionFrame,
    Impure,
    LoweringMemory,
    LoweringState,
    MemoryChanged,
    OpenBlock,
    Restart,
    Rules,
    UnknownResult,
)
from autobatch.frontend.lowering.statements import execute
from autobatch.frontend.memory.boxes import boxed
from autobatch.frontend.memory.heap import CompilesInMemory, NeedsMemory
from autobatch.frontend.memory.heaps import give_memory
from autobatch.frontend.memory.list_changes import adopted
from autobatch.frontend.memory.list_heap import tell_apart
from autobatch.frontend.memory.making import made_by
from autobatch.frontend.syntax import cells
from autobatch.frontend.syntax.sources import FunctionSource, is_user_function
from autobatch.frontend.syntax.syntax_trees import place_of
from autobatch.frontend.types import values as v
from autobatch.frontend.types.needs import Needed
from autobatch.frontend.types.statics import inputs
from autobatch.ir.by_floats import decided_by_floats
from autobatch.ir.core import Call, Function, Module, Region, Value
from autobatch.ir.rewrite import Fresh, calls, copy_region
from autobatch.ir.template import HeapTemplate, Input, MadeTemplate, Template
from autobatch.ir.types import BOOL, Array
from autobatch.source import Span

RULES = Rules(
    evaluate,
    execute,
    call,
    materialise,
    attribute,
    operate,
    set_of,
    boxed,
    fields_of,
    made_by,
    initialised,
    adopted,
    tell_apart,
)
ROUNDS = 24


@dataclass(frozen=True)
class LoweredModule:
    """`module.functions[0]` is the entry; `result` says how its results become Python values, and `made` what the
    objects are that it makes. `free` are the free variables read, so that a caller can read them again; `sources` every
    Python function whose text was lowered, and `reached` the lines of them (file, number) that lowering came to.
    `traced`: functions that were handed to JAX whole, with the place that did so. `asks_numpy`: some index depends on
    which arrays of the call, or of free variables, are NumPy's. `ordered`: the names of shared dicts the order of whose
    keys the function has looked at; `orders_batched`: it has looked at that of some dict which is no shared one.
    `heaps`: the memory of objects among the results. `caches`: the functions under `functools.cache` whose decorator is
    left out, by their places."""

    module: Module
    result: Template
    free: tuple[FreeVariable, ...]
    sources: tuple[Callable[..., Any], ...]
    reached: frozenset[tuple[str, int]] = frozenset()
    traced: tuple[tuple[Span, Span], ...] = ()
    made: tuple[MadeTemplate, ...] = ()
    asks_numpy: bool = False
    ordered: frozenset[str] = frozenset()
    orders_batched: bool = False
    heaps: tuple[HeapTemplate, ...] = ()
    caches: frozenset[Span] = frozenset()


def lower(
    fun: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    schema: Schema,
    shared: Sequence[Array],
    integers: Mapping[int, int] = MappingProxyType({}),
    dicts: Mapping[str, Any] = MappingProxyType({}),
    capacity: int = 32,
    traced: bool = False,
    remembered: frozenset[Span] = frozenset(),
    rows: bool = True,
) -> LoweredModule:
    """Lower a function of one example.

    `args` and `kwargs` are Python objects with `Input` at their array leaves; all else in them is static. `shared` are
    the types of the shared inputs; `integers` says which of them are Python integers of the call, and `Needed` is
    raised where one has to be static instead. Arrays in free variables become further shared values, behind these.
    `dicts`: those among the shared arguments, by name. `capacity`: how many objects an example may make of a class that
    has memory; `traced`: what only structure decides, and only memory makes possible, is refused: it can be traced.
    `remembered`: the places of functions under `functools.cache` whose results are kept in a dict. `rows`: they are
    planned, or else it is machine code.
    """
    caches = Caches(remembered=set(remembered))
    memory = LoweringMemory(dicts=names_of(dicts), capacity=capacity, caches=caches, rows=rows)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, 20_000))
    try:
        found = _rounds(lambda: Context(schema, shared, RULES, memory, integers), fun, args, kwargs)
    except Error as error:
        if not memory.needed:
            why = _with_why(memory, error)
            if why is None:
                raise
            raise why from None
    finally:
        sys.setrecursionlimit(limit)
    if memory.needed:
        raise Needed(frozenset(memory.needed))
    refused = memory.refused or printing.error_of(memory)
    if traced and refused is not None and not decided_by_floats(found.module):
        raise CompilesInMemory.because(refused)
    return found


def _with_why(memory: LoweringMemory, error: Error) -> UnsupportedError | None:
    """Why objects had to have memory, where they cannot; None where they had not."""
    first = memory.refused
    if first is None or not isinstance(error, UnsupportedError) or error.message == first.message:
        return None
    reason = f"they cannot have memory for that: {error.message}" + (f"; {error.cure}" if error.cure else "")
    return UnsupportedError(first.message, first.span, first.cure, (*first.also, (reason, error.span), *error.also))


def _rounds(
    begin: Callable[[], Context], fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> LoweredModule:
    """What lowering comes to when no assumption changes any more."""
    rounds = ROUNDS
    while rounds > 0:
        context = begin()
        try:
            found = _settled_round(context, fun, args, kwargs)
            rounds -= 1
        except MemoryChanged:
            context.memory.assumed.clear()
            if not context.again:
                context.memory.settled.clear()
            continue  # that has an end: there are so many classes, fields and functions
        except Restart:
            rounds -= 1
            continue
        except NeedsMemory as error:
            give_memory(context, error)
            continue
        except RecursionError as error:
            raise UnsupportedError(
                f"{_name(fun)} calls itself without end while it is compiled",
                context.place_of(error),
                "pass what changes from call to call as a number, or as a field of the examples",
            ) from None
        except Impure as error:
            raise UnsupportedError(error.message, error.span, error.cure, error.also) from None
        except (Error, Needed):
            raise
        except Exception as error:
            message = (str(error).splitlines() or [""])[0]
            raise UnsupportedError(
                f"this cannot be compiled ({type(error).__name__}: {message})",
                context.place_of(error),
                "write it in a simpler way",
            ) from error
        if not context.changed and context.deferred is not None:
            if isinstance(context.deferred, NeedsMemory):
                give_memory(context, context.deferred)
                continue
            raise context.deferred
        if not context.changed and found is not None:
            return found
        if not context.changed:
            break
    else:
        raise UnsupportedError(
            f"the type of the result of {_name(fun)} does not settle",
            _span(context, fun),
            "give its results one type on every path, e.g. with float(...) or .astype(...)",
        )
    raise UnsupportedError(
        f"{_name(fun)} never returns: every path calls it again",
        _span(context, fun),
        "return a result on some path without a recursive call",
    )


def _name(fun: Callable[..., Any]) -> str:
    return getattr(fun, "__qualname__", type(fun).__name__)


def _span(context: Context, fun: Any) -> Any:
    state = _start(context, fun)
    return state.span


def _start(context: Context, fun: Any) -> LoweringState:
    """The state in which the entry is called."""
    function = getattr(fun, "__autobatch_function__", fun)
    function = getattr(function, "__func__", function)
    if not is_user_function(function):
        function = inspect.unwrap(function) if callable(function) else function
    while isinstance(function, functools.partial):
        function = function.func
    if not inspect.isfunction(function):
        function = inspect.getattr_static(type(fun), "__call__", function)
    if not inspect.isfunction(function):
        raise UnsupportedError(
            f"{_name(fun)} has no Python source", cure="batch a function that calls it: `lambda x: ...`"
        )
    block = OpenBlock(None)
    source = lookup(_bare(context, block), function)
    return LoweringState(FunctionFrame(context, source, {}), block, {}, span=source.span)


def _bare(context: Context, block: OpenBlock) -> LoweringState:
    return LoweringState(FunctionFrame(context, None, {}), block, {})  # type: ignore[arg-type]


def _entry_inputs(values: Iterable[Any]) -> list[Input]:
    """The batched inputs, in the order of the entry's parameters."""
    found = {i.index: i for i in inputs(tuple(values)) if not i.shared}
    return [found[k] for k in sorted(found)]


def _refuse_generator(s: LoweringState, source: FunctionSource) -> NoReturn:
    """A generator has no results of its own: refuse it where it first yields, if it is written out."""
    yields = [n for n in ast.walk(source.node) if isinstance(n, ast.Yield | ast.YieldFrom)]
    place = source.at(min(yields, key=place_of)) if yields else None
    s.refuse(f"the result of {source.name} is a generator", "return a list of what it yields", place)


def _settled_round(
    context: Context, fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> LoweredModule | None:
    """A round. MemoryChanged: it has found more of memory than was known, so whatever it came to counts for nothing."""
    try:
        found = _round(context, fun, args, kwargs)
    except Exception:
        if context.again:
            raise MemoryChanged from None
        raise
    if context.again:
        raise MemoryChanged
    return found


def _round(
    context: Context, fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> LoweredModule | None:
    parameters: list[Value] = []
    for held in _entry_inputs((*args, *kwargs.values())):
        parameters.append(context.value(held.type, "x"))
        value: v.Abstract = v.Leaf(parameters[-1], numpy=held.numpy)
        if held.optional:
            parameters.append(context.value(BOOL, "missing"))
            value = v.Optional(value, parameters[-1])
        context.inputs[held.index] = value
    state = _start(context, fun)
    given = [enter(context, a) for a in args]
    named = {k: enter(context, a) for k, a in kwargs.items()}
    cells.begin(state, None)
    try:
        result = state.call(v.Static(fun), given, named)
        if isinstance(result, v.Generator):
            _refuse_generator(state, result.source)
        result = stored(state, result)
    except UnknownResult:
        return None
    except Ended:
        result = v.Static(None)
    if isinstance(result, v.Static) and isinstance(result.value, Never):
        result = v.Static(None)
    outputs = EntryOutputs(state)
    template = printing.returned(state, outputs, outputs.template(result))
    heaps = outputs.memory()
    entry = Function(
        context.unique(f"{_name(fun)}.main"),
        Region(tuple(parameters), tuple(state.block.body), tuple(outputs.operands)),
        state.span,
    )
    module = _finish(context, entry)
    traced = tuple(sorted(context.traced, key=str))
    free, sources = tuple(context.free.values()), tuple(context.sources)
    made, memory = made_classes(state), context.memory
    reached, asked = frozenset(context.reached), (memory.asks_numpy, frozenset(memory.ordered), memory.orders_batched)
    return LoweredModule(module, template, free, sources, reached, traced, made, *asked, heaps, memory.caches.left_out)


class _RenumberedModule(Fresh):
    """Values numbered from zero, with the names of the user's variables."""

    def __init__(self, hints: dict[Value, str]) -> None:
        self._next = 0
        self._hints = hints

    def like(self, values: Iterable[Value]) -> tuple[Value, ...]:
        return tuple(self.value(x.type, self._hints.get(x, x.hint)) for x in values)


def _reachable(entry: Function, context: Context) -> list[Function]:
    """The functions that the entry calls, itself first; an entry that only hands on a call is that function."""
    match entry.region.body:
        case (Call(results=results, callee=callee, operands=operands),) if (
            results == entry.region.results and operands == entry.region.args
        ):
            entry = context.functions[callee]
    found = {entry.name: entry}
    todo = [entry]
    while todo:
        for call_ in calls(todo.pop().region):
            if call_.callee not in found:
                found[call_.callee] = context.functions[call_.callee]
                todo.append(found[call_.callee])
    return list(found.values())


def _finish(context: Context, entry: Function) -> Module:
    """The module with values numbered in the order in which they are printed; names from the user's variables."""
    functions = _reachable(entry, context)
    fresh = _RenumberedModule(context.hints)
    shared = tuple(fresh.value(x.type, x.hint) for x in context.shared)
    env: dict[Value, Any] = dict(zip(context.shared, shared, strict=True))
    renamed = tuple(Function(f.name, copy_region(f.region, dict(env), fresh), f.span) for f in functions)
    return Module(renamed, shared, tuple(context.constants))
