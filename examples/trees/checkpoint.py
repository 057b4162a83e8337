"""A pytree of arrays and a few facts in one `.npz` file, written so that a reader never sees half of it.

Plain npz rather than Orbax: a model of one process is a few dozen arrays, which NumPy writes to one file in
milliseconds, and anyone can read that without JAX. Orbax earns its place where arrays are sharded over many hosts, or
where writing them must overlap training.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

ABOUT = "about"
"""The entry that holds the facts, as JSON."""


def save(path: Path, tree: Any, about: dict[str, Any]) -> None:
    """Write the arrays of a pytree, each under its place in it, and `about`, which JSON must be able to hold.

    The file is complete or not there: it is written under another name beside `path`, then renamed, so that an
    interruption leaves the one before.
    """
    arrays: dict[str, Any] = {name: np.asarray(_bits(leaf)) for name, leaf in _named(tree)}
    arrays[ABOUT] = np.array(json.dumps(about))
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=path.name, suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, **arrays)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def facts(path: Path) -> dict[str, Any]:
    """What was given as `about`."""
    with np.load(path) as file:
        found: dict[str, Any] = json.loads(str(file[ABOUT]))
        return found


def load(path: Path, like: Any) -> Any:
    """The pytree that was saved, in the structure of `like`.

    Raises ValueError where the file has other arrays than `like`, or of other shapes or dtypes.
    """
    with np.load(path) as file:
        names = [name for name, _ in _named(like)]
        if missing := set(names) ^ (set(file.files) - {ABOUT}):
            raise ValueError(f"{path} is of another model: {', '.join(sorted(missing))} is in one of them only")
        leaves = [_restored(file[name], leaf, f"{path}, {name}") for name, leaf in _named(like)]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def _named(tree: Any) -> list[tuple[str, Any]]:
    """The leaves of a pytree by name, such as `.optimiser[1].mu['emb']`."""
    return [(jax.tree_util.keystr(path), leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)]


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _bits(leaf: Any) -> Any:
    """A random key as the integers that it consists of."""
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _restored(array: np.ndarray, like: Any, place: str) -> jax.Array:
    wanted = np.asarray(_bits(like))
    if (array.shape, array.dtype) != (wanted.shape, wanted.dtype):
        raise ValueError(f"{place} is {array.dtype}{list(array.shape)}, not {wanted.dtype}{list(wanted.shape)}")
    if _is_key(like):
        key: jax.Array = jax.random.wrap_key_data(jnp.asarray(array), impl=jax.random.key_impl(like))
        return key
    return jnp.asarray(array)
