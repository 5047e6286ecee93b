/* opts_keep.c - KEEP: what a block's threads pass on to each other in local memory, if each element is one thread's
 * alone, is in that thread's registers.
 *
 *      keep 5           rows of 64: i item 2, m item 8, e1 lane 2, t lane 8, n item 4, e0 lane 2
 *
 *      (i * 16 + e1 * 8 + m) * 64 + t * 8 + n * 2 + e0      of 2048, of the block
 *   -> e1 * 16 + t * 2 + e0                                 of 32, of each thread
 *
 * An offset is read as digits, each loop one of them: its stride, and its turns. Wherever the memory is read and
 * stored, the threads' digits have to be the same, and no other digit or sum of them may reach into one: so the
 * digits of an element say whose it is.
 */
#include "passes/kernel/opts_work.h"

enum { DIGITS_MAX = 16 };

/* A loop of threads; of what is between two of them (part[i] is below digit i) the threads' own digits. */
struct digit { int64_t stride, n; int item; };
struct digits { struct digit v[DIGITS_MAX]; int n, nitem; };

static int64_t below(const struct digits *d, int i) { return i ? d->v[i - 1].stride * d->v[i - 1].n : 1; }

/* The digits of the block's threads, lowest first. */
static bool find_digits(struct work *w, const struct uop *store, struct uop *offset, struct digits *d)
{
    *d = (struct digits){.n = 0};
    for (int i = store_first_range(store); i < store->nsrc; i++) {
        int64_t stride;
        if (!range_is_item(store->src[i]))
            continue;
        if (d->n == DIGITS_MAX || !index_stride(w->t, offset, store->src[i], &stride) || stride < 1)
            return work_refuse(w, "several threads have the same element");
        int at = d->n++;
        for (; at > 0 && d->v[at - 1].stride > stride; at--)
            d->v[at] = d->v[at - 1];
        d->v[at] = (struct digit){stride, range_fixed_size(store->src[i]), d->nitem++};
    }
    for (int i = 0; i < d->n; i++)
        if (d->v[i].stride % below(d, i))
            return work_refuse(w, "several threads have the same element");
    return d->n > 0 || work_refuse(w, "no threads of a block pass the elements on");
}

static bool digits_equal(const struct digits *a, const struct digits *b)
{
    bool same = a->n == b->n;
    for (int i = 0; i < a->n && same; i++)
        same = a->v[i].stride == b->v[i].stride && a->v[i].n == b->v[i].n && a->v[i].item == b->v[i].item;
    return same;
}

/* The offset within the thread's own elements; NULL: it may be another thread's. nelem: of the block. */
static struct uop *own_offset(struct work *w, struct uop *offset, const struct digits *d, int64_t nelem)
{
    struct tgc *t = w->t;
    int64_t used[DIGITS_MAX + 1] = {0}, turns[DIGITS_MAX + 1] = {1}, constant;
    int n;
    struct uop *own = uop_int(t, 0), **order = uop_toposort(t, &offset, 1, &n);
    struct uop_map zero = {.t = t, .scratch = true};
    for (int i = 0; i < d->n; i++)
        turns[i + 1] = turns[i] * d->v[i].n;
    for (int i = 0; i < n; i++) {
        int64_t stride;
        int at = d->n;
        if (order[i]->op != OP_RANGE)
            continue;
        map_set(&zero, order[i], uop_int(t, 0));
        if (range_is_item(order[i]))
            continue;
        if (!index_stride(t, offset, order[i], &stride) || stride < 1 || range_fixed_size(order[i]) < 1)
            return NULL;
        while (at > 0 && stride < below(d, at))
            at--;
        if (stride % below(d, at))
            return NULL;
        used[at] += stride * (range_fixed_size(order[i]) - 1);
        own = sym_add(t, own, sym_muli(t, order[i], stride / turns[at]));
    }
    if (!uop_const_int(uop_substitute_all(t, offset, &zero), &constant) || constant < 0)
        return NULL;
    for (int i = 0; i <= d->n; i++) {
        int64_t end = i < d->n ? d->v[i].stride : nelem, part = constant % end / below(d, i) * below(d, i);
        if (used[i] + part >= end || (i < d->n && constant / end % d->v[i].n))
            return NULL;
        own = sym_addi(t, own, part / turns[i]);
    }
    return own;
}

