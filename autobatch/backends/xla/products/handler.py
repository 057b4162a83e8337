"""The function that XLA calls, as LLVM IR: it takes a call frame apart and runs the product.

The layout of the structures is that of `xla/ffi/api/c_api.h`, which jaxlib ships; fields are of 8 bytes or padded to
them. The handler says which version of that interface it was written for, and XLA refuses it where it supports that
version no longer. It keeps no state, allocates nothing and calls nothing, so any number of threads may run it at once.

    arguments   x0: [any, k0], index0: int32[m], x1: [any, k1], index1: int32[m], ..., packed matrix: [panels, k, panel]
    results     out: [m, n], scratch: [tile, room]

An index of no elements stands for rows 0 to m - 1.
"""

from __future__ import annotations

from autobatch.backends.xla.products.kernel import Kernel
from autobatch.backends.xla.products.text import Function

VERSION = (0, 3)
"""Of the foreign function interface: `XLA_FFI_API_MAJOR`, `XLA_FFI_API_MINOR`."""

METADATA = 1
"""`XLA_FFI_Extension_Metadata`: XLA asks for the version instead of running anything."""

# Offsets of fields, in bytes.
FRAME_EXTENSION = 8
FRAME_ARGUMENT_COUNT = 56
FRAME_ARGUMENTS = 72
FRAME_RESULTS = 112
EXTENSION_TYPE = 8
EXTENSION_METADATA = 24
METADATA_MAJOR = 24
METADATA_MINOR = 28
METADATA_TRAITS = 32
BUFFER_DATA = 24
BUFFER_DIMENSIONS = 40

HANDLER = "handler"
"""The name of the function."""


def module(kernel: Kernel) -> str:
    """Everything: the kernel and its handler."""
    return "\n".join([kernel.text(), str(sources()), str(handler(kernel))])


def _buffer(f: Function, buffers: str, number: str | int) -> str:
    return f.load("ptr", buffers, f.mul(str(number), 8))


def _data(f: Function, buffer: str) -> str:
    return f.load("ptr", buffer, BUFFER_DATA)


def _dimension(f: Function, buffer: str, axis: int) -> str:
    return f.load("i64", f.load("ptr", buffer, BUFFER_DIMENSIONS), 8 * axis)


def sources() -> Function:
    """Gather rows first:first+rows of all sources, side by side, into a block of scratch memory."""
    f = Function(
        "internal void @sources(ptr %buffers, i64 %count, i64 %first, i64 %rows, ptr %block) noinline nounwind"
    )
    offset = f.slot(0)
    with f.loop(0, "%count", 1) as number:
        x = _buffer(f, "%buffers", f.mul(number, 2))
        index = _buffer(f, "%buffers", f.add(f.mul(number, 2), 1))
        entries = f.at(_data(f, index), f.mul("%first", 4))
        none = f.let(f"icmp eq i64 {_dimension(f, index, 0)}, 0")
        chosen = f.let(f"select i1 {none}, ptr null, ptr {entries}")
        k, at = _dimension(f, x, 1), f.get(offset)
        operands = f"ptr {_data(f, x)}, ptr {chosen}, i64 %first, i64 %rows, i64 {k}, i64 {at}, ptr %block"
        f.do(f"call void @gather({operands})")
        f.set(offset, f.add(at, k))
    f.do("ret void")
    return f


def handler(kernel: Kernel) -> Function:
    """`XLA_FFI_Handler`: returns no error."""
    f = Function(f"ptr @{HANDLER}(ptr %frame) nounwind")
    extension = f.load("ptr", "%frame", FRAME_EXTENSION)
    f.branch(f.let(f"icmp ne ptr {extension}, null"), "extended", "run")
    f.block("extended", falls=False)
    kind = f.load("i32", extension, EXTENSION_TYPE, 4)
    f.branch(f.let(f"icmp eq i32 {kind}, {METADATA}"), "metadata", "run")
    f.block("metadata", falls=False)
    metadata = f.load("ptr", extension, EXTENSION_METADATA)
    for place, value in ((METADATA_MAJOR, VERSION[0]), (METADATA_MINOR, VERSION[1]), (METADATA_TRAITS, 0)):
        f.do(f"store i32 {value}, ptr {f.at(metadata, place)}, align 4")
    f.do("ret ptr null")
    f.block("run", falls=False)
    arguments, results = f.load("ptr", "%frame", FRAME_ARGUMENTS), f.load("ptr", "%frame", FRAME_RESULTS)
    count = f.sub(f.load("i64", "%frame", FRAME_ARGUMENT_COUNT), 1)
    packed, out, scratch = _buffer(f, arguments, count), _buffer(f, results, 0), _buffer(f, results, 1)
    pairs = f.let(f"udiv i64 {count}, 2")
    sizes = [_dimension(f, out, 0), _dimension(f, out, 1), _dimension(f, packed, 1)]
    sizes += [_dimension(f, scratch, 1), _dimension(f, scratch, 0)]
    pointers = ", ".join(f"ptr {_data(f, b)}" for b in (packed, out, scratch))
    numbers = ", ".join(f"i64 {size}" for size in sizes)
    f.do(f"call void @product(ptr {arguments}, i64 {pairs}, {pointers}, {numbers})")
    f.do("ret ptr null")
    return f
