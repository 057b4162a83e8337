"""Arrays of NumPy that the function makes, and changes in place: each change is a new array under the same name.

    a = a.copy()
    a[[i, p]] = a[[p, i]]              a = a.at[array([i, p])].set(a[array([p, i])])
    a[r] = a[r] - f * a[i]             a = a.at[r].set(a[r] - f * a[i])

That is what NumPy does only while nothing else holds the array or a view of it (`row = a[0]`, `b = a`). No view is a
value of the program, so it is the text of the function that must show there is none: each assignment of the name makes
an array, and each read of it computes another from it, or takes single numbers. Where it does not show that, the arrays
of this type that something may hold have memory from where they are made (`dynamic_arrays.py`).
"""

from __future__ import annotations

import ast
import builtins
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import jax.numpy as jnp
import numpy as np

from autobatch.frontend.library.numpy_arrays import dynamic_class, is_dynamic, marked
from autobatch.frontend.lowering.attributes import At, updated
from autobatch.frontend.lowering.operators import check_index, indices
from autobatch.frontend.lowering.state import LoweringState, UnseenInTraces
from autobatch.frontend.lowering.tracing import Untraceable, trace
from autobatch.frontend.syntax.sources import FunctionSource, parameters
from autobatch.frontend.types import values as v
from autobatch.frontend.types.values import static_type
from autobatch.ir.core import Apply, Array, Instruction, Operand, Type

_MAKERS = frozenset(
    {
        *("zeros", "ones", "full", "empty", "zeros_like", "ones_like", "full_like", "empty_like", "array"),
        *("arange", "eye", "identity", "copy", "linspace", "outer", "matmul", "dot", "stack", "concatenate"),
        *("where", "cumsum"),
    }
)
"""Functions of NumPy whose result shares no memory with an argument."""

_COMPUTING = _MAKERS | frozenset(
    {
        *("abs", "absolute", "sqrt", "exp", "log", "tanh", "sin", "cos", "sign", "square", "maximum", "minimum"),
        *("isnan", "sum", "prod", "mean", "std", "var", "max", "min", "argmax", "argmin", "argsort", "sort", "any"),
        *("all",),
    }
)
_COPYING = frozenset(("copy", "astype", "flatten", "cumsum", "round", "clip", "repeat"))
"""Methods of arrays whose result shares no memory with the array."""
_NUMBERS = frozenset(("abs", "float", "int", "len", "sum", "max", "min", "round", "bool"))
"""Functions of Python that make numbers of an array of numbers."""

_READING = frozenset(
    {
        *("shape", "size", "ndim", "dtype", "copy", "sum", "max", "min", "mean", "prod", "std", "var", "any"),
        *("all", "argmax", "argmin", "argsort", "dot", "cumsum", "tolist", "item"),
    }
)
"""Attributes of an array that are no view of it."""


def store(s: LoweringState, name: str, old: v.Leaf, index: v.Abstract, value: v.Abstract, of_all: bool = False) -> None:
    """`name[index] = value` of an array. UnsupportedError where it is no array of NumPy that this function alone holds,
    or where no shape is known for what is set. `of_all`: the index is a mask, the value has all it may pick."""
    assert isinstance(old.type, Array)
    if old.numpy is None:
        s.refuse("arrays of JAX are not changed in place", f"write {name} = {name}.at[...].set(...)")
    shared = _Uses(s.frame.source, name, len(old.type.shape)).shared()
    if shared is not None:
        need_memory(s, old)
        where = f" in line {s.frame.source.at(shared).line}" if shared is not s.frame.source.node else ""
        s.refuse(
            f"arrays are not changed in place where something else may hold them, as {name}{where}",
            f"copy the array first, before all branches and loops ({name} = {name}.copy()), and rows where they get "
            f"names (row = {name}[i] * 1); or write {name} = {name}.at[...].set(...)",
        )
    place, given = indices(s, index), _array(s, value)
    if old.type.is_integer and _is_of_floats(given):
        s.refuse(f"floats are cut to integers here, as {name} is an array of integers", "make it one of floats")
    check_index(s, old, place)
    try:
        if is_mask(place, old):
            s.bind(name, marked(trace(s, _set_all if of_all else _set_where, [old, place, given], {}), old.numpy))
            return
        new = trace(s, updated("set"), [v.Record("object", ("array", "index"), (old, place), At), given], {})
    except Untraceable as error:
        s.refuse(f"this item of an array cannot be set: {str(error).splitlines()[0]}", "check index and shape")
    s.bind(name, marked(new, old.numpy))


