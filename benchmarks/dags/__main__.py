"""Random graphs of layers, one for each example. `python -m benchmarks.dags [--json FILE] ...`."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.compare import Entry, Workload, compare, parser
from benchmarks.competitors import workloads
from benchmarks.dags.competitors import workload

DAGS = Workload(
    package="benchmarks.dags",
    examples="graphs",
    title="random graphs of layers, forward",
    entries=[
        Entry("autobatch", "with_autobatch"),
        Entry("torch level", "with_torch", "level", needs="torch"),
        Entry("torch eager", "with_torch", "eager", needs="torch", largest=16),
        Entry("dynet batched", "with_dynet", "batched", needs="dynet"),
        Entry("dynet single", "with_dynet", "single", needs="dynet", largest=16),
    ],
)


def main(arguments: Sequence[str] | None = None) -> int:
    given = parser(DAGS.package, __doc__, embedding=256, hidden=256).parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "graphs.json"
        workloads.save(file, workload.graphs(given.count), hidden=given.hidden)
        return compare(DAGS, file, given)


if __name__ == "__main__":
    sys.exit(main())
