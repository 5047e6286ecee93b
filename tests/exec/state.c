/* Everything that is promised of a model with states but its numbers: two contexts at once, reset,
 * blocks and bad ones, runs that fail. The model is called "net". Built as C and
 * as C++, with sanitizers. Prints what is wrong; exit status 0: nothing.
 *
 * Inputs hold the same pseudo-random bytes in every run, so that a run's answer depends on the
 * states alone. */
#include "net.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int wrong;

#define EXPECT(what)                                                                               \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            printf("%s:%d: %s\n", __FILE__, __LINE__, #what);                                      \
            wrong = 1;                                                                             \
        }                                                                                          \
    } while (0)

struct one {
    net *model;
    net_inputs in;
    net_outputs out;
    void *memory[256];
    int nmemory;
};

static void *take(struct one *o, size_t nbytes)
{
    size_t n = (nbytes + 63) / 64 * 64;
    void *p = aligned_alloc(64, n ? n : 64);
    if (!p || o->nmemory == 256)
        exit(2);
    memset(p, 0, n);
    return o->memory[o->nmemory++] = p;
}

static size_t size_of(const struct net_tensor *t)
{
    size_t n = t->element_bytes;
    for (int a = 0; a < t->rank; a++)
        n *= (size_t)t->dim[a].size;
    return n;
}

static void set(void *structure, size_t offset, void *p)
{
    memcpy((char *)structure + offset, &p, sizeof p);
}

static void fill(const struct net_tensor *t, void *p)
{
    size_t n = size_of(t) / t->element_bytes;
    for (size_t i = 0; i < n; i++) {
        float f = (float)((i * 37 + 11) % 64) / 64.0f - 0.5f;
        int64_t k = (int64_t)(i % 3);
        if (strcmp(t->dtype, "f32") == 0)
            memcpy((char *)p + 4 * i, &f, 4);
        else
            memcpy((char *)p + t->element_bytes * i, &k, t->element_bytes);
    }
}

static void open_one(struct one *o)
{
    const struct net_info *info = net_describe();
    memset(o, 0, sizeof *o);
    for (int i = 0; i < info->input_count; i++) {
        void *p = take(o, size_of(&info->inputs[i]));
        fill(&info->inputs[i], p);
        set(&o->in, info->inputs[i].offset, p);
    }
    for (int i = 0; i < info->symbol_count; i++)
        if (info->symbols[i].offset != (size_t)-1)
            memcpy((char *)&o->in + info->symbols[i].offset, &info->symbols[i].max,
                   sizeof(int64_t));
    for (int i = 0; i < info->output_count; i++)
        set(&o->out, info->outputs[i].offset, take(o, size_of(&info->outputs[i])));
    EXPECT(net_init(&o->model, take(o, NET_ARENA_BYTES), NET_ARENA_BYTES, NULL) == NET_OK);
}

static void close_one(struct one *o)
{
    net_close(o->model);
    for (int i = 0; i < o->nmemory; i++)
        free(o->memory[i]);
}

static void *output(const struct one *o, int i)
{
    void *p;
    memcpy(&p, (const char *)&o->out + net_describe()->outputs[i].offset, sizeof p);
    return p;
}

static int same_outputs(const struct one *a, const struct one *b)
{
    const struct net_info *info = net_describe();
    for (int i = 0; i < info->output_count; i++)
        if (memcmp(output(a, i), output(b, i), size_of(&info->outputs[i])) != 0)
            return 0;
    return 1;
}

/* Into zeros: a run stores no more than an output's shape. */
static int run(struct one *o)
{
    const struct net_info *info = net_describe();
    for (int i = 0; i < info->output_count; i++)
        memset(output(o, i), 0, size_of(&info->outputs[i]));
    return net_run(o->model, &o->in, &o->out);
}

