"""Does a call take the best back end by default? Each program by XLA, by machine code, and as it is chosen.

`python -m benchmarks.choice [--json FILE] [--rows 1,64,1024] [--rounds N] [--only NAME,NAME] [--first] [--of MODULE]`.
The three take turns, on all cores; so do their derivatives. `regret` is the time of what was chosen over that of the
best one: 1.0 where the choice is right. `--first`: the seconds to the first result too, each in a process of its own,
with no cache. `--of benchmarks.choice.of_examples`: the programs of `examples/`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import jax
from tqdm import tqdm

import autobatch as ab
from autobatch.backends.llvm.machine_code import wait_for_optimised
from autobatch.errors import Error
from benchmarks.choice.programs import Case

WAYS = ("xla", "llvm", "auto")
FLOOR = 1e-5
"""Seconds to which a call is rounded up: differences below are of no use to anybody."""


@dataclass(frozen=True)
class Found:
    """Microseconds a call (medians) and, where they were asked for, seconds to the first one, by what was asked for;
    `taken` is what `auto` took, and `why`; `work`: of one example, where it is machine code (`fit.py`)."""

    name: str
    rows: int
    what: str
    times: Mapping[str, float]
    taken: str = ""
    why: str = ""
    first: Mapping[str, float] = field(default_factory=dict)
    work: Mapping[str, Any] = field(default_factory=dict)

    @property
    def regret(self) -> float:
        return _regret(self.times, 1e6 * FLOOR)

    @property
    def first_regret(self) -> float:
        return _regret(self.first, 0.05)


def _regret(times: Mapping[str, float], floor: float) -> float:
    others = [t for way, t in times.items() if way != "auto"]
    return max(times["auto"], floor) / max(min(others), floor) if "auto" in times and others else float("nan")


Calls = dict[tuple[str, str], Callable[[], Any]]
"""The calls of a case, by what they compute and by whom."""


def ways_of(case: Case, backends: Sequence[str] = WAYS) -> Calls:
    """The calls of a case; "explanation" says what `f.explain` knows of that of a back end."""
    made: Calls = {}
    for backend in backends:
        f = ab.batched(case.function, in_axes=case.in_axes, backend=backend, options={"trace": case.trace})
        given = packed(f, case) if case.packed else case.arguments
        made["value", backend] = partial(f, *given)
        made["explanation", backend] = partial(f.explain, *given)
        made["lowered", backend] = partial(f.lower, *given)
        if case.wrt is not None:
            made["gradient", backend] = partial(ab.value_and_grad(f, argnums=case.wrt), *given)
    return made


def packed(f: Any, case: Case) -> tuple[Any, ...]:
    """The arguments, those that are batched packed together."""
    axes = case.in_axes if isinstance(case.in_axes, tuple) else (case.in_axes,) * len(case.arguments)
    batch = f.pack(*[x for x, axis in zip(case.arguments, axes, strict=True) if axis is not None])
    held = iter(batch.args if axes.count(0) > 1 else (batch,))
    return tuple(x if axis is None else next(held) for x, axis in zip(case.arguments, axes, strict=True))


def started(calls: Calls) -> dict[tuple[str, str], float]:
    """The seconds of the first call of each, without those that are refused."""
    found = {}
    for key, call in calls.items():
        if key[0] not in ("value", "gradient"):
            continue
        begin = time.perf_counter()
        try:
            jax.block_until_ready(call())
        except (Error, NotImplementedError):
            continue
        found[key] = time.perf_counter() - begin
    return found


def measure(case: Case, rows: int, rounds: int, seconds: float) -> list[Found]:
    """All three by turns."""
    made = ways_of(case)
    calls = {key: made[key] for key in started(made)}
    for call in calls.values():
        jax.block_until_ready(call())
    wait_for_optimised()
    taken: dict[tuple[str, str], list[float]] = {key: [] for key in calls}
    for _ in range(rounds):
        for key, call in calls.items():
            begin, count = time.perf_counter(), 0
            while (spent := time.perf_counter() - begin) < seconds or not count:
                jax.block_until_ready(call())
                count += 1
            taken[key].append(1e6 * spent / count)
    backend = made["explanation", "auto"]().data["backend"]
    by_llvm = ("value", "llvm") in calls
    work = asdict(made["lowered", "llvm"]().program.compiled.native.work) if by_llvm else {}
    found = []
    for what in ("value", "gradient"):
        times = {way: statistics.median(t) for (w, way), t in taken.items() if w == what}
        if times:
            found.append(Found(case.name, rows, what, times, backend["taken"], backend["why"], work=work))
    return found


def in_process(case: Case, rows: int, options: argparse.Namespace) -> list[Found]:
    """As `measure`, and first results, each in a process of its own: nothing that one has compiled serves another."""
    shared = ["--rows", str(rows), "--name", case.name, "--of", options.of]
    timing = ["--rounds", str(options.rounds), "--seconds", str(options.seconds)]
    found = [Found(**x) for x in _child([*shared, *timing])]
    for way in WAYS if options.first else ():
        for what, seconds in _child([*shared, "--way", way]).items():
            for one in found:
                if one.what == what:
                    one.first[way] = seconds  # type: ignore[index]
    return found


def _child(arguments: Sequence[str]) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.choice", *arguments]
        environment = {**os.environ, "XDG_CACHE_HOME": folder}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)}: {done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def cases_of(options: argparse.Namespace) -> Callable[[int], Iterable[Case]]:
    return cast("Callable[[int], Iterable[Case]]", import_module(options.of).cases)


def one(name: str, rows: int, options: argparse.Namespace) -> Any:
    """What a child prints."""
    case = next(c for c in cases_of(options)(rows) if c.name == name)
    if not options.way:
        return [asdict(f) for f in measure(case, rows, options.rounds, options.seconds)]
    for backend in (
        "xla",
        "llvm",
    ):  # imports, and what is made once in a process, also of the one that is not asked for
        ready = ab.batched(lambda x, y: x * y + 1.0, backend=backend)
        jax.block_until_ready(ready(jax.numpy.ones(3), jax.numpy.ones(3)))
    return {what: seconds for (what, _), seconds in started(ways_of(case, [options.way])).items()}


def head() -> str:
    times = "".join(f"{way + ' us':>11}" for way in WAYS)
    return f"{'':20}{'rows':>6} {'':9}{times}  {'taken':6}{'regret':>7}   first, s{'':14}regret"


def line(f: Found) -> str:
    times = "".join(f"{f.times[way]:>11.0f}" if way in f.times else f"{'-':>11}" for way in WAYS)
    first = "".join(f"{f.first[way]:>7.2f}" if way in f.first else f"{'-':>7}" for way in WAYS)
    end = f"{first} {f.first_regret:>7.2f}" if f.first else ""
    return f"{f.name:20}{f.rows:>6} {f.what:9}{times}  {f.taken:6}{f.regret:>7.2f}  {end}"


def totals(found: Sequence[Found]) -> str:
    lines = []
    for what, of in (("a call", "regret"), ("the first result", "first_regret")):
        known = [f for f in found if getattr(f, of) == getattr(f, of)]
        if not known:
            continue
        regrets = sorted(getattr(f, of) for f in known)
        worst = max(known, key=lambda f: getattr(f, of))
        above = sum(r > (1.2 if of == "regret" else 1.5) for r in regrets)
        lines.append(
            f"regret of {what}: {statistics.geometric_mean(regrets):.2f} on average, {regrets[-1]:.2f} at worst "
            f"({worst.name}, {worst.rows} rows, {worst.what}); {above} of {len(regrets)} above the target"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.choice", description=__doc__)
    parser.add_argument("--rows", default="64", help="numbers of examples")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.02, help="of each way in each round")
    parser.add_argument("--only", default="", help="parts of the names of the cases to run, with commas between")
    parser.add_argument("--of", default="benchmarks.choice.programs", help="the module whose `cases(rows)` are run")
    parser.add_argument("--first", action="store_true", help="the seconds to first results, too")
    parser.add_argument("--json", type=Path, help="a file for the report")
    parser.add_argument("--name", help=argparse.SUPPRESS)
    parser.add_argument("--way", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.name:
        print(json.dumps(one(options.name, int(options.rows), options)))
        return 0
    parts, found = options.only.split(","), list[Found]()
    numbers = map(int, options.rows.split(","))
    wanted = [(c, rows) for rows in numbers for c in cases_of(options)(rows) if any(p in c.name for p in parts)]
    print(head())
    for case, rows in tqdm(wanted, disable=None):
        for f in in_process(case, rows, options):
            found.append(f)
            tqdm.write(line(f), file=sys.stdout)
            sys.stdout.flush()
    print(totals(found))
    if options.json:
        machine = {"cores": os.cpu_count(), "jax": jax.__version__}
        report = [{**asdict(f), "regret": f.regret, "first_regret": f.first_regret} for f in found]
        options.json.write_text(json.dumps({"machine": machine, "cases": report}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
