/* twins.c - kernels that are equal but for their buffers are compiled once.
 *
 *      conv_5   y = temp3, x = temp2, w = weight7      passes run: an AST, programs, packed weights
 *      conv_9   y = temp8, x = temp6, w = weight9      like conv_5: its programs, which name temp3,
 *                                                      temp2, weight7; a packed weight9 of its own
 *
 * A twin's AST equals an earlier kernel's, uop by uop, if buffers are mapped to each other;
 * everything that a pass may ask of a buffer must agree. The uops must also be of the same relative
 * age, by which the rules order the terms of sums. So passes would give equal results. Deep
 * networks repeat layers: more than half of a program is twins.
 *
 * If the two have different memory layouts, so that they cannot share a function, the twin gets
 * programs of its own (place/alias.c). */
#include "passes/passes.h"

#include <stdlib.h>
#include <string.h>

/* --------------------------------------------------------------------- buffers of either kernel */

static struct buffer *partner(struct buffer *const *of, struct buffer *const *to, int n,
                              const struct buffer *b)
{
    for (int i = 0; i < n; i++)
        if (of[i] == b)
            return to[i];
    return NULL;
}

struct buffer *kernel_buffer_here(const struct kernel *k, const struct buffer *b)
{
    const struct likeness *l = k->like;
    return l ? partner(l->there, l->here, l->n, b) : (struct buffer *)(uintptr_t)b;
}

struct buffer *kernel_buffer_there(const struct kernel *k, const struct buffer *b)
{
    const struct likeness *l = k->like;
    return l ? partner(l->here, l->there, l->n, b) : (struct buffer *)(uintptr_t)b;
}

static void add_pair(struct tgc *t, struct likeness *l, struct buffer *here, struct buffer *there)
{
    int n = l->n;
    VEC_PUSH(t, l->here, n, l->cap_here, here);
    VEC_PUSH(t, l->there, l->n, l->cap_there, there);
}

/* ------------------------------------------------------------------------------ are they twins? */

/* converts: floats become integers. */
struct matching { struct tgc *t; struct likeness *l; struct uop_map of; bool converts; };

static bool views_agree(const struct view *x, const struct view *y)
{
    size_t n = x && y ? (size_t)x->ndim * sizeof *x->dim : 0;
    return x == y || (x && y && x->ndim == y->ndim && x->offset == y->offset && !x->has_mask &&
                      !y->has_mask && x->row_major == y->row_major && !memcmp(x->dim, y->dim, n) &&
                      !memcmp(x->stride, y->stride, n));
}

/* A state that grows has a length of its own, which kernels name. A training's do not grow. */
static bool states_agree(const struct buffer *x, const struct buffer *y)
{
    const struct state *a = x->port.state, *b = y->port.state;
    return !a == !b && !x->port.first == !y->port.first && x->port.block == y->port.block &&
           (!a || (!a->length && !b->length && (a->npart < 2) == (b->npart < 2) &&
                   a->is_updated == b->is_updated));
}

static bool pipelines_agree(const struct pipeline *x, const struct pipeline *y)
{
    return x->stages == y->stages && x->transfer == y->transfer && x->cluster == y->cluster &&
           x->multicast == y->multicast && x->producers == y->producers;
}

static bool scratches_agree(const struct buffer_scratch *x, const struct buffer_scratch *y)
{
    return x->space == y->space && x->counts == y->counts && x->is_register == y->is_register &&
           x->is_alias == y->is_alias && x->is_bulk_stored == y->is_bulk_stored &&
           x->panel == y->panel && pipelines_agree(&x->pipeline, &y->pipeline);
}

