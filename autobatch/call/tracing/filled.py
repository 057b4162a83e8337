"""Arrays of NumPy that a function fills while it is traced: cells, each a number that is known or a symbol.

    t = np.zeros((3, 3))      Filled of nine zeros
    t[1, 2] = h               a cell is the symbol h: what is read of it is h, and no operation
    t[2] = v                  three cells are the elements of v
    t.sum(axis=0)             rows are put together again: v is one whole row

Views share their cells, as NumPy has it. All else that is done with one is done with the whole array, by JAX.
"""

from __future__ import annotations

import copyreg
import enum
import functools
import operator
import types
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.call.arguments import ArgumentNode, ArgumentSlot, BoundArguments, Raw
from autobatch.call.tracing.log import ExampleNumber
from autobatch.data.walk import attributes_of
from autobatch.ir.core import Input

# ---- copying
#
# An example again, with something else in the place of its numbers: objects keep their identity and their sharing.
#
# Floats, and arrays of floats, are numbers; integers, strings and whatever else decides structure stay as they are.


ATOMS = (str, bytes, int, type(None), enum.Enum, type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType,
         types.MethodType, range, slice, np.random.Generator)  # fmt: skip
"""What is never copied: it holds no numbers, or nobody expects a copy of it."""
PLAIN = frozenset((int, bool, str, bytes, type(None)))
"""Those that most examples are made of: lists of them are copied whole."""


def is_number(value: Any) -> bool:
    """Is it a float or complex number, or an array of such?"""
    if isinstance(value, (float, complex, ExampleNumber)):
        return True
    if isinstance(value, (np.ndarray, np.generic)):
        return value.dtype.kind in "fcV" and value.dtype.names is None
    return isinstance(value, jax.Array)


def rebuilt(value: Any, parts: list[Any]) -> tuple[Any, ...]:
    """A tuple of the kind of another one."""
    make = getattr(value, "_make", tuple)
    made: tuple[Any, ...] = make(parts)
    return made


_FIXED = (tuple, frozenset, type(None))


def _held_by(value: Any) -> tuple[Any, ...]:
    """What a list, dict, set or object holds."""
    if isinstance(value, dict):
        return (*value.keys(), *value.values())
    if isinstance(value, (list, deque, set)):
        return tuple(value)
    return tuple(x for pair in attributes_of(value).items() for x in pair)


