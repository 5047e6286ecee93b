/* realize.c - gives a node's value a buffer and the segments that fill it, or scratch that is
 * filled once per iteration of some ranges. A concat, a padded tensor and a scatter have several
 * segments. */
#include "passes/plan/fuse.h"

enum { STAGE_NELEM = 1 << 14 };

void segment_note_contraction(struct plan *p, struct segment *s, const struct uop *v)
{
    s->streams |= value_streams_weight(machine_of(p->t), v);
    if (value_is_contraction(v)) {
        s->ncontraction++;
        s->weighted |= value_contracts_weight(v);
    }
}

bool segment_is_plain(const struct segment *s)
{
    return !s->lead && !s->start && !s->scatter && !s->next && !s->absorbed;
}

/* Parts of one buffer: CONCAT's sources, SCATTER's base and updates. The first segment represents
 * the kernel. */
static void realize_concat(struct plan *p, struct node *n, struct block *b, struct buffer *dest)
{
    struct uop *v = n->u, *start = uop_int(p->t, 0);
    struct segment *prev = NULL;
    int axis = (int)v->arg.i;
    for (int k = 0; k < v->nsrc; k++) {
        struct segment *s = plan_segment(p, b, n->pos, v->src[k], dest);
        s->start = mem_array(p->t, (size_t)v->ndim, sizeof *s->start);
        for (int a = 0; a < v->ndim; a++)
            s->start[a] = a == axis ? start : uop_int(p->t, 0);
        start = sym_add(p->t, start, v->src[k]->dim[axis]);
        s->absorbed = prev != NULL;
        if (prev)
            prev->next = s;
        prev = s;
        plan_use_root(p, s);
    }
}

/* The border before or after axis a: along earlier axes as wide as the source, along later ones as
 * the whole. NULL: there is none. */
static struct segment *border_along(struct plan *p, struct node *n, struct block *b,
                                    struct buffer *dest, int a, bool behind)
{
    struct uop *v = n->u, *dim[MAX_RANK], **start;
    if (uop_is_int(v->src[2 + 2 * a + behind], 0))
        return NULL;
    start = mem_array(p->t, (size_t)v->ndim, sizeof *start);
    for (int k = 0; k < v->ndim; k++) {
        start[k] = k < a ? v->src[2 + 2 * k] : uop_int(p->t, 0);
        dim[k] = k < a ? v->src[0]->dim[k] : v->dim[k];
    }
    dim[a] = v->src[2 + 2 * a + behind];
    if (behind)
        start[a] = sym_add(p->t, v->src[2 + 2 * a], v->src[0]->dim[a]);
    struct segment *s =
        plan_segment(p, b, n->pos, tensor_full(p->t, v->src[1], dim, v->ndim), dest);
    s->start = start;
    return s;
}

/* A halo: a border around the source. So a convolution's inner loops need no conditions, and the
 * producer of its input stores into the padded buffer directly. */
static void realize_pad(struct plan *p, struct node *n, struct block *b, struct buffer *dest)
{
    struct uop *v = n->u;
    struct segment *last = NULL;
    for (int k = 0; k < 2 * v->ndim; k++) {
        struct segment *s = border_along(p, n, b, dest, k / 2, k % 2);
        if (s && last)
            last->next = s;
        if (s)
            s->absorbed = last != NULL;
        last = s ? s : last;
    }
    struct segment *inside = plan_segment(p, b, n->pos, v->src[0], dest);
    inside->start = mem_array(p->t, (size_t)v->ndim, sizeof *inside->start);
    for (int a = 0; a < v->ndim; a++)
        inside->start[a] = v->src[2 + 2 * a];
    inside->absorbed = last != NULL;
    if (last)
        last->next = inside;
    plan_use_root(p, inside);
}