static bool buffers_agree(const struct buffer *x, const struct buffer *y)
{
    return x->kind == y->kind && x->dtype == y->dtype && x->ndim == y->ndim &&
           !memcmp(x->dim, y->dim, (size_t)x->ndim * sizeof *x->dim) && x->nbytes == y->nbytes &&
           !x->weight.data == !y->weight.data && views_agree(x->storage, y->storage) &&
           x->order.is_set == y->order.is_set &&
           !memcmp(x->order.axis, y->order.axis, sizeof x->order.axis) && !x->base == !y->base &&
           scratches_agree(&x->scratch, &y->scratch) && x->kept == y->kept &&
           states_agree(x, y);
}

/* Whether x and other relate to each other as y and another do. */
static bool relations_agree(const struct buffer *x, const struct buffer *other,
                            const struct buffer *y, const struct buffer *another)
{
    return (x == other) == (y == another) &&
           (x->port.state && x->port.state == other->port.state) ==
               (y->port.state && y->port.state == another->port.state) &&
           buffer_is_part_of(x, other) == buffer_is_part_of(y, another) &&
           buffer_is_part_of(other, x) == buffer_is_part_of(another, y) &&
           (x->weight.data && x->weight.data == other->weight.data) ==
               (y->weight.data && y->weight.data == another->weight.data);
}

/* Whether two weights have elements within the same bounds. Later passes apply rules, to
 * conversions to integers for one, that ask for the bounds of small weights. */
static bool elements_agree(const struct buffer *x, const struct buffer *y)
{
    enum { LOOK_MAX = 1 << 14 };
    struct element_bounds a, b;
    bool known = x->weight.data && buffer_bounds(x, LOOK_MAX, &a);
    if (known != (y->weight.data && buffer_bounds(y, LOOK_MAX, &b)))
        return false;
    return !known || (a.lo.i == b.lo.i && a.hi.i == b.hi.i && a.whole == b.whole);
}

static bool match_buffers(struct matching *m, struct buffer *there, struct buffer *here)
{
    struct likeness *l = m->l;
    if (!buffers_agree(there, here) || (m->converts && !elements_agree(there, here)))
        return false;
    for (int i = 0; i < l->n; i++)
        if (!relations_agree(there, l->there[i], here, l->here[i]))
            return false;
    if (!kernel_buffer_there(&(struct kernel){.like = l}, here))
        add_pair(m->t, l, here, there);
    return true;
}

static bool names_agree(const struct tgc *t, const struct uop *u, const struct uop *v)
{
    const char *x = uop_get_axes(t, u), *y = uop_get_axes(t, v);
    return x == y || (x && y && !strcmp(x, y));
}

static int64_t arg_without_id(const struct uop *u)
{
    return u->op == OP_RANGE ? arg_with(u->arg.i, ARG_RANGE_ID, 0) : u->arg.i;
}

/* needs: sources are matched before. */
static bool match_uops(struct matching *m, struct uop *u, struct uop *v)
{
    bool memory = uop_buffer_of(u) != NULL;
    if (u->op != v->op || u->dtype != v->dtype || u->nsrc != v->nsrc || !names_agree(m->t, u, v) ||
        u->vmin != v->vmin || u->vmax != v->vmax ||
        (!memory && arg_without_id(u) != arg_without_id(v)))
        return false;
    if (memory && !match_buffers(m, (struct buffer *)(uintptr_t)u->arg.p,
                                 (struct buffer *)(uintptr_t)v->arg.p))
        return false;
    for (int k = 0; k < u->nsrc; k++)
        if (map_get(&m->of, u->src[k]) != v->src[k])
            return false;
    map_set(&m->of, u, v);
    return true;
}

struct ages { uint32_t there, here; };

static int by_age(const void *a, const void *b)
{
    const struct ages *x = a, *y = b;
    return (x->there > y->there) - (x->there < y->there);
}

/* Constants and buffers are never ordered by age. */
static bool ages_agree(struct tgc *t, struct uop *const *u, struct uop *const *v, int n)
{
    struct ages *age = scratch_array(t, (size_t)n, sizeof *age);
    int nage = 0;
    for (int i = 0; i < n; i++)
        if (u[i]->op != OP_CONST && u[i]->op != OP_BUFFER)
            age[nage++] = (struct ages){u[i]->id, v[i]->id};
    qsort(age, (size_t)nage, sizeof *age, by_age);
    for (int i = 1; i < nage; i++)
        if (age[i].here <= age[i - 1].here)
            return false;
    return true;
}

