/* scopes.c - which values of an expanded program are computed, and where they are known: from where
 * a value is computed to the end of the loop or guard around it. What is asked for again is not
 * computed again; a load is, once a store may have changed what it reads.
 */
#include "passes/vector/expand.h"

void expand_push(struct expander *e, struct uop *u)
{
    SCRATCH_PUSH(e->t, e->out, e->nout, e->cap, u);
}

void scopes_enter(struct scopes *s) { SCRATCH_PUSH(s->known.t, s->u, s->n, s->cap, NULL); }

void scopes_leave(struct scopes *s)
{
    while (s->n > 0 && s->u[--s->n])
        map_set(&s->known, s->u[s->n], NULL);
}

void scopes_learn(struct scopes *s, struct uop *u)
{
    map_set(&s->known, u, u);
    SCRATCH_PUSH(s->known.t, s->u, s->n, s->cap, u);
}

void scopes_forget_loads(struct scopes *s, const struct uop *place)
{
    for (int i = 0; i < s->n; i++)
        if (s->u[i] && (s->u[i]->op == OP_LOAD || s->u[i]->op == OP_GATHER) &&
            s->u[i]->src[0] == place)
            map_set(&s->known, s->u[i], NULL);
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
