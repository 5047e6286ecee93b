/* object.c - runs a model named m, whoever has made its object: says what m_describe() returns, the
 * statuses of wrong calls, and the outputs of a run with inputs that depend on nothing but their
 * types. Two objects of one model have to say the same. */
#include "m.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t elements(const struct m_tensor *x)
{
    size_t n = 1;
    for (int a = 0; a < x->rank; a++)
        n *= (size_t)x->dim[a].size;
    return n;
}

static void say_tensors(const char *what, const struct m_tensor *x, int n)
{
    for (int i = 0; i < n; i++) {
        printf("%s \"%s\" %s %zu", what, x[i].name, x[i].dtype, x[i].element_bytes);
        for (int a = 0; a < x[i].rank; a++)
            printf(" %lld:%s", (long long)x[i].dim[a].size,
                   x[i].dim[a].symbol ? x[i].dim[a].symbol : "");
        printf(" at %zu %zd\n", x[i].offset, (ptrdiff_t)x[i].shape_offset);
    }
}

static void say_info(const struct m_info *d)
{
    printf("%d %s %s, %d kernels %.0f flop, arena %zu %zu, weights %zu %d, structs %zu %zu, states "
           "%d %zu\n",
           d->version, d->name, d->producer, d->kernel_count, d->flop, d->arena_bytes,
           d->arena_align, d->weights_bytes, d->weights_external, d->inputs_bytes, d->outputs_bytes,
           d->state_count, d->state_bytes);
    say_tensors("input", d->inputs, d->input_count);
    say_tensors("output", d->outputs, d->output_count);
    for (int i = 0; i < d->symbol_count; i++)
        printf("symbol %s %lld %lld %zd\n", d->symbols[i].name, (long long)d->symbols[i].min,
               (long long)d->symbols[i].max, (ptrdiff_t)d->symbols[i].offset);
    for (int i = 0; i < d->kernel_count; i++)
        printf("kernel %s %s %.0f %.0f\n", d->kernels[i].name, d->kernels[i].title,
               d->kernels[i].flop, d->kernels[i].bytes);
}

/* Memory at a multiple of 64, which is never freed. (newlib's aligned_alloc() does not link.) */
static void *memory(size_t nbytes)
{
    char *p = malloc(nbytes + 128);
    if (!p)
        abort();
    p += (64 - (uintptr_t)p % 64) % 64;
    memset(p, 0, nbytes + 64);
    return p;
}

static uint32_t next(uint32_t *state) { return *state = *state * 1664525u + 1013904223u; }

static void fill(const struct m_tensor *x, void *at)
{
    uint32_t state = 7;
    for (size_t i = 0; i < elements(x); i++) {
        uint32_t r = next(&state) >> 8;
        if (!strcmp(x->dtype, "f32"))
            ((float *)at)[i] = (float)r / 8388608.0f - 1;
        else if (!strcmp(x->dtype, "f64"))
            ((double *)at)[i] = (double)r / 8388608.0 - 1;
        else if (!strcmp(x->dtype, "string"))
            ((const char **)at)[i] = r & 64 ? "a" : "bc";
        else if (!strcmp(x->dtype, "bool"))
            ((unsigned char *)at)[i] = r >> 8 & 1;
        else if (!strcmp(x->dtype, "i64"))
            ((int64_t *)at)[i] = r >> 8 & 3;
        else if (!strcmp(x->dtype, "i32"))
            ((int32_t *)at)[i] = (int32_t)(r >> 8 & 3);
        else
            memset((char *)at + i * x->element_bytes, (int)(r >> 8 & 3), x->element_bytes);
    }
}

static void say(const struct m_tensor *x, const void *at, const char *out)
{
    size_t n = elements(x);
    if (x->shape_offset != (size_t)-1) {
        n = 1;
        for (int a = 0; a < x->rank; a++) {
            int64_t size;
            memcpy(&size, out + x->shape_offset + 8 * (size_t)a, sizeof size);
            n *= (size_t)size;
        }
    }
    printf("%s: %zu\n", x->name, n);
    for (size_t i = 0; i < n; i++) {
        const unsigned char *bytes = (const unsigned char *)at + i * x->element_bytes;
        if (!strcmp(x->dtype, "f32"))
            printf("%.9g\n", (double)((const float *)at)[i]);
        else if (!strcmp(x->dtype, "f64"))
            printf("%.17g\n", ((const double *)at)[i]);
        else if (!strcmp(x->dtype, "string"))
            printf("'%s'\n", ((const char *const *)at)[i]);
        else
            for (size_t k = 0; k < x->element_bytes; k++)
                printf("x%02x%s", bytes[k], k + 1 < x->element_bytes ? "" : "\n");
    }
}

static void on_kernel(void *user, int index, const char *kernel)
{
    printf("%s %d %s\n", (const char *)user, index, kernel ? kernel : "-");
}

static void *pointers(const struct m_tensor *x, int n, size_t nbytes, size_t margin)
{
    char *s = memory(nbytes + 8);
    for (int i = 0; i < n; i++) {
        void *p = memory(elements(&x[i]) * x[i].element_bytes + margin);
        memcpy(s + x[i].offset, &p, sizeof p);
        if (!margin)
            fill(&x[i], p);
    }
    return s;
}

