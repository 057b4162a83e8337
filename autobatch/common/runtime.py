"""Where programs run: this process, or a device that they are compiled for; what is compiled, and how long it takes.

Ctrl-C while XLA computes: Python hears a signal in its main thread alone, and not while that is inside of XLA.

XLA's client for processors runs a program in threads of its own, and gives back arrays that are not there yet, unless
it takes the program for cheap: then it runs in the thread that calls it. A loop counts for one turn there, whatever its
turns are. So programs with data-dependent loops are given something to compute (`not_cheap`), and the main
thread waits for them in Python (`until_ready`). Ctrl-C raises KeyboardInterrupt there; what XLA has begun it ends, in
its own threads, and nobody reads it.

While something is compiled a line says so on stderr:

    compiling similarity: XLA [00:07]

It is there after two seconds, on a terminal; `ab.options(progress=True)` shows it anywhere, False nowhere. It goes when
the compilation ends. The seconds are kept in any case: `f.timings()`.

Programs are compiled for the processor of this machine, or for a device that is not here:

    cpu                    this machine
    tpu:v5e                one core of a TPU, by libtpu, which needs no TPU for that
    cuda:h100              a GPU, by JAX's plugin for CUDA, which is told what the GPU is like
    tpu, cuda              the device of that kind that this machine has

A program for another platform calls no machine code of ours, and decides nothing by what was measured on this one.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import importlib.util
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, lru_cache, wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
from jax.experimental import topologies
from tqdm import tqdm

from autobatch.errors import TargetError

# ---- the process


CHEAP = 1024
"""XLA takes a program of fewer operations for cheap."""
SHORTEST, LONGEST = 20e-6, 1e-3
"""Seconds between two looks."""


def not_cheap(status: Any) -> Any:
    """int32[B] as it is, where a processor computes behind so many operations that XLA does not know the result of: no
    status is negative. A GPU is never waited for in a call."""
    if jax.default_backend() != "cpu":
        return status
    numbers = jnp.arange(CHEAP, dtype=jnp.float32) * jnp.asarray(status[0], jnp.float32)
    return status + jnp.sum(numbers < 0, dtype=status.dtype)


def until_ready(found: Any) -> Any:
    """What was computed, when it is there."""
    arrays: list[Any] = [x for x in jax.tree.leaves(found) if hasattr(x, "is_ready")]
    traced = any(isinstance(x, jax.core.Tracer) for x in arrays)
    if threading.current_thread() is threading.main_thread() and not traced:
        pause = SHORTEST
        while not all(x.is_ready() for x in arrays):
            time.sleep(pause)
            pause = min(2 * pause, LONGEST)
    return found


# ---- collecting
#
# Python's garbage collection, put off while a program is compiled, and while examples are traced.
#
# Both make a great many small objects, nearly all of which are in no cycle: Python looks through them again and again,
# and through everything that JAX has in memory, for a fifth of the time that a compilation takes.


P = ParamSpec("P")
R = TypeVar("R")


def collecting_later(run: Callable[P, R]) -> Callable[P, R]:
    """The same function, during which no garbage is collected that is in cycles. Threads may run it side by side: then
    it is collected from the end of the first on."""

    @wraps(run)
    def quietly(*args: P.args, **kwargs: P.kwargs) -> R:
        if not gc.isenabled():
            return run(*args, **kwargs)
        gc.disable()
        try:
            return run(*args, **kwargs)
        finally:
            gc.enable()

    return quietly


# ---- host memory
#
# Memory of the host that computations free and take again, and the C library between.


ARENAS, MAPPED_BLOCKS, TRIMMED, PADDED = -8, -4, -1, -2
"""Parameters of `mallopt` (malloc.h of glibc)."""


def keep_memory() -> bool:
    """Keep the memory that computations on the CPU free for those that follow, instead of giving it back.

    XLA takes the working memory of a call in one block and frees it behind the call. The C library of Linux returns a
    block of that size to the system, which clears every page of it in the next call: a fifth to a third of the time of
    a gradient of some hundred trees. Call this once in a program, before JAX computes anything: memory of threads that
    run by then is given back as before. From then on the process holds as much as it has needed at once, whoever in it
    asked for memory. The same from outside: `MALLOC_ARENA_MAX=1 MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=2147483647`.

    Returns:
        Whether the C library has such settings: glibc has, others have not, and nothing changes there.

    Example:
        >>> import autobatch as ab
        >>> keeps = ab.keep_memory()
    """
    try:
        set_parameter = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    wanted = {ARENAS: 1, MAPPED_BLOCKS: 0, TRIMMED: 2**31 - 1, PADDED: 2**26}
    taken = [set_parameter(number, value) == 1 for number, value in wanted.items()]
    return all(taken)


# ---- memory
#
# How much there is for arrays, where JAX computes by default.


CONTAINER = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""Where Linux tells a container its limit: cgroups of version 2 and 1."""


