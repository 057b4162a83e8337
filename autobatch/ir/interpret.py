"""Runs a per-example module, one example at a time: what the IR means, and the oracle of every pass behind it.

Calls keep activations on an explicit stack: recursion may go 100,000 deep, Python's stack grows with regions alone.

Values, by their type:

    Array   on the host, `[1, *shape]` in NumPy (`ir/host_ops.py`): Python's numbers, with Python's failures;
            once a shared array takes part, a `jax.Array` of shape `shape`: JAX's numbers, which never fail
    Ref     the row in its store, -1 for None
    List    the row in its list store, or a Python list that a `Map` or `pack_list` has made
    Tag     the string or enum member
    Made    `MadeObject`, the row of an object of the examples, -1 for None
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Hashable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple, Protocol, assert_never

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from autobatch.errors import NOWHERE, Error, Failure, Span
from autobatch.ir import host_ops, jax_compat, leaf, strings
from autobatch.ir.core import (
    Apply,
    Array,
    BuiltObject,
    Call,
    For,
    Function,
    If,
    Instruction,
    List,
    Literal,
    Map,
    Module,
    Operand,
    Ref,
    Region,
    Tag,
    Type,
    While,
)
from autobatch.ir.host_ops import host_dtype
from autobatch.ir.ops import INHERENT, Op

# ---- bounds
#
# Is an index in range? What NumPy says where it is not.
#
# >>> words(np.array([1, -4, 7]), axis=0, size=3)
# 'index -4 is out of bounds for axis 0 with size 3'


def outside(index: Any, size: int) -> NDArray[np.bool_]:
    """Where an index leaves an axis of `size` entries. Negative ones count from the end."""
    index = np.asarray(index)
    return np.asarray((index < -size) | (index >= size))


def words(index: Any, axis: int, size: int) -> str:
    """The message for an index, or an array of them, that is out of range; empty where none is."""
    wrong = np.asarray(index)[outside(index, size)].ravel().tolist()
    return f"index {wrong[0]} is out of bounds for axis {axis} with size {size}" if wrong else ""


# ---- memory
#
# How code that runs on the host reads packed examples: the interface between programs and column stores.
#
# References and lists are plain ints (rows of their store, -1 is null); tags are ints of one vocabulary per batch.


class ExampleMemory(Protocol):
    """Packed examples, one cell at a time. The caller has checked for null references and ranges."""

    def load(self, type: Ref, row: int, field: str) -> Any:
        """A field of an object: an int for a reference, list or tag, a NumPy scalar or array for an array. Raises
        AttributeError when the object's class has no such field."""
        ...

    def is_missing(self, type: Ref, row: int, field: str) -> bool:
        """Is this array or tag field None?"""
        ...

    def class_name(self, type: Ref, row: int) -> str:
        """The name of the class of an object (`Class.name` of the schema)."""
        ...

    def length(self, type: List, row: int) -> int: ...

    def item(self, type: List, row: int, index: int) -> Any: ...

    def place(self, space: str, holder: Ref | List, row: int) -> tuple[int, int]:
        """The rows of a store, a list store or the elements of its lists (`#values`) that the example has whose object
        or list `row` is: where they begin and end."""
        ...

    def list_of(self, store: str, element: int) -> int:
        """The list that holds an element, by its place among those of all lists."""
        ...

    def tag_value(self, vocabulary: str, tag: int) -> Any:
        """The string or enum member that a tag stands for."""
        ...

    def tag_of(self, vocabulary: str, value: Any) -> int:
        """The tag of a string or enum member; -1 when no example holds it."""
        ...


class MadeObject(NamedTuple):
    """An object that a program has made: its class and what its columns hold."""

    name: str
    values: tuple[Any, ...]


# ---- numbered rows
#
# Rows of the examples by their numbers among those of one example, as `ir/interpret.py` computes them.


Operation = Callable[..., Sequence[Any]]


def _row(op: Op, operands: Sequence[Any], results: Sequence[Any], memory: ExampleMemory) -> Operation:
    (type,) = operands

    def number(row: int) -> Sequence[Any]:
        if row < 0:
            return [np.array([-1])]
        begin = _begins[type.store] = memory.place(type.store, type, row)[0]
        return [np.array([row - begin])]

    return number


_begins: dict[str, int] = {}
"""Where the rows of the example begin of which a number was taken last, by store: it is the one that is run."""