def need_memory(s: LoweringState, array: v.Abstract) -> None:
    """An array of a fixed shape is changed that something else may hold: let those of its type that something holds
    have memory, wherever the function makes one; of a view, those of the type of the whole."""
    if isinstance(array, v.Leaf) and isinstance(array.type, Array) and array.type.shape and array.numpy:
        types = {replace(t, weak=False) for t in (*s.context.sites.viewed(array), *_whole(s, array))}
        viewed = {(_VIEWED, t) for t in types if _may_have_views(t)}
        s.context.memory.fill({replace(array.type, weak=False), *types, *viewed})


def _whole(s: LoweringState, array: v.Leaf) -> Iterator[Array]:
    """The type of the array that one is a view of, as far as this block says."""
    *parts, whole = _memory_of(s, array.operand)
    if parts and isinstance(whole.type, Array):
        yield whole.type


def note_view(s: LoweringState, value: v.Abstract) -> None:
    """Note which array an array is a view of, if anything may hold that."""
    if not (isinstance(value, v.Leaf) and isinstance(value.type, Array) and value.type.shape and value.numpy):
        return
    for type in _whole(s, value):
        *_, whole = _memory_of(s, value.operand)
        made = _maker(s, whole)
        fresh = isinstance(made, Apply) and made.op.is_jax
        holding = [*s.frame.borrowed, *s.frame.enclosing.values(), *(x.value for x in s.env.values())]
        if not fresh or any(x == whole for value in holding for x in _arrays(value)):
            s.context.sites.view(value, type)


_VIEWED = "arrays of which views are kept"
_MOST_VIEWED = 64
"""Elements of such an array, at most: its value is put together of each."""


def _may_have_views(type: Array) -> bool:
    return math.prod(type.shape) <= _MOST_VIEWED


def has_views(s: LoweringState, type: Array) -> bool:
    """Are views kept of arrays of this type, so that each of their elements has a place of its own?"""
    return (_VIEWED, replace(type, weak=False)) in s.context.memory.filled


def is_made_in_memory(s: LoweringState, value: v.Abstract, site: object) -> bool:
    """Has an expression made an array of a type that has memory, and which something may hold?"""
    if not isinstance(site, ast.Call | ast.BinOp | ast.UnaryOp) or not s.context.memory.filled:
        return False
    type: Type | None = None
    if isinstance(value, v.Static) and isinstance(value.value, np.ndarray):
        type = static_type(value.value)
    elif isinstance(value, v.Leaf) and value.numpy:
        type = value.type
    if not isinstance(type, Array) or replace(type, weak=False) not in s.context.memory.filled:
        return False
    if site in _operands(s.frame.source.node):
        return False
    made = _maker(s, value.operand) if isinstance(value, v.Leaf) else None
    return made is None or (isinstance(made, Apply) and made.op.is_jax and not _is_view(made))


def _is_view(made: Instruction | None) -> bool:
    """Has an operation an array whose memory its result shares in NumPy?"""
    if not isinstance(made, Apply) or made.op.name not in _VIEWS or not made.operands:
        return False
    return isinstance(type := made.operands[0].type, Array) and type.shape != ()


