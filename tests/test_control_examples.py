"""Every example of computed control agrees with the plain Python function, on a few of its own inputs."""

import jax
import numpy as np
import pytest

import autobatch as ab
from examples.control import decode, early_exit, machine, mandelbrot, nuts, ode, roots
from examples.control.check import check


def test_mandelbrot(capsys):
    assert mandelbrot.main(12) == 0
    assert "@" in capsys.readouterr().out, "some points stay"


def test_ode(monkeypatch):
    rates, starts = ode.problems(5)
    steps = np.asarray(ode.solve(rates, starts)[1])
    assert len(set(steps.tolist())) > 1, "examples choose their own steps"
    monkeypatch.setattr(ode, "END", 0.4)  # JAX's gradient of the plain loop compiles every operation by itself
    args = rates[:2], starts[:2], np.ones((2, 2), np.float32)
    assert check("ode", ode.distance, args, tolerance=1e-4, grads=(0,)) == 0


def test_decode():
    args = decode.parameters(), decode.states(8)
    lengths = np.asarray(decode.decode(*args)[1])
    assert lengths.min() < lengths.max(), "sequences end by themselves"
    assert check("decoding", decode.decode, args) == 0


def test_early_exit():
    points, labels = early_exit.spirals(60)
    layers = early_exit.train(early_exit.parameters(layers=3, width=8), points, labels, steps=100)
    found, used, _ = map(np.asarray, early_exit.classify(layers, points))
    assert np.mean(found == labels) > 0.8 and used.min() < used.max()
    assert check("early exit", early_exit.classify, (layers, points[:4])) == 0
    assert check("its loss", early_exit.loss, (layers, points[:1], labels[:1]), tolerance=1e-4, grads=(0,)) == 0


def test_roots():
    assert roots.main(2) == 0


def test_the_programs_of_the_machine():
    """Values by machine code and by plain Python; what the gradients are, the programs know themselves."""
    codes, constants, wanted = machine.programs(6)
    with ab.options(backend="llvm"):
        assert check("interpreter", machine.execute, (codes, constants), machine.TOLERANCE) == 0
    slopes = np.asarray(ab.grad(machine.execute, argnums=1)(codes, constants))
    is_x = (constants != 0.5) & (constants != 1.0)
    np.testing.assert_allclose((slopes * constants * is_x).sum(1), wanted, rtol=1e-2)


def test_a_transition_of_nuts():
    """Trees of several depths, as the reference back end runs their blocks."""
    model = nuts.gaussian(2)
    keys, q = jax.random.split(jax.random.key(3), 3), np.array([[0.1, 2.0], [-3.0, 0.0], [1.0, 1.0]], np.float32)
    with ab.options(backend="interpret"):
        assert len(set(np.asarray(nuts.transition(model, keys, q, 0.4)[2]).tolist())) > 1
        assert check("nuts", nuts.transition, (model, keys, q, 0.4), tolerance=1e-4) == 0


@pytest.mark.long
def test_chains_of_nuts():
    assert nuts.main(chains=20, dimensions=3, warm_up=40, draws=100) == 0


def test_draws_are_judged():
    """Autoregressive draws of a known effective size; draws that are off, or too wide, are found out."""
    rng, n, chains, rho = np.random.default_rng(0), 400, 50, 0.8
    draws = np.zeros((n, chains, 2))
    draws[0] = rng.normal(size=(chains, 2))
    for k in range(1, n):
        draws[k] = rho * draws[k - 1] + np.sqrt(1 - rho**2) * rng.normal(size=(chains, 2))
    expected = n * chains * (1 - rho) / (1 + rho)
    np.testing.assert_allclose(nuts.effective_sample_size(draws), expected, rtol=0.15)
    model = nuts.gaussian(2)
    draws = draws * np.asarray(model["scale"]) + np.asarray(model["mean"])
    assert nuts.problems_of(model, draws) == []
    assert len(nuts.problems_of(model, draws + [0.5, 0.0])) >= 1
    assert any("variance 1" in text for text in nuts.problems_of(model, draws * [1.0, 1.5]))
