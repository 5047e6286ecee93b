/* twins.c - finds kernels that can share one function: layers of the same shapes differ only in
 * their buffers.
 *
 * Two kernels are twins if their linear programs are equal uop by uop, the portable one and each
 * variant's. The n-th buffer of one stands for the n-th of the other. Their buffers must also agree
 * in everything that a function's text depends on. Candidates are found by a hash of what must be
 * equal; the first of them in the schedule is written.
 */
#include "backends/program/program.h"

#include <string.h>

struct comparison { struct tgc *t; const struct kernel *a, *b; struct uop_map of; };

static int place_of(const struct kernel *k, const struct uop *u)
{
    const struct buffer *b = kernel_buffer_here(k, uop_buffer_of(u));
    for (int i = 0; i < k->nbuffer + k->nscratch; i++)
        if (b == (i < k->nbuffer ? k->buffer[i] : k->scratch[i - k->nbuffer]))
            return i;
    return -1;
}

static bool is_place(const struct uop *u) { return u->op == OP_BUFFER || u->op == OP_STAGE; }

/* Ids of loops, accumulators and guards, which may differ. */
static int64_t arg_of(const struct uop *u)
{
    return u->op == OP_RANGE                         ? u->arg.i & ~(int64_t)0x7fffffff
           : u->op == OP_ACC || u->op == OP_GUARD ? 0
                                                     : u->arg.i;
}

static bool are_alike(struct comparison *c, const struct uop *u, const struct uop *v)
{
    const struct uop *known = map_get(&c->of, u);
    if (known)
        return known == v;
    if (u->op != v->op || u->dtype != v->dtype || u->nsrc != v->nsrc)
        return false;
    if (is_place(u))
        return place_of(c->a, u) == place_of(c->b, v);
    if (op_class(u->op) == CLASS_LEAF)
        return u == v;
    if (arg_of(u) != arg_of(v))
        return false;
    for (int k = 0; k < u->nsrc; k++) {
        const struct uop *s = u->src[k], *r = v->src[k];
        bool leaf = is_place(s) || op_class(s->op) == CLASS_LEAF;
        bool size = s->op == OP_RANGE && r->op == OP_RANGE &&
                    s->src[0] == r->src[0]; /* a lane, named before it opens */
        if (leaf || !size || map_get(&c->of, s) ? !are_alike(c, s, r)
                                                : s->op != r->op || arg_of(s) != arg_of(r))
            return false;
    }
    map_set(&c->of, u, (void *)(uintptr_t)v);
    return true;
}

static bool programs_are_alike(struct comparison *c, struct uop *const *u, int n,
                               struct uop *const *v, int m)
{
    c->of = (struct uop_map){.t = c->t, .scratch = true};
    for (int i = 0; i < n && n == m && u != v; i++)
        if (!are_alike(c, u[i], v[i]))
            return false;
    return n == m;
}

static bool are_twins(struct tgc *t, const struct kernel *a, const struct kernel *b)
{
    struct mem_mark mark = scratch_mark(t);
    struct comparison c = {.t = t, .a = a, .b = b};
    bool alike = a->nbuffer == b->nbuffer && a->noutput == b->noutput &&
                 a->nscratch == b->nscratch && a->nvar == b->nvar && a->nvariant == b->nvariant &&
                 a->is_shared == b->is_shared && a->block == b->block &&
                 a->counts_down == b->counts_down &&
                 kernel_buffers_agree(a, b) &&
                 programs_are_alike(&c, a->linear, a->nlinear, b->linear, b->nlinear);
    for (int i = 0; i < a->nvariant && alike; i++)
        alike = a->variant[i].isa == b->variant[i].isa &&
                programs_are_alike(&c, a->variant[i].linear, a->variant[i].nlinear,
                                   b->variant[i].linear, b->variant[i].nlinear);
    scratch_release(t, mark);
    return alike;
}

static uint64_t hash_of(const struct kernel *k)
{
    uint64_t h = (uint64_t)k->nlinear;
    for (int i = 0; i < k->nlinear; i++) {
        const struct uop *u = k->linear[i];
        uint64_t arg = is_place(u) || op_class(u->op) == CLASS_LEAF ? 0 : (uint64_t)arg_of(u);
        h = (h ^ ((uint64_t)u->op << 8 ^ (uint64_t)u->dtype ^ arg << 16)) * 0x9E3779B97F4A7C15u;
        h ^= h >> 29;
    }
    return h;
}

const struct kernel **twins_find(struct tgc *t, const struct schedule *s)
{
    const struct kernel **twin = mem_array(t, (size_t)s->nkernel + 1, sizeof *twin);
    uint64_t *hash = mem_array(t, (size_t)s->nkernel + 1, sizeof *hash);
    int size = 64;
    while (size < 2 * s->nkernel)
        size *= 2;
    int *first = mem_array(t, (size_t)size, sizeof *first);      /* index + 1 */
    for (int i = 0; i < s->nkernel; i++) {
        hash[i] = hash_of(s->kernel[i]);
        twin[i] = s->kernel[i];
        size_t at = hash[i] & (size_t)(size - 1);
        for (; first[at]; at = (at + 1) & (size_t)(size - 1)) {
            int j = first[at] - 1;
            if (hash[j] == hash[i] && are_twins(t, s->kernel[j], s->kernel[i])) {
                twin[i] = s->kernel[j];
                break;
            }
        }
        if (!first[at])
            first[at] = i + 1;
    }
    return twin;
}
