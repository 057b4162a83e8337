"""What competes computes what plain Python computes; the driver's arithmetic. No timing."""

import numpy as np
import pytest

from benchmarks.compare import OURS, Competitor, Entry, Workload, report, table
from benchmarks.competitors import packed
from benchmarks.dags.competitors import with_autobatch as dags
from benchmarks.dags.competitors import workload as graphs
from benchmarks.sentiment.competitors import with_autobatch as sentiment
from benchmarks.sentiment.competitors import workload as trees
from benchmarks.sequences.competitors import with_autobatch as sequences
from benchmarks.sequences.competitors import workload as sentences

COMPETING = {
    "sentiment": (sentiment.loss, trees.weights(6, 4), [sentiment.phrase(t) for t in trees.random_trees(3)]),
    "sequences": (sequences.loss, sentences.weights(6, 4), [sequences.Sentence(*s) for s in sentences.sentences(3)]),
    "dags": (dags.loss, graphs.weights(4), [dags.root([["input", 3], ["layer", 0], ["gate", 0, 1], ["gate", 2, 1]])]),
}


@pytest.mark.parametrize("name", COMPETING)
def test_what_competes_is_the_model(name):
    loss, weights, examples = COMPETING[name]
    p = packed.parameters(weights)
    np.testing.assert_allclose(loss(p, examples), loss.loop(p, examples), rtol=1e-5)


def test_every_node_of_a_graph_reaches_the_last_one():
    for graph in graphs.graphs(50):
        read = [k for node in graph for k in graphs.operands(node)]
        assert set(read) == set(range(len(graph) - 1)), "a node that nobody reads"
        assert all(k < position for position, node in enumerate(graph) for k in graphs.operands(node))
        assert graphs.SMALLEST <= graphs.size(graph) <= graphs.LARGEST


def test_a_factor_is_the_median_of_the_factors_within_a_round():
    """The machine is half as fast in the second round, for both alike."""
    entries = [Entry(OURS, "ours"), Entry("other", "theirs"), Entry("absent", "nowhere")]
    found = [
        Competitor(entries[0], [], rates={16: [400.0, 200.0, 420.0]}, losses={16: -8.00001}),
        Competitor(entries[1], [], rates={16: [100.0, 50.0, 101.0]}, losses={16: -8.0}),
        Competitor(entries[2], [], missing="no interpreter that has it"),
    ]
    made = report(Workload("nowhere", "trees", "a model", entries), found, [1, 16])
    other = made["competitors"]["other"]
    assert other["examples_per_second"] == {16: 100.0} and other["autobatch_is_faster_by"] == {16: 4.0}
    assert made["losses_differ_by"] == pytest.approx(1.25e-6, rel=1e-3)
    printed = table(made, [1, 16])
    assert "4.00" in printed and "not measured: no interpreter that has it" in printed
