/* join_stores.c - what a thread stores to neighbours, element by element, is kept in registers, and stored by one
 * transaction.
 *
 *      for e < 2                                for e < 2
 *          y[i*n + 2*j + e] = f(sum[e])             part[e] = f(sum[e])
 *                                               y[i*n + 2*j ..2] = part[0]
 *
 * These are the innermost lanes of a tile, of a fragment's elements above all (ir/matrix.def), as far as they are 4, 8
 * or 16 bytes at a multiple of that, which the offset's form says (index_divisor()). A condition around the store has to
 * hold for all of them or for none. The last pass of a device's kernels but for widths: no other one reads PUT.
 */
#include "passes/analysis/copied.h"
#include "passes/kernel/tile.h"
#include "passes/target/target.h"
#include "passes/vector/expand.h"

enum { KINDS_MAX = 8 };

struct joining {
    struct expander *e;
    struct kernel *k;
    struct uop *part[KINDS_MAX]; int npart;
    bool changed;
};

/* A loop that does nothing but store: what goes where in its first turn, and under which condition. */
struct row { int begin, end; const struct uop *store; struct uop *at, *guard, *valid; int64_t n; };

/* The only store of the loop at `begin`, and the only condition, around it. */
static bool find_store(const struct expander *e, struct row *r)
{
    for (int i = r->begin + 1; i < r->end; i++) {
        struct uop *u = e->in[i];
        if (u->op == OP_STORE && !r->store && u->src[2]->lanes == 1)
            r->store = u;
        else if (u->op == OP_GUARD && !r->guard)
            r->guard = u;
        else if (u->op == OP_STORE || (!op_is_elementwise(u->op) && u->op != OP_LOAD && u->op != OP_ENDGUARD))
            return false;
        else if (r->guard && u->op == OP_ENDGUARD && !r->store)
            return false;
    }
    return r->store != NULL;
}

static bool nbytes_fit(const struct tgc *t, const struct buffer *b, int64_t n)
{
    int64_t nbytes = n * (int64_t)dtype_nbytes(b->dtype);
    return n > 1 && dtype_bits(b->dtype) == 8 * (int)dtype_nbytes(b->dtype) && nbytes >= COPY_NBYTES_LEAST &&
           !(nbytes & (nbytes - 1)) && device_stores(t, nbytes);
}

static bool find_row(const struct expander *e, int at, struct row *r)
{
    struct tgc *t = e->t;
    struct uop *lane = e->in[at];
    int64_t stride;
    if (lane->op != OP_RANGE || !range_is_lane(lane) || lane->src[0]->op != OP_CONST)
        return false;
    *r = (struct row){.begin = at, .end = expand_find_end(e, at), .n = range_fixed_size(lane)};
    if (!find_store(e, r))
        return false;
    const struct buffer *b = uop_buffer_of(r->store->src[0]);
    if (b->is_register || !nbytes_fit(t, b, r->n) || !index_stride(t, r->store->src[1], lane, &stride) || stride != 1)
        return false;
    r->at = sym_sub(t, r->store->src[1], lane);
    r->valid = r->guard ? condition_of_first(t, r->guard->src[0], lane, r->n) : NULL;
    return (!r->guard || r->valid) && index_divisor(t, r->at) % r->n == 0 && buffer_is_aligned(t, b, r->n);
}

/* The thread's own n elements of the buffer's dtype; NULL: there are as many kinds of them as may be. */
static struct uop *part_of(struct joining *m, const struct buffer *b, int64_t n)
{
    for (int i = 0; i < m->npart; i++) {
        const struct buffer *part = uop_buffer_of(m->part[i]);
        if (part->dtype == b->dtype && part->dim[0]->arg.i == n)
            return m->part[i];
    }
    if (m->npart == KINDS_MAX)
        return NULL;
    struct buffer *part = kernel_new_scratch(m->e->t, m->k, b->dtype, n);
    part->is_register = part->is_own = true;
    part->nbytes = (size_t)n * dtype_nbytes(b->dtype);
    return m->part[m->npart++] = uop_buffer(m->e->t, part);
}

static void put_row(struct joining *m, const struct row *r, struct uop *part)
{
    struct expander *e = m->e;
    struct uop *guard = NULL, *src[4] = {part, e->in[r->begin], r->store->src[2]};
    expand_need(e, r->at);
    if (r->guard) {
        expand_need(e, r->valid);
        guard = uop_intern(e->t, OP_GUARD, r->guard->dtype, &r->valid, 1, r->guard->arg);
        expand_copy(e, guard);
    }
    for (int i = r->begin; i <= r->end; i++) {
        struct uop *u = e->in[i];
        if (u == r->store)
            expand_copy(e, uop_intern(e->t, OP_STORE, u->dtype, src, 3, (union arg){0}));
        else if (u != r->guard && u->op != OP_ENDGUARD)
            expand_copy(e, u);
    }
    struct uop *put[4] = {r->store->src[0], r->at, part, uop_int(e->t, 0)};
    expand_copy(e, uop_intern(e->t, OP_PUT, DTYPE_VOID, put, 4, (union arg){.i = r->n}));
    if (guard)
        expand_copy(e, uop_intern(e->t, OP_ENDGUARD, DTYPE_VOID, &guard, 1, (union arg){0}));
    m->changed = true;
}

static void join_program(struct tgc *t, struct kernel *k, struct uop ***linear, int *nlinear)
{
    struct mem_mark mark = scratch_mark(t);
    struct expander *e = scratch_array(t, 1, sizeof *e);
    *e = (struct expander){.t = t, .in = *linear, .nin = *nlinear};
    e->scopes.known = (struct uop_map){.t = t, .scratch = true};
    struct joining m = {.e = e, .k = k};
    for (int i = 0; i < e->nin; i++) {
        struct row r;
        struct uop *part = find_row(e, i, &r) ? part_of(&m, uop_buffer_of(r.store->src[0]), r.n) : NULL;
        if (part) {
            put_row(&m, &r, part);
            i = r.end;
        } else {
            expand_copy(e, e->in[i]);
        }
    }
    if (m.changed) {
        *linear = mem_copy(t, e->out, (size_t)e->nout * sizeof *e->out);
        *nlinear = e->nout;
    }
    scratch_release(t, mark);
}

bool pass_join_stores(struct tgc *t, struct schedule *s, struct kernel *k)
{
    (void)s;
    if (!device_stores(t, COPY_NBYTES_LEAST))
        return true;
    join_program(t, k, &k->linear, &k->nlinear);
    for (int i = 0; i < k->nvariant; i++)
        join_program(t, k, &k->variant[i].linear, &k->variant[i].nlinear);
    return true;
}