def check_kept(s: LoweringState, value: v.Abstract, site: object) -> None:
    """Refuse a part of an array in memory that gets a name or a place, where it would be a view in NumPy, and here is
    a copy: the array may be changed while something holds the part."""
    if not isinstance(site, ast.Subscript | ast.Attribute | ast.Call):
        return
    whole = s.context.sites.whole(value)
    is_part = is_dynamic(whole) and whole is not value
    if not (_is_view_of_memory(s, value) if isinstance(site, ast.Call) else is_part):
        return
    if isinstance(value, v.Leaf) and isinstance(value.type, Array) and not value.type.shape:
        return
    source = s.frame.source
    base = None if isinstance(site, ast.Call) else site.value
    uses = _Uses(source, base.id if isinstance(base, ast.Name) else "", 0)
    keeping: ast.AST = site
    while not isinstance(keeping, ast.stmt):
        parent = uses.parents[keeping]
        if keeping in _operands(source.node) or (isinstance(parent, ast.Call) and not _keeps(parent)):
            return
        keeping = parent
    to_item = isinstance(keeping, ast.Assign) and all(isinstance(t, ast.Subscript) for t in keeping.targets)
    if isinstance(keeping, ast.Return) or to_item:
        return
    cls = dynamic_class(whole)
    type = Array(str(cls.dtype), cls.element_shape) if cls is not None and cls.rank == 0 else None
    if type in s.context.memory.filled and type is not None and _may_have_views(type):
        s.context.memory.fill({(_VIEWED, type)})
    given = {x.id for n in ast.walk(source.node) if isinstance(n, ast.Call) for x in n.args if isinstance(x, ast.Name)}
    if uses.name and uses.name not in given and uses.is_given_up(keeping):
        return
    s.refuse(
        "a part of an array that is changed in place is kept here, and would not change with it",
        f"copy it: {ast.unparse(site)}.copy()",
    )


def _is_view_of_memory(s: LoweringState, value: v.Abstract) -> bool:
    """Would a value share its memory, in NumPy, with an array of a type that has memory, which has been read here?"""
    if not isinstance(value, v.Leaf):
        return False
    types = {replace(t, weak=False) for t in _whole(s, value)}
    *_, whole = _memory_of(s, value.operand)
    return not types.isdisjoint(s.context.memory.filled) and _is_stored(s, whole)


def _keeps(call: ast.Call) -> bool:
    """May what a call is given be held behind it?"""
    kept = ("append", "add", "insert", "appendleft", "extend", "setdefault", "update")
    return isinstance(call.func, ast.Attribute) and call.func.attr in kept


@lru_cache(maxsize=1024)
def _operands(function: ast.AST) -> frozenset[ast.AST]:
    """The expressions of a function of whose values something else is computed at once."""
    found: set[ast.AST] = set()
    for n in ast.walk(function):
        match n:
            case ast.BinOp() | ast.UnaryOp() | ast.Compare() | ast.Subscript() | ast.Attribute() | ast.For():
                found.update(ast.iter_child_nodes(n))
            case ast.AugAssign(value=x) | ast.comprehension(iter=x):
                found.add(x)
            case ast.Call(func=ast.Name(id=name), args=args) if name in _NUMBERS:
                found.update(args)
            case ast.Call(func=ast.Attribute(attr=attr), args=args) if attr in _COMPUTING:
                found.update(args)
    return frozenset(found)


def is_mask(place: v.Abstract, old: v.Abstract) -> bool:
    """Is it an array of bools for an array of that shape, or for its first axes?"""
    if not (isinstance(place, v.Leaf) and isinstance(place.type, Array) and isinstance(old, v.Leaf)):
        return False
    shape = place.type.shape
    return place.type.is_bool and shape != () and isinstance(old.type, Array) and old.type.shape[: len(shape)] == shape


def _set_where(array: Any, mask: Any, value: Any) -> Any:
    """`array[mask] = value` of one value for all: how many there are is data."""
    if jnp.ndim(value) > jnp.ndim(array) - jnp.ndim(mask):
        raise TypeError("as many numbers as a mask picks are data; set one, or write where(mask, values, array)")
    return _set_all(array, mask, value)


