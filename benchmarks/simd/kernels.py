"""What is measured: each program with its examples, what competes, and what goes to kernels over plain arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.simd import by_numpy, by_vmap
from benchmarks.simd.programs import bodies, boosted, expressions, noise, occlusion, options, spheres, uneven
from examples.control import mandelbrot, ode

Arrays = Sequence[np.ndarray]


@dataclass(frozen=True)
class Kernel:
    """`given`: the arguments of the batched program; `plain`: those of kernels over plain arrays, and `out` what these
    write, one array for each array of the result. `loops`: it has loops that numbers end, or of many turns. `name` is
    that of the function in `competitors/`; `also` are other ways to write it in ispc, of which the fastest counts.

    `tolerance`: how far results may be from those of the C loop, relative to 1 or to their size; `strays`: the share
    that may be further away, because a choice falls the other way. `refills`: it is measured with lanes that are
    refilled, and without, too."""

    name: str
    function: Any
    given: Sequence[Any]
    plain: Arrays
    out: Arrays
    by_numpy: Callable[..., Any] | None = None
    by_vmap: Callable[..., Any] | None = None
    also: Sequence[str] = ()
    loops: bool = True
    tolerance: float = 1e-4
    strays: float = 0.0
    objects: bool = False
    refills: bool = False
    total: Callable[..., Any] | None = None
    """The sum of the results of one example, of which the derivative is taken with respect to the arguments `wrt`."""
    wrt: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        """Examples."""
        return len(self.out[0])

    def arrays(self) -> Sequence[Any]:
        """The arguments as JAX's arrays."""
        return [jax.tree.map(jnp.asarray, x) for x in self.given]


