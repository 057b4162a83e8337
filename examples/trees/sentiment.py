"""Train a binary tree-LSTM (Tai, Socher, Manning, ACL 2015, section 3.2) that answers at every node of a tree.

`answer` is written for ONE tree, dropout included. Where a folder holds the Stanford Sentiment Treebank's `train.txt`
and `dev.txt`, it learns how positive a phrase is:

    python -m examples.trees.sentiment --data FOLDER

and without one which functions of Python's standard library are methods (`labelled.py` says what it is shown of them,
and what is hidden). The folder `--out` gets a checkpoint after every epoch, with the optimiser's state, the place in
the shuffled data and the random key, so `--resume` goes on as if nothing had happened; and a picture of the losses.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cache, partial
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import autobatch as ab
from examples.trees import checkpoint
from examples.trees.binary import cell, cross_entropy, leaf_cell
from examples.trees.labelled import NO_LABEL, Task, Tree, functions, labels, sentences

Params = dict[str, jax.Array]

JUDGED = 256
"""Trees at a time when accuracies are measured."""
AHEAD = 4
"""Epochs whose minibatches there is room for from the start."""
TRUSTED = {"check_plans": False}
"""Nobody changes a minibatch between the loader and the step. A step that does not check that calls the host for
nothing, and JAX may keep its program on disk for the next run."""

# ---- the model, for one tree


def dropped(x: jax.Array, key: jax.Array | None, rate: float, number: int) -> jax.Array:
    """Dropout: `number` says which of the random numbers of `key` decide; without a key nothing is left out."""
    if key is None:
        return x
    kept = jax.random.bernoulli(jax.random.fold_in(key, number), 1.0 - rate, x.shape)
    return jnp.where(kept, x / (1.0 - rate), 0.0)


@ab.batched(in_axes=(None, None, None, 0))
def answer(p: Params, key: jax.Array | None, rate: float, t: Tree) -> Any:
    """The state (h, c) of a tree's root; of all its nodes the loss, and how many answers are right; is the root's?

    Each node draws its own dropout from the step's key and its number in the data set: no randomness is passed along
    the tree, so all of it is computed for all nodes at once.
    """
    if t.left is None or t.right is None:
        h, c = leaf_cell(p, dropped(p["emb"][t.word], key, rate, 2 * t.number))
        loss, right = 0.0, 0
    else:
        hl, cl, left_loss, left_right, _ = answer(p, key, rate, t.left)
        hr, cr, right_loss, right_right, _ = answer(p, key, rate, t.right)
        h, c = cell(p, hl, cl, hr, cr)
        loss, right = left_loss + right_loss, left_right + right_right
    if t.label == NO_LABEL:
        return h, c, loss, right, False
    logits = dropped(h, key, rate, 2 * t.number + 1) @ p["Wo"] + p["bo"]
    hit = jnp.argmax(logits) == t.label
    return h, c, loss + cross_entropy(logits, t.label), right + hit, hit


@ab.batched(in_axes=(None, None, None, 0), options=TRUSTED)
def loss(p: Params, key: jax.Array, rate: float, t: Tree) -> Any:
    """The loss of all nodes of a tree together: float32[]."""
    return answer(p, key, rate, t)[2]


@ab.batched(in_axes=(None, 0), options=TRUSTED)
def score(p: Params, t: Tree) -> Any:
    """Without dropout: is the answer at the root right, and at how many nodes?"""
    _, _, _, nodes, root = answer(p, None, 0.0, t)
    return root, nodes


# ---- training


@dataclass(frozen=True)
class Settings:
    """What decides the losses: a checkpoint is gone on from with the same only."""

    hidden: int
    embedding: int
    batch: int
    rate: float
    dropout: float
    decay: float
    seed: int


class State(NamedTuple):
    """What a step changes, all of it arrays: donated to the step, and saved."""

    params: Params
    optimiser: Any
    key: jax.Array
    step: jax.Array


@dataclass
class History:
    """How training went. `losses`: mean loss of a tree, for each step; `judged`: (step, root, nodes), accuracies."""

    losses: list[float] = field(default_factory=list)
    judged: list[tuple[int, float, float]] = field(default_factory=list)


class _Programs:
    """Counts what XLA compiles, or loads from JAX's cache on disk."""

    def __init__(self) -> None:
        self.count = 0
        jax.monitoring.register_event_duration_secs_listener(self._on_event)

    def _on_event(self, event: str, duration_secs: float, **kwargs: str | int) -> None:
        self.count += event.endswith("backend_compile_duration")


