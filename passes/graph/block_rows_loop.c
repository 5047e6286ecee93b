/* block_rows_loop.c - a region's sums, by blocks of rows in a loop.
 *
 *      for h < heads                         what is independent: a processor's cache has one
 *        for block < 32                      group of blocks, whose rows see equally many keys
 *          dV, dK += ...                     carried: sums over rows
 *          dQ[block] = ...                   stacked: sums that keep them
 *        for block < 32                      the next group
 *
 * All sizes are constants, so that kernels are tiled as those of whole tensors. A mask's keys are
 * counted for each group: for causal attention eight groups of rows compute 9/16 of the square.
 * What whole blocks leave over of the rows is a group of one block. It is a loop, too: what one
 * loop has in scratch is free when the next begins. */
#include "passes/graph/block_rows.h"
#include "passes/analysis/value.h"

#include <stdlib.h>
#include <string.h>

enum { GROUPS_MAX = 8 };

/* Blocks of `n` rows from `first` on, each with `nkeys` keys. */
struct group { int64_t first, n, count, nkeys; };

/* The part of a frame's axis that is computed; begin NULL: all of it. */
struct part { struct uop *begin, *size; };

struct build {
    struct region *r;
    struct tgc *t;
    struct visible_keys visible;
    struct part part[MAX_RANK];
    struct uop_map made;                 /* of the region's values, the part */
    struct group *group; int ngroup; size_t cap_group;
    int batch[MAX_RANK], nbatch;         /* the axes that the outer loop takes one by one */
};

/* ------------------------------------------------------------------------------------- a loop */

/* A loop that counts; what it carries is set when its body is known. */
static struct loop *new_loop(struct tgc *t, struct uop *trip)
{
    struct loop *l = MEM_NEW(t, struct loop);
    int64_t last = trip->vmax > 0 ? trip->vmax - 1 : 0;
    *l = (struct loop){.id = t->next_loop++, .scan_length = trip};
    l->counter = var_new(t, mem_printf(t, "step%d", l->id), 0, last);
    l->counter->is_counter = true;
    return l;
}

/* The loop that adds up add[] and stacks scan[]. */
static struct uop *close_loop(struct tgc *t, struct loop *l, struct uop *const *add, int nadd,
                              struct uop *const *scan, int nscan)
{
    struct uop *init[MAX_SUMS], *next[MAX_SUMS];
    l->ncarried = nadd;
    l->nscan = nscan;
    l->param = mem_array(t, (size_t)nadd + 1, sizeof *l->param);
    for (int k = 0; k < nadd; k++) {
        struct loop_param *p = &l->param[k];
        *p = (struct loop_param){
            .loop = l, .index = k, .dtype = add[k]->dtype, .ndim = add[k]->ndim};
        memcpy(p->dim, add[k]->dim, (size_t)add[k]->ndim * sizeof *p->dim);
        init[k] = tensor_full(t, uop_constf(t, p->dtype, 0), p->dim, p->ndim);
        next[k] = uop_binary(t, OP_ADD, uop_param(t, p), add[k]);
    }
    return uop_loop(t, l, l->scan_length, uop_bool(t, true), init, uop_bool(t, true), next, scan);
}

/* ------------------------------------------------------------------------------------ the parts */

static const struct part *part_of(const struct build *b, const struct uop *u,
                                  const struct along *at, int a)
{
    int axis = place_axis(u, at, a);
    return axis >= 0 && b->part[axis].begin ? &b->part[axis] : NULL;
}

static bool is_cut(const struct build *b, const struct uop *u, const struct along *at)
{
    for (int a = 0; a < u->ndim; a++)
        if (part_of(b, u, at, a))
            return true;
    return false;
}

static void part_dims(const struct build *b, const struct uop *u, const struct along *at,
                      struct uop **dim)
{
    for (int a = 0; a < u->ndim; a++) {
        const struct part *p = part_of(b, u, at, a);
        dim[a] = p ? p->size : u->dim[a];
    }
}

static struct uop *shrunk(const struct build *b, struct uop *u, const struct along *at)
{
    struct uop *begin[MAX_RANK], *size[MAX_RANK];
    part_dims(b, u, at, size);
    for (int a = 0; a < u->ndim; a++) {
        const struct part *p = part_of(b, u, at, a);
        begin[a] = p ? p->begin : uop_int(b->t, 0);
    }
    return uop_shrink(b->t, u, begin, size);
}

/* The move u of the part x of its source. */
static struct uop *moved(const struct build *b, const struct uop *u, const struct along *at,
                         struct uop *x)
{
    struct uop *dim[MAX_RANK];
    int perm[MAX_RANK];
    part_dims(b, u, at, dim);
    for (int a = 0; a < u->ndim; a++)
        perm[a] = u->op == OP_PERMUTE ? PERM_GET(u->arg.i, a) : a;
    return u->op == OP_PERMUTE  ? uop_permute(b->t, x, perm)
           : u->op == OP_EXPAND ? uop_expand(b->t, x, dim)
                                : uop_reshape(b->t, x, dim, u->ndim);
}

