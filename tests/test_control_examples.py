"""Every example of computed control agrees with the plain Python function, on a few of its own inputs."""

import numpy as np

from examples.control import decode, early_exit, mandelbrot, ode, roots
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