def picked(s: LoweringState, old: v.Leaf, mask: v.Abstract) -> v.Abstract:
    """An array with ones where a mask picks nothing: what is computed of these has a derivative, which nobody reads."""
    return marked(trace(s, lambda array, mask: _set_all(array, ~mask, 1), [old, mask], {}), old.numpy)


def _set_all(array: Any, mask: Any, value: Any) -> Any:
    return jnp.where(mask.reshape(mask.shape + (1,) * (array.ndim - mask.ndim)), value, array).astype(array.dtype)


_VIEWS = frozenset(
    {
        *("broadcast_in_dim", "dynamic_slice", "expand_dims", "gather", "reshape", "rev", "slice", "squeeze"),
        *("take_row", "transpose"),
    }
)
"""Operations whose results share memory with their operands in NumPy."""


def check_augmented(s: LoweringState, target: ast.expr, old: v.Abstract) -> None:
    """`a += x`, which NumPy does in place, of an array that nothing else holds: no argument, no view, no other name."""
    if not (isinstance(old, v.Leaf) and old.numpy is not None and isinstance(old.type, Array) and old.type.shape):
        return
    name = target.id if isinstance(target, ast.Name) else ""
    others = [x.value for n, x in s.env.items() if n != name and isinstance(x, v.BoundVariable)]
    holding = [*s.frame.borrowed, *s.frame.enclosing.values(), *others]
    *_, first = memory = list(_memory_of(s, old.operand))
    seen = not {x for value in holding for x in _arrays(value)}.isdisjoint(memory)
    seen = seen or s.context.identities.may_be_held(old, holding) or bool(s.context.sites.viewed(old))
    if name and not seen and not _is_stored(s, first) and not _is_given(s, name, first):
        return
    s.context.memory.asks_numpy = True
    if old.numpy:
        need_memory(s, old)
        raise UnseenInTraces(
            f"arrays of NumPy are not changed in place where something else may hold them, as {ast.unparse(target)}",
            s.span,
            "write x = x + ... in place of x += ..., which makes a new array",
        )


def _arrays(value: v.Abstract) -> Iterator[Operand]:
    match value:
        case v.Leaf(operand=operand):
            yield operand
        case v.Optional(value=inner):
            yield from _arrays(inner)
        case v.Record(items=items):
            for x in items:
                yield from _arrays(x)
        case _:
            pass


def _memory_of(s: LoweringState, x: Operand) -> Iterator[Operand]:
    """An array, that of which it is a view, and so on."""
    while True:
        yield x
        made = _maker(s, x)
        if not _is_view(made):
            return
        assert isinstance(made, Apply)
        x = made.operands[0]


def _maker(s: LoweringState, x: Operand) -> Instruction | None:
    return next((i for block in s.block.chain() for i in reversed(block.body) if x in i.results), None)


def _is_stored(s: LoweringState, x: Operand) -> bool:
    """Is it read of a list or an object?"""
    made = _maker(s, x)
    return isinstance(made, Apply) and not made.op.is_jax


def _is_given(s: LoweringState, name: str, x: Operand) -> bool:
    """Is it what a loop carries for an argument that has got no other value?"""
    node = s.frame.source.node
    if _maker(s, x) is not None or name not in parameters(node):
        return False
    bound = [t.id for n in ast.walk(node) if not isinstance(n, ast.AugAssign) for t, _ in _bindings(n)]
    return name not in bound


def _array(s: LoweringState, value: v.Abstract) -> v.Abstract:
    """A list of numbers that is set, as an array."""
    if isinstance(value, v.Record) and value.kind in ("list", "tuple"):
        return trace(s, jnp.array, [value], {})
    return value


def _is_of_floats(value: v.Abstract) -> bool:
    if isinstance(value, v.Static):
        return isinstance(value.value, (float, np.floating))
    type = value.type if isinstance(value, v.Leaf) else None
    return isinstance(type, Array) and not (type.is_integer or type.is_bool)


