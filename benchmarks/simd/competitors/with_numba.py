"""The programs of benchmarks/simd/programs for numba: loops over examples by `njit`, one thread. Arguments are as in
kernels.c, but for the number of examples; `text.py` says how it is asked.
"""

from math import cos, exp, log, sin, sqrt

import numba
import numpy as np
from outside import serve

F = np.float32
FAR, ONE, TWO, HALF, ZERO, FOUR = F(1e9), F(1), F(2), F(0.5), F(0), F(4)
njit = numba.njit(error_model="numpy")


@njit
def mandelbrot(re, im, out):
    for i in range(len(re)):
        x = y = ZERO
        turns = np.int32(0)
        while turns < 200 and x * x + y * y <= FOUR:
            x, y = x * x - y * y + re[i], TWO * x * y + im[i]
            turns += 1
        out[i] = turns


scattered = mandelbrot
SWING, DAMPED = F(0.01), F(0.1)


@njit
def pendulum(angles, counts, out):
    for i in range(len(angles)):
        angle, speed = angles[i], ZERO
        for _ in range(counts[i]):
            speed -= SWING * (sin(angle) + DAMPED * speed)
            angle += SWING * speed
        out[i] = angle


C1, C2, C3 = F(0.2316419), F(0.31938153), F(-0.356563782)
C4, C5, C6, C7 = F(1.781477937), F(-1.821255978), F(1.330274429), F(0.39894228040)


@njit
def normal(x):
    z = abs(x)
    k = ONE / (ONE + C1 * z)
    tail = k * (C2 + k * (C3 + k * (C4 + k * (C5 + k * C6))))
    w = ONE - C7 * exp(-z * z * HALF) * tail
    return ONE - w if x < ZERO else w


@njit
def black_scholes(price, strike, years, rate, volatility, out):
    for i in range(len(price)):
        p, x, t, r, v = price[i], strike[i], years[i], rate[i], volatility[i]
        spread = v * sqrt(t)
        d1 = (log(p / x) + (r + v * v * HALF) * t) / spread
        out[i] = p * normal(d1) - x * exp(-r * t) * normal(d1 - spread)


STEPS = 64
STEPS_F = F(STEPS)


@njit
def binomial(price, strike, years, rate, volatility, out):
    values = np.empty(STEPS + 1, np.float32)
    for i in range(len(price)):
        step = years[i] / STEPS_F
        up, growth = exp(volatility[i] * sqrt(step)), exp(rate[i] * step)
        rises = (growth - ONE / up) / (up - ONE / up)
        down = (ONE - rises) / growth
        rises = rises / growth
        for k in range(STEPS + 1):
            values[k] = max(ZERO, price[i] * up ** F(2 * k - STEPS) - strike[i])
        for left in range(STEPS, 0, -1):
            for k in range(left):
                values[k] = down * values[k] + rises * values[k + 1]
        out[i] = values[0]


SIX, FIFTEEN, TEN = F(6), F(15), F(10)


@njit
def fade(t):
    return t * t * t * (t * (t * SIX - FIFTEEN) + TEN)


@njit
def lerp(t, a, b):
    return a + t * (b - a)


@njit
def slope(hashed, x, y, z):
    h = hashed & 15
    u = x if h < 8 else y
    v = y if h < 4 else (x if h == 12 or h == 14 else z)
    return (-u if h & 1 else u) + (-v if h & 2 else v)


@njit
def one_noise(table, x, y, z):
    fx, fy, fz = np.floor(x), np.floor(y), np.floor(z)
    i, j, k = np.int32(fx) & 255, np.int32(fy) & 255, np.int32(fz) & 255
    x, y, z = x - fx, y - fy, z - fz
    u, v, w = fade(x), fade(y), fade(z)
    a, b = table[i] + j, table[i + 1] + j
    aa, ab, ba, bb = table[a] + k, table[a + 1] + k, table[b] + k, table[b + 1] + k
    g = lerp(u, slope(table[aa], x, y, z), slope(table[ba], x - ONE, y, z))
    h = lerp(u, slope(table[ab], x, y - ONE, z), slope(table[bb], x - ONE, y - ONE, z))
    near = lerp(v, g, h)
    g = lerp(u, slope(table[aa + 1], x, y, z - ONE), slope(table[ba + 1], x - ONE, y, z - ONE))
    h = lerp(u, slope(table[ab + 1], x, y - ONE, z - ONE), slope(table[bb + 1], x - ONE, y - ONE, z - ONE))
    return lerp(w, near, lerp(v, g, h))


