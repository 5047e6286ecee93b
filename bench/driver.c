/* The part of the benchmark that is timed: loops in C around one call, and the machine's limits.
 *
 * It is built as a shared object and loaded by bench/worker.py, so that no interpreter stands in
 * a timed loop. A contender is a function `int call(void *)` and its argument: the emitted model's
 * run, the C function of a runtime, or one of the adapters below. Timing takes samples of several
 * calls each, where one call is too short for the clock.
 *
 * Limits: fused multiply-adds per second of one core (independent chains in registers, whose
 * operands the compiler cannot know), per instruction set; and bytes read per second by N threads
 * from memory of a given size. Both are measured, not taken from a data sheet. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

typedef int bench_call(void *argument);

static double read_clock(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double now(void) { return read_clock(CLOCK_MONOTONIC); }

/* Takes up to `samples` samples of `calls` calls each, at least one, and no more after `limit`
 * seconds. Writes seconds per call, of the clock on the wall or (busy) of the processor in this
 * process; returns how many samples, or minus the status of a call that failed. */
int bench_time(bench_call *call, void *argument, int samples, int calls, double limit,
               double *seconds, int busy)
{
    const clockid_t clock = busy ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC;
    double end = now() + limit;
    for (int sample = 0; sample < samples; sample++) {
        if (sample > 0 && now() > end)
            return sample;
        double start = read_clock(clock);
        for (int k = 0; k < calls; k++) {
            int status = call(argument);
            if (status != 0)
                return status < 0 ? status : -status;
        }
        seconds[sample] = (read_clock(clock) - start) / calls;
    }
    return samples;
}

/* ---------------------------------------------------------------------------------- adapters */

struct bench_emitted {          /* NAME_run(model, in, out) */
    int (*run)(void *model, const void *in, void *out);
    void *model;
    const void *in;
    void *out;
};

int bench_call_emitted(void *argument)
{
    struct bench_emitted *e = argument;
    return e->run(e->model, e->in, e->out);
}

struct bench_onnxruntime {      /* OrtApi.Run */
    void *(*run)(void *session, const void *options, const char *const *input_names,
                 const void *const *inputs, size_t input_count, const char *const *output_names,
                 size_t output_count, void **outputs);
    void *session;
    const char *const *input_names;
    const void *const *inputs;
    size_t input_count;
    const char *const *output_names;
    size_t output_count;
    void **outputs;
};

int bench_call_onnxruntime(void *argument)
{
    struct bench_onnxruntime *o = argument;
    return o->run(o->session, NULL, o->input_names, o->inputs, o->input_count, o->output_names,
                  o->output_count, o->outputs) != NULL;
}

/* An OrtAllocator that counts, for the memory that a run of ONNX Runtime needs. Its first
 * members are the runtime's; each block has its size before it. */
struct bench_allocator {
    uint32_t version;
    void *(*alloc)(struct bench_allocator *self, size_t nbytes);
    void (*free)(struct bench_allocator *self, void *block);
    const void *(*info)(const struct bench_allocator *self);
    const void *memory_info;
    size_t now, most;
};

enum { BLOCK_HEADER = 64 };

static void *counted_alloc(struct bench_allocator *self, size_t nbytes)
{
    size_t *block = aligned_alloc(64, (nbytes + BLOCK_HEADER + 63) / 64 * 64);
    if (!block)
        return NULL;
    *block = nbytes;
    size_t held = __atomic_add_fetch(&self->now, nbytes, __ATOMIC_SEQ_CST);
    if (held > self->most)
        self->most = held;
    return (char *)block + BLOCK_HEADER;
}

static void counted_free(struct bench_allocator *self, void *memory)
{
    if (!memory)
        return;
    size_t *block = (size_t *)(void *)((char *)memory - BLOCK_HEADER);
    __atomic_sub_fetch(&self->now, *block, __ATOMIC_SEQ_CST);
    free(block);
}

static const void *counted_info(const struct bench_allocator *self)
{
    return self->memory_info;
}

void bench_make_allocator(struct bench_allocator *made, const void *memory_info)
{
    /* 16 is older than the members that later versions add. */
    *made = (struct bench_allocator){.version = 16, .alloc = counted_alloc, .free = counted_free,
                                     .info = counted_info, .memory_info = memory_info};
}

/* ------------------------------------------------------------------------ peak of one core */

/* Read through volatile, so that the chains below can be neither folded nor vectorized anew:
 * x <- x*a + b stays near 1 for ever. */
static volatile float peak_factor = 0.75f, peak_term = 0.25f;
static volatile float peak_sink;

enum { CHAINS = 12 };           /* latency 4-5 times two units, and the registers of AVX2 */

#if defined(__x86_64__)

