"""The programs over whole batches in NumPy: what is still undecided is kept, and shrinks."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.simd.programs import bodies, noise, occlusion, options, spheres, uneven

F = np.float32
FAR = F(spheres.FAR)


def mandelbrot(re: Any, im: Any) -> Any:
    turns = np.zeros(len(re), np.int32)
    left, x, y = np.arange(len(re)), np.zeros_like(re), np.zeros_like(im)
    for _ in range(200):
        inside = x * x + y * y <= 4
        left, x, y, re, im = left[inside], x[inside], y[inside], re[inside], im[inside]
        if not len(left):
            break
        turns[left] += 1
        x, y = x * x - y * y + re, 2 * x * y + im
    return turns


def swing(angle: Any, count: Any) -> Any:
    found, speed, left = angle.copy(), np.zeros_like(angle), np.arange(len(angle))
    step = F(uneven.STEP)
    for turn in range(int(count.max(initial=0))):
        left = left[count[left] > turn]
        speed[left] -= step * (np.sin(found[left]) + F(0.1) * speed[left])
        found[left] += step * speed[left]
    return found


def normal(x: Any) -> Any:
    z = np.abs(x)
    k = 1 / (1 + F(0.2316419) * z)
    tail = F(1.781477937) + k * (F(-1.821255978) + k * F(1.330274429))
    tail = k * (F(0.31938153) + k * (F(-0.356563782) + k * tail))
    w = 1 - F(0.39894228040) * np.exp(-z * z / 2) * tail
    return np.where(x < 0, 1 - w, w)


def black_scholes(price: Any, strike: Any, years: Any, rate: Any, volatility: Any) -> Any:
    spread = volatility * np.sqrt(years)
    d1 = (np.log(price / strike) + (rate + volatility * volatility / 2) * years) / spread
    return price * normal(d1) - strike * np.exp(-rate * years) * normal(d1 - spread)


def binomial(price: Any, strike: Any, years: Any, rate: Any, volatility: Any) -> Any:
    steps = options.STEPS
    step = years / steps
    up, growth = np.exp(volatility * np.sqrt(step)), np.exp(rate * step)
    rises = (growth - 1 / up) / (up - 1 / up)
    down, rises = (1 - rises) / growth, rises / growth
    powers = np.arange(-steps, steps + 1, 2, dtype=np.float32)[:, None]
    values = np.maximum(0, price * up**powers - strike)  # a row for each node: examples lie side by side
    for left in range(steps, 0, -1):
        values = down * values[:left] + rises * values[1 : left + 1]
    return values[0]


def _slope(hashed: Any, x: Any, y: Any, z: Any) -> Any:
    h = hashed & 15
    u = np.where(h < 8, x, y)
    v = np.where(h < 4, y, np.where((h == 12) | (h == 14), x, z))
    return np.where(h & 1, -u, u) + np.where(h & 2, -v, v)


def _noise(table: Any, x: Any, y: Any, z: Any) -> Any:
    fx, fy, fz = np.floor(x), np.floor(y), np.floor(z)
    i, j, k = (f.astype(np.int32) & 255 for f in (fx, fy, fz))
    x, y, z = x - fx, y - fy, z - fz
    u, v, w = noise.fade(x), noise.fade(y), noise.fade(z)
    a, b = table[i] + j, table[i + 1] + j
    aa, ab, ba, bb = table[a] + k, table[a + 1] + k, table[b] + k, table[b + 1] + k
    halves = []
    for up in (0, 1):
        g = noise.lerp(u, _slope(table[aa + up], x, y, z - up), _slope(table[ba + up], x - 1, y, z - up))
        h = noise.lerp(u, _slope(table[ab + up], x, y - 1, z - up), _slope(table[bb + up], x - 1, y - 1, z - up))
        halves.append(noise.lerp(v, g, h))
    return noise.lerp(w, *halves)


def turbulence(table: Any, x: Any, y: Any, z: Any) -> Any:
    total: Any = 0
    for octave in range(noise.OCTAVES):
        size = F(2**octave)
        total = total + np.abs(_noise(table, x * size, y * size, z * size)) / size
    return total


def ode(rates: Any, starts: Any) -> Any:
    count = np.zeros(len(rates), np.int32)
    y, t, h = starts.T.copy(), np.zeros(len(rates), F), np.full(len(rates), 0.1, F)
    end, left, r = np.empty_like(y), np.arange(len(rates)), rates.T

    def field(y: Any) -> Any:
        both = y[0] * y[1]
        return np.stack([r[0] * y[0] - r[1] * both, r[2] * both - r[3] * y[1]])

    while True:
        goes_on = t < 4
        end[:, left[~goes_on]] = y[:, ~goes_on]
        left, y, t, h, r = left[goes_on], y[:, goes_on], t[goes_on], h[goes_on], r[:, goes_on]
        if not len(left):
            return end.T, count
        h = np.minimum(h, 4 - t)
        k1 = field(y)
        k2 = field(y + h / 2 * k1)
        k3 = field(y + h * F(0.75) * k2)
        new = y + h * (F(2 / 9) * k1 + F(1 / 3) * k2 + F(4 / 9) * k3)
        apart = h * (F(5 / 72) * k1 - F(1 / 12) * k2 - F(1 / 9) * k3 + F(1 / 8) * field(new))
        error = (np.abs(apart) / (F(1e-3) * (1 + np.abs(y)))).max(axis=0)
        good = error <= 1
        t, y = np.where(good, t + h, t), np.where(good, new, y)
        count[left] += good
        h = h * np.clip(F(0.9) * (error + F(1e-10)) ** F(-1 / 3), F(0.2), F(5))


def _meets(o: Any, d: Any, k: int) -> Any:
    *centre, radius = occlusion.SPHERES[k]
    x = o - np.array(centre, F)[:, None]
    b = (x * d).sum(axis=0)
    left = b * b - ((x * x).sum(axis=0) - F(radius * radius))
    far = -b - np.sqrt(np.maximum(left, 0))
    return np.where((left > 0) & (far > 0), far, FAR)


def _plane(oy: Any, dy: Any) -> Any:
    with np.errstate(divide="ignore", invalid="ignore"):
        far = (F(occlusion.FLOOR) - oy) / dy
    return np.where((np.abs(dy) >= 1e-6) & (far > 0), far, FAR)


def _open(p: Any, n: Any, seed: Any) -> Any:
    zero = np.zeros_like(n[0])
    u = np.where(np.abs(n[0]) < 0.6, np.stack([zero, n[2], -n[1]]), np.stack([-n[2], zero, n[0]]))
    u = u / np.sqrt((u * u).sum(axis=0))
    v = np.cross(n, u, axis=0)
    free = np.zeros(len(seed), F)
    for _ in range(occlusion.SAMPLES):
        seed = (seed * 1103 + 12345) & 65535
        height = seed.astype(F) / 65536
        seed = (seed * 1103 + 12345) & 65535
        angle = F(occlusion.TURN) * (seed.astype(F) / 65536)
        side = np.sqrt(height)
        d = np.cos(angle) * side * u + np.sin(angle) * side * v + np.sqrt(1 - height) * n
        nearest = np.minimum(np.minimum(_meets(p, d, 0), _meets(p, d, 1)), _meets(p, d, 2))
        free += np.minimum(nearest, _plane(p[1], d[1])) >= FAR
    return free / occlusion.SAMPLES


def pixels(x: Any, y: Any, seed: Any) -> Any:
    scale = 1 / np.sqrt(x * x + y * y + 1)
    light, part = np.zeros_like(x), np.ones_like(x)
    left, o, d = np.arange(len(x)), np.zeros((3, len(x)), F), np.stack([x * scale, y * scale, -scale])
    for depth in range(occlusion.DEEPEST + 1):
        hits = np.stack([_meets(o, d, k) for k in range(3)])
        ball, ground = hits.min(axis=0), _plane(o[1], d[1])
        met = np.minimum(ball, ground) < FAR
        left, o, d, seed, part = left[met], o[:, met], d[:, met], seed[met], part[met]
        if not len(left):
            break
        ball, ground, hits = ball[met], ground[met], hits[:, met]
        mirrors = ground >= ball
        which = np.array(occlusion.SPHERES, F)[np.argmin(hits, axis=0)].T
        p = o + np.minimum(ball, ground) * d
        up = np.array([0, 1, 0], F)[:, None]
        n = np.where(mirrors, (p - which[:3]) / which[3], up)
        p = p + F(1e-4) * n
        goes_on = mirrors & (depth < occlusion.DEEPEST)
        light[left] += part * np.where(goes_on, F(1 - occlusion.MIRROR), 1) * _open(p, n, seed)
        left, seed, p, n, part = left[goes_on], seed[goes_on], p[:, goes_on], n[:, goes_on], part[goes_on]
        d, part = d[:, goes_on], part * F(occlusion.MIRROR)
        o, d = p, d - 2 * (d * n).sum(axis=0) * n
    return light


def nearest(tree: Any, dx: Any, dy: Any, dz: Any) -> Any:
    best = np.full(len(dx), FAR)
    left, node = np.arange(len(dx)), np.zeros(len(dx), np.int32)
    while len(left):
        x, y, z, r = (tree[k][node] for k in ("x", "y", "z", "radius"))
        along = x * dx + y * dy + z * dz
        under = along * along - (x * x + y * y + z * z) + r * r
        far = np.where((under < 0) | (along < 0), FAR, along - np.sqrt(np.maximum(under, 0)))
        closer = far < best[left]
        leaf = closer & (tree["leaf"][node] == 1)
        best[left[leaf]] = far[leaf]
        node = np.where(closer, node + 1, tree["skip"][node])
        on = node < len(tree["x"])
        left, node, dx, dy, dz = left[on], node[on], dx[on], dy[on], dz[on]
    return best


def step(all_: Any, x: Any, y: Any, z: Any, vx: Any, vy: Any, vz: Any) -> Any:
    dx, dy, dz = all_["x"] - x[:, None], all_["y"] - y[:, None], all_["z"] - z[:, None]
    near = dx * dx + dy * dy + dz * dz + F(bodies.SOFT)
    pull = all_["m"] / (near * np.sqrt(near))
    wx, wy, wz = (v + F(bodies.STEP) * (pull * d).sum(axis=1) for v, d in ((vx, dx), (vy, dy), (vz, dz)))
    h = F(bodies.STEP)
    return x + h * wx, y + h * wy, z + h * wz, wx, wy, wz


def score(trees: Any, x: Any) -> Any:
    rows, total = np.arange(len(x)), np.zeros(len(x), F)
    for root in trees["root"]:
        node = np.full(len(x), root)
        while ((below := trees["left"][node]) >= 0).any():
            right = x[rows, trees["feature"][node]] >= trees["split"][node]
            node = np.where(below >= 0, below + right, node)
        total += trees["value"][node]
    return total
