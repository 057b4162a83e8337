"""`batch.plan(f, share=)`: which equal rows are computed once."""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from autobatch.planning import bind
from tests.api.nodes import close


@dataclass
class Word:
    kind: int
    kids: list["Word"] = field(default_factory=list)


def words() -> list[Word]:
    return [Word(1, [Word(0), Word(0)]), Word(1, [Word(0), Word(0)]), Word(0), Word(2, [Word(1), Word(1)])]


def _encoder():
    @ab.batched(in_axes=(None, 0), backend="xla")
    def encode(p, t):
        return jnp.tanh(p["emb"][t.kind] + sum(encode(p, c) for c in t.kids))

    return encode


P = {"emb": jnp.arange(12.0).reshape(3, 4) / 10}


def _rows(f, batch) -> int:
    """How many rows all spaces together have when a batch runs."""
    (program,) = f.specialisations_for(batch.on_host)
    tables, _ = batch.on_host.tables(program)
    spaces = program.compiled.spec.spaces
    counts = tables["integers"][: len(spaces)]
    return int(sum(n for space, n in zip(spaces, counts, strict=False) if space.kind == "region"))


def test_equal_rows_are_one_in_the_batch_or_in_each_example():
    f = _encoder()
    f(P, words())
    data = ab.pack(words())
    whole, apart = data.plan(f), data.plan(f, share="example")
    expected = np.stack(f.loop(P, words()))
    close(f(P, whole), expected)
    close(f(P, apart), expected)
    assert _rows(f, whole) < _rows(f, apart)
    assert _rows(f, apart) == sum(_rows(f, apart[[k]]) for k in range(4)), "no row belongs to two examples"
    assert _rows(f, apart[[0]]) == _rows(f, whole[[0]])


def test_copies_of_an_example_share_no_rows():
    f = _encoder()
    f(P, words())
    apart, whole = ab.pack(words()).plan(f, share="example"), ab.pack(words()).plan(f)
    twice = [1, 1, 1]
    assert _rows(f, apart[twice]) == 3 * _rows(f, apart[[1]])
    assert _rows(f, whole[twice]) < _rows(f, apart[twice])
    close(f(P, apart[twice]), np.stack(f.loop(P, [words()[1]] * 3)))


def test_both_ways_side_by_side_make_no_second_plan():
    f = _encoder()
    data = ab.pack(words()).plan(f)
    f(P, data)
    plans = f.cache_info().plans
    apart = data.plan(f, share="example")
    close(f(P, apart[1:]), f(P, data[1:]))
    assert f.cache_info().plans == plans
    assert _rows(f, data) < _rows(f, apart)
    assert _rows(f, apart.plan(f)) == _rows(f, data)


def test_it_travels_with_the_batch():
    f = _encoder()
    f(P, words())
    apart = ab.pack(words()).plan(f, share="example")
    step = jax.jit(f)
    expected = np.stack(f.loop(P, words()))
    close(step(P, apart), expected)
    close(step(P, apart[[3, 0]]), expected[[3, 0]])
    through = jax.jit(lambda b: b)(apart)
    close(f(P, through), expected)
    assert _rows(f, through[[1, 1]]) == 2 * _rows(f, apart[[1]])
    epoch = apart.epoch([[0, 1], [1, 1]])
    close(jax.lax.scan(lambda c, b: (c, f(P, b)), 0, epoch)[1], expected[np.array([[0, 1], [1, 1]])])


def test_shared_rows_of_integers_wide():
    """`fib(n)` is decided by an integer: rows of all examples are one, or those of each."""

    @ab.batched
    def fib(n):
        if n < 2:
            return n * 1.0
        return fib(n - 1) + fib(n - 2)

    data = ab.pack([7, 7, 5]).plan(fib)
    close(fib(data), [13, 13, 5])
    apart = data.plan(fib, share="example")
    close(fib(apart), [13, 13, 5])
    assert _rows(fib, data) < _rows(fib, apart) == _rows(fib, apart[:1]) * 2 + _rows(fib, apart[2:])


def test_pairs_share_within_an_example():
    f = _encoder()
    sim = ab.batched(lambda p, a, b: f(p, a) @ f(p, b), in_axes=(None, 0, 0))
    left, right = words(), words()[::-1]
    pairs = sim.pack(left, right)
    apart = pairs.plan(sim, share="example")
    close(sim(P, *apart.args), sim.loop(P, left, right))
    close(sim(P, *apart[[1, 1]].args), sim(P, *pairs[[1, 1]].args))


def test_other_words_are_refused():
    with pytest.raises(ab.PlanError, match="'batch' or 'example'"):
        ab.pack(words()).plan(_encoder(), share="all")


def test_what_binding_finds_out_is_found_out_once(monkeypatch):
    """For minibatches that share within examples too: they are cut from a plan that differs in this alone."""
    made = []

    class Counted(bind.Binding):
        def __init__(self, plan):
            made.append(plan)
            super().__init__(plan)

    monkeypatch.setattr(bind, "Binding", Counted)
    encode, p = _encoder(), {"emb": jnp.linspace(0.0, 1.0, 9).reshape(3, 3)}
    data = ab.pack(words() * 8).plan(encode, share="example")
    for start in (0, 8, 16):
        chosen = np.arange(start, start + 8)
        close(encode(p, data[chosen]), jnp.stack(encode.loop(p, [(words() * 8)[k] for k in chosen])))
    assert len(made) == 1
