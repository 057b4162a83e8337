"""Shared arguments: their arrays and numbers become inputs of the program, all the rest a key.

{"W": array, "act": tanh, "n": 3}   ->   {"W": Input(0), "act": tanh, "n": Input(1)}    leaves [array, 3]

A Python integer that the program has to know (`static` names it) stays, and its value is a part of the key.
"""

from __future__ import annotations

import enum
import functools
import sys
import types
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from autobatch.backends.cuda.arrays import DeviceArray
from autobatch.call import transfer
from autobatch.call.arguments import Raw, describe, is_array, one_level, order_of
from autobatch.call.batches.groups import Group
from autobatch.call.batches.packing import pack_fresh
from autobatch.common.cache import Bounded
from autobatch.data.columns import columns_of
from autobatch.data.schema import SharedColumns
from autobatch.data.snapshot import Snapshot
from autobatch.errors import BatchError, Error
from autobatch.ir import jax_compat
from autobatch.ir.constants import ConstantKey
from autobatch.ir.template import Input, Integers, is_numpy
from autobatch.ir.types import BOOL, Array, List, Ref

PLAIN = (
    str,
    bytes,
    type(None),
    enum.Enum,
    type,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.ModuleType,
)
"""What is static whatever it holds."""


COLUMNS = "columns of "
"""What stands before the name of an argument that is packed into columns."""


def has_columns(value: Any) -> bool:
    """Can a shared value be packed into columns: is it an object of a class of the user's, or a list of such?"""
    if isinstance(value, (*PLAIN, dict, tuple, int, float, complex, types.MethodType)) or is_array(value):
        return False
    if not isinstance(value, list) and not _attributes(value):
        return False
    try:
        held = pack_fresh([value])
    except Error:
        return False
    return isinstance(held.schema.root, Ref | List)


