"""Functions of JAX and of libraries: traced once on abstract values, their equations inlined.

    h = jnp.tanh(x @ w)            %1: float32[4] = dot_general[...](%x, %w)
                             ->    %2: float32[4] = tanh(%1)

Arguments may be any Python objects with values of the program inside, local functions included: those are rebuilt as
Python functions whose free variables are tracers.

Arithmetic that is met again is not traced again: a `Recipe` is the instructions that a traced operator became, which
are written anew for other operands.

    a * 0.5    traced once:  %0 = convert(a); %1 = mul(%0, ?)        c * 0.25     the same instructions, renamed

A function has a few dozen kinds of arithmetic and thousands of places with it. What JAX makes of one depends on the
operator, on the types of the operands, on those that are literals, and on which of them are one value; so that is the
key. Of operators that do the same with each number, literals are told apart by their types alone: they are traced with
a number that is nowhere else (`MARKERS`), whose places in the instructions are those of others. Whatever does not fit
is traced as every other call.
"""

from __future__ import annotations

import ast
import copy
import dataclasses
import functools
import inspect
import operator
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np

from autobatch.errors import SourceError, Span
from autobatch.frontend.library.numpy_arrays import marked, of_call
from autobatch.frontend.lowering.state import Context, LoweringState, enclosing_value, hidden, note, run_over, wrap
from autobatch.frontend.syntax.sources import LIBRARIES, is_user_function
from autobatch.frontend.types import values as v
from autobatch.frontend.types.specialisation import need_of_trace
from autobatch.frontend.types.statics import (
    KEYS,
    STRUCTURE,
    children,
    container_kind,
    is_array,
    is_namedtuple,
    keys_of,
    make_object,
    nodes_of,
    structure_of,
)
from autobatch.frontend.types.unify import refuse_alternatives
from autobatch.frontend.types.values import NotStored, layout_of, name_of_type
from autobatch.ir import jax_compat
from autobatch.ir.core import Apply, Array, Input, Literal, Operand, Ref, Value
from autobatch.ir.ops import Op

# ---- closures
#
# Python objects as JAX gets them: the arrays that they read from free variables are values of the program.
#
#     weights = {"w": w}                                 jax.vmap(cell)(xs) traces a copy of `cell` whose closure holds
#     def cell(x): return x @ weights["w"]       ->      {"w": tracer}, and notes: weights has the key "w", weights["w"]
#     def f(xs): return jax.vmap(cell)(xs)               is the hidden shared value 0
#
# Functions, bound methods, partials, containers and objects of the user are copied so, and those of libraries that JAX
# knows as containers (modules of Equinox and Flax); other library objects are left alone, and so is everything from
# which no array can be reached. All that is read on the way is noted, arrays or not.


Part = tuple[Any, v.FreeOrigin | None]


class ClosureCopier:
    """Copies objects with values of the program inside: `leaf` supplies an argument's leaf, `take` any operand.
    `ordered`: who gets the copies may run over dicts."""

    def __init__(
        self, context: Context, leaf: Callable[[Input], Any], take: Callable[[Operand], Any], ordered: bool = True
    ) -> None:
        self.context, self.leaf, self.take, self.ordered = context, leaf, take, ordered
        self.copies: dict[int, Any] = {}
        self.seen: set[int] = set()

    def copy(self, held: Any, origin: v.FreeOrigin | None) -> Any:
        """The object with values of the program in the place of its arrays; itself if it holds none."""
        if not self.reaches_array(held, origin):
            return held
        return self.made(held, origin)

    def reaches_array(self, held: Any, origin: v.FreeOrigin | None) -> bool:
        """Is there an array of a free variable, or a leaf of an argument? Notes what is read."""
        todo, found = [(held, origin)], False
        while todo:
            item, place = todo.pop()
            if isinstance(item, Input) or (place is not None and _is_numeric(item)):
                found = True
            elif id(item) not in self.seen:
                opened = list(_parts(item, place))
                if opened:
                    self.seen.add(id(item))
                self.note(item, place)
                if self.ordered or isinstance(held, types.FunctionType):
                    run_over(self.context, v.Static(item))
                todo += opened
        return found

    def note(self, held: Any, origin: v.FreeOrigin | None) -> None:
        if origin is None or isinstance(held, types.ModuleType | types.BuiltinFunctionType):
            return
        if container_kind(held) is not None or _is_object(held):
            note(self.context, origin.child(KEYS), keys_of(held))
        elif _is_container(held):
            note(self.context, origin.child(STRUCTURE), structure_of(held))
        else:
            note(self.context, origin, held)

    def made(self, held: Any, origin: v.FreeOrigin | None) -> Any:
        if isinstance(held, Input):
            return self.leaf(held)
        if origin is not None and _is_numeric(held):
            return self.take(hidden(self.context, held, origin))
        if id(held) in self.copies:
            return self.copies[id(held)]
        if isinstance(held, types.FunctionType) and is_user_function(held):
            return self.function(held)
        opened = [self.made(item, place) for item, place in _parts(held, origin)]
        if not opened:
            return held
        self.copies[id(held)] = made = _rebuilt(held, opened)
        return made

    def function(self, function: types.FunctionType) -> types.FunctionType:
        """A function with copies of what its closure, globals and defaults hold. It may refer to itself."""
        cells = tuple(types.CellType() for _ in function.__code__.co_freevars)
        known = dict(function.__globals__)
        made = types.FunctionType(function.__code__, known, function.__name__, function.__defaults__, cells)
        made.__kwdefaults__ = function.__kwdefaults__
        made.__module__ = function.__module__
        self.copies[id(function)] = made
        for name, value, origin in free_values(function, function.__code__):
            copied = self.made(value, origin)
            if name in function.__code__.co_freevars:
                cells[function.__code__.co_freevars.index(name)].cell_contents = copied
            else:
                known[name] = copied
        if function.__defaults__:
            made.__defaults__ = tuple(self.made(x, o) for x, o in _defaults(function))
        return made


