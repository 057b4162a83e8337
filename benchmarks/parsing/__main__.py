"""Shift-reduce parser. `python -m benchmarks.parsing [--train] [--dynet INTERPRETER] [--json FILE] ...`.

Forward the parser's own scores decide; in training the actions are given.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.compare import Entry, Workload, compare, parser
from benchmarks.competitors import workloads
from benchmarks.parsing.competitors import workload

PARSING = Workload(
    package="benchmarks.parsing",
    examples="sentences",
    title="shift-reduce parser, its scores decide",
    entries=[
        Entry("autobatch", "with_autobatch", "llvm"),
        Entry("autobatch by xla", "with_autobatch", "xla"),
        Entry("dynet single", "with_dynet", "single", needs="dynet"),
    ],
)
TRAINING = Workload(
    package="benchmarks.parsing",
    examples="sentences",
    title="shift-reduce parser, forward, backward and update",
    entries=[
        Entry("autobatch", "train_autobatch"),
        Entry("dynet batched", "train_dynet", "batched", needs="dynet"),
        Entry("dynet single", "train_dynet", "single", needs="dynet"),
    ],
)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser(PARSING.package, __doc__, embedding=64, hidden=64)
    options.add_argument("--train", action="store_true", help="training, where it is the forward pass without")
    options.add_argument("--rate", type=float, default=1e-3, help="how far training goes along a gradient")
    given = options.parse_args(arguments)
    if given.embedding != given.hidden:
        raise SystemExit("words are phrases here, so --embedding has to be --hidden")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "sentences.json"
        workloads.save(file, workload.sentences(given.count), given.rate, hidden=given.hidden)
        return compare(TRAINING if given.train else PARSING, file, given)


if __name__ == "__main__":
    sys.exit(main())