struct segment *plan_update(struct plan *p, struct block *b, int pos, struct uop *v,
                            struct buffer *dest)
{
    struct segment *update = plan_segment(p, b, pos, v->src[1], dest);
    update->scatter = v;
    plan_use_root(p, update);
    for (int k = 2; k < v->nsrc; k++)
        plan_add_use(p, v->src[k], update, update->axis, update->out);
    return update;
}

static void realize_scatter(struct plan *p, struct node *n, struct block *b, struct buffer *dest)
{
    struct segment *base = plan_segment(p, b, n->pos, n->u->src[0], dest);
    plan_use_root(p, base);
    base->next = plan_update(p, b, n->pos, n->u, dest);
    base->next->absorbed = true;
}

/* A reduction's buffer lacks the reduced axes, of size 1. */
static struct buffer *new_temp(struct plan *p, const struct uop *v)
{
    struct uop *dim[MAX_RANK] = {0};
    int n = 0;
    for (int a = 0; a < v->ndim; a++)
        if (v->op != OP_REDUCE || !(REDUCE_AXES(v->arg.i) >> a & 1))
            dim[n++] = v->dim[a];
    return buffer_new(p->t, BUFFER_TEMP, v->dtype, dim, n, NULL);
}

bool node_has_one_segment(const struct node *n)
{
    for (const struct use *u = n->use; u; u = u->next)
        if (u->seg != n->use->seg)
            return false;
    return true;
}

/* Whether the memory to which the segment stores n's value becomes the value's buffer for its other
 * uses. A loop's state holds the first value only until the first iteration ends, a verdict that
 * of earlier runs, too. */
static bool may_own(const struct node *n, const struct use *u)
{
    const struct buffer *dest = u->seg->dest;
    return u->root && segment_is_plain(u->seg) && u->seg->block == n->block &&
           ((dest->kind != BUFFER_STATE && !dest->is_verdict) ||
            (node_has_one_segment(n) && !n->must));
}

void plan_realize(struct plan *p, struct node *n)
{
    struct uop *v = n->u;
    struct segment *own = NULL;
    for (struct use *u = n->use; u && !own; u = u->next)
        if (may_own(n, u))
            own = u->seg;
    bool halo = v->op == OP_PAD && v->src[1]->op == OP_CONST,
         parts = halo || v->op == OP_CONCAT || v->op == OP_SCATTER;
    struct buffer *dest = own ? own->dest : new_temp(p, v);
    n->buffer = dest;
    dest->why = n->why;
    n->is_private = !own && !n->must;
    if (parts) {
        if (own)
            own->value = NULL;                        /* its parts replace it */
        if (v->op == OP_CONCAT)
            realize_concat(p, n, n->block, dest);
        else if (halo)
            realize_pad(p, n, n->block, dest);
        else
            realize_scatter(p, n, n->block, dest);
        return;
    }
    if (!own)
        own = plan_segment(p, n->block, n->pos, v, dest);
    own->pos = n->pos;
    own->own = true;
    struct use *self = plan_find_use(n, own, own->axis);
    if (!self)
        self = plan_add_use(p, v, own, own->axis, own->out);
    self->root = true;
    segment_add_prefix(own, own->out);
    segment_note_contraction(p, own, v);
    plan_push_sources(p, v, own, own->axis, own->out, self);
}

/* -------------------------------------------------------------------------------------- staging */

/* Under a stage a contraction's operands are read again in every iteration of the prefix:
 * acceptable for the keys of one attention head, not for a layer's weights, nor for too few
 * elements to make a vector. `c` is NULL if no contraction is under the stage; `most`: bytes that
 * an iteration may read. */
static bool stage_suits(const struct machine *m, const struct segment *s, const struct uop *c,
                        range_set prefix, double nlocal, bool columns, double most)
{
    if (!c)
        return true;
    if (nlocal < m->flop_lanes && value_nelem(c->src[0]) >= RATIO_STAGE_STEPS * value_nelem(c))
        return false;
    double footprint = value_nelem(c->src[0]) / segment_extent(s, prefix) *
                       (double)dtype_nbytes(c->dtype);
    return prefix && !columns && footprint <= most;
}

