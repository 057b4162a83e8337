/* A driver of CUDA without a GPU, for tests: memory is the processor's, with guards around each piece; a kernel is a
   function of the host that is called for each thread, from the last one to the first; what is called is written down.
   A function that needs a context fails where none is current. */
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int R;
typedef void (*Kernel)(void **parameters, int64_t thread, int64_t threads);
typedef void *(*Load)(const char *text);
typedef void *(*Find)(void *module, const char *name);

enum { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_CONTEXT = 201, INVALID_IMAGE = 200, NOT_FOUND = 500 };
enum { GUARD = 64, PIECES = 4096 };

static struct { char *at; size_t size; } pieces[PIECES];
static size_t held, limit = (size_t)1 << 30;
static int version = 12080, major = 9, minor = 0, devices = 1, pools = 1, depth = 0, broken = 0, processors = 2;
static Load load;
static Find find;
static char *log_text;
static size_t log_size;
static char fails[64];
static int failure, failing_after;

static void say(const char *format, ...) {
    char line[512];
    va_list rest;
    va_start(rest, format);
    size_t n = (size_t)vsnprintf(line, sizeof line, format, rest);
    va_end(rest);
    if (n >= sizeof line) n = sizeof line - 1;
    log_text = realloc(log_text, log_size + n + 2);
    memcpy(log_text + log_size, line, n);
    log_text[log_size + n] = '\n';
    log_text[log_size += n + 1] = 0;
}

static R trouble(const char *name) {
    if (!strcmp(fails, name) && failing_after-- == 0) {
        fails[0] = 0;
        return failure;
    }
    return OK;
}

#define TRY(name) { R r = trouble(name); if (r) return r; }
#define IN_CONTEXT(name) { TRY(name) if (!depth) return INVALID_CONTEXT; }

/* ---- what tests set and read */
void fake_reset(void) {
    version = 12080, major = 9, minor = 0, devices = 1, pools = 1, processors = 2, limit = (size_t)1 << 30;
    fails[0] = 0, broken = 0, log_size = 0;
    if (log_text) log_text[0] = 0;
}
void fake_functions(Load l, Find f) { load = l, find = f; }
void fake_machine(int v, int a, int b, int d, int p) { version = v, major = a, minor = b, devices = d, pools = p; }
void fake_limit(size_t bytes) { limit = bytes; }
void fake_fail(const char *name, int code, int after) { strcpy(fails, name), failure = code, failing_after = after; }
const char *fake_log(void) { return log_text ? log_text : ""; }
void fake_forget(void) { log_size = 0; if (log_text) log_text[0] = 0; }
size_t fake_held(void) { return held; }
int fake_broken(void) {
    for (int k = 0; k < PIECES; k++)
        for (int g = 0; pieces[k].at && g < GUARD; g++)
            broken += pieces[k].at[g] != 0x5A || pieces[k].at[GUARD + pieces[k].size + g] != 0x5A;
    return broken;
}

