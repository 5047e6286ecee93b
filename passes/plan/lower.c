/* lower.c - from a fused segment of the tensor graph to a kernel AST over ranges.
 *
 * One function, lower(), does most of it: the scalar value of a tensor uop at given coordinates,
 * where `valid` says whether the value is used (false outside the inside of a PAD). Loads under it
 * are gated, so nothing outside a buffer is ever touched. Movement ops disappear into the
 * coordinates, and a REDUCE gets its ranges. A value that fusion staged becomes a LOAD of its
 * STAGE, one that it realized a LOAD of its buffer. Recursion is bounded by the size that fusion
 * allows a segment, not by the model. */
#include "passes/plan/fuse.h"
#include "passes/plan/plan.h"

#include <string.h>

struct lowering { struct plan *p; struct segment *s; };
static struct uop *lower(struct lowering *l, struct uop *v, struct uop *const *index,
                         struct uop *valid);

static struct uop *flat_offset(struct tgc *t, struct uop *const *index, struct uop *const *dim,
                               int n)
{
    struct uop *offset = uop_int(t, 0), *stride = uop_int(t, 1);
    for (int a = n - 1; a >= 0; a--) {
        offset = sym_add(t, offset, sym_mul(t, index[a], stride));
        stride = sym_mul(t, stride, dim[a]);
    }
    return offset;
}

/* Whether a view gives the buffer's layout: that of a band, or one that pitch.c has padded. */
static bool is_placed(const struct buffer *b) { return !buffer_is_stationary(b) && b->storage; }

/* The offset of v in a buffer whose axes may be ordered differently. Axes that a reduction leaves
 * with size 1 are not axes of the buffer. */
static struct uop *offset_in(struct tgc *t, const struct buffer *b, const struct uop *v,
                             struct uop *const *index, struct uop *const *dim, int n)
{
    struct uop *own[MAX_RANK], *at[MAX_RANK];
    int nown = 0;
    if (!b->order.is_set && !is_placed(b))
        return flat_offset(t, index, dim, n);
    for (int a = 0; a < n; a++)
        if (v->op != OP_REDUCE || !(REDUCE_AXES(v->arg.i) >> a & 1))
            own[nown++] = index[a];
    if (nown != b->ndim)
        TGC_BUG(t, "an ordered buffer of rank %d for a value of %d axes", b->ndim, nown);
    if (is_placed(b)) {
        struct uop *offset = b->storage->offset;
        for (int a = 0; a < nown; a++)
            offset = sym_add(t, offset, sym_mul(t, own[a], b->storage->stride[a]));
        return offset;
    }
    struct uop *size[MAX_RANK];
    for (int a = 0; a < nown; a++) {
        at[a] = own[b->order.axis[a]];
        size[a] = b->dim[b->order.axis[a]];
    }
    return flat_offset(t, at, size, nown);
}

static struct uop *make_load(struct tgc *t, struct uop *from, struct uop *offset, struct uop *valid)
{
    if (uop_is_int(valid, 1))
        return uop_new(t, OP_LOAD, from->dtype, (struct uop *[]){from, offset}, 2, (union arg){0});
    struct uop *src[4] = {from, offset, valid, uop_consti(t, from->dtype, 0)};
    return uop_new(t, OP_LOAD, from->dtype, src, 4, (union arg){0});
}

struct buffer *lower_buffer_of(struct plan *p, const struct uop *u)
{
    if (u->op == OP_BUFFER)
        return (struct buffer *)(uintptr_t)u->arg.p;
    const struct node *n = plan_node(p, u);
    return n ? n->buffer : NULL;
}

static struct uop *lower_move(struct lowering *l, struct uop *v, struct uop *const *index,
                              struct uop *valid)
{
    struct uop *at[MAX_RANK], *inside;
    if (v->op == OP_IOTA)
        return index[0];
    move_index(l->p->t, v, 0, index, at, &inside);
    if (v->op != OP_PAD)
        return lower(l, v->src[0], at, valid);
    struct uop *outside = lower(l, v->src[1], NULL, valid);
    if (uop_is_int(inside, 0))
        return outside;
    struct uop *x = lower(l, v->src[0], at, sym_and(l->p->t, valid, inside));
    return uop_is_int(inside, 1) ? x : uop_where(l->p->t, inside, x, outside);
}

