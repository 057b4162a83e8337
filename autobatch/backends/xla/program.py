"""The back end `xla`: equations over rows as one program, with its derivatives, and what windows cost on this machine.

Costs are measured once, then read from a file, which holds the numbers together with what they were measured on. Where
that is something else, or the file is none of ours, the machine is measured anew and the log says why; a file is never
the reason that a call fails.
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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, cast

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.backends.interface import Cost, Declined, Load, Mode, RowEquations, Work
from autobatch.backends.xla.adjoint import AdjointProgram
from autobatch.backends.xla.emit import Emission, ScheduleEmitter
from autobatch.backends.xla.level_tasks import all_by_kernel
from autobatch.backends.xla.row_operations import is_float
from autobatch.backends.xla.rows import rows_read
from autobatch.common.cache import user_cache_folder
from autobatch.common.sparse_rows import SparseRows
from autobatch.data.spec import Signature
from autobatch.errors import UnsupportedError
from autobatch.ir import core
from autobatch.ir.system import Compute, Equation, Variable
from autobatch.options import Options
from autobatch.passes.adjoint import Adjoint, RowCotangents, differentiate
from autobatch.passes.costs import TYPICAL, MachineCosts
from autobatch.passes.derivative_rules import Policy
from autobatch.passes.fission import Recurrence, Schedule, print_schedule
from autobatch.planning.plan import DataPlan

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
            made = self.body(_rows_to_measure(held, index)[:, : self.columns], held, index, weights)
            start = (place, jnp.int32(0))
            return at + 1, jax.lax.dynamic_update_slice(held, made, start, allow_negative_indices=False)

        return jax.lax.while_loop(lambda c: c[0] < turns, step, (jnp.int32(0), buffer))[1]


def _rows_to_measure(array: Any, index: Any) -> Any:
    return array.at[index].get(mode="promise_in_bounds", wrap_negative_indices=False)


def _product(rows: Any, buffer: Any, index: Any, weights: Any) -> Any:
    return rows @ weights


def _short(rows: Any, buffer: Any, index: Any, weights: Any) -> Any:
    return rows * 0.5


def _long(rows: Any, buffer: Any, index: Any, weights: Any) -> Any:
    for k in range(LINKS):
        rows = 0.5 * rows + _rows_to_measure(buffer, index + k)[:, : rows.shape[1]]
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


# ---- costs
#
# What a call of XLA costs: the executable, control flow on computed numbers, and the plan of examples of structure.
#
# The constants are microseconds (`_ns`: nanoseconds), fitted to 402 calls and 242 derivatives by
# `python -m benchmarks.choice.fit`. Control flow costs from 0.2 ms to seconds; the constants are of its cheapest kinds,
# as machine code is the faster one of all.


MANY, LARGE, SHARED, PRODUCTS = 16, 256, 30_000, 200_000
"""Rows from which on a product of many rows is another one, and from which on threads share so many numbers; the
multiplications from which on they share products of fewer rows."""


# ---- the back end


@dataclass(frozen=True)
class XlaConstants:
    """`call`: of one executable. `operation_ns`: those that XLA does not fuse. Of each row: numbers that are made,
    multiplications of products, and products and sorts that each row has for itself (`own`). `dot`: a product of many
    rows. `control`: data-dependent control flow; `inside_ns`: of each row, the multiplications in there. `plan`,
    `plan_row`, `plan_operation_ns`: where lists and objects come with the call, or integers decide a recursion; of each
    row, and of each of its operations. `planned`: where their
    plan is kept; `level`: a loop over them whose steps have no product; `case`: a branch in a recursion. `wake`:
    threads that share the rows. `planned_*`: of examples of structure, numbers and multiplications, as there are few
    iterations, and more of products whose factors each row has for itself (`planned_own_ns`)."""

    call: float
    operation_ns: float
    element_ns: float
    multiplication_ns: float
    own: float
    dot: float
    control: float
    inside_ns: float
    plan: float
    plan_row: float
    plan_operation_ns: float
    planned: float
    level: float
    case: float
    wake: float
    planned_element_ns: float
    planned_multiplication_ns: float
    planned_own_ns: float


VALUES = XlaConstants(
    17.0, 0.62, 0.22, 0.014, 1.3, 7.8, 260.0, 0.28, 7000.0, 0.91, 92.0, 170.0, 2.1, 1.3, 94.0, 0.0057, 0.017, 1.1
)
DERIVATIVES = XlaConstants(
    36.0, 78.0, 1.4, 0.02, 1.3, 16.0, 840.0, 4.4, 5900.0, 10.0, 46.0, 170.0, 320.0, 260.0, 30.0, 0.025, 0.098, 5.2
)

LAUNCH, GPU_CALL, TURNS = 10.0, 80.0, 16
"""On a GPU: of a kernel in a loop, and of a call; iterations that such a loop is taken to have."""

START, OPERATION = 0.3, 5e-4
"""Seconds to compile at least, and for each operation (medians of the same programs)."""
MOST_UNROLLED = 3000
"""Operations from which on loops stay loops."""


def cost(work: Work, load: Load, constants: XlaConstants | None = None) -> Cost:
    """What a call costs."""
    of = constants or (DERIVATIVES if load.derives else VALUES)
    is_planned = work.structured or work.recursions > work.following
    rows, controls = load.rows, work.decided if is_planned else work.loops + work.branches + work.fails
    first = (START + OPERATION * min(work.operations, MOST_UNROLLED)) * (2 if load.derives else 1)
    if load.device == "gpu":
        return Cost(GPU_CALL + LAUNCH * TURNS * min(controls, work.loops), first)
    wakes = not is_planned and work.dots > 0 and rows * work.products > PRODUCTS
    wakes = wakes or (rows > LARGE and (work.dots > 0 or rows * work.elements > SHARED))
    row = of.element_ns * work.elements + of.multiplication_ns * work.multiplications
    if is_planned:
        row = of.planned_element_ns * work.elements + of.planned_multiplication_ns * work.multiplications
        row += of.planned_own_ns * work.own_multiplications
    call = of.call + of.wake * wakes + rows * (1e-3 * row + of.own * work.own)
    if is_planned:
        call += of.planned + of.level * work.loops * (not work.dots) + of.case * work.branches * work.recursions
        call += 0.0 if load.planned else of.plan + (of.plan_row + 1e-3 * of.plan_operation_ns * work.operations) * rows
    else:
        call += 1e-3 * of.operation_ns * work.operations + of.dot * work.dots * (rows > MANY)
    if controls:
        call += of.control + 1e-3 * of.inside_ns * work.inside * rows
    return Cost(call, first)


# ---- differentiable
#
# A program with its derivative, for JAX: `jax.custom_vjp` around the emitted computation.
#
# Nothing is differentiated before a derivative is asked for. The two halves of a derivative, the forward pass that
# keeps residuals and the backward pass that reads them, are programs like the first, and have derivatives in turn: to
# any order. The rule lets no value of an enclosing trace in but by its arguments, so that it works under `jax.jit`,
# `jax.vmap` and `jax.checkpoint`.


class Differentiable:
    """An emitted program that JAX can differentiate. `root` is the schedule that its tables were made for. `by_rows`:
    for `linearised`, where the cotangents of tables that are read by rows are these rows. `cut`: examples that failed
    have no derivative (`passes/adjoint.py`)."""

    def __init__(
        self,
        program: ScheduleEmitter,
        root: Schedule,
        policy: Policy = "save_dots",
        by_rows: bool = False,
        cut: bool = False,
    ) -> None:
        self.program, self.root, self.policy, self.by_rows, self.cut = program, root, policy, by_rows, cut

    @cached_property
    def adjoint(self) -> Adjoint | None:
        """The adjoint; None where nothing that an output depends on can move."""
        program = self.program
        return differentiate(program.schedule, self.root, program.constants, self.policy, self.by_rows, self.cut)

    @cached_property
    def residuals(self) -> tuple[Variable, ...]:
        return self.adjoint.residuals if self.adjoint is not None else ()

    @cached_property
    def keeping(self) -> Differentiable:
        """The program with the residuals of its adjoint as outputs behind its own."""
        system = self.program.schedule.system
        wider = replace(system, outputs=(*system.outputs, *self.residuals))
        program = replace(self.program, schedule=replace(self.program.schedule, system=wider))
        return Differentiable(program, self.root, self.policy, cut=self.cut)

    @cached_property
    def reverse(self) -> Differentiable:
        """The adjoint as a program."""
        assert self.adjoint is not None
        program = self.program
        made = AdjointProgram(
            self.adjoint.schedule, program.request, self.adjoint.constants, program.products, program.loops, self.root
        )
        return Differentiable(made, self.root, self.policy, cut=self.cut)

    def as_text(self) -> str:
        """What the adjoint is handed of the values of the program, and its schedule."""
        if self.adjoint is None:
            return "nothing that can move\n"
        kept = ", ".join(f"{v}: {v.type}" for v in self.residuals)
        return f"residuals, {self.policy}: {kept or 'none'}\n{print_schedule(self.adjoint.schedule)}"

    def run(
        self,
        shared: Sequence[Any],
        tables: Mapping[str, Any],
        signature: Signature,
        handed: Sequence[Any] = (),
        mode: Mode = "reverse",
    ) -> list[Any]:
        """The outputs of the system: arrays over the capacity of their spaces."""
        assert not self.by_rows
        if mode == "forward":
            return self.program.run(shared, tables, signature, handed)
        moving, still = _split(tables)
        inner: Mode = "reverse" if mode == "reverse" else "forward"

        @jax.custom_vjp
        def apply(shared: list[Any], moving: dict[str, Any], handed: list[Any], still: dict[str, Any]) -> list[Any]:
            return self.program.run(shared, {**moving, **still}, signature, handed)

        def forward(shared: list[Any], moving: dict[str, Any], handed: list[Any], still: dict[str, Any]) -> Any:
            found = self.keeping.run(shared, {**moving, **still}, signature, handed, inner)
            count = len(self.program.schedule.system.outputs)
            return found[:count], (found[count:], shared, moving, handed, still)

        def backward(held: Any, cotangents: list[Any]) -> Any:
            kept, shared, moving, handed, still = held
            return *self.pulled(shared, moving, handed, still, signature, kept, cotangents, inner), None

        apply.defvjp(forward, backward)
        outputs: list[Any] = apply([jnp.asarray(x) for x in shared], moving, list(handed), still)
        return outputs

    def pulled(
        self,
        shared: Sequence[Any],
        moving: Mapping[str, Any],
        handed: Sequence[Any],
        still: Mapping[str, Any],
        signature: Signature,
        kept: Sequence[Any],
        cotangents: Sequence[Any],
        mode: Mode,
    ) -> tuple[list[Any], dict[str, Any], list[Any]]:
        """The cotangents of shared inputs, of columns of floats and of what was handed in, from those of the outputs
        and the residuals `kept`."""
        adjoint = self.adjoint
        rows = {} if adjoint is None else adjoint.rows
        of_shared: list[Any] = [
            jnp.zeros_like(x) if is_float(x) and k not in rows else None for k, x in enumerate(shared)
        ]
        of_columns = {name: jnp.zeros_like(x) for name, x in moving.items()}
        of_handed: list[Any] = [jnp.zeros_like(x) if is_float(x) else None for x in handed]
        if adjoint is None:
            return of_shared, of_columns, of_handed
        tables = {**moving, **still}
        given = [*kept, *(cotangents[k] for k in adjoint.seeds)]
        made = self.reverse.run(shared, tables, signature, given, mode)
        assert len(set(adjoint.shared)) == len(adjoint.shared), "each input is one variable"
        found = iter(made)
        for k in adjoint.shared:
            of_shared[k] = next(found).astype(shared[k].dtype)
        for column in adjoint.columns:
            of_columns[column] = next(found).astype(moving[column].dtype)
        for k in adjoint.given:
            of_handed[k] = next(found).astype(handed[k].dtype)
        emission = Emission(self.reverse.program, shared, tables, signature)
        for k, parts in rows.items():
            read = [_rows(emission, part, made) for part in parts]
            indices, values = (jnp.concatenate(xs) if len(xs) > 1 else xs[0] for xs in zip(*read, strict=True))
            of_shared[k] = SparseRows(indices, values.astype(shared[k].dtype), shared[k].shape)
        return of_shared, of_columns, of_handed

    def linearised(
        self, shared: Sequence[Any], tables: Mapping[str, Any], signature: Signature, mode: Mode
    ) -> tuple[list[Any], Callable[[Sequence[Any]], tuple[list[Any], dict[str, Any]]]]:
        """The outputs, and the pullback of their cotangents (of those that are floats; None for others) to shared
        inputs and columns of floats. The pullback is a pytree."""
        inner: Mode = "reverse" if mode == "reverse" else "forward"
        moving, still = _split(tables)
        held = [jnp.asarray(x) for x in shared]
        found = self.keeping.run(held, tables, signature, (), inner)
        count = len(self.program.schedule.system.outputs)
        pull = _Pull(self, signature, inner)
        return found[:count], jax.tree_util.Partial(pull, held, moving, still, found[count:])


@dataclass(frozen=True)
class _Pull:
    """A pullback but for its arrays: what `jax.jit` compares."""

    of: Differentiable
    signature: Signature
    mode: Mode

    def __call__(
        self, shared: Any, moving: Any, still: Any, kept: Any, cotangents: Sequence[Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        of_shared, of_columns, _ = self.of.pulled(
            shared, moving, (), still, self.signature, kept, cotangents, self.mode
        )
        return of_shared, of_columns


def _rows(emission: Emission, part: RowCotangents, outputs: Sequence[Any]) -> tuple[Any, Any]:
    """The indices and rows of a read, of the outputs of an adjoint."""
    indices = [emission.literal(x) if isinstance(x, core.Literal) else outputs[x] for x in part.indices]
    return rows_read(part.of, indices, outputs[part.cotangent], emission.live(part.of), clean=True)


def _split(tables: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Columns of floats, and everything else."""
    moving = {name: jnp.asarray(x) for name, x in tables.items() if is_float(x)}
    return moving, {name: x for name, x in tables.items() if name not in moving}


