// The programs of benchmarks/simd/programs in ispc: what one writes by hand for lanes. Arguments as in kernels.c.

static const uniform float FAR = 1e9;

export void mandelbrot(uniform int n, const uniform float re[], const uniform float im[], uniform int out[]) {
    foreach (i = 0 ... n) {
        float cx = re[i], cy = im[i], x = 0, y = 0;
        int turns = 0;
        while (turns < 200 && x * x + y * y <= 4.0f) {
            float next = x * x - y * y + cx;
            y = 2.0f * x * y + cy;
            x = next;
            turns++;
        }
        out[i] = turns;
    }
}

export void scattered(uniform int n, const uniform float re[], const uniform float im[], uniform int out[]) {
    mandelbrot(n, re, im, out);
}

export void pendulum(uniform int n, const uniform float angles[], const uniform int counts[], uniform float out[]) {
    foreach (i = 0 ... n) {
        float angle = angles[i], speed = 0;
        for (int turn = 0; turn < counts[i]; turn++) {
            speed -= 0.01f * (sin(angle) + 0.1f * speed);
            angle += 0.01f * speed;
        }
        out[i] = angle;
    }
}

static inline float normal(float x) {
    float z = abs(x);
    float k = 1.0f / (1.0f + 0.2316419f * z);
    float tail = k * (0.31938153f + k * (-0.356563782f + k * (1.781477937f + k * (-1.821255978f + k * 1.330274429f))));
    float w = 1.0f - 0.39894228040f * exp(-z * z / 2.0f) * tail;
    return select(x < 0.0f, 1.0f - w, w);
}

export void black_scholes(uniform int n, const uniform float price[], const uniform float strike[],
                          const uniform float years[], const uniform float rate[], const uniform float volatility[],
                          uniform float out[]) {
    foreach (i = 0 ... n) {
        float p = price[i], x = strike[i], t = years[i], r = rate[i], v = volatility[i];
        float spread = v * sqrt(t);
        float d1 = (log(p / x) + (r + v * v / 2.0f) * t) / spread;
        out[i] = p * normal(d1) - x * exp(-r * t) * normal(d1 - spread);
    }
}

#define STEPS 64
export void binomial(uniform int n, const uniform float price[], const uniform float strike[],
                     const uniform float years[], const uniform float rate[], const uniform float volatility[],
                     uniform float out[]) {
    foreach (i = 0 ... n) {
        float values[STEPS + 1];
        float step = years[i] / STEPS;
        float up = exp(volatility[i] * sqrt(step)), growth = exp(rate[i] * step);
        float rises = (growth - 1.0f / up) / (up - 1.0f / up);
        float down = (1.0f - rises) / growth;
        rises /= growth;
        for (uniform int k = 0; k <= STEPS; k++)
            values[k] = max(0.0f, price[i] * pow(up, 2.0f * k - STEPS) - strike[i]);
        for (uniform int left = STEPS; left > 0; left--)
            for (uniform int k = 0; k < left; k++)
                values[k] = down * values[k] + rises * values[k + 1];
        out[i] = values[0];
    }
}

static inline float fade(float t) { return t * t * t * (t * (t * 6.0f - 15.0f) + 10.0f); }
static inline float lerp(float t, float a, float b) { return a + t * (b - a); }
static inline float slope(int hashed, float x, float y, float z) {
    int h = hashed & 15;
    float u = select(h < 8, x, y);
    float v = select(h < 4, y, select(h == 12 || h == 14, x, z));
    return select((h & 1) != 0, -u, u) + select((h & 2) != 0, -v, v);
}
static float one_noise(const uniform int table[], float x, float y, float z) {
    float fx = floor(x), fy = floor(y), fz = floor(z);
    int i = (int)fx & 255, j = (int)fy & 255, k = (int)fz & 255;
    x -= fx; y -= fy; z -= fz;
    float u = fade(x), v = fade(y), w = fade(z);
    int a = table[i] + j, b = table[i + 1] + j;
    int aa = table[a] + k, ab = table[a + 1] + k, ba = table[b] + k, bb = table[b + 1] + k;
    return lerp(w,
        lerp(v, lerp(u, slope(table[aa], x, y, z), slope(table[ba], x - 1, y, z)),
                lerp(u, slope(table[ab], x, y - 1, z), slope(table[bb], x - 1, y - 1, z))),
        lerp(v, lerp(u, slope(table[aa + 1], x, y, z - 1), slope(table[ba + 1], x - 1, y, z - 1)),
                lerp(u, slope(table[ab + 1], x, y - 1, z - 1), slope(table[bb + 1], x - 1, y - 1, z - 1))));
}
export void noise(uniform int n, const uniform int table[], const uniform float xs[], const uniform float ys[],
                  const uniform float zs[], uniform float out[]) {
    foreach (i = 0 ... n) {
        float x = xs[i], y = ys[i], z = zs[i], total = 0;
        uniform float size = 1;
        for (uniform int k = 0; k < 4; k++) {
            total += abs(one_noise(table, x * size, y * size, z * size)) / size;
            size *= 2;
        }
        out[i] = total;
    }
}