def memory_limit() -> int:
    """The bytes that arrays can take at most; a very large number where nobody says."""
    return _limit(jax.devices()[0])


@lru_cache(maxsize=8)
def _limit(device: jax.Device) -> int:
    if device.platform == "cpu":
        return min([_physical(), *filter(None, map(_container, CONTAINER))])
    statistics = device.memory_stats() or {}
    return int(statistics.get("bytes_limit", sys.maxsize))


def _physical() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return sys.maxsize  # a system that does not say


def _container(path: Path) -> int | None:
    try:
        text = path.read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None


# ---- stages


DELAY = 2.0
"""Seconds before there is a line."""

STEP = 0.5
"""Seconds after which it is written anew."""

OTHER = "everything else"
"""What a compilation spends outside of its stages."""

OF_JAX = {
    "/jax/core/compile/jaxpr_trace_duration": "JAX: trace",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "JAX: lower to MLIR",
    "/jax/core/compile/backend_compile_duration": "XLA: compile",
}
"""Stages that JAX measures itself: its events (`jax.monitoring`)."""


@dataclass
class StageTime:
    """How often a stage ran, and for how many seconds in all, those of stages inside it left out."""

    seconds: float = 0.0
    count: int = 0


@dataclass
class Timings:
    """What compiling a function has taken, by stage, in the order in which these first ended.

    `stages`: the seconds of each, without those of stages inside it, and how often it ran. `str` shows a table.
    """

    name: str
    stages: dict[str, StageTime] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Of all stages together."""
        return sum(s.seconds for s in self.stages.values())

    @property
    def data(self) -> dict[str, Any]:
        """The same as plain data."""
        stages = {name: {"seconds": s.seconds, "count": s.count} for name, s in self.stages.items()}
        return {"function": self.name, "seconds": self.seconds, "stages": stages}

    def __str__(self) -> str:
        total = self.seconds
        lines = [f"compiling {self.name}: {total:.3f} s"]
        for name, stage in self.stages.items():
            part = stage.seconds / total if total else 0.0
            times = f"  {stage.count} times" if stage.count > 1 else ""
            lines.append(f"  {name:<32}{stage.seconds:9.4f} s {part:6.1%}{times}")
        return "\n".join(lines)

    def add(self, name: str, seconds: float) -> None:
        held = self.stages.setdefault(name, StageTime())
        held.seconds += seconds
        held.count += 1


class _Clock:
    """Adds what ends to the timings of a compilation: each moment belongs to the innermost stage."""

    def __init__(self, timings: Timings) -> None:
        self.timings = timings
        self._ended: list[tuple[float, float]] = []
        """When stages began that ended, and how long each was: those that no later one contains."""

    def end(self, name: str, begin: float, seconds: float) -> None:
        inside = 0.0
        while self._ended and self._ended[-1][0] >= begin:
            inside += self._ended.pop()[1]
        self._ended.append((begin, seconds))
        self.timings.add(name, max(seconds - inside, 0.0))


class _Line(threading.Thread):
    """The line of one compilation: a thread that waits for its end, and writes meanwhile."""

    def __init__(self, name: str) -> None:
        super().__init__(name="autobatch progress", daemon=True)
        self.words, self.stage, self._ended = name, "", threading.Event()

    def run(self) -> None:
        if self._ended.wait(DELAY):
            return
        with tqdm(desc=self.text, bar_format="{desc} [{elapsed}]", file=sys.stderr, leave=False) as shown:
            while not self._ended.wait(STEP):
                shown.set_description_str(self.text)

    @property
    def text(self) -> str:
        return f"compiling {self.words}: {self.stage}"

    def end(self) -> None:
        self._ended.set()
        self.join()


class _Now(threading.local):
    line: _Line | None = None
    clock: _Clock | None = None


_now = _Now()


@contextmanager
def compiling(name: str, first: str, wanted: str | bool, timings: Timings) -> Iterator[None]:
    """Inside, something is compiled, at the stage `first`. `wanted`: the option `progress`. Within another compilation,
    a stage of that."""
    if _now.clock is not None:
        with stage(first):
            yield
        return
    _listen()
    _now.clock = _Clock(timings)
    silent = wanted is False or (wanted == "auto" and not (sys.stderr and sys.stderr.isatty()))
    line = _now.line = None if silent else _Line(name)
    if line is not None:
        line.start()
    begin = time.perf_counter()
    try:
        with stage(first):
            yield
    finally:
        _now.clock.end(OTHER, begin, time.perf_counter() - begin)
        _now.clock = _now.line = None
        if line is not None:
            line.end()


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Inside, what this thread compiles is at a stage."""
    line, clock = _now.line, _now.clock
    before = line.stage if line is not None else ""
    if line is not None:
        line.stage = name
    begin = time.perf_counter()
    try:
        yield
    finally:
        if clock is not None:
            clock.end(name, begin, time.perf_counter() - begin)
        if line is not None:
            line.stage = before


