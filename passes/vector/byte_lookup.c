/* byte_lookup.c - look-ups in a table of bytes (byte_table.c), by vectors of bytes.
 *
 *      for i < 1000             for i < 15    store.64 y[64i] = lookup(table, load.64 x[64i])
 *        y[i] = table[x[i]]     for i < 40    y[960 + i] = table[x[960 + i]]
 *
 * strip.c strips the loop as any other, with four bytes for each lane of a float.
 * runtime/vector_*.c implements LOOKUP: permutations of the table, which stays in registers.
 */
#include "passes/analysis/stationary.h"
#include "passes/vector/expand.h"

static bool is_table(const struct uop *u)
{
    enum { VALUES = 256 };
    const struct buffer *b = u->op == OP_LOAD && u->nsrc == 2 ? known_buffer(u->src[0]) : NULL;
    return b && dtype_is_byte(b->dtype) && b->nbytes == VALUES;
}

/* The byte that indexes a table at `at`, which is the byte less its dtype's least value. NULL:
 * none. */
static struct uop *key_of(const struct uop *at)
{
    int64_t least = 0;
    if (at->op == OP_ADD && uop_const_int(at->src[1], &least))
        at = at->src[0];
    struct uop *key = at->op == OP_CAST ? at->src[0] : NULL;
    return key && key->op == OP_LOAD && key->nsrc == 2 && dtype_is_byte(key->dtype) &&
                   least == -dtype_min(key->dtype)
               ? key
               : NULL;
}

static bool is_side_by_side(struct tgc *t, struct uop *offset, struct uop *range)
{
    int64_t stride;
    return index_stride(t, offset, range, &stride) && stride == 1;
}

bool lookup_find(const struct expander *e, int begin, int end, struct lookup *l)
{
    struct uop *range = e->in[begin], *store = NULL;
    *l = (struct lookup){0};
    for (int i = begin + 1; i < end; i++) {
        struct uop *u = e->in[i];
        bool known = op_class(u->op) == CLASS_LEAF || u->op == OP_LOAD ||
                     (op_is_elementwise(u->op) && u->dtype == DTYPE_INDEX);
        if (u->op == OP_STORE && u->nsrc == 3 && !store)
            store = u;
        else if (!known)
            return false;
    }
    bool has_lookup = isa_function((enum isa)(e->isa - isa_table), INTRINSIC_LOOKUP) != NULL;
    if (!has_lookup || !store || !is_table(store->src[2]))
        return false;
    struct uop *key = key_of(store->src[2]->src[1]);
    if (!key || !is_side_by_side(e->t, key->src[1], range) ||
        !is_side_by_side(e->t, store->src[1], range) ||
        (key->src[0] == store->src[0] && key->src[1] != store->src[1]))
        return false;
    *l = (struct lookup){store->src[2], key};
    for (int i = begin + 1; i < end; i++)
        if (e->in[i]->op == OP_LOAD && e->in[i] != key && e->in[i] != l->table)
            return false;
    return true;
}

bool lookup_expand(struct expander *e, const struct lookup *l, struct uop *u)
{
    struct tgc *t = e->t;
    union arg groups = {.i = ARG_PACK(VECTOR, e->lanes, 0, 1, true)};
    if (u == l->key) {
        struct uop *src[2] = {u->src[0], expand_value_of(e, u->src[1])};
        struct uop *v = uop_intern(t, OP_LOAD, u->dtype, src, 2, groups);
        expand_need(e, v);
        map_set(&e->value, u, v);
    } else if (u == l->table) {
        struct uop *src[2] = {u->src[0], expand_value_of(e, l->key)};
        enum intrinsic row = src[1]->dtype == DTYPE_I8 ? INTRINSIC_LOOKUP_I8 : INTRINSIC_LOOKUP;
        struct uop *v = uop_intern(t, OP_INTRINSIC, u->dtype, src, 2,
                                   (union arg){.i = INTRINSIC_BITS(row, src[1]->lanes, 0, 0)});
        expand_need(e, v);
        map_set(&e->value, u, v);
    } else if (u->op == OP_STORE) {
        struct uop *src[3] = {u->src[0], expand_value_of(e, u->src[1]),
                              expand_value_of(e, u->src[2])};
        expand_push(e, uop_intern(t, OP_STORE, u->dtype, src, 3, groups));
    } else {                                          /* the index is not needed as a value */
        const struct uop *at = l->table->src[1];
        return u == at || (at->op == OP_ADD && u == at->src[0]);
    }
    return true;
}
