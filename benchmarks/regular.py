"""Models whose structure all examples share, beside `jit(vmap)`: forward, gradient, and a step of SGD under `jax.jit`.

    python -m benchmarks.regular [MODEL ...] [--batches 1,4,16,64] [--seconds 1] [--json FILE]

Both ways run in one process and take turns, call by call; a figure is the median of the ratio within a turn, ours over
`jit(vmap)`. What JAX computes is waited for.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import autobatch as ab

RATE = 1e-3


@dataclass(frozen=True)
class Model:
    """The loss of one example, given parameters; what these are; the shape of an example."""

    loss: Callable[[Any, Any], Any]
    parameters: Callable[[Callable[..., Any]], Any]
    shape: tuple[int, ...]


def mlp(p: Any, x: Any) -> Any:
    """Four layers of 256."""
    for w, b in p:
        x = jnp.tanh(x @ w + b)
    return (x * x).sum()


def convolve(x: Any, kernel: Any, stride: int = 1, padding: str = "SAME") -> Any:
    """An image through a kernel."""
    numbers = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x[None], kernel, (stride, stride), padding, dimension_numbers=numbers)[0]


def pool(x: Any) -> Any:
    """The largest of each square of two by two."""
    return lax.reduce_window(x, -jnp.inf, lax.max, (2, 2, 1), (2, 2, 1), "VALID")


def lenet(p: Any, x: Any) -> Any:
    """LeNet-5 (LeCun et al. 1998)."""
    for kernel in p["kernels"]:
        x = pool(jax.nn.relu(convolve(x, kernel, padding="VALID")))
    x = x.reshape(-1)
    for w, b in p["layers"]:
        x = jax.nn.relu(x @ w + b)
    return -jax.nn.log_softmax(x)[3]


def normalized(p: Any, x: Any) -> Any:
    """Batch normalisation with statistics that were collected before."""
    return (x - p["mean"]) * lax.rsqrt(p["variance"] + 1e-5) * p["scale"] + p["shift"]


def resnet(p: Any, x: Any) -> Any:
    """ResNet-8 (He et al. 2016): three blocks of two convolutions, of 16, 32 and 64 channels."""
    x = jax.nn.relu(normalized(p["norm"], convolve(x, p["first"])))
    for block in p["blocks"]:
        stride = 2 if "across" in block else 1
        y = jax.nn.relu(normalized(block["norm1"], convolve(x, block["conv1"], stride)))
        y = normalized(block["norm2"], convolve(y, block["conv2"]))
        x = jax.nn.relu(y + (convolve(x, block["across"], stride) if "across" in block else x))
    return -jax.nn.log_softmax(x.mean((0, 1)) @ p["last"])[3]


def transformer(p: Any, x: Any) -> Any:
    """Two layers of a transformer's encoder, 32 tokens of 64 numbers, four heads (Vaswani et al. 2017)."""
    for layer in p:
        y = x - x.mean(-1, keepdims=True)
        y = y * lax.rsqrt((y * y).mean(-1, keepdims=True) + 1e-5)
        q, k, v = (jnp.reshape(y @ layer[n], (32, 4, 16)).transpose(1, 0, 2) for n in "qkv")
        a = jax.nn.softmax(q @ k.transpose(0, 2, 1) / 4.0)
        x = x + (a @ v).transpose(1, 0, 2).reshape(32, 64) @ layer["o"]
        x = x + jax.nn.gelu(x @ layer["up"]) @ layer["down"]
    return (x * x).mean()


def gru(p: Any, xs: Any) -> Any:
    """A gated recurrent unit (Cho et al. 2014) over 24 vectors of 64."""
    h = jnp.zeros(64)
    for x in xs:
        r, z = jnp.split(jax.nn.sigmoid(x @ p["x"] + h @ p["h"]), 2)
        h = z * h + (1 - z) * jnp.tanh(x @ p["candidate"] + (r * h) @ p["recurrent"])
    return (h * h).sum()


VGG19 = (64, 64, 0, 128, 128, 0, 256, 256, 256, 256, 0, 512, 512, 512, 512, 0, 512, 512, 512, 512, 0)
"""Channels of its convolutions; 0 is a pool (Simonyan and Zisserman 2015, table 1, E)."""


def vgg19(p: Any, x: Any) -> Any:
    """VGG19 at 64 pixels."""
    kernels = iter(p["kernels"])
    for channels in VGG19:
        if channels:
            kernel, bias = next(kernels)
            x = jax.nn.relu(convolve(x, kernel) + bias)
        else:
            x = pool(x)
    x = x.reshape(-1)
    for w, b in p["layers"]:
        x = jax.nn.relu(x @ w + b)
    return -jax.nn.log_softmax(x)[3]


def _norm(channels: int) -> Any:
    of = dict.fromkeys(("mean", "shift"), 0.0) | dict.fromkeys(("variance", "scale"), 1.0)
    return {name: jnp.full(channels, value) for name, value in of.items()}


def _block(normal: Callable[..., Any], before: int, after: int) -> Any:
    made = {"conv1": normal(3, 3, before, after), "conv2": normal(3, 3, after, after)}
    made |= {"norm1": _norm(after), "norm2": _norm(after)}
    return made if before == after else made | {"across": normal(1, 1, before, after)}


def _dense(normal: Callable[..., Any], *sizes: int) -> Any:
    return [(normal(a, b), jnp.zeros(b)) for a, b in itertools.pairwise(sizes)]


