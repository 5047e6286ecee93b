/* pack.c - PACK: copies an operand of a sum of products in the order in which it is read.
 *
 *      pack 0.sum0 operand=1 axis=3 n=16 space=weights      w[k][n]   -> [n/16][k][16]
 *      pack 0.sum0 operand=1 axis=0 n=224 space=scratch     k[j][e]   -> keys[e][j], j < 224
 *      pack 0.sum0 operand=0 axis=1 n=64 space=shared        x[i][k]   -> row[k], outside of loop 1
 *
 * The copy has one axis for each loop of the nest along which the operand varies, in this order:
 * the loops, the sum's, the part of a panel, lanes, `axis`, a group of bytes.
 *
 * A known operand is copied at compile time, all of it (a storage view), once for all variants of
 * the kernel. In shared memory the copy is a STAGE at the loop `axis`, which a block's threads
 * share, as they share the copying. In scratch the copy is a STAGE outside of all loops in which
 * the operand is invariant: the queries of a head share that head's keys. Its rows may be padded
 * with zeros; then the nest's row is padded, too, to whole vectors. */
#include "passes/analysis/stationary.h"
#include "passes/kernel/opts_work.h"

#include <string.h>

/* The loops along which an operand changes, in the copy's order; rest: its offset without them. */
struct copied {
    struct uop *at[MAX_RANK], *rest;
    int64_t n[MAX_RANK], stride[MAX_RANK];
    int ndim;
};

/* A nest's ranges, a band's included, in the order of a copy whose last axis is `inner`. If a
 * block's threads share `inner`, ranges outside of it are left out: the copy is inside of them. */
static int ranges_of(const struct nest *m, const struct uop *inner, struct uop **range)
{
    int n = 0, first = store_first_range(m->store);
    struct uop *last = NULL;
    while (inner && range_is_of_block(inner) && m->store->src[first] != inner)
        first++;
    for (int lane = 0; lane < 2; lane++) {
        for (int k = first; k < m->store->nsrc; k++)
            if (m->store->src[k] == inner)
                last = m->store->src[k];
            else if (range_is_lane(m->store->src[k]) == (lane == 1) &&
                     m->store->src[k] != m->part)
                range[n++] = m->store->src[k];
        for (int k = 1; m->reduce && k < m->reduce->nsrc - m->grouped && !lane; k++)
            range[n++] = m->reduce->src[k];
        if (m->part && !lane)
            range[n++] = m->part;
    }
    if (last)
        range[n++] = last;
    if (m->grouped)
        range[n++] = m->reduce->src[m->reduce->nsrc - 1];
    return n;
}

/* false: the operand's offset is not affine, or it is loaded under a condition. */
static bool find_copied(const struct nest *m, const struct uop *load, const struct uop *inner,
                        struct copied *c)
{
    struct tgc *t = m->t;
    struct uop *range[64];
    int64_t stride, n;
    *c = (struct copied){.rest = load->src[1]};
    if (load->nsrc > 2 || m->store->nsrc + (m->reduce ? m->reduce->nsrc : 0) > 64)
        return false;
    for (int k = 0, nrange = ranges_of(m, inner, range); k < nrange; k++) {
        if (!index_stride(t, load->src[1], range[k], &stride) ||
            (stride && (!uop_const_int(range[k]->src[0], &n) || c->ndim == MAX_RANK)))
            return false;
        if (stride == 0)
            continue;
        c->rest = sym_sub(t, c->rest, sym_muli(t, range[k], stride));
        c->at[c->ndim] = range[k];
        c->n[c->ndim] = n;
        c->stride[c->ndim++] = stride;
    }
    return true;
}

/* --------------------------------------------------------------------------- at compile time */

