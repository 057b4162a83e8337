"""`examples/trees/sentiment.py` trains, and goes on from a checkpoint as if it had not stopped."""

import ast
from dataclasses import asdict, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.image import imread
from rich.console import Console

import autobatch as ab
from examples.trees import checkpoint, labelled, sentiment
from examples.trees.check import largest_difference
from examples.trees.labelled import NO_LABEL, UNKNOWN, Task, Tree, nodes_of

SETTINGS = sentiment.Settings(hidden=4, embedding=3, batch=4, rate=0.05, dropout=0.2, decay=0.01, seed=3)


@pytest.fixture(scope="module", autouse=True)
def few_widths():
    """The programs of these tests compile in half the time."""
    with ab.options(widths=(8,)):
        yield


@pytest.fixture(scope="module")
def task():
    """Sequences of the words 1 and 2 as trees that lean right: which of them comes last? The label of every node."""
    rng, numbers = np.random.default_rng(0), iter(range(10_000))

    def tree(words):
        label = int(words[-1]) - 1
        if len(words) == 1:
            return Tree(next(numbers), label, word=int(words[0]))
        return Tree(next(numbers), label, left=tree(words[:1]), right=tree(words[1:]))

    trees = [tree(rng.integers(1, 3, rng.integers(1, 6))) for _ in range(22)]
    return Task("which word comes last?", trees[:16], trees[16:], 3, ("one", "two"))


@pytest.fixture(scope="module")
def unbroken(task, tmp_path_factory):
    training = sentiment.Training(task, SETTINGS, tmp_path_factory.mktemp("unbroken"))
    training.run(8, float("inf"), Console(quiet=True))
    return training


def test_the_loss_falls_and_answers_on_other_trees_are_right(unbroken):
    losses = unbroken.history.losses
    assert len(losses) == 8 * 4 and np.mean(losses[-4:]) < 0.5 * np.mean(losses[:4]), losses
    steps, roots, nodes = zip(*unbroken.history.judged)
    assert steps == tuple(range(4, 36, 4))
    assert roots[-1] == nodes[-1] == 1.0 > unbroken.task.baseline(roots_only=True)


def test_accuracies_are_those_of_plain_python(unbroken, task):
    found = sentiment.score.loop(unbroken.state.params, task.dev)
    count = sum(1 for tree in task.dev for _ in nodes_of(tree))
    _, root, nodes = unbroken.history.judged[-1]
    assert root == np.mean([r for r, _ in found]) and nodes == sum(int(n) for _, n in found) / count


def test_dropout_is_that_of_plain_python(unbroken, task):
    """Each tree alone draws what it draws in a batch, whatever else is in that."""
    params, key, trees = unbroken.state.params, jax.random.key(7), task.train[:5]
    plain = sentiment.loss.loop(params, key, 0.5, trees)
    assert largest_difference(list(sentiment.loss(params, key, 0.5, trees)), plain) < 1e-5
    assert largest_difference(list(sentiment.loss(params, key, 0.5, trees[::-1])), plain[::-1]) < 1e-5
    without = sentiment.loss(params, key, 0.0, trees)
    assert largest_difference(list(without), plain) > 1e-3, "a half is left out"


def test_what_stops_in_an_epoch_and_goes_on_has_the_same_losses_to_the_last_bit(unbroken, task, tmp_path):
    first = sentiment.Training(task, SETTINGS, tmp_path)
    loader = iter(first.loader)
    for _ in range(3):
        first.learn(next(loader))
    first.judge()
    first.save()
    second = sentiment.Training(task, SETTINGS, tmp_path)
    second.resume()
    assert second.history.losses == first.history.losses == unbroken.history.losses[:3]
    second.run(8, float("inf"), Console(quiet=True))
    assert second.history.losses == unbroken.history.losses
    assert second.history.judged[1:] == unbroken.history.judged
    for ours, theirs in zip(jax.tree.leaves(second.state), jax.tree.leaves(unbroken.state), strict=True):
        assert np.array_equal(*map(numbers, (ours, theirs)))


def numbers(x):
    return jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x


def test_a_checkpoint_of_another_model_is_refused(unbroken, task):
    other = sentiment.Training(task, replace(SETTINGS, hidden=5), unbroken.out)
    with pytest.raises(ValueError, match="is of hidden 4, not 5"):
        other.resume()
    with pytest.raises(ValueError, match=r"float32\[4, 20\], not float32\[5, 25\]"):
        checkpoint.load(unbroken.checkpoint, other.state)
    with pytest.raises(ValueError, match="is in one of them only"):
        checkpoint.load(unbroken.checkpoint, {"a": np.zeros(1)})


