/* join_loops.c - loops that start alike and carry the same values on are one, which stacks what
 * both do. A gradient's forward loop, which keeps its carried values, is the model's own loop then.
 *
 *      h, s = loop n (h = h0) next f(h) scan s(h)         h, s, k = loop n (h = h0)
 *      _, k = loop n (h = h0) next f(h) scan h       ->               next f(h) scan s(h), h
 *
 * A loop whose body has a loop stays: the inner ones are not compared.
 */
#include "passes/passes.h"

#include <string.h>

struct join {
    struct uop *loop[2];                 /* the two */
    struct uop *all;                     /* both */
    int *place[2];                       /* of the k-th stack of each: its result of `all` */
};

static const struct loop *loop_of(const struct uop *u) { return u->arg.p; }

static bool may_be_one(const struct uop *a, const struct uop *b)
{
    const struct loop *l = loop_of(a), *m = loop_of(b);
    bool same = l->ncarried == m->ncarried &&
                (!l->nscan || !m->nscan || l->scan_length == m->scan_length);
    for (int k = 0; k < 2 + l->ncarried && same; k++)
        same = a->src[k] == b->src[k];
    return same;
}

/* A copy of what the loop computes in an iteration, cond_next first, by `to`'s counter and carried
 * values. false: there is a loop in it, or `other` before it. */
static bool copy_body(struct tgc *t, const struct uop *u, struct loop *to, const struct uop *other,
                      struct uop **body)
{
    const struct loop *l = loop_of(u);
    struct uop_map by = {.t = t}, inside = {.t = t};
    int n, first = 2 + l->ncarried;
    map_set(&by, uop_var(t, l->counter), uop_var(t, to->counter));
    for (int k = 0; k < l->ncarried; k++)
        map_set(&by, uop_param(t, &l->param[k]), uop_param(t, &to->param[k]));
    struct mem_mark mark = scratch_mark(t);
    struct uop **order = uop_toposort(t, u->src + first, u->nsrc - first, &n);
    bool ok = true;
    for (int i = 0; i < n && ok; i++) {
        bool is = map_get(&by, order[i]) != NULL;
        for (int k = 0; k < order[i]->nsrc; k++)
            is |= map_get(&inside, order[i]->src[k]) != NULL;
        if (is)
            map_set(&inside, order[i], order[i]);
        ok = order[i] != other && !(is && (order[i]->op == OP_LOOP || order[i]->op == OP_HOST));
    }
    scratch_release(t, mark);
    for (int k = first; k < u->nsrc && ok; k++)
        body[k - first] = uop_substitute_all(t, u->src[k], &by);
    return ok;
}

static struct loop *joined_loop(struct tgc *t, const struct loop *l)
{
    struct loop *to = MEM_NEW(t, struct loop);
    *to = *l;
    to->id = t->next_loop++;
    to->counter = var_new(t, mem_printf(t, "step%d", to->id), l->counter->min, l->counter->max);
    to->counter->is_counter = true;
    to->param = mem_array(t, (size_t)l->ncarried + 1, sizeof *to->param);
    for (int k = 0; k < l->ncarried; k++) {
        to->param[k] = l->param[k];
        to->param[k].loop = to;
    }
    return to;
}

static bool join(struct tgc *t, struct join *j)
{
    const struct loop *l = loop_of(j->loop[0]), *m = loop_of(j->loop[1]);
    struct loop *to = joined_loop(t, l);
    int n = l->ncarried, nscan = 0;
    struct uop **body[2], **scan = mem_array(t, (size_t)(l->nscan + m->nscan) + 1, sizeof *scan);
    for (int s = 0; s < 2; s++) {
        int count = loop_of(j->loop[s])->nscan;
        body[s] = mem_array(t, (size_t)(1 + n + count), sizeof *body[s]);
        j->place[s] = mem_array(t, (size_t)count + 1, sizeof *j->place[s]);
        if (!copy_body(t, j->loop[s], to, j->loop[!s], body[s]))
            return false;
        for (int k = 0; k < count; k++) {
            int at = 0;
            while (at < nscan && scan[at] != body[s][1 + n + k])
                at++;
            if (at == nscan)
                scan[nscan++] = body[s][1 + n + k];
            j->place[s][k] = n + at;
        }
    }
    if (memcmp(body[0], body[1], (size_t)(1 + n) * sizeof *body[0]) != 0)
        return false;
    to->nscan = nscan;
    to->scan_length = l->nscan ? l->scan_length : m->scan_length;
    j->all = uop_loop(t, to, j->loop[0]->src[0], j->loop[0]->src[1], j->loop[0]->src + 2,
                      body[0][0], body[0] + 1, scan);
    uop_set_origin(t, j->all, j->loop[0]);
    return true;
}

static struct uop *result_of_joined(struct tgc *t, void *ctx, struct uop *u)
{
    const struct join *j = ctx;
    for (int s = 0; s < 2 && u->op == OP_GET; s++)
        if (u->src[0] == j->loop[s]) {
            int k = (int)u->arg.i, n = loop_of(j->loop[s])->ncarried;
            return uop_get(t, j->all, k < n ? k : j->place[s][k - n]);
        }
    return NULL;
}

/* Joins one pair; false: there is none. */
static bool join_a_pair(struct tgc *t, struct graph *g)
{
    struct mem_mark mark = scratch_mark(t);
    int nroot, n, nloop = 0;
    struct uop **root = graph_roots(t, g, &nroot), **order = uop_toposort(t, root, nroot, &n);
    for (int i = 0; i < n; i++)
        if (order[i]->op == OP_LOOP)
            order[nloop++] = order[i];
    struct join j = {.all = NULL};
    for (int b = 1; b < nloop && !j.all; b++)
        for (int a = 0; a < b && !j.all; a++)
            if (may_be_one(order[a], order[b])) {
                j.loop[0] = order[a];
                j.loop[1] = order[b];
                join(t, &j);
            }
    scratch_release(t, mark);
    if (j.all)
        graph_rewrite(t, g, result_of_joined, &j);
    return j.all != NULL;
}

bool pass_join_loops(struct tgc *t, struct graph *g)
{
    while (join_a_pair(t, g))
        ;
    return true;
}
