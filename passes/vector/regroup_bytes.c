/* regroup_bytes.c - regroups bytes into groups of four (runtime_products.c), by vectors.
 *
 *      for j < 32                            for j < 2
 *        for g < 4                             store.64 y[64j] = load.64 x[16j], groups 100 apart
 *          y[4j + g] = x[j + 100g]
 *
 * Bytes that are contiguous before and after are moved as one word. strip.c strips the loops as any
 * other.
 */
#include "passes/vector/expand.h"

static bool has_stride(struct tgc *t, struct uop *offset, struct uop *r, int64_t want)
{
    int64_t stride;
    return index_stride(t, offset, r, &stride) && stride == want;
}

/* Finds a loop that copies bytes, with at most one loop inside. */
static bool find_copy(const struct expander *e, int begin, int end, struct groups *g,
                      struct uop **store)
{
    *store = NULL;
    for (int i = begin + 1; i < end; i++) {
        struct uop *u = e->in[i];
        if (u->op == OP_RANGE && !g->inner && !range_is_lane(u))
            g->inner = u;
        else if (u->op == OP_LOAD && !g->load && u->nsrc == 2 && dtype_is_byte(u->dtype))
            g->load = u;
        else if (u->op == OP_STORE && !*store && u->nsrc == 3)
            *store = u;
        else if (op_class(u->op) != CLASS_LEAF && u->op != OP_END &&
                 !(op_is_elementwise(u->op) && u->dtype == DTYPE_INDEX))
            return false;
    }
    return *store && g->load && (*store)->src[2] == g->load && (*store)->src[0] != g->load->src[0];
}

bool groups_find(const struct expander *e, int begin, int end, struct groups *g)
{
    struct tgc *t = e->t;
    struct uop *range = e->in[begin], *store;
    *g = (struct groups){.step = 1};
    if (!find_copy(e, begin, end, g, &store))
        return false;
    struct uop *from = g->load->src[1], *to = store->src[1], *group = g->inner ? g->inner : range;
    if (!uop_is_int(group->src[0], DOT_BYTES) || !has_stride(t, to, group, 1))
        return false;
    g->lanes = g->inner ? e->isa->lanes : DOT_BYTES;
    g->bytes = g->inner ? DOT_BYTES * g->lanes : DOT_BYTES;
    if (!g->inner)
        return has_stride(t, from, range, 1);
    return has_stride(t, to, range, DOT_BYTES) && has_stride(t, from, range, 1) &&
           index_stride(t, from, group, &g->step) && g->step != 1 && g->step > 0 &&
           g->step <= VECTOR_STRIDE_MAX;
}

bool groups_expand(struct expander *e, const struct groups *g, struct uop *u)
{
    struct tgc *t = e->t;
    if (u == g->load) {
        struct uop *src[2] = {u->src[0], expand_value_of(e, u->src[1])};
        struct uop *v = uop_intern(t, OP_LOAD, u->dtype, src, 2,
                                   (union arg){.i = ARG_PACK(VECTOR, g->bytes, 0, g->step, true)});
        expand_need(e, v);
        map_set(&e->value, u, v);
        return true;
    }
    if (u->op == OP_STORE) {
        struct uop *src[3] = {u->src[0], expand_value_of(e, u->src[1]),
                              expand_value_of(e, u->src[2])};
        expand_push(e, uop_intern(t, OP_STORE, u->dtype, src, 3,
                                  (union arg){.i = ARG_PACK(VECTOR, g->bytes, 0, 1, true)}));
        return true;
    }
    if (u == g->inner)
        map_set(&e->value, u, uop_int(t, 0));
    return g->inner && (u == g->inner || u->op == OP_END);
}
