"""The front end from outside: one Python function and its arguments in, one module out.

A round lowers everything. Calls of functions that are being lowered use the result found in the round before; rounds
repeat until no assumption changes (recursion), or an argument that varies has become a run-time value.
"""

from __future__ import annotations

import ast
import functools
import inspect
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NoReturn

from autobatch.data.columns import Schema
from autobatch.errors import Error, SourceError, Span, UnsupportedError
from autobatch.frontend.library import priorities, sets, tables
from autobatch.frontend.library.dynamic_arrays import operate
from autobatch.frontend.library.numpy_arrays import is_of_jax, is_of_numpy
from autobatch.frontend.library.object_graphs import brought_in, fill, holds_given, left, with_memory
from autobatch.frontend.library.sets import set_of
from autobatch.frontend.library.stacking import transposed
from autobatch.frontend.library.strings import formatted
from autobatch.frontend.library.tables import concatenate
from autobatch.frontend.lowering import iterators, printing, selection, unions
from autobatch.frontend.lowering.assignment import assign, set_by_name
from autobatch.frontend.lowering.attributes import attribute, fields_of, parts_of
from autobatch.frontend.lowering.branches import bool_expression, conditional_expression
from autobatch.frontend.lowering.calls import Never, lookup
from autobatch.frontend.lowering.comprehensions import (
    comprehension,
    dict_comprehension,
    materialise,
    nested_reduction,
    set_comprehension,
)
from autobatch.frontend.lowering.construct import initialised, named_arguments, of_base
from autobatch.frontend.lowering.dispatch import call
from autobatch.frontend.lowering.functions import define
from autobatch.frontend.lowering.iterators import held, kept, object_of
from autobatch.frontend.lowering.joins import stepped, stored
from autobatch.frontend.lowering.numbers import present
from autobatch.frontend.lowering.operators import BINARY, apply_binary, apply_unary, comparison, subscript
from autobatch.frontend.lowering.reductions import first_element
from autobatch.frontend.lowering.results import EntryOutputs, boxed, made_classes
from autobatch.frontend.lowering.sequences import sequence
from autobatch.frontend.lowering.state import (
    Caches,
    ChangesGiven,
    ChangesObjects,
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
    SeenInMemory,
    UnknownResult,
    enter,
    expand,
    names_of,
    variable,
)
from autobatch.frontend.lowering.statements import EXPRESSION_REFUSALS, execute
from autobatch.frontend.memory import array_stores, heaps
from autobatch.frontend.memory.container_heap import adopted, string_of
from autobatch.frontend.memory.heap import OBJECTS, CompilesInMemory, Heap, NeedsMemory, is_given
from autobatch.frontend.memory.heaps import asked_for, give_memory, note_adopting
from autobatch.frontend.memory.list_heap import copied, hold, tell_apart
from autobatch.frontend.memory.mutation import call_method, made_by, set_default
from autobatch.frontend.memory.rebinding import kinds_in, rebind, refuse_change
from autobatch.frontend.syntax import cells, invalidation
from autobatch.frontend.syntax.invalidation import refuse_given, refuse_moving_views
from autobatch.frontend.syntax.iterator_variables import place_of
from autobatch.frontend.syntax.sources import FunctionSource, changed_later, is_user_function
from autobatch.frontend.types import values as v
from autobatch.frontend.types.specialisation import Needed
from autobatch.frontend.types.statics import inputs
from autobatch.ir.core import (
    BOOL,
    INT,
    Array,
    Call,
    ChangedArguments,
    ChangedFields,
    Container,
    Function,
    HeapTemplate,
    Input,
    Literal,
    MadeTemplate,
    Module,
    Ref,
    Region,
    Template,
    Value,
)
from autobatch.ir.regions import Fresh, calls, copy_region, decided_by_floats

# ---- expressions
#
# Expressions: one entry of `EXPRESSIONS` for each kind that can be compiled.


