"""`examples_like`: a Hypothesis strategy of examples from a type annotation.

Node(x: float, word: int, left: Node | None)   ->   a form for each class: fields that are leaves, choices, objects
                                                     the fewest objects that each form can be made of
                                                     drawn with a number of objects to spend, split among the fields
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import math
import types
import typing
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from autobatch.data.infer import annotated_fields, concrete_classes
from autobatch.data.leaves import Category, category
from autobatch.errors import BatchError

MOST_ITEMS = 3
"""Items of a list of numbers or strings, at most."""

_FLOATS = st.floats(-2, 2, allow_subnormal=False).map(lambda x: round(x, 6))
_LEAVES: dict[Any, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    int: st.integers(-3, 9),
    float: _FLOATS,
    complex: st.builds(complex, _FLOATS, _FLOATS),
    str: st.sampled_from(["a", "b", "c"]),
    type(None): st.none(),
}
_CURE = "pass strategies={...}: a Hypothesis strategy for this type, or for 'Class.field'"


def examples_like(
    annotation: Any,
    *,
    strategies: Mapping[Any, st.SearchStrategy[Any]] | None = None,
    sizes: Mapping[str, int] | None = None,
    most_objects: int = 8,
    shared: bool = False,
) -> st.SearchStrategy[Any]:
    """A strategy of examples of an annotated type: what `ab.pack` accepts, without cycles.

    Understood: bool, int, float, complex, str, enums, Literal, None, Optional and unions, `list[T]`, fixed tuples,
    TypedDict; dataclasses, NamedTuples, attrs and plain classes with annotated fields, each for itself and its
    subclasses, recursive ones too. Arrays: annotations of jaxtyping (`Float[Array, "3 n"]`), a `jax.ShapeDtypeStruct`,
    or one in `Annotated[jax.Array, jax.ShapeDtypeStruct((3,), "float32")]`. `Annotated[int, st.integers(0, 4)]` draws
    from that strategy.

    Args:
      annotation: the type of one example.
      strategies: what to draw from in the place of the defaults (floats between -2 and 2, integers from -3 to 9,
        strings of "a", "b" and "c"): by type (`{int: st.integers(0, 4)}`), or by field (`{"Node.word": ...}`).
      sizes: the sizes of axes that have names in jaxtyping's annotations. The same in all examples: a batch whose
        arrays differ in shape is a program for each shape.
      most_objects: of classes, in one example. Examples that cannot be made of so few are made of the fewest.
      shared: let an object stand in several places of one example, so that trees become acyclic graphs.

    Raises BatchError for an annotation that says no type, and for a class of which every example is infinite.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Tree:
    ...     word: int
    ...     left: "Tree | None" = None
    ...     right: "Tree | None" = None
    >>> from hypothesis import find, settings
    >>> trees = examples_like(Tree, strategies={"Tree.word": st.integers(0, 4)})
    >>> find(trees, lambda t: t.right is not None and t.right.word > 2, settings=settings(database=None))
    Tree(word=0, left=None, right=Tree(word=3, left=None, right=None))
    """
    reader = _FormReader(dict(strategies or {}), dict(sizes or {}))
    form = reader.read(annotation, "the examples")
    reader.finish()
    if math.isinf(form.least):
        raise BatchError(f"{_words(annotation)}: every example is infinite, as its fields lead back to it; {_CURE}")
    return _drawn(form, max(most_objects - int(form.least), 0), shared)


# ---- forms


@dataclass(eq=False)
class ExampleForm:
    """What can stand in a place. `least`: the fewest objects that it is made of; `grows`: it may be made of more."""

    least: float = 0
    grows: bool = field(default=False, init=False)


@dataclass(eq=False)
class LeafForm(ExampleForm):
    strategy: st.SearchStrategy[Any] = field(default_factory=st.none)


@dataclass(eq=False)
class ItemsForm(ExampleForm):
    element: ExampleForm = field(default_factory=ExampleForm)


@dataclass(eq=False)
class ChoiceForm(ExampleForm):
    options: list[ExampleForm] = field(default_factory=list)


@dataclass(eq=False)
class Fields(ExampleForm):
    """A tuple, dict or object: `make` builds it of its parts. `cls`: the class of an object."""

    parts: dict[str, ExampleForm] = field(default_factory=dict)
    make: Callable[[dict[str, Any]], Any] = dict
    cls: type | None = None


class _FormReader:
    """Annotations -> forms. The fields of a class are read when all that stands before them has been."""

    def __init__(self, strategies: dict[Any, st.SearchStrategy[Any]], sizes: dict[str, int]) -> None:
        self.strategies, self.sizes = strategies, sizes
        self.classes: dict[type, Fields] = {}
        self.pending: list[Fields] = []
        self.composed: list[ExampleForm] = []

    def finish(self) -> None:
        """Read the fields of all classes; then find how many objects each form takes."""
        while self.pending:
            read = self.pending.pop()
            assert read.cls is not None
            for name, hint in annotated_fields(read.cls).items():
                place = f"{read.cls.__qualname__}.{name}"
                chosen = self.strategies.get(place)
                read.parts[name] = self.read(hint, place) if chosen is None else LeafForm(strategy=chosen)
        for fact, of in (("least", _least), ("grows", _grows)):
            changes = True
            while changes:
                found = [of(form) for form in self.composed]
                changes = found != [getattr(form, fact) for form in self.composed]
                for form, x in zip(self.composed, found, strict=True):
                    setattr(form, fact, x)

    def read(self, annotation: Any, place: str) -> ExampleForm:
        chosen = self.chosen(annotation)
        if chosen is not None:
            return LeafForm(strategy=chosen)
        origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
        if annotation is None:
            return LeafForm(strategy=st.none())
        if isinstance(annotation, jax.ShapeDtypeStruct):
            return LeafForm(strategy=_arrays(annotation.shape, partial(getattr, annotation, "dtype"), jnp.asarray))
        if hasattr(annotation, "dim_str") and hasattr(annotation, "dtypes"):
            return LeafForm(strategy=self.jaxtyped(annotation, place))
        if origin in (typing.Union, types.UnionType):
            return self.composite(ChoiceForm(math.inf, [self.read(a, place) for a in arguments]))
        if origin is typing.Annotated:
            return self.annotated(arguments[0], arguments[1:], place)
        if origin is typing.Literal:
            return LeafForm(strategy=st.sampled_from(arguments))
        if origin is list and arguments:
            return self.composite(ItemsForm(0, self.read(arguments[0], f"the elements of {place}")))
        if origin is tuple and arguments and Ellipsis not in arguments:
            parts = {str(k): self.read(a, f"{place}[{k}]") for k, a in enumerate(arguments)}
            return self.composite(Fields(math.inf, parts, lambda made: tuple(made.values())))
        if isinstance(annotation, type) and origin is None:
            return self.read_class(annotation, place)
        raise BatchError(f"the annotation {_words(annotation)} of {place} does not say a type; {_CURE}")

    def chosen(self, annotation: Any) -> st.SearchStrategy[Any] | None:
        try:
            return self.strategies.get(annotation)
        except TypeError:  # an annotation that cannot be hashed
            return None

    def annotated(self, annotation: Any, metadata: Sequence[Any], place: str) -> ExampleForm:
        for said in metadata:
            if isinstance(said, st.SearchStrategy):
                return LeafForm(strategy=said)
            if isinstance(said, jax.ShapeDtypeStruct):
                make = np.asarray if annotation is np.ndarray else jnp.asarray
                return LeafForm(strategy=_arrays(said.shape, partial(getattr, said, "dtype"), make))
        return self.read(annotation, place)

    def composite(self, form: ExampleForm) -> ExampleForm:
        self.composed.append(form)
        return form

    def read_class(self, cls: type, place: str) -> ExampleForm:
        if cls in _LEAVES:
            return LeafForm(strategy=_LEAVES[cls])
        if issubclass(cls, enum.Enum):
            return LeafForm(strategy=st.sampled_from(cls))
        if typing.is_typeddict(cls):
            return self.of_class(cls, dict)
        if category(cls) is Category.ARRAY:
            raise BatchError(
                f"the annotation {_words(cls)} of {place} says neither dtype nor shape: "
                f"Annotated[{cls.__name__}, jax.ShapeDtypeStruct((3,), 'float32')] does; or {_CURE}"
            )
        members = [] if cls.__module__ == "builtins" or category(cls) is Category.REFUSED else concrete_classes(cls)
        forms = [self.of_class(m, _maker(m)) for m in members if annotated_fields(m)]
        forms += [
            LeafForm(strategy=s) for m in members if (s := self.chosen(m)) is not None and not annotated_fields(m)
        ]
        if not forms:
            raise BatchError(f"the annotation {_words(cls)} of {place} does not say its fields; {_CURE}")
        return forms[0] if len(forms) == 1 else self.composite(ChoiceForm(math.inf, forms))

    def of_class(self, cls: type, make: Callable[[dict[str, Any]], Any]) -> ExampleForm:
        if (chosen := self.chosen(cls)) is not None:
            return LeafForm(strategy=chosen)
        if cls not in self.classes:
            self.classes[cls] = Fields(math.inf, {}, make, cls)
            self.pending.append(self.classes[cls])
            self.composed.append(self.classes[cls])
        return self.classes[cls]

    def jaxtyped(self, annotation: Any, place: str) -> st.SearchStrategy[Any]:
        """Arrays by an annotation of jaxtyping: `Float[Array, "3 n"]`."""
        shape = []
        for token in str(annotation.dim_str).split():
            name = token.rpartition("=")[2]
            size = int(name) if name.isdecimal() else self.sizes.get(name)
            if size is None:
                raise BatchError(
                    f"{place}: the axis {token!r} of {_words(annotation)} has no size; pass sizes={{{token!r}: 3}}"
                )
            shape.append(size)
        make = np.asarray if annotation.array_type is np.ndarray else jnp.asarray
        return _arrays(tuple(shape), lambda: _one_dtype(annotation.dtypes), make)


def _least(form: ExampleForm) -> float:
    match form:
        case ChoiceForm(options=options):
            return min(option.least for option in options)
        case Fields(parts=parts, cls=cls):
            return sum(part.least for part in parts.values()) + (cls is not None)
        case _:
            return form.least


def _grows(form: ExampleForm) -> bool:
    match form:
        case ChoiceForm(options=options, least=least):
            return any(option.grows or option.least > least for option in options)
        case Fields(parts=parts):
            return any(part.grows for part in parts.values())
        case ItemsForm(element=element):
            return element.grows or element.least > 0
        case _:
            return False


def _maker(cls: type) -> Callable[[dict[str, Any]], Any]:
    """How to make an object of a class from its fields: by calling it, where it takes them."""
    init = {n: n for n in annotated_fields(cls)}
    if dataclasses.is_dataclass(cls):
        init = {f.name: f.name for f in dataclasses.fields(cls) if f.init}
    elif hasattr(cls, "__attrs_attrs__"):
        init = {a.name: a.alias for a in cls.__attrs_attrs__ if a.init}
    try:
        inspect.signature(cls).bind(**dict.fromkeys(init.values()))
        calls = True
    except (TypeError, ValueError):
        calls = False

    def make(fields: dict[str, Any]) -> Any:
        if calls:
            return cls(**{init[n]: x for n, x in fields.items() if n in init})
        made: Any = object.__new__(cls)
        for name, x in fields.items():
            object.__setattr__(made, name, x)
        return made

    return make


# ---- arrays


def _arrays(shape: Sequence[int], dtype: Callable[[], Any], make: Callable[[Any], Any]) -> st.SearchStrategy[Any]:
    """Arrays of a shape. The dtype is asked for when one is drawn: it may depend on x64."""
    count = math.prod(shape)

    def elements() -> st.SearchStrategy[Any]:
        kind = dtype()
        if jnp.issubdtype(kind, jnp.bool_):
            return _LEAVES[bool]
        if jnp.issubdtype(kind, jnp.unsignedinteger):
            return st.integers(0, 9)
        if jnp.issubdtype(kind, jnp.integer):
            return _LEAVES[int]
        return _LEAVES[complex if jnp.issubdtype(kind, jnp.complexfloating) else float]

    lists = st.deferred(lambda: st.lists(elements(), min_size=count, max_size=count))
    return lists.map(lambda xs: make(np.array(xs).astype(dtype()).reshape(tuple(shape))))


def _one_dtype(names: Any) -> Any:
    """The dtype to draw, of those that jaxtyping allows: JAX's own of that kind where it is among them."""
    preferred = [jnp.zeros((), kind).dtype.name for kind in (float, int, bool, complex)]
    allowed = [n for n in names if isinstance(n, str)] if isinstance(names, (list, tuple)) else preferred
    return jnp.dtype(next((n for n in preferred if n in allowed), allowed[0]))