def free_values(
    function: types.FunctionType, code: types.CodeType, own: bool = True
) -> Iterator[tuple[str, Any, v.FreeOrigin]]:
    """The free variables that some code of a function reads, with their values; `own`: those of the closure too."""
    if own:
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                yield name, cell.cell_contents, v.FreeOrigin(function, name)
            except ValueError:
                continue  # not set yet
    todo, names = [code], dict[str, None]()
    while todo:
        inner = todo.pop()
        names.update(dict.fromkeys(inner.co_names))
        todo += [c for c in inner.co_consts if isinstance(c, types.CodeType)]
    for name in names:
        if name in function.__globals__:
            yield name, function.__globals__[name], v.FreeOrigin(function, name)


def _defaults(function: types.FunctionType) -> Iterator[Part]:
    for k, value in enumerate(function.__defaults__ or ()):
        yield value, v.FreeOrigin(function, "__defaults__", (("item", k),))


def _parts(held: Any, origin: v.FreeOrigin | None) -> Iterator[Part]:
    """What an object holds, with the way there."""

    def at(*steps: tuple[str, Any]) -> v.FreeOrigin | None:
        return functools.reduce(v.FreeOrigin.child, steps, origin) if origin is not None else None

    match held:
        case types.FunctionType():
            if is_user_function(held):
                yield from ((value, place) for _, value, place in free_values(held, held.__code__))
                yield from _defaults(held)
        case types.MethodType(__func__=function, __self__=receiver):
            yield function, None
            yield receiver, at(("attribute", "__self__"))
        case functools.partial(func=function, args=args, keywords=keywords):
            yield function, at(("attribute", "func"))
            yield args, at(("attribute", "args"))
            yield keywords, at(("attribute", "keywords"))
        case _ if (inner := _wrapped(held)) is not None:
            yield inner, None
        case _ if (kind := container_kind(held)) is not None:
            for key, value in children(held):
                yield value, at(("attribute" if kind == "namedtuple" else "item", key))
        case _ if _is_object(held):
            for key, value in children(held):
                yield value, at(("attribute", key))
        case _ if _is_container(held):
            for number, value in enumerate(nodes_of(held)):
                yield value, at(("node", number))


def _wrapped(held: Any) -> types.FunctionType | None:
    """The user's function behind `jax.jit` or `ab.batched`, which may stand for it where everything is traced."""
    inner = getattr(held, "__autobatch_function__", None)
    if inner is None and type(held).__name__ == "PjitFunction":
        inner = held.__wrapped__
    return inner if isinstance(inner, types.FunctionType) and is_user_function(inner) else None