def evaluate(s: LoweringState, node: ast.expr) -> v.Abstract:
    """The abstract value of an expression."""
    if s.dead:
        raise Ended
    with s.at(node):
        rule = EXPRESSIONS.get(type(node))
        if rule is None:
            message, cure = EXPRESSION_REFUSALS.get(type(node), ("this expression cannot be compiled", ""))
            raise UnsupportedError(message, s.span, cure)
        value = rule(s, node)
        if isinstance(node, MAKING) or is_given(value):
            value = made_by(s, value, node)
        elif isinstance(value, v.Leaf) and isinstance(value.type, Ref):
            value = unions.narrowed(s, value)
        elif isinstance(value, v.Choice):
            value = selection.narrowed(s, value)
        elif isinstance(value, v.Optional) and not value.unset and s.block.truth(value.missing) is False:
            value = value.value
    if s.dead:
        raise Ended
    return value


def _constant(s: LoweringState, node: ast.Constant) -> v.Abstract:
    return v.Static(node.value)


def _name(s: LoweringState, node: ast.Name) -> v.Abstract:
    value = variable(s, node.id)
    if isinstance(value, v.Optional) and value.unset:
        if node.id not in s.env:  # a variable of the function around this one
            return present(s, value, "NameError")
        value = present(s, value)
        s.bind(node.id, value, s.env[node.id].span)
    return value


def _attribute(s: LoweringState, node: ast.Attribute) -> v.Abstract:
    value = attribute(s, s.evaluate(node.value), node.attr)
    if node.attr == "T":
        array_stores.check_kept(s, value, node)
        array_stores.note_view(s, value)
    return value


def _elements(s: LoweringState, nodes: list[ast.expr], kept: bool = True) -> list[v.Abstract]:
    """The elements of a display; `*x` spreads a sequence of known length. `kept`: as in `_parts`."""
    found = _parts(s, nodes, kept)
    if any(not isinstance(part, v.Record) for part in found):
        s.refuse("`*` spreads only a sequence of known length here", "pass the list itself")
    return [x for part in found if isinstance(part, v.Record) for x in part.items]


def _parts(s: LoweringState, nodes: list[ast.expr], kept: bool = True) -> list[v.Abstract]:
    """The elements of a display as lists behind one another: those written out, and those that `*` spreads. `kept`: may
    what they become a part of hold them?"""
    parts: list[v.Abstract] = []
    for node in nodes:
        if not isinstance(node, ast.Starred):
            parts.append(_record("list", [hold(s, s.evaluate(node)) if kept else _read_only(s, node)]))
            continue
        value = s.evaluate(node.value)
        found = sequence(s, value)
        if isinstance(found, v.Lazy) and isinstance(found.length, v.Static):
            parts.append(_record("list", [found.item(s, v.Static(k)) for k in range(found.length.value)]))
        else:
            parts.append(found if isinstance(found, v.Record) else value)
    for k in changed_later(nodes):
        parts[k] = _record("list", [hold(s, s.evaluate(nodes[k])) if kept else _read_only(s, nodes[k])])
    return parts


def _read_only(s: LoweringState, node: ast.expr) -> v.Abstract:
    """What only a function of arrays sees: lists and tuples that are written out there need no memory."""
    if not isinstance(node, ast.List | ast.Tuple) or any(isinstance(x, ast.Starred) for x in node.elts):
        return s.evaluate(node)
    return _record("list" if isinstance(node, ast.List) else "tuple", [_read_only(s, x) for x in node.elts])


def _tuple(s: LoweringState, node: ast.Tuple) -> v.Abstract:
    return made_by(s, _display(s, "tuple", node.elts), node)


def _list(s: LoweringState, node: ast.List) -> v.Abstract:
    return _display(s, "list", node.elts)


def _display(s: LoweringState, kind: Any, nodes: list[ast.expr]) -> v.Abstract:
    parts = _parts(s, [held(s, node) for node in nodes])
    made = concatenate(s, v.Record(kind, (), ()), *(_with_iterators(s, part) for part in parts))
    return made if isinstance(made, v.Record | v.Listing) else s.context.rules.materialise(s, sequence(s, made))


