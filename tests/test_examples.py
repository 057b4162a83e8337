"""Every example agrees with plain Python on a few of its own inputs; the readers read what is there."""

import numpy as np
import pytest

import autobatch as ab
from examples.language import lattice, parser, tagger
from examples.tables import cky, edits, molecules
from examples.trees import binary, child_sum, demo, epoch, expressions, per_node, phylogeny
from examples.trees.check import check, largest_difference
from examples.trees.data import KINDS, Node, Phrase, binarised, code_trees, nodes_of, sentiment_trees, size


@pytest.fixture(scope="module")
def trees():
    return [tree for tree in code_trees(200, largest=60) if size(tree) > 3][::10]


def test_child_sum(trees):
    assert check("child-sum", child_sum.encode, child_sum.parameters(hidden=16), trees) == 0


def test_binary(trees):
    params = binary.parameters(len(KINDS), hidden=16, embedding=8)
    assert check("binary", binary.encode, params, [binarised(tree) for tree in trees]) == 0


@pytest.mark.long
def test_an_epoch_in_one_executable_trains_as_the_loop_does(capsys):
    assert epoch.main(["--trees", "130", "--hidden", "8", "--epochs", "2"]) == 0
    printed = capsys.readouterr().out
    first, second = (float(part.split(";")[0]) for part in printed.split("mean loss of a node ")[1:])
    assert first > second, printed


def test_expressions():
    values = np.random.default_rng(0).uniform(0.5, 1.5, expressions.VARIABLES).astype(np.float32)
    assert check("expressions", expressions.evaluate, values, expressions.stdlib_expressions(100)) == 0


def test_phylogeny():
    tree, names = phylogeny.newick(phylogeny.PRIMATES)
    params = phylogeny.model()
    params["alignment"] = phylogeny.simulate(params, tree, np.random.default_rng(0), len(names))
    candidates = [tree, *phylogeny.neighbours(tree)]
    assert check("phylogeny", phylogeny.log_likelihood, params, candidates, tolerance=1e-4) == 0
    scores = np.asarray(phylogeny.log_likelihood(params, candidates))
    assert scores.argmax() == 0, "sequences that evolved down a tree are explained best by that tree"


def test_newick_reads_lengths_names_and_nesting():
    tree, names = phylogeny.newick("((A:1,B:2):3,C:4.5);")
    assert names == ["A", "B", "C"] and tree.right.taxon == 2 and tree.left.right.taxon == 1
    lengths = [tree.left.length, tree.left.left.length, tree.left.right.length, tree.right.length]
    np.testing.assert_allclose(lengths, np.array([3, 1, 2, 4.5]) * phylogeny.SUBSTITUTIONS)


def test_the_baseline_of_the_demo_computes_the_same(trees):
    params = child_sum.parameters(hidden=16)
    zero = per_node.zero_state(params)
    states = [per_node.encode(params, tree, zero) for tree in trees]
    assert largest_difference(states, child_sum.encode.loop(params, trees)) < 1e-5


def test_the_demo_runs_and_reports(capsys):
    assert demo.main(["--trees", "100", "--batches", "3", "--eager", "2"]) == 0
    printed = capsys.readouterr().out
    assert "Largest difference to plain Python" in printed and "autobatch, batches of 64" in printed


def test_code_trees_are_the_same_every_time():
    first, again = code_trees(20), code_trees(20)
    assert first == again and len(first) == 20
    assert all(size(tree) <= 10 for tree in code_trees(5, largest=10))
    assert sum(1 for _ in nodes_of(Node(0, [Node(1, []), Node(2, [Node(3, [])])]))) == 4


def test_the_treebank_reader_splits_on_spaces_only(tmp_path):
    file = tmp_path / "dev.txt"
    file.write_text("(3 (2 It) (4 (1 4\u00a01/2) (2 It)))\n(2 (2 a) (0 b))\n", encoding="utf-8")
    trees, words = sentiment_trees(file)
    assert words == ["It", "4\u00a01/2", "a", "b"]
    right = Phrase(4, left=Phrase(1, word=1), right=Phrase(2, word=0))
    assert trees[0] == Phrase(3, left=Phrase(2, word=0), right=right)
    assert trees[1] == Phrase(2, left=Phrase(2, word=2), right=Phrase(0, word=3))


def test_differences_count_shapes_and_infinities():
    assert largest_difference([np.inf, np.nan, 1.0], [np.inf, np.nan, 1.0]) == 0
    assert largest_difference([np.zeros(2)], [np.zeros(3)]) == np.inf
    assert largest_difference([np.nan], [1.0]) == np.inf
    assert largest_difference([1.0], [3.0]) == 0.5


@pytest.mark.parametrize("program", [cky, edits])
@pytest.mark.filterwarnings("ignore::autobatch.StructureWarning")
def test_programs_with_tables(program, capsys):
    """Their dicts are traced. What their gradients mean is checked by them."""
    with ab.options(trace=True):
        assert program.main(3) == 0
    assert "in truth" in capsys.readouterr().out


@pytest.mark.long
def test_the_tagger_learns_endings(capsys):
    """Its own judgement: new words are told by their letters, more often than by guessing."""
    assert tagger.main(["--steps", "20", "--check", "2"]) == 0
    assert "of those that are new" in capsys.readouterr().out


def test_the_parser_learns_to_decide(capsys):
    assert parser.main(["--steps", "60", "--check", "3"]) == 0
    assert "with the right tree" in capsys.readouterr().out


def test_actions_make_trees():
    for example in parser.sentences(50):
        heights = np.cumsum([1 if action == parser.SHIFT else -1 for action in example.actions])
        assert heights.min() > 0 and heights[-1] == 1 and example.actions.count(parser.SHIFT) == len(example.words)


@pytest.mark.filterwarnings("ignore::autobatch.StructureWarning")
def test_lattice():
    with ab.options(trace=True):
        p, texts = lattice.parameters(8), ["abcde", "fabc", "a", "defab"]
        assert lattice.words_at("abcde")[2] == [(0, "abc"), (1, "bc")]
        assert check("lattice LSTM", lattice.score, p, texts, lattice.TOLERANCE) == 0


def test_molecules(tmp_path):
    graphs, active, kinds = molecules.random_molecules(40)
    assert 5 < active.sum() < 35
    p = molecules.parameters(kinds, hidden=8)
    assert check("molecules", molecules.score, p, graphs[:12], molecules.TOLERANCE) == 0
    before, after = molecules.train(p, graphs, active, steps=20, size=20)
    assert after < before


def test_the_reader_of_graphs(tmp_path):
    """Nodes count from 1 over all graphs; a graph may have no edge."""
    texts = {"A": "1, 2\n2, 1\n4, 5\n5, 4", "graph_indicator": "1\n1\n2\n3\n3", "graph_labels": "1\n-1\n1"}
    for what, text in {**texts, "node_labels": "3\n4\n3\n5\n3"}.items():
        (tmp_path / f"Some_{what}.txt").write_text(text + "\n", encoding="utf-8")
    graphs, active, kinds = molecules.of_file(tmp_path)
    assert [g.number_of_nodes() for g in graphs] == [2, 1, 2] and [g.number_of_edges() for g in graphs] == [1, 0, 1]
    assert [g.nodes[0]["kind"] for g in graphs] == [0, 0, 2]
    assert active.tolist() == [True, False, True] and kinds == 3
