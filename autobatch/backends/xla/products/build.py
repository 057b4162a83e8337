"""The kernels of products as machine code for this machine, registered with XLA."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from autobatch.backends.llvm import machine_code
from autobatch.backends.llvm.ffi import HANDLER
from autobatch.backends.llvm.link import Code
from autobatch.backends.llvm.machine_code import UnavailableError, host, is_known, lock, make_known, target_name
from autobatch.backends.xla.products.handler import module
from autobatch.backends.xla.products.kernel import AVX2, AVX512, Operation, ProductKernel, VectorRegisters


@dataclass(frozen=True)
class Registered:
    """A kernel that XLA can call, by the name of its target."""

    kernel: ProductKernel
    target: str


_code: dict[ProductKernel, Code] = {}
"""The last that was loaded of each kernel."""
LIBRARY = ("gather", "panels")
"""Functions of the kernel of products that other code calls."""


def vectors() -> VectorRegisters:
    """Those of this machine; UnavailableError where there is no kernel for it."""
    found = {512: AVX512, 256: AVX2}.get(host().bits)
    if found is None:
        raise UnavailableError(f"there is no kernel for {host().target.name}")
    return found


def registered(dtype: str, operation: Operation = "product") -> Registered:
    """The kernel for numbers of a type, compiled and made known to XLA; UnavailableError where that cannot be."""
    return _registered(ProductKernel(dtype, vectors(), operation))


@cache
def _registered(kernel: ProductKernel) -> Registered:
    return register(kernel)


def register(kernel: ProductKernel) -> Registered:
    """Make a kernel known to XLA. Once in a process: XLA keeps the first address that it gets for a name."""
    with lock:
        target, address = load(kernel)
        make_known(target, address)
        return Registered(kernel, target)


def registered_code(stem: str, text: str, dtype: str) -> str:
    """The target of a handler that calls functions of the kernel of products, compiled and made known to XLA;
    UnavailableError where that cannot be. `text`: its module."""
    product = registered(dtype).kernel
    with lock:
        name = target_name(f"{stem}_{product.dtype}x{product.lanes}", "\n".join([text, module(product)]))
        if not is_known(name):
            outside = {f: _code[product].functions[f] for f in LIBRARY}
            make_known(name, machine_code.load(name, text, (HANDLER,), outside).functions[HANDLER])
        return name


def load(kernel: ProductKernel) -> tuple[str, int]:
    """The name and the address of a handler, compiled now or before."""
    text = module(kernel)
    name = target_name(f"{kernel.operation}_{kernel.dtype}x{kernel.lanes}", text)
    functions = (HANDLER, *(LIBRARY if kernel.operation == "product" else ()))
    _code[kernel] = machine_code.load(name, text, functions)
    return name, _code[kernel].functions[HANDLER]