static struct uop *lower_reduce(struct lowering *l, struct uop *v, const struct use *u,
                                struct uop *const *index, struct uop *valid)
{
    struct uop *at[MAX_RANK] = {0}, *src[MAX_RANK + 1];
    int n = 1;
    if (!u)
        TGC_BUG(l->p->t, "a reduction without a use");
    for (int a = 0; a < v->ndim; a++) {
        at[a] = u->range[a] ? u->range[a] : index[a];
        if (u->range[a] && u->range[a]->op == OP_RANGE)
            src[n++] = u->range[a];
    }
    src[0] = lower(l, v->src[0], at, valid);
    if (n == 1)
        return src[0];
    return uop_new(l->p->t, OP_REDUCE, v->dtype, src, n,
                   (union arg){.i = ARG_PACK(REDUCE, REDUCE_OP(v->arg.i), 0)});
}

/* x at data-dependent coordinates. Outside x the result is 0 and nothing is read. */
static struct uop *lower_index(struct lowering *l, struct uop *v, struct uop *const *index,
                               struct uop *valid)
{
    struct tgc *t = l->p->t;
    struct uop *at[MAX_RANK], *inside = valid;
    for (int a = 0; a < v->nsrc - 1; a++) {
        at[a] = lower(l, v->src[a + 1], index, valid);
        inside = sym_and(t, inside, uop_not(t, sym_lt(t, at[a], uop_int(t, 0))));
        inside = sym_and(t, inside, sym_lt(t, at[a], v->src[0]->dim[a]));
    }
    struct uop *x = lower(l, v->src[0], at, inside), *zero = uop_consti(t, v->dtype, 0);
    bool gated = x->op == OP_LOAD && x->nsrc == 4 && x->src[2] == inside && x->src[3] == zero;
    /* an invalid load gives 0 by itself; padding's value, a constant or an IOTA do not */
    return gated || uop_is_int(inside, 1) ? x : uop_where(t, inside, x, zero);
}

/* All alternatives are computed: each reads only what it may read. */
static struct uop *lower_stack(struct lowering *l, struct uop *v, struct uop *const *index,
                               struct uop *valid)
{
    struct uop **src = scratch_array(l->p->t, (size_t)v->nsrc, sizeof *src);
    for (int k = 0; k < v->nsrc; k++)
        src[k] = lower(l, v->src[k], index, valid);
    return uop_stack(l->p->t, src[0], src + 1, v->nsrc - 1);
}

static struct uop *compute(struct lowering *l, struct uop *v, const struct use *u,
                           struct uop *const *index, struct uop *valid)
{
    struct uop *src[3];
    switch (op_class(v->op)) {
    case CLASS_MOVE: return lower_move(l, v, index, valid);
    case CLASS_REDUCE: return lower_reduce(l, v, u, index, valid);
    case CLASS_UNARY: case CLASS_BINARY: case CLASS_TERNARY:
        for (int k = 0; k < v->nsrc; k++)
            src[k] = lower(l, v->src[k], index, valid);
        return uop_replace_src(l->p->t, v, src);
    case CLASS_CHOICE: return lower_stack(l, v, index, valid);
    default: break;
    }
    if (v->op == OP_INDEX)
        return lower_index(l, v, index, valid);
    if (v->op == OP_CONTIGUOUS || v->op == OP_AFTER)
        return lower(l, v->src[0], index, valid);
    TGC_BUG(l->p->t, "%s in a kernel", op_name(v->op));
}

/* Under padding a stage may be computed for coordinates outside v: the value is not used, but must
 * be computable. */
static struct uop *stage_inside(struct lowering *l, const struct uop *v, const struct stage *st)
{
    struct tgc *t = l->p->t;
    struct uop *inside = uop_bool(t, true);
    for (int a = 0; a < v->ndim; a++)
        if (!st->range[a]) {
            inside = sym_and(t, inside, uop_not(t, sym_lt(t, st->index[a], uop_int(t, 0))));
            inside = sym_and(t, inside, sym_lt(t, st->index[a], v->dim[a]));
        }
    return inside;
}

static struct uop *load_stage(struct lowering *l, struct uop *v, const struct use *u,
                              struct uop *const *index, struct uop *valid)
{
    struct tgc *t = l->p->t;
    struct stage *st = u->stage;
    struct uop *src[MAX_RANK + 2], *at[MAX_RANK], *own[MAX_RANK];
    int n = 2, na = 0;
    for (int a = 0; a < v->ndim; a++)
        if (st->range[a]) {
            own[na] = st->range[a];
            at[na++] = index[a];
            if (st->range[a]->op == OP_RANGE)
                src[n++] = st->range[a];
        }
    if (!st->value) {
        src[1] = flat_offset(t, own, st->scratch->dim, na);
        const struct use *self = plan_find_use(plan_node(l->p, v), l->s, st->index);
        src[0] = compute(l, v, self, st->index, stage_inside(l, v, st));
        st->value = uop_new(t, OP_STAGE, v->dtype, src, n, (union arg){.p = st->scratch});
    }
    return make_load(t, st->value, flat_offset(t, at, st->scratch->dim, na), valid);
}