@cache
def _listen() -> None:
    """Stages of JAX are those of the compilation during which they end."""
    jax.monitoring.register_event_duration_secs_listener(_ended_in_jax)


def _ended_in_jax(event: str, duration_secs: float, **_: str | int) -> None:
    if _now.clock is not None and event in OF_JAX:
        _now.clock.end(OF_JAX[event], time.perf_counter() - duration_secs, duration_secs)


# ---- devices


PORTABLE = "portable"
"""The platform of programs that are for several: none of them has anything to itself."""

_made_for: Any = jax.make_user_context(None)
"""The platform that programs are made for, where that is not this machine's: a part of the key of `jax.jit`."""


@contextmanager
def made_for(platform: str) -> Iterator[None]:
    """Inside, programs are traced and lowered for another platform than this machine's."""
    with _made_for(platform):
        yield


def platform() -> str:
    """The platform that a program which is traced now will run on."""
    made: str | None = _made_for.value
    return made or jax.default_backend()


def is_for_here() -> bool:
    """Will a program that is traced now run in this process, so that it may call machine code of ours, and Python?"""
    return _made_for.value in (None, "cpu")


@dataclass(frozen=True)
class Target:
    """A device to compile for. `is_here`: it can run what is compiled."""

    name: str
    platform: str
    device: jax.Device
    is_here: bool

    @property
    def sharding(self) -> jax.sharding.Sharding:
        return jax.sharding.SingleDeviceSharding(self.device)

    def shapes(self, tree: Any) -> Any:
        """Arrays as they will lie on the device."""
        return jax.tree.map(self._shape, tree)

    def made(self, lowered: jax.stages.Lowered) -> jax.stages.Compiled:
        """What XLA makes of a program that was lowered for the device. Raises TargetError where it cannot."""
        try:
            return lowered.compile()
        except jax.errors.JaxRuntimeError as error:
            raise TargetError(f"XLA does not compile this program for {self.name}: {_first_line(error)}") from error

    def _shape(self, x: Any) -> jax.ShapeDtypeStruct:
        aval = jax.typeof(x)
        return jax.ShapeDtypeStruct(aval.shape, aval.dtype, sharding=self.sharding, weak_type=aval.weak_type)


TPUS = {
    "v2": "v2:2x2",
    "v3": "v3:2x2",
    "v4": "v4:2x2x1",
    "v5e": "v5e:2x2",
    "v5p": "v5p:2x2x1",
    "v6e": "v6e:2x2",
    "v7x": "tpu7x:2x2x1",
}
"""Generations of TPUs, and the least topology of each that all versions of libtpu know: the chips of one host, of which
a program takes one core."""


@dataclass(frozen=True)
class Gpu:
    """What NVIDIA says of a GPU: compute capability, multiprocessors and what one has (float32 units, bytes of shared
    memory and how many of them a block can ask for), bytes of memory a second, of cache and of memory, clock in GHz."""

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    units: int
    shared: int
    shared_by_block: int
    bandwidth: int
    cache: int
    memory: int
    clock: float

    def config(self) -> str:
        """The same as XLA reads it: `GpuTargetConfigProto` of `xla/stream_executor/device_description.proto`, as text.
        What all these GPUs have in common is from the CUDA programming guide, "Technical Specifications per Compute
        Capability"."""
        major, minor = self.capability
        return f"""
gpu_device_info {{
  cuda_compute_capability {{ major: {major} minor: {minor} }}
  threads_per_warp: 32 threads_per_block_limit: 1024 threads_per_core_limit: 2048
  thread_dim_limit_x: 1024 thread_dim_limit_y: 1024 thread_dim_limit_z: 64
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
  shared_memory_per_block: 49152
  shared_memory_per_core: {self.shared} shared_memory_per_block_optin: {self.shared_by_block}
  core_count: {self.multiprocessors} fpus_per_core: {self.units} clock_rate_ghz: {self.clock}
  memory_bandwidth: {self.bandwidth} l2_cache_size: {self.cache} device_memory_size: {self.memory}
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 8 }}
device_description_str: "{self.name}"
"""


