"""The programs of `examples/`: `python -m benchmarks.choice --of benchmarks.choice.of_examples`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from benchmarks.choice.programs import Case
from examples.control import decode, early_exit, machine, mandelbrot, nuts, ode, roots
from examples.language import lattice, parser, tagger
from examples.tables import cky, edits, molecules
from examples.trees import binary, child_sum, data, expressions, phylogeny


def cases(rows: int) -> Iterator[Case]:
    """With `rows` examples each; trees and sentences packed before the call, as training does it, and not."""
    yield from _numbers(rows)
    for packed in (False, True):
        yield from _structures(rows, packed)


def _numbers(rows: int) -> Iterator[Case]:
    """What takes arrays and numbers."""
    layers, (points, labels) = early_exit.parameters(), early_exit.spirals(rows)
    codes, constants, _ = machine.programs(rows)
    re, im = mandelbrot.plane(rows, 1)
    rates, starts = ode.problems(rows)
    states = random.normal(random.key(1), (rows, 20))
    words = decode.parameters()
    yield _case("decode", decode.decode, (words, decode.states(rows)))
    yield _case("early exit", early_exit.classify, (layers, points))
    yield _case("early exit, loss", early_exit.loss, (layers, points, labels), wrt=0)
    yield _case("machine", machine.execute, (codes, constants), (0, 0), wrt=1)
    yield _case("mandelbrot", mandelbrot.escape, (re, im), (0, 0))
    yield _case("NUTS", nuts.transition, (nuts.gaussian(20), random.split(random.key(0), rows), states, 0.3), _NUTS)
    yield _case("ODE", ode.solve, (rates, starts), (0, 0))
    yield _case("ODE, distance", ode.distance, (rates, starts, np.ones_like(starts)), (0, 0, 0), wrt=0)
    yield _case("Kepler", roots.solve, roots.orbits(rows), (0, 0))


_NUTS = (None, 0, 0, None)


def _structures(rows: int, packed: bool) -> Iterator[Case]:
    """What takes sentences, trees and graphs."""
    end = " packed" if packed else ""
    sentences = parser.sentences(rows)
    yield _case(f"CKY{end}", cky.inside, (cky.grammar(), cky.sentences(rows)), wrt=0, packed=packed)
    yield _case(f"edits{end}", edits.distance, (edits.costs(), edits.pairs(rows)), wrt=0, packed=packed)
    found, _, kinds = molecules.random_molecules(rows)
    yield _case(f"molecules{end}", molecules.score, (molecules.parameters(kinds), found), wrt=0, packed=packed)
    yield _case(f"parser{end}", parser.parse, (parser.parameters(), [s.words for s in sentences]), packed=packed)
    yield _case(f"parser, loss{end}", parser.loss, (parser.parameters(), sentences), wrt=0, packed=packed)
    yield _case(f"lattice{end}", lattice.score, (lattice.parameters(), lattice.sentences(rows)), wrt=0, packed=packed)
    tagged = tagger.sentences(rows, 60)
    yield _case(f"tagger{end}", tagger.tags, (tagger.parameters(60), tagged), packed=packed)
    yield _case(f"tagger, loss{end}", tagger.loss, (tagger.parameters(60), tagged), wrt=0, packed=packed)
    trees = data.code_trees(rows, largest=300)
    yield _case(f"code{end}", child_sum.encode, (child_sum.parameters(), trees), packed=packed)
    phrases = [data.binarised(t) for t in trees]
    yield _case(f"phrases{end}", binary.encode, (binary.parameters(len(data.KINDS)), phrases), packed=packed)
    values = jnp.linspace(0.5, 1.5, expressions.VARIABLES)
    arithmetic = expressions.stdlib_expressions(rows)
    yield _case(f"arithmetic{end}", expressions.evaluate, (values, arithmetic), wrt=0, packed=packed)
    yield _case(f"primates{end}", phylogeny.log_likelihood, _primates(rows), wrt=0, packed=packed)


def _primates(rows: int) -> tuple[Any, ...]:
    tree, names = phylogeny.newick(phylogeny.PRIMATES)
    p: dict[str, jax.Array] = phylogeny.model()
    p["alignment"] = phylogeny.simulate(p, tree, np.random.default_rng(0), len(names))
    candidates = [tree, *phylogeny.neighbours(tree)]
    return p, [candidates[k % len(candidates)] for k in range(rows)]


def _case(
    name: str, f: Any, arguments: tuple[Any, ...], axes: Any = (None, 0), wrt: int | None = None, packed: bool = False
) -> Case:
    in_axes = (None, *[0] * (len(arguments) - 1)) if axes == (None, 0) else axes
    return Case(name, f.__wrapped__, in_axes, arguments, wrt, packed, trace=True)
