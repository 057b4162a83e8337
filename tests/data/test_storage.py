"""save and load."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

from autobatch.data import storage
from autobatch.data.pack import pack
from autobatch.data.storage import load, save
from autobatch.data.unpack import unpack
from autobatch.errors import BatchError, FileError
from tests.data.objects import Color, Leaf, Pair, batches, same


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return tmp_path_factory.mktemp("storage") / "data.batch"


@given(batches)
def test_what_is_saved_is_loaded(path: Any, examples: list[Any]) -> None:
    columns = pack(examples)
    save(columns, path)
    back = load(path)
    assert back.schema == columns.schema and back.count == columns.count
    assert dict(back.vocabularies) == dict(columns.vocabularies)
    for held, loaded in ((columns.arrays, back.arrays), (columns.starts, back.starts)):
        assert held.keys() == loaded.keys()
        for name in held:
            assert held[name].dtype == loaded[name].dtype
            assert np.array_equal(held[name], loaded[name], equal_nan=held[name].dtype.kind == "f")
    assert all(map(same, examples, unpack(back)))
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_unusual_dtypes(path: Any) -> None:
    columns = pack(
        [Pair(jnp.ones(3, jnp.bfloat16), jax.random.key(1)), Pair(jnp.zeros(3, jnp.bfloat16), jax.random.key(2))]
    )
    save(columns, path)
    back = load(path)
    assert back.arrays["Pair.first"].dtype == jnp.bfloat16
    assert jax.random.key_data(unpack(back)[1].second).tolist() == [0, 2]


def test_files_of_other_kinds(path: Any) -> None:
    for content in (b"", b"hello", b"PK\x03\x04"):
        path.write_bytes(content)
        with pytest.raises(BatchError, match=r"is not a file that `Batch\.save` wrote, or it is damaged: .*; save the"):
            load(path)
    with path.open("wb") as file:
        np.savez(file, x=np.ones(2))
    with pytest.raises(BatchError, match="it has no text, or no hash"):
        load(path)
    with pytest.raises(FileNotFoundError):
        load(path.with_name("absent"))


def test_another_version(path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "_FORMAT", "autobatch columns 0")
    save(pack([1]), path)
    monkeypatch.undo()
    with pytest.raises(BatchError, match="the format is 'autobatch columns 0'"):
        load(path)


def test_classes_that_cannot_be_found(path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass
    class Local:
        x: int

    with pytest.raises(BatchError, match="defined in a function"):
        save(pack([Local(1)]), path)
    save(pack([Leaf(Color.RED)]), path)
    monkeypatch.setattr(f"{Leaf.__module__}.Leaf", None)
    with pytest.raises(FileError, match="has no class of that name any more; import its module, or name it"):
        load(path)
    monkeypatch.delattr(f"{Leaf.__module__}.Leaf")
    with pytest.raises(FileError, match="has no class of that name any more"):
        load(path)
    assert unpack(load(path, [Leaf]))[0].value is Color.RED
    with pytest.raises(TypeError, match="classes= takes classes, and 'Leaf' is none"):
        load(path, ["Leaf"])


def test_a_file_imports_nothing(path: Any) -> None:
    save(pack([Leaf(Color.RED)]), path)
    with np.load(path) as held:
        text = bytes(held["text"]).replace(f"{Leaf.__module__}:Leaf".encode(), b"this:Leaf")
        storage.write(path, json.loads(text), {n: held[n] for n in held.files if n.startswith("a")})
    with pytest.raises(FileError, match="this is not imported; import its module"):
        load(path)
    assert "this" not in sys.modules
