"""Columns read cell by cell, as programs on the host read them."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given

from autobatch.data.columns import ColumnMemory, Columns
from autobatch.data.pack import pack
from autobatch.ir.core import Array, List, Ref, Tag, Type
from autobatch.ir.interpret import ExampleMemory
from tests.data.objects import Color, Node, Plain, Scale, batches, parts


def check(memory: ColumnMemory, columns: Columns, type: Type, held: Any, x: Any) -> list[tuple[Type, Any, Any]]:
    """Does the cell `held` of a type stand for the object x? Returns the cells below it."""
    match type:
        case Array():
            array = np.asarray(x)
            assert np.array_equal(held, array.astype(np.asarray(held).dtype), equal_nan=array.dtype.kind == "f")
        case Tag(vocabulary=vocabulary):
            assert memory.tag_value(vocabulary, held) == x and memory.tag_of(vocabulary, x) == held
        case Ref(store=store):
            if x is None:
                assert held == -1
                return []
            fields = {f.name: f for f in columns.schema.store(store).fields}
            if not isinstance(x, (dict, tuple)):
                assert memory.class_name(type, held).startswith(x.__class__.__name__)  # forms of a class are numbered
            below = []
            for name, value in (parts(x) or {}).items():
                name = str(name) if not hasattr(x, "_fields") else x._fields[name]
                position = columns.arrays[f"{store}.#tag"][held]
                field = next(f for f in columns.schema.store(store).fields if f.name == name and position in f.classes)
                assert name in fields
                assert memory.is_missing(type, held, name) == (value is None and isinstance(field.type, (Array, Tag)))
                if value is not None or isinstance(field.type, (Ref, List)):
                    below.append((field.type, memory.load(type, held, name), value))
            return below
        case List(elem=elem):
            if isinstance(x, np.ndarray):
                x = list(x)
            if x is None:
                assert held == -1
                return []
            assert memory.length(type, held) == len(x)
            rows = [i for i in range(len(x)) if not memory.item_is_missing(type, held, i)]
            assert all(x[i] is not None for i in rows) or isinstance(elem, (Ref, List))
            return [(elem, memory.item(type, held, i), x[i]) for i in rows]
    return []


@given(batches)
def test_cells_are_what_was_packed(examples: list[Any]) -> None:
    columns = pack(examples)
    memory = ColumnMemory(columns)
    assert isinstance(memory, object) and _is_memory(memory)
    for i, example in enumerate(examples):
        if example is None:
            continue
        stack, seen = [(columns.schema.root, memory.root(i), example)], set()
        while stack:
            type, held, x = stack.pop()
            if isinstance(type, Ref) and (type, held) in seen:
                continue
            seen.add((type, held) if isinstance(type, Ref) else None)
            stack.extend(check(memory, columns, type, held, x))


def _is_memory(memory: ExampleMemory) -> bool:
    return True


def test_fields_that_a_class_does_not_have() -> None:
    memory = ColumnMemory(pack([Plain.of(x=1), Plain.of(y=2)]))
    assert memory.load(Ref("Plain"), 0, "x") == 1
    with pytest.raises(AttributeError, match="'Plain' object has no attribute 'y'"):
        memory.load(Ref("Plain"), 0, "y")


def test_tags_and_keys() -> None:
    columns = pack([Scale(1.0, Node(1), Color.GREEN), Scale(2.0, Node(2))])
    memory = ColumnMemory(columns)
    name = f"{Color.__module__}.Color"
    assert memory.tag_value(name, memory.load(Ref("Scale"), 0, "color")) is Color.GREEN
    assert memory.tag_of(name, "green") == memory.tag_of("str", "a") == -1
    assert memory.is_missing(Ref("Scale"), 1, "color") and not memory.is_missing(Ref("Scale"), 0, "color")
    key = jax.random.key(5)
    held = ColumnMemory(pack([{"key": key}])).load(Ref("dict"), 0, "key")
    assert held.dtype == key.dtype and (jax.random.key_data(held) == jax.random.key_data(key)).all()