/* ---- the driver */
R cuInit(unsigned flags) { TRY("cuInit") return devices ? OK : 100; }
R cuDriverGetVersion(int *v) { *v = version; return OK; }
R cuGetErrorName(int code, const char **text) {
    switch (code) {
    case 1: *text = "CUDA_ERROR_INVALID_VALUE"; return OK;
    case 2: *text = "CUDA_ERROR_OUT_OF_MEMORY"; return OK;
    case 100: *text = "CUDA_ERROR_NO_DEVICE"; return OK;
    case 200: *text = "CUDA_ERROR_INVALID_IMAGE"; return OK;
    case 201: *text = "CUDA_ERROR_INVALID_CONTEXT"; return OK;
    case 218: *text = "CUDA_ERROR_INVALID_PTX"; return OK;
    case 700: *text = "CUDA_ERROR_ILLEGAL_ADDRESS"; return OK;
    default: return INVALID_VALUE;
    }
}
R cuGetErrorString(int code, const char **text) { *text = code == 700 ? "an illegal memory access was encountered" : "no words"; return OK; }
R cuDeviceGetCount(int *n) { *n = devices; return OK; }
R cuDeviceGet(int *d, int ordinal) { *d = ordinal; return OK; }
R cuDeviceGetName(char *text, int n, int d) { snprintf(text, (size_t)n, "Fake %d.%d", major, minor); return OK; }
R cuDeviceGetAttribute(int *x, int which, int d) {
    *x = which == 16 ? processors : which == 75 ? major : which == 76 ? minor : which == 115 ? pools : 0;
    return OK;
}
R cuDevicePrimaryCtxRetain(void **c, int d) { TRY("cuDevicePrimaryCtxRetain") *c = (void *)(intptr_t)(1000 + d); return OK; }
R cuCtxPushCurrent_v2(void *c) { depth++; return OK; }
R cuCtxPopCurrent_v2(void **c) { if (!depth) return INVALID_CONTEXT; depth--; return OK; }
R cuCtxGetDevice(int *d) { if (!depth) return INVALID_CONTEXT; *d = 0; return OK; }
R cuModuleLoadDataEx(void **m, const char *text, unsigned n, int *options, void **values) {
    R r = trouble("cuModuleLoadDataEx");
    if (!depth) return INVALID_CONTEXT;
    if (r) {
        for (unsigned k = 0; k < n; k++) if (options[k] == 5) strcpy(values[k], "ptxas says line 7 is wrong");
        return r;
    }
    say("load");
    *m = load(text);
    return *m ? OK : INVALID_IMAGE;
}
R cuModuleGetFunction(void **f, void *m, const char *name) { *f = find(m, name); return *f ? OK : NOT_FOUND; }
R cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, void *f, int size, size_t shared) { IN_CONTEXT("cuOccupancy") *n = 1; return OK; }
R cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                 void *stream, void **parameters, void **extra) {
    IN_CONTEXT("cuLaunchKernel")
    if (!gx || gy != 1 || gz != 1 || !bx || bx > 1024 || bx % 32 || by != 1 || bz != 1 || !f || extra) return INVALID_VALUE;
    say("launch %u x %u on %d", gx, bx, (int)(intptr_t)stream);
    int64_t threads = (int64_t)gx * bx;
    for (int64_t t = threads; t-- > 0;) ((Kernel)f)(parameters, t, threads);
    return OK;
}
R cuMemPoolCreate(void **pool, const void *properties) {
    const int *p = properties;
    if (p[0] != 1 || p[2] != 1) return INVALID_VALUE;
    *pool = (void *)77;
    return OK;
}
R cuMemPoolSetAttribute(void *pool, int which, void *value) { return pool == (void *)77 && which == 4 ? OK : INVALID_VALUE; }
static R take(uint64_t *place, size_t size) {
    if (held + size > limit) return OUT_OF_MEMORY;
    for (int k = 0; k < PIECES; k++)
        if (!pieces[k].at) {
            char *at = NULL;
            if (posix_memalign((void **)&at, 256, size + 2 * GUARD + 256)) return OUT_OF_MEMORY;
            memset(at, 0x5A, GUARD);
            memset(at + GUARD, 0xA5, size); /* what nobody has written */
            memset(at + GUARD + size, 0x5A, GUARD);
            pieces[k].at = at, pieces[k].size = size, held += size;
            *place = (uint64_t)(intptr_t)(at + GUARD);
            return OK;
        }
    return OUT_OF_MEMORY;
}
R cuMemAllocFromPoolAsync(uint64_t *place, size_t size, void *pool, void *stream) {
    IN_CONTEXT("cuMemAllocFromPoolAsync")
    return pool == (void *)77 && pools ? take(place, size) : INVALID_VALUE;
}
R cuMemAlloc_v2(uint64_t *place, size_t size) { IN_CONTEXT("cuMemAlloc_v2") return take(place, size); }
static R give(uint64_t place) {
    for (int k = 0; k < PIECES; k++)
        if (pieces[k].at && (uint64_t)(intptr_t)(pieces[k].at + GUARD) == place) {
            fake_broken();
            held -= pieces[k].size;
            free(pieces[k].at);
            pieces[k].at = NULL;
            return OK;
        }
    return INVALID_VALUE;
}
R cuMemFreeAsync(uint64_t place, void *stream) { IN_CONTEXT("cuMemFreeAsync") return give(place); }
R cuMemFree_v2(uint64_t place) { IN_CONTEXT("cuMemFree_v2") say("free"); return give(place); }
R cuMemGetInfo_v2(size_t *free_bytes, size_t *whole) {
    IN_CONTEXT("cuMemGetInfo_v2")
    *free_bytes = limit > held ? limit - held : 0, *whole = limit;
    return OK;
}
static int inside(uint64_t place, size_t size) {
    for (int k = 0; k < PIECES; k++) {
        uint64_t at = (uint64_t)(intptr_t)(pieces[k].at + GUARD);
        if (pieces[k].at && at <= place && place + size <= at + pieces[k].size) return 1;
    }
    return 0;
}
R cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t n, void *stream) {
    IN_CONTEXT("cuMemcpyHtoDAsync_v2")
    if (!inside(to, n)) return INVALID_VALUE;
    say("in %zu on %d", n, (int)(intptr_t)stream);
    memcpy((void *)(intptr_t)to, from, n);
    return OK;
}
R cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t n, void *stream) {
    IN_CONTEXT("cuMemcpyDtoHAsync_v2")
    if (!inside(from, n)) return INVALID_VALUE;
    say("out %zu on %d", n, (int)(intptr_t)stream);
    memcpy(to, (void *)(intptr_t)from, n);
    return OK;
}
R cuMemsetD8Async(uint64_t to, unsigned char x, size_t n, void *stream) {
    IN_CONTEXT("cuMemsetD8Async")
    if (!inside(to, n)) return INVALID_VALUE;
    memset((void *)(intptr_t)to, x, n);
    return OK;
}
R cuMemsetD32Async(uint64_t to, unsigned x, size_t n, void *stream) {
    IN_CONTEXT("cuMemsetD32Async")
    if (!inside(to, 4 * n)) return INVALID_VALUE;
    for (size_t k = 0; k < n; k++) memcpy((char *)(intptr_t)to + 4 * k, &x, 4);
    return OK;
}
R cuPointerGetAttribute(void *x, int which, uint64_t place) {
    if (which != 9 || !inside(place, 1)) return INVALID_VALUE;
    *(int *)x = 0;
    return OK;
}
R cuStreamSynchronize(void *stream) { IN_CONTEXT("cuStreamSynchronize") say("wait for %d", (int)(intptr_t)stream); return OK; }
R cuStreamWaitEvent(void *stream, void *event, unsigned flags) {
    IN_CONTEXT("cuStreamWaitEvent")
    say("%d waits for %d", (int)(intptr_t)stream, *(int *)event);
    return OK;
}
R cuEventCreate(void **event, unsigned flags) { IN_CONTEXT("cuEventCreate") *event = calloc(1, sizeof(int)); return flags == 2 ? OK : INVALID_VALUE; }
R cuEventRecord(void *event, void *stream) { IN_CONTEXT("cuEventRecord") *(int *)event = (int)(intptr_t)stream; return OK; }
R cuEventQuery(void *event) { IN_CONTEXT("cuEventQuery") return OK; }
R cuEventDestroy_v2(void *event) { IN_CONTEXT("cuEventDestroy_v2") free(event); return OK; }