def _row_of(op: Op, operands: Sequence[Any], results: Sequence[Any], memory: ExampleMemory) -> Operation:
    (result,) = results

    def row(number: Any) -> Sequence[Any]:
        n = int(number[0])
        return [_begins[result.store] + n if n >= 0 else -1]

    return row


def _rows(op: Op, types: Sequence[Any], memory: ExampleMemory, roots: Sequence[int]) -> tuple[int, int]:
    """Where the rows of a space begin and end that belong to the example which is given these objects and lists."""
    pairs = zip(types, roots, strict=True)
    return next((memory.place(op["space"], t, row) for t, row in pairs if row >= 0), (0, 0))


def _rows_of(op: Op, operands: Sequence[Any], results: Sequence[Any], memory: ExampleMemory) -> Operation:
    def count(*roots: int) -> Sequence[Any]:
        begin, end = _rows(op, operands, memory, roots)
        return [np.array([end - begin])]

    return count


def _row_at(op: Op, operands: Sequence[Any], results: Sequence[Any], memory: ExampleMemory) -> Operation:
    (result,) = results

    def row_at(number: Any, *roots: int) -> Sequence[Any]:
        row = _rows(op, operands[1:], memory, roots)[0] + int(number[0])
        return [row if result.store == op["space"] else memory.list_of(result.store, row)]

    return row_at


def _first(op: Op, operands: Sequence[Any], results: Sequence[Any], memory: ExampleMemory) -> Operation:
    (type,) = operands

    def first(row: int) -> Sequence[Any]:
        begin = memory.place(type.store, type, row)[0]
        return [np.array([sum(memory.length(type, k) for k in range(begin, row))])]

    return first


NUMBERED: dict[str, Callable[[Op, Sequence[Any], Sequence[Any], ExampleMemory], Operation]] = {
    "row": _row,
    "row_of": _row_of,
    "rows_of": _rows_of,
    "row_at": _row_at,
    "first": _first,
}
"""By the names of the operations; see `ir/interpret.py`."""


MAX_DEPTH = 1_000_000

Environment = dict[int, Any]


class ExampleFailure(Error):
    """The example fails: `kind` is the name of Python's exception, `span` the place of the instruction."""

    def __init__(self, kind: str, message: str, span: Span = NOWHERE) -> None:
        self.kind, self.message, self.span = kind, message, span
        super().__init__(f"{kind}: {message}")

    def failure(self, index: int) -> Failure:
        """The same as a value, for the example with that index."""
        return Failure(index, self.kind, self.message, self.span)


class _Request(NamedTuple):
    """An activation asks for the results of a call."""

    callee: Function
    args: list[Any]


_Activation = Generator[_Request, list[Any], list[Any]]


def interpret(
    module: Module, shared: Sequence[Any], args: Sequence[Any], memory: ExampleMemory, max_depth: int = MAX_DEPTH
) -> list[Any]:
    """The results of the entry function for one example.

    `shared` and `args` are the values of `Module.shared` and of the entry's parameters: arrays or Python scalars;
    rows for references and lists; for tags their numbers in `memory`, or what they stand for. Results are Python
    scalars for Python numbers, NumPy or JAX arrays, rows, Python lists, and what tags stand for.
    Raises ExampleFailure for the first failure in program order, as Python would raise it.
    """
    machine = _Machine(module, shared, memory)
    entry = module.functions[0]
    values = [_argument(x, p.type, memory) for x, p in zip(args, entry.region.args, strict=True)]
    stack = [machine.activation(entry, values)]
    results: list[Any] | None = None
    while stack:
        try:
            request = next(stack[-1]) if results is None else stack[-1].send(results)
        except StopIteration as done:
            stack.pop()
            results = done.value
        else:
            if len(stack) >= max_depth:
                raise ExampleFailure("RecursionError", "maximum recursion depth exceeded", request.callee.span)
            stack.append(machine.activation(request.callee, request.args))
            results = None
    assert results is not None
    return [_result(x, r.type) for x, r in zip(results, entry.region.results, strict=True)]