def _with_iterators(s: LoweringState, part: v.Abstract) -> v.Abstract:
    """The elements of a list or tuple, generators as objects."""
    if not isinstance(part, v.Record) or not any(isinstance(x, v.Generator) for x in part.items):
        return part
    items = tuple(stepped(s, x) for x in part.items)
    return replace(part, items=items)


def _record(kind: Any, items: list[v.Abstract]) -> v.Record:
    return v.Record(kind, tuple(range(len(items))), tuple(items))


def _set(s: LoweringState, node: ast.Set) -> v.Abstract:
    return sets.make_set(s, set, _elements(s, node.elts))


def _dict(s: LoweringState, node: ast.Dict) -> v.Abstract:
    made = v.Record("dict", (), ())
    for key, value in zip(node.keys, node.values, strict=True):
        if key is None:
            given = present(s, s.evaluate(value))
            parts = fields_of(s, given) if isinstance(given, v.Leaf) and isinstance(given.type, Ref) else None
            spread = expand(s, copied(s, given)) if parts is None else parts
            if not isinstance(spread, v.Record) or spread.kind not in ("dict", "table"):
                s.refuse("`**` spreads only dicts", "write the keys out")
            made = tables.updated(s, made, spread)
            continue
        name = s.evaluate(key)
        made = tables.with_item(s, made, name, hold(s, stepped(s, s.evaluate(held(s, value)))))
    return made


def _binary(s: LoweringState, node: ast.BinOp) -> v.Abstract:
    left = s.evaluate(node.left)
    right = s.evaluate(node.right)
    if changed_later([node.left, node.right]):
        left = s.evaluate(node.left)
    return apply_binary(s, BINARY[type(node.op)], left, right)


def _unary(s: LoweringState, node: ast.UnaryOp) -> v.Abstract:
    return apply_unary(s, node.op, s.evaluate(node.operand))


def _subscript(s: LoweringState, node: ast.Subscript) -> v.Abstract:
    value = s.evaluate(node.value)
    index = s.evaluate(node.slice)
    if not isinstance(value, v.Record) or not tables.has_default(value):
        return subscript(s, value, index)
    if not isinstance(node.value, ast.Name):
        words = "a defaultdict is read here that no variable holds"
        refuse_change(s, node.value, words, "give it a name, or read it with .get()", value)
    found = tables.get_or_make(s, value, index)
    rebind(s, node.value.id, tables.store(s, value, index, found))
    return found


def _slice(s: LoweringState, node: ast.Slice) -> v.Abstract:
    bounds = [v.Static(None) if n is None else s.evaluate(n) for n in (node.lower, node.upper, node.step)]
    if all(isinstance(b, v.Static) for b in bounds):
        return v.Static(slice(*(b.value for b in bounds if isinstance(b, v.Static))))
    return v.Record("object", ("start", "stop", "step"), tuple(bounds), slice)


def _call(s: LoweringState, node: ast.Call) -> v.Abstract:
    if (result := invalidation.reduced(s, node)) is not None:
        return result
    if (nested := nested_reduction(s, node)) is not None:
        return s.evaluate(nested)
    if (element := first_element(s, node)) is not None:
        return element
    function = s.evaluate(node.func)
    if function == v.Static(print):
        return printing.call(s, node)
    if function == v.Static(zip) and (columns := _zipped(s, node)) is not None:
        return columns
    if (found := set_default(s, node, function)) is not None:
        return found
    refuse_moving_views(s, function, node.args)
    nodes, keywords = iterators.given(s, function, node)
    keeps = isinstance(node.func, ast.Attribute) and node.func.attr in iterators.KEEPING
    given = invalidation.ended(s, node, lambda: _arguments(s, function, nodes))
    if not isinstance(given, list):
        return given
    items = [stepped(s, x) for x in given] if keeps else given
    named = named_arguments(s, keywords)
    for k in changed_later(node.args, [x.value for x in node.keywords]) if node.keywords else ():
        items[k] = s.evaluate(node.args[k])
    if s.dead:
        raise Ended
    changed = of_base(s, function, items, named)
    changed = set_by_name(s, node, function, items) if changed is None else changed
    changed = call_method(s, node, function, items, named) if changed is None else changed
    changed = priorities.call(s, node, function, items, named) if changed is None else changed
    result = changed if changed is not None else s.call(function, items, named)
    refuse_given(s, node, function)
    return result


