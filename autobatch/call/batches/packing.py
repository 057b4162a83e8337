"""Packing examples whose types are partly known: from calls before, from annotations, from their classes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from autobatch.backends.llvm.reading.machine import reading_machine
from autobatch.data.annotations import schema_of_annotation
from autobatch.data.columns import Columns
from autobatch.data.conform import conform
from autobatch.data.layout import merge
from autobatch.data.pack import pack as pack_by
from autobatch.data.schema import UNKNOWN, Schema
from autobatch.errors import BatchError

Declared = Callable[[], Schema] | None
"""What annotations say about the types of examples; read only where examples do not show them."""


def pack(examples: Sequence[Any], like: Schema | None = None) -> Columns:
    """Examples as columns (`data/pack.py`), read by machine code where there is some."""
    return pack_by(examples, like, reading_machine())


def pack_like(examples: Sequence[Any], seen: Sequence[Schema], declared: Declared, function: str) -> Columns:
    """Pack examples under a schema that was seen before, where their types join with it, else afresh. `declared`
    says what examples do not show: the types of no examples, and the elements of lists that are all empty."""
    for like in reversed(seen):
        try:
            return pack(examples, like)
        except BatchError:
            continue  # other types than before: another specialisation, or an error that packing afresh reports
    if not examples and declared is None:
        raise BatchError(
            f"{function}: the batch is empty and the types of its examples are unknown; annotate the "
            "parameter, or pack with ab.pack([], like=...)"
        )
    return pack_fresh(examples, declared)


def pack_fresh(examples: Sequence[Any], declared: Declared = None) -> Columns:
    """Pack examples; where all their lists are empty, annotations say what they hold."""
    columns = pack(examples, None if examples or declared is None else declared())
    if unknown_lists(columns.schema) and declared is not None:
        columns = pack(examples, declared())
    if unknown_lists(columns.schema) and (wider := _from_classes(columns.schema)) is not None:
        columns = pack(examples, wider)
    return columns


def unknown_lists(schema: Schema) -> list[str]:
    """Lists that are empty in all examples, so that the type of their elements is unknown."""
    return [s.name for s in schema.lists if s.elem == UNKNOWN and not s.optional]


def with_declared(columns: Columns) -> Columns:
    """The same columns; what the lists hold that are all empty, the annotations of the examples' classes say."""
    if not unknown_lists(columns.schema) or (wider := _from_classes(columns.schema)) is None:
        return columns
    return conform(columns, wider)


def _from_classes(schema: Schema) -> Schema | None:
    """What the annotations of the examples' classes add to a schema; None where they say nothing that fits."""
    made = schema
    for cls in (c.cls for s in schema.stores for c in s.classes if c.cls is not None):
        try:
            own = schema_of_annotation(cls)
        except (BatchError, NameError, TypeError):
            continue  # a class without annotations, or with some that name no type
        made = merged(replace(own, root=UNKNOWN, root_optional=True), made) or made
    return made if made != schema else None


def merged(a: Schema, b: Schema) -> Schema | None:
    try:
        return merge(a, b)
    except BatchError:
        return None