def floats(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def whole(n: int) -> np.ndarray:
    return np.array([n], np.int32)


def _mandelbrot(size: float) -> Kernel:
    width = int(600 * size**0.5)
    points = mandelbrot.plane(width, width // 3)
    out = np.zeros(len(points[0]), np.int32)
    return Kernel(
        "mandelbrot", mandelbrot.escape, points, points, [out], by_numpy.mandelbrot, by_vmap.mandelbrot, strays=0.01
    )


def contracts(count: int) -> list[np.ndarray]:
    """Price, strike, years, rate and volatility."""
    rng = np.random.default_rng(0)
    ranges = ((80, 120), (80, 120), (0.2, 2), (0.01, 0.05), (0.1, 0.4))
    return [rng.uniform(low, high, count).astype(np.float32) for low, high in ranges]


def _black_scholes(size: float) -> Kernel:
    given = contracts(int(400_000 * size))
    ways = by_numpy.black_scholes, by_vmap.black_scholes
    return Kernel(
        "black_scholes",
        options.call_option,
        given,
        given,
        [np.zeros_like(given[0])],
        *ways,
        loops=False,
        tolerance=3e-4,
        total=lambda *xs: options.call_option(*xs),
        wrt=(0, 1, 2, 3, 4),
    )


def _binomial(size: float) -> Kernel:
    given = contracts(int(8192 * size))
    ways = by_numpy.binomial, by_vmap.binomial
    return Kernel(
        "binomial",
        options.binomial_option,
        given,
        given,
        [np.zeros_like(given[0])],
        *ways,
        tolerance=1e-3,
        total=lambda *xs: options.binomial_option(*xs),
        wrt=(0, 1, 2, 3, 4),
    )


def _noise(size: float) -> Kernel:
    width = int(256 * size**0.5)
    x, y = np.meshgrid(np.linspace(0, 10, width), np.linspace(0, 10, width))
    points = [x.ravel().astype(np.float32), y.ravel().astype(np.float32), np.full(x.size, 0.6, np.float32)]
    given = [noise.permutation(), *points]
    ways = by_numpy.turbulence, by_vmap.turbulence
    return Kernel("noise", noise.turbulence, given, given, [floats(x.size)], *ways, loops=False)


def _ode(size: float) -> Kernel:
    given = ode.problems(int(8000 * size))

    def total(rates: Any, start: Any) -> Any:
        return jnp.sum(ode.solve(rates, start)[0])

    out = [np.zeros_like(given[1]), np.zeros(len(given[1]), np.int32)]
    ways = by_numpy.ode, by_vmap.ode
    return Kernel("ode", ode.solve, given, given, out, *ways, tolerance=5e-3, strays=0.01, total=total, wrt=(0, 1))


def _occlusion(size: float) -> Kernel:
    width = int(192 * size**0.5)
    given = occlusion.picture(width, width * 3 // 5)
    ways = by_numpy.pixels, by_vmap.pixels
    return Kernel("occlusion", occlusion.pixel, given, given, [floats(len(given[0]))], *ways, strays=0.01)


def _spheres(size: float) -> Kernel:
    tree, width = spheres.columns(spheres.objects()), int(160 * size**0.5)
    directions = spheres.rays(width, width)
    plain = [whole(len(tree["x"])), *(tree[k] for k in ("x", "y", "z", "radius", "leaf", "skip")), *directions]
    ways = by_numpy.nearest, by_vmap.nearest
    out = [floats(width * width)]
    return Kernel(
        "spheres", spheres.nearest, [tree, *directions], plain, out, *ways, also=["spheres_together"], strays=0.01
    )


def _sphere_objects(size: float) -> Kernel:
    of = _spheres(size)
    given = [spheres.objects(), np.full(of.count, spheres.FAR, np.float32), *of.given[1:]]
    return Kernel("spheres", spheres.nearest_below, given, of.plain, of.out, also=of.also, strays=0.01, objects=True)


def _bodies(size: float) -> Kernel:
    everything, state = bodies.cloud(int(4096 * size**0.5))
    plain = [whole(len(state[0])), *(everything[k] for k in "xyzm"), *state]
    out = [np.zeros_like(x) for x in state]
    return Kernel("bodies", bodies.step, [everything, *state], plain, out, by_numpy.step, by_vmap.step)


def _boosted(size: float) -> Kernel:
    trees = boosted.ensemble()
    x = np.random.default_rng(1).normal(size=(int(2000 * size), boosted.FEATURES)).astype(np.float32)
    plain = [whole(len(trees["root"])), *(trees[k] for k in ("root", "feature", "split", "left", "value")), x]
    return Kernel("boosted", boosted.score, [trees, x], plain, [floats(len(x))], by_numpy.score, by_vmap.score)


def _expressions(size: float) -> Kernel:
    given = expressions.expressions(int(4000 * size))
    x = np.random.default_rng(1).normal(size=len(given)).astype(np.float32)
    plain = [*expressions.columns(given), x]
    packed = expressions.evaluate.pack(given, x)
    return Kernel("expressions", expressions.evaluate, packed.args, plain, [np.zeros_like(x)], objects=True)


def _scattered(size: float) -> Kernel:
    points = uneven.points(int(40_000 * size))
    out = np.zeros(len(points[0]), np.int32)
    ways = by_numpy.mandelbrot, by_vmap.mandelbrot
    strays = 0.25  # points near the edge of the set: NumPy, which fuses no product and sum, differs in 0.16 of them
    return Kernel("scattered", mandelbrot.escape, points, points, [out], *ways, strays=strays, refills=True)


def _pendulum(size: float) -> Kernel:
    given = uneven.pendulums(int(20_000 * size))
    out = [floats(len(given[0]))]
    return Kernel(
        "pendulum",
        uneven.swing,
        given,
        given,
        out,
        by_numpy.swing,
        by_vmap.swing,
        refills=True,
        total=lambda *xs: uneven.swing(*xs),
        wrt=(0,),
    )


KERNELS: dict[str, Callable[[float], Kernel]] = {
    "mandelbrot": _mandelbrot,
    "black_scholes": _black_scholes,
    "binomial": _binomial,
    "noise": _noise,
    "ode": _ode,
    "occlusion": _occlusion,
    "spheres": _spheres,
    "sphere objects": _sphere_objects,
    "bodies": _bodies,
    "boosted": _boosted,
    "expressions": _expressions,
    "scattered": _scattered,
    "pendulum": _pendulum,
}
"""By name, each for a size: 1 is what takes ispc a few milliseconds at most."""
