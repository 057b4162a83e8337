"""Calls: binding of arguments, which callee is lowered and which traced, one IR function for each specialisation.

A function of the user becomes a function of the module, specialised to the static parts of its arguments and the
types of the others. Shared values are visible everywhere and are not passed. A call of a function that is being
lowered uses the result that the round before found (`lower.py` repeats rounds until nothing changes).
"""

from __future__ import annotations

import ast
import types
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from autobatch.errors import SourceError, UnsupportedError
from autobatch.frontend.library.numpy_arrays import marked, passed_kinds
from autobatch.frontend.lowering import exceptions
from autobatch.frontend.lowering.joins import captured, convert, stepped, stored
from autobatch.frontend.lowering.state import (
    RESULT,
    RETURNED,
    Ended,
    FunctionFrame,
    LoweringState,
    OpenBlock,
    Restart,
    Specialisation,
    UnknownResult,
    expand,
    wrap,
)
from autobatch.frontend.memory import heaps
from autobatch.frontend.memory.heap import NeedsMemory, ReturnedIdentity, add_heap, is_given
from autobatch.frontend.syntax import cells
from autobatch.frontend.syntax.scopes import is_cell
from autobatch.frontend.syntax.sources import FunctionSource, source_of
from autobatch.frontend.types import values as v
from autobatch.frontend.types.unify import LayoutConflict, linked, settled, type_conflict, unify
from autobatch.frontend.types.values import HeldLayout, Layout, is_python, layout_of, leaf_types, leaves, rebuild
from autobatch.ir.core import Array, Call, Function, List, Ref, Region, Tag, Type, Value

MAX_SPECIALISATIONS = 64


class Never:
    """The result of a function that only fails."""


NEVER = v.Static(Never())


def call_local(
    s: LoweringState, function: v.LocalFunction, args: Sequence[v.Abstract], kwargs: dict[str, v.Abstract]
) -> v.Abstract:
    """A call of a function defined inside a lowered one."""
    held = captured(s, function)
    assert isinstance(held, v.LocalFunction)
    bound = bind_arguments(s, held.source, args, kwargs, dict(held.defaults))
    return activate(s, held.source, bound, dict(held.captured or ()))


def call_function(
    s: LoweringState, function: types.FunctionType, args: Sequence[v.Abstract], kwargs: dict[str, v.Abstract]
) -> v.Abstract:
    """A call of a Python function of the user."""
    source = lookup(s, function)
    return activate(s, source, bind_arguments(s, source, args, kwargs, defaults_of(s, function)), {})


def defaults_of(s: LoweringState, function: types.FunctionType) -> dict[str, v.Abstract]:
    """The defaults of the parameters of a Python function."""
    code = function.__code__
    named = code.co_varnames[: code.co_argcount][code.co_argcount - len(function.__defaults__ or ()) :]
    defaults = {
        name: wrap(s.context, default, v.FreeOrigin(function, "__defaults__", (("item", k),)))
        for k, (name, default) in enumerate(zip(named, function.__defaults__ or (), strict=True))
    }
    for name, default in (function.__kwdefaults__ or {}).items():
        defaults[name] = wrap(s.context, default, v.FreeOrigin(function, "__kwdefaults__", (("item", name),)))
    return defaults


def lookup(s: LoweringState, function: types.FunctionType) -> FunctionSource:
    """The source of a function, found once for each lowering."""
    cache = s.context.memory.sources
    if function not in cache:
        cache[function] = source_of(function, s.span, frozenset(s.context.memory.outliving))
    s.context.sources[function] = None
    return cache[function]


