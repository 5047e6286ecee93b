/* opts_work.c - a kernel's AST while opts change it: nests, their loops, stores, memory.
 */
#include "passes/kernel/opts_work.h"

#include <string.h>

bool work_refuse(struct work *w, const char *why)
{
    w->why = why;
    return false;
}

/* ----------------------------------------------------------------------------- nests and stores */

void work_put_stores(struct work *w, int at, struct uop *const *store, int n)
{
    struct uop **src = scratch_array(w->t, (size_t)(w->ast->nsrc + n), sizeof *src);
    int nsrc = 0;
    for (int i = 0; i < w->ast->nsrc; i++)
        for (int k = 0; k < (i == at ? n : 1); k++)
            src[nsrc++] = i == at ? store[k] : w->ast->src[i];
    w->ast = uop_intern(w->t, OP_SINK, DTYPE_VOID, src, nsrc, (union arg){0});
}

struct uop *work_find(struct work *w, struct uop *store, enum op op, int number)
{
    int n;
    struct uop **order = uop_toposort(w->t, &store, 1, &n);
    for (int i = 0; i < n; i++)
        if (order[i]->op == op && number-- == 0)
            return order[i];
    return NULL;
}

int opt_number(struct tgc *t, struct uop *store, const struct uop *part)
{
    int n, number = 0;
    struct uop **order = uop_toposort(t, &store, 1, &n);
    for (int i = 0; i < n && order[i] != part; i++)
        number += order[i]->op == part->op;
    return number;
}

void work_close(struct work *w)
{
    struct open *o = &w->open;
    struct uop *src[RANGES_MAX + 8];
    struct uop_map by = {.t = w->t, .scratch = true};
    if (!o->store)
        return;
    for (int i = 0; i < o->nsubstitution; i++)
        map_set(&by, o->from[i], o->to[i]);
    for (int i = 0; i < o->first; i++)
        src[i] = o->nsubstitution ? uop_substitute_all(w->t, o->store->src[i], &by)
                                  : o->store->src[i];
    /* a loop's size may depend on an outer loop */
    for (int i = 0; i < o->n; i++)
        src[o->first + i] = o->nsubstitution && o->range[i]->src[0]->op != OP_CONST
                                ? uop_substitute_all(w->t, o->range[i], &by)
                                : o->range[i];
    struct uop *now = uop_intern(w->t, OP_STORE, o->store->dtype, src, o->first + o->n,
                                 (union arg){0});
    if (o->stage)
        now = uop_substitute(w->t, w->ast->src[o->at], o->stage, store_as_stage(w->t, now));
    work_put_stores(w, o->at, &now, 1);
    o->store = NULL;
}

bool work_open(struct work *w, const struct opt *opt)
{
    struct open *o = &w->open;
    if (o->store && o->at == opt->store && o->of == opt->of && o->number == opt->number)
        return true;
    work_close(w);
    struct uop *store = w->ast->src[opt->store];
    *o = (struct open){.at = opt->store, .of = opt->of, .number = opt->number};
    if (opt->of == OF_SUM)
        return work_refuse(w, "the loops of a sum cannot become lanes, panels or threads");
    if (opt->of == OF_STAGE) {
        o->stage = work_find(w, store, OP_STAGE, opt->number);
        if (!o->stage)
            return work_refuse(w, "the store has no such stage");
        store = stage_as_store(w->t, o->stage);
    }
    o->first = store_first_range(store);
    if (store->nsrc - o->first > RANGES_MAX - 4)
        return work_refuse(w, "too many nested loops");
    for (int i = o->first; i < store->nsrc; i++)
        o->range[o->n] = o->was[o->n] = store->src[i], o->n++;
    o->store = store;
    return true;
}

bool work_take_range(struct work *w, const struct opt *opt, struct uop **range)
{
    if (!work_open(w, opt))
        return false;
    if (opt->axis < 0 || opt->axis >= w->open.n)
        return work_refuse(w, "the nest has no such loop");
    *range = w->open.range[opt->axis];
    if (range_is(*range, AXIS_BAND))
        return work_refuse(w, "the loop is a band shared with other stores");
    if (RANGE_WORKER((*range)->arg.i) != WORKER_EACH)
        return work_refuse(w, "the loop is distributed over threads");
    if (range_is(*range, AXIS_ORDER))
        return work_refuse(
            w, "iterations of the loop may store to the same element: it stays as it is");
    if (w->open.n >= RANGES_MAX)
        return work_refuse(w, "too many nested loops");
    return true;
}

bool work_take_axis(struct work *w, const struct opt *opt, struct uop **range, int64_t *size)
{
    if (!work_take_range(w, opt, range))
        return false;
    *size = range_fixed_size(*range);
    return *size > 0 ||
           work_refuse(w, "the loop's number of iterations is unknown at compile time");
}

int work_loops_before_lanes(const struct open *o)
{
    int n = 0;
    while (n < o->n && !range_is_lane(o->range[n]))
        n++;
    return n;
}

void work_remove_range(struct open *o, int at)
{
    o->n--;
    memmove(&o->range[at], &o->range[at + 1], (size_t)(o->n - at) * sizeof *o->range);
    memmove(&o->was[at], &o->was[at + 1], (size_t)(o->n - at) * sizeof *o->was);
}

void work_insert_range(struct open *o, int at, struct uop *r, struct uop *was)
{
    if (r->op != OP_RANGE)
        return;
    memmove(&o->range[at + 1], &o->range[at], (size_t)(o->n - at) * sizeof *o->range);
    memmove(&o->was[at + 1], &o->was[at], (size_t)(o->n - at) * sizeof *o->was);
    o->range[at] = r;
    o->was[at] = was;
    o->n++;
}

void work_substitute(struct work *w, const struct uop *r, struct uop *by)
{
    struct open *o = &w->open;
    bool known = false;
    for (int i = 0; i < o->nsubstitution; i++)
        if (uop_depends_on(w->t, o->to[i], r)) {
            o->to[i] = uop_substitute(w->t, o->to[i], r, by);
            known = true;
        }
    if (known)
        return;
    o->from[o->nsubstitution] = (struct uop *)(uintptr_t)r;
    o->to[o->nsubstitution++] = by;
}

void work_name_like(struct tgc *t, struct uop *u, const struct uop *from)
{
    if (u->op == OP_RANGE && uop_get_axes(t, from))
        uop_name_axes(t, u, uop_get_axes(t, from));
}

struct buffer *work_new_memory(struct work *w, enum dtype d, int64_t nelem, enum space space)
{
    struct buffer *b = kernel_new_scratch(w->t, w->kernel, d, nelem);
    b->scratch.space = space;
    w->is_placed |= space == SPACE_SHARED;
    return b;
}

struct buffer *work_copy_memory(struct work *w, const struct buffer *was)
{
    struct buffer *b = work_new_memory(w, was->dtype, was->dim[0]->vmax, SPACE_SHARED);
    b->scratch = was->scratch;
    return b;
}

struct uop *work_new_range(struct tgc *t, int64_t n, enum axis a)
{
    return n == 1 ? uop_int(t, 0) : uop_axis(t, uop_int(t, n), a, WORKER_EACH);
}

int64_t work_items(const struct uop *store)
{
    int64_t n = 1;
    for (int i = store_first_range(store); i < store->nsrc; i++)
        n = range_is_item(store->src[i]) ? sat_mul(n, range_fixed_size(store->src[i])) : n;
    return n;
}