/* Merges adjacent axes where one suffices, so that equal orders are equal views. */
static void merge_axes(struct tgc *t, struct view *v)
{
    int n = 0;
    for (int a = 0; a < v->ndim; a++) {
        if (n > 0 && v->stride[n - 1] == sym_mul(t, v->dim[a], v->stride[a])) {
            v->dim[n - 1] = sym_mul(t, v->dim[n - 1], v->dim[a]);
            v->stride[n - 1] = v->stride[a];
            continue;
        }
        v->dim[n] = v->dim[a];
        v->stride[n++] = v->stride[a];
    }
    for (int a = n; a < v->ndim; a++)
        v->dim[a] = v->stride[a] = NULL;
    v->ndim = n;
}

/* The copy as a view of the weight, or of the part of it that the nest reads; `offset`: of the
 * operand in it. false: the operand is no weight as the model has it, or elements would be stored
 * twice. */
static bool storage_view(const struct nest *m, const struct uop *load, const struct uop *inner,
                         struct view *v, struct uop **offset)
{
    struct tgc *t = m->t;
    struct copied c;
    const struct buffer *b = uop_buffer_of(load->src[0]);
    int64_t n, nelem = 1, total = 1;
    if (!b || !buffer_is_stationary(b) || b->storage || !find_copied(m, load, inner, &c))
        return false;
    for (int a = 0; a < b->ndim; a++)
        nelem = uop_const_int(b->dim[a], &n) ? sat_mul(nelem, n) : -1;
    *v = (struct view){.ndim = c.ndim, .offset = c.rest};
    *offset = uop_int(t, 0);
    for (int a = 0; a < c.ndim; a++) {
        v->dim[a] = uop_int(t, c.n[a]);
        v->stride[a] = uop_int(t, c.stride[a]);
        total = sat_mul(total, c.n[a]);
        *offset = sym_add(t, sym_mul(t, *offset, v->dim[a]), c.at[a]);
    }
    merge_axes(t, v);
    return c.rest->op == OP_CONST && c.rest->arg.i >= 0 && total <= nelem;
}

static bool is_read_elsewhere(const struct nest *m, const struct uop *load)
{
    int n;
    struct uop *root = m->store;
    struct uop **order = uop_toposort(m->t, &root, 1, &n);
    for (int i = 0; i < n; i++)
        if (order[i]->op == OP_LOAD && order[i] != load && order[i]->src[0] == load->src[0])
            return true;
    return false;
}

bool nest_is_packable(const struct nest *m, const struct uop *load)
{
    struct view v;
    struct uop *offset;
    /* floats that cannot be packed are loaded one by one */
    return storage_view(m, load, NULL, &v, &offset) &&
           (load->dtype == DTYPE_F32 || (!m->staged && !is_read_elsewhere(m, load)));
}

static bool views_equal(const struct view *a, const struct view *b)
{
    return a->ndim == b->ndim && a->offset == b->offset &&
           !memcmp(a->dim, b->dim, (size_t)a->ndim * sizeof *a->dim) &&
           !memcmp(a->stride, b->stride, (size_t)a->ndim * sizeof *a->stride);
}

/* The kernel's packed copy of a weight in this order, possibly another variant's. */
static struct buffer *packed_copy(struct tgc *t, struct kernel *k, const struct buffer *from,
                                  const struct view *v)
{
    for (int i = 0; i < k->npacked; i++)
        if (k->packed[i]->weight.data == from->weight.data && views_equal(k->packed[i]->storage, v))
            return k->packed[i];
    struct buffer *b = buffer_new(t, BUFFER_WEIGHT, from->dtype, v->dim, v->ndim, from->name);
    b->weight.data = from->weight.data;
    b->nbytes = dtype_nbytes(from->dtype);
    for (int a = 0; a < v->ndim; a++)
        b->nbytes *= (size_t)v->dim[a]->arg.i;       /* at most the weight's own size */
    b->storage = mem_copy(t, v, sizeof *v);
    b->weight.of = from;
    b->weight.how =
        mem_printf(t, "packed in panels of %lld", (long long)v->dim[v->ndim - 1]->arg.i);
    VEC_PUSH(t, k->packed, k->npacked, k->cap_packed, b);
    return b;
}