def bind_arguments(
    s: LoweringState,
    source: FunctionSource,
    args: Sequence[v.Abstract],
    kwargs: dict[str, v.Abstract],
    defaults: dict[str, v.Abstract],
) -> dict[str, v.Abstract]:
    """Arguments by parameter name, as Python binds them."""
    a = source.node.args
    positional = [p.arg for p in (*a.posonlyargs, *a.args)]
    keyword = {p.arg for p in (*a.args, *a.kwonlyargs)}
    bound = dict(zip(positional, args, strict=False))
    rest = tuple(args[len(positional) :])
    if rest and a.vararg is None:
        s.refuse(
            f"{source.name}() takes {len(positional)} positional arguments but {len(args)} were given",
            "check the call against the function's parameters",
        )
    extra: dict[str, v.Abstract] = {}
    for name, value in kwargs.items():
        if name in keyword and name not in bound:
            bound[name] = value
        elif name in keyword:
            s.refuse(f"{source.name}() got two values for the argument {name!r}", "give it once")
        elif a.kwarg is not None:
            extra[name] = value
        else:
            s.refuse(f"{source.name}() has no parameter {name!r}", "check the spelling, or take **kwargs")
    for name in (*positional, *(p.arg for p in a.kwonlyargs)):
        if name not in bound and name in defaults:
            bound[name] = defaults[name]
        elif name not in bound:
            s.refuse(
                f"{source.name}() is called without its argument {name!r}", "give it, or give the parameter a default"
            )
    if a.vararg is not None:
        bound[a.vararg.arg] = v.Record("tuple", tuple(range(len(rest))), rest)
    if a.kwarg is not None:
        bound[a.kwarg.arg] = v.Record("dict", tuple(extra), tuple(extra.values()))
    return bound


def activate(
    s: LoweringState,
    source: FunctionSource,
    arguments: dict[str, v.Abstract],
    captured: dict[str, v.Abstract],
) -> v.Abstract:
    """One activation: find or lower the specialisation, and emit the call."""
    arguments = {n: stepped(s, x) for n, x in arguments.items()}  # objects, which the memory that is passed has
    for value in (*arguments.values(), *captured.values()):
        s.context.sites.lend(value)
    if s.context.own_lists and source is s.context.entry and any(map(is_given, arguments.values())):
        s.refuse("a list of the examples is changed by a call of the function in itself", "change a copy: list(xs)")
    held = cells.given(s, source, (*arguments.values(), *captured.values()))
    for value in held.values():
        s.context.sites.pass_arrays(value)
    given = {n: _prepare(s, x) for n, x in (arguments | held | heaps.given(s, source.node)).items()}
    caught = {n: x if isinstance(x, v.LocalFunction) else _prepare(s, x) for n, x in captured.items()}
    given = _join_kinds(s, source, _widen_lists(s, source, _widen(s, source, given)))
    caught = _join_kinds(s, source, caught)
    if source in s.context.memory.related:
        _note_related(s, source, [*given.values(), *caught.values()])
    shared = s.context.shared_values
    passed = {n: None if (source, n) in s.context.memory.widened else shared for n in given}
    layouts = {n: layout_of(x, passed[n]) for n, x in given.items()}
    caught_layouts = {n: layout_of(x, shared) for n, x in caught.items()}
    catching = tuple(dict.fromkeys(x for around in s.frame.trying for x in around))  # a `try` in a recursion adds none
    key = (source, tuple(layouts.items()), tuple(caught_layouts.items()), catching)
    known = s.context.specialisations.get(key)
    if known is None:
        for value in (*given.values(), *caught.values()):
            s.context.keep(value)
        known = specialise(s, key, source, layouts, caught_layouts, catching)
    if not known.done:
        s.context.recursive.add(key)
    if known.guessed:
        s.guess()
    result = known.result if known.done else s.context.memory.assumed.get(key)
    if result is None:
        s.frame.unknown = True
        raise UnknownResult
    if not known.done:
        s.guess()  # what it returns may be more in the next round
    operands = [o for n, x in given.items() for o in leaves(x, passed[n])]
    operands += [o for x in caught.values() for o in leaves(x, shared)]
    values = tuple(s.context.value(t) for t in leaf_types(result))
    if values or known.can_fail:
        s.emit(Call(values, known.name, tuple(operands), s.span))
    if isinstance(result, HeldLayout) and result.value is NEVER:
        s.check(s.scalar(False), "RuntimeError", "not reached")
        s.dead = True
        return v.Static(None)
    whole = heaps.take_written(s, source.node, rebuild(result, iter(values)))
    made = cells.take_written(s, source, whole)
    made = exceptions.take_raised(s, made) if catching else made
    returned = s.context.memory.returned.get(key, ReturnedIdentity())
    s.context.identities.from_call(whole, returned, (*given.values(), *caught.values()))
    if source.node in s.context.memory.caches.known:
        s.context.identities.stored(made)  # the next call may return the same object
    return made