class _Machine:
    """A module ready to run. Instructions and literals are prepared once, by identity: the module keeps them alive."""

    def __init__(self, module: Module, shared: Sequence[Any], memory: ExampleMemory) -> None:
        self.module, self.memory = module, memory
        self.functions = {f.name: f for f in module.functions}
        self.shared = {v.id: _shared(x, v.type) for v, x in zip(module.shared, shared, strict=True)}
        self.operations: dict[int, Operation] = {}
        self.literals: dict[int, Any] = {}

    def activation(self, function: Function, args: Sequence[Any]) -> _Activation:
        """One call of a function, up to its results; it stops at every call inside."""
        return self.region(function.region, dict(self.shared), args)

    def region(self, region: Region, env: Environment, args: Sequence[Any]) -> _Activation:
        for parameter, value in zip(region.args, args, strict=True):
            env[parameter.id] = value
        for instruction in region.body:
            if isinstance(instruction, Apply):
                results = self.apply(instruction, env)
            else:
                results = yield from self.control(instruction, env)
            for result, value in zip(instruction.results, results, strict=True):
                env[result.id] = value
        return self.read(region.results, env)

    def control(self, instruction: Instruction, env: Environment) -> _Activation:
        match instruction:
            case Call(callee=callee, operands=operands):
                return (yield _Request(self.functions[callee], self.read(operands, env)))
            case If(condition=condition, then=then, orelse=orelse):
                (holds,) = self.read((condition,), env)
                return (yield from self.region(then if _scalar(holds) else orelse, env, ()))
            case For(count=count, init=init, body=body):
                (turns, *carried) = self.read((count, *init), env)
                for turn in range(int(_scalar(turns))):
                    carried = yield from self.region(body, env, (np.array([turn]), *carried))
                return carried
            case While(init=init, condition=condition_region, body=body):
                carried = self.read(init, env)
                while _scalar((yield from self.region(condition_region, env, carried))[0]):
                    carried = yield from self.region(body, env, carried)
                return carried
            case Map():
                return (yield from self.comprehension(instruction, env))
            case Apply():
                return list(self.apply(instruction, env))
            case _:
                assert_never(instruction)

    def comprehension(self, instruction: Map, env: Environment) -> _Activation:
        found: list[Any] = [[] for _ in instruction.results]
        (turns,) = self.read((instruction.count,), env)
        for turn in range(int(_scalar(turns))):
            yielded = yield from self.region(instruction.body, env, (np.array([turn]),))
            if instruction.filtered and not _scalar(yielded.pop(0)):
                continue
            for elements, value in zip(found, yielded, strict=True):
                elements.append(value)
        return found

    def read(self, operands: Sequence[Operand], env: Environment) -> list[Any]:
        return [self.literal(x) if isinstance(x, Literal) else env[x.id] for x in operands]

    def literal(self, x: Literal) -> Any:
        if id(x) not in self.literals:
            value = self.module.constants[x.constant] if x.constant >= 0 else x.value
            self.literals[id(x)] = _literal(value, x.type)
        return self.literals[id(x)]

    def apply(self, instruction: Apply, env: Environment) -> Sequence[Any]:
        operation = self.operations.get(id(instruction))
        if operation is None:
            operation = self.operations[id(instruction)] = _operation(instruction, self.memory)
        try:
            return operation(*self.read(instruction.operands, env))
        except ExampleFailure as failure:
            raise ExampleFailure(failure.kind, failure.message, instruction.span) from None


# ---- values in and out


def _is_device(value: Any) -> bool:
    return isinstance(value, jax.Array)


def _host(value: Any, type: Array) -> Any:
    """A value on the host, with its axis of rows; typed random keys live on the device."""
    return value if type.dtype.startswith("key") else np.asarray(value, host_dtype(type))[None]


def _device(value: Any, type: Array) -> Any:
    """A host or device value as JAX sees it."""
    if _is_device(value):
        return value
    narrow = value[0].astype(jax_compat.device_dtype(type))
    if type.is_integer and (narrow != value[0]).any():
        raise ExampleFailure("OverflowError", f"an int does not fit into the {narrow.dtype} of the device")
    return narrow


def _shared(value: Any, type: Type) -> Any:
    assert isinstance(type, Array)
    return value if type.dtype.startswith("key") else jnp.asarray(value, jax_compat.device_dtype(type))


def _argument(value: Any, type: Type, memory: ExampleMemory) -> Any:
    return _stored(value, type, memory) if not _is_device(value) else value


def _stored(value: Any, type: Type, memory: ExampleMemory) -> Any:
    """A cell of the memory as a value."""
    match type:
        case Array():
            return _host(value, type)
        case Tag(vocabulary=vocabulary):
            if not isinstance(value, np.integer) and value.__class__ is not int:
                return value
            return memory.tag_value(vocabulary, int(value)) if value >= 0 else None
        case Ref() | BuiltObject():
            return -1 if value is None else int(value)
        case List():
            return value if isinstance(value, list) else -1 if value is None else int(value)
        case _:
            assert_never(type)


