"""What programs are compiled for: the processor of this machine, or a device that is not here.

    cpu                    this machine
    tpu:v5e                one core of a TPU, by libtpu, which needs no TPU for that
    cuda:h100              a GPU, by JAX's plugin for CUDA, which is told what the GPU is like
    tpu, cuda              the device of that kind that this machine has

A program for another platform calls no machine code of ours, and decides nothing by what was measured on this one.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax
from jax.experimental import topologies

from autobatch.errors import TargetError

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
