/* pack_keys.c - packs an operand of a contraction of two run-time values in scratch: the keys of
 * attention's scores.
 *
 *      for head                              for head
 *        for i < 197                           keys[e][j] = k[head, j, e]       e < 64, j < 224
 *          for j < 197                         for i < 197
 *            row[j] = sum over e                 for j < 224, vectors of j
 *                     q[i, e] * k[j, e]            row[j] = sum over e  q[i, e] * keys[e][j]
 *
 * Along j, the range for vectors, the keys are strided in memory, or they do not fill whole
 * vectors. They are invariant in the rows, so a copy in the order of the reads (PACK, at run time)
 * costs as much as one row. Keys and row are zero-padded to whole vectors. A mask is not: if there
 * is one, the padded row holds the raw scores, and a second row the masked ones. */
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

/* The single operand of the stage's contraction that is strided along its column, or too short for
 * its row of vectors, if copying it pays: its number; -1: none. */
static int find_keys(const struct nest *m, const struct uop *store, struct uop *stage,
                     bool is_padded, struct uop **rest)
{
    struct tgc *t = m->t;
    struct uop *c = stage->src[2], *e = m->reduce->src[1];
    struct operands columns = nest_axis(m, c).reads;
    int64_t along_c, along_e;
    int keys = -1;
    for (int i = 0; i < m->nload; i++) {
        struct uop *load = m->load[i];
        if (!operands_has(columns, i))
            continue;
        if (!index_stride(t, load->src[1], c, &along_c) || load->nsrc > 2)
            return -1;
        if (along_c == 1 && !is_padded)
            continue;
        if (keys >= 0 || load->dtype != DTYPE_F32 || load->src[0]->op == OP_STAGE ||
            !index_stride(t, load->src[1], e, &along_e))
            return -1;
        keys = i;
        *rest = sym_sub(t, sym_sub(t, load->src[1], sym_muli(t, c, along_c)),
                        sym_muli(t, e, along_e));
    }
    return keys >= 0 && is_reused(t, store, stage, *rest) ? keys : -1;
}

/* Whether something else is loaded along the columns: a mask has no padding, and may be strided. */
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

static bool find_scores(struct tgc *t, struct uop *stage, struct nest *m, int64_t *ncolumn)
{
    return stage->nsrc == 3 && stage->src[1] == stage->src[2] && stage->dtype == DTYPE_F32 &&
           uop_const_int(stage->src[2]->src[0], ncolumn) && *ncolumn >= LANES &&
           nest_find(t, stage_as_store(t, stage), m) && m->contraction;
}

/* An opt of the sum of a stage of store number `at`. */
static struct opt opt_of(struct tgc *t, const struct kernel *k, int at, const struct nest *m,
                         enum opt_op op)
{
    return (struct opt){.op = op, .store = at, .of = OF_SUM, .space = SPACE_SCRATCH,
                        .number = opt_number(t, k->ast->src[at], m->reduce)};
}

/* Packs the keys of a stage. With a mask the raw scores become a stage of their own, padded apart
 * from it. false: unchanged. */
static bool pack_keys(struct tgc *t, struct kernel *k, int at, struct uop *stage)
{
    struct nest m;
    struct uop *rest = NULL;
    int64_t ncolumn, nstep, nbytes;
    if (!find_scores(t, stage, &m, &ncolumn) || m.reduce->nsrc != 2 ||
        !uop_const_int(m.reduce->src[1]->src[0], &nstep))
        return false;
    int64_t wide = padded_columns(ncolumn), pitch = scratch_pitch(t, wide);
    int keys = find_keys(&m, k->ast->src[at], stage, wide > ncolumn, &rest);
    if (keys < 0 ||
        __builtin_mul_overflow(sat_mul(pitch, (int64_t)sizeof(float)), nstep, &nbytes) ||
        (double)nbytes > cost_fit(machine_of(t), FIT_KEYS))
        return false;
    bool masked = is_masked(&m, stage->src[2], wide > ncolumn);
    struct opt pack = opt_of(t, k, at, &m, OPT_PACK), scores = opt_of(t, k, at, &m, OPT_STAGE);
    pack.operand = keys;
    pack.n = wide;
    struct opt list[2] = {wide > ncolumn ? scores : pack, wide > ncolumn ? pack : scores};
    return opt_apply(t, k, NULL, masked ? list : &pack, masked ? 2 : 1, NULL);
}

/* The keys are contiguous already, but what is computed from the scores cannot be vectorized, such
 * as a gathered bias: the raw scores become a stage of their own. false: unchanged. */
static bool keep_scores(struct tgc *t, struct kernel *k, int at, struct uop *stage)
{
    struct nest m, bare;
    int64_t n;
    if (!find_scores(t, stage, &m, &n) || !uop_depends_on(t, m.reduce, stage->src[2]) ||
        nest_vectors_fit(&m, stage->src[2]))
        return false;
    struct uop *row[3] = {m.reduce, stage->src[2], stage->src[2]};
    struct uop *scores = uop_intern(t, OP_STAGE, DTYPE_F32, row, 3, stage->arg);
    struct opt opt = opt_of(t, k, at, &m, OPT_STAGE);
    return nest_find(t, stage_as_store(t, scores), &bare) &&
           nest_vectors_fit(&bare, stage->src[2]) && opt_apply(t, k, NULL, &opt, 1, NULL);
}

/* The keys of a store's stage; attention has one. */
static void pack_store(struct tgc *t, struct kernel *k, int at)
{
    int n;
    struct uop *store = k->ast->src[at];
    struct uop **order = uop_toposort(t, &store, 1, &n);
    for (int i = 0; i < n; i++)
        if (order[i]->op == OP_STAGE &&
            (pack_keys(t, k, at, order[i]) || keep_scores(t, k, at, order[i])))
            return;
}

/* pack_store() as a choice that a tune file may make: its list, or nothing. */
static int tune_keys(struct tgc *t, struct kernel *k, int at)
{
    struct opts_choice c;
    struct tile none = {.column_axis = -1};
    struct kernel trial = *k;
    int end = at + 1;
    if (!t->tuning) {
        pack_store(t, k, at);
        return end;
    }
    opts_choice_begin(&c, t, k, NULL, TUNE_KEYS, at, at, 0);
    if (opts_choice_width(&c)) {
        pack_store(t, &trial, at);
        opts_choice_add(&c, &trial, NULL, &none);
        opts_choice_add(&c, k, NULL, &none);
    }
    if (!opts_choice_replay(&c, &end))
        pack_store(t, k, at);
    opts_choice_end(&c);
    return end;
}

bool pass_pack_keys(struct tgc *t, struct schedule *s, struct kernel *k)
{
    (void)s;
    for (int at = 0; at < k->ast->nsrc;)
        at = tune_keys(t, k, at);
    return true;
}
