"""The kernels as machine code for this machine, registered with XLA.

They are compiled by llvmlite once, and kept as object files in the user's cache folder under the name that XLA knows
them by: a hash of their text, of the machine's vectors and of LLVM's version. So an executable that XLA has kept runs
only with the kernel that it was compiled for.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import logging
import os
import tempfile
import threading
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jax

from autobatch.backends.xla.products.handler import HANDLER, module
from autobatch.backends.xla.products.kernel import AVX2, AVX512, Kernel, Vectors
from autobatch.options import user_cache_folder

logger = logging.getLogger("autobatch")

INTERFACE = 1
"""XLA's typed foreign function interface, as `jax.ffi.register_ffi_target` numbers it."""


class UnavailableError(Exception):
    """There is no kernel here, and why."""


@dataclass(frozen=True)
class Host:
    """The processor, in LLVM's words."""

    name: str
    features: str
    vectors: Vectors


@dataclass(frozen=True)
class Registered:
    """A kernel that XLA can call, by the name of its target."""

    kernel: Kernel
    target: str


_lock = threading.Lock()
_engines: list[Any] = []
"""What owns the machine code: for as long as the process lives, as XLA keeps the address."""


@cache
def _llvm() -> Any:
    try:
        llvm = importlib.import_module("llvmlite.binding")
    except ImportError as error:
        raise UnavailableError(f"llvmlite cannot be imported ({error}); pip install 'autobatch[native]'") from None
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm


@cache
def host() -> Host:
    """The processor that we run on; UnavailableError where there is no kernel for it."""
    llvm = _llvm()
    has = llvm.get_host_cpu_features()
    if has.get("avx512f") and has.get("avx512vl"):
        vectors = AVX512
    elif has.get("avx2") and has.get("fma"):
        vectors = AVX2
    else:
        raise UnavailableError(f"the processor ({llvm.get_host_cpu_name()}) has neither AVX-512 nor AVX2 with FMA")
    return Host(llvm.get_host_cpu_name(), has.flatten() + ",-prefer-256-bit", vectors)


@cache
def registered(dtype: str) -> Registered:
    """The kernel for numbers of a type, compiled and made known to XLA; UnavailableError where that cannot be."""
    return register(Kernel(dtype, host().vectors))


def register(kernel: Kernel) -> Registered:
    """Make a kernel known to XLA. Once in a process: XLA keeps the first address that it gets for a name."""
    with _lock:
        target, address = load(kernel)
        try:
            jax.ffi.register_ffi_target(target, _capsule(address), platform="cpu", api_version=INTERFACE)
        except Exception as error:  # whatever XLA has against it, its own products remain
            raise UnavailableError(f"XLA does not take the kernel: {error}") from error
        return Registered(kernel, target)


def _target_name(kernel: Kernel, text: str) -> str:
    llvm, machine = _llvm(), host()
    known = (text, machine.name, machine.features, llvm.llvm_version_info)
    digest = hashlib.sha256(repr(known).encode()).hexdigest()[:16]
    return f"autobatch_product_{kernel.dtype}x{kernel.lanes}_{digest}"


def load(kernel: Kernel) -> tuple[str, int]:
    """The name and the address of a handler, compiled now or before."""
    llvm, machine = _llvm(), host()
    text = module(kernel)
    name = _target_name(kernel, text)
    target = llvm.Target.from_default_triple().create_target_machine(
        cpu=machine.name, features=machine.features, opt=3, reloc="pic", codemodel="jitdefault", jit=True
    )
    path = _object_path(name)
    held = _read(path)
    if held is not None:
        try:
            return name, _link(target, held)
        except RuntimeError as error:
            logger.warning("the kept object %s is not usable (%s): compiled again", path, error)
    made = compile_object(text, target)
    _write(path, made)
    return name, _link(target, made)


def compile_object(text: str, target: Any) -> bytes:
    """Machine code of a module."""
    llvm = _llvm()
    parsed = llvm.parse_assembly(text)
    parsed.verify()
    tuning = llvm.create_pipeline_tuning_options(speed_level=2)
    tuning.loop_unrolling = tuning.loop_vectorization = tuning.slp_vectorization = False  # it is written as wanted
    passes = llvm.create_pass_builder(target, tuning)
    passes.getModulePassManager().run(parsed, passes)
    return bytes(target.emit_object(parsed))


def _link(target: Any, code: bytes) -> int:
    llvm = _llvm()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    address = engine.get_function_address(HANDLER)
    if not address:
        raise RuntimeError("it has no handler")
    _engines.append(engine)
    return int(address)


def _capsule(address: int) -> Any:
    make = ctypes.pythonapi.PyCapsule_New
    make.restype = ctypes.py_object
    make.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return make(address, None, None)


# ---- objects between runs of Python


def _object_path(name: str) -> Path | None:
    try:
        return user_cache_folder() / "kernels" / f"{name}.o"
    except RuntimeError:
        return None  # a user without a home


def _read(path: Path | None) -> bytes | None:
    """The code in a file, which ends with the hash of the rest: a file that was cut off or changed is none."""
    try:
        content = path.read_bytes() if path is not None else b""
    except OSError:
        return None
    code, digest = content[:-32], content[-32:]
    return code if code and hashlib.sha256(code).digest() == digest else None


def _write(path: Path | None, code: bytes) -> None:
    """Put a whole file in place at once; without a cache where there is no room or no right to write."""
    if path is None:
        return
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            temporary = file.name
            file.write(code + hashlib.sha256(code).digest())
        os.replace(temporary, path)
    except OSError as error:
        logger.debug("the kernel is not kept in %s: %s", path, error)
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