def _note_related(s: LoweringState, source: FunctionSource, given: Sequence[v.Abstract]) -> None:
    """Note which arguments of a function may be one object. Where these are more than before, all is lowered again."""
    memory = s.context.memory
    memory.ask_for_related(x for x, _ in s.context.active)
    known = memory.related[source]
    if not (found := s.context.identities.related(given)) <= known:
        memory.related[source] = known | found
        raise Restart


def _prepare(s: LoweringState, value: v.Abstract) -> v.Abstract:
    """An argument in the form in which it crosses a call."""
    return captured(s, stored(s, value))


def _widen(s: LoweringState, source: FunctionSource, given: dict[str, v.Abstract]) -> dict[str, v.Abstract]:
    """Python numbers that change from call to call of a recursive function become run-time values: constants, and
    shared integers (`f(node.left, depth - 1)`), which else cross calls without being passed; also in tuples."""
    before = next((a for x, a in reversed(s.context.active) if x is source), {})
    for name, value in given.items():
        given[name] = _widened(s, (source, name), value, before.get(name, value))
    return given


def _widened(s: LoweringState, place: tuple[Any, Any], value: v.Abstract, before: v.Abstract) -> v.Abstract:
    """An argument, or a part of one. `before`: what it was in the call around this one."""
    if _is_tuple(value) or (_is_tuple(before) and isinstance(value, v.Static)):
        whole, was = expand(s, value), expand(s, before)
        if isinstance(whole, v.Record) and isinstance(was, v.Record) and whole.keys == was.keys:
            parts = zip(whole.keys, whole.items, was.items, strict=True)
            items = tuple(_widened(s, (place, k), x, y) for k, x, y in parts)
            same = all(x is y for x, y in zip(items, whole.items, strict=True))
            return value if same else replace(whole, items=items)
    memory, number = s.context.memory, isinstance(value, v.Static) and type(value.value) in (int, float)
    if place in memory.widened:
        return v.Leaf(s.scalar(value.value)) if isinstance(value, v.Static) and number else value
    if before != value and (number or _is_shared_integer(s, before)):
        memory.widened.add(place)
        raise Restart
    return value


def _is_tuple(value: v.Abstract) -> bool:
    """Is it a tuple that holds values of the program?"""
    return isinstance(value, v.Record) and value.kind in ("tuple", "namedtuple")


def _widen_lists(s: LoweringState, source: FunctionSource, given: dict[str, v.Abstract]) -> dict[str, v.Abstract]:
    """Lists that change their length from call to call of a recursive function (`f(t.left, path + [t])`) become lists
    of any length, and dicts and sets such of any keys."""
    memory = s.context.memory
    before = next((a for x, a in reversed(s.context.active) if x is source), {})
    for name, value in given.items():
        place, old = (source, name), before.get(name)
        if not _is_list(value) or not (place in memory.listed or (_is_list(old) and _differ(old, value))):
            continue
        if source.node.args.kwarg is not None and source.node.args.kwarg.arg == name:
            continue  # what names there are the calls say
        known = memory.listed.get(place)
        try:
            layout = unify(known if known is not None else layout_of(old), layout_of(value))  # type: ignore[arg-type]
        except LayoutConflict:
            continue
        if layout != known:
            memory.listed[place] = layout
            raise Restart
        given[name] = rebuild(layout, iter(convert(s, value, layout)))
    return given


def _join_kinds(s: LoweringState, source: FunctionSource, given: dict[str, v.Abstract]) -> dict[str, v.Abstract]:
    """A parameter that is an array of NumPy in one call and of JAX in another (`f(t.left, jnp.tanh(h))` after
    `f(t, np.zeros(4))`) is taken for NumPy's in all of them, so that they call one function. The next round does so."""
    context, made = s.context, dict(given)
    for name, value in given.items():
        place, kinds = (source, name), passed_kinds(value, context.shared_values)
        if place in context.memory.numpy:
            made[name] = marked(value, True) if kinds else value
        elif len(seen := context.kinds.setdefault((*place, len(kinds)), kinds)) and seen != kinds:
            context.memory.numpy.add(place)
            context.changed = True
    return made


