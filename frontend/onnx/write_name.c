/* write_name.c - what is used of an ONNX graph that was written, and its names.
 *
 * Inputs, outputs and weights keep the model's names. The value of a node that the model has a name
 * for is called so: `hidden`; what is made on the way to it `hidden/Transpose`; other values by
 * their operator. A number tells equal names apart. A node is called as what it makes.
 */
#include "frontend/onnx/write.h"

#include <string.h>

static void mark_used(struct onnx_writer *w, struct written *const *output)
{
    for (int i = 0; i < graph_count_outputs(w->g); i++)
        output[i]->used = true;
    /* users come after what they use */
    for (int i = w->nnode; i-- > 0;) {
        struct written_node *n = w->node[i];
        for (int k = 0; k < n->nalso; k++)
            n->out->used |= n->also[k]->used;
        if (!n->out->used)
            continue;
        for (int k = 0; k < n->nin; k++)
            n->in[k]->used = true;
        for (int k = 0; k < n->nalso; k++)
            n->also[k]->used = true;
        for (int k = 0; k < n->nbody_out; k++)
            n->body_out[k]->used = true;
    }
}

static const char *unique(struct onnx_writer *w, struct dict *taken, const char *want)
{
    const char *name = want;
    void **t = dict_enter(w->t, taken, name);
    for (int n = 2; *t; n++) {
        name = mem_printf(w->t, "%s_%d", want, n);
        t = dict_enter(w->t, taken, name);
    }
    *t = w;
    return name;
}

/* Uops whose value users of another origin take: their value is what the model has a name for. */
static bool is_result(const struct onnx_writer *w, const struct uop *u)
{
    return u && map_get(&w->used_by_others, u) != NULL;
}

static void find_results(struct onnx_writer *w)
{
    for (int i = w->norder; i-- > 0;) {
        struct uop *u = w->order[i];
        for (int k = 0; k < u->nsrc; k++) {
            struct uop *x = u->src[k];
            bool other = uop_get_origin(w->t, u) != uop_get_origin(w->t, x);
            if (other || (u->op == OP_RESHAPE && is_result(w, u)))
                map_set(&w->used_by_others, x, x);
        }
    }
}

static const char *name_of(struct onnx_writer *w, const struct written *v)
{
    const struct origin *o = v->of ? uop_get_origin(w->t, v->of) : NULL;
    if (v->tensor)
        return v->ndim ? "constant" : dtype_name(v->dtype);
    if (!o || !o->node || !*o->node)
        return v->node->type;
    return is_result(w, v->of) && map_get(&w->value, v->of) == v && !uop_is_adjoint(w->t, v->of)
               ? o->node
               : mem_printf(w->t, "%s/%s", o->node, v->node->type);
}

bool write_names(struct onnx_writer *w, struct written *const *output)
{
    struct dict taken = {0};
    int noutput = graph_count_outputs(w->g);
    mark_used(w, output);
    for (int i = 0; i < w->norder; i++)
        if (w->order[i]->op == OP_BUFFER) {
            struct written *v = map_get(&w->value, w->order[i]);
            if (v && !v->tensor)
                v->name = unique(w, &taken, v->name);
        }
    for (int i = 0; i < noutput; i++) {
        const char *name = w->g->output[i].name;
        void **is_taken = dict_enter(w->t, &taken, name);
        if (*is_taken)
            return diag_error(w->t, NULL,
                              "'%.200s' is the name of two inputs or outputs, which ONNX does not "
                              "allow; give each its own",
                              name);
        *is_taken = output[i];
        output[i]->name = name;
    }
    find_results(w);
    for (int i = 0; i < noutput; i++)
        map_set(&w->used_by_others, w->g->output[i].value, w->g->output[i].value);
    for (int i = 0; i < w->nconstant; i++)
        if (w->constant[i]->used && w->constant[i]->name)
            w->constant[i]->name = unique(w, &taken, w->constant[i]->name);
    for (int i = 0; i < w->nconstant; i++)
        if (w->constant[i]->used && !w->constant[i]->name)
            w->constant[i]->name = unique(w, &taken, name_of(w, w->constant[i]));
    for (int i = 0; i < w->nloop; i++)
        for (int k = 0; k < w->loop[i].loop->ncarried + 2; k++)
            w->loop[i].in[k]->name = unique(w, &taken, w->loop[i].in[k]->name);
    for (int i = 0; i < w->nnode; i++)
        for (int k = 0; k <= w->node[i]->nalso; k++) {
            struct written *v = k ? w->node[i]->also[k - 1] : w->node[i]->out;
            if (v->used && !v->name)
                v->name = unique(w, &taken, name_of(w, v));
        }
    return true;
}