/* A device's blocks keep rows of scores and of their exponentials in shared memory, with what their
 * sums need; without shared memory, each of its threads keeps them on its stack. */
double plan_most_staged(const struct tgc *t)
{
    double floats = t->no_locals         ? STACK_SCRATCH_NBYTES / 4
                    : device_has_grid(t) ? (double)device_local_nbytes(t) / 12
                                         : STAGE_NELEM;
    return floats < STAGE_NELEM ? floats : STAGE_NELEM;
}

bool plan_stage(struct plan *p, struct node *n)
{
    struct uop *v = n->u;
    struct segment *s = n->use->seg;
    struct stage st = {0};
    bool local[MAX_RANK];
    double nlocal = 1;
    const struct uop *rows = NULL;
    int nloop = 0;
    if (segment_is_full(s) || n->use->root)
        return false;
    for (int a = 0; a < v->ndim; a++) {
        local[a] = (plan_mask(p, n->use->index[a]) & s->inner) != 0;
        for (const struct use *u = n->use->next; u; u = u->next)
            local[a] |= u->index[a] != n->use->index[a];
        nloop += local[a] && !uop_is_int(v->dim[a], 1);
        if (local[a])
            nlocal *= dim_extent(v->dim[a]);
        else
            st.prefix |= plan_mask(p, n->use->index[a]);
        if (!local[a] && !uop_is_int(v->dim[a], 1))
            rows = v->dim[a];
    }
    double evaluations = segment_extent(s, st.prefix) * nlocal;
    if (nloop > 1 && device_has_grid(p->t))           /* a block's threads share rows alone */
        return false;
    if ((nlocal > plan_most_staged(p->t) && !n->online) || evaluations > 1.01 * value_nelem(v) ||
        !segment_accepts(s, st.prefix))
        return false;
    /* under a value that is normalized by its row, the row's producer has several uses and is
     * decided on its own */
    const struct uop *c = value_has_row_stat(p, v) ? NULL : value_contraction(p, v);
    /* a value that is read once, or not reduced any further, as an image that is normalized, stays
     * a layer: stages are for a softmax before a product */
    bool columns = c && value_contracts_weight(c) &&
                   (s->ncontraction == 0 || n->nconsumer < 2 ||
                    value_keeps_columns(p, v, c, local));
    double nbytes = (double)dtype_nbytes(v->dtype);
    bool near = plan_stays_near(p->t, value_nelem(v) * nbytes, rows, nlocal * nbytes);
    const struct machine *m = machine_of(p->t);
    double most = cost_fit(m, near ? FIT_OPERAND : FIT_STAGE_MOST);
    if ((!n->online && !stage_suits(m, s, c, st.prefix, nlocal, columns, most)) ||
        (v->op == OP_REDUCE && st.prefix == 0))
        return false;
    s->online |= n->online;
    struct uop *dim[MAX_RANK];
    range_set open = st.prefix;
    int nd = 0;
    for (int a = 0; a < v->ndim; a++) {
        st.index[a] = local[a] ? segment_new_range(p, s, v->dim[a], true) : n->use->index[a];
        st.range[a] = local[a] ? st.index[a] : NULL;
        if (local[a]) {
            dim[nd++] = v->dim[a];
            open |= plan_mask(p, st.index[a]);
            s->staged |= plan_mask(p, st.index[a]);
        }
    }
    st.scratch = buffer_new(p->t, BUFFER_SCRATCH, v->dtype, dim, nd, NULL);
    struct stage *kept = mem_copy(p->t, &st, sizeof st);
    for (struct use *u = n->use; u; u = u->next)
        u->stage = kept;
    segment_add_prefix(s, st.prefix);
    struct use *self = plan_find_use(n, s, st.index);
    if (!self) {
        self = plan_add_use(p, v, s, st.index, open);
        self->stage = kept;
    }
    plan_push_sources(p, v, s, st.index, open, self);
    return true;
}