def test_an_interrupted_checkpoint_leaves_the_one_before(tmp_path, monkeypatch):
    path = tmp_path / "new" / "checkpoint.npz"
    checkpoint.save(path, {"x": np.arange(3)}, {"n": 1})

    def interrupted(file, **arrays):
        file.write(b"half of it")
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "savez", interrupted)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.save(path, {"x": np.zeros(3)}, {"n": 2})
    assert checkpoint.facts(path) == {"n": 1} and checkpoint.load(path, {"x": np.arange(3)})["x"].tolist() == [0, 1, 2]
    assert [p.name for p in path.parent.iterdir()] == [path.name]


# ---- the data


def test_the_treebank_is_read_with_the_words_of_its_training_part(tmp_path):
    (tmp_path / "train.txt").write_text("(3 (2 A) (4 film))\n(1 (2 a) (0 (2 bad) (2 Film)))\n")
    (tmp_path / "dev.txt").write_text("(0 (2 Bad) (2 film))\n")
    task = labelled.sentences(tmp_path)
    first, second = task.train
    assert (first.label, first.left.word, first.right.word, task.words) == (
        3,
        second.left.word,
        second.right.right.word,
        3,
    )
    (tree,) = task.dev
    assert tree.left.word == UNKNOWN == second.right.left.word, "'bad' occurs once"
    numbers = [node.number for t in task.train + task.dev for node in nodes_of(t)]
    assert len(set(numbers)) == len(numbers) == 3 + 5 + 3
    assert task.labels_inside and task.baseline(roots_only=False) == pytest.approx(2 / 3)


SHOWN = """
class C(Base):
    @property
    def both(self, secret: int = 3) -> int:
        'A method of C.'
        super().set(secret)
        return len(self.parts)

def both(secret):
    'Another docstring.'
    x.set(secret)
    return len(y.parts)
"""


def test_a_function_does_not_show_whether_it_is_a_method():
    syntax = ast.parse(SHOWN)
    words: dict[str, int] = {}
    found = [
        ([labelled._binary(s, words) for s in labelled._body(f)], method) for f, method in labelled._definitions(syntax)
    ]
    (of_method, yes), (of_function, no) = found
    assert yes and not no and of_method[1] == of_function[1]
    assert set(words) == {
        *("Expr", "Call", "Attribute set", "Name", "Return", "Name len", "Attribute parts"),
    }, "neither names of variables nor super, docstrings, parameters, decorators"


def test_functions_are_split_by_module():
    task = labelled.functions(40)
    assert len(task.train) == len(task.dev) == 40 and not task.labels_inside
    assert {tree.label for tree in task.train} <= {0, 1}
    assert all(node.label == NO_LABEL for tree in task.train for node in nodes_of(tree) if node is not tree)


def test_the_command_trains_resumes_and_draws(task, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sentiment, "functions", lambda limit: task)
    given = [f"--{name}={value}" for name, value in asdict(SETTINGS).items()] + ["--out", str(tmp_path)]
    assert sentiment.main([*given, "--epochs", "1"]) == 0
    printed = capsys.readouterr().out
    assert "the most frequent answer" in printed and str(tmp_path / "loss.png") in printed.replace("\n", "")
    assert imread(tmp_path / "loss.png").ndim == 3
    assert sentiment.main([*given, "--epochs", "2", "--resume"]) == 0
    assert "going on behind step 4" in capsys.readouterr().out
    assert sentiment.main([*given, "--epochs", "9", "--minutes", "0", "--resume"]) == 0
    assert sentiment.main([*given, "--epochs", "9", "--seed", "4", "--resume"]) == 1
    assert "is of seed 3, not 4" in capsys.readouterr().out
    assert len(checkpoint.facts(tmp_path / "checkpoint.npz")["history"]["losses"]) == 8


@pytest.mark.long
def test_the_command_trains_on_code(tmp_path, capsys):
    small = ["--trees", "40", "--hidden", "4", "--embedding", "4", "--epochs", "1", "--out", str(tmp_path)]
    assert sentiment.main(small) == 0
    assert "40 trees to learn from, 40 held out" in capsys.readouterr().out
