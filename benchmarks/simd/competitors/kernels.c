/* The programs of benchmarks/simd/programs in C, one example after another: what `gcc -O3 -march=native` makes of the
   plain loop. Each function: how many examples, then pointers to what goes in, then to what comes out. */
#include <math.h>
#include <stdint.h>

#define FAR 1e9f

void mandelbrot(int n, const float *re, const float *im, int *out) {
    for (int i = 0; i < n; i++) {
        float x = 0, y = 0;
        int turns = 0;
        while (turns < 200 && x * x + y * y <= 4.0f) {
            float next = x * x - y * y + re[i];
            y = 2.0f * x * y + im[i];
            x = next;
            turns++;
        }
        out[i] = turns;
    }
}

void scattered(int n, const float *re, const float *im, int *out) { mandelbrot(n, re, im, out); }

void pendulum(int n, const float *angles, const int *counts, float *out) {
    for (int i = 0; i < n; i++) {
        float angle = angles[i], speed = 0;
        for (int turn = 0; turn < counts[i]; turn++) {
            speed -= 0.01f * (sinf(angle) + 0.1f * speed);
            angle += 0.01f * speed;
        }
        out[i] = angle;
    }
}

static inline float normal(float x) {
    float z = fabsf(x), k = 1.0f / (1.0f + 0.2316419f * z);
    float tail = k * (0.31938153f + k * (-0.356563782f + k * (1.781477937f + k * (-1.821255978f + k * 1.330274429f))));
    float w = 1.0f - 0.39894228040f * expf(-z * z / 2.0f) * tail;
    return x < 0.0f ? 1.0f - w : w;
}

void black_scholes(int n, const float *price, const float *strike, const float *years, const float *rate,
                   const float *volatility, float *out) {
    for (int i = 0; i < n; i++) {
        float spread = volatility[i] * sqrtf(years[i]);
        float d1 = (logf(price[i] / strike[i]) + (rate[i] + volatility[i] * volatility[i] / 2.0f) * years[i]) / spread;
        out[i] = price[i] * normal(d1) - strike[i] * expf(-rate[i] * years[i]) * normal(d1 - spread);
    }
}

#define STEPS 64
void binomial(int n, const float *price, const float *strike, const float *years, const float *rate,
              const float *volatility, float *out) {
    for (int i = 0; i < n; i++) {
        float values[STEPS + 1];
        float step = years[i] / STEPS, up = expf(volatility[i] * sqrtf(step)), growth = expf(rate[i] * step);
        float rises = (growth - 1.0f / up) / (up - 1.0f / up), down = (1.0f - rises) / growth;
        rises /= growth;
        for (int k = 0; k <= STEPS; k++)
            values[k] = fmaxf(0.0f, price[i] * powf(up, 2.0f * k - STEPS) - strike[i]);
        for (int left = STEPS; left > 0; left--)
            for (int k = 0; k < left; k++)
                values[k] = down * values[k] + rises * values[k + 1];
        out[i] = values[0];
    }
}

static inline float fade(float t) { return t * t * t * (t * (t * 6.0f - 15.0f) + 10.0f); }
static inline float lerp(float t, float a, float b) { return a + t * (b - a); }
static inline float slope(int hashed, float x, float y, float z) {
    int h = hashed & 15;
    float u = h < 8 ? x : y, v = h < 4 ? y : (h == 12 || h == 14 ? x : z);
    return (h & 1 ? -u : u) + (h & 2 ? -v : v);
}
static inline float one_noise(const int *table, float x, float y, float z) {
    float fx = floorf(x), fy = floorf(y), fz = floorf(z);
    int i = (int)fx & 255, j = (int)fy & 255, k = (int)fz & 255;
    x -= fx, y -= fy, z -= fz;
    float u = fade(x), v = fade(y), w = fade(z);
    int a = table[i] + j, aa = table[a] + k, ab = table[a + 1] + k;
    int b = table[i + 1] + j, ba = table[b] + k, bb = table[b + 1] + k;
    return lerp(w,
        lerp(v, lerp(u, slope(table[aa], x, y, z), slope(table[ba], x - 1, y, z)),
                lerp(u, slope(table[ab], x, y - 1, z), slope(table[bb], x - 1, y - 1, z))),
        lerp(v, lerp(u, slope(table[aa + 1], x, y, z - 1), slope(table[ba + 1], x - 1, y, z - 1)),
                lerp(u, slope(table[ab + 1], x, y - 1, z - 1), slope(table[bb + 1], x - 1, y - 1, z - 1))));
}
void noise(int n, const int *table, const float *x, const float *y, const float *z, float *out) {
    for (int i = 0; i < n; i++) {
        float total = 0, size = 1;
        for (int k = 0; k < 4; k++) {
            total += fabsf(one_noise(table, x[i] * size, y[i] * size, z[i] * size)) / size;
            size *= 2;
        }
        out[i] = total;
    }
}