def _is_object(held: Any) -> bool:
    """An object of a class of the user, or a dataclass that JAX knows as a container (a module of Equinox)."""
    cls = type(held)
    if isinstance(held, type | types.ModuleType) or callable(getattr(held, "__get__", None)):
        return False
    if (cls.__module__ or "").split(".")[0] in _FOREIGN:
        return dataclasses.is_dataclass(held) and not jax.tree_util.all_leaves([held])
    return next(children(held), None) is not None


def _is_container(held: Any) -> bool:
    """An object of a class of a library that JAX knows as a container, such as a module or a variable of Flax."""
    module = (type(held).__module__ or "").split(".")[0]
    return module in LIBRARIES and not isinstance(held, type) and not jax.tree_util.all_leaves([held])


_FOREIGN = LIBRARIES | sys.stdlib_module_names | {"autobatch", "jaxtyping"}


def _rebuilt(held: Any, parts: list[Any]) -> Any:
    """An object of the same kind with other parts, in the order of `_parts`."""
    match held:
        case types.MethodType():
            function, receiver = parts
            return types.MethodType(function, receiver)
        case functools.partial():
            function, args, keywords = parts
            return functools.partial(function, *args, **keywords)
        case _ if _wrapped(held) is not None:
            return parts[0]
    if container_kind(held) is None and not _is_object(held):
        return jax.tree.unflatten(structure_of(held), parts)
    keys = keys_of(held)
    match container_kind(held):
        case "tuple":
            return tuple(parts)
        case "list":
            return parts
        case "dict":
            return dict(zip(keys, parts, strict=True))
        case "namedtuple":
            return type(held)(*parts)
        case _:
            return make_object(type(held), dict(zip(keys, parts, strict=True)))


def _is_numeric(held: Any) -> bool:
    return is_array(held) and not (isinstance(held, np.ndarray) and held.dtype.kind not in "biufcV")


# ---- rebuild
#
# Local functions and lambdas as Python functions again, to hand to JAX: their free variables are tracers.
#
#     k = t.word; jax.vmap(lambda x: x * k + t.label)(xs)
#
# What such a function reads of an object of the examples (`t.label`) is loaded beforehand.


def rebuild_function(
    s: LoweringState, function: v.LocalFunction, python: Callable[[v.Abstract], Any]
) -> Callable[..., Any]:
    """A Python function with the text of a local one; `python` gives what its captured variables are."""
    s.context.traced.add((function.source.span, s.span))
    captured = dict(function.captured or ())
    for name in function.source.free:
        if name not in captured and (found := enclosing_value(s, name)) is not None:
            captured[name] = found
    group = {x.source.node: x for x in captured.values() if isinstance(x, v.LocalFunction) and x.captured is None}
    plain = {n: x for n, x in captured.items() if not (isinstance(x, v.LocalFunction) and x.captured is None)}
    objects = {n: x for n, x in plain.items() if isinstance(x, v.Leaf) and isinstance(x.type, Ref)}
    loads = _Loads(s, objects)
    node = loads.visit(copy.deepcopy(_with_defaults(function)))
    values = {n: python(x) for n, x in plain.items() if n not in objects}
    values |= {n: python(x) for n, x in loads.found.items()}
    values |= {_default(n): python(x) for n, x in function.defaults}
    others = [
        loads.visit(copy.deepcopy(g)) for g in group if isinstance(g, ast.FunctionDef) and g is not function.source.node
    ]
    made = types.FunctionType(_factory(node, others, tuple(values), function.source.file), function.source.globals)
    result: Callable[..., Any] = made(*values.values())
    return result


