/* library_loop.c - control regions with checks: LOOP in three steps, IF, and the calls of host
 * functions.
 *
 * Also what tensor ops cannot express: top-k is a HOST step; random numbers are counter-based,
 * Threefry-2x32 with 20 rounds, once as uops and once in C for weights. The two agree.
 */
#include "frontend/library.h"

#include <math.h>
#include <string.h>

/* ---- loops and branches */

static struct uop *one_scalar(const struct lib *l, const char *what, enum dtype d, struct uop *x)
{
    if (!x)
        return NULL;
    if (x->dtype != d)
        return lib_error(l, "%s is %s; it must be one %s", what, lib_describe(l, x), dtype_name(d));
    return lib_reshape(l, x, NULL, 0);
}

struct lib_loop *lib_loop_begin(const struct lib *l, struct uop *trip, struct uop *cond,
                                struct uop *const *init, int n)
{
    struct tgc *t = l->t;
    cond = one_scalar(l, "the condition of a loop", DTYPE_BOOL, cond ? cond : uop_bool(t, true));
    trip = one_scalar(l, "the trip count of a loop", DTYPE_I64, trip);
    if (!trip || !cond)
        return NULL;
    struct lib_loop *b = MEM_NEW(t, struct lib_loop);
    b->loop = MEM_NEW(t, struct loop);
    *b->loop = (struct loop){.id = t->next_loop++,
                             .ncarried = n,
                             .param = mem_array(t, (size_t)n + 1, sizeof *b->loop->param)};
    b->param = mem_array(t, (size_t)n + 1, sizeof(struct uop *));
    b->init = mem_array(t, (size_t)n + 1, sizeof(struct uop *));
    b->trip = trip;
    b->cond = cond;
    for (int k = 0; k < n; k++) {
        if (!init[k])
            return NULL;
        struct loop_param *p = &b->loop->param[k];
        *p = (struct loop_param){
            .loop = b->loop, .index = k, .dtype = init[k]->dtype, .ndim = init[k]->ndim};
        for (int a = 0; a < init[k]->ndim; a++)
            p->dim[a] = init[k]->dim[a];
        b->init[k] = init[k];
        b->param[k] = uop_param(t, p);
    }
    int64_t last = trip->vmax > 0 ? trip->vmax - 1 : 0;
    b->loop->counter = var_new(t, mem_printf(t, "step%d", b->loop->id), 0, last);
    b->loop->counter->is_counter = true;
    b->counter = uop_var(t, b->loop->counter);
    return b;
}

struct uop *lib_loop_end(const struct lib *l, struct lib_loop *b, struct uop *cond_next,
                         struct uop *const *next, struct uop *const *scan, int nscan,
                         struct uop *scan_length)
{
    struct tgc *t = l->t;
    if (!b)
        return NULL;
    cond_next = one_scalar(l, "the condition of a loop", DTYPE_BOOL,
                           cond_next ? cond_next : uop_bool(t, true));
    if (!cond_next)
        return NULL;
    for (int k = 0; k < b->loop->ncarried; k++) {
        struct uop *p = b->param[k];
        if (!next[k])
            return NULL;
        bool same = next[k]->dtype == p->dtype && next[k]->ndim == p->ndim;
        for (int a = 0; same && a < p->ndim; a++)
            same = sym_equal(t, next[k]->dim[a], p->dim[a]);
        if (!same)
            return lib_error(
                l, "a loop carries value %d in as %s and out as %s; dtype and shape must stay", k,
                lib_describe(l, p), lib_describe(l, next[k]));
    }
    for (int k = 0; k < nscan; k++)
        if (!scan[k] || scan[k]->ndim == MAX_RANK)
            return scan[k] ? lib_error(l, "a loop stacks %s: the rank is too high",
                                       lib_describe(l, scan[k]))
                           : NULL;
    b->loop->nscan = nscan;
    b->loop->scan_length = scan_length ? scan_length : b->trip;
    return uop_loop(t, b->loop, b->trip, b->cond, b->init, cond_next, next, scan);
}

struct uop *lib_get(const struct lib *l, struct uop *node, int k)
{
    return node ? uop_get(l->t, node, k) : NULL;
}

