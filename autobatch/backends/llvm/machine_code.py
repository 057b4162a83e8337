"""Text of LLVM IR as machine code for this machine, in memory and known to XLA.

It is compiled by llvmlite once, and kept as an object file in the user's cache folder under the name that XLA knows it
by, which holds a hash of its text and of the processor. So an executable that XLA has kept runs only with the code that
it was compiled for, and a later process loads no compiler.
"""

from __future__ import annotations

import hashlib
import importlib
import logging
import platform
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax

from autobatch.backends.llvm.ffi import HANDLER, INTERFACE, capsule
from autobatch.backends.llvm.link import Code, LinkError, link
from autobatch.backends.llvm.processor import defined
from autobatch.backends.llvm.targets import AVX2, BY_WIDTH, GATHERS, ProcessorTarget, of_flags
from autobatch.common import cache_files
from autobatch.common.cache_files import user_cache_folder
from autobatch.common.stages import stage
from autobatch.source import Span

logger = logging.getLogger("autobatch")

BUILD = {"reloc": "pic", "codemodel": "small"}
"""How the code reaches what belongs to it: as `link.py` expects."""


LONG = 3000
"""Lines of a text from which on LLVM runs few passes: those of its level 2 take ten times as long on what is
straight-line arithmetic in vectors, which they make no faster (the function of benchmarks.startup: by less than 2 %;
registers are still chosen with care, without which it takes twice the time)."""
STRAIGHT = 20
"""Lines that such a text has at least for each jump. (With one in seven few passes cost a third of the speed: of the
ray tracer of benchmarks.simd.)"""
IN_VECTORS = "llvm.loop.vectorize.width"
"""What a text holds that has loops for LLVM to make vectors of."""


class RefusedError(Exception):
    """There is no machine code for that, and why; for which operation and for which line, where that is known."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        self.operation: str | None = None
        self.span: Span | None = None

    def __str__(self) -> str:
        return f"{self.operation}: {self.reason}" if self.operation else self.reason


class UnavailableError(Exception):
    """There is no kernel here, and why."""


@dataclass(frozen=True)
class Host:
    """The processor: what tells it from others, and what kind it is."""

    identity: str
    target: ProcessorTarget

    @property
    def bits(self) -> int:
        """Of a vector register."""
        return self.target.bits


lock = threading.RLock()
"""Of whoever makes code known."""
_kept: list[Code] = []
"""Machine code lives as long as the process: XLA keeps its address."""
_known: set[str] = set()
"""Targets that XLA knows."""


@cache
def _llvm() -> Any:
    try:
        llvm = importlib.import_module("llvmlite.binding")
    except ImportError as error:
        raise UnavailableError(f"llvmlite cannot be imported ({error}); pip install 'autobatch[native]'") from None
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm


_asked: ContextVar[Host | None] = ContextVar("written for", default=None)


@contextmanager
def written_for(target: ProcessorTarget) -> Iterator[None]:
    """Inside, texts are written for another kind of processor than the one that we run on."""
    token = _asked.set(Host(target.name, target))
    try:
        yield
    finally:
        _asked.reset(token)


def host() -> Host:
    """The processor that code is written for, the one that we run on; UnavailableError where there is no code for
    it."""
    return _asked.get() or _own_host()


def is_written_for_others() -> bool:
    """Are texts written for no process of this machine?"""
    return _asked.get() is not None


@cache
def _own_host() -> Host:
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise UnavailableError(f"it is for Linux on x86-64, not for {sys.platform} on {platform.machine()}")
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise UnavailableError(f"the processor is not known: {error}") from error
    identity = dict.fromkeys(line for line in lines if line.startswith(("model name", "flags")))
    found = of_flags({word for line in identity for word in line.split()})
    if found is None:
        raise UnavailableError(f"the processor is none of {', '.join(t.name for t in BY_WIDTH)}")
    return Host("\n".join(identity), found)


def target_name(stem: str, text: str) -> str:
    """What XLA knows some code by."""
    whole = defined(text, host().target)
    digest = hashlib.sha256("\n".join([whole, host().identity, *BUILD.values()]).encode()).hexdigest()[:16]
    return f"autobatch_{stem}_{digest}"


def is_known(target: str) -> bool:
    return target in _known


def make_known(target: str, address: int) -> None:
    """Tell XLA the address of a handler."""
    try:
        jax.ffi.register_ffi_target(target, capsule(address), platform="cpu", api_version=INTERFACE)
    except Exception as error:  # whatever XLA has against it, its own operations remain
        raise UnavailableError(f"XLA does not take the kernel: {error}") from error
    _known.add(target)


def registered_text(
    stem: str, text: str, outside: Mapping[str, int] = MappingProxyType({}), vectorize: bool = False
) -> str:
    """The target of a module's handler, compiled and made known to XLA; UnavailableError where that cannot be."""
    with lock:
        name = target_name(stem, text)
        if name not in _known:
            make_known(name, load(name, text, (HANDLER,), outside, vectorize).functions[HANDLER])
        return name