static bool match_asts(struct matching *m, struct uop *there, struct uop *here)
{
    int n, nhere;
    struct uop **u = uop_toposort(m->t, &there, 1, &n);
    struct uop **v = uop_toposort(m->t, &here, 1, &nhere);
    for (int i = 0; i < n; i++)
        m->converts |= u[i]->op == OP_CAST && dtype_is_int(u[i]->dtype) &&
                       dtype_is_float(u[i]->src[0]->dtype);
    for (int i = 0; i < n && n == nhere; i++)
        if (!match_uops(m, u[i], v[i]))
            return false;
    return n == nhere && ages_agree(m->t, u, v, n);
}

static bool kernels_agree(const struct kernel *a, const struct kernel *b)
{
    bool agree = a->nbuffer == b->nbuffer && a->noutput == b->noutput &&
                 a->nscratch == b->nscratch && a->nvar == b->nvar && a->opts.n == b->opts.n &&
                 a->is_serial == b->is_serial && a->by_blocks == b->by_blocks &&
                 a->is_disjoint == b->is_disjoint && a->stores_twice == b->stores_twice;
    for (int i = 0; i < a->nvar && agree; i++)
        agree = a->var[i] == b->var[i];
    return agree;
}

/* How k corresponds to the earlier kernel `first`; NULL: it does not. */
static struct likeness *find_likeness(struct tgc *t, struct kernel *first, const struct kernel *k)
{
    struct mem_mark mark = scratch_mark(t);
    struct likeness *l = MEM_NEW(t, struct likeness);
    struct matching m = {.t = t, .l = l, .of = {.t = t, .scratch = true}};
    l->kernel = first;
    bool alike = kernels_agree(first, k) && match_asts(&m, first->ast, k->ast);
    scratch_release(t, mark);
    return alike ? l : NULL;
}

/* A hash that is equal for twins. */
static uint64_t hash_of(struct tgc *t, const struct kernel *k)
{
    struct mem_mark mark = scratch_mark(t);
    struct uop *root = k->ast;
    int n;
    struct uop **order = uop_toposort(t, &root, 1, &n);
    uint64_t h = (uint64_t)n;
    for (int i = 0; i < n; i++) {
        const struct uop *u = order[i];
        int64_t arg = uop_buffer_of(u) ? 0 : arg_without_id(u);
        int64_t part[4] = {u->op, u->dtype, u->nsrc, arg};
        h = hash_bytes(h, part, sizeof part);
    }
    scratch_release(t, mark);
    return h;
}

/* Kernels that are tuned each have their choices. */
bool pass_twins(struct tgc *t, struct schedule *s)
{
    size_t size = 64;
    while (size < 2 * (size_t)s->nkernel)
        size *= 2;
    struct { uint64_t hash; struct kernel *first; } *table = mem_array(t, size, sizeof *table);
    for (int i = 0; i < s->nkernel && !t->tuning; i++) {
        struct kernel *k = s->kernel[i];
        uint64_t hash = hash_of(t, k);
        size_t at = hash & (size - 1);
        for (; table[at].first && !k->like; at = (at + 1) & (size - 1))
            if (table[at].hash == hash)
                k->like = find_likeness(t, table[at].first, k);
        if (!k->like) {
            table[at].hash = hash;
            table[at].first = k;
        }
    }
    return true;
}

/* ----------------------------------------------------------------------------- what a twin gets */

/* The twin's counterpart of a buffer that a pass made for the other kernel: scratch, or a weight in
 * another order. */