/* The part of u, an operand or a value of the region: an operand is cut below its movement, where
 * that leaves its axes apart. */
static struct uop *part(struct build *b, struct uop *u, const struct along *at)
{
    struct uop *chain[PATH_MAX], *x = map_get(&b->made, u);
    struct along place[PATH_MAX + 1] = {*at};
    uint32_t merged = b->r->merged;
    int n = 0;
    if (x || !is_cut(b, u, at))
        return x ? x : u;
    for (b->r->merged = 0; n < PATH_MAX && move_is(u, MOVES_SPREAD); u = u->src[0]) {
        if (!place_below(b->r, u, 0, &place[n], &place[n + 1]) || b->r->merged)
            break;
        chain[n++] = u;
    }
    b->r->merged = merged;
    x = is_cut(b, u, &place[n]) ? shrunk(b, u, &place[n]) : u;
    while (n > 0) {
        n--;
        x = moved(b, chain[n], &place[n], x);
    }
    return x;
}

/* Whether a maximum of the rows reads u beside another value of the region: it is stored, since it
 * would be computed twice. */
static bool is_read_twice(const struct region *r, const struct uop *u)
{
    bool most = false;
    int readers = 0;
    for (int i = 0; i < r->norder; i++) {
        const struct uop *v = r->order[i];
        for (int k = 0; k < v->nsrc && map_get(&r->inside, v); k++)
            if (v->src[k] == u) {
                readers++;
                most |= v->op == OP_REDUCE && REDUCE_OP(v->arg.i) != OP_ADD;
            }
    }
    return most && readers > 1;
}

/* The part of a value of the region, from its sources'. */
static struct uop *part_inside(struct build *b, struct uop *u)
{
    struct tgc *t = b->t;
    const struct along *at = map_get(&b->r->inside, u);
    struct uop *src[REGION_SOURCES], *made;
    int nsrc = op_is_elementwise(u->op) ? u->nsrc : 1;
    for (int k = 0; k < nsrc; k++) {
        struct along below;
        (void)place_below(b->r, u, k, at, &below);
        src[k] = part(b, u->src[k], &below);
    }
    if (op_is_elementwise(u->op))
        made = uop_replace_src(t, u, src);
    else if (u->op == OP_REDUCE)
        made = uop_reduce(t, REDUCE_OP(u->arg.i), src[0], REDUCE_AXES(u->arg.i));
    else
        made = moved(b, u, at, src[0]);
    uop_set_origin(t, made, u);
    if (uop_get_axes(t, u) && made->op == u->op)
        uop_name_axes(t, made, uop_get_axes(t, u));
    return is_read_twice(b->r, u)
               ? uop_new(t, OP_CONTIGUOUS, made->dtype, &made, 1, (union arg){0})
               : made;
}

/* ----------------------------------------------------------------------------- a block's sums */

static bool is_reduced(const struct region_sum *s, int a)
{
    return REDUCE_AXES(s->sum->arg.i) >> a & 1;
}

/* The sum's axis that runs along this one of the frame; -1: none, or it is reduced. */
static int sum_axis(const struct region_sum *s, int axis)
{
    for (int a = 0; a < s->sum->ndim; a++)
        if (!is_reduced(s, a) && place_axis(s->sum->src[0], &s->at, a) == axis)
            return a;
    return -1;
}

/* x with zeros for the keys that are left out. */
static struct uop *with_all_keys(const struct build *b, const struct region_sum *s, struct uop *x)
{
    const struct part *p = &b->part[b->r->key];
    int key = sum_axis(s, b->r->key);
    struct uop *lo[MAX_RANK], *hi[MAX_RANK];
    if (key < 0 || !p->begin)
        return x;
    for (int a = 0; a < x->ndim; a++)
        lo[a] = hi[a] = uop_int(b->t, 0);
    lo[key] = p->begin;
    hi[key] = sym_sub(b->t, sym_sub(b->t, s->sum->dim[key], p->begin), p->size);
    return uop_pad(b->t, x, uop_consti(b->t, x->dtype, 0), lo, hi);
}

