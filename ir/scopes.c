/* scopes.c - which values a linear program under construction has computed, and may reuse: from
 * where a value is computed to the end of the loop or guard around it. A load is not reused once a
 * store may have changed what it reads.
 */
#include "ir/ir.h"

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
