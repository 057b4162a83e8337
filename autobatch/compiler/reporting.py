"""An error from inside a compiled computation, where JAX's own way is a callback.

A program with a callback of JAX is not kept in the compilation cache, and each call of it goes through Python. On a CPU
a function of ours is called instead, and only where something has failed: it finds what the numbers mean in the call
itself, so a program that was compiled by another process can report too, and hands the error to XLA, which raises it
when the computation ends. On other platforms, and under `jax.vmap`, the callback remains.
"""

from __future__ import annotations

import ctypes
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from typing import Any

import jax
import numpy as np

from autobatch.backends.llvm import machine_code
from autobatch.common import targets
from autobatch.errors import ExampleError, Failure, PlanError, Span
from autobatch.ir import jax_compat
from autobatch.ir.jax_compat import as_one_over_axes
from autobatch.ir.leaf import Site

logger = logging.getLogger("autobatch")

TARGET = "autobatch_report"
"""What XLA knows the function by."""


def failures_of(sites: Sequence[Site], status: Any) -> tuple[Failure, ...]:
    """What the examples failed with whose `status` is not 0: 1 + the position among `sites`."""
    found = np.asarray(status)
    wrong = np.flatnonzero(found).tolist()
    return tuple(Failure(k, (site := sites[int(found[k]) - 1]).kind, site.message, site.span) for k in wrong)


def raise_failures(sites: Sequence[Site], status: Any) -> None:
    """ExampleError where an example has failed."""
    if failures := failures_of(sites, status):
        raise ExampleError(failures)


def raise_words(words: Sequence[str], failed: Any) -> None:
    """PlanError with the words of the first flag that is not 0."""
    for text, wrong in zip(words, np.asarray(failed).tolist(), strict=True):
        if wrong:
            raise PlanError(text)


def report_failures(sites: Sequence[Site], status: Any) -> Any:
    """The same `status`, int[B]; raises `raise_failures` when the computation ends. What is computed of the result
    makes sure that this is not dropped."""
    rows = [[s.kind, s.message, *(getattr(s.span, f.name) for f in fields(Span))] for s in sites]
    return _where_any(json.dumps({"sites": rows}), status.astype(np.int32)).astype(status.dtype)


def report_words(words: Sequence[str], failed: Any) -> Any:
    """The same `failed`, bool[k]; raises `raise_words` when the computation ends."""
    return _where_any(json.dumps({"words": list(words)}), failed.astype(np.int32)) != 0


def _where_any(what: str, numbers: Any) -> Any:
    if not targets.is_for_here():
        return numbers  # nothing of this process is there to be called: the rows that failed are NaN

    def report(numbers: Any) -> Any:
        (found,) = _report.bind(numbers, what=what)
        return found

    return as_one_over_axes(lambda x: jax.lax.cond((x != 0).any(), report, lambda x: x, x), numbers)


def raise_what(what: str, numbers: Any) -> None:
    """The error that numbers mean."""
    held = json.loads(what)
    if "words" in held:
        raise_words(held["words"], numbers)
    else:
        raise_failures([Site(kind, message, Span(*span)) for kind, message, *span in held["sites"]], numbers)


def by_callback(what: str, numbers: Any) -> Any:
    """What JAX has for it."""
    jax.debug.callback(lambda found: raise_what(what, found), numbers)
    return numbers


_report = jax_compat.host_report(TARGET, by_callback)


# ---- the function that XLA calls


def _called(frame: int) -> int | None:
    """`XLA_FFI_Handler`: an error of XLA's, or nothing."""
    try:
        return _handle(frame)
    except Exception as error:  # nothing can be raised into XLA; the computation must not seem to have gone well
        logger.error("what failed cannot be said: %s", error)
        return _error(frame, f"a check failed, and what it was cannot be said: {error}")


_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
_handler = _FUNCTION(_called)
"""XLA keeps its address for as long as the process lives."""


def _handle(frame: int) -> int | None:
    extension = _pointer(frame + machine_code.FRAME_EXTENSION)
    if extension and _integer(extension + machine_code.EXTENSION_TYPE) == machine_code.METADATA:
        metadata = _pointer(extension + machine_code.EXTENSION_METADATA)
        for place, value in (
            (machine_code.METADATA_MAJOR, machine_code.VERSION[0]),
            (machine_code.METADATA_MINOR, machine_code.VERSION[1]),
        ):
            ctypes.c_int32.from_address(metadata + place).value = value
        ctypes.c_int32.from_address(metadata + machine_code.METADATA_TRAITS).value = 0
        return None
    argument = _pointer(_pointer(frame + machine_code.FRAME_ARGUMENTS))
    rows = ctypes.c_int64.from_address(_pointer(argument + machine_code.BUFFER_DIMENSIONS)).value
    numbers = (ctypes.c_int32 * rows).from_address(_pointer(argument + machine_code.BUFFER_DATA))
    try:
        raise_what(dict(_attributes(frame))["what"], np.array(numbers))
    except (ExampleError, PlanError) as error:
        return _error(frame, f"{type(error).__name__}: {error}")
    result = _pointer(_pointer(frame + machine_code.FRAME_RESULTS))
    ctypes.memmove(_pointer(result + machine_code.BUFFER_DATA), numbers, 4 * rows)
    return None


def _pointer(address: int) -> int:
    return ctypes.c_void_p.from_address(address).value or 0


def _integer(address: int) -> int:
    return ctypes.c_int32.from_address(address).value


def _span(address: int) -> str:
    length = ctypes.c_size_t.from_address(address + 8).value
    return ctypes.string_at(_pointer(address), length).decode()


def _attributes(frame: int) -> Iterator[tuple[str, str]]:
    """Names and texts of the attributes of a call."""
    count = ctypes.c_int64.from_address(frame + machine_code.FRAME_ATTRIBUTE_COUNT).value
    names, values = (
        _pointer(frame + machine_code.FRAME_ATTRIBUTE_NAMES),
        _pointer(frame + machine_code.FRAME_ATTRIBUTES),
    )
    for k in range(count):
        yield _span(_pointer(names + 8 * k)), _span(_pointer(values + 8 * k))


class _ErrorArguments(ctypes.Structure):
    """`XLA_FFI_Error_Create_Args`."""

    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("message", ctypes.c_char_p),
        ("code", ctypes.c_int32),
    )


INTERNAL = 13
"""`XLA_FFI_Error_Code_INTERNAL`."""


def _error(frame: int, message: str) -> int | None:
    create: Callable[..., int | None] = _FUNCTION(
        _pointer(_pointer(frame + machine_code.FRAME_API) + machine_code.API_ERROR_CREATE)
    )
    size = _ErrorArguments.code.offset + 4
    given = _ErrorArguments(size, None, message.encode("utf-8", "replace"), INTERNAL)
    return create(ctypes.byref(given))


def register() -> None:
    """Make the function known to XLA."""
    address = ctypes.cast(_handler, ctypes.c_void_p).value
    assert address is not None
    jax.ffi.register_ffi_target(
        TARGET, machine_code.capsule(address), platform="cpu", api_version=machine_code.INTERFACE
    )


register()
