"""LSTM tagger over ragged sentences. `python -m benchmarks.sequences [--json FILE] ...`."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.compare import Entry, Workload, compare, parser
from benchmarks.competitors import workloads
from benchmarks.sequences.competitors import workload

SEQUENCES = Workload(
    package="benchmarks.sequences",
    examples="sentences",
    title="LSTM tagger, forward",
    entries=[
        Entry("autobatch", "with_autobatch"),
        Entry("torch packed", "with_torch", "packed", needs="torch"),
        Entry("torch padded", "with_torch", "padded", needs="torch"),
        Entry("torch eager", "with_torch", "eager", needs="torch", largest=16),
        Entry("dynet batched", "with_dynet", "batched", needs="dynet"),
        Entry("dynet single", "with_dynet", "single", needs="dynet", largest=16),
    ],
)


def main(arguments: Sequence[str] | None = None) -> int:
    given = parser(SEQUENCES.package, __doc__, embedding=256, hidden=256).parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "sentences.json"
        workloads.save(file, workload.sentences(given.count), embedding=given.embedding, hidden=given.hidden)
        return compare(SEQUENCES, file, given)


if __name__ == "__main__":
    sys.exit(main())