_PROGRAMS = _Programs()


@dataclass
class Clock:
    """Time of the steps that ran at full speed, and of those (and judgings) that had something to compile."""

    trees: int = 0
    seconds: float = 0.0
    programs: int = 0
    compile_seconds: float = 0.0

    def add(self, trees: int, run: Callable[[], Any]) -> Any:
        programs, start = _PROGRAMS.count, time.perf_counter()
        result = jax.block_until_ready(run())
        elapsed = time.perf_counter() - start
        if _PROGRAMS.count > programs:
            self.programs, self.compile_seconds = self.programs + 1, self.compile_seconds + elapsed
        else:
            self.trees, self.seconds = self.trees + trees, self.seconds + elapsed
        return result

    @property
    def speed(self) -> float:
        return self.trees / self.seconds if self.seconds else 0.0


def parameters(words: int, classes: int, hidden: int, embedding: int, seed: int) -> Params:
    rng = np.random.default_rng(seed)

    def matrix(rows: int, columns: int) -> jax.Array:
        return jnp.asarray(rng.normal(0.0, rows**-0.5, (rows, columns)), jnp.float32)

    return {
        "Ul": matrix(hidden, 5 * hidden),
        "Ur": matrix(hidden, 5 * hidden),
        "Wl": matrix(embedding, 3 * hidden),
        "Wo": matrix(hidden, classes),
        "b": jnp.zeros(5 * hidden),
        "bl": jnp.zeros(3 * hidden),
        "bo": jnp.zeros(classes),
        "emb": jnp.asarray(rng.normal(0.0, 0.1, (words, embedding)), jnp.float32),
    }


@cache
def compiled_step(settings: Settings) -> tuple[Any, Callable[[State, ab.Batch], tuple[State, jax.Array]]]:
    """Adam, and a step of it on the mean loss of a minibatch's trees, which gives that loss too.

    The gradient of the words' vectors is dense here, though few rows of it are not zero. With `sparse=True` and
    `ab.sparse(optimiser)` a step over the treebank's 8,000 words took 3 % less time, but Adam is lazy then (it leaves
    the moments of a word alone until the word is met again), and after three epochs, of one seed, 43 % of the roots
    were right instead of 46 %. Of larger vocabularies the time decides.
    """
    optimiser = optax.chain(
        optax.scale(1 / settings.batch),  # ab.value_and_grad sums over the trees
        optax.clip_by_global_norm(5.0),
        optax.adamw(settings.rate, weight_decay=settings.decay),
    )
    value_and_grad = ab.value_and_grad(loss)

    def step(state: State, batch: ab.Batch) -> tuple[State, jax.Array]:
        key = jax.random.fold_in(state.key, state.step)
        losses, gradient = value_and_grad(state.params, key, settings.dropout, batch)
        updates, of_optimiser = optimiser.update(gradient, state.optimiser, state.params)
        params = optax.apply_updates(state.params, updates)
        return State(params, of_optimiser, state.key, state.step + 1), losses.mean()

    return optimiser, jax.jit(step, donate_argnums=0)