@njit
def noise(table, x, y, z, out):
    for i in range(len(x)):
        total, size = ZERO, ONE
        for _ in range(4):
            total += abs(one_noise(table, x[i] * size, y[i] * size, z[i] * size)) / size
            size *= TWO
        out[i] = total


A1, A2, A3 = F(2 / 9), F(1 / 3), F(4 / 9)
E1, E2, E3, E4 = F(5 / 72), F(1 / 12), F(1 / 9), F(1 / 8)
THREE, TOLERANCE, LEAST, MOST, SAFE, FIRST = F(3), F(1e-3), F(0.2), F(5), F(0.9), F(0.1)
TINY, POWER = F(1e-10), F(-1 / 3)


@njit
def ode(rates, starts, out, steps):
    for i in range(len(rates)):
        r0, r1, r2, r3 = rates[i, 0], rates[i, 1], rates[i, 2], rates[i, 3]
        p, q, t, h = starts[i, 0], starts[i, 1], ZERO, FIRST
        count = np.int32(0)
        while t < FOUR:
            h = min(h, FOUR - t)
            p1, q1 = r0 * p - r1 * p * q, r2 * p * q - r3 * q
            a, b = p + h / TWO * p1, q + h / TWO * q1
            p2, q2 = r0 * a - r1 * a * b, r2 * a * b - r3 * b
            a, b = p + h * THREE / FOUR * p2, q + h * THREE / FOUR * q2
            p3, q3 = r0 * a - r1 * a * b, r2 * a * b - r3 * b
            a, b = p + h * (A1 * p1 + A2 * p2 + A3 * p3), q + h * (A1 * q1 + A2 * q2 + A3 * q3)
            p4, q4 = r0 * a - r1 * a * b, r2 * a * b - r3 * b
            ep = h * (E1 * p1 - E2 * p2 - E3 * p3 + E4 * p4)
            eq = h * (E1 * q1 - E2 * q2 - E3 * q3 + E4 * q4)
            error = max(abs(ep) / (TOLERANCE * (ONE + abs(p))), abs(eq) / (TOLERANCE * (ONE + abs(q))))
            if error <= ONE:
                t += h
                p, q = a, b
                count += 1
            h *= min(max(SAFE * (error + TINY) ** POWER, LEAST), MOST)
        out[i, 0], out[i, 1], steps[i] = p, q, count


SPHERES = np.array([[-2, 0, -3.5, 0.5], [-0.5, 0, -3, 0.5], [1, 0, -2.2, 0.5]], np.float32)
NEARLY, TURN, FLOOR, UP, WORDS = F(1e-6), F(6.283185307), F(-0.5), F(1e-4), F(65536)
STEEP, DULL, MIRROR, SIXTEEN = F(0.6), F(0.6), F(0.4), F(16)


@njit
def meets(ox, oy, oz, dx, dy, dz, k):
    x, y, z, radius = ox - SPHERES[k, 0], oy - SPHERES[k, 1], oz - SPHERES[k, 2], SPHERES[k, 3]
    b = x * dx + y * dy + z * dz
    left = b * b - (x * x + y * y + z * z - radius * radius)
    if left <= ZERO:
        return FAR
    far = -b - sqrt(left)
    return far if far > ZERO else FAR


@njit
def plane(oy, dy):
    if abs(dy) < NEARLY:
        return FAR
    far = (FLOOR - oy) / dy
    return far if far > ZERO else FAR


@njit
def open_share(px, py, pz, nx, ny, nz, seed):
    if abs(nx) < STEEP:
        ux, uy, uz = ZERO, nz, -ny
    else:
        ux, uy, uz = -nz, ZERO, nx
    scale = ONE / sqrt(ux * ux + uy * uy + uz * uz)
    ux, uy, uz = ux * scale, uy * scale, uz * scale
    vx, vy, vz = ny * uz - nz * uy, nz * ux - nx * uz, nx * uy - ny * ux
    free = 0
    for _ in range(16):
        seed = (seed * 1103 + 12345) & 65535
        height = F(seed) / WORDS
        seed = (seed * 1103 + 12345) & 65535
        angle = TURN * (F(seed) / WORDS)
        c, s, r = cos(angle) * sqrt(height), sin(angle) * sqrt(height), sqrt(ONE - height)
        dx, dy, dz = c * ux + s * vx + r * nx, c * uy + s * vy + r * ny, c * uz + s * vz + r * nz
        if not (
            meets(px, py, pz, dx, dy, dz, 0) < FAR
            or meets(px, py, pz, dx, dy, dz, 1) < FAR
            or meets(px, py, pz, dx, dy, dz, 2) < FAR
            or plane(py, dy) < FAR
        ):
            free += 1
    return F(free) / SIXTEEN


