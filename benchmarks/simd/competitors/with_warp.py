"""The programs of benchmarks/simd/programs for NVIDIA Warp on the processor: a kernel is launched for each example,
by one thread. Arguments are as in kernels.c, but for the number of examples; `text.py` says how it is asked. Warp
has no recursion, so there are no expressions, and rays of `occlusion` are reflected in a loop. `NAME.gradient` is the
derivative of the sum of the results, by `wp.Tape`.
"""

import numpy as np
import warp as wp
from outside import serve

wp.config.quiet = True
wp.config.verify_fp = False
wp.init()
wp.set_device("cpu")

F, Int = wp.float32, wp.int32
Floats, Ints = wp.array(dtype=F), wp.array(dtype=Int)


@wp.kernel
def mandelbrot(re: Floats, im: Floats, out: Ints):
    i = wp.tid()
    a, b = re[i], im[i]
    x = F(0.0)
    y = F(0.0)
    turns = Int(0)
    while turns < 200 and x * x + y * y <= 4.0:
        z = x * x - y * y + a
        y = 2.0 * x * y + b
        x = z
        turns += 1
    out[i] = turns


scattered = mandelbrot


@wp.kernel
def pendulum(angles: Floats, counts: Ints, out: Floats):
    i = wp.tid()
    angle = F(angles[i])
    speed = F(0.0)
    for _ in range(counts[i]):
        speed = speed - 0.01 * (wp.sin(angle) + 0.1 * speed)
        angle = angle + 0.01 * speed
    out[i] = angle


@wp.func
def normal(x: F):
    z = wp.abs(x)
    k = 1.0 / (1.0 + 0.2316419 * z)
    tail = k * (0.31938153 + k * (-0.356563782 + k * (1.781477937 + k * (-1.821255978 + k * 1.330274429))))
    w = 1.0 - 0.39894228040 * wp.exp(-z * z * 0.5) * tail
    return wp.where(x < 0.0, 1.0 - w, w)


@wp.kernel
def black_scholes(price: Floats, strike: Floats, years: Floats, rate: Floats, volatility: Floats, out: Floats):
    i = wp.tid()
    p, x, t, r, v = price[i], strike[i], years[i], rate[i], volatility[i]
    spread = v * wp.sqrt(t)
    d1 = (wp.log(p / x) + (r + v * v * 0.5) * t) / spread
    out[i] = p * normal(d1) - x * wp.exp(-r * t) * normal(d1 - spread)


STEPS = wp.constant(64)
Values = wp.types.vector(length=65, dtype=F)


@wp.kernel
def binomial(price: Floats, strike: Floats, years: Floats, rate: Floats, volatility: Floats, out: Floats):
    i = wp.tid()
    step = years[i] / 64.0
    up = wp.exp(volatility[i] * wp.sqrt(step))
    growth = wp.exp(rate[i] * step)
    rises = (growth - 1.0 / up) / (up - 1.0 / up)
    down = (1.0 - rises) / growth
    rises = rises / growth
    values = Values()
    for k in range(STEPS + 1):
        values[k] = wp.max(0.0, price[i] * wp.pow(up, F(2 * k - STEPS)) - strike[i])
    for turn in range(STEPS):
        for k in range(STEPS - turn):
            values[k] = down * values[k] + rises * values[k + 1]
    out[i] = values[0]


@wp.func
def fade(t: F):
    return t * t * t * (t * (t * 6.0 - 15.0) + 10.0)


@wp.func
def lerp(t: F, a: F, b: F):
    return a + t * (b - a)


@wp.func
def slope(hashed: Int, x: F, y: F, z: F):
    h = hashed & 15
    u = wp.where(h < 8, x, y)
    v = wp.where(h < 4, y, wp.where(h == 12 or h == 14, x, z))
    return wp.where((h & 1) != 0, -u, u) + wp.where((h & 2) != 0, -v, v)


@wp.func
def one_noise(table: Ints, px: F, py: F, pz: F):
    fx, fy, fz = wp.floor(px), wp.floor(py), wp.floor(pz)
    i, j, k = Int(fx) & 255, Int(fy) & 255, Int(fz) & 255
    x, y, z = px - fx, py - fy, pz - fz
    u, v, w = fade(x), fade(y), fade(z)
    a, b = table[i] + j, table[i + 1] + j
    aa, ab, ba, bb = table[a] + k, table[a + 1] + k, table[b] + k, table[b + 1] + k
    g = lerp(u, slope(table[aa], x, y, z), slope(table[ba], x - 1.0, y, z))
    h = lerp(u, slope(table[ab], x, y - 1.0, z), slope(table[bb], x - 1.0, y - 1.0, z))
    near = lerp(v, g, h)
    g2 = lerp(u, slope(table[aa + 1], x, y, z - 1.0), slope(table[ba + 1], x - 1.0, y, z - 1.0))
    h2 = lerp(u, slope(table[ab + 1], x, y - 1.0, z - 1.0), slope(table[bb + 1], x - 1.0, y - 1.0, z - 1.0))
    return lerp(w, near, lerp(v, g2, h2))