/* Each wrong call, and what it returns. */
static void say_statuses(void *arena, const m_options *options, char *in, char *out)
{
    const struct m_info *d = m_describe();
    m_options bad = *options;
    m *model = NULL;
    bad.threads = -1;
    printf("init %d", m_init(NULL, arena, d->arena_bytes, options));
    printf(" %d", m_init(&model, NULL, d->arena_bytes, options));
    printf(" %d", m_init(&model, (char *)arena + 4, d->arena_bytes, options));
    printf(" %d", m_init(&model, arena, d->arena_bytes - 1, options));
    printf(" %d", m_init(&model, arena, d->arena_bytes, &bad));
    printf(" %d", m_init(&model, arena, d->arena_bytes, NULL));
    printf(" %d\n", model != NULL);
    bad = *options;
    bad.weights = (const char *)options->weights + 1;
    printf("weights %d", m_init(&model, arena, d->arena_bytes, &bad));
    bad = *options;
    bad.weights_bytes = d->weights_bytes - 1;
    printf(" %d\n", m_init(&model, arena, d->arena_bytes, &bad));
    if (m_init(&model, arena, d->arena_bytes, options) != 0)
        return;
    printf("run %d", m_run(NULL, (void *)in, (void *)out));
    printf(" %d %d\n", m_run(model, NULL, (void *)out), m_run(model, (void *)in, NULL));
    struct { const struct m_tensor *x; int n; char *s; } side[2] = {
        {d->inputs, d->input_count, in}, {d->outputs, d->output_count, out}};
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < side[k].n; i++) {
            void *kept, *none = NULL;
            memcpy(&kept, side[k].s + side[k].x[i].offset, sizeof kept);
            memcpy(side[k].s + side[k].x[i].offset, &none, sizeof none);
            printf("field %d\n", m_run(model, (void *)in, (void *)out));
            memcpy(side[k].s + side[k].x[i].offset, &kept, sizeof kept);
        }
    for (int i = 0; i < d->symbol_count; i++) {
        int64_t wrong[2] = {d->symbols[i].max + 1, d->symbols[i].min - 1};
        for (int k = 0; k < 2 && d->symbols[i].offset != (size_t)-1; k++) {
            memcpy(in + d->symbols[i].offset, &wrong[k], sizeof wrong[k]);
            printf("size %d\n", m_run(model, (void *)in, (void *)out));
        }
        if (d->symbols[i].offset != (size_t)-1)
            memcpy(in + d->symbols[i].offset, &d->symbols[i].max, sizeof d->symbols[i].max);
    }
    m_close(model);
    printf("closed %d\n", m_run(model, (void *)in, (void *)out));
    m_close(NULL);
    for (int i = -1; i < 22; i++)
        printf("%d %s\n", i, m_strerror(i));
}

enum { PAINTED = 32768, COLOUR = 0xa5 };

static __attribute__((noinline)) void paint(void)
{
    volatile unsigned char below[PAINTED];
    for (size_t i = 0; i < PAINTED; i++)
        below[i] = COLOUR;
}

/* Bytes of the stack that a run has changed, below this function's frame. */
static __attribute__((noinline)) size_t stack_of(m *model, char *in, char *out)
{
    const volatile unsigned char *top = __builtin_frame_address(0), *p = top - PAINTED / 2;
    paint();
    m_run(model, (void *)in, (void *)out);
    while (p < top && *p == COLOUR)
        p++;
    return (size_t)(top - p);
}

/* argv[1]: the weights' file, if they are not in the object. */
int main(int argc, char **argv)
{
    const struct m_info *d = m_describe();
    m_options options = {.on_kernel = on_kernel};
    options.user = (void *)(uintptr_t)"at";
    if (argc > 1) {
        FILE *f = fopen(argv[1], "rb");
        void *weights = memory(d->weights_bytes);
        if (!f || fread(weights, 1, d->weights_bytes, f) != d->weights_bytes)
            return 2;
        fclose(f);
        options.weights = weights;
        options.weights_bytes = d->weights_bytes;
    }
    void *arena = memory(d->arena_bytes);
    char *in = pointers(d->inputs, d->input_count, d->inputs_bytes, 0);
    char *out = pointers(d->outputs, d->output_count, d->outputs_bytes, 64);
    for (int i = 0; i < d->symbol_count; i++)
        if (d->symbols[i].offset != (size_t)-1)
            memcpy(in + d->symbols[i].offset, &d->symbols[i].max, sizeof d->symbols[i].max);
    if (d->arena_bytes != M_ARENA_BYTES || d->inputs_bytes != sizeof(m_inputs) ||
        d->outputs_bytes != sizeof(m_outputs) || d->stack_bytes != M_STACK_BYTES)
        return 3;
    say_info(d);
    say_statuses(arena, &options, in, out);
    m *model = NULL;
    int status = m_init(&model, arena, d->arena_bytes, &options);
    if (status == 0)
        status = m_run(model, (void *)in, (void *)out);
    printf("status %d\n", status);
    for (int i = 0; i < d->output_count && status == 0; i++) {
        void *at;
        memcpy(&at, out + d->outputs[i].offset, sizeof at);
        say(&d->outputs[i], at, out);
    }
    /* this function's own frame and the call; printf() is no part of a run. Every frame of s390x
     * has 160 bytes for its callees' registers, which no estimate counts */
#ifdef __s390x__
    const size_t frame = 192 + 4 * 160;
#else
    const size_t frame = 192;
#endif
    options.on_kernel = NULL;
    if (status == 0 && m_init(&model, arena, d->arena_bytes, &options) == 0 &&
        stack_of(model, in, out) > d->stack_bytes + frame) {
        fprintf(stderr, "a run takes %zu bytes of the stack, with a frame, and %zu are stated\n",
                stack_of(model, in, out), d->stack_bytes);
        return 4;
    }
    return 0;
}
