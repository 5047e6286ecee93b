/* write_loop.c - LOOP as Loop, and IF as a choice of two values.
 *
 * What depends on a loop's counter or carried values is in its body, everything else before it: so
 * the region of a node is the innermost one of its operands', wherever it was made. A body reads
 * values around it by their names.
 *
 * Both sides of an IF are computed, and Where chooses. A LOOP whose iterations end early and that
 * stacks values is refused: ONNX stacks as many as there were iterations.
 */
#include "frontend/onnx/write.h"

#include <string.h>

enum { LOOPS_MOST = 64 };

/* A value that a body is given: the counter, the condition, carried values in turn. */
static struct written *body_input(struct onnx_writer *w, int loop, enum dtype d, const char *name,
                                  struct uop *const *dim, int ndim)
{
    struct written *v = MEM_NEW(w->t, struct written);
    v->dtype = d;
    v->first = v;
    v->name = name;
    v->region = loop + 1;
    v->ndim = ndim;
    for (int a = 0; a < ndim; a++)
        v->dim[a] = dim[a];
    return v;
}

/* The loops on which each uop depends from inside: that of a LOOP has as many around it. */
static void find_depths(struct onnx_writer *w)
{
    struct uop_map at = {.t = w->t};
    uint64_t *set = mem_array(w->t, (size_t)w->norder + 1, sizeof *set),
             around[LOOPS_MOST] = {0};
    for (int i = 0; i < w->norder; i++) {
        const struct uop *u = w->order[i];
        map_set(&at, u, &set[i]);
        for (int k = 0; k < u->nsrc; k++)
            set[i] |= *(const uint64_t *)map_get(&at, u->src[k]);
        if (u->op == OP_PARAM ||
            (u->op == OP_VAR && ((const struct var *)u->arg.p)->is_counter))
            set[i] |= (uint64_t)1 << write_loop_of(w, u);
        for (int l = 0; l < w->nloop; l++)
            if (u->op == OP_LOOP && u->arg.p == w->loop[l].loop) {
                around[l] = set[i] &= ~((uint64_t)1 << l);
                for (uint64_t rest = set[i]; rest; rest &= rest - 1)
                    w->loop[l].depth++;
            }
    }
    for (int l = 0; l < w->nloop; l++)
        for (int k = 0; k < w->nloop; k++)
            if (around[l] >> k & 1 && write_is_deeper(w, k + 1, w->loop[l].around))
                w->loop[l].around = k + 1;
}

bool write_find_loops(struct onnx_writer *w)
{
    struct uop *none[1] = {NULL};
    w->loop = mem_array(w->t, LOOPS_MOST, sizeof *w->loop);
    for (int i = 0; i < w->norder; i++) {
        if (w->order[i]->op != OP_LOOP)
            continue;
        struct loop *l = (struct loop *)(uintptr_t)w->order[i]->arg.p;
        if (w->nloop == LOOPS_MOST)
            return write_refuse(w, w->order[i], "is one of too many loops for an ONNX model; write "
                                                "the model as .tg");
        struct written_loop *x = &w->loop[w->nloop];
        x->loop = l;
        x->in = mem_array(w->t, (size_t)l->ncarried + 2, sizeof *x->in);
        x->in[0] = body_input(w, w->nloop, DTYPE_I64, l->counter->name, none, 0);
        x->in[1] = body_input(w, w->nloop, DTYPE_BOOL, "go_on", none, 0);
        for (int k = 0; k < l->ncarried; k++) {
            const struct loop_param *p = &l->param[k];
            x->in[2 + k] =
                body_input(w, w->nloop, p->dtype, mem_printf(w->t, "%s_carried", l->counter->name),
                           p->dim, p->ndim);
        }
        w->nloop++;
    }
    find_depths(w);
    return true;
}

/* A result of a body is a node's of its own, inside. */
static struct written *body_result(struct onnx_writer *w, int loop, struct uop *u)
{
    struct written *v = write_exact(w, u);
    v = write_node(w, "Identity", v->dtype, v->dim, v->ndim, &v, 1);
    v->region = loop + 1;
    return v;
}

bool write_loop(struct onnx_writer *w, struct uop *u)
{
    const struct loop *l = u->arg.p;
    int n = l->ncarried, index = 0;
    struct uop *const *init = u->src + 2, *const *next = u->src + 3 + n,
                      *const *scan = u->src + 3 + 2 * n;
    while (w->loop[index].loop != l)
        index++;
    bool runs_all = uop_is_int(u->src[1], 1) && uop_is_int(u->src[2 + n], 1);
    if (l->nscan && !(runs_all && u->src[0] == l->scan_length))
        return write_refuse(w, u, "may end before it has stacked all its values, and ONNX stacks "
                                  "only those of its iterations; write the model as .tg");
    struct written **in = mem_array(w->t, (size_t)n + 2, sizeof *in);
    in[0] = write_exact(w, u->src[0]);
    in[1] = write_exact(w, u->src[1]);
    for (int k = 0; k < n; k++)
        in[2 + k] = write_exact(w, init[k]);
    int nbody = 1 + n + l->nscan;
    struct written **body = mem_array(w->t, (size_t)nbody, sizeof *body);
    body[0] = body_result(w, index, u->src[2 + n]);
    for (int k = 0; k < n + l->nscan; k++)
        body[1 + k] = body_result(w, index, k < n ? next[k] : scan[k - n]);
    struct written **out = mem_array(w->t, (size_t)nbody, sizeof *out);
    for (int k = 0; k < n + l->nscan; k++) {
        const struct written *x = body[1 + k];
        struct uop *dim[MAX_RANK + 1] = {l->scan_length};
        ARRAY_COPY(dim + (k >= n), x->dim, x->ndim);
        int ndim = x->ndim + (k >= n);
        if (ndim > MAX_RANK)
            return write_refuse(w, u, "stacks values of too many axes");
        if (!k) {
            out[0] = write_node(w, "Loop", x->dtype, dim, ndim, in, n + 2);
            continue;
        }
        out[k] = body_input(w, 0, x->dtype, NULL, dim, ndim);
        out[k]->node = out[0]->node;
        out[k]->of = u;
    }
    if (n + l->nscan == 0)
        return write_refuse(w, u, "has no results");
    struct written_node *node = out[0]->node;
    for (int k = 0; k < n + l->nscan; k++)
        out[k]->region = w->loop[index].around;
    node->also = out + 1;
    node->nalso = n + l->nscan - 1;
    node->body_in = w->loop[index].in;
    node->nbody_in = n + 2;
    node->body_out = body;
    node->nbody_out = nbody;
    node->body = index + 1;
    write_set(w, u, out[0]);
    return true;
}

bool write_get(struct onnx_writer *w, struct uop *u)
{
    struct uop *x = u->src[0];
    int k = (int)u->arg.i;
    if (x->op == OP_LOOP) {
        struct written *first = map_get(&w->value, x);
        write_set(w, u, k ? first->node->also[k - 1] : first);
        return true;
    }
    int n = (int)x->arg.i;
    enum dtype d = write_working(u->dtype);
    d = d == DTYPE_U64 ? DTYPE_I64 : d;
    struct written *v = write_where(w, write_exact(w, x->src[0]),
                                    write_as(w, write_exact(w, x->src[1 + k]), d),
                                    write_as(w, write_exact(w, x->src[1 + n + k]), d));
    write_set(w, u, write_as(w, v, u->dtype));
    return true;
}