@wp.kernel
def noise(table: Ints, x: Floats, y: Floats, z: Floats, out: Floats):
    i = wp.tid()
    total = F(0.0)
    size = F(1.0)
    for _ in range(4):
        total += wp.abs(one_noise(table, x[i] * size, y[i] * size, z[i] * size)) / size
        size *= 2.0
    out[i] = total


@wp.kernel
def ode(rates: wp.array2d(dtype=F), starts: wp.array2d(dtype=F), out: wp.array2d(dtype=F), steps: Ints):
    i = wp.tid()
    r0, r1, r2, r3 = rates[i, 0], rates[i, 1], rates[i, 2], rates[i, 3]
    p = F(starts[i, 0])
    q = F(starts[i, 1])
    t = F(0.0)
    h = F(0.1)
    count = Int(0)
    while t < 4.0:
        h = wp.min(h, 4.0 - t)
        p1, q1 = r0 * p - r1 * p * q, r2 * p * q - r3 * q
        a2, b2 = p + h / 2.0 * p1, q + h / 2.0 * q1
        p2, q2 = r0 * a2 - r1 * a2 * b2, r2 * a2 * b2 - r3 * b2
        a3, b3 = p + h * 3.0 / 4.0 * p2, q + h * 3.0 / 4.0 * q2
        p3, q3 = r0 * a3 - r1 * a3 * b3, r2 * a3 * b3 - r3 * b3
        a = p + h * (F(2.0 / 9.0) * p1 + F(1.0 / 3.0) * p2 + F(4.0 / 9.0) * p3)
        b = q + h * (F(2.0 / 9.0) * q1 + F(1.0 / 3.0) * q2 + F(4.0 / 9.0) * q3)
        p4, q4 = r0 * a - r1 * a * b, r2 * a * b - r3 * b
        ep = h * (F(5.0 / 72.0) * p1 - F(1.0 / 12.0) * p2 - F(1.0 / 9.0) * p3 + F(1.0 / 8.0) * p4)
        eq = h * (F(5.0 / 72.0) * q1 - F(1.0 / 12.0) * q2 - F(1.0 / 9.0) * q3 + F(1.0 / 8.0) * q4)
        error = wp.max(wp.abs(ep) / (1e-3 * (1.0 + wp.abs(p))), wp.abs(eq) / (1e-3 * (1.0 + wp.abs(q))))
        if error <= 1.0:
            t = t + h
            p = a
            q = b
            count = count + 1
        h = h * wp.min(wp.max(0.9 * wp.pow(error + 1e-10, F(-1.0 / 3.0)), 0.2), 5.0)
    out[i, 0] = p
    out[i, 1] = q
    steps[i] = count


FAR = wp.constant(F(1e9))
BALLS = wp.constant(wp.types.matrix(shape=(3, 4), dtype=F)(-2, 0, -3.5, 0.5, -0.5, 0, -3, 0.5, 1, 0, -2.2, 0.5))


@wp.func
def meets(o: wp.vec3, d: wp.vec3, k: Int):
    to = o - wp.vec3(BALLS[k, 0], BALLS[k, 1], BALLS[k, 2])
    b = wp.dot(to, d)
    left = b * b - (wp.dot(to, to) - BALLS[k, 3] * BALLS[k, 3])
    far = FAR
    if left > 0.0:
        found = -b - wp.sqrt(left)
        if found > 0.0:
            far = found
    return far


@wp.func
def ground(o: wp.vec3, d: wp.vec3):
    far = FAR
    if wp.abs(d[1]) >= 1e-6:
        found = (-0.5 - o[1]) / d[1]
        if found > 0.0:
            far = found
    return far


@wp.func
def open_share(p: wp.vec3, n: wp.vec3, first: Int):
    u = wp.vec3(-n[2], 0.0, n[0])
    if wp.abs(n[0]) < 0.6:
        u = wp.vec3(0.0, n[2], -n[1])
    u = u * (1.0 / wp.sqrt(wp.dot(u, u)))
    v = wp.cross(n, u)
    free = Int(0)
    seed = Int(first)
    for _ in range(16):
        seed = (seed * 1103 + 12345) & 65535
        height = F(seed) / 65536.0
        seed = (seed * 1103 + 12345) & 65535
        angle = 6.283185307 * (F(seed) / 65536.0)
        out = wp.sqrt(height)
        d = wp.cos(angle) * out * u + wp.sin(angle) * out * v + wp.sqrt(1.0 - height) * n
        if meets(p, d, 0) >= FAR and meets(p, d, 1) >= FAR and meets(p, d, 2) >= FAR and ground(p, d) >= FAR:
            free = free + 1
    return F(free) / 16.0