_KIB, _MIB, _GIB, _GB = 2**10, 2**20, 2**30, 10**9
GPUS = {
    "a100": Gpu("A100 80GB", (8, 0), 108, 64, 164 * _KIB, 163 * _KIB, 2039 * _GB, 40 * _MIB, 80 * _GIB, 1.41),
    "h100": Gpu("H100 SXM 80GB", (9, 0), 132, 128, 228 * _KIB, 227 * _KIB, 3352 * _GB, 50 * _MIB, 80 * _GIB, 1.98),
    "h200": Gpu("H200 141GB", (9, 0), 132, 128, 228 * _KIB, 227 * _KIB, 4800 * _GB, 50 * _MIB, 141 * _GB, 1.98),
    "b200": Gpu("B200 180GB", (10, 0), 148, 128, 228 * _KIB, 227 * _KIB, 7672 * _GB, 126 * _MIB, 180 * _GB, 1.965),
}


def target(name: str) -> Target:
    """The device of a name as above.

    Raises TargetError for a name that means nothing, and where there is nothing to compile for the device with."""
    kind, _, model = name.partition(":") if isinstance(name, str) else ("", "", "")
    if kind not in ("cpu", "tpu", "cuda") or (kind == "cpu" and model):
        raise TargetError(f"target={name!r} is not known; it is {_known()}")
    if not model:
        return _here(kind)
    return _tpu(name, model) if kind == "tpu" else _gpu(name, model)


def _known() -> str:
    every = ["cpu", "tpu", "cuda", *(f"tpu:{m}" for m in TPUS), *(f"cuda:{m}" for m in GPUS)]
    return f"{', '.join(map(repr, every[:-1]))} or {every[-1]!r}"


def _here(kind: str) -> Target:
    try:
        return Target(kind, kind, jax.devices(kind)[0], True)
    except RuntimeError as error:
        models = [f"{kind}:{m}" for m in (TPUS if kind == "tpu" else GPUS)]
        reason = str(error).splitlines()[0]
        raise TargetError(
            f"target={kind!r}: JAX finds no such device on this machine ({reason}); name the one to compile for: "
            f"{', '.join(map(repr, models))}"
        ) from None


def _tpu(name: str, model: str) -> Target:
    if model not in TPUS:
        raise TargetError(f"target={name!r}: no such TPU is known; known are {_listed('tpu', TPUS)}")
    if importlib.util.find_spec("libtpu") is None:
        raise TargetError(
            f"target={name!r}: the compiler for TPUs is not installed: pip install 'autobatch[tpu]'; no TPU is needed"
        )
    # No TPU is opened here, so another process that has loaded libtpu is none in the way. Where JAX has loaded it
    # before, it is too late for this to be read, and it must be set outside.
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
    try:
        found = topologies.get_topology_desc(TPUS[model], platform="tpu")
    except Exception as error:
        raise TargetError(
            f"target={name!r}: libtpu knows nothing of it, or cannot be loaded: {_first_line(error)}; where another "
            "process uses libtpu, set ALLOW_MULTIPLE_LIBTPU_LOAD=1 before JAX starts"
        ) from error
    return Target(name, "tpu", found.devices[0], False)


PLUGINS = ("jax_plugins.xla_cuda13", "jax_plugins.xla_cuda12")


def _gpu(name: str, model: str) -> Target:
    if model not in GPUS:
        raise TargetError(f"target={name!r}: no such GPU is known; known are {_listed('cuda', GPUS)}")
    asked = {"target_config": GPUS[model].config(), "topology": "1x1x1"}
    try:
        found = topologies.get_topology_desc("", platform="cuda", **asked)
    except NotImplementedError:
        _start_plugin(name)
        found = topologies.get_topology_desc("", platform="cuda", **asked)
    return Target(name, "cuda", found.devices[0], False)


def _start_plugin(name: str) -> None:
    """JAX starts its plugin for CUDA where it finds a GPU and all libraries; to compile, it needs neither."""
    plugins = [p for p in PLUGINS if _is_installed(p)]
    if not plugins:
        raise TargetError(
            f"target={name!r}: JAX's compiler for GPUs is not installed: pip install 'jax[cuda13]', or "
            "'jax[cuda13-local]' without NVIDIA's libraries; no GPU is needed"
        )
    os.environ.setdefault("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1")
    try:
        importlib.import_module(plugins[0]).initialize()
    except Exception as error:
        raise TargetError(f"target={name!r}: {plugins[0]} cannot be started: {_first_line(error)}") from error


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _listed(kind: str, models: dict[str, Any]) -> str:
    return ", ".join(f"{kind}:{m}" for m in models)


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