def _is_same(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    return len(a) == len(b) and all(map(operator.is_, a, b))


class TraceCopier:
    """Copies objects; `number(value)` is what stands in the place of a number. Arrays keep their identity: one array
    that stands twice is one number."""

    def __init__(self, number: Callable[[Any], Any]) -> None:
        self.number = number
        self._made: dict[int, Any] = {}
        self._alive: list[Any] = []
        self._waiting: list[Callable[[], None]] = []
        self._held: list[tuple[Any, tuple[Any, ...]]] = []

    def copy(self, value: Any) -> Any:
        """The copy of a whole example. Objects that are linked in long chains need no deep recursion."""
        made = self.shell(value)
        while self._waiting:
            self._waiting.pop()()
        return made

    def remember(self) -> None:
        """Note what the copies hold, to see whether that is changed."""
        self._held = [(x, _held_by(x)) for x in self._made.values() if type(x) not in _FIXED]

    def are_changed(self) -> bool:
        """Does one of the copies hold something else than it did?"""
        return any(not _is_same(_held_by(x), held) for x, held in self._held)

    def shell(self, value: Any) -> Any:
        """A copy whose parts may still be missing."""
        kind = type(value)
        if kind in PLAIN:
            return value
        if kind is float:
            return self.number(value)
        if is_number(value):
            return (
                self._once(value, self.number)
                if not isinstance(value, (float, complex, ExampleNumber))
                else self.number(value)
            )
        if isinstance(value, ATOMS):
            return value
        if id(value) in self._made:
            return self._made[id(value)]
        self._alive.append(value)
        if isinstance(value, tuple):
            return self._tuple(value)
        return self._mutable(value)

    def _once(self, value: Any, make: Callable[[Any], Any]) -> Any:
        if id(value) not in self._made:
            self._alive.append(value)
            self._made[id(value)] = make(value)
        return self._made[id(value)]

    def _tuple(self, value: tuple[Any, ...]) -> Any:
        parts = [self.shell(x) for x in value]
        if all(p is x for p, x in zip(parts, value, strict=True)):
            made: Any = value
        else:
            made = rebuilt(value, parts)
        self._made[id(value)] = made
        return made

    def _mutable(self, value: Any) -> Any:
        kind = type(value)
        if kind is list and PLAIN.issuperset(map(type, value)):
            made: Any = value.copy()
            self._made[id(value)] = made
        elif kind is list:
            made = []
            self._later(value, made, lambda: made.extend(map(self.shell, value)))
        elif kind is dict:
            made = {}
            self._later(value, made, lambda: made.update((self.shell(k), self.shell(x)) for k, x in value.items()))
        elif kind is deque:
            made = deque(maxlen=value.maxlen)
            self._later(value, made, lambda: made.extend(map(self.shell, value)))
        elif kind in (set, frozenset) or isinstance(value, (np.ndarray, np.generic)):
            made = value.copy() if isinstance(value, (set, np.ndarray)) else value  # integers, words
            self._made[id(value)] = made
        else:
            made = self._object(value)
        return made

    def _later(self, value: Any, made: Any, fill: Callable[[], None]) -> None:
        self._made[id(value)] = made
        self._waiting.append(fill)

    def _object(self, value: Any) -> Any:
        """An instance of any class, as `copy.copy` takes it apart."""
        kind = type(value)
        reduce = copyreg.dispatch_table.get(kind)
        state = reduce(value) if reduce is not None else value.__reduce_ex__(4)
        if isinstance(state, str):
            self._made[id(value)] = value
            return value
        make, args, *rest = state
        made = make(*(x if isinstance(x, type) else self.copy_now(x) for x in args))
        self._made[id(value)] = made
        attributes, items, pairs = (*rest, None, None, None)[:3]

        def fill() -> None:
            if attributes is not None:
                self._set(made, attributes)
            for x in items or ():
                made.append(self.shell(x))
            for k, x in pairs or ():
                made[self.shell(k)] = self.shell(x)

        self._waiting.append(fill)
        return made

    def copy_now(self, value: Any) -> Any:
        """A copy that is complete, which a constructor may look at."""
        waiting, self._waiting = self._waiting, []
        made = self.copy(value)
        self._waiting = waiting
        return made

    def _set(self, made: Any, attributes: Any) -> None:
        if hasattr(made, "__setstate__"):
            made.__setstate__(self.copy_now(attributes))
            return
        held, slots = attributes if isinstance(attributes, tuple) and len(attributes) == 2 else (attributes, None)
        for name, x in (held or {}).items():
            made.__dict__[name] = self.shell(x)
        for name, x in (slots or {}).items():
            object.__setattr__(made, name, self.shell(x))


class SymbolOperations(Protocol):
    """What does operations on symbols."""

    def call(self, name: str, fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...

    def is_symbol(self, value: Any) -> bool: ...


class Element:
    """A number of an array that is a symbol, read when it is asked for."""

    __slots__ = ("array", "index", "value")

    def __init__(self, array: Any, index: tuple[int, ...]) -> None:
        self.array, self.index, self.value = array, index, None

    def read(self) -> Any:
        if self.value is None:
            self.value = self.array[self.index]
        return self.value


class Filled:
    """An array of NumPy with cells that are symbols."""

    __class__: Any = property(lambda self: np.ndarray)  # what `isinstance` asks for
    __array_priority__ = 2000
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, notes: SymbolOperations, dtype: np.dtype[Any], cells: np.ndarray[Any, Any]) -> None:
        self._notes, self.dtype, self._cells = notes, dtype, cells

    # -- cells

    @property
    def shape(self) -> tuple[int, ...]:
        found: tuple[int, ...] = self._cells.shape
        return found

    @property
    def ndim(self) -> int:
        return self._cells.ndim

    @property
    def size(self) -> int:
        return self._cells.size

    @property
    def T(self) -> Filled:
        return self._of(self._cells.T)

    def _of(self, cells: np.ndarray[Any, Any]) -> Filled:
        return Filled(self._notes, self.dtype, cells)

    def __len__(self) -> int:
        return len(self._cells)

    def __iter__(self) -> Iterator[Any]:
        return (self[k] for k in range(len(self)))

    def __getitem__(self, index: Any) -> Any:
        if self._is_computed(index):
            return self.whole()[index]
        found = self._cells[index]
        if isinstance(found, np.ndarray):
            return self._of(found)
        return found.read() if isinstance(found, Element) else found

    def __setitem__(self, index: Any, value: Any) -> None:
        if self._is_computed(index):
            self[...] = self._notes.call("set", _set, (self.whole(), index, whole(value)), {})
            return
        places = np.arange(self.size).reshape(self.shape)[index]
        values = np.broadcast_to(self._as_cells(value), places.shape)
        for place, x in zip(places.ravel().tolist(), values.ravel(), strict=True):
            self._cells[np.unravel_index(place, self.shape)] = x

    def _is_computed(self, index: Any) -> bool:
        parts = index if isinstance(index, tuple) else (index,)
        return any(map(self._notes.is_symbol, parts))

    def _as_cells(self, value: Any) -> np.ndarray[Any, Any]:
        if isinstance(value, Filled):
            return value._cells.copy()
        if self._notes.is_symbol(value):
            return cells_of(value)
        if isinstance(value, (list, tuple)) and value:
            return np.stack([self._as_cells(x) for x in value])
        return cells_of(np.asarray(value, self.dtype))

    # -- the whole array

    def whole(self) -> Any:
        """A symbol, or an array of NumPy where all cells are known."""
        cells = self._cells
        if not any(isinstance(x, Element) or self._notes.is_symbol(x) for x in cells.flat):
            return cells.astype(self.dtype)
        if (source := _source(cells)) is not None:
            return source
        if self.ndim > 1:
            return self._notes.call("stack", jnp.stack, ([self._of(row).whole() for row in cells],), {})
        return self._notes.call("concatenate", jnp.concatenate, (list(self._runs()),), {})

    def _runs(self) -> Iterator[Any]:
        """The cells of a row: neighbours that are known, neighbours in an array, and single ones."""
        cells, begin = self._cells, 0
        while begin < len(cells):
            end = begin + 1
            while end < len(cells) and self._follows(cells[end - 1], cells[end]):
                end += 1
            first = cells[begin]
            if isinstance(first, Element):
                (k,) = first.index[-1:]
                yield first.array[(*first.index[:-1], slice(k, k + end - begin))]
            elif self._notes.is_symbol(first):
                yield self._notes.call("reshape", jnp.reshape, (first, (1,)), {})
            else:
                yield cells[begin:end].astype(self.dtype)
            begin = end

    def _follows(self, a: Any, b: Any) -> bool:
        if isinstance(a, Element) and isinstance(b, Element):
            return a.array is b.array and b.index == (*a.index[:-1], a.index[-1] + 1)
        return not any(isinstance(x, Element) or self._notes.is_symbol(x) for x in (a, b))

    # -- as NumPy has it

    def copy(self, order: str = "C") -> Filled:
        return self._of(self._cells.copy())

    def fill(self, value: Any) -> None:
        self[...] = value

    def reshape(self, *shape: Any) -> Filled:
        return self._of(self._cells.reshape(*shape))

    def ravel(self, order: str = "C") -> Filled:
        return self._of(self._cells.ravel())

    def tolist(self) -> list[Any]:
        return [x.tolist() if isinstance(x, Filled) else x for x in self]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        held = getattr(self.whole(), name)
        return functools.partial(self._method, held) if callable(held) else held

    def _method(self, held: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return fresh(self._notes, held(*map(whole, args), **{k: whole(x) for k, x in kwargs.items()}))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        held = [whole(x) for x in inputs]
        return fresh(self._notes, getattr(ufunc, method)(*held, **kwargs))

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return fresh(self._notes, function(*map(whole, args), **{k: whole(x) for k, x in kwargs.items()}))

    def __jax_array__(self) -> Any:
        return whole(self)

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return np.asarray(self.whole(), *args)

    def __bool__(self) -> bool:
        return bool(self.whole())

    def __float__(self) -> float:
        return float(self.whole())

    def __repr__(self) -> str:
        return repr(self.whole())


def _set(x: Any, index: Any, value: Any) -> Any:
    return x.at[index].set(value)


def _source(cells: np.ndarray[Any, Any]) -> Any:
    """The array that the cells are all elements of, in their order."""
    first = cells.flat[0]
    if not isinstance(first, Element) or first.array.shape != cells.shape:
        return None
    same = all(isinstance(x, Element) and x.array is first.array and x.index == k for k, x in np.ndenumerate(cells))
    return first.array if same else None


def cells_of(value: Any) -> np.ndarray[Any, Any]:
    """The cells of an array: numbers of NumPy, or elements of a symbol."""
    shape = tuple(value.shape)
    cells = np.empty(shape, object)
    if isinstance(value, np.ndarray):
        for index in np.ndindex(shape):
            cells[index] = value[index]
    elif not shape:
        cells[()] = value
    else:
        for index in np.ndindex(shape):
            cells[index] = Element(value, index)
    return cells


def fresh(notes: SymbolOperations, value: Any) -> Any:
    """A result of NumPy: arrays of floats may be changed in place."""
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(fresh(notes, x) for x in value)
    is_array = isinstance(value, np.ndarray) or notes.is_symbol(value)
    if not is_array or not value.shape or value.dtype.kind not in "fc":
        return value
    return Filled(notes, value.dtype, cells_of(value))


def whole(value: Any) -> Any:
    """A value with its filled arrays as symbols, or arrays of NumPy."""
    if isinstance(value, Filled):
        return value.whole()
    if isinstance(value, (list, tuple)) and any(isinstance(x, (Filled, list, tuple)) for x in value):
        parts = [whole(x) for x in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


# ---- operators


def _binary(function: Callable[[Any, Any], Any], swapped: bool) -> Callable[[Filled, Any], Any]:
    def method(self: Filled, other: Any) -> Any:
        if isinstance(other, (list, tuple)):
            other = self._of(self._as_cells(other))
        a, b = self.whole(), whole(other)
        return fresh(self._notes, function(b, a) if swapped else function(a, b))

    return method


def _in_place(function: Callable[[Any, Any], Any]) -> Callable[[Filled, Any], Filled]:
    def method(self: Filled, other: Any) -> Filled:
        self[...] = function(self, other)
        return self

    return method


def _unary(function: Callable[[Any], Any]) -> Callable[[Filled], Any]:
    return lambda self: fresh(self._notes, function(self.whole()))


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul"):
    _function = getattr(operator, _name)
    setattr(Filled, f"__{_name}__", _binary(_function, False))
    setattr(Filled, f"__r{_name}__", _binary(_function, True))
    setattr(Filled, f"__i{_name}__", _in_place(_function))
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(Filled, f"__{_name}__", _binary(getattr(operator, _name), False))
for _name in ("neg", "pos", "abs"):
    setattr(Filled, f"__{_name}__", _unary(getattr(operator, _name)))


# ---- functions of NumPy

CREATORS = frozenset((
    "zeros", "ones", "empty", "full", "zeros_like", "ones_like", "empty_like", "full_like", "array", "asarray", "copy",
    "arange", "linspace", "eye", "identity", "stack", "concatenate", "vstack", "hstack", "tile", "repeat", "diag",
))  # fmt: skip
"""Functions that make arrays, which a function may fill."""


def called(
    notes: SymbolOperations, name: str, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> Any:
    """A call of a function of NumPy by the user's code."""
    if any(holds(notes, x) for x in (*args, *kwargs.values())):
        if name in ("array", "asarray"):
            return _array(notes, *args, **kwargs)
        same = getattr(jnp, name, None)
        if same is not None:
            given = [_stacked(notes, name, whole(x)) for x in args]
            named = {k: whole(x) for k, x in kwargs.items() if k != "dtype"}
            return fresh(notes, notes.call(f"numpy.{name}", same, tuple(given), named))
    made = function(*args, **kwargs)
    return fresh(notes, made) if name in CREATORS and isinstance(made, np.ndarray) else made


def _array(notes: SymbolOperations, value: Any, dtype: Any = None, copy: bool = True) -> Any:
    """`np.array` of lists with symbols in them."""
    if isinstance(value, Filled):
        return value.copy() if copy else value
    if notes.is_symbol(value):
        return fresh(notes, value)
    kind = np.dtype(float if dtype is None else dtype)
    made = Filled(notes, kind, np.empty(0, object))
    return Filled(notes, kind, made._as_cells(value))


SEQUENCES = frozenset(
    ["stack", "concatenate", "vstack", "hstack", "column_stack", "dstack", "block", "meshgrid", "einsum"]
)
"""Functions that take lists of arrays."""


def _stacked(notes: SymbolOperations, name: str, value: Any) -> Any:
    """A list of numbers with symbols among them as an array, for functions that take arrays."""
    if name in SEQUENCES or not isinstance(value, (list, tuple)) or not holds(notes, value):
        return value
    return whole(_array(notes, value))


def holds(notes: SymbolOperations, value: Any) -> bool:
    """Is a symbol or a filled array in it?"""
    if isinstance(value, (list, tuple)):
        return any(holds(notes, x) for x in value)
    return isinstance(value, Filled) or notes.is_symbol(value)


# ---- filling
#
# The arguments of each example at once, where the shared ones are plain containers of numbers.
#
# ({"w": Input(0), "b": Input(1)}, Slot(0))   ->   [lambda s: {"w": s[0], "b": s[1]}, ...]


Symbols = Sequence[Any]
Maker = Callable[[Symbols], Any]
Filling = Callable[[Symbols, Sequence[Any]], tuple[tuple[Any, ...], dict[str, Any]]]
"""The arguments, by the symbols of shared numbers and by what the batched leaves are."""


def filling(bound: BoundArguments) -> Filling | None:
    """How the arguments of a call are made, whose shared values hold `Input`s for numbers; None of those that hold
    objects, or one container twice, and of batched leaves inside of containers."""
    if any(isinstance(form, ArgumentNode) for form in bound.forms.values()):
        return None
    args, kwargs = bound.rebuild(lambda slot: slot, lambda raw: raw)
    seen = set[int]()
    makers = [_argument(x, seen) for x in (*args, *kwargs.values())]
    if None in makers:
        return None
    known: list[tuple[int, Maker]] = [m for m in makers if m is not None]
    names, count = tuple(kwargs), len(args)

    def fill(symbols: Symbols, leaves: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        made = [leaves[slot] if slot >= 0 else make(symbols) for slot, make in known]
        return tuple(made[:count]), dict(zip(names, made[count:], strict=True))

    return fill


def _argument(part: ArgumentSlot | Raw, seen: set[int]) -> tuple[int, Maker] | None:
    """The batched leaf that an argument is, or -1 and how it is made."""
    if isinstance(part, ArgumentSlot):
        return part.index, _nothing
    made = None if part.static and type(part.value) not in PLAIN else _made(part.value, seen)
    return None if made is None else (-1, made)


def _nothing(symbols: Symbols) -> Any:
    return None


def _made(value: Any, seen: set[int]) -> Maker | None:
    """How a shared value is made of symbols: containers are new ones each time, which the function may change."""
    if isinstance(value, Input):
        index = value.index
        return lambda symbols: symbols[index]
    kind = type(value)
    if kind in PLAIN:
        return lambda symbols: value
    if kind not in (dict, list, tuple) or id(value) in seen:
        return None
    seen.add(id(value))
    parts = list(value.values()) if kind is dict else list(value)
    if kind is dict and all(isinstance(x, Input) for x in parts):
        places = [(k, x.index) for k, x in value.items()]
        return lambda symbols: {k: symbols[index] for k, index in places}
    found = [_made(x, seen) for x in parts]
    makers = [m for m in found if m is not None]
    if len(makers) < len(found):
        return None
    if kind is dict:
        keys = list(value)
        return lambda symbols: {k: make(symbols) for k, make in zip(keys, makers, strict=True)}
    return lambda symbols: kind([make(symbols) for make in makers])