def _literal(value: Any, type: Type) -> Any:
    match type:
        case Array():
            return _host(value, type)
        case Tag():
            return value
        case Ref() | List() | BuiltObject():
            return -1
        case _:
            assert_never(type)


def _result(value: Any, type: Type) -> Any:
    match type:
        case Array(weak=weak):
            if _is_device(value):
                return value
            return value[0].item() if type.is_scalar and (weak or type.is_bool) else value[0]
        case List(elem=elem):
            return [_result(x, elem) for x in value] if isinstance(value, list) else value
        case Tag() | Ref() | BuiltObject():
            return value
        case _:
            assert_never(type)


def _scalar(value: Any) -> Any:
    return value if _is_device(value) else value[0]


# ---- numbers


def _number(op: Op, operands: Sequence[Array], results: tuple[Array, ...]) -> Operation:
    """A leaf operation on numbers: Python's where all operands are on the host, otherwise JAX's."""

    def apply(*xs: Any) -> Sequence[Any]:
        if op.name in INHERENT or any(map(_is_device, xs)) or any(r.dtype.startswith("key") for r in results):
            return _on_device(op, results)(*map(_device, xs, operands))
        failed = host_ops.fails(op, *xs)
        if failed is not None and failed.any():
            raise ExampleFailure(*host_ops.failure(op, *(x[0] for x in xs)))
        return host_ops.evaluate(op, results, xs)

    return apply


def _on_device(op: Op, results: tuple[Array, ...]) -> Callable[..., Sequence[Any]]:
    try:
        hash(op)
    except TypeError:  # params that cannot be hashed, such as NumPy arrays
        return _compile(op, results)
    return _compile_once(op, results, jax_compat.settings())


@cache
def _compile_once(op: Op, results: tuple[Array, ...], settings: Hashable) -> Callable[..., Sequence[Any]]:
    return _compile(op, results)


def _compile(op: Op, results: tuple[Array, ...]) -> Callable[..., Sequence[Any]]:
    def run(*xs: Any) -> Sequence[Any]:
        outs = leaf.evaluate(op, results, *xs)
        return [out.astype(jax_compat.device_dtype(t)) for out, t in zip(outs, results, strict=True)]

    return jax.jit(run)


_FOLDS = {
    "sum": Op("add", (), lax.add_p),
    "prod": Op("mul", (), lax.mul_p),
    "max": Op("max", (), lax.max_p),
    "min": Op("min", (), lax.min_p),
    "any": Op("or", (), lax.or_p),
    "all": Op("and", (), lax.and_p),
}
_EMPTY = {"sum": 0, "prod": 1, "any": False, "all": True}


def _reduce(op: Op, elem: Array, result: Array) -> Operation:
    """The fold of a list from its first element."""
    kind, even = op["kind"], ("ties", "even") in op.params
    held = elem if kind in ("max", "min") else result
    if kind in ("max", "min") and not even:
        fold: Operation = partial(_first_extreme, kind)
    else:
        fold = _number(_FOLDS[kind], (held, held), (held,))

    def apply(items: list[Any]) -> Sequence[Any]:
        if not items:
            if kind not in _EMPTY:
                raise ExampleFailure("ValueError", _message(max if kind == "max" else min, ()))
            return [_host(np.full(result.shape, _EMPTY[kind]), result)]
        total, *rest = (_cast(x != 0 if held.is_bool else x, held) for x in items)
        for x in rest:
            (total,) = fold(total, x)
        return [total]

    return apply


def _first_extreme(kind: str, so_far: Any, x: Any) -> Sequence[Any]:
    """`leaf.extreme`, on the host where both are there."""
    if _is_device(so_far) or _is_device(x):
        return [leaf.extreme(kind, False, so_far, x)]
    return [np.where(x > so_far if kind == "max" else x < so_far, x, so_far)]


def _cast(value: Any, type: Array) -> Any:
    return value.astype(jax_compat.device_dtype(type) if _is_device(value) else host_dtype(type))


def _stack(elem: Type, result: Array) -> Operation:
    assert isinstance(elem, Array)

    def apply(items: list[Any]) -> Sequence[Any]:
        if not items:
            return [np.zeros((1, 0, *elem.shape), host_dtype(elem))]
        if any(map(_is_device, items)):
            return [jnp.stack([_device(x, elem) for x in items])]
        return [np.concatenate(items)[None]]

    return apply


def _padded(stack: Operation, result: Array) -> Operation:
    blank = jnp.zeros(result.shape, result.dtype)
    return lambda items: [blank.at[: len(items)].set(_device(stack(items)[0], result))]