class ByIdentity:
    """A static object that is compared by what it is. The key keeps it alive, so its identity is never reused."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByIdentity) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)

    def __repr__(self) -> str:
        return getattr(self.value, "__qualname__", f"a {type(self.value).__name__}")


@dataclass(frozen=True)
class PackedArgument:
    """A shared argument that is columns."""

    name: str
    group: Group
    columns: SharedColumns


@dataclass
class Sharing:
    """Collects the run-time leaves of shared values: `leaves`, their `types` and `names`, in the order of
    `Input.index`. `static`: names of integers that are no leaves, and, behind `COLUMNS`, of arguments that are packed
    into columns, which are leaves: those are in `packed`, and inputs as batched ones are, too, from number `first`;
    `kept`: those of calls before. `dicts`: by name, as the compiler gets them; leaves and keys have no trace of the
    order of a dict's keys, so that one program is found for all."""

    function: str
    static: frozenset[str] = frozenset()
    first: int = 0
    kept: Bounded[int, tuple[Snapshot, Group]] | None = None
    packed: list[PackedArgument] = field(default_factory=list)
    leaves: list[Any] = field(default_factory=list)
    types: list[Array] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    keys: list[Any] = field(default_factory=list)
    dicts: dict[str, dict[Any, Any]] = field(default_factory=dict)
    _seen: dict[int, tuple[Any, Any]] = field(default_factory=dict)
    _noted: list[tuple[str, dict[Any, Any]]] = field(default_factory=list)
    _inside: dict[int, list[tuple[str, dict[Any, Any]]]] = field(default_factory=dict)
    _alive: list[Any] = field(default_factory=list)

    @property
    def integers(self) -> Integers:
        """The leaves that are integers and bools of Python or NumPy, and those of JAX, whose values are not known."""
        integers = ((k, x) for k, x in enumerate(self.leaves) if isinstance(x, (int, np.integer, np.bool_)))
        known = {k: x if isinstance(x, int) else x.item() for k, x in integers}
        small = (k for k, t in enumerate(self.types) if t.is_scalar and (t.is_integer or t.is_bool))
        names = {k: self.names[k] for k in known}
        return Integers(known, {k: self.names[k] for k in small if k not in known}, names)

    @property
    def numpy(self) -> tuple[bool, ...]:
        """Which of the leaves are arrays of NumPy: no part of the key, as few programs ask for it."""
        return tuple(map(is_numpy, self.leaves))

    def raw(self, form: Raw) -> Any:
        """The shared value with `Input` leaves; its static part goes into `keys`."""
        if form.static:
            made, key = form.value, _static_key(form.value, form.name, self.function)
        elif COLUMNS + form.name in self.static:
            made, key = self.columns(form.value, form.name)
        else:
            made, key = self.share(form.value, form.name)
        self.keys.append(key)
        return made

    def columns(self, value: Any, name: str) -> tuple[Input, Any]:
        """Objects that all examples share as columns, each a leaf, among which numbers may choose."""
        held, number, first = self._packed(value), len(self.packed), len(self.leaves)
        if (inputs := held.shared.get(transfer.x64())) is None:
            inputs = held.shared[transfer.x64()] = _inputs(held)
        for column, array, type in inputs:
            self.leaves.append(array)
            self.types.append(type)
            self.names.append(f"{column} of {name}")
        columns = SharedColumns(number, held.schema, first, tuple(column for column, *_ in inputs))
        self.packed.append(PackedArgument(name, held, columns))
        return Input(self.first + number, columns.root), ("columns", held.schema)

    def _packed(self, value: Any) -> Group:
        """The columns of an object; those of a call before, while it holds what it held then."""
        known = None if self.kept is None else self.kept.get(id(value))
        if known is not None and known[0].holds():
            return known[1]
        made = Group(pack_fresh([value]))
        if self.kept is not None and (snapshot := Snapshot.of(value)) is not None:
            self.kept.put(id(value), (snapshot, made))
        return made

    def share(self, value: Any, name: str) -> tuple[Any, Any]:
        """The value with `Input` leaves in the place of its arrays and numbers, and a key of the rest."""
        if isinstance(value, PLAIN):
            return value, ConstantKey(value)
        if isinstance(value, int):
            # Python's own, of the width that the program's have; a subclass may mean more than its value
            run_time = type(value) in (int, bool) and name not in self.static and _fits(value)
            return self.leaf(value, name) if run_time else (value, ConstantKey(value))
        if isinstance(value, (np.integer, np.bool_)) and name in self.static:
            return value, ConstantKey(value)
        if is_array(value) or isinstance(value, (float, complex)):
            return self.leaf(value, name)
        if id(value) in self._seen:
            for place, held in self._inside.get(id(value), ()):
                self._note(held, name + place)
            return self._seen[id(value)]
        self._alive.append(value)
        before = len(self._noted)
        result = self._seen[id(value)] = self._opened(value, name)
        self._inside[id(value)] = [(n.removeprefix(name), held) for n, held in self._noted[before:]]
        return result

    def _opened(self, value: Any, name: str) -> tuple[Any, Any]:
        """`share` of a value that is met for the first time."""
        result: tuple[Any, Any]
        children, key, rebuild = one_level(value)
        if children is not None:
            parts = [self.share(child, name + place) for place, child in children]
            made = rebuild([p for p, _ in parts])
            # a container without run-time leaves is the user's own object: `is` keeps its meaning
            made = value if all(p is c for (p, _), (_, c) in zip(parts, children, strict=True)) else made
            result = made, (key, *self._note(made, name), *(k for _, k in parts))
        elif isinstance(value, types.MethodType):
            receiver, inner = self.share(value.__self__, f"{name}.__self__")
            same = receiver is value.__self__
            result = value if same else types.MethodType(value.__func__, receiver), ("method", value.__func__, inner)
        elif isinstance(value, (set, frozenset)):
            result = value, ConstantKey(value)
        elif attributes := _attributes(value):
            result = self.instance(value, attributes, name)
        else:
            result = value, ByIdentity(value)
        return result

    def _note(self, made: Any, name: str) -> tuple[Any, ...]:
        """Note a dict by its name; where another has that name too (keys that look alike), its order is a key."""
        if type(made) is not dict:
            return ()
        self._noted.append((name, made))
        return () if self.dicts.setdefault(name, made) is made else order_of(made)

    def instance(self, value: Any, attributes: dict[str, Any], name: str) -> tuple[Any, Any]:
        """A plain object: its attributes are shared one by one, in a copy made without calling `__init__`."""
        made = object.__new__(type(value))
        self._seen[id(value)] = made, ("again", len(self._seen))
        parts = {attribute: self.share(item, f"{name}.{attribute}") for attribute, item in attributes.items()}
        key = ("object", type(value), *((attribute, k) for attribute, (_, k) in parts.items()))
        if all(part is attributes[attribute] for attribute, (part, _) in parts.items()):
            return value, key
        for attribute, (part, _) in parts.items():
            object.__setattr__(made, attribute, part)
        return made, key

    def leaf(self, value: Any, name: str) -> tuple[Input, Any]:
        if isinstance(value, np.ndarray) and value.dtype.kind not in "biufcV":
            raise BatchError(f"{self.function}: a shared array of dtype {value.dtype} has no numbers in it")
        type = (
            BOOL
            if isinstance(value, bool)
            else jax_compat.type_of(jax.typeof(value.like if isinstance(value, DeviceArray) else value))
        )
        self.leaves.append(value)
        self.types.append(type)
        self.names.append(name)
        return Input(len(self.leaves) - 1, type, shared=True, numpy=is_numpy(value)), "array"