/* Loads v from its buffer, or from the one that contains it. */
static struct uop *load_value(struct lowering *l, const struct uop *v, struct uop *const *index,
                              struct uop *valid)
{
    struct tgc *t = l->p->t;
    struct buffer *b = lower_buffer_of(l->p, v);
    struct uop *at[MAX_RANK];
    ARRAY_COPY(at, index, v->ndim);
    for (const struct node *n = plan_node(l->p, v); n && n->within; n = n->within) {
        for (int a = 0; a < v->ndim; a++)
            at[a] = sym_add(t, at[a], n->at[a]);
        v = n->within->u;
    }
    return make_load(t, uop_buffer(t, b), offset_in(t, b, v, at, v->dim, v->ndim), valid);
}

static bool is_empty(const struct uop *v)
{
    for (int a = 0; a < v->ndim; a++)
        if (v->dim[a]->vmax <= 0)
            return true;
    return false;
}

static struct uop *lower(struct lowering *l, struct uop *v, struct uop *const *index,
                         struct uop *valid)
{
    struct tgc *t = l->p->t;
    if (is_empty(v) && v->dtype != DTYPE_STRING)
        /* never used: the coordinates are of no element, nor are those of its sources */
        return uop_consti(t, v->dtype, 0);
    if (v->op == OP_CONST || v->op == OP_VAR)
        return v;
    struct node *n = plan_node(l->p, v);
    struct buffer *b = lower_buffer_of(l->p, v);
    bool own = l->s->own && v == l->s->value && index == l->s->axis;
    if (b && !own)
        return load_value(l, v, index, valid);
    struct use *u = n ? plan_find_use(n, l->s, index) : NULL;
    if (!u)
        /* under an INDEX: movement ops down to a buffer; or the constant of a halo */
        return compute(l, v, NULL, index, valid);
    for (struct lowered *m = u->lowered; m; m = m->next)
        if (m->valid == valid)
            return m->value;
    struct uop *r = u->stage ? load_stage(l, v, u, index, valid) : compute(l, v, u, index, valid);
    if (r->ndim)
        TGC_BUG(t, "lowering left a tensor");
    struct lowered *m = MEM_NEW(t, struct lowered);
    *m = (struct lowered){valid, r, u->lowered};
    u->lowered = m;
    uop_set_origin(t, r, v);
    return r;
}

/* The axis of v that is its buffer's axis a. */
static int axis_of(const struct uop *v, int a)
{
    for (int k = 0; k < v->ndim && v->op == OP_REDUCE; k++)
        if (REDUCE_AXES(v->arg.i) >> k & 1 && k <= a)
            a++;
    return a;
}

/* The ranges in loop order: first those that hoisted values need, then by the order of the axes in
 * the buffer stored to. */
static int loop_order(const struct plan *p, const struct segment *s, struct uop **range)
{
    range_set done = 0;
    int n = 0;
    for (int c = 0; c <= s->nchain; c++) {
        range_set next = (c < s->nchain ? s->chain[c] : s->out) & s->out & ~done;
        for (int a = 0; a < s->dest->ndim && s->dest->order.is_set; a++) {
            struct uop *r = s->axis[axis_of(s->value, s->dest->order.axis[a])];
            uintptr_t bit = (uintptr_t)map_get(&p->bit, r);
            if (!bit || !(next >> (bit - 1) & 1))
                continue;
            range[n++] = r;
            next &= ~((range_set)1 << (bit - 1));
            done |= (range_set)1 << (bit - 1);
        }
        for (int b = 0; b < s->nrange; b++)
            if (next >> b & 1)
                range[n++] = s->range[b];
        done |= next;
    }
    return n;
}

/* at: the coordinates in the buffer. */
static struct uop *dest_offset(struct lowering *l, struct uop **at, struct uop **valid)
{
    struct tgc *t = l->p->t;
    const struct segment *s = l->s;
    int n = 0;
    if (s->lead)
        at[n++] = s->lead;
    for (int a = 0; s->scatter && a < s->dest->ndim; a++) {
        at[n] = lower(l, s->scatter->src[2 + a], s->axis, uop_bool(t, true));
        *valid = sym_and(t, *valid, uop_not(t, sym_lt(t, at[n], uop_int(t, 0))));
        *valid = sym_and(t, *valid, sym_lt(t, at[n], s->dest->dim[a]));
        n++;
    }
    for (int a = 0; !s->scatter && a < s->value->ndim; a++)
        at[n++] = s->start ? sym_add(t, s->axis[a], s->start[a]) : s->axis[a];
    /* a segment may store a reshaped value: the same elements in the same order */
    bool same = s->scatter || s->lead || n == s->dest->ndim;
    return offset_in(t, s->dest, s->value, at, same ? s->dest->dim : s->value->dim, n);
}