def window_costs(schedule: Schedule, options: Options) -> MachineCosts:
    """What the covers of levels go by: this machine is measured only where there are levels, and XLA runs them."""
    if options.backend == "interpret" or not any(isinstance(s, Recurrence) for s in schedule.steps):
        return TYPICAL
    if all_by_kernel(schedule, options.loops, options.products, options.widths):
        return TYPICAL
    return machine(options.window_costs)


class XlaProgram:
    """Rows as JAX traces them; what cannot be emitted is refused when it is made."""

    def __init__(self, rows: RowEquations) -> None:
        self.rows = rows
        options = rows.options
        self._emit = ScheduleEmitter(rows.schedule, rows.request, rows.constants, options.products, options.loops)

    @cached_property
    def differentiable(self) -> Differentiable:
        """The program that JAX can differentiate."""
        return self._differentiable(False)

    @cached_property
    def _by_rows(self) -> Differentiable:
        return self._differentiable(True)

    def _differentiable(self, by_rows: bool) -> Differentiable:
        policy = cast(Policy, self.rows.options.residuals)
        return Differentiable(self._emit, self.rows.schedule, policy, by_rows, self.rows.cut)

    def run(
        self,
        shared: Sequence[Any],
        tables: Mapping[str, Any],
        signature: Signature,
        mode: Mode = "reverse",
        plan: DataPlan | None = None,
    ) -> list[Any]:
        """The outputs, for `jax.jit` with `signature` and `mode` static. (The plan is in the tables.)"""
        return self.differentiable.run(shared, tables, signature, mode=mode)

    def gradient(
        self,
        shared: Sequence[Any],
        tables: Mapping[str, Any],
        signature: Signature,
        mode: Mode = "reverse",
        plan: DataPlan | None = None,
    ) -> tuple[list[Any], Callable[[Sequence[Any]], tuple[list[Any], dict[str, Any]]]]:
        """The outputs and their pullback, in which tables that are read by rows have the cotangents of these rows
        (`SparseRows`)."""
        return self._by_rows.linearised(shared, tables, signature, mode)

    @property
    def tables_of_rows(self) -> frozenset[int]:
        """The shared inputs that are read by rows alone."""
        adjoint = self._by_rows.adjoint
        return frozenset() if adjoint is None else frozenset(adjoint.rows)

    @property
    def runs_step_by_step(self) -> bool:
        """Are there loops from whose steps XLA gains nothing: what numbers end, levels without a product, and those for
        which there is no kernel?"""
        schedule, options = self.rows.schedule, self.rows.options
        recurrences = [s for s in schedule.steps if isinstance(s, Recurrence)]
        if not recurrences:
            return schedule.holds_masked_loop
        multiplied = _multiply(e for r in recurrences for t in r.tasks for e in t.equations)
        kernel = multiplied and all_by_kernel(schedule, options.loops, options.products, options.widths)
        return not kernel or schedule.holds_masked_loop


class Xla:
    """Rows of many examples meet in one operation, on the device where JAX computes."""

    name: ClassVar[str] = "xla"

    def accepts(self, source: RowEquations) -> XlaProgram | Declined:
        """The program as it is emitted, which XLA compiles for each size class."""
        try:
            return XlaProgram(source)
        except UnsupportedError as error:
            return Declined(error)

    def cost(self, work: Work, load: Load) -> Cost:
        """See `costs.py`."""
        return cost(work, load)

    def compile(self, taken: XlaProgram) -> XlaProgram:
        """The same: JAX traces it when it is run first."""
        return taken


def _multiply(equations: Iterable[Equation]) -> bool:
    return any(isinstance(e, Compute) and e.op.name == "dot_general" for e in equations)