def _zipped(s: LoweringState, node: ast.Call) -> v.Abstract | None:
    """`zip(*rows)` where the number of rows is data."""
    match node:
        case ast.Call(args=[ast.Starred(value=rows)], keywords=[]):
            take_back = s.mark()
            found = sequence(s, s.evaluate(rows))
            if isinstance(found, v.Lazy) and not isinstance(found.length, v.Static):
                return transposed(s, found)
            take_back()
    return None


def _arguments(s: LoweringState, function: v.Abstract, nodes: list[ast.expr]) -> list[v.Abstract]:
    """Positional arguments. `max(*xs, y)` is `max([*xs, y])`, whatever the length of `xs`."""
    if function in (v.Static(min), v.Static(max)) and any(isinstance(n, ast.Starred) for n in nodes):
        return [concatenate(s, *_parts(s, nodes))]
    of_arrays = isinstance(function, v.Static) and (is_of_numpy(function.value) or is_of_jax(function.value))
    return _elements(s, nodes, kept=not of_arrays)


def _walrus(s: LoweringState, node: ast.NamedExpr) -> v.Abstract:
    value = kept(s, node, s.evaluate(node.value))
    assign(s, node.target, value)
    return value


def _string(s: LoweringState, node: ast.JoinedStr) -> v.Abstract:
    return formatted(s, node)


MAKING = (
    ast.List,
    ast.ListComp,
    ast.BinOp,
    ast.UnaryOp,
    ast.Call,
    ast.Subscript,
    ast.Dict,
    ast.DictComp,
    ast.Set,
    ast.SetComp,
)
"""The expressions that may make a list, dict or array."""
EXPRESSIONS: dict[type[ast.expr], Callable[[LoweringState, Any], v.Abstract]] = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.Tuple: _tuple,
    ast.List: _list,
    ast.Dict: _dict,
    ast.Set: _set,
    ast.BinOp: _binary,
    ast.UnaryOp: _unary,
    ast.BoolOp: bool_expression,
    ast.Compare: comparison,
    ast.IfExp: conditional_expression,
    ast.Subscript: _subscript,
    ast.Slice: _slice,
    ast.Call: _call,
    ast.Lambda: define,
    ast.NamedExpr: _walrus,
    ast.ListComp: comprehension,
    ast.GeneratorExp: comprehension,
    ast.DictComp: dict_comprehension,
    ast.SetComp: set_comprehension,
    ast.JoinedStr: _string,
}