/* The sums of the block that begins at row `first`. */
static void block_sums(struct build *b, const struct group *g, struct uop *first, struct uop **sum)
{
    struct region *r = b->r;
    struct tgc *t = b->t;
    int64_t all = r->frame->dim[r->key]->arg.i;
    b->part[r->row] = (struct part){first, uop_int(t, g->n)};
    b->part[r->key] = (struct part){NULL, NULL};
    if (g->nkeys < all)
        b->part[r->key] = (struct part){sym_min(t, visible_keys_begin(r, &b->visible, first, g->n),
                                                uop_int(t, all - g->nkeys)),
                                        uop_int(t, g->nkeys)};
    b->made = (struct uop_map){.t = t};
    for (int i = 0; i < r->norder; i++)
        if (map_get(&r->inside, r->order[i]))
            map_set(&b->made, r->order[i], part_inside(b, r->order[i]));
    for (int i = 0; i < r->nsum; i++) {
        const struct uop *u = r->sum[i].sum;
        sum[i] = uop_reduce(t, OP_ADD, map_get(&b->made, u->src[0]), REDUCE_AXES(u->arg.i));
        uop_set_origin(t, sum[i], u);
    }
}

/* x[count, .., n, ..] -> x[.., count * n, ..] along axis a */
static struct uop *joined(struct tgc *t, struct uop *x, int a)
{
    struct uop *dim[MAX_RANK];
    int perm[MAX_RANK];
    for (int i = 0; i < x->ndim; i++)
        perm[i] = i < a ? i + 1 : i == a ? 0 : i;
    x = uop_permute(t, x, perm);
    for (int i = 0; i < x->ndim - 1; i++)
        dim[i] = i < a ? x->dim[i] : i == a ? sym_mul(t, x->dim[a], x->dim[a + 1]) : x->dim[i + 1];
    return uop_reshape(t, x, dim, x->ndim - 1);
}

/* The sums of a group of blocks, each over all keys; sums that keep rows have the group's. */
static void group_sums(struct build *b, const struct group *g, struct uop **sum)
{
    struct region *r = b->r;
    struct tgc *t = b->t;
    struct uop *add[MAX_SUMS], *scan[MAX_SUMS];
    int nadd = 0, nscan = 0;
    struct loop *l = new_loop(t, uop_int(t, g->count));
    struct uop *at = sym_addi(t, sym_muli(t, uop_var(t, l->counter), g->n), g->first);
    block_sums(b, g, at, sum);
    const struct uop *begin = b->part[r->key].begin;
    bool moves = begin && begin->op != OP_CONST;         /* from block to block */
    for (int i = 0; i < r->nsum; i++) {
        bool keeps = sum_axis(&r->sum[i], r->row) >= 0;
        *(keeps ? &scan[nscan++] : &add[nadd++]) =
            moves ? with_all_keys(b, &r->sum[i], sum[i]) : sum[i];
    }
    struct uop *loop = close_loop(t, l, add, nadd, scan, nscan);
    nscan = nadd;
    nadd = 0;
    for (int i = 0; i < r->nsum; i++) {
        int row = sum_axis(&r->sum[i], r->row);
        sum[i] = row >= 0 ? joined(t, uop_get(t, loop, nscan++), row) : uop_get(t, loop, nadd++);
        sum[i] = moves ? sum[i] : with_all_keys(b, &r->sum[i], sum[i]);
    }
}

/* The sums of all groups. */
static void all_sums(struct build *b, struct uop **sum)
{
    struct region *r = b->r;
    struct uop *of[GROUPS_MAX + 1][MAX_SUMS], *rows[GROUPS_MAX + 1];
    for (int g = 0; g < b->ngroup; g++)
        group_sums(b, &b->group[g], of[g]);
    for (int i = 0; i < r->nsum; i++) {
        int row = sum_axis(&r->sum[i], r->row);
        sum[i] = of[0][i];
        for (int g = 0; g < b->ngroup; g++) {
            rows[g] = of[g][i];
            if (g > 0 && row < 0)
                sum[i] = uop_binary(b->t, OP_ADD, sum[i], of[g][i]);
        }
        if (row >= 0)
            sum[i] = uop_concat(b->t, rows, b->ngroup, row);
    }
}

/* ---------------------------------------------------------------------------------- the groups */

static int64_t keys_of(struct build *b, int64_t first, int64_t n)
{
    enum { ALIGN = 16 };
    int64_t all = b->r->frame->dim[b->r->key]->arg.i, begin = 0;
    struct uop *at = visible_keys_begin(b->r, &b->visible, uop_int(b->t, first), n);
    (void)uop_const_int(at, &begin);
    int64_t keys = visible_keys_end(b->r, &b->visible, first, n) - begin;
    keys = keys < ALIGN ? ALIGN : (keys + ALIGN - 1) / ALIGN * ALIGN;
    return keys < all ? keys : all;
}

static struct group group_of(struct build *b, int64_t first, int64_t n, int64_t count)
{
    struct group g = {.first = first, .n = n, .count = count};
    for (int64_t i = 0; i < count; i++) {
        int64_t keys = keys_of(b, first + i * n, n);
        g.nkeys = keys > g.nkeys ? keys : g.nkeys;
    }
    return g;
}