struct uop *lib_if(const struct lib *l, struct uop *cond, struct uop *const *then,
                   struct uop *const *other, int n)
{
    if (!(cond = one_scalar(l, "the condition of an if", DTYPE_BOOL, cond)))
        return NULL;
    for (int k = 0; k < n; k++) {
        if (!then[k] || !other[k])
            return NULL;
        bool same = then[k]->dtype == other[k]->dtype && then[k]->ndim == other[k]->ndim;
        for (int a = 0; same && a < then[k]->ndim; a++)
            same = sym_equal(l->t, then[k]->dim[a], other[k]->dim[a]);
        if (!same)
            return lib_error(l,
                             "the branches of an if give result %d as %s and as %s; dtype and "
                             "shape must be the same",
                             k, lib_describe(l, then[k]), lib_describe(l, other[k]));
    }
    return uop_if(l->t, cond, then, other, n);
}

/* ---- host steps */

struct uop *lib_host(const struct lib *l, const char *function, struct uop *const *in, int nin,
                     const struct host_output *out, int nout, struct uop *const *param, int nparam,
                     struct var *const *result, int nresult)
{
    struct tgc *t = l->t;
    for (int i = 0; i < nin; i++)
        if (!in[i])
            return NULL;
    struct host_call *h = MEM_NEW(t, struct host_call);
    *h = (struct host_call){
        .function = mem_str(t, function), .nout = nout, .nparam = nparam, .nresult = nresult};
    h->out = mem_copy(t, out, (size_t)nout * sizeof *out);
    h->param = nparam ? mem_copy(t, param, (size_t)nparam * sizeof *param) : NULL;
    h->result = nresult ? mem_copy(t, result, (size_t)nresult * sizeof *result) : NULL;
    return uop_host(t, h, in, nin);
}

bool lib_topk(const struct lib *l, struct uop *x, struct uop *k, int64_t axis, bool largest,
              bool sorted, struct uop **values, struct uop **indices)
{
    struct tgc *t = l->t;
    int a;
    if (!x || !k || !lib_axis(l, axis, x->ndim, &a))
        return false;
    if (!dtype_is_float(x->dtype) && !dtype_is_int(x->dtype)) {
        lib_error(l, "topk does not take %s", lib_describe(l, x));
        return false;
    }
    if (k->vmin > x->dim[a]->vmax || k->vmax < 0) {
        lib_error(l, "topk: k is %lld; axis %d of %s has fewer elements", (long long)k->vmin, a,
                  lib_describe(l, x));
        return false;
    }
    enum dtype d = x->dtype, wide = dtype_is_float(d) ? lib_acc_dtype(d)
                                    : d == DTYPE_U64  ? d
                                                      : DTYPE_I64;
    struct host_output out[2] = {{.dtype = wide, .ndim = x->ndim},
                                 {.dtype = DTYPE_I64, .ndim = x->ndim}};
    for (int i = 0; i < x->ndim; i++)
        out[0].dim[i] = out[1].dim[i] = i == a ? k : x->dim[i];
    struct uop *param[6] = {
        sym_prod(t, x->dim, a), x->dim[a],         sym_prod(t, x->dim + a + 1, x->ndim - a - 1), k,
        uop_int(t, largest),    uop_int(t, sorted)};
    struct uop *in = uop_cast(t, wide, x);
    struct uop *call = lib_host(l, mem_printf(t, "topk_%s", dtype_name(wide)), &in, 1, out, 2,
                                param, 6, NULL, 0);
    *values = lib_cast(l, d, lib_get(l, call, 0));
    *indices = lib_get(l, call, 1);
    return *values && *indices;
}

/* ---- random numbers. source: Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (2011) */

static const int threefry_rotation[8] = {13, 15, 26, 6, 17, 29, 16, 24};
static const uint32_t threefry_parity = 0x1BD11BDA;

void lib_random_words(uint64_t seed, uint64_t counter, uint32_t word[2])
{
    uint32_t key[3] = {(uint32_t)seed, (uint32_t)(seed >> 32), 0}, a = (uint32_t)counter,
             b = (uint32_t)(counter >> 32);
    key[2] = threefry_parity ^ key[0] ^ key[1];
    a += key[0];
    b += key[1];
    for (uint32_t i = 0; i < 20; i++) {
        int r = threefry_rotation[i % 8];
        a += b;
        b = (b << r | b >> (32 - r)) ^ a;
        if (i % 4 == 3) {
            uint32_t group = i / 4 + 1;
            a += key[group % 3];
            b += key[(group + 1) % 3] + group;
        }
    }
    word[0] = a;
    word[1] = b;
}

static double unit(uint32_t word) { return (double)(word >> 8) * 0x1p-24; }

double lib_random_uniform_at(uint64_t seed, uint64_t i)
{
    uint32_t w[2];
    lib_random_words(seed, i, w);
    return unit(w[0]);
}

double lib_random_normal_at(uint64_t seed, uint64_t i)
{
    uint32_t w[2];
    lib_random_words(seed, i, w);
    return sqrt(-2 * log(1 - unit(w[0]))) * cos(6.283185307179586477 * unit(w[1]));
}