def _vgg(normal: Callable[..., Any]) -> Any:
    channels = [c for c in VGG19 if c]
    kernels = [(normal(3, 3, a, b), jnp.zeros(b)) for a, b in zip([3, *channels], channels, strict=False)]
    return {"kernels": kernels, "layers": _dense(normal, 2048, 512, 512, 10)}


MODELS = {
    "MLP": Model(mlp, lambda normal: _dense(normal, 256, 256, 256, 256, 256), (256,)),
    "LeNet": Model(
        lenet,
        lambda normal: {
            "kernels": [normal(5, 5, 1, 6), normal(5, 5, 6, 16)],
            "layers": _dense(normal, 256, 120, 84, 10),
        },
        (28, 28, 1),
    ),
    "ResNet-8": Model(
        resnet,
        lambda normal: {
            "first": normal(3, 3, 3, 16),
            "norm": _norm(16),
            "blocks": [_block(normal, 16, 16), _block(normal, 16, 32), _block(normal, 32, 64)],
            "last": normal(64, 10),
        },
        (32, 32, 3),
    ),
    "transformer": Model(
        transformer,
        lambda normal: [
            {n: normal(64, 64) for n in "qkvo"} | {"up": normal(64, 256), "down": normal(256, 64)} for _ in range(2)
        ],
        (32, 64),
    ),
    "GRU": Model(
        gru,
        lambda normal: {
            "x": normal(64, 128),
            "h": normal(64, 128),
            "candidate": normal(64, 64),
            "recurrent": normal(64, 64),
        },
        (24, 64),
    ),
    "VGG19": Model(vgg19, _vgg, (64, 64, 3)),
}


def _normal(rng: np.random.Generator) -> Callable[..., Any]:
    def draw(*shape: int) -> Any:
        return jnp.asarray(rng.normal(size=shape) * math.sqrt(2 / math.prod(shape[:-1])), jnp.float32)

    return draw


def _stepped(value_and_grad: Callable[..., Any]) -> Callable[..., Any]:
    def step(p: Any, x: Any) -> Any:
        loss, slope = value_and_grad(p, x)
        return loss, jax.tree.map(lambda a, b: a - RATE * b, p, slope)

    return step


def calls(model: Model, batch: int) -> dict[str, tuple[Callable[[], Any], Callable[[], Any], float]]:
    """Each, ours and theirs, and how far their first results are from each other."""
    rng = np.random.default_rng(0)
    p = model.parameters(_normal(rng))
    x = jnp.asarray(rng.normal(size=(batch, *model.shape)), jnp.float32)
    ours, theirs = ab.batched(model.loss, in_axes=(None, 0)), jax.vmap(model.loss, in_axes=(None, 0))
    gradient, forward = ab.value_and_grad(ours), jax.jit(theirs)
    slope = jax.value_and_grad(lambda p, x: theirs(p, x).sum())
    of_theirs, step, of_ours = jax.jit(slope), jax.jit(_stepped(slope)), jax.jit(_stepped(gradient))
    pairs: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
        "forward": (ours, forward),
        "gradient": (gradient, of_theirs),
        "step": (of_ours, step),
    }
    made: dict[str, tuple[Callable[[], Any], Callable[[], Any], float]] = {}
    for what, (f, g) in pairs.items():
        first, other = f(p, x), g(p, x)
        apart = _apart(first, other) if what == "forward" else _apart(first[1], other[1])
        made[what] = partial(f, p, x), partial(g, p, x), apart
    return made


def _apart(a: Any, b: Any) -> float:
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return max(float(jnp.abs(x - y).max() / (jnp.abs(y).max() + 1e-6)) for x, y in pairs)


def _seconds(call: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    jax.block_until_ready(call())
    return time.perf_counter() - begin


def measure(ours: Callable[[], Any], theirs: Callable[[], Any], seconds: float) -> dict[str, float]:
    """Milliseconds of both, and the ratio."""
    turns: list[tuple[float, float]] = []
    begin = time.perf_counter()
    while len(turns) < 5 or (time.perf_counter() - begin < seconds and len(turns) < 2000):
        pair = [_seconds(ours), _seconds(theirs)] if len(turns) % 2 else [_seconds(theirs), _seconds(ours)][::-1]
        turns.append((pair[0], pair[1]))
    mine, other = (1e3 * statistics.median(x) for x in zip(*turns, strict=True))
    return {"ours_ms": mine, "jit_vmap_ms": other, "ratio": statistics.median(a / b for a, b in turns)}


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=[], metavar="MODEL", choices=[[], *MODELS])
    parser.add_argument("--batches", default="1,4,16,64")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each pair of calls")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found: list[dict[str, Any]] = []
    for name in given.models or MODELS:
        for batch in map(int, given.batches.split(",")):
            for what, (ours, theirs, apart) in calls(MODELS[name], batch).items():
                one = measure(ours, theirs, given.seconds)
                found.append({"model": name, "batch": batch, "what": what, "apart": apart, **one})
                times = f"{one['ours_ms']:9.3f} ms beside {one['jit_vmap_ms']:9.3f}"
                print(f"{name:<12} {batch:>3} {what:<8} {times}: {one['ratio']:5.2f}  apart {apart:.1e}", flush=True)
            jax.clear_caches()
    ratios = [x["ratio"] for x in found]
    mean = math.exp(statistics.mean(map(math.log, ratios)))
    print(f"geometric mean of {len(ratios)}: {mean:.3f}, worst {max(ratios):.2f}; {jax.devices()[0].device_kind}")
    if given.json:
        given.json.write_text(json.dumps({"figures": found, "mean": mean, "worst": max(ratios)}, indent=1))


if __name__ == "__main__":
    main()
