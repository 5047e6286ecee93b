/* pack_keys.c - packs an operand of a contraction of two run-time values in scratch: the keys of
 * attention's scores.
 *
 *      for head                              for head
 *        for i < 197                           keys[e][j] = k[head, j, e]       e < 64, j < 224
 *          for j < 197                         for i < 197
 *            row[j] = sum over e                 for j < 224, vectors of j
 *                     q[i, e] * k[j, e]            row[j] = sum over e  q[i, e] * keys[e][j]
 *
 * Along j, the range for vectors, the keys are strided in memory, or they are no whole vectors.
 * They are invariant in the rows, so a copy in the order of the reads (PACK, at run time) costs as
 * much as one row. It is padded to whole vectors, with zeros behind the last key; so is the row. A
 * mask is not: if there is one, the padded row holds the raw scores, and a second one the masked
 * ones.
 */
#include "passes/kernel/tile.h"

#include <string.h>

enum { ROWS_MIN = 8, LANES = 16 };

/* Columns for whole tiles of four to eight vectors of any instruction set. */
static int64_t padded_columns(int64_t n)
{
    for (int64_t v = (n + LANES - 1) / LANES;; v++)
        for (int64_t blocks = 8; blocks >= 4; blocks--)
            if (v % blocks == 0 || v < 4)
                return v * LANES;
}

/* The stride of rows: with a power of two in bytes they would map to a few cache sets. */
int64_t scratch_pitch(const struct tgc *t, int64_t nelem)
{
    const struct machine *m = machine_of(t);
    int64_t size = (int64_t)sizeof(float);
    return nelem > 0 && nelem % (cost_alias_nbytes(m) / size) == 0 ? nelem + m->line / size : nelem;
}

struct uop *stage_as_store(struct tgc *t, const struct uop *stage)
{
    struct uop *src[MAX_RANK + 4];
    int n = 0;
    src[n++] = uop_buffer(t, (struct buffer *)(uintptr_t)stage->arg.p);
    src[n++] = stage->src[1];
    src[n++] = stage->src[0];
    for (int k = 2; k < stage->nsrc; k++)
        src[n++] = stage->src[k];
    return uop_intern(t, OP_STORE, stage->dtype, src, n, (union arg){0});
}

struct uop *store_as_stage(struct tgc *t, const struct uop *store)
{
    struct uop *src[80];
    int n = 0;
    src[n++] = store->src[2];
    src[n++] = store->src[1];
    for (int k = 3; k < store->nsrc; k++)
        src[n++] = store->src[k];
    return uop_intern(t, OP_STAGE, store->src[2]->dtype, src, n,
                      (union arg){.p = uop_buffer_of(store->src[0])});
}

struct buffer *kernel_new_scratch(struct tgc *t, struct kernel *k, enum dtype d, int64_t n)
{
    struct uop *dim = uop_int(t, n);
    struct buffer *b = buffer_new(t, BUFFER_SCRATCH, d, &dim, 1, NULL);
    struct buffer **grown = mem_array(t, (size_t)k->nscratch + 1, sizeof(struct buffer *));
    for (int i = 0; i < k->nscratch; i++)
        grown[i] = k->scratch[i];
    grown[k->nscratch++] = b;
    k->scratch = grown;
    return b;
}

/* Whether the stage is recomputed in a loop in which `rest` is invariant. */
static bool is_reused(struct tgc *t, const struct uop *store, struct uop *stage, struct uop *rest)
{
    for (int k = 3; k < store->nsrc; k++) {
        struct uop *r = store->src[k];
        if (r->op == OP_RANGE && r->src[0]->vmax >= ROWS_MIN && uop_depends_on(t, stage, r) &&
            !uop_depends_on(t, rest, r))
            return true;
    }
    return false;
}

/* The single load of the stage's contraction that is strided along its column, or too short for its
 * row of vectors, if copying it pays. */