/* Replaces loops over axes by the band's part of them, inside the loops over the bands. */
static struct uop *lower_bands(struct tgc *t, const struct segment *s, struct uop *store, int first)
{
    for (int k = s->nband - 1; k >= 0; k--) {
        const struct band *b = &s->band[k];
        struct uop *r = s->axis[b->axis], *by = sym_add(t, b->start, b->inner);
        struct uop *src[MAX_RANGES + 5 + BANDS_MAX];
        int n = 0;
        for (int i = 0; i < store->nsrc; i++) {
            if (i == first)
                src[n++] = b->range;
            if (i < first)
                src[n++] = uop_substitute(t, store->src[i], r, by);
            else if (store->src[i] != r)
                src[n++] = store->src[i];
            else if (b->inner->op == OP_RANGE)
                src[n++] = b->inner;
        }
        store = uop_intern(t, OP_STORE, store->dtype, src, n, (union arg){0});
    }
    return store;
}

/* Whether nothing that the run expects was found otherwise: a state that is updated in place stays
 * what it was if something was. */
static struct uop *all_verdicts(const struct lowering *l)
{
    struct tgc *t = l->p->t;
    const struct schedule *s = l->p->schedule;
    struct uop *all = uop_bool(t, true);
    for (int i = 0; i < s->nverdict; i++)
        all = sym_and(t, all, make_load(t, uop_buffer(t, s->verdict[i]), uop_int(t, 0),
                                        uop_bool(t, true)));
    return all;
}

static struct uop *lower_segment(struct lowering *l)
{
    struct tgc *t = l->p->t;
    struct segment *s = l->s;
    struct uop *src[MAX_RANGES + 4], *at[MAX_RANK], *valid = uop_bool(t, true);
    struct uop *value = lower(l, s->value, s->axis, valid);
    struct uop *offset = dest_offset(l, at, &valid), *dest = uop_buffer(t, s->dest);
    if (s->scatter && s->scatter->arg.i != OP_CONST)
        value = uop_binary(t, (enum op)s->scatter->arg.i, make_load(t, dest, offset, valid), value);
    if (s->scatter && s->dest->port.state)
        valid = sym_and(t, valid, all_verdicts(l));
    if (s->dest->is_verdict)
        value = uop_binary(t, OP_AND, value, make_load(t, dest, offset, valid));
    int n = 0;
    src[n++] = dest;
    src[n++] = offset;
    src[n++] = value;
    if (!uop_is_int(valid, 1))
        src[n++] = valid;
    int first = n;
    n += loop_order(l->p, s, src + n);
    struct uop *store = uop_intern(t, OP_STORE, value->dtype, src, n, (union arg){0});
    return s->scatter && device_has_grid(t) ? plan_order_updates(t, s, at, store)
                                            : lower_bands(t, s, store, first);
}

/* A border that later kernels read. It is stored last: the inside may overlap a dying input row by
 * row, which a border stored before would destroy. */
static bool is_late(const struct segment *s)
{
    return s->start && !s->scatter && s->dest->kind == BUFFER_TEMP &&
           value_behind(s->value, MOVES_OPERAND)->op == OP_CONST;
}

struct uop *lower_kernel(struct plan *p, struct segment *first)
{
    struct uop **store = NULL;
    size_t cap = 0;
    int n = 0;
    for (int late = 0; late < 2; late++)
        for (struct segment *s = first; s; s = s->next) {
            struct lowering l = {p, s};
            struct uop *part[CLIPPED_MAX];
            if (is_late(s) != (late == 1))
                continue;
            int npart = clip_store(p->t, s, lower_segment(&l), part);
            for (int k = 0; k < npart; k++)
                VEC_PUSH(p->t, store, n, cap, part[k]);
        }
    return uop_intern(p->t, OP_SINK, DTYPE_VOID, store, n, (union arg){0});
}

struct uop *lower_trial(struct plan *p, struct segment *first)
{
    struct uop *ast = lower_kernel(p, first);
    for (struct segment *s = first; s; s = s->next)
        for (struct use *u = s->use; u; u = u->next_of_seg) {
            u->lowered = NULL;
            if (u->stage)
                u->stage->value = NULL;
        }
    return ast;
}

struct uop *lower_scalar(struct plan *p, struct uop *u)
{
    struct uop *zero[MAX_RANK];
    for (int a = 0; a < u->ndim; a++)
        zero[a] = uop_int(p->t, 0);
    struct segment none = {0};
    struct lowering l = {p, &none};
    return lower(&l, u, zero, uop_bool(p->t, true));
}
