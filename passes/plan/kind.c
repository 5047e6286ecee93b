/* kind.c - classifies values of a plan for fusion: whether they are epilogues of layers, normalized
 * rows, parts that are joined. Each question visits only a few ops below the value.
 */
#include "passes/plan/fuse.h"
#include "passes/analysis/contraction.h"
#include "passes/analysis/access.h"

#include <string.h>

bool value_has_row_stat(struct plan *p, struct uop *v)
{
    struct uop *stack[64];
    int n = 0, steps = 0;
    bool expanded[64];
    stack[n] = v;
    expanded[n++] = false;
    while (n && steps++ < 64) {
        struct uop *u = stack[--n];
        bool e = expanded[n];
        if (u->op == OP_REDUCE && e)
            return true;
        if (u->op == OP_REDUCE || value_is_leaf(u) || plan_node(p, u)->buffer)
            continue;
        int nsrc = op_class(u->op) == CLASS_MOVE ? u->op != OP_IOTA
                   : op_is_pointwise(u->op)      ? u->nsrc
                                                 : 0;
        for (int k = 0; k < nsrc && n < 63; k++) {
            stack[n] = u->src[k];
            expanded[n++] = e || u->op == OP_EXPAND;
        }
    }
    return false;
}

/* The value that passes the test and of which v is an epilogue: below v through elementwise ops and
 * moves, through EXPAND and values with other consumers only if asked for. NULL: none. */
enum through { THROUGH_EXPAND = 1, THROUGH_SHARED = 2 };
static const struct uop *find_below(struct plan *p, const struct uop *v, int through,
                                    bool (*test)(const struct uop *v))
{
    const struct uop *stack[32];
    int n = 0;
    stack[n++] = v;
    for (int steps = 0; n && steps < 64; steps++) {
        const struct uop *u = stack[--n];
        if (test(u))
            return u;
        if ((u->op == OP_EXPAND && !(through & THROUGH_EXPAND)) || value_is_leaf(u) ||
            u->op == OP_IOTA || plan_node(p, u)->must ||
            (u != v && plan_node(p, u)->nconsumer > 1 && !(through & THROUGH_SHARED)))
            continue;
        int nsrc = op_is_pointwise(u->op) ? u->nsrc
                                          : op_class(u->op) == CLASS_MOVE && u->op != OP_CONCAT;
        for (int k = 0; k < nsrc && n < 32; k++)
            stack[n++] = u->src[k];
    }
    return NULL;
}

const struct uop *value_contraction(struct plan *p, const struct uop *v)
{
    return find_below(p, v, 0, value_is_contraction);
}

static bool is_reduction(const struct uop *v) { return v->op == OP_REDUCE; }

/* A value below v, and its coordinates as expressions of v's axes. */
struct below { const struct uop *u; struct uop *at[MAX_RANK]; };

static void step_down(struct tgc *t, struct below *b)
{
    struct uop *at[MAX_RANK], *valid;
    if (op_class(b->u->op) == CLASS_MOVE) {
        move_index(t, b->u, 0, b->at, at, &valid);
        memcpy(b->at, at, sizeof at);
    }
    b->u = b->u->src[0];
}

/* Walks from v, whose coordinates are in b, down to c, on the path that find_below() took. */
static bool go_to(struct plan *p, struct below *b, const struct uop *c)
{
    struct below stack[32];
    int n = 0;
    stack[n++] = *b;
    for (int steps = 0; n && steps < 64; steps++) {
        *b = stack[--n];
        if (b->u == c)
            return true;
        if (value_is_leaf(b->u) || b->u->op == OP_IOTA || b->u->op == OP_CONCAT)
            continue;
        if (op_class(b->u->op) == CLASS_MOVE) {
            stack[n] = *b;
            step_down(p->t, &stack[n++]);
        }
        for (int k = 0; op_is_pointwise(b->u->op) && k < b->u->nsrc && n < 32; k++) {
            stack[n] = *b;
            stack[n++].u = b->u->src[k];
        }
    }
    return false;
}

bool value_keeps_columns(struct plan *p, struct uop *v, const struct uop *c, const bool *kept)
{
    struct tgc *t = p->t;
    struct uop *range[MAX_RANK] = {0};
    struct below sum = {.u = v};
    if (!value_contracts_weight(c))
        return false;
    for (int a = 0; a < v->ndim; a++)
        sum.at[a] = range[a] = uop_range(t, v->dim[a], t->next_range++);
    if (!go_to(p, &sum, c))
        return true;
    for (int a = 0; a < c->ndim; a++)
        if (REDUCE_AXES(c->arg.i) >> a & 1)
            sum.at[a] = uop_int(t, 0);
    for (step_down(t, &sum); sum.u->op != OP_MUL;)
        step_down(t, &sum);
    for (int k = 0; k < 2; k++) {
        struct below w = sum;
        w.u = sum.u->src[k];
        if (!value_is_stationary(value_behind(w.u, MOVES_OPERAND)))
            continue;
        for (const struct uop *base = value_behind(w.u, MOVES_OPERAND); w.u != base;)
            step_down(t, &w);
        for (int a = 0; a < v->ndim; a++)
            for (int i = 0; kept[a] && i < w.u->ndim; i++)
                if (uop_depends_on(t, w.at[i], range[a]))
                    return true;
    }
    return false;
}

bool value_has_column_stat(struct plan *p, const struct uop *v, double rows)
{
    bool kept[MAX_RANK], reduced[MAX_RANK];
    const struct uop *stat = find_below(p, v, THROUGH_SHARED, is_reduction);
    if (!stat || value_is_contraction(stat) || REDUCE_OP(stat->arg.i) != OP_ADD ||
        value_has_row_stat(p, stat->src[0]) ||
        value_nelem(stat->src[0]) <= rows * value_nelem(stat))
        return false;
    const struct uop *c = find_below(p, stat->src[0], THROUGH_SHARED, value_is_contraction);
    if (!c || !value_contracts_weight(c))
        return false;
    for (int a = 0; a < stat->ndim; a++) {
        reduced[a] = REDUCE_AXES(stat->arg.i) >> a & 1;
        kept[a] = !reduced[a] && dim_extent(stat->dim[a]) >= COLUMNS_MIN;
    }
    return value_keeps_columns(p, stat->src[0], c, kept) &&
           !value_keeps_columns(p, stat->src[0], c, reduced);
}

static bool takes_long(const struct uop *v)
{
    return v->op == OP_REDUCE || cost_class_of(v->op) >= COST_DIVISION;
}

bool value_takes_long(struct plan *p, const struct uop *v)
{
    return find_below(p, v, THROUGH_EXPAND, takes_long) != NULL;
}

static bool is_join(const struct uop *v) { return v->op == OP_STACK; }

bool value_joins_parts(struct plan *p, const struct uop *v)
{
    return find_below(p, v, 0, is_join) != NULL;
}