/* rates: n rows of 4; starts and out: n rows of 2 */
void ode(int n, const float *rates, const float *starts, float *out, int *steps) {
    for (int i = 0; i < n; i++) {
        const float *r = rates + 4 * i;
        float p = starts[2 * i], q = starts[2 * i + 1], t = 0, h = 0.1f;
        int count = 0;
#define FIELD(p, q, dp, dq) float dp = r[0] * (p) - r[1] * (p) * (q), dq = r[2] * (p) * (q) - r[3] * (q)
        while (t < 4.0f) {
            h = fminf(h, 4.0f - t);
            FIELD(p, q, p1, q1);
            float hp = p + h / 2 * p1, hq = q + h / 2 * q1;
            FIELD(hp, hq, p2, q2);
            hp = p + h * 3 / 4 * p2, hq = q + h * 3 / 4 * q2;
            FIELD(hp, hq, p3, q3);
            float np = p + h * (2.0f / 9 * p1 + 1.0f / 3 * p2 + 4.0f / 9 * p3);
            float nq = q + h * (2.0f / 9 * q1 + 1.0f / 3 * q2 + 4.0f / 9 * q3);
            FIELD(np, nq, p4, q4);
            float ap = h * (5.0f / 72 * p1 - 1.0f / 12 * p2 - 1.0f / 9 * p3 + 1.0f / 8 * p4);
            float aq = h * (5.0f / 72 * q1 - 1.0f / 12 * q2 - 1.0f / 9 * q3 + 1.0f / 8 * q4);
            float error = fmaxf(fabsf(ap) / (1e-3f * (1 + fabsf(p))), fabsf(aq) / (1e-3f * (1 + fabsf(q))));
            if (error <= 1.0f) {
                t += h, p = np, q = nq;
                count++;
            }
            h *= fminf(fmaxf(0.9f * powf(error + 1e-10f, -1.0f / 3), 0.2f), 5.0f);
        }
        out[2 * i] = p, out[2 * i + 1] = q, steps[i] = count;
    }
}

static const float SPHERES[3][4] = {{-2, 0, -3.5f, 0.5f}, {-0.5f, 0, -3, 0.5f}, {1, 0, -2.2f, 0.5f}};
typedef struct { float x, y, z; } vec;
static inline float meets(vec o, vec d, int k) {
    float x = o.x - SPHERES[k][0], y = o.y - SPHERES[k][1], z = o.z - SPHERES[k][2], radius = SPHERES[k][3];
    float b = x * d.x + y * d.y + z * d.z, left = b * b - (x * x + y * y + z * z - radius * radius);
    if (left <= 0) return FAR;
    float far = -b - sqrtf(left);
    return far > 0 ? far : FAR;
}
static inline float plane(float oy, float dy) {
    if (fabsf(dy) < 1e-6f) return FAR;
    float far = (-0.5f - oy) / dy;
    return far > 0 ? far : FAR;
}
static float open_share(vec p, vec n, int seed) {
    vec u = fabsf(n.x) < 0.6f ? (vec){0, n.z, -n.y} : (vec){-n.z, 0, n.x};
    float scale = 1 / sqrtf(u.x * u.x + u.y * u.y + u.z * u.z);
    u = (vec){u.x * scale, u.y * scale, u.z * scale};
    vec v = {n.y * u.z - n.z * u.y, n.z * u.x - n.x * u.z, n.x * u.y - n.y * u.x};
    int free = 0;
    for (int k = 0; k < 16; k++) {
        seed = (seed * 1103 + 12345) % 65536;
        float height = seed / 65536.0f;
        seed = (seed * 1103 + 12345) % 65536;
        float angle = 6.283185307f * (seed / 65536.0f);
        float c = cosf(angle) * sqrtf(height), s = sinf(angle) * sqrtf(height), r = sqrtf(1 - height);
        vec d = {c * u.x + s * v.x + r * n.x, c * u.y + s * v.y + r * n.y, c * u.z + s * v.z + r * n.z};
        if (!(meets(p, d, 0) < FAR || meets(p, d, 1) < FAR || meets(p, d, 2) < FAR || plane(p.y, d.y) < FAR)) free++;
    }
    return free / 16.0f;
}
static float trace(vec o, vec d, int depth, int seed) {
    float a = meets(o, d, 0), b = meets(o, d, 1), c = meets(o, d, 2);
    float ball = fminf(a, fminf(b, c)), ground = plane(o.y, d.y);
    if (fminf(ball, ground) >= FAR) return 0;
    if (ground < ball) {
        vec p = {o.x + ground * d.x, o.y + ground * d.y + 1e-4f, o.z + ground * d.z};
        return open_share(p, (vec){0, 1, 0}, seed);
    }
    const float *s = SPHERES[a <= ball ? 0 : b <= ball ? 1 : 2];
    vec p = {o.x + ball * d.x, o.y + ball * d.y, o.z + ball * d.z};
    vec n = {(p.x - s[0]) / s[3], (p.y - s[1]) / s[3], (p.z - s[2]) / s[3]};
    p = (vec){p.x + 1e-4f * n.x, p.y + 1e-4f * n.y, p.z + 1e-4f * n.z};
    float light = open_share(p, n, seed);
    if (depth < 3) {
        float along = 2 * (d.x * n.x + d.y * n.y + d.z * n.z);
        vec r = {d.x - along * n.x, d.y - along * n.y, d.z - along * n.z};
        light = 0.6f * light + 0.4f * trace(p, r, depth + 1, seed);
    }
    return light;
}
void occlusion(int n, const float *x, const float *y, const int *seed, float *out) {
    for (int i = 0; i < n; i++) {
        float scale = 1 / sqrtf(x[i] * x[i] + y[i] * y[i] + 1);
        out[i] = trace((vec){0, 0, 0}, (vec){x[i] * scale, y[i] * scale, -scale}, 0, seed[i]);
    }
}