/* A block that differs in one byte of its head is nobody's, and harms nothing. */
static void try_bad_blocks(struct one *o, const unsigned char *block)
{
    unsigned char *bad = (unsigned char *)take(o, NET_STATE_BYTES),
                  *after = (unsigned char *)take(o, NET_STATE_BYTES);
    static const int heads[] = {0, 7, 8, 11, 16, 23, 24, 31};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        memcpy(bad, block, NET_STATE_BYTES);
        bad[heads[i]] ^= 0x40;
        EXPECT(net_restore(o->model, bad) == NET_BAD_STATE);
    }
    for (int i = 0; i < net_describe()->state_count; i++) {
        size_t at = net_describe()->states[i].length_offset;
        const int64_t lengths[] = {-1, INT64_MIN, (int64_t)1 << 40, INT64_MAX};
        for (size_t k = 0; at != (size_t)-1 && k < 4; k++) {
            memcpy(bad, block, NET_STATE_BYTES);
            memcpy(bad + at, &lengths[k], sizeof lengths[k]);
            EXPECT(net_restore(o->model, bad) == NET_BAD_STATE);
        }
    }
    EXPECT(net_save(o->model, after) == NET_OK && memcmp(block, after, NET_STATE_BYTES) == 0);
}

static void try_bad_calls(struct one *o, void *block)
{
    net_inputs none;
    memset(&none, 0, sizeof none);
    EXPECT(net_reset(NULL) == NET_NULL_ARGUMENT);
    EXPECT(net_save(NULL, block) == NET_NULL_ARGUMENT &&
           net_save(o->model, NULL) == NET_NULL_ARGUMENT);
    EXPECT(net_restore(NULL, block) == NET_NULL_ARGUMENT &&
           net_restore(o->model, NULL) == NET_NULL_ARGUMENT);
    EXPECT(net_run(o->model, NULL, &o->out) == NET_NULL_ARGUMENT);
    if (net_describe()->input_count > 0)
        EXPECT(net_run(o->model, &none, &o->out) == NET_MISSING_INPUT);
    net_close(o->model);
    EXPECT(net_reset(o->model) == NET_NOT_INITIALIZED &&
           net_save(o->model, block) == NET_NOT_INITIALIZED &&
           net_restore(o->model, block) == NET_NOT_INITIALIZED);
}

int main(void)
{
    struct one a, b;
    unsigned char *block, *later;
    int steps = 0;
    open_one(&a);
    open_one(&b);
    block = (unsigned char *)take(&a, NET_STATE_BYTES);
    later = (unsigned char *)take(&a, NET_STATE_BYTES);
    EXPECT(net_describe()->state_bytes == NET_STATE_BYTES && net_describe()->state_count > 0);
    /* a goes two steps ahead; b, of the same steps, agrees; after a reset it does from the first on
     */
    EXPECT(run(&a) == NET_OK && run(&a) == NET_OK);
    EXPECT(run(&b) == NET_OK && run(&b) == NET_OK && same_outputs(&a, &b));
    EXPECT(net_save(a.model, block) == NET_OK);
    try_bad_blocks(&a, block);
    EXPECT(run(&a) == NET_OK);
    EXPECT(net_save(a.model, later) == NET_OK && memcmp(block, later, NET_STATE_BYTES) != 0);
    EXPECT(net_reset(b.model) == NET_OK && net_restore(b.model, block) == NET_OK);
    EXPECT(run(&b) == NET_OK && same_outputs(&a, &b));
    EXPECT(net_restore(a.model, block) == NET_OK && run(&a) == NET_OK && same_outputs(&a, &b));
    EXPECT(net_save(a.model, block) == NET_OK && memcmp(block, later, NET_STATE_BYTES) == 0);
    EXPECT(net_reset(a.model) == NET_OK && net_reset(b.model) == NET_OK);
    EXPECT(run(&a) == NET_OK && run(&b) == NET_OK && same_outputs(&a, &b));
    /* up to what it can hold: a run beyond changes nothing */
    while (steps++ < 40 && run(&a) == NET_OK)
        continue;
    EXPECT(net_save(a.model, block) == NET_OK);
    if (steps < 40) {
        EXPECT(run(&a) == NET_STATE_FULL);
        EXPECT(net_save(a.model, later) == NET_OK && memcmp(block, later, NET_STATE_BYTES) == 0);
        EXPECT(net_reset(a.model) == NET_OK && run(&a) == NET_OK && same_outputs(&a, &b));
    }
    try_bad_calls(&a, block);
    close_one(&b);
    close_one(&a);
    return wrong;
}