@wp.kernel
def occlusion(x: Floats, y: Floats, seeds: Ints, out: Floats):
    i = wp.tid()
    seed = seeds[i]
    o = wp.vec3(0.0, 0.0, 0.0)
    d = wp.vec3(x[i], y[i], -1.0) * (1.0 / wp.sqrt(x[i] * x[i] + y[i] * y[i] + 1.0))
    light = F(0.0)
    share = F(1.0)
    depth = Int(0)
    goes_on = Int(1)
    while goes_on == 1:
        goes_on = 0
        a, b, c = meets(o, d, 0), meets(o, d, 1), meets(o, d, 2)
        ball, plane = wp.min(a, wp.min(b, c)), ground(o, d)
        if wp.min(ball, plane) < FAR:
            if plane < ball:
                p = o + plane * d + wp.vec3(0.0, 1e-4, 0.0)
                light = light + share * open_share(p, wp.vec3(0.0, 1.0, 0.0), seed)
            else:
                p = o + ball * d
                k = wp.where(a <= ball, 0, wp.where(b <= ball, 1, 2))
                n = (p - wp.vec3(BALLS[k, 0], BALLS[k, 1], BALLS[k, 2])) / BALLS[k, 3]
                p = p + 1e-4 * n
                here = open_share(p, n, seed)
                if depth < 3:
                    light = light + share * 0.6 * here
                    share = share * 0.4
                    d = d - 2.0 * wp.dot(d, n) * n
                    o = p
                    depth = depth + 1
                    goes_on = 1
                else:
                    light = light + share * here
    out[i] = light


@wp.kernel
def spheres(
    count: Ints, x: Floats, y: Floats, z: Floats, radius: Floats, leaf: Ints, skip: Ints,
    dxs: Floats, dys: Floats, dzs: Floats, out: Floats,
):  # fmt: skip
    i = wp.tid()
    best = F(1e9)
    node = Int(0)
    dx, dy, dz = dxs[i], dys[i], dzs[i]
    while node < count[0]:
        cx, cy, cz, r = x[node], y[node], z[node], radius[node]
        along = cx * dx + cy * dy + cz * dz
        left = along * along - (cx * cx + cy * cy + cz * cz) + r * r
        far = FAR
        if left >= 0.0 and along >= 0.0:
            far = along - wp.sqrt(left)
        if far < best:
            if leaf[node] == 1:
                best = far
            node = node + 1
        else:
            node = skip[node]
    out[i] = best


@wp.kernel
def bodies(
    count: Ints, xs: Floats, ys: Floats, zs: Floats, m: Floats, x: Floats, y: Floats, z: Floats,
    vx: Floats, vy: Floats, vz: Floats, ox: Floats, oy: Floats, oz: Floats, ovx: Floats, ovy: Floats, ovz: Floats,
):  # fmt: skip
    i = wp.tid()
    ax = F(0.0)
    ay = F(0.0)
    az = F(0.0)
    for j in range(count[0]):
        dx, dy, dz = xs[j] - x[i], ys[j] - y[i], zs[j] - z[i]
        near = dx * dx + dy * dy + dz * dz + 1e-3
        pull = m[j] / (near * wp.sqrt(near))
        ax += pull * dx
        ay += pull * dy
        az += pull * dz
    wx, wy, wz = vx[i] + 0.01 * ax, vy[i] + 0.01 * ay, vz[i] + 0.01 * az
    ovx[i] = wx
    ovy[i] = wy
    ovz[i] = wz
    ox[i] = x[i] + 0.01 * wx
    oy[i] = y[i] + 0.01 * wy
    oz[i] = z[i] + 0.01 * wz


@wp.kernel
def boosted(
    trees: Ints, root: Ints, feature: Ints, split: Floats, left: Ints, value: Floats, x: wp.array2d(dtype=F),
    out: Floats,
):  # fmt: skip
    i = wp.tid()
    total = F(0.0)
    for t in range(trees[0]):
        node = Int(root[t])
        below = Int(left[node])
        while below >= 0:
            node = wp.where(x[i, feature[node]] < split[node], below, below + 1)
            below = left[node]
        total += value[node]
    out[i] = total


KERNELS = {
    k.key: k for k in (mandelbrot, pendulum, black_scholes, binomial, noise, ode, occlusion, spheres, bodies, boosted)
} | {"scattered": mandelbrot}


def prepare(name, given, made):
    of, _, gradient = name.partition(".")
    if of not in KERNELS:
        return None
    kernel = KERNELS[of]
    rows = len(made[0])
    inputs = [wp.array(x, requires_grad=bool(gradient) and x.dtype == np.float32) for x in given]
    outputs = [
        wp.zeros(shape=x.shape, dtype=Int if x.dtype == np.int32 else F, requires_grad=bool(gradient)) for x in made
    ]
    if not gradient:

        def run():
            wp.launch(kernel, rows, inputs=inputs, outputs=outputs)
            return [x.numpy() for x in outputs]

        return run
    seeds = {x: wp.ones(shape=x.shape, dtype=F) for x in outputs if x.dtype == F}

    def pulled():
        tape = wp.Tape()
        with tape:
            wp.launch(kernel, rows, inputs=inputs, outputs=outputs)
        tape.backward(grads=seeds)
        found = [x.grad.numpy().copy() for x in inputs if x.requires_grad]
        tape.zero()
        return found

    return pulled


if __name__ == "__main__":
    serve("warp", prepare)