#define FIELD(p, q, dp, dq) float dp = r0 * (p) - r1 * (p) * (q), dq = r2 * (p) * (q) - r3 * (q)
export void ode(uniform int n, const uniform float rates[], const uniform float starts[], uniform float out[],
                uniform int steps[]) {
    foreach (i = 0 ... n) {
        float r0 = rates[4 * i], r1 = rates[4 * i + 1], r2 = rates[4 * i + 2], r3 = rates[4 * i + 3];
        float p = starts[2 * i], q = starts[2 * i + 1], t = 0, h = 0.1f;
        int count = 0;
        while (t < 4.0f) {
            h = min(h, 4.0f - t);
            FIELD(p, q, p1, q1);
            float hp = p + h / 2 * p1, hq = q + h / 2 * q1;
            FIELD(hp, hq, p2, q2);
            hp = p + h * 3 / 4 * p2; hq = q + h * 3 / 4 * q2;
            FIELD(hp, hq, p3, q3);
            float np = p + h * (2.0f / 9 * p1 + 1.0f / 3 * p2 + 4.0f / 9 * p3);
            float nq = q + h * (2.0f / 9 * q1 + 1.0f / 3 * q2 + 4.0f / 9 * q3);
            FIELD(np, nq, p4, q4);
            float ap = h * (5.0f / 72 * p1 - 1.0f / 12 * p2 - 1.0f / 9 * p3 + 1.0f / 8 * p4);
            float aq = h * (5.0f / 72 * q1 - 1.0f / 12 * q2 - 1.0f / 9 * q3 + 1.0f / 8 * q4);
            float error = max(abs(ap) / (1e-3f * (1 + abs(p))), abs(aq) / (1e-3f * (1 + abs(q))));
            if (error <= 1.0f) {
                t += h; p = np; q = nq;
                count++;
            }
            h *= min(max(0.9f * pow(error + 1e-10f, -1.0f / 3), 0.2f), 5.0f);
        }
        out[2 * i] = p; out[2 * i + 1] = q; steps[i] = count;
    }
}