class _Uses:
    """How a function uses a variable that holds an array with so many axes."""

    def __init__(self, source: FunctionSource, name: str, rank: int) -> None:
        self.source, self.name, self.rank = source, name, rank
        self.parents = {c: n for n in ast.walk(source.node) for c in ast.iter_child_nodes(n)}

    def shared(self) -> ast.AST | None:
        """Where something else may come to hold the array, or a view of it; None if nowhere."""
        source, name = self.source, self.name
        if name not in source.locals or (name in parameters(source.node) and not self.is_made_first()):
            return source.node
        fresh = {t for n in ast.walk(source.node) for t, x in _bindings(n) if self.makes(x)}
        for n in ast.walk(source.node):
            if isinstance(n, ast.Global | ast.Nonlocal) and name in n.names:
                return n
            if not isinstance(n, ast.Name) or n.id != name:
                continue
            if self.is_inside(n) or not (n in fresh if isinstance(n.ctx, ast.Store) else self.reads(n)):
                return n
        return None

    def is_made_first(self) -> bool:
        """Is the variable, which is a parameter, assigned before all branches and loops, and before it is changed?"""
        body = self.source.node.body if isinstance(self.source.node, ast.FunctionDef) else []
        made = [n for n in body if any(t.id == self.name for t, _ in _bindings(n)) and not isinstance(n, ast.AugAssign)]
        stored = [n for n in body if any(self.is_store(x) for x in ast.walk(n))]
        return bool(made and stored) and body.index(made[0]) < body.index(stored[0])

    def ahead(self, block: Sequence[ast.stmt]) -> bool | None:
        """Is the array that the variable holds changed in what runs next? False: it is assigned before; None: neither.
        What may be jumped over counts for nothing."""
        for n in block:
            if any(t.id == self.name for t, _ in _bindings(n)) and not isinstance(n, ast.AugAssign):
                return False
            inner = [self.ahead(b) for b in _blocks(n)]
            if True in inner or (not inner and any(self.is_change(x) for x in ast.walk(n))):
                return True
            if isinstance(n, ast.If) and inner == [False, False]:
                return False
            if any(isinstance(x, ast.Break | ast.Continue) for x in ast.walk(n)):
                return True if any(self.is_change(x) for x in ast.walk(self.source.node)) else None
        return None

    def is_given_up(self, statement: ast.AST) -> bool:
        """Is the array that a statement gives another name to not changed under this one any more? It is assigned
        again before that is, in the turns of loops too."""
        while statement is not self.source.node:
            parent = self.parents[statement]
            if isinstance(parent, ast.Try):  # what raises may go on anywhere
                return False
            for block in _blocks(parent):
                if statement in block:
                    found = self.ahead(block[block.index(statement) + 1 :])
                    if found is None and isinstance(parent, ast.For | ast.While):
                        found = True if self.ahead(parent.body) is True else None
                    if found is not None:
                        return not found
            statement = parent
        return True

    def is_change(self, n: ast.AST) -> bool:
        """Is it a change of the array in place?"""
        return self.is_store(n) or (
            isinstance(n, ast.AugAssign) and isinstance(n.target, ast.Name) and n.target.id == self.name
        )

    def is_store(self, n: ast.AST) -> bool:
        return (
            isinstance(n, ast.Subscript)
            and isinstance(n.ctx, ast.Store)
            and isinstance(n.value, ast.Name)
            and n.value.id == self.name
        )

    def is_inside(self, n: ast.AST) -> bool:
        """Is it in a function inside this one, or in a generator, which may run at any time?"""
        while n is not self.source.node:
            n = self.parents[n]
            if isinstance(n, ast.FunctionDef | ast.ClassDef) and n is not self.source.node:
                return True
            if isinstance(n, ast.GeneratorExp) and not isinstance(self.parents[n], ast.Call):
                return True
        return False

    def makes(self, x: ast.expr) -> bool:
        match x:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=module), attr=attr)) if self.is_module(module):
                return attr in _COMPUTING and _is_plain(x)
            case ast.Call(func=ast.Attribute(attr=attr)) if attr in _COPYING:
                return _is_plain(x)
            case _:
                return isinstance(x, ast.BinOp)

    def is_module(self, name: str) -> bool:
        held: Any = self.source.globals.get(name)
        return name not in self.source.locals and (held is np or held is jnp)

    def reads(self, n: ast.Name) -> bool:
        """Is what is read at a name, or at an item of it, no view that anything keeps?"""
        parent = self.parents[n]
        match parent:
            case ast.Attribute(attr=attr):
                return attr in _READING
            case ast.Subscript(value=value) if value is n:
                return not isinstance(parent.ctx, ast.Load) or self.is_copy(parent) or self.is_used(parent)
            case ast.comprehension(iter=x) if x is n:
                return self.rank == 1
            case _:
                return self.is_used(n)

    def is_copy(self, read: ast.Subscript) -> bool:
        """Are these single numbers, or items that are picked, which NumPy copies?"""
        parts = read.slice.elts if isinstance(read.slice, ast.Tuple) else [read.slice]
        if any(isinstance(p, ast.Slice | ast.Starred | ast.Constant) and not _is_integer(p) for p in parts):
            return False
        return len(parts) == self.rank or any(isinstance(p, ast.List) for p in parts)

    def is_used(self, n: ast.expr) -> bool:
        """Is a new array, or a number, computed of it, or does the function end with it?"""
        parent = self.parents[n]
        match parent:
            case ast.BinOp() | ast.UnaryOp() | ast.Compare() | ast.Return():
                return True
            case ast.Tuple() | ast.List() | ast.Dict():
                return self.is_returned(parent)
            case ast.AugAssign(target=target):
                return target is n or self.rank == 1 or (self.rank == 2 and _is_row(n))
            case ast.Assign(targets=[ast.Name()]):
                return self.is_given_up(parent)
            case ast.Assign(targets=[target]):
                return self.is_store(target)
            case ast.Subscript(slice=place):
                return place is n
            case ast.Call(func=ast.Name(id=called)):
                known = called in _NUMBERS and hasattr(builtins, called)
                return known and called not in self.source.locals and called not in self.source.globals
            case ast.Call(func=ast.Attribute(value=ast.Name(id=module), attr=attr)):
                return self.is_module(module) and attr in _COMPUTING and _is_plain(parent)
            case _:
                return False

    def is_returned(self, n: ast.AST) -> bool:
        parent = self.parents[n]
        return isinstance(parent, ast.Return) or (
            isinstance(parent, ast.Tuple | ast.List | ast.Dict) and self.is_returned(parent)
        )


