// The programs of benchmarks.cuda by hand: what a programmer of CUDA writes, a thread for each example.

extern "C" __global__ void mandelbrot(const float *__restrict__ re, const float *__restrict__ im,
                                      int *__restrict__ out, long n) {
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (i >= n) return;
    float a = re[i], b = im[i], x = 0.0f, y = 0.0f;
    int turns = 0;
    while (turns < 200 && x * x + y * y <= 4.0f) {
        float next = x * x - y * y + a;
        y = 2.0f * x * y + b;
        x = next;
        turns++;
    }
    out[i] = turns;
}

__device__ __forceinline__ float2 field(float2 y, float4 r) {
    return make_float2(r.x * y.x - r.y * y.x * y.y, r.z * y.x * y.y - r.w * y.y);
}

// rates: n rows of 4; starts and out: n rows of 2
extern "C" __global__ void ode(const float4 *__restrict__ rates, const float2 *__restrict__ starts,
                               float2 *__restrict__ out, int *__restrict__ steps, long n) {
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 r = rates[i];
    float2 y = starts[i];
    float t = 0.0f, h = 0.1f;
    int count = 0;
    while (t < 4.0f) {
        h = fminf(h, 4.0f - t);
        float2 k1 = field(y, r);
        float2 k2 = field(make_float2(y.x + h / 2 * k1.x, y.y + h / 2 * k1.y), r);
        float2 k3 = field(make_float2(y.x + h * 3 / 4 * k2.x, y.y + h * 3 / 4 * k2.y), r);
        float2 next = make_float2(y.x + h * (2.0f / 9 * k1.x + 1.0f / 3 * k2.x + 4.0f / 9 * k3.x),
                                  y.y + h * (2.0f / 9 * k1.y + 1.0f / 3 * k2.y + 4.0f / 9 * k3.y));
        float2 k4 = field(next, r);
        float ax = h * (5.0f / 72 * k1.x - 1.0f / 12 * k2.x - 1.0f / 9 * k3.x + 1.0f / 8 * k4.x);
        float ay = h * (5.0f / 72 * k1.y - 1.0f / 12 * k2.y - 1.0f / 9 * k3.y + 1.0f / 8 * k4.y);
        float error = fmaxf(fabsf(ax) / (1e-3f * (1 + fabsf(y.x))), fabsf(ay) / (1e-3f * (1 + fabsf(y.y))));
        if (error <= 1.0f) {
            t += h;
            y = next;
            count++;
        }
        h *= fminf(fmaxf(0.9f * powf(error + 1e-10f, -1.0f / 3), 0.2f), 5.0f);
    }
    out[i] = y;
    steps[i] = count;
}