def _message(function: Callable[..., Any], *args: Any) -> str:
    """What Python says when `function(*args)` fails."""
    try:
        function(*args)
    except Exception as error:
        return str(error)
    raise AssertionError(f"{function} does not fail")


# ---- structure


def _operation(instruction: Apply, memory: ExampleMemory) -> Operation:
    """The operation of an instruction, as a function from values to values."""
    op = instruction.op
    operands = [x.type for x in instruction.operands]
    results = [r.type for r in instruction.results]
    if not op.is_jax and op.name in _STRUCTURE:
        return _STRUCTURE[op.name](op, operands, results, memory)
    arrays = tuple(t for t in results if isinstance(t, Array))
    return _number(op, [t for t in operands if isinstance(t, Array)], arrays)


def _load(op: Op, operands: Sequence[Any], results: Sequence[Any], memory: ExampleMemory) -> Operation:
    def apply(ref: int) -> Sequence[Any]:
        return [_stored(_field(memory.load, operands[0], ref, op["field"]), results[0], memory)]

    return apply


def _load_is_none(op: Op, operands: Sequence[Any], results: Sequence[Any], memory: ExampleMemory) -> Operation:
    return lambda ref: [np.array([_field(memory.is_missing, operands[0], ref, op["field"])])]


def _field(read: Callable[[Ref, int, str], Any], type: Ref, ref: int, name: str) -> Any:
    if ref < 0:
        raise ExampleFailure("AttributeError", f"'NoneType' object has no attribute '{name}'")
    try:
        return read(type, ref, name)
    except AttributeError as error:
        raise ExampleFailure("AttributeError", str(error)) from None


def _length(op: Op, operands: Sequence[Any], results: Sequence[Any], memory: ExampleMemory) -> Operation:
    return lambda items: [np.array([_size(items, operands[0], memory)])]


def _size(items: Any, type: List, memory: ExampleMemory) -> int:
    if isinstance(items, list):
        return len(items)
    if items < 0:
        raise ExampleFailure("TypeError", _message(len, None))
    return memory.length(type, items)


def _item(op: Op, operands: Sequence[Any], results: Sequence[Any], memory: ExampleMemory) -> Operation:
    def apply(items: Any, index: Any) -> Sequence[Any]:
        if not isinstance(items, list) and items < 0:
            raise ExampleFailure("TypeError", "'NoneType' object is not subscriptable")
        position, size = int(_scalar(index)), _size(items, operands[0], memory)
        if not -size <= position < size:
            raise ExampleFailure("IndexError", "list index out of range")
        position %= size
        if isinstance(items, list):
            return [items[position]]
        return [_stored(memory.item(operands[0], items, position), results[0], memory)]

    return apply


def _is_class(op: Op, operands: Sequence[Any], results: Sequence[Any], memory: ExampleMemory) -> Operation:
    return lambda ref: [np.array([ref >= 0 and memory.class_name(operands[0], ref) in op["names"]])]


def _tag_index(op: Op, operands: Sequence[Any], results: Sequence[Any], memory: ExampleMemory) -> Operation:
    positions = {key: np.array([n]) for n, key in enumerate(op["keys"])}

    def apply(tag: Any) -> Sequence[Any]:
        if (position := positions.get(tag)) is None:
            raise ExampleFailure("KeyError", str(tag))
        return [position]

    return apply


def _check(op: Op, operands: Sequence[Any], results: Sequence[Any], memory: ExampleMemory) -> Operation:
    def apply(condition: Any, *parts: Any) -> Sequence[Any]:
        if _scalar(condition):
            return []
        shown = [_result(x, t) for x, t in zip(parts, operands[1:], strict=True)]
        raise ExampleFailure(op["kind"], op["message"].format(*shown) if shown else op["message"])

    return apply


def _in_range(op: Op, index: Any) -> Sequence[Any]:
    if found := words(index, op["axis"], op["size"]):
        raise ExampleFailure("IndexError", found)
    return []


def _undefined(op: Op, operands: Sequence[Any], results: Sequence[Any], memory: ExampleMemory) -> Operation:
    type = results[0]
    if isinstance(type, Array) and not type.dtype.startswith("key"):
        return lambda: [np.zeros((1, *type.shape), host_dtype(type))]
    if isinstance(type, Array):
        return lambda: _on_device(op, (type,))()
    if isinstance(type, List) and type.store is None:
        return lambda: [[]]
    return lambda: [None if isinstance(type, Tag) else -1]


