"""The programs as an expert of JAX writes them for `jax.jit(jax.vmap(...))`: loops by `lax`, choices by `where`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.control import by_hand
from benchmarks.simd.programs import bodies, boosted, noise, occlusion, options, spheres, uneven
from examples.control import ode as lotka

FAR = spheres.FAR
mandelbrot = by_hand.escape


@jax.jit
@jax.vmap
def swing(angle: Any, count: Any) -> Any:
    def step(state: Any) -> Any:
        turn, angle, speed = state
        speed = speed - uneven.STEP * (jnp.sin(angle) + 0.1 * speed)
        return turn + 1, angle + uneven.STEP * speed, speed

    return lax.while_loop(lambda state: state[0] < count, step, (jnp.int32(0), angle, jnp.float32(0)))[1]


def normal(x: Any) -> Any:
    z = jnp.abs(x)
    k = 1 / (1 + 0.2316419 * z)
    tail = k * (0.31938153 + k * (-0.356563782 + k * (1.781477937 + k * (-1.821255978 + k * 1.330274429))))
    w = 1 - 0.39894228040 * jnp.exp(-z * z / 2) * tail
    return jnp.where(x < 0, 1 - w, w)


@jax.jit
@jax.vmap
def black_scholes(price: Any, strike: Any, years: Any, rate: Any, volatility: Any) -> Any:
    spread = volatility * jnp.sqrt(years)
    d1 = (jnp.log(price / strike) + (rate + volatility * volatility / 2) * years) / spread
    return price * normal(d1) - strike * jnp.exp(-rate * years) * normal(d1 - spread)


@jax.jit
@jax.vmap
def binomial(price: Any, strike: Any, years: Any, rate: Any, volatility: Any) -> Any:
    steps = options.STEPS
    step = years / steps
    up, growth = jnp.exp(volatility * jnp.sqrt(step)), jnp.exp(rate * step)
    rises = (growth - 1 / up) / (up - 1 / up)
    down, rises = (1 - rises) / growth, rises / growth
    values = jnp.maximum(0.0, price * up ** (2.0 * jnp.arange(steps + 1) - steps) - strike)

    def back(_: Any, values: Any) -> Any:
        return down * values + rises * jnp.append(values[1:], 0.0)

    return lax.fori_loop(0, steps, back, values)[0]


def slope(hashed: Any, x: Any, y: Any, z: Any) -> Any:
    h = hashed & 15
    u = jnp.where(h < 8, x, y)
    v = jnp.where(h < 4, y, jnp.where((h == 12) | (h == 14), x, z))
    return jnp.where((h & 1) != 0, -u, u) + jnp.where((h & 2) != 0, -v, v)


def one_noise(table: Any, x: Any, y: Any, z: Any) -> Any:
    fx, fy, fz = jnp.floor(x), jnp.floor(y), jnp.floor(z)
    i, j, k = (f.astype(jnp.int32) & 255 for f in (fx, fy, fz))
    x, y, z = x - fx, y - fy, z - fz
    u, v, w = noise.fade(x), noise.fade(y), noise.fade(z)
    a, b = table[i] + j, table[i + 1] + j
    aa, ab, ba, bb = table[a] + k, table[a + 1] + k, table[b] + k, table[b + 1] + k
    halves = []
    for up in (0, 1):
        g = noise.lerp(u, slope(table[aa + up], x, y, z - up), slope(table[ba + up], x - 1, y, z - up))
        h = noise.lerp(u, slope(table[ab + up], x, y - 1, z - up), slope(table[bb + up], x - 1, y - 1, z - up))
        halves.append(noise.lerp(v, g, h))
    return noise.lerp(w, *halves)


@jax.jit
def turbulence(table: Any, x: Any, y: Any, z: Any) -> Any:
    def one(x: Any, y: Any, z: Any) -> Any:
        sizes = [2.0**k for k in range(noise.OCTAVES)]
        return sum(jnp.abs(one_noise(table, x * s, y * s, z * s)) / s for s in sizes)

    return jax.vmap(one)(x, y, z)


@jax.jit
@jax.vmap
def ode(rates: Any, start: Any) -> Any:
    def turn(s: Any) -> Any:
        t, h, y, count = s
        h = jnp.minimum(h, lotka.END - t)
        k1 = lotka.field(y, rates)
        k2 = lotka.field(y + h / 2 * k1, rates)
        k3 = lotka.field(y + h * 3 / 4 * k2, rates)
        new = y + h * (2 / 9 * k1 + 1 / 3 * k2 + 4 / 9 * k3)
        apart = h * (5 / 72 * k1 - 1 / 12 * k2 - 1 / 9 * k3 + 1 / 8 * lotka.field(new, rates))
        error = jnp.max(jnp.abs(apart) / (lotka.TOLERANCE * (1.0 + jnp.abs(y))))
        good = error <= 1.0
        h_new = h * jnp.clip(0.9 * (error + 1e-10) ** (-1 / 3), 0.2, 5.0)
        return jnp.where(good, t + h, t), h_new, jnp.where(good, new, y), count + good

    _, _, y, count = lax.while_loop(lambda s: s[0] < lotka.END, turn, (0.0, 0.1, start, 0))
    return y, count


def meets(o: Any, d: Any, k: int) -> Any:
    *centre, radius = occlusion.SPHERES[k]
    x = o - jnp.array(centre)
    b = jnp.sum(x * d)
    left = b * b - (jnp.sum(x * x) - radius * radius)
    far = -b - jnp.sqrt(jnp.maximum(left, 0.0))
    return jnp.where((left > 0) & (far > 0), far, FAR)


def plane(oy: Any, dy: Any) -> Any:
    far = (occlusion.FLOOR - oy) / dy
    return jnp.where((jnp.abs(dy) >= 1e-6) & (far > 0), far, FAR)


def open_share(p: Any, n: Any, seed: Any) -> Any:
    zero = jnp.zeros_like(n[0])
    u = jnp.where(jnp.abs(n[0]) < 0.6, jnp.stack([zero, n[2], -n[1]]), jnp.stack([-n[2], zero, n[0]]))
    u = u / jnp.sqrt(jnp.sum(u * u))
    v = jnp.cross(n, u)

    def sample(_: Any, state: Any) -> Any:
        seed, free = state
        seed = (seed * 1103 + 12345) & 65535
        height = seed / 65536.0
        seed = (seed * 1103 + 12345) & 65535
        angle = occlusion.TURN * (seed / 65536.0)
        side = jnp.sqrt(height)
        d = jnp.cos(angle) * side * u + jnp.sin(angle) * side * v + jnp.sqrt(1 - height) * n
        nearest = jnp.minimum(jnp.minimum(meets(p, d, 0), meets(p, d, 1)), meets(p, d, 2))
        return seed, free + (jnp.minimum(nearest, plane(p[1], d[1])) >= FAR)

    return lax.fori_loop(0, occlusion.SAMPLES, sample, (seed, 0))[1] / occlusion.SAMPLES


@jax.jit
@jax.vmap
def pixels(x: Any, y: Any, seed: Any) -> Any:
    """The recursion is at the end of a ray's way but for a sum, so it is a loop."""
    all_spheres = jnp.array(occlusion.SPHERES)

    def turn(s: Any) -> Any:
        o, d, light, part, depth, _ = s
        hits = jnp.stack([meets(o, d, k) for k in range(3)])
        ball, ground = jnp.min(hits), plane(o[1], d[1])
        met, mirrors = jnp.minimum(ball, ground) < FAR, ground >= ball
        which = all_spheres[jnp.argmin(hits)]
        p = o + jnp.minimum(ball, ground) * d
        n = jnp.where(mirrors, (p - which[:3]) / which[3], jnp.array([0.0, 1.0, 0.0]))
        p = p + 1e-4 * n
        goes_on = met & mirrors & (depth < occlusion.DEEPEST)
        share = part * jnp.where(goes_on, 1 - occlusion.MIRROR, 1.0) * open_share(p, n, seed)
        light = light + jnp.where(met, share, 0.0)
        return p, d - 2 * jnp.sum(d * n) * n, light, part * occlusion.MIRROR, depth + 1, goes_on

    scale = 1 / jnp.sqrt(x * x + y * y + 1)
    begin = jnp.zeros(3), jnp.stack([x * scale, y * scale, -scale]), 0.0, 1.0, 0, True
    return lax.while_loop(lambda s: s[5], turn, begin)[2]


