"""Type annotations -> schemas, for batches without examples: `def f(words: list[int])` called with `[]`."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import types
import typing
from typing import Any

from autobatch.data.infer import Inference, InferenceConflict, InferredPlace, RecordKind
from autobatch.data.layout import lay_out
from autobatch.data.leaves import COMPLEX, Category, category, vocabulary_of
from autobatch.data.schema import UNKNOWN, Schema
from autobatch.errors import BatchError
from autobatch.ir.types import BOOL, FLOAT, INT, STR, Array, List, Tag, Type

_LEAVES: dict[Any, Array | Tag] = {bool: BOOL, int: INT, float: FLOAT, complex: COMPLEX, str: STR}
_CURE = "pass `like=<a Batch of such examples>`"


def schema_of_annotation(annotation: Any) -> Schema:
    """The schema of examples of an annotated type.

    Understood: bool, int, float, complex, str, enums, None, Optional and unions of classes, Literal, `list[T]`, fixed
    tuples, TypedDict, and dataclasses, NamedTuples, attrs and plain classes whose fields are annotated. A class stands
    for itself and its subclasses. Raises BatchError for anything that does not say its type in full, as arrays.

    >>> schema_of_annotation(list[int]).root
    List(elem=Array(dtype='int32', shape=(), weak=True), store='#root')
    """
    reader = _AnnotationReader()
    try:
        reader.see(reader.inference.root, annotation)
        reader.run()
        return lay_out(reader.inference).schema
    except InferenceConflict as error:
        words = _words(annotation)
        raise BatchError(f"the annotation {words} mixes types that do not join: {error}; {_CURE}") from None


def disagreements(schema: Schema) -> list[str]:
    """Fields of classes that hold something else than they are declared to, as far as declarations of numbers, strings
    and lists of them say."""
    found = []
    for store in schema.stores:
        for k, cls in enumerate(store.classes):
            try:
                declared = annotated_fields(cls.cls) if cls.cls is not None and cls.kind == "object" else {}
            except BatchError:
                continue
            for field in (f for f in store.fields if k in f.classes and not f.always_none):
                wanted = declared.get(field.name)
                if not _may_hold(wanted, field.type):
                    held = schema.words(field.type)
                    found.append(f"{cls.name}.{field.name} is declared {_words(wanted)}, and holds {held}")
    return found


def _may_hold(annotation: Any, type: Type) -> bool:
    if annotation is str:
        return isinstance(type, Tag)
    if annotation in (bool, int, float, complex):
        return isinstance(type, Array) and (type.shape == () or type == UNKNOWN)
    if typing.get_origin(annotation) is list and isinstance(type, List) and type.elem != UNKNOWN:
        return _may_hold(typing.get_args(annotation)[0], type.elem)
    return typing.get_origin(annotation) is not list or not isinstance(type, Tag)


def annotated_fields(cls: type) -> dict[str, Any]:
    """The annotated fields of a class, in their order, forward references resolved. Raises BatchError."""
    try:
        hints = typing.get_type_hints(cls, localns={cls.__name__: cls}, include_extras=True)
    except (NameError, TypeError) as error:
        raise BatchError(f"the annotations of {cls.__qualname__} cannot be resolved: {error}; {_CURE}") from None
    if dataclasses.is_dataclass(cls):
        names: list[str] = [f.name for f in dataclasses.fields(cls)]
    else:
        names = [n for n, hint in hints.items() if typing.get_origin(hint) is not typing.ClassVar]
    return {n: hints[n] for n in names if n in hints}


def concrete_classes(cls: type) -> list[type]:
    """A class and its subclasses, without the abstract ones."""
    found: list[type] = []
    stack = [cls]
    while stack:
        member = stack.pop()
        stack.extend(member.__subclasses__())
        if not inspect.isabstract(member) and member not in found:
            found.append(member)
    return found


class _AnnotationReader:
    """Places whose annotations are still to be read are kept in a list, so recursive classes end."""

    def __init__(self) -> None:
        self.inference = Inference()
        self.classes: dict[type, dict[str, Any]] = {}
        self.done: set[tuple[int, Any]] = set()
        self.pending: list[tuple[InferredPlace, Any]] = []

    def run(self) -> None:
        while self.pending:
            self.see(*self.pending.pop())

    def see(self, place: InferredPlace, annotation: Any) -> None:
        """The annotation of a place."""
        origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
        if annotation is None or annotation is type(None):
            self.inference.see_leaf(place, UNKNOWN, none=True)
        elif origin in (typing.Union, types.UnionType):
            for argument in arguments:
                self.see(place, argument)
        elif origin is typing.Annotated:
            self.see(place, arguments[0])
        elif origin is typing.Literal:
            for value in arguments:
                self.see(place, type(value))
        elif origin is list and arguments:
            items = InferredPlace(f"the elements of {place.where}")
            self.inference.see_list(place, items, none=False)
            self.pending.append((items, arguments[0]))
        elif origin is tuple and arguments and Ellipsis not in arguments:
            self.see_tuple(place, arguments)
        elif isinstance(annotation, type):
            self.see_class(place, annotation)
        else:
            raise BatchError(f"the annotation {_words(annotation)} of {place.where} does not say a type; {_CURE}")

    def see_tuple(self, place: InferredPlace, arguments: tuple[Any, ...]) -> None:
        names = tuple(map(str, range(len(arguments))))
        self.see_fields(place, "tuple", None, dict(zip(names, arguments, strict=True)), arguments)

    def see_class(self, place: InferredPlace, cls: type) -> None:
        """A leaf type, or a class with fields and its subclasses."""
        if cls in _LEAVES:
            self.inference.see_leaf(place, _LEAVES[cls], none=False)
        elif issubclass(cls, enum.Enum):
            self.inference.see_leaf(place, Tag(vocabulary_of(cls)), none=False)
        elif typing.is_typeddict(cls):
            self.see_fields(place, "dict", None, self.hints(cls), cls)
        elif category(cls) is Category.ARRAY:
            raise BatchError(f"the annotation {_words(cls)} of {place.where} says neither dtype nor shape; {_CURE}")
        else:
            refused = cls.__module__ == "builtins" or category(cls) is Category.REFUSED
            members = {} if refused else {m: hints for m in concrete_classes(cls) if (hints := self.hints(m))}
            if not members:
                raise BatchError(f"the annotation {_words(cls)} of {place.where} does not say its fields; {_CURE}")
            for member, hints in members.items():
                self.see_fields(place, "namedtuple" if issubclass(member, tuple) else "object", member, hints, member)

    def hints(self, cls: type) -> dict[str, Any]:
        """The annotated fields of a class, read once."""
        if cls not in self.classes:
            self.classes[cls] = annotated_fields(cls)
        return self.classes[cls]

    def see_fields(
        self, place: InferredPlace, kind: RecordKind, cls: type | None, hints: dict[str, Any], source: Any
    ) -> None:
        """A record with these annotated fields; `source` is what annotated them, read once for each record."""
        names = tuple(sorted(hints)) if kind == "dict" else tuple(hints)
        signature = tuple(_sort(hints[n]) for n in names) if cls is None else ()
        record = self.inference.record(kind, cls, names, signature)
        if kind == "dict":
            record.see_keys(tuple(hints))
        self.inference.see_record(place, record, none=False)
        if (id(record), source) not in self.done:
            self.done.add((id(record), source))
            self.pending.extend((record.places[n], hints[n]) for n in names)


def _sort(annotation: Any) -> str | None:
    """The entry of a signature for an element with this annotation: the sort of the first alternative."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return next((sort for a in arguments if (sort := _sort(a)) is not None), None)
    if origin is typing.Annotated:
        return _sort(arguments[0])
    if origin is typing.Literal:
        return _sort(type(arguments[0]))
    if annotation is None or annotation is type(None):
        return None
    if annotation in _LEAVES:
        return "str" if annotation is str else "number"
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return vocabulary_of(annotation)
    return "list" if origin is list else "record"


def _words(annotation: Any) -> str:
    return annotation.__qualname__ if isinstance(annotation, type) else repr(annotation)
