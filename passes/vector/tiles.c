/* tiles.c - the lanes of a fragment as tiles, for units that multiply matrices.
 *
 *      for k                                       for k
 *        for group < 16, for byte < 4                a = load x[k*64], 16 rows of 64
 *          fragment row < 16, vector column < 16     b = load w[k*1024], 16 rows of 64
 *            acc += x[row, k, group, byte] *         acc = tile_dot(acc, a, b)
 *                   w[k, group, column, byte]
 *
 * A tile of values has the fragment's rows, each with the bytes of all groups; a tile of weights
 * has a row for each group, with the bytes of all columns. passes/kernel/fragment.c makes such
 * loops.
 */
#include "passes/vector/expand.h"

static int64_t size_of(const struct uop *range) { return range->src[0]->arg.i; }

static int64_t stride_along(struct expander *e, struct uop *offset, const struct uop *r)
{
    int64_t stride;
    if (!r || !index_stride(e->t, offset, r, &stride))
        TGC_BUG(e->t, "a tile without a stride");
    return stride;
}

void tile_load(struct expander *e, struct uop *u)
{
    struct uop *src[2] = {u->src[0], expand_value_of(e, u->src[1])}, *offset = u->src[1];
    /* values are loaded before the vector opens */
    bool weights = e->vector && stride_along(e, offset, e->vector) != 0;
    const struct uop *row = weights ? e->groups : e->fragment,
                     *along = weights ? e->vector : e->groups;
    const int group = dtype_group(u->dtype);
    if (stride_along(e, offset, e->group) != 1 || stride_along(e, offset, along) != group ||
        (weights && stride_along(e, offset, e->fragment) != 0))
        TGC_BUG(e->t, "elements of a tile lie apart");
    union arg arg = {.i = ARG_PACK(TILE, size_of(row), group * size_of(along),
                                   stride_along(e, offset, row))};
    struct uop *v = uop_intern(e->t, OP_LOAD, u->dtype, src, 2, arg);
    expand_need(e, v);
    map_set(&e->value, u, v);
}

void tile_store(struct expander *e, const struct uop *u, struct uop *const *src)
{
    int64_t stride = stride_along(e, u->src[1], e->fragment);
    if (stride_along(e, u->src[1], e->vector) != 1)
        TGC_BUG(e->t, "columns of a tile lie apart");
    scopes_forget_loads(&e->scopes, u->src[0]);
    expand_push(
        e, uop_intern(e->t, OP_STORE, u->dtype, src, 3,
                      (union arg){.i = ARG_PACK(TILE, size_of(e->fragment), e->lanes, stride)}));
}

struct uop *tile_dot(struct expander *e, struct uop *const *src)
{
    enum intrinsic of =
        src[2]->dtype == DTYPE_BF16 ? INTRINSIC_TILE_DOT_BF16 : INTRINSIC_TILE_DOT;
    return uop_intern(e->t, OP_INTRINSIC, src[0]->dtype, src, 3,
                      (union arg){.i = INTRINSIC_BITS(of, size_of(e->fragment), e->lanes,
                                                      size_of(e->groups))});
}

void tiles_forget(struct expander *e)
{
    for (int i = 0; i < e->scopes.n; i++)
        if (e->scopes.u[i] && e->scopes.u[i]->op == OP_LOAD && uop_is_tile(e->scopes.u[i]))
            map_set(&e->scopes.known, e->scopes.u[i], NULL);
}
