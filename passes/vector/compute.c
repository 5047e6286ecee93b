/* compute.c - computes a value and its operands in the expanded program, unless they are in scope
 * already (ir/scopes.c).
 */
#include "passes/vector/expand.h"

void expand_push(struct expander *e, struct uop *u)
{
    SCRATCH_PUSH(e->t, e->out, e->nout, e->cap, u);
}

void expand_enter(struct expander *e) { scopes_enter(&e->scopes); }
void expand_leave(struct expander *e) { scopes_leave(&e->scopes); }

static void learn(struct expander *e, struct uop *u)
{
    expand_push(e, u);
    scopes_learn(&e->scopes, u);
}

static bool is_named(const struct uop *u)
{
    return op_class(u->op) == CLASS_LEAF || u->op == OP_RANGE || u->op == OP_ACC ||
           u->op == OP_STAGE;
}

void expand_compute(struct expander *e, struct uop *u)
{
    int n;
    if (is_named(u) || map_get(&e->scopes.known, u))
        return;
    struct uop **order = uop_toposort(e->t, &u, 1, &n);
    bool *wanted = scratch_array(e->t, (size_t)n, sizeof *wanted);
    struct uop_map place = {.t = e->t, .scratch = true};
    for (int i = 0; i < n; i++)
        map_set(&place, order[i], (void *)(uintptr_t)(i + 1));
    wanted[n - 1] = true;
    for (int i = n - 1; i >= 0; i--)
        for (int k = 0; k < order[i]->nsrc && wanted[i]; k++)
            if (!is_named(order[i]->src[k]) && !map_get(&e->scopes.known, order[i]->src[k]))
                wanted[(uintptr_t)map_get(&place, order[i]->src[k]) - 1] = true;
    for (int i = 0; i < n; i++)
        if (wanted[i])
            learn(e, order[i]);
}

void expand_need(struct expander *e, struct uop *u)
{
    if (!e->lazy)
        expand_compute(e, u);
}

void expand_copy(struct expander *e, struct uop *u)
{
    bool opens = u->op == OP_RANGE || u->op == OP_GUARD;
    if (u->op == OP_END || u->op == OP_ENDGUARD)
        expand_leave(e);
    if (opens)
        expand_enter(e);
    if ((u->dtype == DTYPE_INDEX || u->dtype == DTYPE_BOOL) && op_is_elementwise(u->op)) {
        expand_need(e, u);      /* an offset or its condition may have computed it already */
        return;
    }
    expand_push(e, u);
    if (!opens)
        scopes_learn(&e->scopes, u);
}