__attribute__((target("avx2,fma"))) static void chains_avx2(long turns)
{
    __m256 a = _mm256_set1_ps(peak_factor), b = _mm256_set1_ps(peak_term), x[CHAINS];
    for (int i = 0; i < CHAINS; i++)
        x[i] = _mm256_set1_ps(1.0f + (float)i);
    for (long t = 0; t < turns; t++) {
        x[0] = _mm256_fmadd_ps(x[0], a, b);
        x[1] = _mm256_fmadd_ps(x[1], a, b);
        x[2] = _mm256_fmadd_ps(x[2], a, b);
        x[3] = _mm256_fmadd_ps(x[3], a, b);
        x[4] = _mm256_fmadd_ps(x[4], a, b);
        x[5] = _mm256_fmadd_ps(x[5], a, b);
        x[6] = _mm256_fmadd_ps(x[6], a, b);
        x[7] = _mm256_fmadd_ps(x[7], a, b);
        x[8] = _mm256_fmadd_ps(x[8], a, b);
        x[9] = _mm256_fmadd_ps(x[9], a, b);
        x[10] = _mm256_fmadd_ps(x[10], a, b);
        x[11] = _mm256_fmadd_ps(x[11], a, b);
    }
    for (int i = 1; i < CHAINS; i++)
        x[0] = _mm256_add_ps(x[0], x[i]);
    peak_sink = _mm256_cvtss_f32(x[0]);
}

__attribute__((target("avx512f"))) static void chains_avx512(long turns)
{
    __m512 a = _mm512_set1_ps(peak_factor), b = _mm512_set1_ps(peak_term), x[CHAINS];
    for (int i = 0; i < CHAINS; i++)
        x[i] = _mm512_set1_ps(1.0f + (float)i);
    for (long t = 0; t < turns; t++) {
        x[0] = _mm512_fmadd_ps(x[0], a, b);
        x[1] = _mm512_fmadd_ps(x[1], a, b);
        x[2] = _mm512_fmadd_ps(x[2], a, b);
        x[3] = _mm512_fmadd_ps(x[3], a, b);
        x[4] = _mm512_fmadd_ps(x[4], a, b);
        x[5] = _mm512_fmadd_ps(x[5], a, b);
        x[6] = _mm512_fmadd_ps(x[6], a, b);
        x[7] = _mm512_fmadd_ps(x[7], a, b);
        x[8] = _mm512_fmadd_ps(x[8], a, b);
        x[9] = _mm512_fmadd_ps(x[9], a, b);
        x[10] = _mm512_fmadd_ps(x[10], a, b);
        x[11] = _mm512_fmadd_ps(x[11], a, b);
    }
    for (int i = 1; i < CHAINS; i++)
        x[0] = _mm512_add_ps(x[0], x[i]);
    peak_sink = _mm_cvtss_f32(_mm512_castps512_ps128(x[0]));
}

/* Sums of four products of bytes in each of 16 lanes. */
__attribute__((target("avx512f,avx512vnni"))) static void chains_vnni(long turns)
{
    __m512i a = _mm512_set1_epi32((int)(peak_factor * 4)), b = _mm512_set1_epi32(1), x[CHAINS];
    for (int i = 0; i < CHAINS; i++)
        x[i] = _mm512_set1_epi32(i);
    for (long t = 0; t < turns; t++) {
        x[0] = _mm512_dpbusd_epi32(x[0], a, b);
        x[1] = _mm512_dpbusd_epi32(x[1], a, b);
        x[2] = _mm512_dpbusd_epi32(x[2], a, b);
        x[3] = _mm512_dpbusd_epi32(x[3], a, b);
        x[4] = _mm512_dpbusd_epi32(x[4], a, b);
        x[5] = _mm512_dpbusd_epi32(x[5], a, b);
        x[6] = _mm512_dpbusd_epi32(x[6], a, b);
        x[7] = _mm512_dpbusd_epi32(x[7], a, b);
        x[8] = _mm512_dpbusd_epi32(x[8], a, b);
        x[9] = _mm512_dpbusd_epi32(x[9], a, b);
        x[10] = _mm512_dpbusd_epi32(x[10], a, b);
        x[11] = _mm512_dpbusd_epi32(x[11], a, b);
    }
    for (int i = 1; i < CHAINS; i++)
        x[0] = _mm512_add_epi32(x[0], x[i]);
    peak_sink = (float)_mm_cvtsi128_si32(_mm512_castsi512_si128(x[0]));
}

#elif defined(__aarch64__)

static void chains_neon(long turns)
{
    float32x4_t a = vdupq_n_f32(peak_factor), b = vdupq_n_f32(peak_term), x[CHAINS];
    for (int i = 0; i < CHAINS; i++)
        x[i] = vdupq_n_f32(1.0f + (float)i);
    for (long t = 0; t < turns; t++) {
        x[0] = vfmaq_f32(b, x[0], a);
        x[1] = vfmaq_f32(b, x[1], a);
        x[2] = vfmaq_f32(b, x[2], a);
        x[3] = vfmaq_f32(b, x[3], a);
        x[4] = vfmaq_f32(b, x[4], a);
        x[5] = vfmaq_f32(b, x[5], a);
        x[6] = vfmaq_f32(b, x[6], a);
        x[7] = vfmaq_f32(b, x[7], a);
        x[8] = vfmaq_f32(b, x[8], a);
        x[9] = vfmaq_f32(b, x[9], a);
        x[10] = vfmaq_f32(b, x[10], a);
        x[11] = vfmaq_f32(b, x[11], a);
    }
    for (int i = 0; i < CHAINS; i++)
        x[0] = vaddq_f32(x[0], x[i]);
    peak_sink = vaddvq_f32(x[0]);
}