static struct uop *load_at(struct tgc *t, enum dtype d, struct uop *from, struct uop *offset)
{
    struct uop *src[2] = {from, offset};
    return uop_intern(t, OP_LOAD, d, src, 2, (union arg){0});
}

/* The operand read from the weights' copy; NULL: refused. */
static struct uop *pack_weight(struct work *w, const struct nest *m, const struct uop *load,
                               const struct uop *inner)
{
    struct view view;
    struct uop *offset;
    if (is_read_elsewhere(m, load) || !storage_view(m, load, inner, &view, &offset) ||
        offset == load->src[1]) {
        work_refuse(w, "the operand is no weight whose storage order may change");
        return NULL;
    }
    struct buffer *b = packed_copy(w->t, w->kernel, uop_buffer_of(load->src[0]), &view);
    return load_at(w->t, load->dtype, uop_buffer(w->t, b), offset);
}

/* -------------------------------------------------------------------------------- at run time */

/* The stride of rows: with a power of two in bytes they would map to a few cache sets. */
int64_t scratch_pitch(const struct tgc *t, int64_t nelem)
{
    const struct machine *m = machine_of(t);
    int64_t size = (int64_t)sizeof(float);
    return nelem > 0 && nelem % (cost_alias_nbytes(m) / size) == 0 ? nelem + m->line / size : nelem;
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

/* The operand read from a STAGE whose rows have `wide` elements, zero-padded. In shared memory the
 * block's threads share the copying, without padding. NULL: refused. */
static struct uop *pack_in_scratch(struct work *w, const struct nest *m, const struct uop *load,
                                   const struct uop *inner, int64_t wide)
{
    bool local = range_is_of_block(inner);
    struct tgc *t = w->t;
    struct copied c;
    struct uop *src[MAX_RANK + 2], *from[4] = {load->src[0]}, *offset = uop_int(t, 0);
    if (load->src[0]->op == OP_STAGE || !find_copied(m, load, inner, &c) || c.ndim < 1 ||
        (!local && c.at[c.ndim - 1] != inner)) {
        work_refuse(w, "the operand is in scratch, or does not vary along the loop");
        return NULL;
    }
    int64_t step = 1, size = c.n[c.ndim - 1], pitch = local ? size : scratch_pitch(t, wide);
    wide = local ? size : wide;
    from[1] = c.rest;
    src[1] = uop_int(t, 0);
    c.n[c.ndim - 1] = wide;
    for (int a = c.ndim - 1; a >= 0; a--) {
        struct uop *r = uop_axis(t, uop_int(t, c.n[a]), AXIS_LOOP,
                                 local && a == c.ndim - 1 ? WORKER_BLOCK : WORKER_EACH);
        from[1] = sym_add(t, from[1], sym_muli(t, r, c.stride[a]));
        src[1] = sym_add(t, src[1], sym_muli(t, r, step));
        offset = sym_add(t, offset, sym_muli(t, c.at[a], step));
        step = sat_mul(step, a == c.ndim - 1 ? pitch : c.n[a]);
        src[a == c.ndim - 1 ? 2 : a + 3] = r;        /* in the order of the operand's rows */
    }
    if (sat_mul(step, (int64_t)dtype_nbytes(load->dtype)) > INT32_MAX) {
        work_refuse(w, "the copy is too large for scratch");
        return NULL;
    }
    from[2] = sym_lt(t, src[2], uop_int(t, size));
    from[3] = uop_consti(t, load->dtype, 0);
    src[0] = uop_intern(t, OP_LOAD, load->dtype, from, wide > size ? 4 : 2, (union arg){0});
    union arg scratch = {.p = work_new_memory(w, load->dtype, step,
                                              local ? SPACE_SHARED : SPACE_SCRATCH)};
    struct uop *copy = uop_intern(t, OP_STAGE, load->dtype, src, c.ndim + 2, scratch);
    return load_at(t, load->dtype, copy, offset);
}

static bool is_row(const struct uop *stage)
{
    return stage && stage->nsrc == 3 && stage->src[1] == stage->src[2];
}

/* A row in scratch with a loop of its own, of `wide` iterations. */
static struct uop *widen_row(struct work *w, const struct uop *row, int64_t wide)
{
    struct tgc *t = w->t;
    struct uop *column = uop_range(t, uop_int(t, wide), t->next_range++);
    work_name_like(t, column, row->src[2]);
    struct uop *src[3] = {uop_substitute(t, row->src[0], row->src[2], column), column, column};
    union arg scratch = row->arg;
    if (wide != range_fixed_size(row->src[2]))
        scratch.p = kernel_new_scratch(t, w->kernel, row->dtype, wide);
    return uop_intern(t, OP_STAGE, row->dtype, src, 3, scratch);
}

/* Whether nothing but the operand is read along the row. */
static bool may_widen(const struct nest *m, const struct uop *row, const struct uop *load)
{
    bool alone = true;
    for (int i = 0; i < m->nload; i++)
        alone &= m->load[i] == load || !uop_depends_on(m->t, m->load[i], row->src[2]);
    for (int i = 0; i < m->nother; i++)
        alone &= !uop_depends_on(m->t, m->other[i], row->src[2]);
    return alone;
}

/* ----------------------------------------------------------------------------------- the opt */

/* The sum's nest; *stage: whose it is, NULL: the store's. */
static bool find_nest(struct work *w, const struct opt *opt, struct uop **stage, struct nest *m)
{
    struct uop *store = w->ast->src[opt->store];
    struct uop *sum = opt->of == OF_SUM ? work_find(w, store, OP_REDUCE, opt->number) : NULL;
    if (!sum)
        return work_refuse(w, "the store has no such sum");
    *stage = work_stage_of(w, store, sum);
    return (nest_find(w->t, *stage ? stage_as_store(w->t, *stage) : store, m) && m->contraction &&
            m->reduce == sum) ||
           work_refuse(w, "the sum is no contraction");
}

bool apply_pack(struct work *w, const struct opt *opt)
{
    struct nest m;
    struct uop *stage = NULL;
    work_close(w);
    if (!find_nest(w, opt, &stage, &m))
        return false;
    int at = store_first_range(m.store) + opt->axis;
    if (opt->axis < 0 || at >= m.store->nsrc)
        return work_refuse(w, "the nest has no such loop");
    if (opt->operand < 0 || opt->operand >= m.nload)
        return work_refuse(w, "the sum has no such operand");
    struct uop *inner = m.store->src[at], *load = m.load[opt->operand];
    int64_t size = range_fixed_size(inner);
    bool known = opt->space == SPACE_WEIGHTS, local = opt->space == SPACE_SHARED;
    if (opt->space == SPACE_GLOBAL || local != range_is_of_block(inner) || (local && stage))
        return work_refuse(w,
                           "a copy in shared memory needs a loop that the block's threads share");
    if (opt->n != size &&
        (known || local || opt->n < size || !is_row(stage) || !may_widen(&m, stage, load)))
        return work_refuse(w, "only a row in scratch that reads nothing else can be padded");
    for (int i = m.first; i < m.store->nsrc; i++)
        if (range_is(m.store->src[i], AXIS_PART))
            m.part = m.store->src[i];
    struct uop *packed = known ? pack_weight(w, &m, load, inner)
                               : pack_in_scratch(w, &m, load, inner, opt->n);
    if (!packed)
        return false;
    struct uop *nest = is_row(stage) ? stage : w->ast->src[opt->store];
    struct uop *now = uop_substitute(w->t, nest, load, packed);
    if (nest == stage)
        now = uop_substitute(w->t, w->ast->src[opt->store], stage, widen_row(w, now, opt->n));
    work_put_stores(w, opt->store, &now, 1);
    return true;
}
