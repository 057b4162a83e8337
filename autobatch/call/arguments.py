"""The arguments of one call: which parts are batched, which are shared, and how the compiler sees them.

    @batched(in_axes=(None, 0))            p: Raw({"W": array})      shared: its arrays become inputs of the program
    def f(p, t): ...                ->     t: Slot(0)                batched: component 0 of every example
    f({"W": w}, [tree, tree])

`bind` reads the axes and finds the slots. `share` turns a shared value into the same object with `Input` leaves where
its arrays and floats are, a list of those, and a hashable key of all the rest.
"""

from __future__ import annotations

import copy
import enum
import functools
import inspect
import sys
import types
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar, assert_never

import jax
import numpy as np

from autobatch.backends.cuda.device import DeviceArray
from autobatch.call import packed
from autobatch.call.batch import Batch, pack_fresh
from autobatch.call.packed import Group
from autobatch.common.cache import Bounded
from autobatch.data.columns import SharedColumns, columns_of
from autobatch.data.leaves import Category, category, is_library_object
from autobatch.data.ragged import Ragged
from autobatch.data.walk import Snapshot
from autobatch.errors import BatchError, Error
from autobatch.frontend.memory.heap import OBJECTS
from autobatch.ir import jax_compat
from autobatch.ir.core import BOOL, Array, Input, Integers, List, Ref, is_numpy
from autobatch.ir.ops import ConstantKey, constant_key

Axes = Any
"""None, an int, or a tuple, dict or other container of them that is a prefix of the argument."""


class stacked:
    """Marks lists as containers: `f(p, stacked([X, Y]))` is one batch whose examples are `[X[i], Y[i]]`.

    Without it a list is always a list of examples. A pytree of one child.

    >>> stacked([1, 2]).value
    [1, 2]
    """

    def __init__(self, value: Any) -> None:
        self.value = value


jax.tree_util.register_pytree_node(stacked, lambda s: ((s.value,), None), lambda _, xs: stacked(*xs))


@dataclass(frozen=True)
class ArgumentSlot:
    """A batched leaf of an argument: `values` holds one value an example. `name` is how an error names it."""

    index: int
    name: str
    kind: Literal["list", "array", "batch"]
    values: Any
    axis: int = 0

    def __len__(self) -> int:
        return int(self.values.shape[self.axis]) if self.kind == "array" else len(self.values)

    @property
    def is_traced(self) -> bool:
        """Is it an array under a transformation of JAX?"""
        return isinstance(self.values, jax.core.Tracer)

    def leading(self) -> Any:
        """An array with its examples on axis 0."""
        if self.axis == 0:
            return self.values
        if isinstance(self.values, DeviceArray):
            return self.values.with_axis(self.axis, 0)
        return (
            np.moveaxis(self.values, self.axis, 0)
            if isinstance(self.values, np.ndarray)
            else jax.numpy.moveaxis(self.values, self.axis, 0)
        )


@dataclass(frozen=True)
class Raw:
    """A shared value, as the caller gave it. `static`: no part of it is a run-time value."""

    value: Any
    name: str
    static: bool = False


@dataclass(frozen=True)
class ArgumentNode:
    """A container with batched leaves: `rebuild` makes it again from new children, `key` tells containers apart. A dict
    has a `name`, and the `order` of its keys, which is not in `key`."""

    children: tuple[Form, ...]
    rebuild: Callable[[Sequence[Any]], Any]
    key: Any
    name: str = ""
    order: Order | None = None


Form = ArgumentSlot | Raw | ArgumentNode


def fill(form: Form, slot: Callable[[ArgumentSlot], Any], raw: Callable[[Raw], Any]) -> Any:
    """The argument again, with other values in the place of its slots and shared parts."""
    match form:
        case ArgumentSlot():
            return slot(form)
        case Raw():
            return raw(form)
        case ArgumentNode(children=children, rebuild=rebuild):
            return rebuild([fill(c, slot, raw) for c in children])
        case _:
            assert_never(form)


Part = TypeVar("Part", Raw, ArgumentSlot)


def parts(form: Form, kind: type[Part]) -> Iterator[Part]:
    """The shared (`Raw`) or the batched (`ArgumentSlot`) parts of an argument."""
    if isinstance(form, kind):
        yield form
    elif isinstance(form, ArgumentNode):
        for child in form.children:
            yield from parts(child, kind)