@jax.jit
def nearest(tree: Any, dx: Any, dy: Any, dz: Any) -> Any:
    def one(dx: Any, dy: Any, dz: Any) -> Any:
        def turn(s: Any) -> Any:
            best, node = s
            x, y, z, r = (tree[k][node] for k in ("x", "y", "z", "radius"))
            along = x * dx + y * dy + z * dz
            left = along * along - (x * x + y * y + z * z) + r * r
            far = jnp.where((left < 0) | (along < 0), FAR, along - jnp.sqrt(jnp.maximum(left, 0.0)))
            closer = far < best
            best = jnp.where(closer & (tree["leaf"][node] == 1), far, best)
            return best, jnp.where(closer, node + 1, tree["skip"][node])

        return lax.while_loop(lambda s: s[1] < len(tree["x"]), turn, (FAR, 0))[0]

    return jax.vmap(one)(dx, dy, dz)


@jax.jit
def step(all_: Any, *state: Any) -> Any:
    def one(x: Any, y: Any, z: Any, vx: Any, vy: Any, vz: Any) -> Any:
        dx, dy, dz = all_["x"] - x, all_["y"] - y, all_["z"] - z
        near = dx * dx + dy * dy + dz * dz + bodies.SOFT
        pull = all_["m"] / (near * jnp.sqrt(near))
        wx, wy, wz = (v + bodies.STEP * jnp.sum(pull * d) for v, d in ((vx, dx), (vy, dy), (vz, dz)))
        return x + bodies.STEP * wx, y + bodies.STEP * wy, z + bodies.STEP * wz, wx, wy, wz

    return jax.vmap(one)(*state)


@jax.jit
def score(trees: Any, x: Any) -> Any:
    def one(x: Any) -> Any:
        def tree(total: Any, root: Any) -> Any:
            def turn(node: Any) -> Any:
                return trees["left"][node] + jnp.where(x[trees["feature"][node]] < trees["split"][node], 0, 1)

            node = lax.while_loop(lambda node: trees["left"][node] >= 0, turn, root)
            return total + trees["value"][node], None

        return lax.scan(tree, 0.0, trees["root"])[0]

    assert x.shape[1] == boosted.FEATURES
    return jax.vmap(one)(x)