def _inputs(held: Group) -> list[tuple[str, np.ndarray[Any, Any], Array]]:
    """The columns of a group by name, with the types of inputs: with as many rows as a power of two, so that few
    programs are made of objects that grow."""
    types = {c.name: c.type for c in columns_of(held.schema)}
    made = []
    for name in sorted(held.columns.arrays):
        array, of = held.column(name), types.get(name)
        is_row = array.dtype.kind == "i" and not isinstance(of, Array)  # of another column, as a Python int
        dtype = jax.dtypes.canonicalize_dtype(int) if is_row else array.dtype
        padded = np.zeros((1 << max(len(array) - 1, 0).bit_length(), *array.shape[1:]), dtype)
        padded[: len(array)] = array
        weak = is_row or (isinstance(of, Array) and of.weak)
        made.append((name, padded, jax_compat.type_of(jax.ShapeDtypeStruct(padded.shape, dtype, weak_type=weak))))
    return made


def _fits(value: int) -> bool:
    """Is it an integer that the program can hold?"""
    limits = np.iinfo(np.int64 if transfer.x64() else np.int32)
    return bool(limits.min <= value <= limits.max)


def _static_key(value: Any, name: str, function: str) -> Any:
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(value)):
        raise BatchError(
            f"{function}: {name} is named in static, but JAX traces it here, so its value is not known; close over a "
            f"Python value, or name {name} in static_argnames of jax.jit too"
        )
    try:
        hash(value)  # a list has a key, but none that stays
        return ("static", ConstantKey(value))
    except TypeError:
        raise BatchError(
            f"{function}: {name} is named in static, so its value must be hashable; {describe(value)} is not"
        ) from None


def _attributes(value: Any) -> dict[str, Any] | None:
    """The attributes of an instance of a class of the user; None for objects of the standard library and of C code,
    and for callables that only wrap a function."""
    cls = type(value)
    root = cls.__module__.split(".")[0]
    if root in sys.stdlib_module_names or isinstance(value, functools.partial) or hasattr(value, "__wrapped__"):
        return None
    found = dict(getattr(value, "__dict__", {}))
    for base in cls.__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                found[name] = getattr(value, name)
    return found or None
