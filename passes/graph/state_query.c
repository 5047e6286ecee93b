/* state_query.c - what other passes and the frontend ask of states (state.c): the whole value of an
 * output of which new rows alone are stored, along which axis a buffer grows, and which symbols are
 * lengths or sizes of states.
 */
#include "passes/passes.h"

struct whole {
    const struct graph *g;
    struct uop **value;
};

static struct uop *join_again(struct tgc *t, void *ctx, struct uop *u)
{
    const struct whole *w = ctx;
    const struct buffer *b = u->op == OP_BUFFER ? u->arg.p : NULL;
    if (!b || b->kind != BUFFER_OUTPUT || !b->port.state)
        return NULL;
    for (int k = 0; k < w->g->npart; k++) {
        const struct state_part *part = w->g->part[k];
        struct uop *src[2] = {part->past, w->value[w->g->noutput - w->g->npart + k]};
        if (part->out == b)
            return part->past ? uop_concat(t, src, 2, part->axis) : src[1];
    }
    return b->port.state->join;
}

/* New rows may depend on other states that grow: replaces leaves as often as there are any. */
void state_whole_values(struct tgc *t, const struct graph *g, struct uop **value)
{
    struct whole w = {g, value};
    for (int i = 0; i < g->noutput; i++)
        value[i] = g->output[i].value;
    for (int k = 0; k < g->npart + g->nstate; k++)
        uop_rewrite(t, value, g->noutput, join_again, &w);
}

bool state_is_length(const struct graph *g, const struct var *v)
{
    for (int k = 0; g && k < g->nstate; k++)
        if (g->state[k]->length == v)
            return true;
    return false;
}

int state_axis(const struct buffer *b)
{
    const struct state *st = b->port.state;
    if (!st || !st->length || b == st->in || b == st->out)
        return st && st->length ? st->axis : -1;
    for (int k = 0; k < st->npart; k++)
        if (st->part[k].out == b)
            return st->part[k].axis;
    return -1;
}

bool state_is_size(const struct graph *g, const struct var *v)
{
    for (int k = 0; g && k < g->nstate && !state_is_length(g, v); k++)
        for (int a = 0; a < g->state[k]->in->ndim; a++) {
            const struct uop *dim = g->state[k]->in->dim[a];
            if (dim->op == OP_VAR && dim->arg.p == v)
                return true;
        }
    return false;
}