def load(
    name: str,
    text: str,
    functions: Sequence[str],
    outside: Mapping[str, int] = MappingProxyType({}),
    vectorize: bool = False,
) -> Code:
    """The code of a module, compiled now or before. `outside`: functions that it calls; `vectorize`: its loops are for
    LLVM to make vectors of."""
    code = _load(name, text, functions, outside, vectorize)
    _kept.append(code)
    return code


def unkept(text: str, functions: Sequence[str], outside: Mapping[str, int]) -> Code:
    """The code of a module for this process alone."""
    code = link(compile_object(text), functions, outside)
    _kept.append(code)
    return code


def held(name: str, functions: Sequence[str], outside: Mapping[str, int]) -> Code | None:
    """The code that an earlier `load` has kept under this name; None where there is none."""
    content = cache_files.read(_object_path(name))
    if content is None:
        return None
    try:
        code = link(content, functions, outside)
    except LinkError as error:
        logger.info("the kept object %s is not usable: %s", name, error)
        return None
    _kept.append(code)
    return code


def _load(name: str, text: str, functions: Sequence[str], outside: Mapping[str, int], vectorize: bool) -> Code:
    path = _object_path(name)
    held = cache_files.read(path)
    if held is not None:
        try:
            return link(held, functions, outside)
        except LinkError as error:
            logger.warning("the kept object %s is not usable (%s): compiled again", path, error)
    made = compile_object(text, vectorize)
    cache_files.write(path, made)
    try:
        return link(made, functions, outside)
    except LinkError as error:
        raise UnavailableError(f"what LLVM makes cannot be linked: {error}") from error


def compile_object(text: str, vectorize: bool = False, target: ProcessorTarget | None = None) -> bytes:
    """Machine code of a module, for this machine or for the least of a kind."""
    with stage("LLVM: optimise"):
        machine, parsed = _optimized(text, vectorize, target)
    with stage("LLVM: generate code"):
        return bytes(machine.emit_object(parsed))


def assembly(text: str, vectorize: bool = False, target: ProcessorTarget | None = None) -> str:
    """The same for people."""
    machine, parsed = _optimized(text, vectorize, target)
    return str(machine.emit_assembly(parsed))


def _machine(target: ProcessorTarget | None, level: int = 3) -> Any:
    llvm = _llvm()
    if target is None:
        features = llvm.get_host_cpu_features().flatten() + ",-prefer-256-bit"
        if host().target is AVX2:
            features += f",{GATHERS}"
        return llvm.Target.from_default_triple().create_target_machine(
            cpu=llvm.get_host_cpu_name(), features=features, opt=level, **BUILD
        )
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    made = llvm.Target.from_triple(target.triple)
    return made.create_target_machine(cpu=target.cpu, features=target.features, opt=level, **BUILD)


def _optimized(text: str, vectorize: bool, kind: ProcessorTarget | None) -> tuple[Any, Any]:
    llvm, is_long = _llvm(), is_straight(text)
    target = _machine(kind, 1 if is_long else 3)
    parsed = llvm.parse_assembly(defined(text, kind or host().target))
    parsed.verify()
    if is_long:
        _shortly(llvm, parsed, target)
        return target, parsed
    tuning = llvm.create_pipeline_tuning_options(speed_level=2)
    tuning.slp_vectorization = False
    tuning.loop_unrolling = tuning.loop_vectorization = vectorize  # else it is written as wanted
    passes = llvm.create_pass_builder(target, tuning)
    passes.getModulePassManager().run(parsed, passes)
    return target, parsed


def is_straight(text: str) -> bool:
    """Is it long, and nearly without jumps and loops, so that few passes do?"""
    lines, jumps = text.count("\n"), text.count("\n  br ")
    return lines > LONG and STRAIGHT * jumps < lines and IN_VECTORS not in text


def _shortly(llvm: Any, parsed: Any, target: Any) -> None:
    """What a module of many instructions needs that is written in vectors already, and nothing twice: variables as
    registers, and no constants that loops carry."""
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_sroa_pass()
    passes.add_simplify_cfg_pass()
    passes.add_sccp_pass()
    passes.add_dead_code_elimination_pass()
    passes.run(parsed, llvm.create_pass_builder(target, llvm.create_pipeline_tuning_options(speed_level=2)))


# ---- objects between runs of Python


def kept(stem: str, text: str, suffix: str, make: Callable[[], bytes]) -> bytes:
    """What `make` makes of a module, for whichever machine: read from the cache where it was made before."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    path = _object_path(f"autobatch_{stem}_{digest}", suffix)
    found = cache_files.read(path)
    if found is None:
        found = make()
        cache_files.write(path, found)
    return found


def _object_path(name: str, suffix: str = ".o") -> Path | None:
    if not cache_files.is_name(name):
        raise ValueError(f"{name!r} is no name of a file")
    try:
        return user_cache_folder() / "kernels" / f"{name}{suffix}"
    except RuntimeError:
        return None  # a user without a home