static struct uop *word_const(const struct lib *l, uint32_t v)
{
    return uop_consti(l->t, DTYPE_U32, v);
}

/* The two words of every element, u32 of shape dim. run: NULL, or an i64 scalar whose low word
 * changes the key's high one. */
static void random_uops(const struct lib *l, uint64_t seed, struct uop *run, struct uop *const *dim,
                        int ndim, struct uop *word[2])
{
    struct tgc *t = l->t;
    struct uop *key[3] = {word_const(l, (uint32_t)seed), word_const(l, (uint32_t)(seed >> 32))};
    if (run)
        key[1] = uop_binary(t, OP_XOR, key[1], uop_cast(t, DTYPE_U32, run));
    key[2] = uop_binary(t, OP_XOR, uop_binary(t, OP_XOR, word_const(l, threefry_parity), key[0]),
                        key[1]);
    struct uop *i = uop_reshape(t, uop_iota(t, sym_prod(t, dim, ndim)), dim, ndim);
    struct uop *low = uop_binary(t, OP_AND, i, uop_int(t, 0xffffffff));
    struct uop *a = uop_binary(t, OP_ADD, uop_cast(t, DTYPE_U32, low), key[0]);
    struct uop *b = uop_binary(t, OP_ADD,
                               uop_cast(t, DTYPE_U32, uop_binary(t, OP_SHR, i, uop_int(t, 32))),
                               key[1]);
    for (uint32_t k = 0; k < 20; k++) {
        uint32_t r = (uint32_t)threefry_rotation[k % 8];
        a = uop_binary(t, OP_ADD, a, b);
        b = uop_binary(t, OP_OR, uop_binary(t, OP_SHL, b, word_const(l, r)),
                       uop_binary(t, OP_SHR, b, word_const(l, 32 - r)));
        b = uop_binary(t, OP_XOR, b, a);
        if (k % 4 == 3) {
            uint32_t group = k / 4 + 1;
            struct uop *more = uop_binary(t, OP_ADD, key[(group + 1) % 3], word_const(l, group));
            a = uop_binary(t, OP_ADD, a, key[group % 3]);
            b = uop_binary(t, OP_ADD, b, more);
        }
    }
    word[0] = a;
    word[1] = b;
}

static struct uop *unit_uop(const struct lib *l, struct uop *word)
{
    struct uop *high = uop_binary(l->t, OP_SHR, word, word_const(l, 8));
    return lib_binaryf(l, OP_MUL, uop_cast(l->t, DTYPE_F32, high), 0x1p-24);
}

static bool random_check(const struct lib *l, enum dtype d)
{
    if (!dtype_is_float(d))
        lib_error(l, "random numbers of dtype %s; it must be floating", dtype_name(d));
    return dtype_is_float(d);
}

struct uop *lib_random_uniform(const struct lib *l, enum dtype d, uint64_t seed, double lo,
                               double hi, struct uop *const *dim, int ndim)
{
    return lib_random_uniform_of_run(l, d, seed, NULL, lo, hi, dim, ndim);
}

struct uop *lib_random_uniform_of_run(const struct lib *l, enum dtype d, uint64_t seed,
                                      struct uop *run, double lo, double hi,
                                      struct uop *const *dim, int ndim)
{
    struct uop *word[2];
    if (!random_check(l, d))
        return NULL;
    random_uops(l, seed, run, dim, ndim, word);
    return lib_cast(
        l, d, lib_binaryf(l, OP_ADD, lib_binaryf(l, OP_MUL, unit_uop(l, word[0]), hi - lo), lo));
}

struct uop *lib_random_normal(const struct lib *l, enum dtype d, uint64_t seed, double mean,
                              double std, struct uop *const *dim, int ndim)
{
    struct uop *word[2];
    if (!random_check(l, d))
        return NULL;
    random_uops(l, seed, NULL, dim, ndim, word);
    struct uop *rest = lib_sub(l, uop_constf(l->t, DTYPE_F32, 1), unit_uop(l, word[0]));
    struct uop *radius = lib_unary(l, OP_SQRT,
                                   lib_binaryf(l, OP_MUL, lib_unary(l, OP_LOG, rest), -2));
    struct uop *angle = lib_unary(
        l, OP_COS, lib_binaryf(l, OP_MUL, unit_uop(l, word[1]), 6.283185307179586477));
    return lib_cast(
        l, d, lib_binaryf(l, OP_ADD, lib_binaryf(l, OP_MUL, lib_mul(l, radius, angle), std), mean));
}
