/* linear_barriers.c - which shared memory a block's threads have accessed since their last barrier:
 * conflicting stores need another one.
 *
 *      t = ...                 barrier, since t is read
 *      u = f(t)                none: v is other memory, and u is read by those who stored it
 *      v = g(t)                barrier, since t is stored again
 *      t = ...
 *
 * Memory counts as a whole. A store's staged copies both store and read; their own barriers are not
 * counted. */
#include "passes/analysis/linear.h"

static const struct buffer *local_of(const struct uop *u)
{
    bool memory = u->op == OP_LOAD || u->op == OP_STORE;
    const struct uop *of = memory ? u->src[0] : u->op == OP_STAGE ? u : NULL;
    const struct buffer *b = of ? uop_buffer_of(of) : NULL;
    return b && buffer_space(b) == SPACE_SHARED ? b : NULL;
}

static bool is_noted(const struct passed *p, const struct buffer *b, bool stored)
{
    for (int i = 0; i < p->n; i++)
        if (p->v[i].buffer == b && (p->v[i].stored || !stored))
            return true;
    return false;
}

bool passed_meets(struct tgc *t, const struct passed *p, struct uop *const *store, int nstore)
{
    int n;
    struct uop **order = uop_toposort(t, store, nstore, &n);
    for (int i = 0; i < n; i++) {
        const struct buffer *b = local_of(order[i]);
        if (b && is_noted(p, b, order[i]->op == OP_LOAD))
            return true;
    }
    return false;
}

void passed_note(struct tgc *t, struct passed *p, struct uop *const *store, int nstore)
{
    int n;
    struct uop **order = uop_toposort(t, store, nstore, &n);
    for (int i = 0; i < n; i++) {
        const struct buffer *b = local_of(order[i]);
        struct passed_buffer of = {b, order[i]->op != OP_LOAD};
        if (b && !is_noted(p, b, of.stored))
            SCRATCH_PUSH(t, p->v, p->n, p->cap, of);
    }
}
