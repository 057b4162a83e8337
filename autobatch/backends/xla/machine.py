"""The machine that windows run on: its costs measured once (`measure.py`), then read from a file.

A file holds the numbers together with what they were measured on. Where that is something else, or the file is none of
ours, the machine is measured anew and the log says why; a file is never the reason that a call fails.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import logging
import math
import os
import platform
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax

from autobatch.backends.xla.measure import measure
from autobatch.common.cache_files import user_cache_folder
from autobatch.passes.schedule.costs import TYPICAL, MachineCosts

logger = logging.getLogger("autobatch")

FORMAT = 2
"""Counts up whenever the numbers of `MachineCosts` change their meaning."""

LARGEST = 1 << 20
"""Bytes that are read of a file."""

_known: dict[tuple[Path | None, str], MachineCosts] = {}
_lock = threading.Lock()


def machine(setting: str | Path) -> MachineCosts:
    """The costs that the option `window_costs` asks for: the constants of a typical machine, or those of this one from
    the user's cache folder or from another folder. Measured at most once in a process."""
    if setting == "typical":
        return TYPICAL
    folder = Path(setting) if isinstance(setting, Path) else _default_folder()
    identity = identify()
    key = (folder, json.dumps(identity, sort_keys=True))
    with _lock:
        if key not in _known:
            _known[key] = _from_file_or_measured(folder, identity)
        return _known[key]


def identify() -> dict[str, Any]:
    """What measured costs hold for: the processor, how many of its cores XLA may use, its version, the device."""
    device = jax.devices()[0]
    return {
        "format": FORMAT,
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "flags": os.environ.get("XLA_FLAGS", ""),
        "jax": jax.__version__,
        "jaxlib": importlib.metadata.version("jaxlib"),
        "platform": device.platform,
        "device": device.device_kind,
    }


def file_of(folder: Path, identity: Mapping[str, Any]) -> Path:
    """The file for one identity. Machines that share a home have a file each."""
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
    return folder / f"windows-{identity['platform']}-{digest[:16]}.json"


def _default_folder() -> Path | None:
    try:
        return user_cache_folder() / "costs"
    except RuntimeError:
        return None  # a user without a home, as in some containers


def _processor() -> str:
    """The model of the processor: of Linux, where `platform` does not know it, from /proc/cpuinfo."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    found = [line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "CPU part"))]
    return " ".join([platform.machine(), found[0] if found else platform.processor()])


def _from_file_or_measured(folder: Path | None, identity: Mapping[str, Any]) -> MachineCosts:
    path = None if folder is None else file_of(folder, identity)
    if path is not None:
        try:
            return read(path, identity)
        except FileNotFoundError:
            logger.info("measuring what windows cost on this machine, for %s", path)
        except (OSError, ValueError) as error:
            logger.warning("measuring what windows cost on this machine again: %s: %s", path, error)
    made = measure()
    if path is not None:
        write(path, identity, made)
    return made


def read(path: Path, identity: Mapping[str, Any]) -> MachineCosts:
    """The machine that a file describes.

    Raises OSError where it cannot be read, ValueError where it is no such file, or of another machine or version."""
    try:
        text = path.read_bytes()[:LARGEST].decode()
        held = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the file is damaged ({error})") from None
    if not isinstance(held, dict) or not isinstance(held.get("identity"), dict):
        raise ValueError("the file holds something else")
    other = [f"{k} was {held['identity'].get(k)!r}, is {v!r}" for k, v in identity.items()
             if held["identity"].get(k) != v]  # fmt: skip
    if other:
        raise ValueError(f"measured elsewhere ({'; '.join(other)})")
    if held.get("sha256") != _hash(held["identity"], held.get("machine")):
        raise ValueError("the file is damaged (its hash is another)")
    return _machine(held.get("machine"))


def _machine(held: Any) -> MachineCosts:
    """A machine from what a file says of it, every number checked: windows are covered by them."""
    products = held.get("products") if isinstance(held, dict) else None
    if not isinstance(products, list) or not products or not all(isinstance(p, list) and len(p) == 2 for p in products):
        raise ValueError("the file is damaged (no speeds of products)")
    overhead, step, element, expensive = (_positive(held.get(n)) for n in ("overhead", "step", "element", "expensive"))
    speeds = tuple((int(_positive(rows)), _positive(speed)) for rows, speed in products)
    if list(speeds) != sorted(speeds) or speeds[0][0] < 1:
        raise ValueError("the file is damaged (speeds of products out of order)")
    return MachineCosts(overhead, step, element, expensive, speeds)


def _positive(number: Any) -> float:
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not (0 < number < math.inf):
        raise ValueError(f"the file is damaged ({number!r} is not a positive number)")
    return float(number)


def _hash(identity: Any, machine: Any) -> str:
    return hashlib.sha256(json.dumps([identity, machine], sort_keys=True).encode()).hexdigest()


def write(path: Path, identity: Mapping[str, Any], made: MachineCosts) -> None:
    """Keep a measured machine: whole or not at all, whatever other processes write meanwhile. Where nothing can be
    written, the next process measures again."""
    held = {"identity": dict(identity), "machine": asdict(made)}
    text = json.dumps({**held, "sha256": _hash(**held)}, indent=1)
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".tmp", delete=False, encoding="utf-8") as file:
            temporary = Path(file.name)
            file.write(text)
        temporary.replace(path)
    except OSError as error:
        logger.info("what windows cost on this machine is not kept: %s", error)
        if temporary is not None:
            temporary.unlink(missing_ok=True)
