"""What a user reads when something is wrong: the words are Python's and theirs, and of our frames there is one."""

import math
import traceback
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import scipy.optimize
import scipy.special
import scipy.stats

import autobatch as ab

X = np.linspace(0, 1, 4).astype(np.float32)


@dataclass
class Point:
    x: float
    near: list[float]


STRINGS = [Point(["a", "b"], [1.0]), Point(["c"], [2.0])]
LISTS = [Point(1.0, ["a"]), Point(2.0, ["b", "c"])]


def raised(call):
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def ours(error):
    return [f.name for f in traceback.extract_tb(error.__traceback__) if "/autobatch/" in f.filename]


WRONG = {
    "a list for a float": (lambda p: p.x + 1.0, STRINGS, r"unsupported operand type\(s\) for \+: 'list' and 'float'"),
    "its negative": (lambda p: -p.x, STRINGS, "bad operand type for unary -: 'list'"),
    "its order": (lambda p: 1.0 if p.x > 1.0 else 0.0, STRINGS, "'>' not supported between instances of 'list' and 'f"),
    "its exponential": (lambda p: math.exp(p.x), STRINGS, "this is a list of str"),
    "its double": (lambda p: p.x * 2.0, STRINGS, r"unsupported operand type\(s\) for \*: 'list' and 'float'"),
    "strings for floats": (lambda p: sum(p.near), LISTS, "sum.. adds numbers and arrays, and this is a str"),
    "a string and a number": (lambda p: p.near[0] + p.x, LISTS, r"for \+: 'str' and 'float'"),
    "gamma": (lambda x: scipy.special.gamma(x), X, "gamma.. cannot be traced(.|\n)*write jax.scipy.special.gamma"),
    "a density": (lambda x: scipy.stats.norm.pdf(x), X, "write jax.scipy.stats.norm.pdf"),
    "a norm": (lambda x: scipy.linalg.norm(jnp.stack([x, x])), X, "write jnp.linalg.norm"),
    "a root": (lambda x: scipy.optimize.brentq(lambda y: y - x, 0, 1), X, "or call it outside of the function"),
}


@pytest.mark.parametrize("backend", ["auto", "interpret", "llvm"])
@pytest.mark.parametrize("name", list(WRONG))
def test_what_is_wrong_is_said_in_pythons_words(name, backend):
    function, batch, says = WRONG[name]
    error = raised(lambda: ab.batched(function, backend=backend)(batch))
    assert isinstance(error, ab.UnsupportedError)
    with pytest.raises(ab.UnsupportedError, match=says):
        raise error
    assert not any(word in str(error) for word in ("Tracer", "traced array", "__array__", "Leaf", "Input("))


@pytest.mark.parametrize("trace", ["0", "1"])
def test_no_symbol_stands_for_a_number(trace, monkeypatch):
    monkeypatch.setenv("AUTOBATCH_TRACE", trace)
    error = raised(lambda: ab.batched(lambda p: p.near[0] + p.x)(LISTS))
    assert "'float'" in str(error) or '"float"' in str(error)
    assert "Tracer" not in str(error) and "Symbol" not in str(error)


def test_a_field_that_holds_something_else_than_declared_is_named():
    says = r"Point.x is declared float, and holds list\[str\]"
    with pytest.raises(ab.UnsupportedError, match=says):
        ab.batched(lambda p: p.x + 1.0)(STRINGS)
    with pytest.raises(ab.UnsupportedError, match=r"Point.near is declared list\[float\], and holds list\[str\]"):
        ab.batched(lambda p: sum(p.near))(LISTS)
    error = raised(lambda: ab.batched(lambda p: p.x.foo)([Point(1.0, [1.0]), Point(np.float32(2), [])]))
    assert "declared" not in str(error)


def test_the_order_of_decorators():
    with pytest.raises(ab.BatchError, match="not a classmethod: write @classmethod above @ab.batched"):
        ab.batched(classmethod(lambda cls, x: x))

    class Model:
        scale = 2.0
        double = staticmethod(ab.batched(lambda x: x * 2.0))
        scaled = classmethod(ab.batched(lambda cls, x: x * cls.scale))

        @ab.batched
        @staticmethod
        def twice(x):
            return x * 2.0

    for f in (Model.double, Model().double, Model.scaled, Model().scaled, Model.twice, Model().twice):
        np.testing.assert_array_equal(f(X), X * 2)


@pytest.mark.parametrize(
    "call, says",
    [
        (
            lambda: ab.batched(lambda x: x, options={"max_dept": 3})(X),
            "no option 'max_dept'; did you mean 'max_depth'?",
        ),
        (lambda: ab.options(bakend="llvm"), "there is no option 'bakend'; did you mean 'backend'?"),
        (lambda: ab.batched(lambda x: x, backend="lvm"), "backend='lvm' is not available; did you mean 'llvm'?"),
        (lambda: ab.batched(lambda x: x, in_axis=0), "has no argument 'in_axis'; did you mean 'in_axes'?"),
        (lambda: ab.grad(lambda x: x, argnum=0), "has no argument 'argnum'; did you mean 'argnums'?"),
        (lambda: ab.batched(lambda x: x, colour=0), "has no argument 'colour'$"),
    ],
)
def test_the_nearest_name_is_asked_for(call, says):
    assert says.rstrip("$") in str(raised(call))


def decides(x):
    return [1.0, 2.0][int(x * 10)]


CALLS = {
    "a call": lambda: ab.batched(lambda x: x.foo)(X),
    "a call whose examples fail": lambda: ab.batched(decides)(X),
    "machine code": lambda: ab.batched(decides, backend="llvm")(X),
    "a gradient": lambda: ab.grad(ab.batched(lambda n: n * 2))(np.arange(3)),
    "values": lambda: ab.value_and_grad(ab.batched(decides))(X),
    "lower": lambda: ab.batched(lambda x: x.foo).lower(X),
    "pack": lambda: ab.pack([1.0, b"a"]),
    "unequal": lambda: ab.batched(lambda x, y: x + y)(X, X[:2]),
    "what compiles in memory": lambda: ab.batched(lambda xs: sorted(xs, key=lambda x: x.foo))([[1.0], [2.0, 1.0]]),
}


@pytest.mark.parametrize("name", list(CALLS))
def test_an_error_shows_at_most_three_frames_of_ours(name):
    error = raised(CALLS[name])
    held = error
    while held is not None:
        assert len(ours(held)) <= 3, ours(held)
        held = held.__cause__
    assert type(error).__module__ in ("autobatch.errors", "autobatch.options")
    assert error.__suppress_context__ or error.__context__ is None


def test_all_frames_are_shown_where_jax_shows_its_own(monkeypatch):
    before = jax.config.jax_traceback_filtering
    jax.config.update("jax_traceback_filtering", "off")
    try:
        assert len(ours(raised(CALLS["a call"]))) > 3
    finally:
        jax.config.update("jax_traceback_filtering", before)


def test_types_that_disagree_are_described_shortly():
    def f(n, xs):
        v = (n,) * 60
        while n > 0:
            v, n = abs, n - 1
        return n + len(v)

    with pytest.raises(ab.TypeConflictError, match="tuple.0: .*, and 56 more. and") as caught:
        ab.batched(f, backend="llvm")(np.float32([1, 2]), [[1.0, 2.0], [3.0]])
    assert len(str(caught.value)) < 1000