def _bindings(statement: ast.AST) -> Iterator[tuple[ast.Name, ast.expr]]:
    """The variables that an assignment binds, each with what it is bound to."""
    match statement:
        case (
            ast.Assign(targets=[ast.Name() as target], value=value)
            | ast.AnnAssign(target=ast.Name() as target, value=ast.expr() as value)
        ):
            yield target, value
        case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)) if len(targets) == len(values):
            yield from ((t, x) for t, x in zip(targets, values, strict=True) if isinstance(t, ast.Name))
        case ast.AugAssign(target=ast.Name() as target):
            yield target, ast.BinOp(target, statement.op, statement.value)


def _blocks(n: ast.AST) -> list[list[ast.stmt]]:
    """The statements inside of one."""
    return [b for f in ("body", "orelse", "finalbody") if (b := getattr(n, f, None)) and isinstance(b, list)] + [
        h.body for h in getattr(n, "handlers", ())
    ]


def _is_plain(call: ast.expr) -> bool:
    """Does a call of NumPy say nothing of where its result lies?"""
    return not isinstance(call, ast.Call) or all(k.arg not in ("copy", "out", None) for k in call.keywords)


def _is_row(n: ast.expr) -> bool:
    """Is it a row of a matrix, whose items are numbers?"""
    return isinstance(n, ast.Subscript) and not any(isinstance(x, ast.Slice) for x in ast.walk(n.slice))


def _is_integer(part: ast.expr) -> bool:
    return isinstance(part, ast.Constant) and type(part.value) is int