# ---- drawing


@st.composite
def _drawn(draw: Any, form: ExampleForm, spare: int, shared: bool) -> Any:
    return _Drawing(draw, shared).of(form, spare)


class _Drawing:
    """One example. `spare`: how many objects it may have beyond the fewest."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any], shared: bool) -> None:
        self.draw, self.shared = draw, shared
        self.made: dict[type, list[Any]] = {}

    def of(self, form: ExampleForm, spare: int) -> Any:
        match form:
            case LeafForm(strategy=strategy):
                return self.draw(strategy)
            case ChoiceForm(options=options, least=least):
                options = sorted((o for o in options if o.least - least <= spare), key=lambda o: o.least)
                chosen = options[self.draw(st.integers(0, len(options) - 1))]
                return self.of(chosen, spare - int(chosen.least - least))
            case ItemsForm(element=element):
                return self.items(element, spare)
            case Fields(parts=parts, make=make, cls=cls):
                known = self.made.setdefault(cls, []) if cls is not None else []
                if self.shared and known and self.draw(st.booleans()):
                    return self.draw(st.sampled_from(known))
                made = make(dict(zip(parts, self.several(list(parts.values()), spare), strict=True)))
                if cls is not None and category(cls) is Category.OBJECT and not issubclass(cls, (tuple, dict)):
                    known.append(made)
                return made
        raise AssertionError(form)

    def items(self, element: ExampleForm, spare: int) -> list[Any]:
        if math.isinf(element.least):
            return []
        least = int(element.least)
        most = spare // least if least else MOST_ITEMS
        count = self.draw(st.integers(0, most))
        return self.several([element] * count, spare - count * least)

    def several(self, forms: Sequence[ExampleForm], spare: int) -> list[Any]:
        """Parts side by side, which share the objects that there are to spend."""
        made: list[Any] = []
        hungry = sum(form.grows for form in forms)
        for form in forms:
            part = 0
            if form.grows:
                hungry -= 1
                part = self.draw(st.integers(0, spare)) if hungry and spare else spare
                spare -= part
            made.append(self.of(form, part))
        return made


def _words(annotation: Any) -> str:
    return annotation.__qualname__ if isinstance(annotation, type) else repr(annotation)


# ---- compare
#
# Equality of a batched result with plain Python: exact for integers, strings and structure, nearly for floats.


SHARP, SINGLE = 1e-9, 1e-5
"""Relative and absolute tolerance of floats of 64 and of 32 bits, whose sums run in another order in a batch."""


@dataclass(frozen=True)
class Difference:
    """A place in two results, what stands there, and why it is not the same."""

    place: str
    found: Any
    expected: Any
    why: str

    def __str__(self) -> str:
        return f"{self.place}: {self.why}"


def default_tolerance() -> float:
    """The tolerance for floats as JAX makes them here and now."""
    return SHARP if jnp.zeros(()).dtype == np.float64 else SINGLE


def assert_same(found: Any, expected: Any, where: str = "result", tolerance: float | None = None) -> None:
    """Raise AssertionError that names the first place where two results differ.

    >>> assert_same({"a": [1, 2.0]}, {"a": [1, 2.0]})
    >>> assert_same({"a": [1, 2.5]}, {"a": [1, 2.0]})
    Traceback (most recent call last):
    AssertionError: result['a'][1]: 2.5, not 2.0
    """
    first = next(differences(found, expected, tolerance, where), None)
    if first is not None:
        raise AssertionError(str(first))


def differences(
    found: Any, expected: Any, tolerance: float | None = None, where: str = "result"
) -> Iterator[Difference]:
    """The places where two results differ, in order.

    `expected` is what plain Python returned. A batch has one type where the paths of a program join, so an int of plain
    Python is equal to a float, and a number to an array that is full of it. Objects are compared field by field, each
    pair of them once.

    >>> [str(d) for d in differences((1, "a"), (2, "b"))]
    ['result[0]: 1, not 2', "result[1]: 'a', not 'b'"]
    """
    allowed = default_tolerance() if tolerance is None else tolerance
    seen: set[tuple[int, int]] = set()
    stack: list[tuple[Any, Any, str]] = [(found, expected, where)]
    while stack:
        a, b, place = stack.pop()
        parts = _parts(b)
        if parts is None:
            yield from _of_leaves(a, b, place, allowed)
            continue
        if (id(a), id(b)) in seen:
            continue
        seen.add((id(a), id(b)))
        own = _parts(a)
        if own is None or not _same_class(a, b):
            yield Difference(place, a, b, f"{a!r} is no {type(b).__name__}")
        elif own.keys() != parts.keys():
            yield Difference(place, a, b, _of_keys(a, b, own, parts))
        else:
            stack += [(own[name], part, place + name) for name, part in reversed(parts.items())]


def _same_class(a: Any, b: Any) -> bool:
    for kind in (dict, list, tuple):
        if isinstance(b, kind) and not hasattr(b, "_fields"):
            return isinstance(a, kind)
    return type(a) is type(b)


def _of_keys(a: Any, b: Any, own: dict[str, Any], parts: dict[str, Any]) -> str:
    if isinstance(b, (list, tuple)):
        return f"{len(a)} items, not {len(b)}"
    return f"{', '.join(own) or 'nothing'} in it, not {', '.join(parts) or 'nothing'}"


def _parts(value: Any) -> dict[str, Any] | None:
    """The parts of a container or object by their places; None for a leaf."""
    if isinstance(value, dict):
        return {f"[{k!r}]": v for k, v in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {f".{k}": getattr(value, k) for k in value._fields}
    if isinstance(value, (list, tuple, deque)):
        return {f"[{k}]": v for k, v in enumerate(value)}
    if isinstance(value, (set, frozenset)):
        return {f"{{{k!r}}}": True for k in value}
    if value is None or isinstance(
        value, (str, bool, int, float, complex, enum.Enum, np.ndarray, np.generic, jax.Array)
    ):
        return None
    return {f".{k}": v for k, v in attributes(value).items()}


def attributes(value: Any) -> dict[str, Any]:
    """The attributes of an object, in `__dict__` and in slots, those that are set."""
    names = list(getattr(value, "__dict__", ()))
    for cls in type(value).__mro__:
        slots = vars(cls).get("__slots__", ())
        names += [slots] if isinstance(slots, str) else slots
    held = [n for n in names if n not in ("__dict__", "__weakref__") and hasattr(value, n)]
    return {n: getattr(value, n) for n in held}


def _of_leaves(found: Any, expected: Any, place: str, tolerance: float) -> Iterator[Difference]:
    if expected is None or isinstance(expected, (str, enum.Enum)):
        if type(found) is not type(expected) or found != expected:
            yield Difference(place, found, expected, f"{found!r}, not {expected!r}")
        return
    if found is None or isinstance(found, (str, enum.Enum)) or _parts(found) is not None:
        yield Difference(place, found, expected, f"{found!r}, not {expected!r}")
        return
    if _is_key(expected):
        if not _is_key(found) or not np.array_equal(jax.random.key_data(found), jax.random.key_data(expected)):
            yield Difference(place, found, expected, f"{found!r}, not {expected!r}")
        return
    why = _of_numbers(np.asarray(found), expected, tolerance)
    if why:
        yield Difference(place, found, expected, why)


def _is_key(value: Any) -> bool:
    return isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)


def _of_numbers(found: np.ndarray[Any, Any], given: Any, tolerance: float) -> str:
    """Why two numbers or arrays differ; empty where they do not."""
    expected = np.asarray(given)
    if isinstance(given, (bool, int, float, complex)) and (found.ndim or found.dtype.kind != expected.dtype.kind):
        # where paths join, an int beside a float is a float, and a number beside an array is an array
        if not found.ndim and found.dtype.kind not in "fc":
            return f"{found!r}, not {given!r}"
        expected = np.full(found.shape, given, found.dtype)
    if found.shape != expected.shape:
        return f"shape {found.shape}, not {expected.shape}"
    if _kind(found.dtype) != _kind(expected.dtype):
        return f"{found.dtype}, not {expected.dtype}"
    if _kind(expected.dtype) not in "fc":
        return "" if np.array_equal(found, expected) else _differences_in_words(found, expected, found != expected)
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    a, b = found.astype(wide), expected.astype(wide)
    apart = ~np.isclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
    return _differences_in_words(found, expected, apart) if apart.any() else ""


def _kind(dtype: Any) -> str:
    return "f" if jnp.issubdtype(dtype, jnp.floating) else str(dtype.kind)  # bfloat16 is of no kind of NumPy's


def _differences_in_words(found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any], apart: Any) -> str:
    if found.ndim == 0:
        return f"{found.item()!r}, not {expected.item()!r}"
    first = tuple(int(k) for k in np.argwhere(apart)[0])
    where = "".join(f"[{k}]" for k in first)
    count = int(np.count_nonzero(apart))
    return f"{found[first].item()!r} at {where}, not {expected[first].item()!r} ({count} of {found.size} differ)"