def _text(op: Op, operands: Sequence[Any], results: Sequence[Any], memory: ExampleMemory) -> Operation:
    def apply(*xs: Any) -> Sequence[Any]:
        try:
            found = strings.call(op["function"], op["args"], [strings.plain(x) for x in xs])
        except strings.FAILURES as error:
            raise ExampleFailure(type(error).__name__, str(error)) from None
        return [found if isinstance(found, str) else np.array([found])]

    return apply


def _same(a: Any, b: Any) -> bool:
    return a is b if isinstance(a, list) or isinstance(b, list) else a == b


_STRUCTURE: dict[str, Callable[[Op, Sequence[Any], Sequence[Any], ExampleMemory], Operation]] = {
    "load": _load,
    "load_is_none": _load_is_none,
    "is_none": lambda op, operands, results, memory: lambda x: [np.array([not isinstance(x, list) and x < 0])],
    "none": lambda op, operands, results, memory: lambda: [-1],
    "is_class": _is_class,
    "same": lambda op, operands, results, memory: lambda a, b: [np.array([_same(a, b)])],
    "length": _length,
    "item": _item,
    "pack_list": lambda op, operands, results, memory: lambda *xs: [list(xs)],
    "flatten": lambda op, operands, results, memory: lambda lists: [[x for items in lists for x in items]],
    **NUMBERED,
    "make": lambda op, operands, results, memory: lambda *xs: [MadeObject(op["of"], xs)],
    "adopt": lambda op, operands, results, memory: lambda ref: [ref],
    "sort_order": lambda op, *_: lambda *keys: [[np.array([k]) for k in strings.order(keys, op["reverse"])]],
    "find": lambda *_: lambda *xs: [np.array([strings.find(xs)])],
    "put": lambda *_: lambda items, index, x: [strings.put(items, index, x)],
    "text": _text,
    "spelt": lambda op, *_: lambda *xs: [np.array(strings.spelt(op["function"], dict(op.params).get("room", 0), xs))],
    "tag": lambda op, operands, results, memory: lambda: [op["value"]],
    "tag_equal": lambda op, operands, results, memory: lambda a, b: [np.array([a == b])],
    "tag_index": _tag_index,
    "word": lambda op, operands, results, memory: lambda tag: [np.array([strings.number(tag)])],
    "word_of": lambda op, operands, results, memory: lambda number: [strings.word(int(number[0]))],
    "check": _check,
    "bounds": lambda op, operands, results, memory: lambda index: _in_range(op, index),
    "undefined": _undefined,
    "reduce": lambda op, operands, results, memory: _reduce(op, operands[0].elem, results[0]),
    "masked": lambda op, operands, *_: lambda *xs: leaf.masked(op["region"], [*map(_device, xs, operands)]),
    "gradient_of": lambda op, operands, *_: lambda *xs: leaf.gradient_of(op, [*map(_device, xs, operands)]),
    "padded": lambda op, operands, results, memory: _padded(_stack(operands[0].elem, results[0]), results[0]),
    "stack": lambda op, operands, results, memory: _stack(operands[0].elem, results[0]),
}
"""Our own operations that are no arithmetic: from the instruction's op and types to a function of values."""


# ---- counted loops
#
# A loop whose number of turns is known, as a scan whose derivative keeps the states of few turns.
#
#     for 10000 turns       for 100 blocks: keep the state;       backward, a block at a time: its 100 turns run again
#                             for 100 turns
#
# The derivative of one scan keeps what every turn computes. Cut into blocks of as many turns as there are blocks, it
# keeps the states between them and what the turns of one block compute, and each turn runs again once. (Chen et al.,
# Training Deep Nets with Sublinear Memory Cost, 2016.)


Step = Callable[[Any, Any], Any]


def counted_loop(step: Step, turns: int, start: Any, keep: int) -> Any:
    """`state = step(turn, state)` for each turn. A derivative keeps what all turns compute where there are at most
    `keep` of them."""
    if turns <= keep:
        return jax.lax.fori_loop(0, turns, step, start)
    length = math.isqrt(turns - 1) + 1
    blocks, rest = divmod(turns, length)

    def block(first: Any, state: Any) -> Any:
        return jax.lax.fori_loop(0, length, lambda k, s: step(first + k, s), state)

    again = jax.checkpoint(block, prevent_cse=False)
    state = jax.lax.fori_loop(0, blocks, lambda b, s: again(b * length, s), start)
    return jax.lax.fori_loop(0, rest, lambda k, s: step(blocks * length + k, s), state) if rest else state
