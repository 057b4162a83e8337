"""Binary tree-LSTM over sentences. `python -m benchmarks.sentiment [FOLDER OF THE TREEBANK] [--train] ...`.

Without a folder, or `SST_FOLDER`, the trees are random ones of the same lengths.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import training
from benchmarks.compare import Entry, Workload, compare, parser
from benchmarks.competitors import workloads
from benchmarks.sentiment.competitors import workload
from examples.trees.data import Phrase, sentiment_trees

SENTIMENT = Workload(
    package="benchmarks.sentiment",
    examples="trees",
    title="binary tree-LSTM, forward",
    entries=[
        Entry("autobatch", "with_autobatch"),
        Entry("ideal", "ideal", is_model=False),
        Entry("torch level", "with_torch", "level", needs="torch"),
        Entry("torch views", "with_torch", "views", needs="torch"),
        Entry("torch words once", "with_torch", "once", needs="torch"),
        Entry("torch eager", "with_torch", "eager", needs="torch", largest=16),
        Entry("dynet batched", "with_dynet", "batched", needs="dynet"),
        Entry("dynet single", "with_dynet", "single", needs="dynet", largest=16),
    ],
)

TRAINING = Workload(
    package="benchmarks.sentiment",
    examples="trees",
    title="binary tree-LSTM, forward, backward and update",
    entries=[
        Entry("autobatch", "train_autobatch", beside=("forward", "gradient", "products"), details=True),
        Entry("ideal", "train_ideal", is_model=False),
        Entry("jax level", "train_jax", details=True),
        Entry("torch manual", "train_torch", "manual", needs="torch"),
        Entry("torch words once", "train_torch", "once", needs="torch"),
        Entry("torch level", "train_torch", "level", needs="torch"),
        Entry("dynet batched", "train_dynet", "batched", needs="dynet"),
        Entry("dynet single", "train_dynet", "single", needs="dynet", largest=16),
    ],
    figures=training.figures,
)


def nested(tree: Phrase) -> Any:
    if tree.left is None or tree.right is None:
        return [tree.label, tree.word]
    return [tree.label, nested(tree.left), nested(tree.right)]


def load_trees(folder: str | None, count: int) -> list[Any]:
    if not folder:
        return workload.random_trees(count)
    sys.setrecursionlimit(10_000)
    trees, _ = sentiment_trees(Path(folder) / "train.txt")
    return [nested(tree) for tree in trees[:count]]


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser(SENTIMENT.package, __doc__, embedding=300, hidden=150)
    options.add_argument("folder", nargs="?", default=os.environ.get("SST_FOLDER"), help="of train.txt")
    options.add_argument("--train", action="store_true", help="training, where it is the forward pass without")
    options.add_argument("--rate", type=float, default=1e-4, help="how far training goes along a gradient")
    given = options.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trees.json"
        trees = load_trees(given.folder, given.count)
        workloads.save(file, trees, given.rate, embedding=given.embedding, hidden=given.hidden)
        return compare(TRAINING if given.train else SENTIMENT, file, given)


if __name__ == "__main__":
    sys.exit(main())