RULES = Rules(
    evaluate,
    execute,
    call,
    materialise,
    attribute,
    operate,
    set_of,
    boxed,
    parts_of,
    made_by,
    initialised,
    adopted,
    string_of,
    tell_apart,
    brought_in,
    object_of,
)
ROUNDS = 24
ALL_ROUNDS = 500
"""Also of those that find more of memory, of which there are a few for each class, field and function."""


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
    letters: bool = False,
) -> LoweredModule:
    """Lower a function of one example.

    `args` and `kwargs` are Python objects with `Input` at their array leaves; all else in them is static. `shared` are
    the types of the shared inputs; `integers` says which of them are Python integers of the call, and `Needed` is
    raised where one has to be static instead. Arrays in free variables become further shared values, behind these.
    `dicts`: those among the shared arguments, by name. `capacity`: how many objects an example may make of a class that
    has memory; `traced`: what only structure decides, and only memory makes possible, is refused: it can be traced.
    `remembered`: the places of functions under `functools.cache` whose results are kept in a dict. `rows`: they are
    planned, or else it is machine code. `letters`: strings in memory are code points, as some are put together.
    """
    caches = Caches(remembered=set(remembered))
    memory = LoweringMemory(dicts=names_of(dicts), capacity=capacity, caches=caches, rows=rows, letters=letters)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, 20_000))
    try:
        found = _rounds(lambda: Context(schema, shared, RULES, memory, integers), fun, args, kwargs)
    except Error as error:
        if not memory.needed:
            if isinstance(error, ChangesObjects):
                raise _with_kinds(error, schema) from None
            why = _with_why(memory, error)
            if why is None:
                raise
            raise why from None
    finally:
        sys.setrecursionlimit(limit)
    if memory.needed:
        raise Needed(frozenset(memory.needed))
    refused = memory.refused or printing.error_of(memory)
    if traced and refused is not None and memory.unseen:
        raise SeenInMemory(refused.message, refused.span, refused.cure)
    if traced and refused is not None and not decided_by_floats(found.module):
        raise CompilesInMemory.because(refused)
    return found


def _with_kinds(error: ChangesObjects, schema: Schema) -> SourceError:
    if error.store:
        error.kinds = frozenset(kinds_in(schema, Ref(error.store)))
    return error if error.kinds else error.error


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
    rounds, left = ROUNDS, ALL_ROUNDS
    while rounds > 0 and left > 0:
        left -= 1
        context = begin()
        try:
            found = _settled_round(context, fun, args, kwargs)
            rounds -= 1
        except MemoryChanged:
            note_adopting(context.memory)
            context.memory.assumed.clear()
            if not context.again or any(h.whole.layout is None for h in context.memory.heaps.values()):
                context.memory.settled.clear()  # what was found with memory whose fields are found anew
            rounds = ROUNDS
            continue  # that has an end: there are so many classes, fields and functions
        except Restart:
            rounds -= 1
            continue
        except NeedsMemory as error:
            give_memory(context, error)
            continue
        except RecursionError as error:
            raise UnsupportedError(
                f"{_shown_name(fun)} calls itself without end while it is compiled",
                context.place_of(error),
                "pass what changes from call to call as a number, or as a field of the examples",
            ) from None
        except ChangesGiven as error:
            if context.memory.own_lists:
                raise UnsupportedError(error.message, error.span, error.cure, error.also) from None
            context.memory.own_lists = context.memory.unseen = True
            context.memory.refused = context.memory.refused or error
            context.memory.assumed.clear()
            continue
        except ChangesObjects:
            raise
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
            f"the type of the result of {_shown_name(fun)} does not settle",
            _span(context, fun),
            "give its results one type on every path, e.g. with float(...) or .astype(...)",
        )
    raise UnsupportedError(
        f"{_shown_name(fun)} never returns: every path calls it again",
        _span(context, fun),
        "return a result on some path without a recursive call",
    )


def _shown_name(fun: Callable[..., Any]) -> str:
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
            f"{_shown_name(fun)} has no Python source", cure="batch a function that calls it: `lambda x: ...`"
        )
    block = OpenBlock(None, context)
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
    except Exception as error:
        # what a path waits for may be set behind what objects without memory cannot do
        if context.again and not (context.waited and isinstance(error, NeedsMemory) and any(asked_for(context, error))):
            raise MemoryChanged from None
        raise
    if context.again:
        raise MemoryChanged
    return found