static struct buffer *own_of(struct tgc *t, struct kernel *k, struct buffer *made)
{
    struct likeness *l = k->like;
    struct buffer *own = kernel_buffer_here(k, made);
    if (own)
        return own;
    int from = 0;
    while (from < l->n && (!made->weight.data || l->there[from]->weight.data != made->weight.data))
        from++;
    if (made->kind != BUFFER_SCRATCH && from == l->n)
        TGC_BUG(t, "kernel %s has a buffer that its twin lacks", l->kernel->name);
    own = mem_copy(t, made, sizeof *made);
    own->id = t->next_buffer++;
    own->storage = made->storage ? mem_copy(t, made->storage, sizeof *made->storage) : NULL;
    if (from < l->n) {
        own->weight.data = l->here[from]->weight.data;
        own->name = l->here[from]->name;
        own->weight.of = made->weight.of ? l->here[from] : NULL;
    }
    add_pair(t, l, own, made);
    return own;
}

static struct buffer **own_all(struct tgc *t, struct kernel *k, struct buffer *const *made, int n)
{
    struct buffer **own = mem_array(t, (size_t)n + 1, sizeof(struct buffer *));
    for (int i = 0; i < n; i++)
        own[i] = own_of(t, k, made[i]);
    return own;
}

void twin_follow(struct tgc *t, struct kernel *k)
{
    struct kernel was = *k;
    *k = *was.like->kernel;
    k->index = was.index;
    k->name = was.name;
    k->title = was.title;
    k->nodes = was.nodes;
    k->node = was.node;
    k->nnode = was.nnode;
    k->cap_node = was.cap_node;
    k->like = was.like;
    k->counts_down = was.counts_down;
    k->packed = own_all(t, k, k->packed, k->npacked);
    k->buffer = own_all(t, k, k->buffer, k->nbuffer);
    k->scratch = own_all(t, k, k->scratch, k->nscratch);
}

/* The uops, in the order of a program, with the twin's buffers. Nothing else of them changes, so no
 * rule fires. */
static struct uop **with_own(struct tgc *t, struct kernel *k, struct uop_map *of,
                             struct uop *const *u, int n)
{
    struct mem_mark mark = scratch_mark(t);
    struct uop **own = mem_array(t, (size_t)n + 1, sizeof *own);
    int norder;
    struct uop **order = uop_toposort(t, u, n, &norder);
    for (int i = 0; i < norder; i++) {
        struct uop *x = order[i];
        struct uop **src = scratch_array(t, (size_t)x->nsrc + 1, sizeof *src);
        union arg arg = x->arg;
        if (map_get(of, x))
            continue;
        if (uop_buffer_of(x))
            arg.p = own_of(t, k, (struct buffer *)(uintptr_t)x->arg.p);
        for (int j = 0; j < x->nsrc; j++)
            src[j] = map_get(of, x->src[j]);
        struct uop *r = uop_intern(t, x->op, x->dtype, src, x->nsrc, arg);
        uop_set_origin(t, r, x);
        map_set(of, x, r);
    }
    for (int i = 0; i < n; i++)
        own[i] = map_get(of, u[i]);
    scratch_release(t, mark);
    return own;
}

void kernel_own_programs(struct tgc *t, struct kernel *k)
{
    if (!k->like)
        return;
    struct uop_map of = {.t = t};
    k->ast = with_own(t, k, &of, &k->ast, 1)[0];
    k->linear = k->linear ? with_own(t, k, &of, k->linear, k->nlinear) : NULL;
    k->variant = mem_copy(t, k->variant, (size_t)k->nvariant * sizeof *k->variant);
    k->cap_variant = (size_t)k->nvariant;
    for (int i = 0; i < k->nvariant; i++) {
        struct variant *v = &k->variant[i];
        v->ast = v->ast ? with_own(t, k, &of, &v->ast, 1)[0] : NULL;
        v->linear = v->linear ? with_own(t, k, &of, v->linear, v->nlinear) : NULL;
    }
    k->like = NULL;
}
