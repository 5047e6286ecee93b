/* online_parts.c - the parts of attention in a kernel's AST: scores, exponentials and the sums over
 * them, queries, keys and values.
 */
#include "passes/kernel/online_softmax.h"
#include "passes/analysis/contraction.h"
#include "passes/analysis/softmax.h"
#include "passes/kernel/tile.h"

#include <math.h>

enum { PLACES_MAX = 1 << 24 };   /* coordinates that are exact as floats */

static struct uop *stage_of(struct uop *load)
{
    return load->op == OP_LOAD && load->nsrc == 2 && load->src[0]->op == OP_STAGE ? load->src[0]
                                                                                  : NULL;
}

/* A stage that holds a row, element by element. */
static bool is_row(const struct uop *stage)
{
    return stage && stage->nsrc == 3 && stage->src[1] == stage->src[2] &&
           stage->dtype == DTYPE_F32;
}

static bool find_power(struct online *x, struct uop *const *order, int n)
{
    for (int i = 0; i < n; i++) {
        struct uop *u = order[i];
        struct softmax s;
        if (u->op != OP_STAGE || !is_row(u) || !softmax_match(u->src[0], &s) || s.most->nsrc != 2)
            continue;
        struct uop *scores = stage_of(s.from), *top = s.most;
        if (!is_row(scores) || s.from->src[1] != u->src[1] || stage_of(top->src[0]) != scores ||
            top->src[0]->src[1] != top->src[1])
            continue;
        x->power = u;
        x->exp = s.exp;
        x->scale = s.scale;
        x->scores = scores;
        x->most = top;
        x->key = scores->src[1];
        x->nkey = x->key->src[0];
        return true;
    }
    return false;
}

/* The sums over the exponentials. */
static bool find_sums(struct online *x, struct uop *const *order, int n)
{
    for (int i = 0; i < n; i++) {
        struct uop *u = order[i];
        const struct uop *product = summed_product(u);
        if (u->op != OP_REDUCE || REDUCE_OP(u->arg.i) != OP_ADD || u->nsrc != 2)
            continue;
        if (stage_of(u->src[0]) == x->power && u->src[0]->src[1] == u->src[1])
            x->sum = u;
        for (int k = 0; k < 2 && product; k++) {
            struct uop *p = product->src[k];
            while (p->op == OP_CAST)
                p = p->src[0];
            if (stage_of(p) != x->power || p->src[1] != u->src[1])
                continue;
            if (x->product && x->product != u)
                return false;
            x->product = u;
            x->values = product->src[1 - k];
            x->weight = product->src[k];
            x->read = p;
        }
    }
    return x->sum && x->product && x->sum->src[1]->src[0] == x->nkey &&
           x->product->src[1]->src[0] == x->nkey && x->power->src[1]->src[0] == x->nkey &&
           x->most->src[1]->src[0] == x->nkey;
}

/* Whether the stages have no readers but these sums, and there are no other stages. */
static bool reads_are_known(const struct online *x, struct uop *const *order, int n)
{
    for (int i = 0; i < n; i++) {
        const struct uop *u = order[i];
        if (u->op == OP_STAGE && u != x->power && u != x->scores)
            return false;
        for (int k = 0; k < u->nsrc; k++) {
            const struct uop *s = stage_of(u->src[k]);
            bool known = u == x->sum || u == x->most || u == x->product->src[0] ||
                         u == x->exp->src[0];
            for (const struct uop *cast = x->weight; cast != x->read; cast = cast->src[0])
                known |= u == cast;
            if (s && !known)
                return false;
        }
    }
    return true;
}

/* The factors of a score: one depends on the query, one on the key. */
static bool find_factors(struct online *x)
{
    struct tgc *t = x->t;
    int n;
    struct uop **order = nest_order(t, x->scores->src[0], &n);
    for (int i = 0; i < n; i++) {
        if (order[i]->op != OP_REDUCE)
            continue;
        if (x->dot || !summed_product(order[i]) || order[i]->nsrc != 2 ||
            order[i]->src[1]->src[0]->op != OP_CONST)
            return false;
        x->dot = order[i];
    }
    if (!x->dot)
        return false;
    for (int k = 0; k < 2; k++)
        if (uop_depends_on(t, x->dot->src[0]->src[k], x->key)) {
            if (x->keys)
                return false;
            x->keys = x->dot->src[0]->src[k];
            x->query = x->dot->src[0]->src[1 - k];
        }
    return x->keys != NULL;
}

/* The store's range of queries, on which keys do not depend: the largest. */
static bool find_row(struct online *x)
{
    struct tgc *t = x->t;
    for (int k = 3; k < x->store->nsrc; k++) {
        struct uop *r = x->store->src[k];
        if (r->op != OP_RANGE)
            return false;
        if (!range_is(r, AXIS_BAND) && uop_depends_on(t, x->query, r) &&
            !uop_depends_on(t, x->keys, r) && !uop_depends_on(t, x->values, r) &&
            (!x->row || r->src[0]->vmax > x->row->src[0]->vmax))
            x->row = r;
    }
    if (!x->row || x->nkey->vmax > PLACES_MAX || x->row->src[0]->vmax > PLACES_MAX)
        return false;
    x->nrow = x->row->src[0];
    return true;
}

bool online_sums(struct online *x)
{
    int n;
    struct uop **order = uop_toposort(x->t, &x->store, 1, &n);
    return x->store->nsrc < MAX_RANK + 3 && find_power(x, order, n) && find_sums(x, order, n) &&
           reads_are_known(x, order, n) && find_factors(x);
}

bool online_parts(struct online *x) { return online_sums(x) && find_row(x); }

/* Whether the stage is a single number or a row of conditions: which keys a row sees, if data
 * determine how many there are. */
static bool is_inlined(struct tgc *t, const struct uop *stage)
{
    if (stage->nsrc == 2)
        return true;
    int n;
    struct uop *value = stage->src[0], **order = uop_toposort(t, &value, 1, &n);
    if (stage->nsrc != 3 || stage->src[1] != stage->src[2] || stage->dtype != DTYPE_BOOL)
        return false;
    for (int i = 0; i < n; i++)
        if (order[i]->op == OP_REDUCE || order[i]->op == OP_STAGE)
            return false;
    return true;
}

struct uop *online_without_conditions(struct tgc *t, struct uop *store)
{
    int n;
    struct uop **order = uop_toposort(t, &store, 1, &n);
    for (int i = 0; i < n; i++) {
        const struct uop *stage = stage_of(order[i]);
        if (!stage || !is_inlined(t, stage))
            continue;
        struct uop *value = stage->nsrc == 2
                                ? stage->src[0]
                                : uop_substitute(t, stage->src[0], stage->src[1], order[i]->src[1]);
        store = uop_substitute(t, store, order[i], value);
        order = uop_toposort(t, &store, 1, &n);
        i = -1;
    }
    return store;
}