def _round(
    context: Context, fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> LoweredModule | None:
    parameters: list[Value] = []
    for taken in _entry_inputs((*args, *kwargs.values())):
        parameters.append(context.value(taken.type, "x"))
        value: v.Abstract = v.Leaf(parameters[-1], numpy=taken.numpy)
        if taken.optional:
            parameters.append(context.value(BOOL, "missing"))
            value = v.Optional(value, parameters[-1])
        context.inputs[taken.index] = value
    state = _start(context, fun)
    given = [enter(context, a) for a in args]
    named = {k: enter(context, a) for k, a in kwargs.items()}
    objects = {k: named.pop(k) for k in kwargs if k.startswith(OBJECTS)}
    cells.begin(state, None)
    if objects:
        context.adopts = context.memory.unseen = True
        with_memory(state, context.memory, objects)
        heaps.enter(state)
        with _inside(state):
            fill(state, objects)
    try:
        result = state.call(v.Static(fun), given, named)
        if isinstance(result, v.Generator):
            _refuse_generator(state, result.source)
        result = stored(state, result)
        if iterators.is_iterator(state, result):
            state.refuse(
                f"the result of {_shown_name(fun)} is a generator or iterator", "return a list of what it gives"
            )
    except UnknownResult:
        return None
    except Ended:
        result = v.Static(None)
    if isinstance(result, v.Static) and isinstance(result.value, Never):
        result = v.Static(None)
    outputs = EntryOutputs(state)
    whole = outputs.template(result)
    if context.own_lists or objects:
        whole = _changed_arguments(state, outputs, whole, objects)
    template = printing.returned(state, outputs, whole)
    left_in = outputs.memory()
    entry = Function(
        context.unique(f"{_shown_name(fun)}.main"),
        Region(tuple(parameters), tuple(state.block.body), tuple(outputs.operands)),
        state.span,
    )
    module = _finish(context, entry)
    traced = tuple(sorted(context.traced, key=str))
    free, sources = tuple(context.free.values()), tuple(context.sources)
    made, memory = made_classes(state), context.memory
    reached, asked = frozenset(context.reached), (memory.asks_numpy, frozenset(memory.ordered), memory.orders_batched)
    return LoweredModule(
        module, template, free, sources, reached, traced, made, *asked, left_in, memory.caches.left_out
    )


class _RenumberedModule(Fresh):
    """Values numbered from zero, with the names of the user's variables."""

    def __init__(self, hints: dict[Value, str]) -> None:
        self._next = 0
        self._hints = hints

    def like(self, values: Iterable[Value]) -> tuple[Value, ...]:
        return tuple(self.value(x.type, self._hints.get(x, x.hint)) for x in values)


@contextmanager
def _inside(s: LoweringState) -> Iterator[None]:
    """Lower what is around the entry, which is no entry of its own."""
    s.context.active.append((s.frame.source, {}))
    try:
        yield
    finally:
        s.context.active.pop()


def _changed_arguments(
    s: LoweringState, outputs: EntryOutputs, result: Template, objects: Mapping[str, v.Abstract]
) -> Template:
    """The result of the entry with the lists beside it that arguments are then, and what its objects are. The lists are
    the first in their memory."""
    seen: Counter[Heap] = Counter()
    lists: dict[str, v.Abstract] = {}
    for name, heap in s.context.own_lists.items():
        lists[name] = v.MemoryRow(Literal(seen[heap.whole], INT), heap.whole)
        seen[heap.whole] += 1
    together = [name for name, heap in s.context.own_lists.items() if holds_given(heap.whole)]
    with _inside(s):
        after = left(s, list(objects.values()), bool(together))
    apart = [name for name in lists if name not in together]
    keys: list[Any] = ["result", *apart]
    children = [result, *(outputs.template(lists[name]) for name in apart)]
    if together or any(x.set or x.inside for x in after):
        whole = (*(x.after for x in after), *(lists[name] for name in together))
        keys.append(ChangedFields(tuple(x.set for x in after), tuple(x.inside for x in after), tuple(together)))
        children.append(outputs.template(v.Record("tuple", tuple(range(len(whole))), whole)))
    return Container("object", tuple(children), tuple(keys), ChangedArguments)


def _reachable(entry: Function, context: Context) -> list[Function]:
    """The functions that the entry calls, itself first; an entry that only passes on a call is that function."""
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