class Training:
    """A task, a model, and how far training has come."""

    def __init__(self, task: Task, settings: Settings, out: Path) -> None:
        self.task, self.settings, self.out = task, settings, out
        params = parameters(task.words, len(task.classes), settings.hidden, settings.embedding, settings.seed)
        optimiser, self._step = compiled_step(settings)
        key, step = jax.random.key(settings.seed), jnp.zeros((), jnp.int32)
        self.state = State(params, optimiser.init(params), key, step)
        self.history, self.learning, self.judging = History(), Clock(), Clock()
        self.train, self.dev = loss.pack(task.train), score.pack(task.dev)
        self.loader = ab.Loader(self.train, settings.batch, seed=settings.seed, drop_last=True, steps=1)
        jax.eval_shape(loss, params, key, settings.dropout, self.train[:1])  # plans are for arguments of these types
        jax.eval_shape(score, params, self.dev[:1])
        several = min(len(self.dev), JUDGED)
        chunks = np.arange(-(-len(self.dev) // several) * several) % len(self.dev)  # the last one begins anew
        self._judged = self.dev.epoch(chunks.reshape(-1, several))
        self._make_room()

    def _make_room(self) -> None:
        """Let minibatches have room for all those of the first epochs, and for those that are done.

        Minibatches that come stacked (`steps=1`: by ones) have capacities that never fall, so one program runs nearly
        all of them; without this each would be padded to a size of its own, from a series of few. It makes capacities a
        function of the place in training, too: what goes on from a checkpoint computes the same, to the last bit.
        """
        at = self.loader.state()
        for epoch in range(max(AHEAD, at["epoch"] + 1)):
            done = at["batch"] if AHEAD <= epoch == at["epoch"] else len(self.loader)
            if done:
                self.train.epoch(np.concatenate(self.loader.order(epoch)[:done]))

    def learn(self, stacked: ab.Batch) -> None:
        """One step, on the one minibatch of a stack."""
        batch = jax.tree.map(itemgetter(0), stacked)
        self.state, value = self.learning.add(len(batch), partial(self._step, self.state, batch))
        self.history.losses.append(float(value))

    def judge(self) -> None:
        """Accuracy on the trees that are held out, at roots and at all nodes that have a label."""
        found = []
        for chunk in range(-(-len(self.dev) // JUDGED)):
            batch = jax.tree.map(itemgetter(chunk), self._judged)
            found.append(self.judging.add(len(batch), partial(score, self.state.params, batch)))
        root, right = (np.concatenate(arrays)[: len(self.dev)] for arrays in zip(*found, strict=True))
        labelled = len(labels(self.task.dev, roots_only=False))
        self.history.judged.append((len(self.history.losses), float(root.mean()), float(right.sum() / labelled)))

    def run(self, epochs: int, seconds: float, console: Console) -> None:
        """Train until `epochs` are done, or for so many seconds; judge and save after each epoch, and at the end."""
        stop = time.monotonic() + seconds
        with _progress(console) as progress:
            while self.loader.epoch < epochs and time.monotonic() < stop:
                self._epoch(progress, stop)
                self.judge()
                self.save()
                progress.console.print(self._line(), highlight=False, soft_wrap=True)

    def _epoch(self, progress: Progress, stop: float) -> None:
        """What is left of an epoch, or of the time."""
        done = self.loader.state()["batch"]
        bar = progress.add_task("", total=len(self.loader), completed=done, state="")
        for batch in self.loader:
            self.learn(batch)
            speed, recent = self.learning.speed, float(np.mean(self.history.losses[-20:]))
            state = f"loss {recent:7.3f}  {speed:7,.0f} trees/s"
            progress.update(bar, advance=1, description=f"epoch {self.loader.epoch + 1}", state=state)
            if time.monotonic() > stop:
                break
        progress.remove_task(bar)

    def _line(self) -> str:
        """The last epoch in words."""
        (before, *_), (step, root, nodes) = [(0, 0.0, 0.0), *self.history.judged][-2:]
        mean = np.mean(self.history.losses[before:step])
        words = f"step {step:6,}: mean loss of a tree {mean:7.3f}, right on held-out trees: roots {root:6.1%}"
        return words + f", nodes {nodes:6.1%}" * self.task.labels_inside

    # -- checkpoints

    @property
    def checkpoint(self) -> Path:
        return self.out / "checkpoint.npz"

    def save(self) -> None:
        about = {"settings": self.about(), "loader": self.loader.state(), "history": asdict(self.history)}
        checkpoint.save(self.checkpoint, self.state, about)

    def resume(self) -> None:
        """Go on where the checkpoint was written."""
        about = checkpoint.facts(self.checkpoint)
        for name, own in self.about().items():
            if about["settings"][name] != own:
                raise ValueError(f"{self.checkpoint} is of {name} {about['settings'][name]!r}, not {own!r}")
        self.state = checkpoint.load(self.checkpoint, self.state)
        self.loader.restore(about["loader"])
        self._make_room()
        judged = [tuple(j) for j in about["history"]["judged"]]
        self.history = History(about["history"]["losses"], judged)

    def about(self) -> dict[str, Any]:
        return {"task": self.task.title, "words": self.task.words, **asdict(self.settings)}


# ---- what is shown


def _progress(console: Console) -> Progress:
    name, state = TextColumn("{task.description:<9}"), TextColumn("{task.fields[state]}")
    return Progress(name, BarColumn(), MofNCompleteColumn(), state, TimeElapsedColumn(), console=console)


def draw(history: History, title: str, path: Path) -> None:
    """The loss of each step, and the accuracies, as a picture."""
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    left = figure.add_subplot(title=title, xlabel="step", ylabel="mean loss of a tree")
    losses = np.array(history.losses)
    left.plot(np.arange(1, len(losses) + 1), losses, color="tab:blue", alpha=0.25, linewidth=0.8)
    width = max(1, min(50, len(losses) // 10))
    means = np.convolve(losses, np.ones(width) / width, "valid")
    left.plot(np.arange(width, len(losses) + 1), means, color="tab:blue", label=f"loss (mean of {width})")
    right = left.twinx()
    right.set(ylabel="right on held-out trees", ylim=(0, 1))
    steps, roots, nodes = zip(*history.judged, strict=True)
    right.plot(steps, roots, "o-", color="tab:orange", label="roots", markersize=3)
    if nodes != roots:
        right.plot(steps, nodes, "s--", color="tab:green", label="all nodes", markersize=3)
    figure.legend(loc="outside lower center", ncols=3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def show(console: Console, training: Training, picture: Path) -> None:
    task, judged = training.task, training.history.judged
    best = max(judged, key=lambda j: j[1])
    rows = [("the model, at the end", *judged[-1][1:]), (f"the model, after step {best[0]:,}", *best[1:])]
    if best == judged[-1]:
        del rows[1]
    rows.append(("the most frequent answer", task.baseline(roots_only=True), task.baseline(roots_only=False)))
    table = Table("right on held-out trees", "roots", *["all nodes"] * task.labels_inside)
    for name, *accuracies in rows:
        table.add_row(name, *(f"{accuracy:.1%}" for accuracy in accuracies[: 1 + task.labels_inside]))
    console.print(table)
    learning, judging = training.learning, training.judging
    console.print(
        f"{learning.speed:,.0f} trees/s in training, {judging.speed:,.0f} in judging, compiling left out.\n"
        f"{learning.programs} steps and {judging.programs} judgings had a program to compile, or to load from JAX's "
        f"cache on disk: {learning.compile_seconds + judging.compile_seconds:.1f} s, planning included.\n"
        f"Picture of the losses: {picture}\nCheckpoint: {training.checkpoint}",
        highlight=False,
        soft_wrap=True,
    )


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--data", type=Path, metavar="FOLDER", help="the treebank: train.txt and dev.txt; else code is learnt")
    add("--out", type=Path, metavar="FOLDER", default=Path("runs/sentiment"), help="checkpoint, picture [%(default)s]")
    add("--resume", action="store_true", help="go on from the checkpoint in --out; else begin anew, and replace it")
    add("--epochs", type=int, default=10, help="in all, those before --resume too [%(default)s]")
    add("--minutes", type=float, default=float("inf"), help="stop after so many, also in the middle of an epoch")
    add("--batch", type=int, default=64, help="trees a step [%(default)s]")
    add("--hidden", type=int, default=128, help="size of a state [%(default)s]")
    add("--embedding", type=int, default=128, help="size of a word's vector [%(default)s]")
    add("--rate", type=float, default=2e-3, help="of Adam [%(default)s]")
    add("--dropout", type=float, default=0.5, help="share of numbers left out [%(default)s]")
    add("--decay", type=float, default=1e-2, help="of weights, as in AdamW [%(default)s]")
    add("--seed", type=int, default=0, help="of parameters, order and dropout [%(default)s]")
    add("--trees", type=int, help="use only so many trees, for training and for judging")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    given, console = _arguments(arguments), Console()
    settings = Settings(**{setting.name: getattr(given, setting.name) for setting in fields(Settings)})
    with console.status("reading and packing trees"):
        task = sentences(given.data, given.trees) if given.data else functions(given.trees)
        training = Training(task, settings, given.out)
    console.print(
        f"{task.title}\n{len(task.train):,} trees to learn from, {len(task.dev):,} held out; {task.words:,} words",
        highlight=False,
    )
    if given.resume:
        try:
            training.resume()
        except (OSError, ValueError, ab.BatchError) as error:
            console.print(f"cannot go on: {error}", style="red", highlight=False, soft_wrap=True)
            return 1
        console.print(f"going on behind step {len(training.history.losses):,}", highlight=False)
    training.run(given.epochs, 60.0 * given.minutes, console)
    if not training.history.judged:
        console.print("nothing to do: --epochs are done, or --minutes are none")
        return 1
    picture = given.out / "loss.png"
    draw(training.history, task.title, picture)
    show(console, training, picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
