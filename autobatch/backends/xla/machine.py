"""The machine that windows run on: its costs measured once (`machine.py`), then read from a file.

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
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.common.cache import user_cache_folder
from autobatch.passes.costs import TYPICAL, MachineCosts

# ---- measure
#
# What windows cost on this machine: the numbers of `optimize.costs.Machine`, measured where windows run.
#
# One executable holds a `while` loop for each thing to measure. How many turns each of them makes is a run-time value,
# so that all is compiled at once and runs in milliseconds. A turn does what a window does: it reads its rows of an
# index table, gathers them, computes, and writes one slice of a buffer that the loop carries.
#
#     cost of a window = (time of n turns of its loop - time of no turns) / n


PRODUCT_ROWS = (4, 8, 16, 32, 64, 128)
INNER, OUTER = 256, 768
"""The sizes of the products: the matrix of a recurrent cell, which stays in the second cache of a core."""
NARROW, BROAD = (8, 16), (128, 512)
"""Rows and columns: so few that only the fixed cost of a window is left, and so many that it does not matter."""
LINKS = 3
"""The long chain has so many gathers, with a product and an addition behind each."""
CHEAP, EXPENSIVE = 8, 4
"""Additions and products that a broad window makes of each element; hyperbolic tangents on top."""
PLACES = 8
"""Windows begin at so many different rows in turn."""
ROUNDS = 5
"""Every loop is timed so often, in turn. The fastest time counts: whatever else the machine does only adds to it."""
LEAST = 1e-6
"""A difference of two times may come out as nothing, but no cost may (microseconds)."""


@dataclass(frozen=True)
class MeasuredLoop:
    """A loop over windows of `rows` rows and `columns` columns, and how many turns take a fraction of a millisecond.
    `body(rows, buffer, index, weights)` makes the rows that a window writes."""

    rows: int
    columns: int
    turns: int
    body: Callable[[Any, Any, Any, Any], Any]

    def run(self, turns: Any, buffer: Any, table: Any, weights: Any) -> Any:
        """The buffer after so many turns."""

        def step(carry: tuple[Any, Any]) -> tuple[Any, Any]:
            at, held = carry
            place = at % PLACES
            index = jax.lax.dynamic_slice_in_dim(table, place, self.rows, allow_negative_indices=False)
            made = self.body(_rows(held, index)[:, : self.columns], held, index, weights)
            start = (place, jnp.int32(0))
            return at + 1, jax.lax.dynamic_update_slice(held, made, start, allow_negative_indices=False)

        return jax.lax.while_loop(lambda c: c[0] < turns, step, (jnp.int32(0), buffer))[1]


def _rows(array: Any, index: Any) -> Any:
    return array.at[index].get(mode="promise_in_bounds", wrap_negative_indices=False)


def _product(rows: Any, buffer: Any, index: Any, weights: Any) -> Any:
    return rows @ weights


def _short(rows: Any, buffer: Any, index: Any, weights: Any) -> Any:
    return rows * 0.5


def _long(rows: Any, buffer: Any, index: Any, weights: Any) -> Any:
    for k in range(LINKS):
        rows = 0.5 * rows + _rows(buffer, index + k)[:, : rows.shape[1]]
    return rows


def _cheap(rows: Any, buffer: Any, index: Any, weights: Any) -> Any:
    for _ in range(CHEAP // 2):
        rows = rows * 0.5 + 0.25
    return rows


def _expensive(rows: Any, buffer: Any, index: Any, weights: Any) -> Any:
    for _ in range(EXPENSIVE):
        rows = jnp.tanh(rows)
    return _cheap(rows, buffer, index, weights)


LOOPS: Mapping[str, MeasuredLoop] = {
    **{f"product {n}": MeasuredLoop(n, INNER, max(2, 128 // n), _product) for n in PRODUCT_ROWS},
    "short": MeasuredLoop(*NARROW, 200, _short),
    "long": MeasuredLoop(*NARROW, 100, _long),
    "cheap": MeasuredLoop(*BROAD, 16, _cheap),
    "expensive": MeasuredLoop(*BROAD, 8, _expensive),
}


def measure() -> MachineCosts:
    """Measure the machine and the device that JAX computes on by default: well under a second, most of it compiling."""
    with jax.ensure_compile_time_eval():  # the program that asks may be compiled while JAX traces its caller
        return machine_of(_times())


def _times() -> dict[str, float]:
    """Microseconds of one turn of each loop."""
    rows = max(PRODUCT_ROWS) + PLACES + LINKS
    table = jnp.asarray(np.arange(rows) * 5 % (rows - LINKS), jnp.int32)
    buffer = jnp.zeros((rows, OUTER), jnp.float32)
    weights = jnp.asarray(np.random.default_rng(0).normal(0.0, INNER**-0.5, (INNER, OUTER)), jnp.float32)

    def all_loops(turns: Any, buffer: Any, table: Any, weights: Any) -> Any:
        for k, loop in enumerate(LOOPS.values()):
            buffer = loop.run(turns[k], buffer, table, weights)
        return buffer

    none = np.zeros(len(LOOPS), np.int32)
    run = jax.jit(all_loops).lower(none, buffer, table, weights).compile()

    def seconds(turns: Any) -> float:
        start = time.perf_counter()
        jax.block_until_ready(run(turns, buffer, table, weights))
        return time.perf_counter() - start

    counts = {name: jnp.asarray(np.where(np.arange(len(LOOPS)) == k, loop.turns, 0), jnp.int32)
              for k, (name, loop) in enumerate(LOOPS.items())}  # fmt: skip
    idle = jnp.asarray(none)
    best = dict.fromkeys([*LOOPS, ""], float("inf"))
    for _ in range(ROUNDS):
        for name, turns in counts.items():
            best[name] = min(best[name], seconds(turns))
            best[""] = min(best[""], seconds(idle))
    return {name: max(1e6 * (best[name] - best[""]) / loop.turns, LEAST) for name, loop in LOOPS.items()}


def machine_of(turn: Mapping[str, float]) -> MachineCosts:
    """The machine on which one turn of each of `LOOPS` takes so many microseconds.

    A product of more rows can be cut into products of fewer, so it counts as no slower a row than those."""
    step = (turn["long"] - turn["short"]) / (3 * LINKS)
    elements = BROAD[0] * BROAD[1]
    element = (turn["cheap"] - turn["short"]) / elements / (CHEAP + 1)
    expensive = (turn["expensive"] - turn["cheap"]) / elements / EXPENSIVE
    products: list[tuple[int, float]] = []
    for rows in PRODUCT_ROWS:
        spent = max(turn[f"product {rows}"] - turn["short"], LEAST)
        speed = 2 * rows * INNER * OUTER / spent / 1000
        products.append((rows, max(speed, products[-1][1] if products else 0.0)))
    element = max(element, LEAST)
    return MachineCosts(turn["short"], max(step, LEAST), element, max(expensive / element, 1.0), tuple(products))


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
