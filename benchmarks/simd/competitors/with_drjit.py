"""The programs of benchmarks/simd/programs for Dr.Jit: arrays of all examples, loops and branches by `@dr.syntax`,
machine code by its LLVM back end. Arguments are as in kernels.c, but for the number of examples; `text.py` says how
it is asked. Dr.Jit traces functions and has no recursion, so there are no expressions, and rays of `occlusion` are
reflected in a loop. `NAME.gradient` is the derivative of the sum of the results, by `dr.backward`. The library of LLVM
is that of the variable DRJIT_LIBLLVM_PATH, else the system's.
"""

import drjit as dr
import numpy as np
from drjit.llvm.ad import Array3f, Bool, Float, Int, UInt
from outside import serve

dr.set_log_level(dr.LogLevel.Error)
FAR = 1e9


def least(a, b):
    """As `dr.minimum`, for which LLVM up to 16 finds no instruction on processors that it does not know."""
    return dr.select(a < b, a, b)


def most(a, b):
    return dr.select(a > b, a, b)


@dr.syntax
def mandelbrot(re, im):
    x, y, turns = dr.zeros(Float, dr.width(re)), dr.zeros(Float, dr.width(re)), dr.zeros(Int, dr.width(re))
    while (turns < 200) & (dr.square(x) + dr.square(y) <= 4):
        x, y = dr.square(x) - dr.square(y) + re, 2 * x * y + im
        turns += 1
    return [turns]


@dr.syntax
def pendulum(angles, counts):
    angle, speed, k = Float(angles), dr.zeros(Float, dr.width(angles)), dr.zeros(Int, dr.width(angles))
    while dr.hint(k < counts, max_iterations=256):
        speed = speed - 0.01 * (dr.sin(angle) + 0.1 * speed)
        angle = angle + 0.01 * speed
        k += 1
    return [angle]


def normal(x):
    z = dr.abs(x)
    k = 1 / (1 + 0.2316419 * z)
    tail = k * (0.31938153 + k * (-0.356563782 + k * (1.781477937 + k * (-1.821255978 + k * 1.330274429))))
    w = 1 - 0.39894228040 * dr.exp(-z * z * 0.5) * tail
    return dr.select(x < 0, 1 - w, w)


def black_scholes(price, strike, years, rate, volatility):
    spread = volatility * dr.sqrt(years)
    d1 = (dr.log(price / strike) + (rate + volatility * volatility * 0.5) * years) / spread
    return [price * normal(d1) - strike * dr.exp(-rate * years) * normal(d1 - spread)]


STEPS = 64


@dr.syntax
def binomial(price, strike, years, rate, volatility):
    step = years / STEPS
    up, growth = dr.exp(volatility * dr.sqrt(step)), dr.exp(rate * step)
    rises = (growth - 1 / up) / (up - 1 / up)
    down = (1 - rises) / growth
    rises = rises / growth
    values = dr.alloc_local(Float, STEPS + 1)
    k = UInt(0)
    while k <= STEPS:
        values[k] = most(0, price * dr.power(up, Float(2 * Int(k) - STEPS)) - strike)
        k += 1
    left = UInt(STEPS)
    while left > 0:
        k = UInt(0)
        while k < left:
            values[k] = down * values[k] + rises * values[k + 1]
            k += 1
        left -= 1
    return [values[UInt(0)]]


def fade(t):
    return t * t * t * (t * (t * 6 - 15) + 10)


def lerp(t, a, b):
    return a + t * (b - a)


def slope(hashed, x, y, z):
    h = hashed & 15
    u = dr.select(h < 8, x, y)
    v = dr.select(h < 4, y, dr.select((h == 12) | (h == 14), x, z))
    return dr.select((h & 1) != 0, -u, u) + dr.select((h & 2) != 0, -v, v)


def one_noise(table, x, y, z):
    def at(k):
        return dr.gather(Int, table, UInt(k))

    fx, fy, fz = dr.floor(x), dr.floor(y), dr.floor(z)
    i, j, k = Int(fx) & 255, Int(fy) & 255, Int(fz) & 255
    x, y, z = x - fx, y - fy, z - fz
    u, v, w = fade(x), fade(y), fade(z)
    a, b = at(i) + j, at(i + 1) + j
    aa, ab, ba, bb = at(a) + k, at(a + 1) + k, at(b) + k, at(b + 1) + k
    g = lerp(u, slope(at(aa), x, y, z), slope(at(ba), x - 1, y, z))
    h = lerp(u, slope(at(ab), x, y - 1, z), slope(at(bb), x - 1, y - 1, z))
    near = lerp(v, g, h)
    g = lerp(u, slope(at(aa + 1), x, y, z - 1), slope(at(ba + 1), x - 1, y, z - 1))
    h = lerp(u, slope(at(ab + 1), x, y - 1, z - 1), slope(at(bb + 1), x - 1, y - 1, z - 1))
    return lerp(w, near, lerp(v, g, h))


