/* tune_key.c - keys of choices in a tune file: a hash of the nest's tree before the choice, of
 * operations, types, sizes and strides, independent of names and ids of buffers and loops. The
 * order of a commutative op's operands counts: opts name operands, sums and stages by number. */
#include "passes/analysis/stationary.h"
#include "passes/kernel/tile.h"

static uint64_t hash_dims(uint64_t h, struct uop *const *dim, int ndim)
{
    for (int a = 0; a < ndim; a++)
        h = tune_mix(tune_mix(h, (uint64_t)dim[a]->vmin), (uint64_t)dim[a]->vmax);
    return h;
}

static uint64_t hash_buffer(const struct buffer *b)
{
    uint64_t h = tune_mix((uint64_t)b->dtype, buffer_is_stationary(b));
    return hash_dims(h, b->dim, b->ndim);
}

/* Hashes of uops, by position in an order with sources first. */
struct hasher { struct uop_map place; uint64_t *hash; };

static uint64_t hash_source(const struct hasher *s, const struct uop *u, int k)
{
    return s->hash[(uintptr_t)map_get(&s->place, u->src[k]) - 1];
}

/* A loop is identified by its position among those of the uop that binds it, and by its size. */
static void hash_ranges(struct hasher *s, const struct uop *u)
{
    for (int k = 0; k < u->nsrc; k++) {
        const struct uop *r = u->src[k];
        if (r->op == OP_RANGE && op_class(u->op) != CLASS_BINARY)
            s->hash[(uintptr_t)map_get(&s->place, r) - 1] =
                tune_mix(tune_mix(tune_mix((uint64_t)u->op, (uint64_t)k),
                                  (uint64_t)r->src[0]->vmax),
                         (uint64_t)r->arg.i >> 32);
    }
}

static uint64_t hash_uop(const struct hasher *s, const struct uop *u)
{
    uint64_t h = tune_mix((uint64_t)u->op, (uint64_t)u->dtype);
    if (u->op == OP_VAR)
        return tune_mix(tune_mix(h, (uint64_t)u->vmin), (uint64_t)u->vmax);
    if (u->op == OP_BUFFER || u->op == OP_STAGE)
        h = tune_mix(h, hash_buffer(uop_buffer_of(u)));
    else if (op_argkind(u->op) != ARG_NONE)
        h = tune_mix(h, (uint64_t)u->arg.i);
    for (int k = 0; k < u->nsrc; k++)
        h = tune_mix(h, hash_source(s, u, k));
    return h;
}

uint64_t tune_key_of_store(struct tgc *t, struct uop *store)
{
    struct mem_mark mark = scratch_mark(t);
    int n;
    struct uop **order = uop_toposort(t, &store, 1, &n);
    struct hasher s = {.place = {.t = t, .scratch = true},
                       .hash = scratch_array(t, (size_t)n, sizeof *s.hash)};
    for (int i = 0; i < n; i++)
        map_set(&s.place, order[i], (void *)(uintptr_t)(i + 1));
    for (int i = 0; i < n; i++)
        if (order[i]->op == OP_STORE || order[i]->op == OP_REDUCE || order[i]->op == OP_STAGE)
            hash_ranges(&s, order[i]);
    for (int i = 0; i < n; i++)
        if (order[i]->op != OP_RANGE)
            s.hash[i] = hash_uop(&s, order[i]);
    uint64_t h = s.hash[n - 1];
    scratch_release(t, mark);
    return h;
}