static struct uop *find_keys(const struct nest *m, const struct uop *store, struct uop *stage,
                             bool is_padded, struct uop **rest)
{
    struct tgc *t = m->t;
    struct uop *c = stage->src[2], *e = m->reduce->src[1], *keys = NULL;
    struct operands columns = nest_axis(m, c).reads;
    int64_t along_c, along_e;
    for (int i = 0; i < m->nload; i++) {
        struct uop *load = m->load[i];
        if (!operands_has(columns, i))
            continue;
        if (!index_stride(t, load->src[1], c, &along_c) || load->nsrc > 2)
            return NULL;
        if (along_c == 1 && !is_padded)
            continue;
        if (keys || load->dtype != DTYPE_F32 || load->src[0]->op == OP_STAGE ||
            !index_stride(t, load->src[1], e, &along_e))
            return NULL;
        keys = load;
        *rest = sym_sub(t, sym_sub(t, load->src[1], sym_muli(t, c, along_c)),
                        sym_muli(t, e, along_e));
    }
    return keys && is_reused(t, store, stage, *rest) ? keys : NULL;
}

/* Whether something else is loaded along the columns, a mask: it has no padding, and may be
 * strided. */
static bool is_masked(const struct nest *m, struct uop *c, bool is_padded)
{
    int64_t along;
    for (int i = 0; i < m->nother; i++)
        if (uop_depends_on(m->t, m->other[i]->src[1], c) &&
            (is_padded || m->other[i]->nsrc > 2 ||
             !index_stride(m->t, m->other[i]->src[1], c, &along) || along != 1))
            return true;
    return false;
}

/* A copy of the keys [e][j], j < wide. */
static struct uop *copy_keys(struct tgc *t, struct kernel *k, struct uop *keys, struct uop *rest,
                             const struct nest *m, struct uop *c, int64_t wide)
{
    struct uop *e = m->reduce->src[1], *load[4];
    int64_t along_c, along_e, nstep = e->src[0]->arg.i, n = c->src[0]->arg.i;
    int64_t pitch = scratch_pitch(t, wide);
    (void)index_stride(t, keys->src[1], c, &along_c);
    (void)index_stride(t, keys->src[1], e, &along_e);
    struct uop *j = uop_range(t, uop_int(t, wide), t->next_range++);
    struct uop *s = uop_range(t, uop_int(t, nstep), t->next_range++);
    load[0] = keys->src[0];
    load[1] = sym_add(t, rest, sym_add(t, sym_muli(t, j, along_c), sym_muli(t, s, along_e)));
    load[2] = sym_lt(t, j, uop_int(t, n));
    load[3] = uop_constf(t, DTYPE_F32, 0);
    struct uop *value =
        uop_intern(t, OP_LOAD, DTYPE_F32, load, wide > n ? 4 : 2, (union arg){0});
    struct uop *copy[4] = {value, sym_add(t, sym_muli(t, s, pitch), j), j, s};
    return uop_intern(t, OP_STAGE, DTYPE_F32, copy, 4,
                      (union arg){.p = kernel_new_scratch(t, k, DTYPE_F32, pitch * nstep)});
}

/* A row of raw scores. Its column has the name of the stage's. */
static struct uop *stage_of_scores(struct tgc *t, const struct uop *stage, struct uop *value,
                                   int64_t wide, struct buffer *b)
{
    struct uop *c = stage->src[2], *column = uop_range(t, uop_int(t, wide), t->next_range++);
    if (uop_get_axes(t, c))
        uop_name_axes(t, column, uop_get_axes(t, c));
    struct uop *row[3] = {uop_substitute(t, value, c, column), column, column};
    return uop_intern(t, OP_STAGE, DTYPE_F32, row, 3, (union arg){.p = b});
}

/* The stage with `sum` loaded from the row of scores. */
static struct uop *read_scores(struct tgc *t, struct uop *stage, struct uop *sum,
                               struct uop *scores)
{
    struct uop *read[2] = {scores, stage->src[2]};
    return uop_substitute(t, stage, sum,
                        uop_intern(t, OP_LOAD, DTYPE_F32, read, 2, (union arg){0}));
}