def noise(table, x, y, z):
    total, size = 0, 1.0
    for _ in range(4):
        total = total + dr.abs(one_noise(table, x * size, y * size, z * size)) / size
        size *= 2
    return [total]


@dr.syntax
def ode(r0, r1, r2, r3, p, q):
    p, q = Float(p), Float(q)
    n = dr.width(p)
    t, h, count = dr.zeros(Float, n), dr.full(Float, 0.1, n), dr.zeros(Int, n)
    while dr.hint(t < 4, max_iterations=256):
        h = least(h, 4 - t)
        p1, q1 = r0 * p - r1 * p * q, r2 * p * q - r3 * q
        a, b = p + h / 2 * p1, q + h / 2 * q1
        p2, q2 = r0 * a - r1 * a * b, r2 * a * b - r3 * b
        a, b = p + h * 3 / 4 * p2, q + h * 3 / 4 * q2
        p3, q3 = r0 * a - r1 * a * b, r2 * a * b - r3 * b
        a, b = p + h * (2 / 9 * p1 + 1 / 3 * p2 + 4 / 9 * p3), q + h * (2 / 9 * q1 + 1 / 3 * q2 + 4 / 9 * q3)
        p4, q4 = r0 * a - r1 * a * b, r2 * a * b - r3 * b
        ep = h * (5 / 72 * p1 - 1 / 12 * p2 - 1 / 9 * p3 + 1 / 8 * p4)
        eq = h * (5 / 72 * q1 - 1 / 12 * q2 - 1 / 9 * q3 + 1 / 8 * q4)
        error = most(dr.abs(ep) / (1e-3 * (1 + dr.abs(p))), dr.abs(eq) / (1e-3 * (1 + dr.abs(q))))
        if error <= 1:
            t += h
            p, q = Float(a), Float(b)
            count += 1
        h *= least(most(0.9 * dr.power(error + 1e-10, -1 / 3), 0.2), 5)
    return [p, q, count]


BALLS = ((-2.0, 0.0, -3.5, 0.5), (-0.5, 0.0, -3.0, 0.5), (1.0, 0.0, -2.2, 0.5))


def meets(o, d, k):
    x, y, z, radius = BALLS[k]
    to = o - Array3f(x, y, z)
    b = dr.dot(to, d)
    left = b * b - (dr.dot(to, to) - radius * radius)
    far = -b - dr.sqrt(most(left, 0))
    return dr.select((left > 0) & (far > 0), far, FAR)


def ground(o, d):
    far = (-0.5 - o.y) / d.y
    return dr.select((dr.abs(d.y) >= 1e-6) & (far > 0), far, FAR)


@dr.syntax
def open_share(p, n, seed):
    u = dr.select(dr.abs(n.x) < 0.6, Array3f(0, n.z, -n.y), Array3f(-n.z, 0, n.x))
    u = u * (1 / dr.sqrt(dr.dot(u, u)))
    v = dr.cross(n, u)
    free, seed, k = dr.zeros(Int, dr.width(seed)), Int(seed), Int(0)
    while k < 16:
        seed = (seed * 1103 + 12345) & 65535
        height = Float(seed) / 65536
        seed = (seed * 1103 + 12345) & 65535
        angle = 6.283185307 * (Float(seed) / 65536)
        s, c = dr.sincos(angle)
        out = dr.sqrt(height)
        d = (c * out) * u + (s * out) * v + dr.sqrt(1 - height) * n
        hit = (meets(p, d, 0) < FAR) | (meets(p, d, 1) < FAR) | (meets(p, d, 2) < FAR) | (ground(p, d) < FAR)
        free += dr.select(hit, 0, 1)
        k += 1
    return Float(free) / 16


def struck(a, b, ball, o, d):
    """Where a ray meets a ball, a little above it, and the normal there."""
    first, second, third = (Array3f(*ball[:3]) for ball in BALLS)
    p = o + ball * d
    n = (p - dr.select(a <= ball, first, dr.select(b <= ball, second, third))) / 0.5
    return p + 1e-4 * n, n


@dr.syntax
def occlusion(x, y, seed):
    size = dr.width(x)
    o, d = dr.zeros(Array3f, size), Array3f(x, y, -1) * (1 / dr.sqrt(x * x + y * y + 1))
    light, share, depth = dr.zeros(Float, size), dr.full(Float, 1, size), dr.zeros(Int, size)
    goes_on = dr.full(Bool, True, size)
    while goes_on:
        goes_on = dr.full(Bool, False, size)
        a, b, c = meets(o, d, 0), meets(o, d, 1), meets(o, d, 2)
        ball, plane = least(a, least(b, c)), ground(o, d)
        up, above = Array3f(0, 1, 0), o + plane * d + Array3f(0, 1e-4, 0)
        p, n = struck(a, b, ball, o, d)
        if plane < ball:
            light += share * open_share(above, up, seed)
        elif ball < FAR:
            here = open_share(p, n, seed)
            if depth < 3:
                light += share * 0.6 * here
                share *= 0.4
                d = d - 2 * dr.dot(d, n) * n
                o = Array3f(p)
                depth += 1
                goes_on = dr.full(Bool, True, size)
            else:
                light += share * here
    return [light]


