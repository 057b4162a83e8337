"""`ab.batched`: how a function becomes batched, and which of its arguments have an axis of examples."""

from __future__ import annotations

import inspect
import logging
import pickle
import subprocess
import sys
import textwrap
from collections import namedtuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from tests.api import nodes
from tests.api.nodes import Node, close, params, total, trees
from tests.api.page.oracle import agrees

X = np.arange(12.0, dtype=np.float32).reshape(3, 4)
Y = X[::-1] + 1
Pair = namedtuple("Pair", "a b")


@jax.tree_util.register_pytree_node_class
class Box:
    """A pytree of two children, of no kind that JAX knows by itself."""

    def __init__(self, a, b):
        self.a, self.b = a, b

    def tree_flatten(self):
        return (self.a, self.b), None

    @classmethod
    def tree_unflatten(cls, _, children):
        return cls(*children)


# ---- the signature


def test_the_settings_are_keywords_with_defaults():
    """Everything but the function is given by name, and has the default that the page says."""
    parameters = inspect.signature(ab.batched).parameters
    function, *settings = parameters.values()
    assert function.kind is function.POSITIONAL_ONLY and function.default is None
    assert all(p.kind is p.KEYWORD_ONLY for p in settings)
    assert {p.name: p.default for p in settings} == {
        "in_axes": 0,
        "out_axes": 0,
        "backend": "auto",
        "on_error": "raise",
        "static": (),
        "options": None,
    }


def test_it_is_a_function_and_a_decorator_with_and_without_arguments():
    """Three ways to write the same, each of which makes a Batched."""

    @ab.batched
    def bare(x):
        return x * 2

    @ab.batched(in_axes=0)
    def called(x):
        return x * 2

    for f in (bare, called, ab.batched(lambda x: x * 2), ab.batched(lambda x: x * 2, in_axes=0)):
        assert isinstance(f, ab.Batched)
        close(f(X), 2 * X)


