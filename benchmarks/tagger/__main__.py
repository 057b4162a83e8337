"""BiLSTM tagger that spells rare words. `python -m benchmarks.tagger [FOLDER OF THE TREEBANK] [--train] ...`.

Without a folder, or `SST_FOLDER`, the sentences are random ones.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.compare import Entry, Workload, compare, parser
from benchmarks.competitors import workloads
from benchmarks.tagger.competitors import workload
from examples.trees.data import Phrase, sentiment_trees


def of_kind(kind: str, title: str) -> Workload:
    return Workload(
        package="benchmarks.tagger",
        examples="sentences",
        title=f"BiLSTM tagger with letters, {title}",
        entries=[
            Entry("autobatch", f"{kind}_autobatch"),
            Entry("dynet batched", f"{kind}_dynet", "batched", needs="dynet"),
            Entry("dynet vanilla", f"{kind}_dynet", "vanilla", needs="dynet"),
            Entry("dynet single", f"{kind}_dynet", "single", needs="dynet"),
        ],
    )


TAGGER, TRAINING = of_kind("with", "forward"), of_kind("train", "forward, backward and update")


def words_of(tree: Phrase, words: Sequence[str]) -> list[str]:
    if tree.left is None or tree.right is None:
        return [words[tree.word]]
    return words_of(tree.left, words) + words_of(tree.right, words)


def load_sentences(folder: str | None, count: int) -> tuple[list[Any], dict[str, int]]:
    if not folder:
        return workload.sentences(count)
    sys.setrecursionlimit(10_000)
    trees, words = sentiment_trees(Path(folder) / "train.txt")
    return workload.from_texts([words_of(tree, words) for tree in trees], count)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser(TAGGER.package, __doc__, embedding=128, hidden=50)
    options.add_argument("folder", nargs="?", default=os.environ.get("SST_FOLDER"), help="of train.txt")
    options.add_argument("--train", action="store_true", help="training, where it is the forward pass without")
    options.add_argument("--rate", type=float, default=1e-3, help="how far training goes along a gradient")
    given = options.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "sentences.json"
        sentences, tables = load_sentences(given.folder, given.count)
        workloads.save(file, sentences, given.rate, embedding=given.embedding, hidden=given.hidden, **tables)
        return compare(TRAINING if given.train else TAGGER, file, given)


if __name__ == "__main__":
    sys.exit(main())