static const uniform float SPHERES[3][4] = {{-2, 0, -3.5f, 0.5f}, {-0.5f, 0, -3, 0.5f}, {1, 0, -2.2f, 0.5f}};
struct vec { float x, y, z; };
static inline float meets(vec o, vec d, uniform int k) {
    float x = o.x - SPHERES[k][0], y = o.y - SPHERES[k][1], z = o.z - SPHERES[k][2];
    uniform float radius = SPHERES[k][3];
    float b = x * d.x + y * d.y + z * d.z;
    float left = b * b - (x * x + y * y + z * z - radius * radius);
    float far = -b - sqrt(max(left, 0.0f));
    return select(left > 0 && far > 0, far, FAR);
}
static inline float plane(float oy, float dy) {
    float far = (-0.5f - oy) / dy;
    return select(abs(dy) >= 1e-6f && far > 0, far, FAR);
}
static float open_share(vec p, vec n, int seed) {
    vec u;
    if (abs(n.x) < 0.6f) {
        u.x = 0; u.y = n.z; u.z = -n.y;
    } else {
        u.x = -n.z; u.y = 0; u.z = n.x;
    }
    float scale = 1 / sqrt(u.x * u.x + u.y * u.y + u.z * u.z);
    u.x *= scale; u.y *= scale; u.z *= scale;
    vec v;
    v.x = n.y * u.z - n.z * u.y; v.y = n.z * u.x - n.x * u.z; v.z = n.x * u.y - n.y * u.x;
    int free = 0;
    for (uniform int k = 0; k < 16; k++) {
        seed = (seed * 1103 + 12345) & 65535;
        float height = seed / 65536.0f;
        seed = (seed * 1103 + 12345) & 65535;
        float angle = 6.283185307f * (seed / 65536.0f), sine, cosine;
        sincos(angle, &sine, &cosine);
        float c = cosine * sqrt(height), s = sine * sqrt(height), r = sqrt(1 - height);
        vec d;
        d.x = c * u.x + s * v.x + r * n.x; d.y = c * u.y + s * v.y + r * n.y; d.z = c * u.z + s * v.z + r * n.z;
        bool blocked = meets(p, d, 0) < FAR || meets(p, d, 1) < FAR || meets(p, d, 2) < FAR || plane(p.y, d.y) < FAR;
        free += select(blocked, 0, 1);
    }
    return free / 16.0f;
}
static float trace(vec o, vec d, uniform int depth, int seed) {
    float a = meets(o, d, 0), b = meets(o, d, 1), c = meets(o, d, 2);
    float ball = min(a, min(b, c)), ground = plane(o.y, d.y);
    if (min(ball, ground) >= FAR) return 0;
    bool mirrors = ground >= ball;
    float far = min(ball, ground);
    float cx = select(a <= ball, SPHERES[0][0], select(b <= ball, SPHERES[1][0], SPHERES[2][0]));
    float cy = select(a <= ball, SPHERES[0][1], select(b <= ball, SPHERES[1][1], SPHERES[2][1]));
    float cz = select(a <= ball, SPHERES[0][2], select(b <= ball, SPHERES[1][2], SPHERES[2][2]));
    float radius = select(a <= ball, SPHERES[0][3], select(b <= ball, SPHERES[1][3], SPHERES[2][3]));
    vec p, n;
    p.x = o.x + far * d.x; p.y = o.y + far * d.y; p.z = o.z + far * d.z;
    n.x = select(mirrors, (p.x - cx) / radius, 0.0f);
    n.y = select(mirrors, (p.y - cy) / radius, 1.0f);
    n.z = select(mirrors, (p.z - cz) / radius, 0.0f);
    p.x += 1e-4f * n.x; p.y += 1e-4f * n.y; p.z += 1e-4f * n.z;
    float light = open_share(p, n, seed);
    if (mirrors && depth < 3) {
        float along = 2 * (d.x * n.x + d.y * n.y + d.z * n.z);
        vec r;
        r.x = d.x - along * n.x; r.y = d.y - along * n.y; r.z = d.z - along * n.z;
        light = 0.6f * light + 0.4f * trace(p, r, depth + 1, seed);
    }
    return light;
}
export void occlusion(uniform int n, const uniform float x[], const uniform float y[], const uniform int seed[],
                      uniform float out[]) {
    foreach (i = 0 ... n) {
        float scale = 1 / sqrt(x[i] * x[i] + y[i] * y[i] + 1);
        vec o = {0, 0, 0}, d;
        d.x = x[i] * scale; d.y = y[i] * scale; d.z = -scale;
        out[i] = trace(o, d, 0, seed[i]);
    }
}

export void spheres(uniform int n, const uniform int count[], const uniform float x[], const uniform float y[],
                    const uniform float z[], const uniform float radius[], const uniform int leaf[],
                    const uniform int skip[], const uniform float dxs[], const uniform float dys[],
                    const uniform float dzs[], uniform float out[]) {
    foreach (i = 0 ... n) {
        float best = FAR, dx = dxs[i], dy = dys[i], dz = dzs[i];
        int node = 0;
        while (node < *count) {
            float cx = x[node], cy = y[node], cz = z[node], r = radius[node];
            float along = cx * dx + cy * dy + cz * dz;
            float left = along * along - (cx * cx + cy * cy + cz * cz) + r * r;
            float far = select(left < 0 || along < 0, FAR, along - sqrt(max(left, 0.0f)));
            if (far < best) {
                if (leaf[node] == 1) best = far;
                node++;
            } else {
                node = skip[node];
            }
        }
        out[i] = best;
    }
}