void spheres(int n, const int *count, const float *x, const float *y, const float *z, const float *radius,
             const int *leaf, const int *skip, const float *dx, const float *dy, const float *dz, float *out) {
    for (int i = 0; i < n; i++) {
        float best = FAR;
        int node = 0;
        while (node < *count) {
            float along = x[node] * dx[i] + y[node] * dy[i] + z[node] * dz[i];
            float left = along * along - (x[node] * x[node] + y[node] * y[node] + z[node] * z[node])
                         + radius[node] * radius[node];
            float far = left < 0 || along < 0 ? FAR : along - sqrtf(left);
            if (far < best) {
                if (leaf[node]) best = far;
                node++;
            } else {
                node = skip[node];
            }
        }
        out[i] = best;
    }
}

void bodies(int n, const int *count, const float *xs, const float *ys, const float *zs, const float *m, const float *x,
            const float *y, const float *z, const float *vx, const float *vy, const float *vz, float *ox, float *oy,
            float *oz, float *ovx, float *ovy, float *ovz) {
    for (int i = 0; i < n; i++) {
        float ax = 0, ay = 0, az = 0;
        for (int j = 0; j < *count; j++) {
            float dx = xs[j] - x[i], dy = ys[j] - y[i], dz = zs[j] - z[i];
            float near = dx * dx + dy * dy + dz * dz + 1e-3f, pull = m[j] / (near * sqrtf(near));
            ax += pull * dx, ay += pull * dy, az += pull * dz;
        }
        ovx[i] = vx[i] + 0.01f * ax, ovy[i] = vy[i] + 0.01f * ay, ovz[i] = vz[i] + 0.01f * az;
        ox[i] = x[i] + 0.01f * ovx[i], oy[i] = y[i] + 0.01f * ovy[i], oz[i] = z[i] + 0.01f * ovz[i];
    }
}

void boosted(int n, const int *trees, const int *root, const int *feature, const float *split, const int *left,
             const float *value, const float *x, float *out) {
    for (int i = 0; i < n; i++) {
        float total = 0;
        for (int t = 0; t < *trees; t++) {
            int node = root[t];
            while (left[node] >= 0) node = left[node] + (x[16 * i + feature[node]] < split[node] ? 0 : 1);
            total += value[node];
        }
        out[i] = total;
    }
}

/* Nodes of all expressions, children before parents: kind, value, children; an expression ends at its last node. */
static float evaluate(const int *kind, const float *value, const int *left, const int *right, int e, float x) {
    switch (kind[e]) {
    case 0: return value[e];
    case 1: return x;
    case 2: return evaluate(kind, value, left, right, left[e], x) + evaluate(kind, value, left, right, right[e], x);
    case 3: return evaluate(kind, value, left, right, left[e], x) * evaluate(kind, value, left, right, right[e], x);
    default: return sinf(evaluate(kind, value, left, right, left[e], x));
    }
}
void expressions(int n, const int *kind, const float *value, const int *left, const int *right, const int *root,
                 const float *x, float *out) {
    for (int i = 0; i < n; i++) out[i] = evaluate(kind, value, left, right, root[i], x[i]);
}