/* Divides the blocks into ngroup groups; returns the pairs of a row and a key that they compute. */
static double divide(struct build *b, int64_t n, int64_t count, int64_t ngroup)
{
    double pairs = 0;
    b->ngroup = 0;
    for (int64_t i = 0; i < ngroup; i++) {
        int64_t from = count * i / ngroup, to = count * (i + 1) / ngroup;
        struct group g = group_of(b, from * n, n, to - from);
        pairs += (double)g.nkeys * (double)(n * (to - from));
        VEC_PUSH(b->t, b->group, b->ngroup, b->cap_group, g);
    }
    return pairs;
}

/* As many groups as leave out a part of the keys each. */
static void choose_groups(struct build *b, int64_t n)
{
    const double gain = 0.95;
    int64_t all = b->r->frame->dim[b->r->row]->arg.i, count = all / n, ngroup = 1;
    double pairs = divide(b, n, count, 1);
    for (int64_t more = 2; more <= GROUPS_MAX && more <= count; more *= 2) {
        double now = divide(b, n, count, more);
        if (now > gain * pairs)
            break;
        pairs = now;
        ngroup = more;
    }
    divide(b, n, count, ngroup);
    if (all % n > 0) {
        struct group rest = group_of(b, count * n, all % n, 1);
        VEC_PUSH(b->t, b->group, b->ngroup, b->cap_group, rest);
    }
}

int64_t region_block_rows(const struct region *r)
{
    enum { LEAST = 16, MOST = 256, MULTIPLE = 8, CACHES = 2 };
    double row = 4, most = CACHES * cost_cache_nbytes(r->t);
    int64_t all = r->frame->dim[r->row]->arg.i, n = MOST, best = 0;
    for (int a = 0; a < r->frame->ndim; a++)
        if (a != r->row && !(r->batch >> a & 1))
            row *= dim_extent(r->frame->dim[a]);
    while (n > LEAST && row * (double)n > most)
        n /= 2;
    for (int64_t d = n / 2; d < 2 * n; d += MULTIPLE)        /* which leaves nothing over */
        if (all % d == 0 && (best == 0 || llabs(d - n) < llabs(best - n)))
            best = d;
    return best > 0 ? best : n;
}

/* ------------------------------------------------------------------------------ the outer loop */

/* x[iterations, ..] of the outer loop, with the batch's axes where the sum has them. */
static struct uop *with_batch(const struct build *b, const struct region_sum *s, struct uop *x)
{
    struct tgc *t = b->t;
    struct uop *dim[MAX_RANK];
    int perm[MAX_RANK], n = b->nbatch, of[MAX_RANK];
    for (int i = 0; i < b->nbatch; i++)
        dim[i] = b->r->frame->dim[b->batch[i]];
    for (int a = 0; a < s->sum->ndim; a++) {
        of[a] = -1;
        for (int i = 0; i < b->nbatch; i++)
            of[a] = sum_axis(s, b->batch[i]) == a ? i : of[a];
        if (of[a] < 0) {
            dim[n] = s->sum->dim[a];
            of[a] = n++;
        }
    }
    memcpy(perm, of, sizeof perm);
    x = uop_permute(t, uop_reshape(t, x, dim, n), perm);
    return uop_reshape(t, x, s->sum->dim, s->sum->ndim);
}

void region_build(struct region *r, int64_t nrows, struct uop **result)
{
    struct tgc *t = r->t;
    struct build b = {.r = r, .t = t};
    struct uop *trip = uop_int(t, 1);
    visible_keys_find(r, &b.visible);
    choose_groups(&b, nrows);
    for (int a = 0; a < r->frame->ndim && !device_has_grid(t); a++)
        if ((r->batch >> a & 1) && !uop_is_int(r->frame->dim[a], 1)) {
            b.batch[b.nbatch++] = a;
            trip = sym_mul(t, trip, r->frame->dim[a]);
        }
    if (b.nbatch == 0) {
        all_sums(&b, result);
        return;
    }
    struct loop *l = new_loop(t, trip);
    struct uop *at = uop_var(t, l->counter);
    for (int i = b.nbatch - 1; i >= 0; i--) {
        struct uop *n = r->frame->dim[b.batch[i]];
        b.part[b.batch[i]] = (struct part){i > 0 ? sym_mod(t, at, n) : at, uop_int(t, 1)};
        at = sym_div(t, at, n);
    }
    all_sums(&b, result);
    struct uop *loop = close_loop(t, l, NULL, 0, result, r->nsum);
    for (int i = 0; i < r->nsum; i++)
        result[i] = with_batch(&b, &r->sum[i], uop_get(t, loop, i));
}