// A whole gang walks together: nodes are uniform, and a lane that has missed one waits for where it goes on.
export void spheres_together(uniform int n, const uniform int count[], const uniform float x[], const uniform float y[],
                    const uniform float z[], const uniform float radius[], const uniform int leaf[],
                    const uniform int skip[], const uniform float dxs[], const uniform float dys[],
                    const uniform float dzs[], uniform float out[]) {
    foreach (i = 0 ... n) {
        float best = FAR, dx = dxs[i], dy = dys[i], dz = dzs[i];
        uniform int node = 0;
        while (node < *count) {
            uniform float cx = x[node], cy = y[node], cz = z[node], r = radius[node];
            float along = cx * dx + cy * dy + cz * dz;
            float left = along * along - (cx * cx + cy * cy + cz * cz) + r * r;
            float far = select(left < 0 || along < 0, FAR, along - sqrt(max(left, 0.0f)));
            if (any(far < best)) {
                if (leaf[node] == 1) best = min(best, far);
                node++;
            } else {
                node = skip[node];
            }
        }
        out[i] = best;
    }
}

export void bodies(uniform int n, const uniform int count[], const uniform float xs[], const uniform float ys[],
                   const uniform float zs[], const uniform float m[], const uniform float x[], const uniform float y[],
                   const uniform float z[], const uniform float vx[], const uniform float vy[],
                   const uniform float vz[], uniform float ox[], uniform float oy[], uniform float oz[],
                   uniform float ovx[], uniform float ovy[], uniform float ovz[]) {
    foreach (i = 0 ... n) {
        float px = x[i], py = y[i], pz = z[i], ax = 0, ay = 0, az = 0;
        for (uniform int j = 0; j < *count; j++) {
            float dx = xs[j] - px, dy = ys[j] - py, dz = zs[j] - pz;
            float near = dx * dx + dy * dy + dz * dz + 1e-3f;
            float pull = m[j] / (near * sqrt(near));
            ax += pull * dx; ay += pull * dy; az += pull * dz;
        }
        float wx = vx[i] + 0.01f * ax, wy = vy[i] + 0.01f * ay, wz = vz[i] + 0.01f * az;
        ovx[i] = wx; ovy[i] = wy; ovz[i] = wz;
        ox[i] = px + 0.01f * wx; oy[i] = py + 0.01f * wy; oz[i] = pz + 0.01f * wz;
    }
}

export void boosted(uniform int n, const uniform int trees[], const uniform int root[], const uniform int feature[],
                    const uniform float split[], const uniform int left[], const uniform float value[],
                    const uniform float x[], uniform float out[]) {
    foreach (i = 0 ... n) {
        float total = 0;
        for (uniform int t = 0; t < *trees; t++) {
            int node = root[t];
            int below = left[node];
            while (below >= 0) {
                node = below + select(x[16 * i + feature[node]] < split[node], 0, 1);
                below = left[node];
            }
            total += value[node];
        }
        out[i] = total;
    }
}

// Lanes have different expressions: each call runs what some lane asks for.
static float evaluate(const uniform int kind[], const uniform float value[], const uniform int left[],
                      const uniform int right[], int e, float x) {
    int k = kind[e];
    if (k == 0) return value[e];
    if (k == 1) return x;
    float a = evaluate(kind, value, left, right, left[e], x);
    if (k == 4) return sin(a);
    float b = evaluate(kind, value, left, right, right[e], x);
    return select(k == 2, a + b, a * b);
}
export void expressions(uniform int n, const uniform int kind[], const uniform float value[], const uniform int left[],
                        const uniform int right[], const uniform int root[], const uniform float xs[],
                        uniform float out[]) {
    foreach (i = 0 ... n) {
        out[i] = evaluate(kind, value, left, right, root[i], xs[i]);
    }
}
