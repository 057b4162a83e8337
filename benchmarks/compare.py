"""One workload computed by several libraries, each a process of its own on the same cores: they take turns.

A workload is a package with a folder `competitors`, whose scripts answer the protocol of `competitors/worker.py`. Its
`__main__` writes the examples into a file and calls `compare`. Competitors take turns within each round, so that a
machine that slows down slows all alike; a factor is the median over rounds of the factor within a round. The method is
in benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

ROOT = Path(__file__).parents[1]
OURS = "autobatch"
AGREE = 1e-5
"""How far losses of two competitors may be from each other, relative to their size: float32 in another order."""
ALLOCATOR = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "4294967296",
    "MALLOC_TOP_PAD_": "268435456",
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}
"""Memory that is freed is kept, and is in large pages: without this, fresh pages cost each large batch of any
competitor 5 to 15 %, and gradients of 256 trees in JAX, whose working memory is taken anew for each call, 20 to 30 %.
(`ab.keep_memory()` does the same from within, but for the large pages.)"""


def alone(threads: int) -> dict[str, str]:
    """The environment of a competitor, which has so many threads."""
    return {
        **ALLOCATOR,
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "XLA_FLAGS": f"--xla_cpu_multi_thread_eigen={'true' if threads > 1 else 'false'}",
        "JAX_PLATFORMS": "cpu",
    }


Lines = dict[str, dict[int, float]]
"""Lines of text by their beginning: a number for each batch size."""


@dataclass(frozen=True)
class Entry:
    """A competitor of a workload: the script in its folder, and which interpreter that needs."""

    name: str
    script: str
    form: str | None = None
    needs: Literal["jax", "torch", "dynet"] = "jax"
    largest: int | None = None  # batches beyond are as slow, and would only take time
    is_model: bool = True  # it computes the loss, which has to be that of the others
    beside: Sequence[str] = ()  # what else it measures in each of its turns
    details: bool = False  # it knows more about each batch size


@dataclass(frozen=True)
class Workload:
    """What is compared: `examples` is the word for many of them, `title` stands over the picture.

    `figures(found, batches)` is what follows from what was measured beside the rates: for each line of text its values
    by batch size.
    """

    package: str
    examples: str
    title: str
    entries: Sequence[Entry]
    figures: Callable[[Sequence[Competitor], Sequence[int]], Lines] | None = None


@dataclass
class Competitor:
    """A process that answers the protocol, and what it has answered."""

    entry: Entry
    command: Sequence[str]
    info: dict[str, Any] = field(default_factory=dict)
    rates: dict[int, list[float]] = field(default_factory=dict)
    losses: dict[int, float] = field(default_factory=dict)
    losses_after: dict[int, float] = field(default_factory=dict)  # one epoch of updates
    beside: dict[str, dict[int, list[float]]] = field(default_factory=dict)
    details: dict[int, dict[str, Any]] = field(default_factory=dict)
    warm_seconds: dict[int, float] = field(default_factory=dict)
    missing: str | None = None
    started: bool = False
    process: subprocess.Popen[str] | None = None

    def start(self, threads: int) -> None:
        cores = sorted(os.sched_getaffinity(0))[:threads]
        environment = {**os.environ, **alone(threads), "PYTHONPATH": str(ROOT)}
        if shutil.which(self.command[0]) is None:
            self.missing = "no interpreter that has it"
            return
        try:
            # cores are chosen before the process has threads: what a library starts later stays there too
            self.process = subprocess.Popen(
                self.command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                preexec_fn=lambda: os.sched_setaffinity(0, cores),
            )  # fmt: skip
            self.info = self.answer()
            self.started = True
        except (OSError, RuntimeError) as error:
            self.missing, self.process = str(error), None

    def answer(self) -> dict[str, Any]:
        assert self.process is not None and self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{' '.join(self.command)} ended with status {self.process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        assert self.process is not None and self.process.stdin is not None
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        return self.answer()

    def attempt(self, what: Callable[..., None], *given: Any) -> None:
        """One that dies is left out from then on, with all that it measured; the others go on."""
        if self.process is None:
            return
        try:
            what(*given)
        except (OSError, RuntimeError) as error:
            self.missing, self.process = f"it failed: {error}", None
            for kept in (self.rates, self.losses, self.losses_after, self.beside, self.details):
                kept.clear()

    def warm(self, batch: int) -> None:
        start = time.perf_counter()
        warmed = self.ask({"warm": batch})
        self.warm_seconds[batch] = time.perf_counter() - start
        if self.entry.is_model:
            self.losses[batch] = warmed["loss"]
        if self.entry.is_model and "loss_after" in warmed:
            self.losses_after[batch] = warmed["loss_after"]

    def take_turn(self, batch: int, seconds: float) -> None:
        asked = {"batch": batch, "seconds": seconds}
        self.rates.setdefault(batch, []).append(self.ask(asked)["rate"])
        for of in self.entry.beside:
            if (rate := self.ask({**asked, "of": of})["rate"]) is not None:
                self.beside.setdefault(of, {}).setdefault(batch, []).append(rate)

    def tell_details(self, batch: int) -> None:
        if self.entry.details:
            self.details[batch] = self.ask({"details": batch})

    def stop(self) -> None:
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()
            self.process.wait()


def parser(prog: str, description: str | None, embedding: int, hidden: int) -> argparse.ArgumentParser:
    """The options that all workloads have."""
    made = argparse.ArgumentParser(prog=prog, description=description)
    made.add_argument("--json", type=Path, help="write the report there")
    made.add_argument("--picture", type=Path, help="draw the rates there")
    made.add_argument("--torch", default=sys.executable, help="an interpreter that has PyTorch")
    made.add_argument("--dynet", default="", help="an interpreter that has DyNet")
    made.add_argument("--only", default="", help="names of competitors, with commas between them")
    made.add_argument("--count", type=int, default=512, help="how many examples")
    made.add_argument("--batches", default="1,16,64,256")
    made.add_argument("--rounds", type=int, default=7)
    made.add_argument("--seconds", type=float, default=0.4, help="how long a competitor runs in each round")
    made.add_argument("--threads", type=int, default=1, help="how many cores a competitor has, and threads")
    made.add_argument("--embedding", type=int, default=embedding)
    made.add_argument("--hidden", type=int, default=hidden)
    return made


def competitors(workload: Workload, file: Path, given: argparse.Namespace) -> list[Competitor]:
    """All that the workload has, or those of `--only`; `file` holds the examples."""
    interpreters = {"jax": sys.executable, "torch": given.torch, "dynet": given.dynet}
    chosen = given.only.split(",") if given.only else [entry.name for entry in workload.entries]
    unknown = set(chosen) - {entry.name for entry in workload.entries}
    if unknown:
        raise SystemExit(f"no competitor is called {', '.join(sorted(unknown))}")
    return [
        Competitor(
            entry,
            [
                *(interpreters[entry.needs], "-m", f"{workload.package}.competitors.{entry.script}", str(file)),
                *([entry.form] if entry.form else []),
            ],
        )
        for entry in workload.entries
        if entry.name in chosen
    ]


def measure(found: Sequence[Competitor], batches: Sequence[int], rounds: int, seconds: float, threads: int) -> None:
    for c in found:
        c.start(threads)
    running = [c for c in found if c.process is not None]
    for batch in batches:
        turns = [c for c in running if c.entry.largest is None or batch <= c.entry.largest]
        for c in turns:
            c.attempt(c.warm, batch)
        for _ in range(rounds):
            for c in turns:
                c.attempt(c.take_turn, batch, seconds)
        for c in turns:
            c.attempt(c.tell_details, batch)
    for c in running:
        c.stop()


def report(workload: Workload, found: Sequence[Competitor], batches: Sequence[int]) -> dict[str, Any]:
    """Medians over the rounds, and how far apart the losses of any batch size are, relative to their size."""
    ours = next((c.rates for c in found if c.entry.name == OURS), {})

    def factors(c: Competitor) -> dict[int, float]:
        return {
            b: statistics.median(a / o for a, o in zip(ours[b], c.rates[b], strict=True))
            for b in batches
            if b in ours and b in c.rates
        }

    def medians(rates: dict[int, list[float]]) -> dict[int, float]:
        return {b: statistics.median(rates[b]) for b in batches if b in rates}

    def difference(losses: Sequence[float]) -> float:
        return (max(losses) - min(losses)) / max(map(abs, losses)) if losses else 0.0

    def differences() -> Iterator[float]:
        for batch in batches:
            yield difference([c.losses[batch] for c in found if batch in c.losses])
            yield difference([c.losses_after[batch] for c in found if batch in c.losses_after])

    made = {
        "workload": workload.title,
        "examples": workload.examples,
        "machine": {"processor": platform.processor() or platform.machine(), "python": platform.python_version()},
        "losses_differ_by": max(differences()),
        "competitors": {
            c.entry.name: {
                **c.info,
                "loss": c.losses,
                **({"loss_after": c.losses_after} if c.losses_after else {}),
                "missing": c.missing,
                "warm_seconds": c.warm_seconds,
                "examples_per_second": medians(c.rates),
                "autobatch_is_faster_by": factors(c),
                **({"beside": {k: medians(v) for k, v in c.beside.items()}} if c.beside else {}),
                **({"details": c.details} if c.details else {}),
            }
            for c in found
        },
    }
    if workload.figures:
        made["figures"] = workload.figures(found, batches)
    return made


def table(made: dict[str, Any], batches: Sequence[int]) -> str:
    sizes = "".join(f"{f'B = {b}':>12}" for b in batches)
    lines = [made["workload"], f"{made['examples'] + ' per second':<22}{sizes}     autobatch is faster by"]
    for name, c in made["competitors"].items():
        if c["missing"]:
            lines.append(f"{name:<22}  not measured: {c['missing']}")
            continue
        rates = "".join(f"{c['examples_per_second'].get(b, float('nan')):>12,.0f}" for b in batches)
        factors = "  ".join(f"{f:.2f}" for f in c["autobatch_is_faster_by"].values())
        lines.append(f"{name:<22}{rates}     {factors if name != OURS else ''}")
    first = batches[0]
    for key, words in (("loss", "losses"), ("loss_after", "losses after an epoch")):
        having = {name: c[key][first] for name, c in made["competitors"].items() if first in c.get(key, {})}
        if having:
            lines.append(f"{words} at B = {first}: {', '.join(f'{name} {loss:#.7g}' for name, loss in having.items())}")
    lines.append(f"losses at all batch sizes differ by {made['losses_differ_by']:.1e} of their size, or less")
    for name, values in made.get("figures", {}).items():
        shown = "".join(f"{f'{values[b]:#,.3g}' if b in values else '-':>12}" for b in batches)
        lines.append(f"{name:<38}{shown}")
    return "\n".join(lines)


def draw(made: dict[str, Any], batches: Sequence[int], file: Path) -> None:
    """Examples per second over batch size, one line a competitor."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.2))
    for name, c in made["competitors"].items():
        points = [(b, c["examples_per_second"][b]) for b in batches if b in c["examples_per_second"]]
        if points:
            style = {OURS: "o-", "ideal": "kx:"}.get(name, "s--")  # markers: one batch size has no line
            axes.plot(*zip(*points, strict=True), style, label=name)
    examples = made["examples"]
    axes.set(xscale="log", xlabel=f"{examples} in a batch", ylabel=f"{examples} per second", title=made["workload"])
    axes.set_xticks(batches, [str(b) for b in batches])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(file, dpi=150)


def compare(workload: Workload, file: Path, given: argparse.Namespace) -> int:
    """Measures, prints and writes. The status is 1 where competitors did not compute the same, or one has died."""
    batches = [int(b) for b in given.batches.split(",")]
    if max(batches) > given.count:
        raise SystemExit(f"there is no batch of {max(batches)} in {given.count} examples")
    if given.threads > len(os.sched_getaffinity(0)):
        raise SystemExit(f"there are no {given.threads} cores here")
    workload = replace(
        workload, title=f"{workload.title}, {'one core' if given.threads == 1 else f'{given.threads} cores'}"
    )
    found = competitors(workload, file, given)
    measure(found, batches, given.rounds, given.seconds, given.threads)
    made = report(workload, found, batches)
    print(table(made, batches), flush=True)
    if given.json:
        given.json.write_text(json.dumps(made, indent=2))
    if given.picture:
        draw(made, batches, given.picture)
    failed = [c.entry.name for c in found if c.started and c.missing]
    if failed:
        print(f"not all were measured: {', '.join(failed)}", file=sys.stderr)
        return 1
    if made["losses_differ_by"] > AGREE:
        print(f"the losses should agree to {AGREE:.0e}: the rates mean nothing", file=sys.stderr)
        return 1
    return 0