def _is_list(value: v.Abstract | None) -> bool:
    return isinstance(value, v.Listing) or (isinstance(value, v.Record) and value.kind in ("list", "dict", "table"))


def _differ(a: v.Abstract | None, b: v.Abstract) -> bool:
    if isinstance(a, v.Record) and isinstance(b, v.Record) and "table" in (a.kind, b.kind):
        return layout_of(a) != layout_of(b)
    return type(a) is not type(b) or (isinstance(a, v.Record) and isinstance(b, v.Record) and a.keys != b.keys)


def _is_shared_integer(s: LoweringState, value: v.Abstract) -> bool:
    """A shared number of Python's, an integer or a bool."""
    if not isinstance(value, v.Leaf) or value.operand not in s.context.shared_values:
        return False
    return is_python(value.type) and isinstance(value.type, Array) and (value.type.is_integer or value.type.is_bool)


def specialise(
    s: LoweringState,
    key: Any,
    source: FunctionSource,
    layouts: dict[str, Layout],
    captured: dict[str, Layout],
    catching: tuple[type[BaseException], ...],
) -> Specialisation:
    """Lower a function for arguments of these layouts. `catching`: what a `try` around the call catches."""
    context = s.context
    count = sum(k[0] is source for k in context.specialisations)
    if count >= MAX_SPECIALISATIONS:
        words = f"{source.name} is called with more than {MAX_SPECIALISATIONS} different sets of static arguments"
        cure = "pass what changes from call to call as a number, or as a field of the examples"
        raise linked(layouts.values(), UnsupportedError(words, source.span, cure))
    made = context.specialisations[key] = Specialisation(context.unique(source.name))
    context.functions[made.name] = Function(made.name, Region((), (), ()), source.span)
    block = OpenBlock(None, context)
    frame = FunctionFrame(context, source, {}, trying=[catching] if catching else [])
    if catching:
        context.caught.guarded.add(made.name)
    state = LoweringState(frame, block, {}, span=source.span if source.is_shown else s.span)
    parameters: list[Value] = []

    def enter(name: str, layout: Layout) -> v.Abstract:
        values = [context.value(t, name) for t in leaf_types(layout)]
        parameters.extend(values)
        return rebuild(layout, iter(values))

    arguments = {n: enter(n, k) for n, k in layouts.items()}
    frame.enclosing = {n: enter(n, k) for n, k in captured.items()}
    frame.borrowed = [*(x for n, x in arguments.items() if not is_cell(n)), *frame.enclosing.values()]
    given = [*arguments.values(), *frame.enclosing.values()]
    context.identities.relate_given(given, context.memory.related.get(source, ()))
    for name, value in arguments.items():
        state.bind(name, value, source.span)
    context.active.append((source, arguments))
    if len(context.active) == 1:
        context.entry = source
        heaps.enter(state)
    try:
        cells.begin(state, source.node)
        if source is context.entry:
            for name, value in arguments.items():
                if (row := context.rules.brought_in(state, value)) is not value:
                    state.bind(name, row, source.span)
                    frame.borrowed.append(row)
            if context.memory.own_lists and not context.own_lists:
                _own_lists(state, frame, arguments)
        made.result = run(state, source)
    except BaseException:
        del context.functions[made.name], context.specialisations[key]
        raise
    finally:
        context.active.pop()
    _keep_returned(state, key, (*arguments.values(), *frame.borrowed))
    results = _results(state, made, key)
    region = Region(tuple(parameters), tuple(block.body), tuple(results))
    context.functions[made.name] = Function(made.name, region, source.span)
    made.can_fail, made.guessed = bool(block.body), block.guessed
    made.done = True
    return made


def _own_lists(s: LoweringState, frame: FunctionFrame, arguments: dict[str, v.Abstract]) -> None:
    """Put lists of the function in the place of arguments of the entry that are lists of the examples."""
    memory = s.context.memory
    for name, value in arguments.items():
        type = value.type if is_given(value) else None
        if not isinstance(type, List) or not (_is_plain(s, type) or _of_given(s, type)):
            continue
        made = s.call(v.Static(rows_copied if isinstance(type.elem, List) else list), [value])
        site = ("argument", name)
        if site not in memory.sites:
            memory.sites[site] = add_heap(memory.heaps, site, list)
        s.bind(name, s.context.rules.made_by(s, made, site), frame.source.span)
        s.context.own_lists[name] = memory.sites[site]