/* Of one store: what it loads and stores of the memory has offsets of the thread's own; in `by`. */
static bool replace_offsets(struct work *w, struct uop *store, struct uop *memory, struct uop *own, struct digits *d,
                            struct uop_map *by)
{
    struct tgc *t = w->t;
    int n;
    struct uop **order = uop_toposort(t, &store, 1, &n);
    for (int i = 0; i < n; i++) {
        struct uop *u = order[i], *src[RANGES_MAX + 8], *v;
        struct digits here;
        if ((u->op != OP_LOAD && u->op != OP_STORE) || u->src[0] != memory)
            continue;
        if (!find_digits(w, store, u->src[1], &here))
            return false;
        if (!digits_equal(d, &here) ||
            !(v = own_offset(w, u->src[1], d, uop_buffer_of(memory)->dim[0]->arg.i)))
            return work_refuse(w, "a thread reads or stores another one's element");
        for (int k = 0; k < u->nsrc; k++)
            src[k] = k == 0 ? own : k == 1 ? v : u->src[k];
        if (u->op == OP_LOAD)
            map_set(by, u, uop_intern(t, OP_LOAD, u->dtype, src, u->nsrc, u->arg));
    }
    return true;
}

bool apply_keep(struct work *w, const struct opt *opt)
{
    struct tgc *t = w->t;
    struct digits d;
    work_close(w);
    struct uop *store = w->ast->src[opt->store], *memory = store->src[0];
    const struct buffer *was = uop_buffer_of(memory);
    int64_t threads = 1;
    if (opt->of != OF_STORE || was->kind != BUFFER_SCRATCH || !was->is_local || was->ndim != 1 || was->dim[0]->op != OP_CONST)
        return work_refuse(w, "the store passes nothing on in local memory");
    if (!find_digits(w, store, store->src[1], &d))
        return false;
    for (int i = 0; i < d.n; i++)
        threads = sat_mul(threads, d.v[i].n);
    if (was->dim[0]->arg.i % below(&d, d.n))
        return work_refuse(w, "several threads have the same element");
    struct buffer *b = work_new_memory(w, was->dtype, was->dim[0]->arg.i / threads, SPACE_SCRATCH);
    struct uop *own = uop_buffer(t, b), **now = scratch_array(t, (size_t)w->ast->nsrc, sizeof *now);
    b->is_register = true;
    for (int i = 0; i < w->ast->nsrc; i++) {
        struct uop_map by = {.t = t, .scratch = true};
        struct uop *src[RANGES_MAX + 8];
        now[i] = w->ast->src[i];
        if (now[i]->nsrc > RANGES_MAX + 8 || !replace_offsets(w, now[i], memory, own, &d, &by))
            return now[i]->nsrc > RANGES_MAX + 8 ? work_refuse(w, "there are too many loops in each other") : false;
        for (int k = 0; k < now[i]->nsrc; k++)
            src[k] = by.used ? uop_substitute_all(t, now[i]->src[k], &by) : now[i]->src[k];
        if (src[0] == memory) {
            src[0] = own;
            src[1] = own_offset(w, now[i]->src[1], &d, was->dim[0]->arg.i);
        }
        now[i] = uop_intern(t, OP_STORE, now[i]->dtype, src, now[i]->nsrc, now[i]->arg);
    }
    w->ast = uop_intern(t, OP_SINK, DTYPE_VOID, now, w->ast->nsrc, (union arg){0});
    return true;
}