def orders(form: Form) -> Iterator[tuple[str, Order]]:
    """The order of the keys of each dict that has batched leaves."""
    if isinstance(form, ArgumentNode):
        if form.order is not None:
            yield form.name, form.order
        for child in form.children:
            yield from orders(child)


def form_key(form: Form) -> Any:
    """The container structure of an argument, hashable; what its shared parts hold is not in it."""
    match form:
        case ArgumentSlot(kind=kind):
            return "array" if kind == "array" else "examples"
        case Raw():
            return "shared"
        case ArgumentNode(children=children, key=key):
            return (key, *map(form_key, children))
        case _:
            assert_never(form)


@dataclass(frozen=True)
class BoundArguments:
    """The arguments of a call by parameter. `size` is the number of examples."""

    signature: inspect.Signature
    forms: Mapping[str, Form]
    slots: tuple[ArgumentSlot, ...]
    size: int

    def rebuild(
        self, slot: Callable[[ArgumentSlot], Any], raw: Callable[[Raw], Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional and keyword arguments, as the function takes them."""
        made = {name: fill(form, slot, raw) for name, form in self.forms.items()}
        bound = inspect.BoundArguments(self.signature, OrderedDict(made))
        return bound.args, dict(bound.kwargs)

    @property
    def shared(self) -> list[Raw]:
        """The shared parts."""
        return [raw for form in self.forms.values() for raw in parts(form, Raw)]

    @property
    def orders(self) -> dict[str, Order]:
        """The order of the keys of each dict that has batched leaves, by its name."""
        return {name: order for form in self.forms.values() for name, order in orders(form)}

    @property
    def key(self) -> Any:
        """The containers of all arguments, hashable; the order of the keys of dicts is not in it."""
        return tuple((name, form_key(form)) for name, form in self.forms.items())

    def with_slots(self, make: Callable[[ArgumentSlot], ArgumentSlot]) -> BoundArguments:
        """The same call on other examples; `make` is called once for each slot."""
        made = {s.index: make(s) for s in self.slots}
        slots = tuple(made[s.index] for s in self.slots)

        def replaced(form: Form) -> Form:
            match form:
                case ArgumentSlot(index=index):
                    return made[index]
                case Raw():
                    return form
                case ArgumentNode(children=children):
                    return replace(form, children=tuple(map(replaced, children)))
                case _:
                    assert_never(form)

        forms = {name: replaced(form) for name, form in self.forms.items()}
        return BoundArguments(self.signature, forms, slots, len(slots[0]))

    @property
    def objects(self) -> list[Any]:
        """The lists of objects that are given to the entry beside its arguments (`changes.py`)."""
        return [s.values for s in self.slots if s.name.startswith(OBJECTS)]

    def with_own(self) -> BoundArguments | None:
        """The same call, in which each example is given the containers and objects that all share; None where it has
        none."""
        slots = list(self.slots)

        def given(form: Form) -> Form:
            match form:
                case Raw(value=value, name=name, static=False) if _is_structure(value):
                    slots.append(ArgumentSlot(len(slots), name, "list", [value] * self.size))
                    return slots[-1]
                case ArgumentNode(children=children):
                    return replace(form, children=tuple(map(given, children)))
                case _:
                    return form

        forms = {name: given(form) for name, form in self.forms.items()}
        if len(slots) == len(self.slots):
            return None
        return BoundArguments(self.signature, forms, tuple(slots), self.size)

    def example(self, index: int, copied: bool = False) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of one example; `copied`: which may be changed."""

        def row(slot: ArgumentSlot) -> Any:
            found = slot.leading()[index] if slot.kind == "array" else slot.values[index]
            return copy.deepcopy(found) if copied else found

        return self.rebuild(row, lambda raw: raw.value)


def _is_structure(value: Any) -> bool:
    """Is it a container, or an object that can be packed, and no library's?"""
    return category(type(value)) is Category.OBJECT and not is_library_object(value) and not callable(value)


# ---- axes


@dataclass(frozen=True)
class AxisEntries:
    """`in_axes`, by parameter. `receiver` is the name of `self`, which is shared and has no entry."""

    axes: Mapping[str, Axes]
    default: Axes
    has_default: bool
    receiver: str | None

    def of(self, name: str, function: str) -> Axes:
        if name == self.receiver:
            return None
        if name in self.axes:
            return self.axes[name]
        if self.has_default:
            return self.default
        raise BatchError(f"{function}: in_axes has no entry for {name!r}: leave it at its default, or give it an entry")


def read_axes(in_axes: Any, signature: inspect.Signature, function: str, is_method: bool) -> AxisEntries:
    """Normalise `in_axes`; raises BatchError for axes that do not fit the parameters, or where nothing is batched."""
    parameters = list(signature.parameters.values())
    receiver = parameters.pop(0).name if is_method and parameters else None
    if in_axes is None or _is_axis(in_axes):
        if in_axes is None:
            raise BatchError(f"{function}: in_axes=None batches nothing; give at least one parameter an axis")
        return AxisEntries({}, in_axes, True, receiver)
    if isinstance(in_axes, Mapping):
        entries = _named_axes(in_axes, parameters, function)
    elif isinstance(in_axes, Sequence) and not isinstance(in_axes, str):
        entries = _positional_axes(in_axes, parameters, function)
    else:
        raise BatchError(
            f"{function}: in_axes is {in_axes!r}; it takes an int, None, a sequence with an entry for "
            "each positional parameter, or a dict by parameter name"
        )
    if not any(isinstance(leaf, int) for entry in entries.values() for leaf in _axis_leaves(entry, function)):
        raise BatchError(f"{function}: in_axes={in_axes!r} batches nothing; give at least one parameter an axis")
    return AxisEntries(entries, None, False, receiver)


def _is_axis(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _axis_leaves(entry: Axes, function: str) -> list[int | None]:
    leaves = jax.tree.leaves(entry, is_leaf=lambda x: x is None)
    for leaf in leaves:
        if leaf is not None and not _is_axis(leaf):
            raise BatchError(f"{function}: in_axes holds {leaf!r}; an entry is an int, None, or a container of them")
    return leaves


def _named_axes(in_axes: Mapping[str, Axes], parameters: list[inspect.Parameter], function: str) -> dict[str, Axes]:
    names = {p.name for p in parameters}
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    for name in in_axes:
        if name not in names and not takes_any:
            raise BatchError(f"{function}: in_axes names {name!r}; the parameters are {', '.join(sorted(names))}")
    return dict(in_axes)


def _positional_axes(in_axes: Sequence[Axes], parameters: list[inspect.Parameter], function: str) -> dict[str, Axes]:
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL)]
    if len(in_axes) > len(positional):
        names = ", ".join(p.name for p in positional) or "none"
        raise BatchError(
            f"{function}: in_axes has {len(in_axes)} entries for {len(positional)} positional parameters "
            f"({names}); name keyword-only parameters with a dict"
        )
    entries = {p.name: entry for p, entry in zip(positional, in_axes, strict=False)}
    if positional and positional[-1].kind is inspect.Parameter.VAR_POSITIONAL and in_axes:
        entries[positional[-1].name] = in_axes[-1]
    return entries


# ---- binding


def positions_of(signature: inspect.Signature) -> tuple[str, ...]:
    """The names of the parameters where each takes one argument by its position: as many arguments are bound without
    asking the signature, which takes long. Nothing for other parameters."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(signature.parameters) if all(p.kind in kinds for p in signature.parameters.values()) else ()


def bind(
    function: str,
    signature: inspect.Signature,
    entries: AxisEntries,
    static: frozenset[str],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    positions: tuple[str, ...] = (),
) -> BoundArguments:
    """Sort the arguments of a call into batched and shared; raises BatchError where sizes differ or one example was
    given, and TypeError like any call whose arguments do not fit the parameters. `positions`: see `positions_of`."""
    given: Mapping[str, Any]
    if not kwargs and args and len(args) == len(positions):
        given = dict(zip(positions, args, strict=True))
    else:
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"{function}(): {error}; its parameters are {signature}") from None
    binder = _ArgumentBinder(function)
    forms = {n: binder.parameter(signature.parameters[n], v, entries, static) for n, v in given.items()}
    if not binder.slots:
        raise BatchError(
            f"{function}: no argument of this call is batched; in_axes gives an axis to none of "
            f"{', '.join(given) or 'them'}"
        )
    sizes = {s.name: len(s) for s in binder.slots}
    if len(set(sizes.values())) > 1:
        words = ", ".join(f"{name} has {size}" for name, size in sizes.items())
        raise BatchError(f"{function}: batched arguments differ in their number of examples: {words}")
    return BoundArguments(signature, forms, tuple(binder.slots), len(binder.slots[0]))


@dataclass
class _ArgumentBinder:
    function: str
    slots: list[ArgumentSlot] = field(default_factory=list)

    def parameter(self, parameter: inspect.Parameter, value: Any, entries: AxisEntries, static: frozenset[str]) -> Form:
        name = parameter.name
        if parameter.kind is parameter.VAR_KEYWORD:
            # the dict of in_axes names either the parameter or the keywords themselves
            whole = entries.axes.get(name, _MISSING)
            refused = [k for k in value if k not in entries.axes and whole is _MISSING]
            if refused:
                raise BatchError(
                    f"{self.function}: keyword arguments {', '.join(refused)} go to **{name}, which is "
                    "refused unless in_axes is a dict that names them"
                )
            parts = {k: self.value(v, entries.axes.get(k, whole), k, k in static) for k, v in value.items()}
            return ArgumentNode(tuple(parts.values()), lambda xs: dict(zip(parts, xs, strict=True)), ("kwargs", *parts))
        entry = entries.of(name, self.function)
        if parameter.kind is parameter.VAR_POSITIONAL:
            items = [self.value(v, entry, f"{name}[{k}]", name in static) for k, v in enumerate(value)]
            return ArgumentNode(tuple(items), tuple, ("args", len(items)))
        return self.value(value, entry, name, name in static)

    def value(self, value: Any, entry: Axes, name: str, static: bool) -> Form:
        if static and entry is not None:
            raise BatchError(f"{self.function}: {name} is named in static, and in_axes batches it; it can be one only")
        if entry is None:
            if isinstance(value, Batch):
                raise BatchError(f"{self.function}: {name} is a Batch, but in_axes shares it; give it the axis 0")
            return Raw(value, name, static)
        if _is_axis(entry):
            return self.batched(value, int(entry), name)
        return self.prefix(value, entry, name)

    def prefix(self, value: Any, entry: Axes, name: str) -> Form:
        """An argument whose parts have axes of their own."""
        inner = entry.value if isinstance(entry, stacked) else entry
        value = value.value if isinstance(value, stacked) else value
        axes, axes_key, _ = one_level(inner)
        children = one_level(value) if not isinstance(value, Batch) else None
        if children is None or axes is None or children[0] is None or children[1] != axes_key:
            raise BatchError(
                f"{self.function}: in_axes for {name} is {entry!r}, which is not a prefix of what was "
                f"given: {describe(value)}"
            )
        parts = [self.value(v, e, f"{name}{k}", False) for (k, v), (_, e) in zip(children[0], axes, strict=True)]
        return _branch(value, name, parts, children[2], children[1])

    def batched(self, value: Any, axis: int, name: str, lists: bool = False) -> Form:
        """An argument of B examples, or a container of such. `lists`: a list is a container."""
        if isinstance(value, stacked):
            return self.batched(value.value, axis, name, lists=True)
        if isinstance(value, Ragged):
            value = value.to_list()
        if isinstance(value, Batch) or (isinstance(value, list) and not lists):
            if axis != 0:
                raise BatchError(
                    f"{self.function}: in_axes gives {name} the axis {axis}; a "
                    f"{'Batch' if isinstance(value, Batch) else 'list of examples'} has the axis 0 only"
                )
            return self.slot(name, "batch" if isinstance(value, Batch) else "list", value)
        if is_array(value):
            if isinstance(value, np.ndarray) and value.dtype.kind not in "biufcV":
                raise BatchError(
                    f"{self.function}: {name} is an array of dtype {value.dtype}, which holds no numbers; pass a list"
                )
            if not -value.ndim <= axis < value.ndim:
                raise BatchError(
                    f"{self.function}: in_axes gives {name} the axis {axis}, but it has the shape "
                    f"{tuple(value.shape)}; {_ONE}"
                )
            return self.slot(name, "array", value, axis % value.ndim)
        if value is None and "[" in name:
            return Raw(None, name, True)
        children, key, rebuild = one_level(value)
        if children is None:
            raise BatchError(
                f"{self.function}: {name}: one example was given ({describe(value)}); "
                f"pass `[{name}]`, or call `f.example(...)`"
            )
        parts = [self.batched(v, axis, f"{name}{k}", lists) for k, v in children]
        return _branch(value, name, parts, rebuild, key)

    def slot(self, name: str, kind: Literal["list", "array", "batch"], value: Any, axis: int = 0) -> ArgumentSlot:
        made = ArgumentSlot(len(self.slots), name, kind, value, axis)
        self.slots.append(made)
        return made


def _branch(
    value: Any, name: str, parts: Sequence[Form], rebuild: Callable[[Sequence[Any]], Any], key: Any
) -> ArgumentNode:
    return ArgumentNode(tuple(parts), rebuild, key, name, order_of(value) if type(value) is dict else None)


_MISSING = object()
_ONE = "one example was given? pass `[x]`, or call `f.example(x)`"


def is_array(value: Any) -> bool:
    return isinstance(value, (np.ndarray, np.generic, jax.Array, jax.core.Tracer, DeviceArray))


def describe(value: Any) -> str:
    if is_array(value):
        return f"an array of shape {tuple(value.shape)}"
    name = type(value).__name__
    return f"an {name}" if name[0] in "AEIOUaeiou" else f"a {name}"


def is_leaf(treedef: Any) -> bool:
    """Is this the structure of something that is no container?"""
    return same_structure(treedef, jax.tree.structure(0))


def same_structure(a: Any, b: Any) -> bool:
    """Are two structures of pytrees equal?"""
    return bool(a == b)


def canonical(table: Mapping[Any, Any]) -> tuple[Any, ...]:
    """The keys of a dict in an order that they alone decide: sorted, as JAX hands dicts back; by type first where they
    cannot be compared, which JAX refuses.

    >>> canonical({"b": 1, "a": 2}), canonical({"b": 1, 0: 2})
    (('a', 'b'), (0, 'b'))
    """
    try:
        return tuple(sorted(table))
    except TypeError:
        return tuple(sorted(table, key=lambda k: (type(k).__qualname__, repr(k))))


def order_of(table: Mapping[Any, Any]) -> Order:
    """The keys of a dict as one who iterates over it meets them: 1 and True are equal keys, but not the same."""
    return tuple(map(constant_key, table))


Order = tuple[Hashable, ...]


def _in_order_of(table: Mapping[Any, Any], names: Sequence[Any], values: Sequence[Any]) -> dict[Any, Any]:
    """A dict with other values, in the order of `names`, that has its keys as `table` has them."""
    made = dict(zip(names, values, strict=True))
    return {k: made[k] for k in table}


_OneLevel = tuple[list[tuple[str, Any]] | None, Any, Callable[[Sequence[Any]], Any]]


def one_level(value: Any) -> _OneLevel:
    """The children of a container with their places, a key of the container, and how to rebuild it. No children: not
    a container. Those of a dict come in the `canonical` order of its keys; what is rebuilt has its own."""
    if type(value) in (tuple, list):
        return [(f"[{k}]", v) for k, v in enumerate(value)], (type(value).__name__, len(value)), type(value)
    if type(value) is dict:
        names = canonical(value)
        return (
            [(f"[{k!r}]", value[k]) for k in names],
            ("dict", constant_key(names)),
            lambda xs: _in_order_of(value, names, xs),
        )
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        fields, cls = value._fields, type(value)
        return [(f".{k}", v) for k, v in zip(fields, value, strict=True)], ("namedtuple", cls), lambda xs: cls(*xs)
    if isinstance(value, Iterator):
        return None, None, lambda xs: value  # JAX warns about generators
    paths, treedef = jax.tree_util.tree_flatten_with_path(value, is_leaf=lambda x: x is not value)
    if is_leaf(treedef) or value is None:
        return None, None, lambda xs: value
    return [(jax.tree_util.keystr(p), v) for p, v in paths], treedef, lambda xs: jax.tree.unflatten(treedef, list(xs))


# ---- sharing
#
# Shared arguments: their arrays and numbers become inputs of the program, all the rest a key.
#
# {"W": array, "act": tanh, "n": 3}   ->   {"W": Input(0), "act": tanh, "n": Input(1)}    leaves [array, 3]
#
# A Python integer that the program has to know (`static` names it) stays, and its value is a part of the key.


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
        if (inputs := held.shared.get(packed.x64())) is None:
            inputs = held.shared[packed.x64()] = _inputs(held)
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
    limits = np.iinfo(np.int64 if packed.x64() else np.int32)
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