def _of_given(s: LoweringState, type: List) -> bool:
    """Is it a list of objects that the entry is given?"""
    return isinstance(type.elem, Ref) and heaps.given_heap(s, type.elem) is not None


def _is_plain(s: LoweringState, type: Type) -> bool:
    """Is it a list of numbers, strings, or lists and tuples of these? (Of objects, those that the caller gave would
    have to be in the list that is given back.)"""
    match type:
        case List(elem=elem, store=str(name)):
            return not s.context.schema.list(name).from_array and _is_plain(s, elem)
        case Ref(store=name):
            held = s.context.schema.store(name)
            return all(c.kind == "tuple" for c in held.classes) and all(_is_plain(s, f.type) for f in held.fields)
        case _:
            return isinstance(type, Array | Tag)


def rows_copied(rows: Any) -> Any:
    """As a function of one example."""
    return [list(row) for row in rows]


def _keep_returned(s: LoweringState, key: Any, given: Iterable[v.Abstract]) -> None:
    """Remember what the result of a function may be, and the cells that it gives back. Calls in a recursion were
    lowered for what is known of it before: there is another round where that is less."""
    if RESULT not in s.env:
        return
    known = s.context.memory.returned
    before = known.get(key, ReturnedIdentity())
    whole = cells.with_written(s, s.frame.source.node, s.env[RESULT].value)
    known[key] = before.joined(s.context.identities.returned(whole, given))
    if known[key] != before and key in s.context.recursive:
        s.context.changed = True


def run(state: LoweringState, source: FunctionSource) -> Layout | None:
    """Execute the body; returns the layout of the result, None when no path is known to return."""
    end = ast.copy_location(ast.Return(None), source.body[-1])
    end.implicit = True  # type: ignore[attr-defined]
    try:
        state.context.rules.execute(state, [*source.body, end])
    except UnknownResult:
        state.frame.unknown = True
        return None
    except Ended:
        state.dead = True
    except SourceError as error:
        if not state.defer(error):
            raise
        return None
    if state.dead:
        return None if state.frame.unknown else layout_of(NEVER)
    if not state.is_set(RETURNED) and not state.frame.trying:
        return None
    return layout_of(_outcome(state, source), state.context.shared_values)


def _outcome(state: LoweringState, source: FunctionSource) -> v.Abstract:
    """What the function hands back."""
    result = exceptions.result_of(state)
    result = exceptions.with_raised(state, result) if state.frame.trying else result
    result = captured(state, cells.with_written(state, source.node, result))
    return heaps.with_written(state, source.node, stored(state, result))


def _results(state: LoweringState, made: Specialisation, key: Any) -> list[Any]:
    """The operands that the function returns, in the layout that its callers were promised."""
    memory = state.context.memory
    promised = memory.assumed.get(key)
    if made.result is None:
        return []
    if key in state.context.recursive and (forms := heaps.beside_given(state, made.result)):
        words = f"{state.frame.source.name} returns objects of the examples, or others that it makes of its own results"
        raise NeedsMemory((), UnsupportedError(words, state.frame.source.span), forms=forms)
    if promised is not None and promised != made.result:
        made.result = _join_results(state, key, promised, made.result)
    if promised != made.result:
        memory.assumed[key] = made.result
        if key in state.context.recursive:
            state.context.changed = True
    if state.dead:
        return []
    return convert(state, _outcome(state, state.frame.source), made.result)


def _join_results(state: LoweringState, function: Hashable, a: Layout, b: Layout) -> Layout:
    """What a function returns that returned `a` in the round before, and `b` now."""
    never = layout_of(NEVER)
    if never in (a, b):
        return b if a == never else a
    try:
        return settled(state.context.memory, function, a, unify(a, b))
    except LayoutConflict as conflict:
        words, span = f"{state.frame.source.name} returns different types: {conflict}", state.frame.source.span
        cure = "make all its results of one type, dtype and shape"
        raise type_conflict(conflict, words, span, cure) from None