@numba.njit("f4(f4,f4,f4,f4,f4,f4,i4,i4)", error_model="numpy")
def trace(ox, oy, oz, dx, dy, dz, depth, seed):
    a, b, c = meets(ox, oy, oz, dx, dy, dz, 0), meets(ox, oy, oz, dx, dy, dz, 1), meets(ox, oy, oz, dx, dy, dz, 2)
    ball, ground = min(a, b, c), plane(oy, dy)
    if min(ball, ground) >= FAR:
        return ZERO
    if ground < ball:
        px, py, pz = ox + ground * dx, oy + ground * dy, oz + ground * dz
        return open_share(px, py + UP, pz, ZERO, ONE, ZERO, seed)
    px, py, pz = ox + ball * dx, oy + ball * dy, oz + ball * dz
    k = 0 if a <= ball else 1 if b <= ball else 2
    cx, cy, cz, radius = SPHERES[k, 0], SPHERES[k, 1], SPHERES[k, 2], SPHERES[k, 3]
    nx, ny, nz = (px - cx) / radius, (py - cy) / radius, (pz - cz) / radius
    px, py, pz = px + UP * nx, py + UP * ny, pz + UP * nz
    light = open_share(px, py, pz, nx, ny, nz, seed)
    if depth < 3:
        along = TWO * (dx * nx + dy * ny + dz * nz)
        mirrored = trace(px, py, pz, dx - along * nx, dy - along * ny, dz - along * nz, np.int32(depth + 1), seed)
        light = DULL * light + MIRROR * mirrored
    return light


@njit
def occlusion(x, y, seed, out):
    for i in range(len(x)):
        scale = ONE / sqrt(x[i] * x[i] + y[i] * y[i] + ONE)
        out[i] = trace(ZERO, ZERO, ZERO, x[i] * scale, y[i] * scale, -scale, np.int32(0), seed[i])


@njit
def spheres(count, x, y, z, radius, leaf, skip, dxs, dys, dzs, out):
    for i in range(len(dxs)):
        best, node, dx, dy, dz = FAR, np.int32(0), dxs[i], dys[i], dzs[i]
        while node < len(x):
            cx, cy, cz, r = x[node], y[node], z[node], radius[node]
            along = cx * dx + cy * dy + cz * dz
            left = along * along - (cx * cx + cy * cy + cz * cz) + r * r
            far = FAR if left < ZERO or along < ZERO else along - sqrt(left)
            if far < best:
                if leaf[node] == 1:
                    best = far
                node += 1
            else:
                node = skip[node]
        out[i] = best


SOFT, STEP = F(1e-3), F(0.01)


@njit
def bodies(count, xs, ys, zs, m, x, y, z, vx, vy, vz, ox, oy, oz, ovx, ovy, ovz):
    for i in range(len(x)):
        ax = ay = az = ZERO
        for j in range(len(xs)):
            dx, dy, dz = xs[j] - x[i], ys[j] - y[i], zs[j] - z[i]
            near = dx * dx + dy * dy + dz * dz + SOFT
            pull = m[j] / (near * sqrt(near))
            ax, ay, az = ax + pull * dx, ay + pull * dy, az + pull * dz
        wx, wy, wz = vx[i] + STEP * ax, vy[i] + STEP * ay, vz[i] + STEP * az
        ovx[i], ovy[i], ovz[i] = wx, wy, wz
        ox[i], oy[i], oz[i] = x[i] + STEP * wx, y[i] + STEP * wy, z[i] + STEP * wz


@njit
def boosted(trees, root, feature, split, left, value, x, out):
    for i in range(len(x)):
        total = ZERO
        for t in range(len(root)):
            node = root[t]
            while left[node] >= 0:
                if x[i, feature[node]] < split[node]:
                    node = left[node]
                else:
                    node = left[node] + 1
            total += value[node]
        out[i] = total


@numba.njit("f4(i4[::1],f4[::1],i4[::1],i4[::1],i4,f4)", error_model="numpy")
def evaluate(kind, value, left, right, e, x):
    k = kind[e]
    if k == 0:
        return value[e]
    if k == 1:
        return x
    a = evaluate(kind, value, left, right, left[e], x)
    if k == 4:
        return F(sin(a))
    b = evaluate(kind, value, left, right, right[e], x)
    return a + b if k == 2 else a * b


@njit
def expressions(kind, value, left, right, root, x, out):
    for i in range(len(x)):
        out[i] = evaluate(kind, value, left, right, root[i], x[i])


def prepare(name, given, made):
    function = globals().get(name)

    def run():
        function(*given, *made)
        return made

    return None if function is None else run


if __name__ == "__main__":
    serve("numba", prepare)
