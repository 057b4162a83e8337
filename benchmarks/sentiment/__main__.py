"""`make bench-trees`, or `python -m benchmarks.sentiment [FOLDER OF THE TREEBANK] [--json FILE] [--picture FILE]`.

Every competitor is a process of its own on one core, with an interpreter of its own where it needs one. They take turns
within each round, so that a machine that slows down slows all alike; a factor is the median over rounds of the factor
within a round. The method is in benchmarks/README.md.
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
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.sentiment.competitors import workload
from examples.trees.data import Phrase, sentiment_trees

HERE = Path(__file__).parent / "competitors"
ALLOCATOR = dict.fromkeys(("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"), "4294967296")
"""Memory that is freed is kept: without this, fresh pages cost each large batch of any competitor 5 to 15 %."""
ALONE = {
    **ALLOCATOR,
    "MALLOC_TOP_PAD_": "268435456",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "JAX_PLATFORMS": "cpu",
}


@dataclass
class Competitor:
    """A process that answers the protocol of `worker.py`."""

    name: str
    command: Sequence[str]
    environment: dict[str, str]
    largest: int | None = None
    info: dict[str, Any] = field(default_factory=dict)
    rates: dict[int, list[float]] = field(default_factory=dict)
    loss: float | None = None
    missing: str | None = None
    process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        environment = {**os.environ, **self.environment, "PYTHONPATH": str(HERE.parents[2])}
        try:
            self.process = subprocess.Popen(
                self.command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            self.info = self.answer()
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


def nested(tree: Phrase) -> Any:
    if tree.left is None or tree.right is None:
        return [tree.label, tree.word]
    return [tree.label, nested(tree.left), nested(tree.right)]


def load_trees(folder: Path | None, count: int) -> list[Any]:
    if folder is None:
        return workload.random_trees(count)
    sys.setrecursionlimit(10_000)
    trees, _ = sentiment_trees(folder / "train.txt")
    return [nested(tree) for tree in trees[:count]]


def competitors(file: Path, torch: str | None, dynet: str | None) -> Iterator[Competitor]:
    core = str(min(os.sched_getaffinity(0)))
    alone = {**ALONE, "BENCHMARK_CORE": core}

    def of(name: str, interpreter: str | None, script: str, *arguments: str, largest: int | None = None) -> Competitor:
        command = [interpreter or "", str(HERE / script), str(file), *arguments]
        found = Competitor(name, command, alone, largest)
        if interpreter is None or shutil.which(interpreter) is None:
            found.missing = "no interpreter that has it"
        return found

    yield of("autobatch", sys.executable, "with_autobatch.py")
    yield of("ideal", sys.executable, "ideal.py")
    yield of("torch level", torch, "with_torch.py", "level")
    yield of("torch eager", torch, "with_torch.py", "eager", largest=16)
    yield of("dynet batched", dynet, "with_dynet.py", "batched")
    yield of("dynet single", dynet, "with_dynet.py", "single", largest=16)


def measure(found: Sequence[Competitor], batches: Sequence[int], rounds: int, seconds: float) -> None:
    for c in found:
        if c.missing is None:
            c.start()
        if c.missing is None and c.name != "ideal":
            c.loss = c.ask({"loss": True})["loss"]
    running = [c for c in found if c.process is not None]
    for batch in batches:
        turns = [c for c in running if c.largest is None or batch <= c.largest]
        for c in turns:
            c.ask({"warm": batch})
        for _ in range(rounds):
            for c in turns:
                c.rates.setdefault(batch, []).append(c.ask({"batch": batch, "seconds": seconds})["trees_per_second"])
    for c in running:
        assert c.process is not None and c.process.stdin is not None
        c.process.stdin.close()
        c.process.wait()


def report(found: Sequence[Competitor], batches: Sequence[int]) -> dict[str, Any]:
    ours = next(c for c in found if c.name == "autobatch")

    def factor(c: Competitor, batch: int) -> float | None:
        if batch not in c.rates or batch not in ours.rates:
            return None
        return statistics.median(a / b for a, b in zip(ours.rates[batch], c.rates[batch], strict=True))

    return {
        "machine": {"processor": platform.processor() or platform.machine(), "python": platform.python_version()},
        "competitors": {
            c.name: {
                **c.info,
                "loss": c.loss,
                "missing": c.missing,
                "trees_per_second": {b: statistics.median(c.rates[b]) for b in batches if b in c.rates},
                "autobatch_is_faster_by": {b: factor(c, b) for b in batches if factor(c, b) is not None},
            }
            for c in found
        },
    }


def table(made: dict[str, Any], batches: Sequence[int]) -> str:
    lines = [
        f"{'trees per second':<18}" + "".join(f"{f'B = {b}':>12}" for b in batches) + "     autobatch is faster by"
    ]
    for name, c in made["competitors"].items():
        if c["missing"]:
            lines.append(f"{name:<18}  not measured: {c['missing']}")
            continue
        rates = "".join(f"{c['trees_per_second'].get(b, float('nan')):>12,.0f}" for b in batches)
        factors = "  ".join(f"{f:.2f}" for f in c["autobatch_is_faster_by"].values())
        lines.append(f"{name:<18}{rates}     {factors if name != 'autobatch' else ''}")
    losses = {name: c["loss"] for name, c in made["competitors"].items() if c["loss"] is not None}
    lines.append("loss before training: " + ", ".join(f"{name} {loss:.2f}" for name, loss in losses.items()))
    return "\n".join(lines)


def draw(made: dict[str, Any], batches: Sequence[int], file: Path) -> None:
    """Trees per second over batch size, one line a competitor."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.2))
    for name, c in made["competitors"].items():
        points = [(b, c["trees_per_second"][b]) for b in batches if b in c["trees_per_second"]]
        if points:
            style = {"autobatch": "o-", "ideal": "k:"}.get(name, "s--")
            axes.plot(*zip(*points, strict=True), style, label=name)
    axes.set(
        xscale="log", xlabel="trees in a batch", ylabel="trees per second", title="binary tree-LSTM, forward, one core"
    )
    axes.set_xticks(batches, [str(b) for b in batches])
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(file, dpi=150)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.sentiment", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=os.environ.get("SST_FOLDER"), help="of train.txt")
    parser.add_argument("--json", type=Path, help="write the report there")
    parser.add_argument("--picture", type=Path, help="draw trees per second there")
    parser.add_argument("--torch", default=sys.executable, help="an interpreter that has PyTorch")
    parser.add_argument("--dynet", help="an interpreter that has DyNet")
    parser.add_argument("--trees", type=int, default=512)
    parser.add_argument("--batches", default="1,16,64,256")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.4, help="how long a competitor runs in each round")
    parser.add_argument("--embedding", type=int, default=300)
    parser.add_argument("--hidden", type=int, default=150)
    given = parser.parse_args(arguments)
    batches = [int(b) for b in given.batches.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "workload.json"
        trees = load_trees(Path(given.folder) if given.folder else None, given.trees)
        workload.save(file, trees, given.embedding, given.hidden)
        found = list(competitors(file, given.torch, given.dynet))
        measure(found, batches, given.rounds, given.seconds)
    made = report(found, batches)
    print(table(made, batches))
    if given.json:
        given.json.write_text(json.dumps(made, indent=2))
    if given.picture:
        draw(made, batches, given.picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