static bool find_scores(struct tgc *t, struct uop *stage, struct nest *m, int64_t *ncolumn)
{
    return stage->nsrc == 3 && stage->src[1] == stage->src[2] && stage->dtype == DTYPE_F32 &&
           uop_const_int(stage->src[2]->src[0], ncolumn) && *ncolumn >= LANES &&
           nest_find(t, stage_as_store(t, stage), m) && m->contraction;
}

/* The stage over packed keys; NULL: unchanged. With a mask it becomes two: the raw scores, padded,
 * and the masked ones. */
static struct uop *pack_keys(struct tgc *t, struct kernel *k, const struct uop *store,
                             struct uop *stage)
{
    struct nest m;
    struct uop *rest = NULL;
    int64_t ncolumn, nstep, nbytes;
    if (!find_scores(t, stage, &m, &ncolumn) || m.reduce->nsrc != 2 ||
        !uop_const_int(m.reduce->src[1]->src[0], &nstep))
        return NULL;
    int64_t wide = padded_columns(ncolumn), pitch = scratch_pitch(t, wide);
    struct uop *keys = find_keys(&m, store, stage, wide > ncolumn, &rest), *c = stage->src[2],
               *e = m.reduce->src[1];
    if (!keys || __builtin_mul_overflow(sat_mul(pitch, (int64_t)sizeof(float)), nstep, &nbytes) ||
        (double)nbytes > cost_fit(machine_of(t), FIT_KEYS))
        return NULL;
    bool masked = is_masked(&m, c, wide > ncolumn);
    struct uop *read[2] = {copy_keys(t, k, keys, rest, &m, c, wide),
                           sym_add(t, sym_muli(t, e, pitch), c)};
    struct uop *value = uop_substitute(t, masked ? m.reduce : stage->src[0], keys,
                                     uop_intern(t, OP_LOAD, DTYPE_F32, read, 2, (union arg){0}));
    struct buffer *b = wide > ncolumn || masked ? kernel_new_scratch(t, k, DTYPE_F32, wide)
                                                : (struct buffer *)(uintptr_t)stage->arg.p;
    struct uop *scores = stage_of_scores(t, stage, value, wide, b);
    return masked ? read_scores(t, stage, m.reduce, scores) : scores;
}

/* The keys are contiguous already, but what is computed from the scores cannot be vectorized, such
 * as a gathered bias: the raw scores become a stage of their own. NULL: unchanged. */
static struct uop *keep_scores(struct tgc *t, struct kernel *k, struct uop *stage)
{
    struct nest m, bare;
    int64_t n;
    if (!find_scores(t, stage, &m, &n) || !uop_depends_on(t, m.reduce, stage->src[2]) ||
        nest_vectors_fit(&m, stage->src[2]))
        return NULL;
    struct buffer *b = (struct buffer *)(uintptr_t)stage->arg.p;
    struct uop *scores = stage_of_scores(t, stage, m.reduce, n, b);
    if (!nest_find(t, stage_as_store(t, scores), &bare) || !nest_vectors_fit(&bare, scores->src[2]))
        return NULL;
    b = kernel_new_scratch(t, k, DTYPE_F32, n);
    return read_scores(t, stage, m.reduce, stage_of_scores(t, stage, m.reduce, n, b));
}

struct uop *keys_pack(struct tgc *t, struct kernel *k, struct uop *store)
{
    int n;
    struct uop **order = uop_toposort(t, &store, 1, &n);
    for (int i = 0; i < n; i++) {
        if (order[i]->op != OP_STAGE)
            continue;
        struct uop *by = pack_keys(t, k, store, order[i]);
        if (by || (by = keep_scores(t, k, order[i])))
            /* at most one in a kernel: attention has one */
            return uop_substitute(t, store, order[i], by);
    }
    return store;
}