@dr.syntax
def spheres(count, x, y, z, radius, leaf, skip, dx, dy, dz):
    best, node = dr.full(Float, FAR, dr.width(dx)), dr.zeros(UInt, dr.width(dx))
    while node < count:
        cx, cy = dr.gather(Float, x, node), dr.gather(Float, y, node)
        cz, r = dr.gather(Float, z, node), dr.gather(Float, radius, node)
        along = cx * dx + cy * dy + cz * dz
        left = along * along - (cx * cx + cy * cy + cz * cz) + r * r
        far = dr.select((left < 0) | (along < 0), FAR, along - dr.sqrt(most(left, 0)))
        if far < best:
            if dr.gather(Int, leaf, node) == 1:
                best = Float(far)
            node += 1
        else:
            node = UInt(dr.gather(Int, skip, node))
    return [best]


@dr.syntax
def bodies(count, xs, ys, zs, m, x, y, z, vx, vy, vz):
    size = dr.width(x)
    ax, ay, az, j = dr.zeros(Float, size), dr.zeros(Float, size), dr.zeros(Float, size), UInt(0)
    while j < count:
        dx, dy, dz = dr.gather(Float, xs, j) - x, dr.gather(Float, ys, j) - y, dr.gather(Float, zs, j) - z
        near = dx * dx + dy * dy + dz * dz + 1e-3
        pull = dr.gather(Float, m, j) / (near * dr.sqrt(near))
        ax += pull * dx
        ay += pull * dy
        az += pull * dz
        j += 1
    wx, wy, wz = vx + 0.01 * ax, vy + 0.01 * ay, vz + 0.01 * az
    return [x + 0.01 * wx, y + 0.01 * wy, z + 0.01 * wz, wx, wy, wz]


@dr.syntax
def boosted(trees, features, root, feature, split, left, value, x):
    size = dr.width(x) // features
    row, total, t = dr.arange(UInt, size) * features, dr.zeros(Float, size), UInt(0)
    while t < trees:
        node = dr.gather(UInt, root, t) + dr.zeros(UInt, size)
        below = dr.gather(Int, left, node)
        while below >= 0:
            less = dr.gather(Float, x, row + dr.gather(UInt, feature, node)) < dr.gather(Float, split, node)
            node = UInt(dr.select(less, below, below + 1))
            below = dr.gather(Int, left, node)
        total += dr.gather(Float, value, node)
        t += 1
    return [total]


def columns_of(x):
    return [np.ascontiguousarray(c) for c in x.T]


ARGUMENTS = {
    "ode": lambda rates, starts: [*columns_of(rates), *columns_of(starts)],
    "spheres": lambda count, *rest: [int(count[0]), *rest],
    "bodies": lambda count, *rest: [int(count[0]), *rest],
    "boosted": lambda trees, *rest: [int(trees[0]), rest[-1].shape[1], *rest[:-1], rest[-1].ravel()],
}
KERNELS = {
    k.__name__: k
    for k in (mandelbrot, pendulum, black_scholes, binomial, noise, ode, occlusion, spheres, bodies, boosted)
} | {"scattered": mandelbrot}
UNSIGNED = {"boosted": (2, 3)}
"""Indices."""


def prepare(name, given, made):
    of, _, gradient = name.partition(".")
    if of not in KERNELS:
        return None
    arrays = ARGUMENTS.get(of, lambda *xs: list(xs))(*given)

    def array(k, x):
        if not isinstance(x, np.ndarray):
            return x
        if x.dtype == np.float32:
            return Float(x)
        return UInt(x.astype(np.uint32)) if k in UNSIGNED.get(of, ()) else Int(x)

    held = [array(k, x) for k, x in enumerate(arrays)]
    kernel = KERNELS[of]

    def run():
        found = kernel(*held)
        dr.eval(*found)
        dr.sync_thread()
        if of == "ode":
            return [np.stack([found[0].numpy(), found[1].numpy()], 1), found[2].numpy()]
        return [x.numpy() for x in found]

    floats = [x for x in held if isinstance(x, Float)]

    def pulled():
        for x in floats:
            dr.disable_grad(x)
            dr.enable_grad(x)
        found = [x for x in kernel(*held) if isinstance(x, Float)]
        dr.backward(sum(dr.sum(x) for x in found))
        found = [dr.grad(x) for x in floats]
        dr.eval(*found)
        dr.sync_thread()
        arrays = [x.numpy() for x in found]
        return [np.stack(arrays[:4], 1), np.stack(arrays[4:], 1)] if of == "ode" else arrays

    return pulled if gradient else run


if __name__ == "__main__":
    serve("drjit", prepare)
