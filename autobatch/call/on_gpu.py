"""Arguments that lie on a GPU: arrays of libraries that this package does not import."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import jax
import numpy as np

from autobatch.backends.cuda.arrays import DeviceArray, Foreign, is_foreign
from autobatch.backends.cuda.driver import driver
from autobatch.call.batches.batch import Batch
from autobatch.call.containers import leaves, with_leaves
from autobatch.errors import BatchError, DeviceError, UnsupportedError

T = TypeVar("T")

WHOLE = (Batch, np.ndarray, jax.Array, DeviceArray, int, float, str)
"""Arguments that are looked at no closer."""


def adopted(value: T) -> T:
    """Arguments with arrays on a GPU, of whichever library, as the compiler knows them."""
    if not any(map(is_foreign, leaves(value, WHOLE))):
        return value  # the objects of the caller themselves
    made: T = with_leaves(value, (Foreign(x) if is_foreign(x) else x for x in leaves(value, WHOLE)), WHOLE)
    return made


def is_there() -> bool:
    """Is there a GPU that kernels of ours run on?"""
    try:
        driver()
    except DeviceError:
        return False
    return True


def for_backend(
    asked: str, taken: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    """The arguments of a call, adopted where they are for a kernel: one was asked for, or nothing was and they lie on a
    GPU."""
    if taken == "cuda" or (asked == "auto" and any_of((*args, *kwargs.values()))):
        return adopted((args, dict(kwargs)))
    return args, kwargs


def any_of(arguments: Iterable[Any]) -> bool:
    """Is one of the arguments itself such an array?"""
    return any(map(_is_there, arguments))


def on_host(value: T) -> T:
    """Arguments with copies of such arrays on the host."""
    if not any(map(_is_there, leaves(value, WHOLE))):
        return value
    copies = (np.asarray(Foreign(x) if is_foreign(x) else x) if _is_there(x) else x for x in leaves(value, WHOLE))
    made: T = with_leaves(value, copies, WHOLE)
    return made


def _is_there(x: Any) -> bool:
    return isinstance(x, DeviceArray) or is_foreign(x)


def _any(given: Iterable[Any]) -> bool:
    return any(isinstance(x, DeviceArray) for x in given)


def refuse_for_xla(function: str, given: Iterable[Any]) -> None:
    """UnsupportedError where arrays lie on a GPU, and XLA, which computes what is asked for, does not know them."""
    if _any(given):
        raise UnsupportedError(
            f"{function}: what is asked for here is computed by XLA, and an argument is an array on a GPU that is not "
            "one of JAX",
            cure="pass jax.numpy.from_dlpack(x), or numpy.asarray(x)",
        )


def refuse(function: str, backend: str, given: Iterable[Any]) -> None:
    """BatchError where an array lies on a GPU, and a back end is asked for that does not read it there."""
    if _any(given):
        raise BatchError(
            f"{function}: an argument is an array on a GPU, which backend={backend!r} does not read there; use "
            "backend='cuda', or pass numpy.asarray(x)"
        )