#endif

/* GFLOP/s (of bytes: operations) of one core with the instruction set, the best of several trials;
 * 0: not here. */
double bench_peak(const char *isa)
{
    void (*chains)(long) = NULL;
    int lanes = 0;
#if defined(__x86_64__)
    if (strcmp(isa, "avx2") == 0 && __builtin_cpu_supports("avx2") &&
        __builtin_cpu_supports("fma"))
        chains = chains_avx2, lanes = 8;
    if (strcmp(isa, "avx512") == 0 && __builtin_cpu_supports("avx512f"))
        chains = chains_avx512, lanes = 16;
    if (strcmp(isa, "vnni") == 0 && __builtin_cpu_supports("avx512vnni"))
        chains = chains_vnni, lanes = 64;
#elif defined(__aarch64__)
    if (strcmp(isa, "neon") == 0)
        chains = chains_neon, lanes = 4;
#endif
    if (!chains)
        return 0;
    const long turns = 1000000;
    double best = 0;
    for (int trial = 0; trial < 12; trial++) {
        double start = now();
        chains(turns);
        double rate = 2.0 * (double)turns * CHAINS * lanes / (now() - start);
        best = rate > best ? rate : best;
    }
    return best * 1e-9;
}

/* --------------------------------------------------------------------------- read bandwidth */

struct reader {
    pthread_t thread;
    pthread_barrier_t *start;
    const float *data;
    size_t nelem;
    int turns, core;
    double began, ended;
};

typedef float vector __attribute__((vector_size(32)));

/* Loads and adds alone, in eight chains. Without AVX a vector is two or more of the machine's. */
__attribute__((always_inline)) static inline float sum_vectors(const float *data, size_t nelem)
{
    const vector *v = (const vector *)data;
    vector sum[8] = {0};
    for (size_t i = 0; i + 8 <= nelem / 8; i += 8) {
        sum[0] += v[i + 0];
        sum[1] += v[i + 1];
        sum[2] += v[i + 2];
        sum[3] += v[i + 3];
        sum[4] += v[i + 4];
        sum[5] += v[i + 5];
        sum[6] += v[i + 6];
        sum[7] += v[i + 7];
    }
    float total = 0;
    for (int i = 0; i < 8; i++)
        for (int lane = 0; lane < 8; lane++)
            total += sum[i][lane];
    return total;
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static float sum_avx2(const float *data, size_t nelem)
{
    return sum_vectors(data, nelem);
}
#endif

static float sum_portable(const float *data, size_t nelem)
{
    return sum_vectors(data, nelem);
}

static void *read_part(void *argument)
{
    struct reader *r = argument;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)r->core, &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);
    float (*sum)(const float *, size_t) = sum_portable;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2"))
        sum = sum_avx2;
#endif
    peak_sink = sum(r->data, r->nelem);
    pthread_barrier_wait(r->start);
    r->began = now();
    for (int turn = 0; turn < r->turns; turn++)
        peak_sink = sum(r->data, r->nelem);
    r->ended = now();
    return NULL;
}

/* GB/s that `threads` threads on the given cores read together, each from its own `nbytes`; the
 * best of several trials; 0: no memory. */
double bench_read(int threads, const int *cores, size_t nbytes)
{
    double best = 0;
    size_t nelem = nbytes / sizeof(float);
    struct reader readers[64];
    if (threads > 64)
        return 0;
    float *data = aligned_alloc(4096, ((size_t)threads * nbytes + 4095) / 4096 * 4096);
    if (!data)
        return 0;
    for (size_t i = 0; i < (size_t)threads * nelem; i++)
        data[i] = (float)(i & 7);
    int turns = (int)(1 + ((size_t)1 << 28) / nbytes);
    for (int trial = 0; trial < 5; trial++) {
        pthread_barrier_t start;
        pthread_barrier_init(&start, NULL, (unsigned)threads);
        for (int k = 0; k < threads; k++) {
            readers[k] = (struct reader){.start = &start, .data = data + (size_t)k * nelem,
                                         .nelem = nelem, .turns = turns, .core = cores[k]};
            if (pthread_create(&readers[k].thread, NULL, read_part, &readers[k]) != 0)
                abort();
        }
        double began = 1e300, ended = 0;
        for (int k = 0; k < threads; k++) {
            pthread_join(readers[k].thread, NULL);
            began = readers[k].began < began ? readers[k].began : began;
            ended = readers[k].ended > ended ? readers[k].ended : ended;
        }
        pthread_barrier_destroy(&start);
        double rate = (double)threads * (double)turns * (double)nbytes / (ended - began);
        best = rate > best ? rate : best;
    }
    free(data);
    return best * 1e-9;
}