class _Loads(ast.NodeTransformer):
    """Replaces `t.label`, where t is an object of the examples, by a variable that holds the field."""

    def __init__(self, s: LoweringState, objects: dict[str, v.Leaf]) -> None:
        self.state, self.objects = s, objects
        self.found: dict[str, v.Abstract] = {}

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        names = _chain(node)
        if not names or names[0] not in self.objects:
            return self.generic_visit(node)
        value: v.Abstract = self.objects[names[0]]
        path, rest = names[:1], names[1:]
        while rest and isinstance(value, v.Leaf) and isinstance(value.type, Ref):
            value = self.state.context.rules.attribute(self.state, value, rest[0])
            path, rest = [*path, rest[0]], rest[1:]
        held = "_".join(("_field", *path))
        self.found[held] = value
        result: ast.expr = ast.Name(held, ast.Load())
        for name in rest:
            result = ast.Attribute(result, name, ast.Load())
        return ast.copy_location(result, node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id in self.objects and isinstance(node.ctx, ast.Load):
            self.state.refuse(
                f"{node.id} is an object of the examples and used inside a function that JAX traces",
                f"read what is needed of it before: value = {node.id}.field",
            )
        return node


def _chain(node: ast.expr) -> list[str]:
    """The names of `a.b.c`."""
    match node:
        case ast.Name(id=name):
            return [name]
        case ast.Attribute(value=value, attr=name):
            before = _chain(value)
            return [*before, name] if before else []
        case _:
            return []


def _default(name: str) -> str:
    return f"_default_{name}"


def _factory(node: Any, others: list[ast.stmt], names: tuple[str, ...], file: str) -> types.CodeType:
    """Code of a function that takes the captured variables and returns the local function."""
    body: list[ast.stmt] = list(others)
    if isinstance(node, ast.Lambda):
        body.append(ast.Return(node))
    else:
        body += [node, ast.Return(ast.Name(node.name, ast.Load()))]
    parameters = [ast.arg(n) for n in names]
    arguments = ast.arguments(posonlyargs=[], args=parameters, kwonlyargs=[], kw_defaults=[], defaults=[])
    factory = ast.FunctionDef("factory", arguments, body, [], None, None)
    if "type_params" in ast.FunctionDef._fields:
        factory.type_params = []  # type: ignore[attr-defined]
    tree = ast.fix_missing_locations(ast.Module([factory], []))
    module = compile(tree, file, "exec")
    return next(c for c in module.co_consts if isinstance(c, types.CodeType))


def _with_defaults(function: v.LocalFunction) -> Any:
    """The node with its default values read from the factory's parameters, decorators dropped."""
    node: Any = function.source.node
    known = {n for n, _ in function.defaults}

    def default(parameter: ast.arg, old: Any) -> Any:
        return ast.Name(_default(parameter.arg), ast.Load()) if parameter.arg in known else old

    a = node.args
    named = [*a.posonlyargs, *a.args]
    positional = named[len(named) - len(a.defaults) :]
    arguments = ast.arguments(
        posonlyargs=a.posonlyargs,
        args=a.args,
        vararg=a.vararg,
        kwonlyargs=a.kwonlyargs,
        kw_defaults=[default(p, d) for p, d in zip(a.kwonlyargs, a.kw_defaults, strict=True)],
        kwarg=a.kwarg,
        defaults=[default(p, d) for p, d in zip(positional, a.defaults, strict=True)],
    )
    fields = {f: getattr(node, f) for f in node._fields} | {"args": arguments}
    if isinstance(node, ast.FunctionDef):
        fields["decorator_list"] = []
    return ast.copy_location(type(node)(**fields), node)


Take = Callable[[Operand], Any]


class Untraceable(Exception):
    """JAX cannot trace the call; `error` is what it said."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        super().__init__(str(error))


class _Traced(NamedTuple):
    closed: Any
    shapes: Any


def trace(
    s: LoweringState, fun: Callable[..., Any], args: Sequence[v.Abstract], kwargs: dict[str, v.Abstract]
) -> v.Abstract:
    """The result of `fun(*args, **kwargs)`, traced. Raises Untraceable."""
    operands: list[Operand] = []
    given = to_python(s, v.Static(fun), operands.append)
    _arguments(s, args, kwargs, operands.append, _sorts_keys(given, args))
    used = list(dict.fromkeys(x for x in operands if not _is_scalar_literal(x)))
    try:
        traced = _cached(s, fun, args, kwargs, operands, used)
    except Untraceable:
        known = need_of_trace(s, used, lambda known: _works(s, fun, args, kwargs, used, known))
        if not known:
            raise
        traced = _Traced(*_run(s, fun, args, kwargs, used, known))
        used = [x for x in used if x not in known]
    folder = _Folder(s)
    results = jax_compat.inline(
        traced.closed,
        used,
        lambda type: s.context.value(_plain(type)),
        s.context.constant,
        folder.emit,
        s.span,
    )
    made = from_python(s.context, traced.shapes, iter(folder.held.get(x, x) for x in results))
    return marked(made, of_call(fun, args)) if not kwargs else made


def _note_function(s: LoweringState, given: Any) -> None:
    """A function of the user that is handed to JAX whole: its lines run where the call stands."""
    function = inspect.unwrap(given) if callable(given) else given
    if is_user_function(function) and not function.__module__.startswith("autobatch.frontend."):
        code = function.__code__
        last = max((line for _, _, line in code.co_lines() if line), default=code.co_firstlineno)
        s.context.traced.add((Span(code.co_filename, code.co_firstlineno, 1, last, 1), s.span))


class _Folder:
    """Emits instructions; those whose operands are scalar literals are computed now (`x[0]` has several)."""

    def __init__(self, s: LoweringState) -> None:
        self.state = s
        self.held: dict[Operand, Operand] = {}

    def emit(self, apply: Apply) -> None:
        operands = tuple(self.held.get(x, x) for x in apply.operands)
        if apply.op.name in _FOLDED and all(map(_is_scalar_literal, operands)):
            (result,) = apply.results
            if isinstance(result.type, Array) and result.type.is_scalar:
                if (known := _known(apply.op, operands, result.type)) is not None:
                    self.held[result] = known
                    return
                with jax.ensure_compile_time_eval():
                    (value,) = jax_compat.bind(apply.op, [result.type], *map(_concrete, operands))
                self.held[result] = Literal(np.asarray(value).item(), result.type)
                return
        self.state.emit(replace(apply, operands=operands))


def _known(op: Op, operands: Sequence[Operand], type: Array) -> Literal | None:
    """A Python number in another dtype, without asking XLA, which compiles a program for each."""
    value = operands[0].value if op.name == "convert_element_type" and isinstance(operands[0], Literal) else None
    if not isinstance(value, bool | int | float) or type.dtype.startswith("key<"):
        return None
    dtype = jax_compat.device_dtype(type)
    if type.dtype.startswith("float"):
        with np.errstate(over="ignore"):
            return Literal(np.asarray(value).astype(dtype).item(), type)
    if type.is_integer and isinstance(value, int) and np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
        return Literal(int(value), type)
    return None


_FOLDED = frozenset(
    {"lt", "ge", "add", "sub", "mul", "select_n", "convert_element_type", "broadcast_in_dim", "max", "min"}
)


def _cached(
    s: LoweringState,
    fun: Callable[..., Any],
    args: Sequence[v.Abstract],
    kwargs: dict[str, v.Abstract],
    operands: list[Operand],
    used: list[Operand],
) -> _Traced:
    """Trace, or find the trace of an equal call: same function, layouts, literals, and same operands in same places."""
    memory = s.context.memory
    try:
        layouts = (*(layout_of(a) for a in args), *((k, layout_of(a)) for k, a in sorted(kwargs.items())))
    except NotStored:
        s.refuse("a lazy sequence cannot be handed to this function", "make a list of it first: list(...)")
    positions = {x: k for k, x in enumerate(used)}
    places = tuple((x.type, positions[x]) if x in positions else x for x in operands)
    key = (id(fun), layouts, places, jax_compat.settings())
    if key not in memory.traces:
        memory.alive.append((fun, args, kwargs))
        memory.traces[key] = _Traced(*_run(s, fun, args, kwargs, used, {}))
    result: _Traced = memory.traces[key]
    return result


def _works(
    s: LoweringState,
    fun: Callable[..., Any],
    args: Sequence[v.Abstract],
    kwargs: dict[str, v.Abstract],
    used: Sequence[Operand],
    known: Mapping[Operand, int],
) -> bool:
    """Can the call be traced where some of its operands are known?"""
    try:
        _run(s, fun, args, kwargs, used, known)
    except Untraceable:
        return False
    return True


def _run(
    s: LoweringState,
    fun: Callable[..., Any],
    args: Sequence[v.Abstract],
    kwargs: dict[str, v.Abstract],
    used: Sequence[Operand],
    known: Mapping[Operand, Any],
) -> tuple[Any, Any]:
    """Trace a call on the operands in `used`, but for those that are `known`."""
    rest = [x for x in used if x not in known]

    def run(*tracers: Any) -> Any:
        env = {**known, **dict(zip(rest, tracers, strict=True))}

        def take(x: Operand) -> Any:
            return env[x] if x in env else _concrete(x)

        function = to_python(s, v.Static(fun), take)
        given, named = _arguments(s, args, kwargs, take, _sorts_keys(function, args))
        return function(*given, **named)

    types_ = [x.type for x in rest]
    if not all(isinstance(t, Array) for t in types_):
        given = next(t for t in types_ if not isinstance(t, Array))
        raise Untraceable(TypeError(f"a {name_of_type(given)} of an example was given where an array is needed"))
    try:
        return jax_compat.trace(run, *(t for t in types_ if isinstance(t, Array)))
    except (SourceError, RecursionError):
        raise
    except Exception as error:
        raise Untraceable(error) from error


def _is_scalar_literal(x: Operand) -> bool:
    """A constant number, but for an int that only the host can hold."""
    return isinstance(x, Literal) and x.constant < 0 and not x.is_wide


def _concrete(x: Operand) -> Any:
    assert isinstance(x, Literal) and isinstance(x.type, Array)
    return jax_compat.literal(x.value, x.type)


def _plain(type: Array) -> Array:
    """A comparison of Python numbers is weak in JAX; a bool has one type here."""
    return Array("bool", type.shape) if type.is_bool else type


def _arguments(
    s: LoweringState, args: Sequence[v.Abstract], kwargs: dict[str, v.Abstract], take: Take, sorted_keys: bool
) -> tuple[list[Any], dict[str, Any]]:
    """Arguments as Python objects. `sorted_keys`: JAX sorts the keys of dicts, but not of those that functions read."""

    def made(value: v.Abstract) -> Any:
        return to_python(s, value, take, ordered=not sorted_keys or isinstance(value, v.Method | v.LocalFunction))

    return [made(a) for a in args], {k: made(a) for k, a in kwargs.items()}


def _sorts_keys(function: Any, args: Sequence[v.Abstract]) -> bool:
    """Does JAX take the arguments apart before the function gets them: is it under `jax.jit`, `vmap` or `checkpoint`?
    (`function` is the very object that is called: a copy of what `jax.jit` holds gets the arguments as they are.)"""
    match args:
        case [v.Method(name=v.DEFERRED, receiver=v.Record(items=[v.Static(value=transform), *_])), *_]:
            return transform in (jax.jit, jax.vmap, jax.checkpoint)
    return type(function).__name__ == "PjitFunction"


def to_python(s: LoweringState, value: v.Abstract, take: Take, ordered: bool = True) -> Any:
    """A Python object for an abstract value; `take` supplies what stands at its leaves. `ordered`: who gets it may run
    over dicts."""
    match value:
        case v.Static(value=held):
            _note_function(s, held)
            copier = ClosureCopier(s.context, lambda x: to_python(s, wrap(s.context, x), take), take, ordered)
            return copier.copy(held, value.origin)
        case v.Leaf(operand=operand):
            return take(operand)
        case v.Record(kind, keys, items, cls, treedef):
            if ordered:
                run_over(s.context, value)
            return assemble(kind, keys, [to_python(s, i, take, ordered) for i in items], cls, treedef)
        case v.LocalFunction():
            return rebuild_function(s, value, lambda x: to_python(s, x, take))
        case v.Method(function=function, receiver=receiver):
            inner, first = to_python(s, function, take), to_python(s, receiver, take)
            return inner(*first) if value.name == v.DEFERRED else types.MethodType(inner, first)
        case v.Optional(value=inner):
            s.refuse(
                "a value that may be None is handed to a function that is traced",
                "test it first: `if x is not None: ...`",
            )
        case v.Choice():
            refuse_alternatives(s, value)
        case _:
            s.refuse("this value cannot be handed to a function of JAX or of a library", "pass numbers and arrays")


def assemble(kind: str, keys: tuple[Any, ...], items: list[Any], cls: type | None, treedef: Any) -> Any:
    """A Python container of that kind."""
    match kind:
        case "tuple":
            return tuple(items)
        case "list":
            return list(items)
        case "dict":
            return dict(zip(keys, items, strict=True))
        case "namedtuple":
            assert cls is not None
            return cls(*items)
        case "pytree":
            return jax.tree.unflatten(treedef, items)
        case _:
            assert cls is not None
            if cls is slice:
                return slice(*items)
            return make_object(cls, dict(zip(keys, items, strict=True)))


def from_python(context: Context, shapes: Any, operands: Iterator[Operand]) -> v.Abstract:
    """The abstract value of a traced result: containers with the next operands at the leaves."""

    def many(xs: Any) -> tuple[v.Abstract, ...]:
        return tuple(from_python(context, x, operands) for x in xs)

    if isinstance(shapes, jax.ShapeDtypeStruct):
        return v.Leaf(next(operands))
    if shapes is None:
        return v.Static(None)
    if is_namedtuple(shapes):
        return v.Record("namedtuple", shapes._fields, many(shapes), type(shapes))
    if type(shapes) is tuple or type(shapes) is list:
        return v.Record("tuple" if type(shapes) is tuple else "list", tuple(range(len(shapes))), many(shapes))
    if type(shapes) is dict:
        keys = sorted(shapes)
        items = dict(zip(keys, many([shapes[k] for k in keys]), strict=True))
        return v.Record("dict", tuple(shapes), tuple(items[k] for k in shapes))
    leaves, tree = jax.tree.flatten(shapes)
    return v.Record("pytree", tuple(range(len(leaves))), many(leaves), type(shapes), tree)


# ---- arithmetic that is met again


Number = bool | int | float

MARKERS: tuple[dict[type, Number], ...] = (
    {int: 1234577, float: 0.7390851332151607},
    {int: 7654321, float: 0.5671432904097838},
)
"""Of the first literal of a call and the second."""

LARGEST = 3e38
"""Of a float that float32 holds."""

KNOWN = 4096
"""Recipes that are kept."""

_blind: set[Callable[..., Any]] = {
    *(operator.add, operator.sub, operator.mul, operator.truediv),
    *(operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne),
}
_recipes: dict[Any, Recipe | None] = {}
"""For all functions that this process compiles. None: for that there is no recipe."""


def alike_for_all(function: Callable[..., Any]) -> Callable[..., Any]:
    """Says of a function of numbers that its trace depends on the types of its operands alone, not on literals."""
    _blind.add(function)
    return function


class LiteralHole(NamedTuple):
    """Where the literal of a call stands: as it is written, or `converted` to the dtype."""

    number: int
    type: Array
    converted: bool

    def filled(self, value: Number) -> Literal:
        return Literal(_converted(value, self.type) if self.converted else value, self.type)


class Recipe(NamedTuple):
    """What the trace of an operator became: instructions that read `inputs` and literals of the call (`holes`, by the
    literal that stands for them), and its result."""

    inputs: tuple[Value, ...]
    body: tuple[Apply, ...]
    result: Operand
    holes: tuple[tuple[Literal, LiteralHole], ...] = ()


def trace_numbers(s: LoweringState, function: Callable[..., Any], args: Sequence[v.Abstract]) -> v.Abstract:
    """As `tracing.trace`, for functions of ours and of `operator`, which outlive the lowering. Raises Untraceable."""
    operands = [_operand(a) for a in args]
    if any(x is None for x in operands):
        return trace(s, function, args, {})
    used = list(dict.fromkeys([x for x in operands if isinstance(x, Value)]))
    literals = _literals(operands) if used and function in _blind else None
    if literals is not None:
        key = _key(function, operands, used, by_type=True)
        recipe = _recipes[key] if key in _recipes else _general(s, function, args, operands, key, used)
        if recipe is not None:
            return _written(s, function, args, recipe, used, literals)
    key = _key(function, operands, used)
    if key not in _recipes:
        return _recorded(s, function, args, key, used)
    recipe = _recipes[key]
    return trace(s, function, args, {}) if recipe is None else _written(s, function, args, recipe, used, ())


def _key(function: Callable[..., Any], operands: Sequence[Any], used: Sequence[Value], by_type: bool = False) -> Any:
    return (function, tuple([_form(x, used, by_type) for x in operands]), *jax_compat.settings())


def _written(
    s: LoweringState,
    function: Callable[..., Any],
    args: Sequence[v.Abstract],
    recipe: Recipe,
    used: Sequence[Value],
    literals: Sequence[Number],
) -> v.Abstract:
    """The instructions of a recipe for other operands."""
    env: dict[Operand, Operand] = dict(zip(recipe.inputs, used, strict=True))
    for place, hole in recipe.holes:
        env[place] = hole.filled(literals[hole.number])
    value, span = s.context.value, s.span
    for i in recipe.body:
        results = tuple([value(r.type) for r in i.results])
        s.emit(Apply(results, i.op, tuple([env.get(x, x) for x in i.operands]), span))
        env.update(zip(i.results, results, strict=True))
    return marked(v.Leaf(env.get(recipe.result, recipe.result)), of_call(function, args))


# ---- how they are found


def _recorded(
    s: LoweringState, function: Callable[..., Any], args: Sequence[v.Abstract], key: Any, used: Sequence[Value]
) -> v.Abstract:
    """Trace, and keep what that has emitted, where it is nothing but arithmetic on the operands."""
    before, constants = len(s.block.body), len(s.context.constants)
    result = trace(s, function, args, {})
    _keep(key, _recipe(s, used, result, before, constants))
    return result


def _recipe(s: LoweringState, used: Sequence[Value], result: v.Abstract, before: int, constants: int) -> Recipe | None:
    """What has been emitted since then, where it is nothing but arithmetic on the operands."""
    body = tuple(i for i in s.block.body[before:] if isinstance(i, Apply))
    known = {*used, *(r for i in body for r in i.results)}
    reads = [x for i in body for x in i.operands] + [result.operand if isinstance(result, v.Leaf) else None]
    plain = len(body) == len(s.block.body) - before and len(s.context.constants) == constants
    if not plain or not all(x in known if isinstance(x, Value) else _is_number(x) for x in reads):
        return None
    assert isinstance(result, v.Leaf)
    return Recipe(tuple(used), body, result.operand)


def _general(
    s: LoweringState,
    function: Callable[..., Any],
    args: Sequence[v.Abstract],
    operands: Sequence[Operand | Number | None],
    key: Any,
    used: Sequence[Value],
) -> Recipe | None:
    """The recipe for all literals of these types: that of the markers, and where they have come to stand."""
    markers = [MARKERS[k][type(value)] for k, value in enumerate(_literals(operands) or ())]
    given, left = list(args), list(markers)
    for k, (x, a) in enumerate(zip(operands, args, strict=True)):
        if isinstance(x, Literal):
            given[k] = v.Leaf(Literal(left.pop(0), x.type))
        elif not isinstance(x, Value):
            assert isinstance(a, v.Static)
            given[k] = v.Static(left.pop(0))
    before, constants = len(s.block.body), len(s.context.constants)
    result = trace(s, function, given, {})
    found = _recipe(s, used, result, before, constants)
    del s.block.body[before:]
    if found is not None:
        reads = (*(x for i in found.body for x in i.operands), found.result)
        holes = {x: h for x in reads if isinstance(x, Literal) and (h := _hole(x, markers)) is not None}
        known = {h.number for h in holes.values()} == set(range(len(markers)))
        found = found._replace(holes=tuple(holes.items())) if known else None
    return _keep(key, found)


def _hole(x: Literal, markers: Sequence[Number]) -> LiteralHole | None:
    """Where a literal is a marker, which and how."""
    assert isinstance(x.type, Array)
    for k, marker in enumerate(markers):
        if type(x.value) is type(marker) and x.value == marker:
            return LiteralHole(k, x.type, False)
        if x.type.dtype.startswith("float") and x.value == _converted(marker, x.type):
            return LiteralHole(k, x.type, True)
    return None


def _converted(value: Number, type: Array) -> Any:
    return np.asarray(value).astype(jax_compat.device_dtype(type)).item()


def _keep(key: Any, recipe: Recipe | None) -> Recipe | None:
    if len(_recipes) >= KNOWN:
        _recipes.clear()
    _recipes[key] = recipe
    return recipe


# ---- operands


def _literals(operands: Sequence[Operand | Number | None]) -> list[Number] | None:
    """The literals of a call, where there are some and each is of a kind that has markers."""
    found = [x.value if isinstance(x, Literal) else x for x in operands if not isinstance(x, Value)]
    if not 0 < len(found) <= len(MARKERS):
        return None
    numbers: list[Number] = [x for x in found if type(x) is int or (type(x) is float and abs(x) < LARGEST)]
    return numbers if len(numbers) == len(found) else None


def _operand(x: v.Abstract) -> Operand | Number | None:
    """The number that an argument is; None where it is something else."""
    match x:
        case v.Leaf(operand=Value(type=Array()) as operand):
            return operand
        case v.Leaf(operand=operand) if _is_number(operand):
            return operand
        case v.Static(value=bool() | int() | float() as held) if type(held) in (bool, int, float):
            return held
    return None


def _is_number(x: Any) -> bool:
    """A literal that says all about itself: a Python number that the device can hold."""
    return isinstance(x, Literal) and x.constant < 0 and not x.is_wide


def _form(x: Operand | Number | None, used: Sequence[Value], by_type: bool) -> Any:
    """What a trace depends on: a number, or the type of a value and which of the others it is."""
    match x:
        case Value(type=held):
            return (held, used.index(x))
        case Literal(value=value, type=held):
            return (type(value), None if by_type else repr(value), held)
        case _:
            return (type(x), None if by_type else repr(x))