@pytest.mark.long
def test_it_keeps_the_types_of_the_function(tmp_path):
    """`f.example` has the parameters and the result of the function: a type checker refuses what Python would."""
    pytest.importorskip("mypy")
    source = tmp_path / "uses.py"
    source.write_text(
        textwrap.dedent(
            """
            import autobatch as ab

            @ab.batched
            def bare(x: float, n: int) -> float:
                return x * n

            @ab.batched(in_axes=(0, None))
            def called(x: float, n: int) -> float:
                return x * n

            reveal_type(bare.example)
            reveal_type(called.loop([1.0], 2))
            bare.example(1.0, 2)
            called.example("one", 2)
            bare.example(1.0)
            """
        )
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", str(source)]
    printed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    said = [line for line in printed.splitlines() if line.startswith(str(source))]
    assert [line.split(" type is ")[1] for line in said if "Revealed" in line] == [
        '"def (x: float, n: int) -> float"',
        '"list[float]"',
    ], printed
    errors = [line.split(":")[1] for line in said if ": error:" in line]
    assert errors == ["15", "16"], printed


def test_a_function_of_a_module_is_pickled_by_its_name():
    """Every copy in the process is the same function, with the programs that it has compiled."""
    assert pickle.loads(pickle.dumps(total)) is total


def test_a_batched_made_from_a_function_of_a_module_is_pickled_with_its_settings():
    """Another process makes it again from the function and the arguments of `batched`."""
    for function in (nodes.chain, total.__wrapped__, Scorer.free.__wrapped__):
        f = ab.batched(function, in_axes=(0,), on_error="mask", options=ab.options(max_rows=100))
        again = pickle.loads(pickle.dumps(f))
        assert again.__wrapped__ is function
        assert (again.settings.in_axes, again.settings.on_error) == ((0,), "mask")
        assert again.options().max_rows == 100


def test_methods_are_pickled_with_their_object():
    """A bound method takes its object along, a function of a class is pickled by its name."""
    assert pickle.loads(pickle.dumps(Scorer.scaled)) is Scorer.scaled
    again = pickle.loads(pickle.dumps(Scorer(3.0).scaled))
    close(again(2.0, trees()), [6, 12, 30])


# ---- in_axes


def test_an_int_is_the_axis_of_all_parameters():
    """One int, all parameters: as in `jax.vmap`."""
    for axis in (0, 1, -1):
        f = ab.batched(lambda x, y: x * y, in_axes=axis)
        close(f(X, Y), jax.vmap(lambda x, y: x * y, in_axes=axis)(X, Y))


def test_a_sequence_has_one_entry_for_each_positional_parameter():
    """Tuple or list; keyword-only parameters have none."""
    for axes in ((None, 1), [None, 1]):
        f = ab.batched(lambda p, x: p * x, in_axes=axes)
        close(f(2.0, X), 2 * X.T)
    with pytest.raises(ab.BatchError, match="3 entries for 2 positional"):
        ab.batched(lambda p, x: p * x, in_axes=(None, 0, 0))


def test_a_parameter_without_an_entry_keeps_its_default():
    """A shorter sequence leaves the rest at their defaults."""
    f = ab.batched(lambda x, scale=3.0: scale * x, in_axes=(0,))
    close(f(X), 3 * X)


@pytest.mark.parametrize("pass_it", [lambda f: f(X, 2.0), lambda f: f(X, scale=2.0)])
def test_passing_a_parameter_without_an_entry_is_an_error(pass_it):
    """By position or by name: nothing says whether it is batched."""
    with pytest.raises(ab.BatchError, match="no entry for 'scale'"):
        pass_it(ab.batched(lambda x, scale=3.0: scale * x, in_axes=(0,)))


def test_a_dict_names_parameters():
    """Keyword-only ones too; what it does not name keeps its default."""

    def g(p, *, x, shift=1.0):
        return p * x + shift

    f = ab.batched(g, in_axes={"p": None, "x": 1})
    close(f(2.0, x=X), 2 * X.T + 1)
    with pytest.raises(ab.BatchError, match="no entry for 'shift'"):
        f(2.0, x=X, shift=0.0)


@pytest.mark.parametrize(
    "entry, value",
    [
        ({"p": None, "x": 0}, {"p": np.float32(2), "x": X}),
        ((None, 1), (np.float32(2), X)),
        (Pair(None, 1), Pair(np.float32(2), X)),
        (Box(None, 1), Box(np.float32(2), X)),
        ({"p": None, "x": (0, 1)}, {"p": np.float32(2), "x": (X, X.T)}),
        (0, {"p": X, "x": Y}),
        ([None, 0], [np.float32(2), X]),
    ],
    ids=lambda v: type(v).__name__,
)
def test_an_entry_is_a_prefix_of_the_argument_as_in_vmap(entry, value):
    """Of a dict, tuple, NamedTuple or registered pytree; an int stands for all that is below it."""

    def product(q):
        made = 1.0
        for leaf in jax.tree.leaves(q):
            made = made * leaf
        return made

    given = ab.stacked(value) if isinstance(value, list) else value
    close(ab.batched(product, in_axes=(entry,))(given), jax.vmap(product, in_axes=(entry,))(value))


def test_an_entry_that_is_no_prefix_is_refused():
    """The error names the argument."""
    with pytest.raises(ab.BatchError, match="in_axes for q"):
        ab.batched(lambda q: q[0], in_axes=({"a": 0},))((X, X))


def test_keyword_arguments_use_the_entry_of_their_parameter():
    """`jax.vmap` would map every keyword over axis 0; here the name decides."""
    f = ab.batched(lambda p, x: p @ x, in_axes=(None, 1))
    p = np.ones((2, 3), np.float32)
    close(f(x=X, p=p), f(p, X))
    close(f(p, x=X), (p @ X).T)


@pytest.mark.parametrize("axes", [None, (None,), {"x": None}, ((None, None),)])
def test_at_least_one_entry_is_batched(axes):
    """A function of shared arguments alone has nothing to batch."""
    with pytest.raises(ab.BatchError, match="batches nothing"):
        ab.batched(lambda x: x, in_axes=axes)


def test_a_call_that_leaves_out_all_batched_arguments_is_refused():
    """The same where only defaults are left."""
    with pytest.raises(ab.BatchError, match="no argument of this call is batched"):
        ab.batched(lambda p, x=1.0: p, in_axes=(None, 0))(1.0)


@pytest.mark.parametrize("right", [Y[:2], [1.0, 2.0], {"a": Y[:2]}, ab.pack([1.0, 2.0])], ids=str)
def test_batched_arguments_have_one_size(right):
    """Else the error names the arguments with their sizes."""
    with pytest.raises(ab.BatchError, match=r"left has 3, right\S* has 2"):
        ab.batched(lambda left, right: 0.0)(X, right)


def test_var_positional_takes_the_last_entry():
    """All of `*args` have the axis that the last entry says."""
    f = ab.batched(lambda p, *xs: p * sum(xs), in_axes=(None, 1))
    close(f(jnp.float32(2), X, Y), 2 * (X + Y).T)
    agrees(ab.batched(lambda *ts: sum(t.x for t in ts)), trees(), trees()[::-1])


def test_var_keywords_are_refused_unless_the_dict_names_them():
    """A dict may name the keywords, or the parameter for all of them."""

    def g(**given):
        return given["x"] * 2

    with pytest.raises(ab.BatchError, match="x go to \\*\\*given, which is refused unless"):
        ab.batched(g)(x=X)
    close(ab.batched(g, in_axes={"x": 1})(x=X), 2 * X.T)
    close(ab.batched(g, in_axes={"given": 1})(x=X), 2 * X.T)


class Scorer:
    """A method, one that calls it, and one of all instances alike."""

    def __init__(self, w):
        self.w = jnp.float32(w)

    @ab.batched(in_axes=(None, 0))
    def scaled(self, k, t):
        return self.w * k * t.x

    @ab.batched
    def score(self, t):
        return self.scaled(2.0, t)

    @staticmethod
    @ab.batched
    def free(t):
        return t.x


def test_self_is_shared_and_has_no_entry():
    """The entries of a method begin behind `self`."""
    scorer = Scorer(3.0)
    close(scorer.scaled(2.0, trees()), [6, 12, 30])
    close(scorer.score(trees()), [6, 12, 30])
    close(Scorer.score(scorer, trees()), [6, 12, 30])
    close(Scorer.free(trees()), [1, 2, 5])
    agrees(scorer.score, trees())


# ---- backend


@pytest.mark.parametrize("backend", ["metal", "fortran"])
def test_a_back_end_that_is_not_available_is_an_error(backend):
    """Said where it is asked for, whether by argument, context or environment."""
    with pytest.raises(ab.Error, match=backend):
        ab.batched(lambda x: x, backend=backend)
    with pytest.raises(ab.Error, match=backend):
        ab.options(backend=backend)


def test_a_back_end_of_the_environment_that_is_not_available_is_an_error(monkeypatch):
    """A call names the variable."""
    monkeypatch.setenv("AUTOBATCH_BACKEND", "metal")
    with pytest.raises(ab.Error, match="AUTOBATCH_BACKEND is 'metal'"):
        ab.batched(lambda x: x)(X)


@pytest.mark.parametrize("backend", ["auto", "interpret", "xla"])
def test_each_back_end_gives_the_same(backend):
    """`auto` is one of the others."""
    close(ab.batched(total.__wrapped__, in_axes=(None, 0), backend=backend)(params(), trees()), [2, 18, 70])


def test_auto_says_in_explain_what_it_took():
    """The name of the back end that a call runs on."""
    assert "xla" in str(ab.batched(lambda t: t.x * 2).explain(trees()))


def test_the_argument_wins_over_the_context_and_the_context_over_the_environment(monkeypatch):
    """For a back end as for every option."""
    monkeypatch.setenv("AUTOBATCH_MAX_ROWS", "10")
    f, g = ab.batched(lambda x: x), ab.batched(lambda x: x, options=ab.options(max_rows=30))
    assert f.options().max_rows == 10
    with ab.options(max_rows=20):
        assert f.options().max_rows == 20
        assert g.options().max_rows == 30


# ---- what is kept between calls


def test_the_log_names_the_part_of_the_key_that_changed(caplog):
    """One line for each compilation, so that a needless one is found by reading it."""
    f = ab.batched(lambda p, q, t: p * q["w"] * t.x, in_axes=(None, None, 0))
    calls = [
        (lambda: f(2.0, {"w": jnp.ones(2)}, trees()), "compiling"),
        (lambda: f(2.0, {"w": jnp.ones(3)}, trees()), r"shared changed from float32[2] to float32[3]"),
        (lambda: f(2.0, {"w": jnp.ones(3), "b": 0.0}, trees()), "arguments changed"),
        (lambda: f(2.0, {"w": jnp.ones(3)}, [Node(np.ones(3))]), "schema changed: Node.x was float"),
    ]
    for call, words in calls:
        caplog.clear()
        with caplog.at_level(logging.INFO, logger="autobatch"):
            call()
        assert any(words in r.getMessage() for r in caplog.records), [r.getMessage() for r in caplog.records]
    with jax.enable_x64(True), caplog.at_level(logging.INFO, logger="autobatch"):
        caplog.clear()
        f(2.0, {"w": jnp.ones(3, jnp.float32)}, trees())
    assert any("x64 changed from False to True" in r.getMessage() for r in caplog.records)


@pytest.mark.cpu
def test_caches_are_bounded():
    """The specialisation that was used last stays."""
    f = ab.batched(lambda p, x: p + x, in_axes=(None, 0), options={"cache_size": 2})
    for n in (1, 2, 3, 2):
        f(jnp.ones(n), np.ones(3))
    assert f.cache_info().specialisations == 2
    before = f.cache_info()
    f(jnp.ones(2), np.ones(3))
    assert f.cache_info() == before


def test_executables_are_bounded():
    """One program keeps as many size classes as the option says, too."""
    f = ab.batched(lambda t: t.x * 2, options={"cache_size": 2})
    for n in (1, 40, 300, 2000):
        f([Node(1.0)] * n)
    assert f.cache_info().executables <= 2
